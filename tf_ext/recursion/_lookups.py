"""Which operators read rows of a table."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_ext import graph as graphs


def dynamic_index(op: tf.Operation) -> tuple[tf.Tensor, tf.Tensor, bool] | None:
    """(table, index, whether negative indices count from the end) of an operator that reads rows of a table."""
    if op.type == "GatherV2":
        axis = graphs.constant_value(op.inputs[2])
        if axis == 0 and op.get_attr("batch_dims") == 0:
            return op.inputs[0], op.inputs[1], False
    if op.type == "StridedSlice" and op.get_attr("shrink_axis_mask") == 1 and op.inputs[1].op.type == "Pack":
        masks = [op.get_attr(f"{m}_mask") for m in ("begin", "end", "ellipsis", "new_axis")]
        stride = graphs.constant_value(op.inputs[3])
        index = op.inputs[1].op.inputs
        if (
            masks == [0, 0, 0, 0]
            and len(index) == 1
            and np.array_equal(np.asarray(stride), [1])
            and index[0].shape.rank == 0
        ):
            return op.inputs[0], index[0], True
    return None
