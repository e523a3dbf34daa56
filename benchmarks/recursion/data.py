"""The forests of the benchmark: random binary trees, a chain, and functions of the standard library."""

import ast
import dataclasses
import functools
import pathlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]

WORDS = 10_000
"""Size of the vocabulary of the binary trees."""

_MODULES = (
    "argparse",
    "ast",
    "calendar",
    "configparser",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "difflib",
    "fractions",
    "functools",
    "gettext",
    "heapq",
    "inspect",
    "ipaddress",
    "mailbox",
    "optparse",
    "pickle",
    "pprint",
    "shutil",
    "statistics",
    "subprocess",
    "tarfile",
    "textwrap",
    "threading",
    "tokenize",
    "typing",
    "zipfile",
)


@dataclasses.dataclass(frozen=True)
class Forest:
    """Trees in one array of nodes, numbered children first.

    Attributes:
        tokens: `[nodes]` the word or type of each node (0 where a node has none).
        first: `[nodes + 1]` where each node's children begin in `children`.
        children: `[nodes - trees]` the children's numbers, in order.
        roots: `[trees]` the number of each tree's root.
    """

    tokens: Ints
    first: Ints
    children: Ints
    roots: Ints

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.tokens)

    @property
    def batch(self) -> int:
        """The number of trees."""
        return len(self.roots)

    @property
    def arity(self) -> Ints:
        """`[nodes]` the number of children of each node."""
        return np.diff(self.first)

    def children_of(self, node: int) -> Ints:
        """Returns the numbers of a node's children."""
        return self.children[self.first[node] : self.first[node + 1]]

    def pairs(self) -> tuple[Ints, Ints]:
        """Returns the left and right child of every node of a binary forest, -1 at the leaves."""
        left, right = np.full((2, self.size), -1, np.int32)
        inner = self.arity == 2
        left[inner] = self.children[self.first[:-1][inner]]
        right[inner] = self.children[self.first[:-1][inner] + 1]
        return left, right


def pack(trees: Sequence[Sequence[tuple[int, Sequence[int]]]]) -> Forest:
    """Joins trees given as lists of `(token, children)` in post-order, the root last."""
    tokens: list[int] = []
    first = [0]
    children: list[int] = []
    roots: list[int] = []
    for tree in trees:
        start = len(tokens)
        for token, own in tree:
            tokens.append(token)
            children.extend(start + child for child in own)
            first.append(len(children))
        roots.append(len(tokens) - 1)
    return Forest(*(np.asarray(a, np.int32) for a in (tokens, first, children, roots)))


def random_binary(batch: int, seed: int = 0, leaves: tuple[int, int] = (20, 50), words: int = WORDS) -> Forest:
    """Draws binary trees: a uniform number of leaves, every split point equally likely.

    The first tree has the mean number of leaves, so that a batch of 1 stands for the others.
    """
    random = np.random.default_rng(seed)
    counts = random.integers(leaves[0], leaves[1] + 1, batch)
    counts[0] = sum(leaves) // 2

    def grow(count: int, nodes: list[tuple[int, Sequence[int]]]) -> int:
        if count == 1:
            nodes.append((int(random.integers(words)), ()))
        else:
            cut = int(random.integers(1, count))
            children = (grow(cut, nodes), grow(count - cut, nodes))
            nodes.append((0, children))
        return len(nodes) - 1

    trees: list[list[tuple[int, Sequence[int]]]] = [[] for _ in range(batch)]
    for count, tree in zip(counts, trees, strict=True):
        grow(int(count), tree)
    return pack(trees)


def chain(length: int, seed: int = 0, words: int = WORDS) -> Forest:
    """Builds the degenerate binary tree of `length` inner nodes, one above the other.

    The left child of an inner node is the inner node below (a leaf for the lowest one), the right child a leaf:
    `length` cells that must run one after the other, and `length + 1` leaves.
    """
    random = np.random.default_rng(seed)
    nodes: list[tuple[int, Sequence[int]]] = [(int(random.integers(words)), ())]
    for _ in range(length):
        below = len(nodes) - 1
        nodes.append((int(random.integers(words)), ()))
        nodes.append((0, (below, below + 1)))
    return pack([nodes])


@functools.cache
def node_types() -> dict[str, int]:
    """Returns the number of each class of syntax node."""
    names = sorted(name for name, value in vars(ast).items() if isinstance(value, type) and issubclass(value, ast.AST))
    return {name: number for number, name in enumerate(names)}


@functools.cache
def _functions() -> tuple[ast.FunctionDef, ...]:
    folder = pathlib.Path(ast.__file__).parent
    found: list[ast.FunctionDef] = []
    for module in _MODULES:
        tree = ast.parse((folder / f"{module}.py").read_text(encoding="utf-8"))
        found += [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return tuple(found)


def _flatten(function: ast.AST) -> list[tuple[int, Sequence[int]]]:
    nodes: list[tuple[int, Sequence[int]]] = []

    def visit(node: ast.AST) -> int:
        # Load, Store and Del repeat what the parent says and would double the number of nodes.
        below = [c for c in ast.iter_child_nodes(node) if not isinstance(c, ast.expr_context)]
        children = [visit(child) for child in below]
        nodes.append((node_types()[type(node).__name__], children))
        return len(nodes) - 1

    visit(function)
    return nodes


def syntax_trees(batch: int, seed: int = 0) -> Forest:
    """Draws functions from the standard library's sources, as trees of node types.

    A batch of 1 is the function of median size among a hundred drawn, so that it stands for the others.
    """
    functions = _functions()
    random = np.random.default_rng(seed)
    if batch > 1:
        chosen = random.choice(len(functions), batch, replace=False)
        return pack([_flatten(functions[i]) for i in chosen])
    drawn = [_flatten(functions[i]) for i in random.choice(len(functions), 100, replace=False)]
    return pack([sorted(drawn, key=len)[50]])
