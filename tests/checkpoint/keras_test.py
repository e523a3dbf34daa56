"""A training that is resumed equals one that was never interrupted, bit for bit."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests.checkpoint import training
from tests.checkpoint.training import difference, make_model, train, values
from tf_ext import checkpoint
from tf_ext.checkpoint import StateMismatchError, Store

TIMEOUT_S = 120.0


def _same_state(one, other):
    for group in ("model", "optimizer", "metrics"):
        a, b = getattr(one, group), getattr(other, group)
        assert (a is None) == (b is None)
        for (path, value), (path2, value2) in zip(a or (), b or (), strict=True):
            assert (path, value.dtype, value.shape, value.tobytes()) == (
                path2,
                value2.dtype,
                value2.shape,
                value2.tobytes(),
            )


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_epochs_and_two_more_equal_four(jit_compile, tmp_path):
    whole = make_model("adam", 1, jit_compile=jit_compile)
    losses = train(whole, 0, 4)["loss"]

    first, store = make_model("adam", 1, jit_compile=jit_compile), Store(tmp_path)
    train(first, 0, 2)
    checkpoint.keras.save(store, "epoch-2", checkpoint.keras.capture(first), {"epoch": 2})

    second = make_model("adam", 99, jit_compile=jit_compile)
    assert difference_of_weights(first, second) > 0
    state = checkpoint.keras.load(store, "epoch-2")
    checkpoint.keras.restore(second, state)
    _same_values(checkpoint.keras.capture(second), state)
    assert train(second, 2, 4)["loss"] == losses[2:]
    assert difference(whole, second) == 0.0
    assert difference(whole, first) > 0  # the two epochs changed something


@pytest.mark.parametrize("optimizer", ["sgd", "ema", "loss_scale"])
def test_what_was_saved_within_fit_goes_on_as_fit_did(optimizer, tmp_path):
    dtype = "mixed_float16" if optimizer == "loss_scale" else "float32"
    whole, store = make_model(optimizer, 1, dtype), Store(tmp_path)
    # Saved within `fit`: at its end the averages of "ema" become the weights.
    losses = train(whole, 0, 4, [checkpoint.keras.SaveEveryEpoch(store)])["loss"]
    assert store.names() == ["epoch-1", "epoch-2", "epoch-3", "epoch-4"]
    assert store.metadata("epoch-2")["epoch"] == 2

    state = checkpoint.keras.load(store, "epoch-2")
    scales = [float(value) for path, value in state.optimizer or () if path.endswith("dynamic_scale")]
    assert scales == ([2.0**17] if optimizer == "loss_scale" else [])  # twice doubled, in eight steps
    second = make_model(optimizer, 99, dtype)
    checkpoint.keras.restore(second, state)
    assert train(second, 2, 4)["loss"] == losses[2:]
    assert difference(whole, second) == 0.0


def difference_of_weights(one, other):
    return max(float(np.abs(a - b).max()) for a, b in zip(one.get_weights(), other.get_weights(), strict=True))


def test_a_training_resumed_in_another_process(tmp_path):
    store = Store(tmp_path)
    whole = make_model("adam", seed=1)
    train(whole, 0, 2)
    checkpoint.keras.save(store, "epoch-2", checkpoint.keras.capture(whole))
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [sys.executable, training.__file__, str(tmp_path), "epoch-2"]
    subprocess.run(command, check=True, timeout=TIMEOUT_S, env=environment)
    train(whole, 2, 4)
    _same_values(checkpoint.keras.load(store, "resumed"), checkpoint.keras.capture(whole))


def _same_values(one, other):
    for a, b in zip([*one.model, *one.optimizer], [*other.model, *other.optimizer], strict=True):
        assert a[1].tobytes() == b[1].tobytes(), (a[0], b[0])


def test_without_the_seeds_or_the_slots_the_training_differs():
    # What this module is for: the tests above would find it if either were left out.
    model = make_model("adam", seed=1)
    train(model, 0, 2)
    state = checkpoint.keras.capture(model)
    train(model, 2, 3)
    whole = model.get_weights()

    def again(*left_out):
        checkpoint.keras.restore(model, state)
        for v in [*model.variables, *model.optimizer.variables]:
            if v.path.endswith(left_out):
                v.assign(np.zeros(v.shape, v.dtype))
        train(model, 2, 3)
        return max(float(np.abs(a - b).max()) for a, b in zip(whole, model.get_weights(), strict=True))

    assert again("nothing") == 0.0
    assert again("seed_generator_state") > 0
    assert again("_momentum", "_velocity") > 0


def test_a_state_is_a_copy_and_tells_its_size():
    model = make_model("adam", seed=1)
    state = checkpoint.keras.capture(model, metrics=False)
    before = [value.copy() for _, value in state.model]
    train(model, 0, 1)
    assert all((a == b).all() for a, (_, b) in zip(before, state.model, strict=True))
    assert any((a != b).any() for a, b in zip(before, values(model), strict=False))
    expected = sum(value.nbytes for value in values(model))
    assert state.nbytes == expected
    checkpoint.keras.restore(model, state)
    fresh = make_model("adam", seed=1)
    assert difference_of_weights(model, fresh) == 0.0
    assert int(model.optimizer.iterations.numpy()) == 0


def test_metrics_are_taken_on_request():
    model = make_model("adam", seed=1)
    x, y = np.ones((4, 8, 8, 1), np.float32), np.array([0, 1, 2, 0])
    model.train_on_batch(x, y)
    model.train_on_batch(x, y)
    state = checkpoint.keras.capture(model, metrics=True)
    expected = [v.numpy().copy() for v in model.metrics_variables]
    model.reset_metrics()
    checkpoint.keras.restore(model, state)
    assert len(expected) >= 2
    for v, value in zip(model.metrics_variables, expected, strict=True):
        np.testing.assert_array_equal(v.numpy(), value)
    unbuilt = make_model("adam", seed=1)
    with pytest.raises(StateMismatchError, match="metrics variables"):
        checkpoint.keras.restore(unbuilt, state)


def _bytes(model):
    return [keras.ops.convert_to_numpy(v).tobytes() for v in model.variables]


def _dense(units=4, names=("first", "second"), dtype="float32", layers=2):
    model = keras.Sequential([keras.Input((3,))])
    for name in names[:layers]:
        model.add(keras.layers.Dense(units, name=name, dtype=dtype))
    model.compile("adam", "mse")
    return model


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: _dense(units=5), r"model variable 0: expected '.*first/kernel' with shape \(3, 4\).*got .*\(3, 5\)"),
        (
            lambda: _dense(names=("first", "third")),
            "model variable 2: expected '.*/second/kernel'.*got '.*/third/kernel'",
        ),
        (lambda: _dense(dtype="bfloat16"), "dtype float32, got '.*/first/kernel' with shape .* and dtype bfloat16"),
        (
            lambda: _dense(layers=1),
            "expected 4 model variables, got 2; the first without a partner is '.*/second/kernel'",
        ),
        (
            lambda: _optimizer(_dense(), "rmsprop"),
            "optimizer variable 0: expected 'adam.*/iteration' .*got 'rm.*/iteration'",
        ),
        (lambda: _optimizer(_dense(), None), "a model that was not compiled. Compile it first"),
    ],
)
def test_a_state_of_another_model_is_refused_by_name_and_nothing_changes(other, message):
    state = checkpoint.keras.capture(_dense())
    model = other()
    before = _bytes(model)
    with pytest.raises(StateMismatchError, match=message):
        checkpoint.keras.restore(model, state)
    assert _bytes(model) == before


def _optimizer(model, optimizer):
    plain = keras.Sequential(model.layers)
    plain.build((None, 3))
    if optimizer:
        plain.compile(optimizer, "mse")
    return plain


def test_layers_that_changed_places_are_refused():
    def make(*names):
        return keras.Sequential([keras.Input((4,)), *[keras.layers.Dense(4, name=name) for name in names]])

    state = checkpoint.keras.capture(make("block_1", "block_2", "block_10"))
    checkpoint.keras.restore(make("block_3", "block_4", "block_12"), state)
    for names in (("block_2", "block_1", "block_10"), ("block_1", "block_10", "block_2")):
        with pytest.raises(StateMismatchError, match="in the order in which they were captured"):
            checkpoint.keras.restore(make(*names), state)


def test_an_unbuilt_model_is_refused():
    model = keras.Sequential([keras.layers.Dense(3)])
    with pytest.raises(StateMismatchError, match="expected a built model"):
        checkpoint.keras.capture(model)
    with pytest.raises(StateMismatchError, match=r"Call model.build\(input_shape\)"):
        checkpoint.keras.restore(model, checkpoint.keras.State(model=()))


def test_variables_of_bfloat16_keep_their_bits(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, dtype="bfloat16")])
    state = checkpoint.keras.capture(model)
    assert state.model[0][1].dtype.name == "bfloat16"
    store = Store(tmp_path)
    checkpoint.keras.save(store, "x", state)
    loaded = checkpoint.keras.load(store, "x")
    _same_state(state, loaded)
    other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, dtype="bfloat16")])
    checkpoint.keras.restore(other, loaded)
    assert _bytes(other)[0] == state.model[0][1].tobytes()


def test_a_checkpoint_that_is_no_state_is_refused(tmp_path):
    store = Store(tmp_path)
    store.save("x", {"a": b""}, {"mine": 1})
    with pytest.raises(checkpoint.CorruptedCheckpointError, match=r"got metadata with \['mine'\]"):
        checkpoint.keras.load(store, "x")
    with pytest.raises(checkpoint.InvalidBlobError, match="kept for the state"):
        checkpoint.keras.save(store, "x", checkpoint.keras.State(model=()), {"tf_ext.checkpoint.keras": 1})
