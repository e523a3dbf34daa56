"""Abstract syntax trees of Python sources to trees."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from tf_ext.recursion.forest import Forest
from tf_ext.recursion.forest_builder import ForestBuilder, several
from tf_ext.recursion.vocabulary import Vocabulary, lookup


def from_ast(
    sources: str | ast.AST | Iterable[str | ast.AST],
    *,
    vocabulary: Vocabulary | Mapping[str, int],
    identifiers: bool = False,
) -> Forest:
    """Trees from Python sources, a node for each node of the abstract syntax tree.

    A node's value is the integer of its type's name, such as `BinOp`. `Load`, `Store` and `Del` are left out: they say
    nothing that their place does not. With `identifiers`, each name that a node holds (a variable, an attribute, an
    argument, a function's own name) becomes a leaf, before its other children; its token is in quotes, such as `'x'`,
    so that a variable `BinOp` is not taken for the type. Constants are known by the type `Constant` alone.

    Example:
        >>> vocabulary = Vocabulary()
        >>> forest = from_ast("x + 1", vocabulary=vocabulary, identifiers=True)
        >>> [vocabulary.tokens[value] for value in forest.values]
        ["'x'", 'Name', 'Add', 'Constant', 'BinOp', 'Expr', 'Module']

    Args:
        sources: source text or an `ast.AST`, or several.
        vocabulary: what turns type names and identifiers into integers; `ast_vocabulary()` has every type.
        identifiers: whether names become leaves.

    Returns:
        The forest; `source` is a node's place in pre-order.

    Raises:
        ValueError: if a source is no Python, or is nested too deeply for Python's own parser.
    """
    builder = ForestBuilder()
    for tree in [sources] if isinstance(sources, str | ast.AST) else several(sources, "sources"):
        where = f"source {builder.num_trees}"
        stack: list[tuple[str | ast.AST, int]] = [(_parsed(tree, where), -1)]
        while stack:
            node, parent = stack.pop()
            if isinstance(node, str):
                builder.add(lookup(vocabulary, repr(node), where), parent)
                continue
            index = builder.add(lookup(vocabulary, type(node).__name__, where), parent)
            parts: list[str | ast.AST] = list(_names(node)) if identifiers else []
            parts.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context))
            stack.extend((child, index) for child in reversed(parts))
        builder.end_tree()
    return builder.build()


def ast_vocabulary() -> Vocabulary:
    """A growing vocabulary that holds the type of every syntax node of this Python, in alphabetical order.

    Types come and go between versions of Python: a model that is to be loaded under another one keeps
    `vocabulary.tokens` with it.

    Example:
        >>> "FunctionDef" in ast_vocabulary().freeze()
        True

    Returns:
        The vocabulary.
    """
    kinds = [kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)]
    return Vocabulary(sorted({kind.__name__ for kind in kinds if kind.__module__ in ("ast", "_ast")}))


def _parsed(tree: str | ast.AST, where: str) -> ast.AST:
    if isinstance(tree, ast.AST):
        return tree
    if not isinstance(tree, str):
        raise ValueError(f"{where}: expected source text or an ast.AST, got {type(tree).__name__}.")
    try:
        return ast.parse(tree)
    except SyntaxError as error:
        raise ValueError(f"{where}, line {error.lineno}: expected Python, got a syntax error: {error.msg}.") from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise ValueError(f"{where}: expected Python that its own parser can read, got {error!r}.") from error


def _names(node: ast.AST) -> Iterator[str]:
    for field, content in ast.iter_fields(node):
        # The text of a string or of a type comment is no name.
        if field in ("value", "kind", "type_comment"):
            continue
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, str):
                yield part
