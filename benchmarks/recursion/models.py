"""The two models of the benchmark: their formulas, their weights and a numpy reference.

Every implementation (ours and the peers) computes exactly what is written here, from the same numpy weights.

**Binary TreeLSTM** (Tai et al. 2015, section 3.2, N = 2, words at the leaves only, a forget gate per child).
With `x = embedding[word]` and `[l; r]` the children's rows side by side:

    leaf:   i, o, u           = split(x @ leaf_kernel + leaf_bias)
            c = sigmoid(i) * tanh(u)
    node:   i, o, f_l, f_r, u = split([h_l; h_r] @ kernel + bias)
            c = sigmoid(i) * tanh(u) + sigmoid(f_l) * c_l + sigmoid(f_r) * c_r
    both:   h = sigmoid(o) * tanh(c)

**Child-sum TreeLSTM** (Tai et al. 2015, section 3.1, an input at every node). With `x = embedding[type]` and
`h~` the sum of the children's `h`:

            i, o, u = split(x @ input_kernel + h~ @ kernel + bias)
            f_k     = x @ forget_input_kernel + h_k @ forget_kernel + forget_bias
            c = sigmoid(i) * tanh(u) + sum_k sigmoid(f_k) * c_k
            h = sigmoid(o) * tanh(c)

Inference returns the roots' `h`, `[batch, hidden]`. The training loss is `mean_b(h_root[b] . probe)` with a fixed
`probe`; its gradient is taken with respect to every array in `Model.weights`.
"""

import dataclasses
from typing import Literal

import numpy as np
import numpy.typing as npt

from benchmarks.recursion.data import Forest

Array = npt.NDArray[np.floating]
Kind = Literal["binary", "childsum"]


@dataclasses.dataclass(frozen=True)
class Model:
    """Sizes and weights of one model.

    Attributes:
        kind: Which of the two formulas above.
        hidden: Width of `h` and `c`, and of an embedding row.
        weights: The trained arrays by name, float32.
        probe: The fixed vector of the loss, `[hidden]` float32.
    """

    kind: Kind
    hidden: int
    weights: dict[str, Array]
    probe: Array


def shapes(kind: Kind, hidden: int, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """Returns the shape of every weight of a model, by name."""
    if kind == "binary":
        return {
            "embedding": (vocabulary, hidden),
            "leaf_kernel": (hidden, 3 * hidden),
            "leaf_bias": (3 * hidden,),
            "kernel": (2 * hidden, 5 * hidden),
            "bias": (5 * hidden,),
        }
    return {
        "embedding": (vocabulary, hidden),
        "input_kernel": (hidden, 3 * hidden),
        "forget_input_kernel": (hidden, hidden),
        "kernel": (hidden, 3 * hidden),
        "forget_kernel": (hidden, hidden),
        "bias": (3 * hidden,),
        "forget_bias": (hidden,),
    }


def make(kind: Kind, hidden: int, vocabulary: int, seed: int = 0) -> Model:
    """Draws a model's weights: uniform in `+-1/sqrt(fan in)`, embeddings and biases in `+-0.5`."""
    random = np.random.default_rng(seed)

    def draw(name: str, shape: tuple[int, ...]) -> Array:
        bound = 1 / np.sqrt(shape[0]) if name.endswith("kernel") else 0.5
        return random.uniform(-bound, bound, shape).astype(np.float32)

    weights = {name: draw(name, shape) for name, shape in shapes(kind, hidden, vocabulary).items()}
    return Model(kind, hidden, weights, random.normal(size=hidden).astype(np.float32))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def reference(model: Model, forest: Forest, weights: dict[str, Array]) -> Array:
    """Computes the roots' `h` node by node in numpy, in the precision of `weights`.

    Args:
        model: Names the formula.
        forest: Trees whose nodes are numbered children first.
        weights: Arrays named as in `Model.weights`; give float64 for a control.

    Returns:
        `[batch, hidden]`.
    """
    cell = _binary_row if model.kind == "binary" else _childsum_row
    states: list[tuple[Array, Array]] = []
    for node, token in enumerate(forest.tokens):
        children = [states[child] for child in forest.children_of(node)]
        states.append(cell(weights, weights["embedding"][token], children))
    return np.stack([states[root][0] for root in forest.roots])


def _binary_row(w: dict[str, Array], x: Array, children: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    if not children:
        i, o, u = np.split(x @ w["leaf_kernel"] + w["leaf_bias"], 3)
        c = _sigmoid(i) * np.tanh(u)
    else:
        (hl, cl), (hr, cr) = children
        gates = np.concatenate([hl, hr]) @ w["kernel"] + w["bias"]
        i, o, fl, fr, u = np.split(gates, 5)
        c = _sigmoid(i) * np.tanh(u) + _sigmoid(fl) * cl + _sigmoid(fr) * cr
    return _sigmoid(o) * np.tanh(c), c


def _childsum_row(w: dict[str, Array], x: Array, children: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    gates = x @ w["input_kernel"] + w["bias"]
    forget = x @ w["forget_input_kernel"] + w["forget_bias"]
    if children:
        gates = gates + sum(h for h, _ in children) @ w["kernel"]
    i, o, u = np.split(gates, 3)
    c = _sigmoid(i) * np.tanh(u)
    for h_k, c_k in children:
        c = c + _sigmoid(forget + h_k @ w["forget_kernel"]) * c_k
    return _sigmoid(o) * np.tanh(c), c
