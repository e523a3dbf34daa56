"""The operator TfExtRowAt: rows of a table, with the indices checked."""

import numpy as np
import pytest
import tensorflow as tf

from tf_ext import ops
from tf_ext.ops.recursion import row_at

TABLE = np.arange(24, dtype=np.float32).reshape(4, 3, 2)


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@pytest.mark.parametrize("indices", [2, [3, 0, 3], [[1], [2]]])
def test_rows_are_those_that_numpy_takes(indices, index_type):
    rows = row_at(tf.constant(TABLE), tf.constant(np.array(indices, index_type)), wrap=False)
    np.testing.assert_array_equal(rows, TABLE[np.array(indices)])


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int32, np.float16, np.float64, np.complex128])
@pytest.mark.parametrize("width", [None, 1, 5])
def test_rows_of_every_width_are_copied_whole(dtype, width):
    table = np.arange(1, 1 + 3 * (width or 1)).astype(dtype).reshape((3,) if width is None else (3, width))
    rows = row_at(tf.constant(table), tf.constant([2, 0]), wrap=False)
    np.testing.assert_array_equal(rows, table[[2, 0]])


def test_negative_indices_count_from_the_end_where_that_is_asked_for():
    np.testing.assert_array_equal(row_at(tf.constant(TABLE), tf.constant([-1, -4]), wrap=True), TABLE[[-1, -4]])


@pytest.mark.parametrize(("index", "wrap"), [(4, False), (-1, False), (4, True), (-5, True)])
def test_an_index_out_of_range_is_named(index, wrap):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"index {index} is out of range for a table of 4 rows"):
        row_at(tf.constant(TABLE), tf.constant([0, index]), wrap=wrap)


def test_an_empty_table_has_rows_for_no_index_only():
    empty = tf.zeros([0, 3])
    assert row_at(empty, tf.zeros([0], tf.int32), wrap=False).shape == (0, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="index 0 is out of range for a table of 0 rows"):
        row_at(empty, tf.constant([0]), wrap=True)


def test_shapes_are_known_in_a_graph():
    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([5], tf.int32)])
    def rows(table, indices):
        return row_at(table, indices, wrap=False)

    assert rows.get_concrete_function().output_shapes == tf.TensorShape([5, 3])


def test_a_scalar_is_no_table():
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=r"scalar|rank at least 1"):
        ops.load().tf_ext_row_at(table=tf.constant(1.0), indices=tf.constant(0))
