"""Functions that call themselves: declaration, definition and call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from tf_ext.recursion import _calls, _signature, _tracing
from tf_ext.recursion.errors import UndefinedSubGraphError

EXECUTIONS = ("auto", "invoke", "batched")
DEFAULT_MAX_DEPTH = 1_000_000
DEFAULT_MAX_LIVE_CALLS = 20_000_000

F = TypeVar("F", bound=Callable[..., Any])


class SubGraph:
    """A graph fragment with declared inputs and outputs that may call itself and others.

    The declaration comes first, so that bodies can refer to it before it is defined (Jeong et al., EuroSys 2018,
    section 3.1); `define` gives the body. Inside a body, calling a SubGraph is a recursive call. Anywhere else a call
    runs the whole recursion as one operator of the surrounding graph, with gradients.

    Example::

        import tensorflow as tf
        from tf_ext import recursion

        fib = recursion.SubGraph("fib", input_signature=[tf.TensorSpec([], tf.int32)],
                                 output_signature=tf.TensorSpec([], tf.int32))

        @fib.define
        def body(n):
            if n < 2:
                return n
            return fib(n - 1) + fib(n - 2)

        @tf.function
        def run(n):
            return fib(n)

        run(tf.constant(10))  # 55
    """

    def __init__(
        self,
        name: str,
        input_signature: Sequence[Any],
        output_signature: Any,
        *,
        max_depth: int = DEFAULT_MAX_DEPTH,
        max_live_calls: int = DEFAULT_MAX_LIVE_CALLS,
    ) -> None:
        """Declares the SubGraph.

        Args:
          name: for messages and operator names.
          input_signature: one `tf.TensorSpec`, or nest of them, per positional argument.
          output_signature: nest of `tf.TensorSpec`, the structure that a call returns.
          max_depth: calls nested deeper than this end the step with `tf.errors.ResourceExhaustedError`.
          max_live_calls: likewise for the number of calls that have begun and not returned.

        Raises:
          SignatureError: if a signature holds something else than `tf.TensorSpec`.
          ValueError: if a limit is not positive or the name is empty.
        """
        if not name or not isinstance(name, str):
            raise ValueError(f"SubGraph: expected a non-empty name, got {name!r}.")
        for limit, value in (("max_depth", max_depth), ("max_live_calls", max_live_calls)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"SubGraph {name!r}: expected {limit} to be a positive integer, got {value!r}.")
        self.name = name
        self.input_signature = _signature.check_inputs(name, input_signature)
        self.output_signature = _signature.check_outputs(name, output_signature)
        self.max_depth = max_depth
        self.max_live_calls = max_live_calls
        self._body: Callable[..., Any] | None = None
        self._autograph = True

    def __repr__(self) -> str:
        state = "defined" if self._body is not None else "declared, not defined"
        return f"<SubGraph {self.name!r} {self.input_signature} -> {self.output_signature}, {state}>"

    def define(self, body: F | None = None, *, autograph: bool = True) -> Any:
        """Gives the body; used as a decorator, with or without arguments.

        Args:
          body: ordinary TensorFlow code; takes one positional argument per entry of `input_signature` and returns the
            structure of `output_signature`.
          autograph: whether Python's `if`, `and`, `or` on tensors are converted.

        Returns:
          `body` itself (the decorator when called without it).

        Raises:
          ValueError: if there is a body already.
          TypeError: if `body` is not callable or cannot take that many arguments.
        """
        if body is None:
            return lambda function: self.define(function, autograph=autograph)
        if not callable(body):
            raise TypeError(f"SubGraph {self.name!r}: expected a function as its body, got {body!r}.")
        if self._body is not None:
            raise ValueError(f"SubGraph {self.name!r} is defined already; declare another SubGraph for another body.")
        try:
            inspect.signature(body).bind(*self.input_signature)
        except TypeError as error:
            raise TypeError(
                f"SubGraph {self.name!r}: the body has to take {len(self.input_signature)} positional argument(s), "
                f"one per entry of input_signature: {error}."
            ) from None
        self._body = body
        self._autograph = autograph
        return body

    @property
    def body(self) -> Callable[..., Any]:
        """The body as given to `define`.

        Raises:
          UndefinedSubGraphError: if there is none yet.
        """
        if self._body is None:
            raise UndefinedSubGraphError(
                f"SubGraph {self.name!r} was called but never defined; give it a body with @{self.name}.define."
            )
        return self._body

    @property
    def autograph(self) -> bool:
        """Whether the body is converted by AutoGraph."""
        return self._autograph

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args: Any, execution: str = "auto", return_calls: bool = False, **others: Any) -> Any:
        """Calls the SubGraph.

        Args:
          *args: one per entry of `input_signature`.
          execution: `"invoke"` runs every call by itself, siblings in parallel; `"batched"` runs ready calls together
            as one vectorised call; `"auto"` batches where the bodies allow and says so in the log where they do not.
            Only outside of bodies: a recursion runs in one way.
          return_calls: also return what every call of this SubGraph was given and returned (outside of bodies only).
          **others: refused; the arguments of a SubGraph are positional.

        Returns:
          The structure of `output_signature`. With `return_calls`, a pair of it and a `Calls` tuple whose `arguments`
          and `results` have a leading dimension, the number of calls.

        Raises:
          SignatureError: if the arguments do not fit `input_signature`.
          UndefinedSubGraphError: if this SubGraph or one that it calls has no body.
          BatchingError: if `execution="batched"` and a body does not allow it; the message names the operation.
          UnsupportedOperationError: if a body calls inside a loop.
        """
        _signature.check_keywords(self, others)
        values = _signature.bind(self, args)
        trace = _tracing.enclosing_trace()
        if trace is not None:
            _check_inside(self, execution, return_calls)
            return _calls.call_in_body(trace, self, values)
        _check_execution(self, execution)
        return _calls.call_root(self, values, execution=execution, return_calls=return_calls)

    @tf.autograph.experimental.do_not_convert
    def map(
        self,
        *args: Any,
        in_axes: Any = 0,
        reduce: str | None = None,
        execution: str = "auto",
        return_calls: bool = False,
        **others: Any,
    ) -> Any:
        """One call for every row of the arguments' leading dimension, all independent of each other.

        Inside a body this is a node with any number of children; outside, one recursion per row, run together.

        Args:
          *args: one per entry of `input_signature`, with a leading dimension where mapped. A row of a ragged tensor
            (`tree.map(children[node])`) or `tf.range(start, limit)` is taken apart without being materialised.
          in_axes: 0 where the argument is mapped, None where every call gets it as it is; one value, or a sequence with
            one per argument, as in `jax.vmap`.
          reduce: None stacks the results, `"sum"` adds them up (zeros for no rows; inside bodies only).
          execution: see `__call__`.
          return_calls: see `__call__`.
          **others: see `__call__`.

        Returns:
          The structure of `output_signature`, with a leading dimension where stacked.

        Raises:
          SignatureError, UndefinedSubGraphError, BatchingError, UnsupportedOperationError: as `__call__`.
          ValueError: if `in_axes` or `reduce` has another value.
        """
        _signature.check_keywords(self, others)
        mapped = _signature.mapped_arguments(self, in_axes, len(args))
        if reduce not in (None, "sum"):
            raise ValueError(f"SubGraph {self.name!r}.map: expected reduce to be None or 'sum', got {reduce!r}.")
        values = _signature.bind(self, args, mapped)
        trace = _tracing.enclosing_trace()
        if trace is not None:
            _check_inside(self, execution, return_calls)
            return _calls.call_in_body(trace, self, values, mapped=mapped, reduce=reduce or "stack")
        _check_execution(self, execution)
        if reduce is not None:
            raise ValueError(
                f"SubGraph {self.name!r}.map: reduce={reduce!r} is for calls inside bodies; here use tf.reduce_sum."
            )
        return _calls.map_root(self, values, mapped, execution=execution, return_calls=return_calls)


def function(
    input_signature: Sequence[Any],
    output_signature: Any = None,
    *,
    name: str | None = None,
    autograph: bool = True,
    max_depth: int = DEFAULT_MAX_DEPTH,
    max_live_calls: int = DEFAULT_MAX_LIVE_CALLS,
) -> Callable[[Callable[..., Any]], SubGraph]:
    """Makes a SubGraph of a function that calls itself by its own name.

    Args:
      input_signature: see `SubGraph`.
      output_signature: see `SubGraph`.
      name: the function's own name by default.
      autograph: see `SubGraph.define`.
      max_depth: see `SubGraph`.
      max_live_calls: see `SubGraph`.

    Returns:
      A decorator.

    Raises:
      TypeError: if a signature is missing.

    Example::

        @recursion.function([tf.TensorSpec([], tf.int64)], tf.TensorSpec([], tf.int64))
        def factorial(n):
            return n * factorial(n - 1) if n > 1 else tf.constant(1, tf.int64)

        factorial(tf.constant(5, tf.int64))  # 120
    """
    if callable(input_signature) or output_signature is None:
        raise TypeError(
            "recursion.function: expected the signatures of the arguments and of the result, as in "
            "@recursion.function([tf.TensorSpec([], tf.int32)], tf.TensorSpec([], tf.int32)), got "
            + ("the function itself." if callable(input_signature) else f"{input_signature!r} alone.")
        )

    def decorate(body: Callable[..., Any]) -> SubGraph:
        subgraph = SubGraph(
            name or str(getattr(body, "__name__", "function")),
            input_signature,
            output_signature,
            max_depth=max_depth,
            max_live_calls=max_live_calls,
        )
        subgraph.define(body, autograph=autograph)
        return subgraph

    return decorate


def _check_execution(subgraph: SubGraph, execution: str) -> None:
    if execution not in EXECUTIONS:
        raise ValueError(
            f"SubGraph {subgraph.name!r}: expected execution to be one of {EXECUTIONS}, got {execution!r}."
        )


def _check_inside(subgraph: SubGraph, execution: str, return_calls: bool) -> None:
    if execution != "auto" or return_calls:
        raise ValueError(
            f"SubGraph {subgraph.name!r}: execution and return_calls belong to the call that starts the recursion, "
            "not to calls inside bodies; leave them out here."
        )
