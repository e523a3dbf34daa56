"""Putting the nodes of trees in level order, deepest level first, from nothing but their parents.

In that order a whole forest is told by one number per node, how many children it has: read from the first node to the
last, every node but the roots is, in turn, the next child of the next parent.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.integer]
_SHOWN = 8


def node_depths(parents: IntArray, node_splits: IntArray) -> npt.NDArray[np.int64]:
    """How many edges lie between each node and its root.

    Jumps of doubling length (each node asks its ancestor for that one's ancestor) need log2(depth) passes, where a walk
    by levels would need one for each level of a chain.

    Example:
        >>> node_depths(np.array([-1, 0, 1]), np.array([0, 3])).tolist()
        [0, 1, 2]

    Args:
        parents: [num_nodes], the index of each node's parent among all nodes, -1 for a root.
        node_splits: [num_trees + 1], where each tree starts, for the error.

    Returns:
        [num_nodes], 0 for roots.

    Raises:
        ValueError: if following the parents goes round in a circle; it names the tree and the nodes.
    """
    count = len(parents)
    is_root = parents < 0
    ancestor = np.where(is_root, np.arange(count), parents).astype(np.int64)
    depth = (~is_root).astype(np.int64)
    for _ in range(count.bit_length() + 1):
        if is_root[ancestor].all():
            return depth
        depth += depth[ancestor]
        ancestor = ancestor[ancestor]
    # More steps than nodes: whoever has not met a root by now points into the circle itself.
    raise _cycle_error(parents, node_splits, int(ancestor[~is_root[ancestor]][0]))


def _cycle_error(parents: IntArray, node_splits: IntArray, start: int) -> ValueError:
    tree = int(np.searchsorted(node_splits, start, side="right")) - 1
    cycle = [start]
    while len(cycle) <= _SHOWN and int(parents[cycle[-1]]) != start:
        cycle.append(int(parents[cycle[-1]]))
    shown = [str(node - int(node_splits[tree])) for node in cycle[:_SHOWN]]
    shown.append("..." if len(cycle) > _SHOWN else shown[0])
    return ValueError(
        f"tree {tree}: expected every node to lead to the root, got a cycle of parents: {' -> '.join(shown)}. "
        "Give one of these nodes the parent -1 or a parent outside the cycle."
    )


def level_order(parents: IntArray, node_splits: IntArray) -> npt.NDArray[np.int64]:
    """The order of the nodes, tree after tree, deepest level first, siblings together and as they were.

    Example:
        >>> level_order(np.array([-1, 0, 1, 0]), np.array([0, 4])).tolist()
        [2, 1, 3, 0]

    Args:
        parents: [num_nodes], the index of each node's parent among all nodes, -1 for a root.
        node_splits: [num_trees + 1], where each tree starts.

    Returns:
        [num_nodes], `order[i]` is the node that comes i-th.

    Raises:
        ValueError: on a cycle.
    """
    tree_ids = np.repeat(np.arange(len(node_splits) - 1), np.diff(node_splits))
    depth = node_depths(parents, node_splits)
    # By index is right within a level for nodes that came in pre-, post- or level order, and costs no walk.
    order = np.lexsort((-depth, tree_ids))
    if _siblings_together(parents, order):
        return order
    return np.lexsort((_preorder_ranks(parents), -depth, tree_ids))


def _siblings_together(parents: IntArray, order: npt.NDArray[np.int64]) -> bool:
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    ordered = parents[order]
    return bool(np.all(np.diff(place[ordered[ordered >= 0]]) >= 0))


def _preorder_ranks(parents: IntArray) -> npt.NDArray[np.int64]:
    children: list[list[int]] = [[] for _ in parents]
    stack: list[int] = []
    for node, parent in enumerate(parents.tolist()):
        (children[parent] if parent >= 0 else stack).append(node)
    ranks = np.empty(len(parents), np.int64)
    rank = 0
    while stack:
        node = stack.pop()
        ranks[node] = rank
        rank += 1
        stack.extend(reversed(children[node]))
    return ranks
