"""TensorFlow's vectoriser (`pfor`), applied to one operator at a time."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

import tensorflow as tf
from tensorflow.python.ops.parallel_for import pfor as pfor_lib

from tf_ext.graph.copying import copy_library, copy_op


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    """`pfor` logs an error, with the whole operator, for what it then raises."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def vectorize_op(
    op: tf.Operation, inputs: Sequence[tuple[tf.Tensor, bool]], rows: tf.Tensor, graph: tf.Graph
) -> list[tuple[tf.Tensor, bool]]:
    """Computes an operator for many rows.

    Args:
      op: an operator of some other graph, on one row.
      inputs: per input its tensor in `graph`, and whether it is stacked (has a leading dimension for the rows).
      rows: int32 scalar of `graph`, the number of rows.
      graph: where the result is computed.

    Returns:
      Per output its tensor and whether it is stacked.

    Raises:
      ValueError: if there is no vectorised form.
    """
    copy_library(op.graph, graph)
    with graph.as_default(), _without_logs():
        loop_var = tf.compat.v1.placeholder_with_default(0, shape=[])
        if op.control_inputs:
            # Order among operators without effects does not matter; pfor would look for the controls among the rows.
            with op.graph.as_default():
                op = copy_op(op, op.graph, list(op.inputs))
        converter = pfor_lib.PFor(loop_var, rows, [op], fallback_to_while_loop=False)
        for tensor, (value, stacked) in zip(op.inputs, inputs, strict=True):
            converter._add_conversion(tensor, pfor_lib.wrap(value, stacked))
        if not op.outputs:
            converter._convert_helper(op)
            return []
        converted = [converter._convert_helper(tensor) for tensor in op.outputs]
    return [(value.t, value.is_stacked) for value in converted]
