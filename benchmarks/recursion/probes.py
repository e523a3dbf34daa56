"""Measurements that need a process of their own: call cost, depth and memory. Each prints one JSON object.

python -m benchmarks.recursion.probes --probe=forest --execution=batched --size=100000
"""

import json
import time
from typing import Any

import tensorflow as tf
from absl import app, flags

from benchmarks import harness
from benchmarks.recursion import data, models, ours

_PROBE = flags.DEFINE_enum("probe", "fib", ["fib", "depth", "forest", "growth"], "What to measure.")
_EXECUTION = flags.DEFINE_string("execution", "invoke", "Which executor.")
_SIZE = flags.DEFINE_integer("size", 24, "Argument of fib, depth, nodes of the forest, or steps.")
_HIDDEN = flags.DEFINE_integer("hidden", 168, "Width of the TreeLSTM.")
_RUNS = flags.DEFINE_integer("runs", 11, "How often fib runs.")

_NUMBER = tf.TensorSpec([], tf.int32)


def fib(n: int, runs: int, execution: str) -> dict[str, Any]:
    """Times the calls of a doubly recursive Fibonacci number: seconds per call for each run, and the result."""
    graph = ours.require().SubGraph("fib", input_signature=[_NUMBER], output_signature=_NUMBER)

    @graph.define
    def body(n: tf.Tensor) -> tf.Tensor:
        return n if n < 2 else graph(n - 1) + graph(n - 2)

    run = tf.function(lambda n: graph(n, execution=execution), input_signature=[_NUMBER])
    argument = tf.constant(n)
    result = int(run(argument))
    timing = harness.alternate({"fib": lambda: run(argument)}, rounds=runs)["fib"]
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    calls = 2 * b - 1  # calls(n) = 1 + calls(n - 1) + calls(n - 2) = 2 fib(n + 1) - 1
    return {"right": result == a, "calls": calls, "seconds": [wall / calls for wall in timing.wall]}


def depth(levels: int, execution: str) -> dict[str, Any]:
    """Counts down `levels` nested calls that each add one on the way back."""
    graph = ours.require().SubGraph("down", input_signature=[_NUMBER], output_signature=_NUMBER)

    @graph.define
    def body(n: tf.Tensor) -> tf.Tensor:
        return graph(n - 1) + 1 if n > 0 else n

    run = tf.function(lambda n: graph(n, execution=execution), input_signature=[_NUMBER])
    start = time.perf_counter()
    result = int(run(tf.constant(levels)))
    return {"right": result == levels, "seconds": time.perf_counter() - start}


def forest(nodes: int, hidden: int, execution: str) -> dict[str, Any]:
    """Trains one step on a forest of about `nodes` nodes: bytes at the peak and before, and the nodes."""
    model = models.make("binary", hidden, data.WORDS)
    # A tree has 69 nodes in the mean.
    trees = data.random_binary(max(nodes // 69, 1))
    ours.prepare(model, data.random_binary(1), execution).train()
    before = harness.memory()
    runner = ours.prepare(model, trees, execution)
    runner.train()
    return {"nodes": trees.size, "before": before, "peak": harness.peak_memory()}


def growth(steps: int, hidden: int, execution: str) -> dict[str, Any]:
    """Trains many steps on forests of changing size: resident bytes after every step."""
    model = models.make("binary", hidden, data.WORDS)
    runners = [ours.prepare(model, data.random_binary(10 + seed, seed), execution) for seed in range(5)]
    sizes = []
    for step in range(steps):
        runners[step % len(runners)].train()
        sizes.append(harness.memory())
    return {"bytes": sizes}


def main(_: list[str]) -> None:
    """Runs the probe that the flags name."""
    size, execution = _SIZE.value, _EXECUTION.value
    result = {
        "fib": lambda: fib(size, _RUNS.value, execution),
        "depth": lambda: depth(size, execution),
        "forest": lambda: forest(size, _HIDDEN.value, execution),
        "growth": lambda: growth(size, _HIDDEN.value, execution),
    }[_PROBE.value]()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    app.run(main)
