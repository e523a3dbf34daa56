"""Functions of the standard library as trees, with the first word of their names as labels."""

from __future__ import annotations

import ast
import collections
import dataclasses
import pathlib
import random
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tf_ext.recursion import Forest, Vocabulary, from_ast

# Packages of some size beside the modules at the top. `encodings` is left out: the same file a hundred times over.
PACKAGES = (
    "asyncio",
    "collections",
    "concurrent",
    "email",
    "html",
    "http",
    "importlib",
    "json",
    "logging",
    "multiprocessing",
    "unittest",
    "urllib",
    "wsgiref",
    "xml",
    "xmlrpc",
)
HIDDEN_NAME = "<hidden>"


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of the standard library.

    Attributes:
        module: where it stands, such as `email.parser`.
        name: its name.
        tree: its syntax tree.
        source: its text.
    """

    module: str
    name: str
    tree: ast.FunctionDef | ast.AsyncFunctionDef
    source: str

    @property
    def label(self) -> str:
        """The first word of the name: `get` of `_get_item`, `init` of `__init__`."""
        return self.name.strip("_").split("_")[0].lower()


@dataclasses.dataclass(frozen=True)
class Split:
    """A part of the data: functions, their trees without their names, and the number of each one's label."""

    functions: Sequence[Function]
    forest: Forest
    labels: npt.NDArray[np.int32]


@dataclasses.dataclass(frozen=True)
class Data:
    """Training and test data from different modules.

    Attributes:
        train: the functions to learn from.
        test: functions of modules that `train` has none of.
        names: the labels.
        vocabulary: the tokens of tree nodes: kinds of syntax nodes, and identifiers of the training modules.
    """

    train: Split
    test: Split
    names: list[str]
    vocabulary: Vocabulary

    @property
    def majority(self) -> float:
        """The accuracy on the test data of always guessing the commonest label of the training data."""
        commonest = np.bincount(self.train.labels).argmax()
        return float((self.test.labels == commonest).mean())


def load(num_labels: int = 24, max_nodes: int = 160, min_count: int = 3, seed: int = 0) -> Data:
    """Reads the standard library.

    Args:
        num_labels: how many labels, the most frequent ones, are kept; functions with others are left out.
        max_nodes: larger functions are left out.
        min_count: identifiers that the training modules have less often become `<unk>`.
        seed: of the split into training and test modules.

    Returns:
        The data; a fifth of the modules is for the test.
    """
    functions = list(_functions())
    counts = collections.Counter(function.label for function in functions)
    names = [label for label, _ in counts.most_common(num_labels)]
    functions = [function for function in functions if function.label in names]
    every_token = Vocabulary()
    forest = from_ast([function.tree for function in functions], vocabulary=every_token, identifiers=True)
    small = np.flatnonzero(forest.sizes <= max_nodes)
    functions, forest = [functions[i] for i in small], forest[small]
    forest = _without_names(functions, forest, every_token)

    modules = sorted({function.module for function in functions})
    random.Random(seed).shuffle(modules)
    held_out = set(modules[: len(modules) // 5])
    in_test = np.array([function.module in held_out for function in functions])
    train = np.flatnonzero(~in_test)
    vocabulary, renumbered = _known_tokens(every_token, forest[train], min_count)
    forest = dataclasses.replace(forest, values=renumbered[forest.values])
    labels = np.array([names.index(function.label) for function in functions], np.int32)

    def part(chosen: npt.NDArray[np.int64]) -> Split:
        return Split([functions[i] for i in chosen], forest[chosen], labels[chosen])

    return Data(part(train), part(np.flatnonzero(in_test)), names, vocabulary)


def _without_names(functions: Sequence[Function], forest: Forest, vocabulary: Vocabulary) -> Forest:
    """Hides each function's own name, not only where it is defined: `super().__init__()` would give it away."""
    own = np.array([vocabulary[repr(function.name)] for function in functions])
    values = np.where(forest.values == np.repeat(own, forest.sizes), vocabulary[HIDDEN_NAME], forest.values)
    return dataclasses.replace(forest, values=values.astype(np.int32))


def _known_tokens(
    every_token: Vocabulary, training: Forest, min_count: int
) -> tuple[Vocabulary, npt.NDArray[np.int32]]:
    """The vocabulary of what is frequent in training, and for each number of `every_token` its number there."""
    counts = np.bincount(training.values, minlength=len(every_token))
    kept = [token for token, count in zip(every_token.tokens, counts, strict=True) if count >= min_count]
    vocabulary = Vocabulary(kept).freeze()
    return vocabulary, np.array([vocabulary[token] for token in every_token.tokens], np.int32)


def _functions() -> Iterator[Function]:
    for path, module in _modules():
        try:
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text)
        except (SyntaxError, UnicodeDecodeError):
            continue
        lines = text.splitlines()
        for node in _definitions(tree):
            if node.name.strip("_"):
                source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                yield Function(module, node.name, node, source)


def _definitions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions of the module, of its classes, and those in functions; expressions are not searched."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        stack += [part for part in getattr(node, "body", []) if isinstance(part, ast.stmt)]


def _modules() -> Iterator[tuple[pathlib.Path, str]]:
    root = pathlib.Path(ast.__file__).parent
    paths = list(root.glob("*.py"))
    for package in PACKAGES:
        paths += (root / package).rglob("*.py")
    for path in sorted(paths):
        parts = path.relative_to(root).with_suffix("").parts
        # Some distributions have tests among the modules, each of whose functions is named `test_...`.
        if not {"test", "tests"} & set(parts):
            yield path, ".".join(parts)
