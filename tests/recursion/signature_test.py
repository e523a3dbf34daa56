"""Bad declarations and arguments: an error that says what was expected, what came and what to do."""

import numpy as np
import pytest
import tensorflow as tf

from tests.recursion.checking import BOTH, FLOAT, INT, defined, vector
from tf_ext import recursion

# Declarations.


@pytest.mark.parametrize(
    ("inputs", "output", "message"),
    [
        ([tf.int32], INT, "expected input_signature to be a nest of tf.TensorSpec, got tf.int32"),
        (INT, INT, "expected input_signature to be a list with one entry per argument, got TensorSpec"),
        ([INT], [INT, "x"], "expected output_signature to be a nest of tf.TensorSpec, got 'x'"),
        ([tf.TensorSpec(None)], INT, "whose number of dimensions is unknown; give it a shape"),
        (
            [tf.RaggedTensorSpec([None, None])],
            INT,
            "expected input_signature to be a nest of tf.TensorSpec, got Ragged",
        ),
    ],
)
def test_signatures(inputs, output, message):
    with pytest.raises(recursion.SignatureError, match=message):
        recursion.SubGraph("f", inputs, output)


def test_names_and_limits():
    with pytest.raises(ValueError, match="expected a non-empty name, got ''"):
        recursion.SubGraph("", [INT], INT)
    for limits in ({"max_depth": 0}, {"max_live_calls": 1.5}):
        with pytest.raises(ValueError, match="expected max_.* to be a positive integer"):
            recursion.SubGraph("f", [INT], INT, **limits)


def test_a_body_that_is_none_or_takes_other_arguments():
    f = recursion.SubGraph("f", [INT, INT], INT)
    with pytest.raises(TypeError, match="'f': expected a function as its body, got 3"):
        f.define(3)
    with pytest.raises(TypeError, match="'f': the body has to take 2 positional argument"):
        f.define(lambda n: n)


def test_defined_twice():
    f = defined(lambda n: n)
    with pytest.raises(ValueError, match="'f' is defined already; declare another SubGraph"):
        f.define(lambda n: n)


@pytest.mark.parametrize("execution", [*BOTH, "auto"])
def test_never_defined(execution):
    f, g = recursion.SubGraph("f", [INT], INT), recursion.SubGraph("g", [INT], INT)
    with pytest.raises(recursion.UndefinedSubGraphError, match=r"'f' was called but never defined.*@f.define"):
        f(1, execution=execution)
    f.define(lambda n: g(n))
    with pytest.raises(recursion.UndefinedSubGraphError, match=r"'g' was called but never defined"):
        f(1, execution=execution)


# Arguments and results.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), r"expected 2 argument\(s\).*got 0"),
        ((1, [1.0, 2.0], 3), r"expected 2 argument\(s\).*got 3"),
        ((1.5, [1.0, 2.0]), "argument 0: expected .*int32.*got 1.5"),
        ((tf.constant(1.0), [1.0, 2.0]), "argument 0: expected dtype int32 and shape .*got dtype float32.*tf.cast"),
        ((tf.constant([1]), [1.0, 2.0]), r"argument 0: expected dtype int32 and shape \(\), got .*\(1,\).*tf.reshape"),
        ((1, tf.zeros([3])), r"argument 1: expected .*\(2,\), got .*\(3,\)"),
        ((1, {"x": 1.0}), "argument 1: expected .*TensorSpec.*got {'x': 1.0}"),
        ((np.int64(1), [1.0, 2.0]), None),
        ((None, [1.0, 2.0]), "argument 0: expected .*got None"),
        (("one", [1.0, 2.0]), "argument 0: expected .*got 'one'"),
        ((1, tf.ragged.constant([[1.0], [2.0]])), "argument 1: expected .*Ragged"),
    ],
)
@pytest.mark.parametrize("where", ["eager", "graph", "body"])
def test_arguments(arguments, message, where):
    f = defined(lambda n, x: x, [INT, vector(2)], vector(2))
    if where == "body":
        g = recursion.SubGraph("g", [INT], vector(2))
        g.define(lambda n: f(*arguments))

        def call():
            return g(1)
    else:

        def call():
            return tf.function(lambda: f(*arguments))() if where == "graph" else f(*arguments)

    if message is None:
        assert call().shape == [2]
        return
    with pytest.raises(recursion.SignatureError, match=f"SubGraph 'f'.*{message}"):
        call()


