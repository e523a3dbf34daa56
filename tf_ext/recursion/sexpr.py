"""Treebank lines such as `(3 (2 good) (4 movie))` to trees and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tf_ext.recursion.forest import Forest
from tf_ext.recursion.forest_builder import ForestBuilder, several
from tf_ext.recursion.vocabulary import Vocabulary, lookup

# Only ASCII white space parts tokens: the Stanford treebank has tokens with a no-break space inside.
_PIECE = re.compile(r"[()]|[^() \t\r\n\f\v]+")
_ESCAPES = {"(": "-LRB-", ")": "-RRB-", "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-"}
_UNESCAPES = {escape: bracket for bracket, escape in _ESCAPES.items()}
_ESCAPED = re.compile("|".join(_UNESCAPES))
_NEEDS_ESCAPE = re.compile(r"[()\[\]{}]")


def from_sexpr(
    lines: str | Iterable[str],
    *,
    vocabulary: Vocabulary | Mapping[str, int],
    label_vocabulary: Vocabulary | Mapping[str, int] | None = None,
    inner: int = 0,
) -> Forest:
    """Trees from treebank lines, the format of the Stanford Sentiment Treebank.

    A line is one tree; empty lines are passed over. A tree is `(label token)` or `(label tree tree ...)`, with any
    number of subtrees. In tokens, `-LRB-`, `-RRB-`, `-LSB-`, `-RSB-`, `-LCB-`, `-RCB-` stand for brackets.

    Example:
        >>> vocabulary = Vocabulary()
        >>> forest = from_sexpr("(3 (2 good) (4 movie))", vocabulary=vocabulary)
        >>> forest.values.tolist(), forest.labels.tolist(), vocabulary.tokens[2:]
        ([2, 3, 0], [2, 4, 3], ['good', 'movie'])

    Args:
        lines: the lines, an open file, or one string.
        vocabulary: what turns tokens into integers; a `Vocabulary()` grows with the tokens it meets.
        label_vocabulary: what turns labels into integers, for treebanks with labels such as `NP`; when left out, labels
            are integers as they stand.
        inner: the value of nodes that have no token; a `Vocabulary` keeps 0 free for it.

    Returns:
        The forest, with a label for each node; `source` is a node's place in pre-order.

    Raises:
        TypeError: for a line that is no text.
        ValueError: for a malformed line; it names the line, the column and what was expected there.
    """
    builder = ForestBuilder()
    parser = _Parser(builder, vocabulary, label_vocabulary, inner)
    for number, line in enumerate(lines.split("\n") if isinstance(lines, str) else several(lines, "lines"), start=1):
        if not isinstance(line, str):
            raise TypeError(
                f"line {number}: expected text, got {type(line).__name__}. Decode bytes; open files as text."
            )
        if line.strip():
            parser.read(line.rstrip(), number)
    return builder.build(labelled=True)


class _Parser:
    """Reads one line after another into a builder, keeping the open nodes on a stack of its own."""

    def __init__(
        self,
        builder: ForestBuilder,
        vocabulary: Vocabulary | Mapping[str, int],
        label_vocabulary: Vocabulary | Mapping[str, int] | None,
        inner: int,
    ) -> None:
        self._builder = builder
        self._vocabulary = vocabulary
        self._label_vocabulary = label_vocabulary
        self._inner = inner

    def read(self, line: str, number: int) -> None:
        open_nodes: list[int] = []
        expected = "'('"
        for match in _PIECE.finditer(line):
            piece, where = match.group(), f"line {number}, column {match.start() + 1}"
            if expected == "a label" and piece not in "()":
                parent = open_nodes[-1] if open_nodes else -1
                open_nodes.append(self._builder.add(self._inner, parent, self._label(piece, where)))
                expected = "a token or '('"
            elif piece == "(" and "'('" in expected:
                expected = "a label"
            elif piece == ")" and "')'" in expected:
                open_nodes.pop()
                expected = "'(' or ')'" if open_nodes else "the end of the line (one tree a line)"
            elif piece not in "()" and "token" in expected:
                token = _ESCAPED.sub(lambda escape: _UNESCAPES[escape.group()], piece)
                self._builder.set_value(open_nodes[-1], lookup(self._vocabulary, token, where))
                expected = "')'"
            else:
                raise ValueError(f"{where}: expected {expected}, got {piece!r} in {_shorten(line)}.")
        if not expected.startswith("the end"):
            where = f"line {number}, column {len(line) + 1}"
            raise ValueError(f"{where}: expected {expected}, got the end of the line {_shorten(line)}.")
        self._builder.end_tree()

    def _label(self, piece: str, where: str) -> int:
        if self._label_vocabulary is not None:
            return lookup(self._label_vocabulary, piece, where)
        try:
            return int(piece)
        except ValueError:
            raise ValueError(
                f"{where}: expected an integer label, got {piece!r}. "
                "For labels that are words, pass label_vocabulary=tf_ext.recursion.Vocabulary()."
            ) from None


def _shorten(line: str) -> str:
    return repr(line if len(line) <= 60 else f"{line[:57]}...")


def to_sexpr(
    forest: Forest,
    *,
    vocabulary: Vocabulary | Mapping[str, int],
    label_vocabulary: Vocabulary | Mapping[str, int] | None = None,
) -> list[str]:
    """The trees as treebank lines, which `from_sexpr` reads back.

    Example:
        >>> vocabulary = Vocabulary()
        >>> to_sexpr(from_sexpr("(1 (0 -LRB-) (2 a))", vocabulary=vocabulary), vocabulary=vocabulary)
        ['(1 (0 -LRB-) (2 a))']

    Args:
        forest: trees with labels; the values of nodes with children are left out, as the format has no place for them.
        vocabulary: the tokens of the values.
        label_vocabulary: the tokens of the labels, or None where labels are integers.

    Returns:
        One line for each tree.

    Raises:
        ValueError: if there are no labels, or a value or label has no token or one with white space.
    """
    values, labels, arity = forest.values.tolist(), forest.required_labels.tolist(), forest.arity.tolist()
    tokens = _tokens(vocabulary)
    label_tokens = None if label_vocabulary is None else _tokens(label_vocabulary)
    children, splits = forest.child_index.tolist(), forest.row_splits.tolist()
    lines = []
    for root in forest.roots.tolist():
        pieces: list[str] = []
        stack = [root]
        while stack:
            node = stack.pop()
            if node < 0:
                pieces.append(")")
                continue
            label = str(labels[node]) if label_tokens is None else _write(label_tokens, labels[node], node)
            pieces.append(f" ({label}")
            if not arity[node]:
                pieces.append(f" {_write(tokens, values[node], node)}")
            stack.append(-1)
            stack.extend(reversed(children[splits[node] : splits[node + 1]]))
        lines.append("".join(pieces).lstrip())
    return lines


def _tokens(vocabulary: Vocabulary | Mapping[str, int]) -> dict[int, str]:
    if isinstance(vocabulary, Vocabulary):
        return dict(enumerate(vocabulary.tokens))
    return {index: token for token, index in vocabulary.items()}


def _write(tokens: dict[int, str], index: int, node: int) -> str:
    token = tokens.get(index)
    if token is None:
        raise ValueError(f"node {node}: expected an integer of the vocabulary ({len(tokens)} entries), got {index}.")
    written = _NEEDS_ESCAPE.sub(lambda bracket: _ESCAPES[bracket.group()], token)
    if not written or _PIECE.fullmatch(written) is None:
        raise ValueError(
            f"node {node}: expected a token without white space, got {token!r}; the format cannot hold it."
        )
    return written
