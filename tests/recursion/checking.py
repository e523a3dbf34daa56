"""Compares recursions in the graph with the same bodies run as plain Python recursion in eager mode."""

import contextlib
import functools
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

import tf_ext
from tf_ext import recursion

FLOAT, INT, FLAG = (tf.TensorSpec([], dtype) for dtype in (tf.float32, tf.int32, tf.bool))
BOTH = ("invoke", "batched")


def vector(size: int | None, dtype: tf.DType = tf.float32) -> tf.TensorSpec:
    return tf.TensorSpec([size], dtype)


def relative_error(a: Any, b: Any) -> float:
    """Returns max|a-b| / max|b|."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))


def defined(body: Callable[..., Any], inputs: Sequence[Any] = (INT,), output: Any = INT, **limits: int) -> Any:
    """A SubGraph `f` with a body that calls nothing."""
    f = recursion.SubGraph("f", list(inputs), output, **limits)
    f.define(body)
    return f


class Eager:
    """What `SubGraph` means: its body, called by Python."""

    def __init__(self, name: str, input_signature: Any, output_signature: Any, **_: Any) -> None:
        self.name = name
        self.input_signature = input_signature
        self.output_signature = output_signature

    def define(self, body: Callable[..., Any]) -> Callable[..., Any]:
        self._body = body
        return body

    def __call__(self, *args: Any) -> Any:
        given = [_tensors(spec, arg) for spec, arg in zip(self.input_signature, args, strict=True)]
        return _tensors(self.output_signature, self._body(*given))

    def map(self, *args: Any, in_axes: Any = 0, reduce: str | None = None) -> Any:
        axes = list(in_axes) if isinstance(in_axes, (list, tuple)) else [in_axes] * len(args)
        rows = next(len(tf.nest.flatten(arg)[0]) for arg, axis in zip(args, axes, strict=True) if axis == 0)
        results = []
        for j in range(rows):
            taken = [
                tf.nest.map_structure(lambda t: t[j], arg) if axis == 0 else arg  # noqa: B023
                for arg, axis in zip(args, axes, strict=True)
            ]
            results.append(self(*taken))
        if not results:
            lead = [] if reduce == "sum" else [0]
            return tf.nest.map_structure(
                lambda spec: tf.zeros([*lead, *[d or 0 for d in spec.shape]], spec.dtype), self.output_signature
            )
        joined = tf.nest.map_structure(lambda *parts: tf.stack(parts), *results)
        return tf.nest.map_structure(lambda t: tf.reduce_sum(t, 0), joined) if reduce == "sum" else joined


def _tensors(spec: Any, value: Any) -> Any:
    parts = tf.__internal__.nest.flatten_up_to(spec, value)
    pairs = zip(tf.nest.flatten(spec), parts, strict=True)
    return tf.nest.pack_sequence_as(spec, [tf.convert_to_tensor(part, one.dtype) for one, part in pairs])


def weighted_sum(results: Any) -> tf.Tensor:
    """A scalar that tells all elements of all floating results apart."""
    parts = [t for t in tf.nest.flatten(results) if t.dtype.is_floating]
    total = tf.zeros([], parts[0].dtype)
    for i, part in enumerate(parts):
        weights = tf.reshape(tf.range(tf.size(part)), tf.shape(part))
        total += tf.reduce_sum(tf.cast(part, total.dtype) * (1.0 + i + 0.25 * tf.cast(weights, total.dtype)))
    return total


def dense(gradient: Any) -> np.ndarray | None:
    return None if gradient is None else tf.convert_to_tensor(gradient).numpy()


def assert_close(actual: Any, expected: Any, tolerance: float, what: str = "") -> None:
    """max|a - b| / max|b|."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, what
    assert actual.dtype == expected.dtype, what
    if actual.dtype.kind not in "fc":
        np.testing.assert_array_equal(actual, expected, what)
    elif actual.size:
        difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64)).max()
        scale = max(np.abs(expected.astype(np.float64)).max(), 1e-30)
        assert difference <= tolerance * scale, f"{what}: {difference / scale:.2e} off, allowed are {tolerance:.0e}"


def check(
    build: Callable[..., Any],
    *args: Any,
    watch: Sequence[Any] = (),
    executions: Sequence[str] = ("invoke", "batched", "auto"),
    gradients: bool = True,
    value_tolerance: float = 1e-6,
    gradient_tolerance: float = 1e-5,
    mapped: bool = False,
) -> Any:
    """Compares values, and gradients for `args` and `watch`, with eager recursion.

    `build(new)` declares and defines SubGraphs with `new(name, input_signature, output_signature)` and returns the root.
    With `mapped`, arguments have a leading dimension and the root is called by `map`. Returns the eager results.
    """
    eager = build(Eager)
    tensors = [_tensors(spec, arg) for spec, arg in zip(eager.input_signature, args, strict=True)]

    def values_and_gradients(call: Callable[..., Any], differentiate: bool, *given: Any) -> tuple[list[Any], list[Any]]:
        sources = [t for t in tf.nest.flatten(given) if t.dtype.is_floating] + list(watch)
        with tf.GradientTape() as tape:
            for source in sources:
                tape.watch(source)
            results = tf.nest.flatten(call(*given))
            total = weighted_sum(results) if differentiate else None
        return results, tape.gradient(total, sources) if differentiate else []

    expected, wanted = values_and_gradients(eager.map if mapped else eager, gradients, *tensors)
    graph = build(recursion.SubGraph)
    for execution in executions:
        differentiate = gradients and execution != "auto"

        def call(*a: Any, execution: str = execution) -> Any:
            return (graph.map if mapped else graph)(*a, execution=execution)

        run = tf.function(functools.partial(values_and_gradients, call, differentiate), autograph=False)
        actual, given = run(*tensors)
        for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
            assert_close(a, b, value_tolerance, f"{execution}, result {i}")
        for i, (a, b) in enumerate(zip(given, wanted if differentiate else [], strict=True)):
            if b is None:
                assert a is None or not np.any(dense(a)), f"{execution}, gradient {i}: expected none"
            else:
                assert a is not None, f"{execution}, gradient {i}: there is none"
                assert_close(dense(a), dense(b), gradient_tolerance, f"{execution}, gradient {i}")
    return tf.nest.pack_sequence_as(eager.output_signature, expected)


def environment() -> dict[str, str]:
    """Of a process that is to import the same package as this one."""
    root = str(pathlib.Path(tf_ext.__file__).parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}


def refuses_batching(build: Callable[..., Any], *args: Any, operation: str) -> None:
    """`batched` raises and names the operation; `auto` runs, and the log names it."""
    graph = build(recursion.SubGraph)
    with pytest.raises(recursion.BatchingError, match=operation):
        graph(*args, execution="batched")
    with logged() as lines:
        graph(*args, execution="auto")
    assert any(re.search(operation, line) and "invoke" in line for line in lines), lines


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """The lines that absl logs inside."""
    lines: list[str] = []

    class Handler(logging.logging.Handler):  # type: ignore[name-defined, misc]
        def emit(self, record: Any) -> None:
            lines.append(record.getMessage())

    handler, logger = Handler(), logging.get_absl_logger()
    level = logging.get_verbosity()
    logger.addHandler(handler)
    logging.set_verbosity(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logging.set_verbosity(level)
