"""Peer: recursion in Python over eager PyTorch tensors. Not run where PyTorch is not installed.

Embeddings are looked up once for the whole forest: PyTorch adds sparse gradients of single rows up in quadratic time.
One thread: the products of single rows are too small to share, and waiting threads only take the processor away.
"""

import sys
from typing import Any

from benchmarks.harness import UnavailableError
from benchmarks.recursion.cells import Runner
from benchmarks.recursion.data import Forest
from benchmarks.recursion.models import Model

try:
    import torch
except ImportError:
    torch = None


def prepare(model: Model, forest: Forest) -> Runner:
    """Makes the peer ready for a forest.

    Raises:
        UnavailableError: If PyTorch is not installed.
    """
    if torch is None:
        raise UnavailableError("PyTorch is not installed")
    torch.set_num_threads(1)
    weights = {name: torch.from_numpy(value.copy()).requires_grad_() for name, value in model.weights.items()}
    probe = torch.from_numpy(model.probe)
    visit = _binary if model.kind == "binary" else _childsum
    children = [forest.children_of(node).tolist() for node in range(forest.size)]
    tokens = torch.from_numpy(forest.tokens.astype("int64"))
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 4 * forest.size + 1000))

    def forward() -> Any:
        rows = torch.nn.functional.embedding(tokens, weights["embedding"], sparse=True).split(1)
        states = [visit(weights, rows, children, root) for root in forest.roots.tolist()]
        return torch.cat([h for h, _ in states])

    def infer() -> Any:
        with torch.inference_mode():
            return forward()

    def train() -> tuple[Any, dict[str, Any]]:
        for weight in weights.values():
            weight.grad = None
        loss = (forward() @ probe).mean()
        loss.backward()
        return loss, {name: weight.grad for name, weight in weights.items()}

    return Runner(infer, train)


def _binary(w: dict[str, Any], rows: Any, children: list[list[int]], node: int) -> Any:
    if not children[node]:
        i, o, u = torch.addmm(w["leaf_bias"], rows[node], w["leaf_kernel"]).chunk(3, 1)
        c = torch.sigmoid(i) * torch.tanh(u)
    else:
        (hl, cl), (hr, cr) = (_binary(w, rows, children, child) for child in children[node])
        gates = torch.addmm(w["bias"], torch.cat([hl, hr], 1), w["kernel"])
        i, o, fl, fr, u = gates.chunk(5, 1)
        kept = torch.sigmoid(fl) * cl + torch.sigmoid(fr) * cr
        c = torch.sigmoid(i) * torch.tanh(u) + kept
    return torch.sigmoid(o) * torch.tanh(c), c


def _childsum(w: dict[str, Any], rows: Any, children: list[list[int]], node: int) -> Any:
    x = rows[node]
    gates = torch.addmm(w["bias"], x, w["input_kernel"])
    kept: Any = 0.0
    if children[node]:
        below = [_childsum(w, rows, children, child) for child in children[node]]
        h, c = (torch.cat(column) for column in zip(*below, strict=True))
        forget = torch.addmm(w["forget_bias"], x, w["forget_input_kernel"])
        kept = (torch.sigmoid(forget + h @ w["forget_kernel"]) * c).sum(0, keepdim=True)
        gates = gates + h.sum(0, keepdim=True) @ w["kernel"]
    i, o, u = gates.chunk(3, 1)
    c = torch.sigmoid(i) * torch.tanh(u) + kept
    return torch.sigmoid(o) * torch.tanh(c), c