def test_nested_arguments_of_another_structure():
    f = defined(lambda pair: pair["a"], [{"a": INT, "b": INT}], INT)
    for wrong in ({"a": 1}, {"a": 1, "c": 2}, [1, 2], 1):
        with pytest.raises(recursion.SignatureError, match="argument 0: expected the structure of"):
            f(wrong)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (
            lambda n: n + 0.0 * tf.cast(n, tf.float32) if False else tf.cast(n, tf.float32),
            "expected dtype int32.*got dtype float32",
        ),
        (lambda n: [n], "expected the structure of|expected"),
        (lambda n: None, "expected .*got None"),
        (lambda n: tf.stack([n, n]), r"expected dtype int32 and shape \(\), got .*\(2,\)"),
        (lambda n: (n, n), "expected"),
    ],
)
def test_results(result, message):
    with pytest.raises(recursion.SignatureError, match=f"SubGraph 'f', result of its body.*{message}"):
        defined(result)(1)


def test_shapes_that_only_the_run_tells():
    f = defined(lambda x: tf.ensure_shape(x, [None]), [vector(None)], vector(3))
    for execution in BOTH:
        assert f(tf.zeros([3]), execution=execution).shape == [3]
        with pytest.raises(tf.errors.InvalidArgumentError, match="'f'"):
            tf.function(lambda x, e=execution: f(x, execution=e), input_signature=[vector(None)])(tf.zeros([2]))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((3, [1.0]), {}, recursion.SignatureError, "argument 0: .*leading dimension for map"),
        (([1], [1.0, 2.0]), {"in_axes": 1}, ValueError, "expected in_axes to be 0, None, .*got 1"),
        (([1], [1.0, 2.0]), {"in_axes": (0,)}, ValueError, r"one entry per argument \(2\), got \(0,\)"),
        ((1, 1.0), {"in_axes": None}, ValueError, "maps no argument; call it directly"),
        (([1], [1.0]), {"reduce": "mean"}, ValueError, "expected reduce to be None or 'sum', got 'mean'"),
        (([1], [1.0]), {"reduce": "sum"}, ValueError, "for calls inside bodies; here use tf.reduce_sum"),
        (
            ([1], [1.0]),
            {"execution": "x"},
            ValueError,
            r"execution to be one of \('auto', 'invoke', 'batched'\), got 'x'",
        ),
    ],
)
def test_map(arguments, options, error, message):
    f = defined(lambda n, x: x, [INT, FLOAT], FLOAT)
    with pytest.raises(error, match=message):
        f.map(*arguments, **options)


@pytest.mark.parametrize("execution", BOTH)
def test_a_map_over_arguments_of_unequal_length(execution):
    f = defined(lambda n, x: x, [INT, FLOAT], FLOAT)
    with pytest.raises((tf.errors.InvalidArgumentError, recursion.SignatureError), match="rows"):
        f.map([1, 2], [1.0, 2.0, 3.0], execution=execution)


def test_an_unknown_execution():
    with pytest.raises(ValueError, match=r"'f': expected execution to be one of .*got 'fast'"):
        defined(lambda n: n)(1, execution="fast")


@pytest.mark.parametrize("options", [{"execution": "batched"}, {"return_calls": True}])
def test_options_of_the_root_inside_a_body(options):
    f = recursion.SubGraph("f", [INT], INT)
    f.define(lambda n: f(n, **options))
    with pytest.raises(ValueError, match="belong to the call that starts the recursion.*leave them out"):
        f(1)


def test_arguments_by_name():
    f = defined(lambda n, x: x, [INT, FLOAT], FLOAT)
    for call in (f, f.map):
        with pytest.raises(recursion.SignatureError, match="'f': expected positional arguments, .*got x=. Write"):
            call([1], x=[2.0])


@pytest.mark.parametrize(("arguments", "got"), [((lambda n: n,), "the function itself"), (([INT],), "alone")])
def test_a_decorator_without_signatures(arguments, got):
    with pytest.raises(TypeError, match=f"expected the signatures .*got .*{got}"):
        recursion.function(*arguments)


@pytest.mark.parametrize("execution", BOTH)
def test_a_declared_shape_is_named_when_the_run_breaks_it(execution):
    f = defined(lambda x: x[:2], [vector(None)], vector(3))
    run = tf.function(lambda x: f(x, execution=execution), input_signature=[vector(None)])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"(?s)declared_shape_of_result_of_its_body.*SubGraph 'f'"
    ) as caught:
        run(tf.zeros([5]))
    assert "expected shape" in str(caught.value)


@pytest.mark.parametrize("execution", BOTH)
@pytest.mark.parametrize("sizes", [(0, 1), (1, 0), (3, 1), (1, 3)])
def test_a_map_over_unequal_lengths_that_only_the_run_tells(execution, sizes):
    f = defined(lambda n, m: n + m, [INT, INT], INT)
    many = tf.TensorSpec([None], tf.int32)
    run = tf.function(lambda a, b: f.map(a, b, execution=execution), input_signature=[many, many])
    message = f"arguments 0 and 1 of SubGraph 'f' have {sizes[0]} and {sizes[1]} rows; expected equal numbers"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(*(tf.zeros([size], tf.int32) for size in sizes))
