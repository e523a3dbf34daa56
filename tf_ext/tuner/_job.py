"""What a worker needs to know to train any stage of a study, and what it says about a stage that it trained."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import keras
import keras_tuner
import numpy as np

from tf_ext.checkpoint.keras import State, restore
from tf_ext.tuner._applying import Roles
from tf_ext.tuner._fit_data import FitData
from tf_ext.tuner.segments import Config

__all__ = ["Job", "StageResult", "StageTask"]

_INPUTS = "tf_ext/inputs"


@dataclasses.dataclass
class Prepared:
    """A model as `Job.build` made it for the first execution.

    Attributes:
        config: With what configuration.
        model: It.
        initial: Its state.
    """

    config: Config
    model: keras.Model
    initial: State


@dataclasses.dataclass
class Job:
    """How the models of a study are built and trained.

    Attributes:
        hypermodel: What builds them.
        space: All hyper-parameters, without values.
        data: Training and validation data, and the other arguments of `fit`.
        callbacks: The user's, as given to `search`; each stage gets copies.
        objective: What the best epoch is told by.
        seed: Of the first execution; those that follow add their number.
        compile_arguments: `optimizer`, `loss` and `metrics` that replace those of the built models.
        max_model_size: Models with more parameters are refused.
        strategy: `tf.distribute.Strategy` under which models are built, or None.
        roles: What each hyper-parameter is applied to.
        build_config: By which a model is built that waits for data, where no data are at hand; or None.
        prepared: A model that was built before the search, for the first stage that can use it.
        folds: Data for cross-validation: execution n trains on fold n modulo their number.
    """

    hypermodel: keras_tuner.HyperModel
    space: keras_tuner.HyperParameters
    data: FitData
    callbacks: list[keras.callbacks.Callback]
    objective: keras_tuner.Objective
    seed: int
    compile_arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    max_model_size: int | None = None
    strategy: Any = None
    roles: Roles = dataclasses.field(default_factory=Roles)
    build_config: dict[str, Any] | None = None
    prepared: Prepared | None = None
    folds: tuple[FitData, ...] = ()

    def data_of(self, execution: int) -> FitData:
        """The data of an execution: its fold, where there are some."""
        return self.folds[execution % len(self.folds)] if self.folds else self.data

    def seed_of(self, execution: int) -> int:
        """The seed of an execution."""
        return self.seed + execution // max(1, len(self.folds))

    def __getstate__(self) -> dict[str, Any]:
        """Without the model, which stays in this process."""
        return {**vars(self), "prepared": None}

    def hyperparameters(self, config: Config) -> keras_tuner.HyperParameters:
        """What the build function is called with during a stage."""
        hp = self.space.copy()
        hp.values = dict(config)
        return hp

    def build(self, config: Config, execution: int) -> keras.Model:
        """Builds a model as a trial that begins with this configuration does.

        Raises:
            keras_tuner.errors.FatalTypeError: The build function returned something else.
            keras_tuner.errors.FailedTrialError: The model is too large.
        """
        keras.backend.clear_session()  # for names that do not depend on what was built before
        with seeded(self.seed_of(execution)), self.scope():
            model = self.hypermodel.build(self.hyperparameters(config))
            if not isinstance(model, keras.Model):
                raise keras_tuner.errors.FatalTypeError(
                    "expected the build function to return a keras.Model, got "
                    f"{model!r} of {type(model).__name__}. Return the compiled model."
                )
            self._override(model)
            self._ensure_built(model)
        size = sum(int(np.prod(w.shape)) for w in model.trainable_weights)
        if self.max_model_size and size > self.max_model_size:
            raise keras_tuner.errors.FailedTrialError(
                f"expected at most max_model_size={self.max_model_size} parameters, got a model with {size}."
            )
        return model

    def model_of(self, config: Config, execution: int, state: State) -> keras.Model:
        """A new model with the weights of a state."""
        model = self.build(config, execution)
        restore(model, dataclasses.replace(state, optimizer=None, callbacks=()))
        return model

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """That of the distribution strategy."""
        return contextlib.nullcontext() if self.strategy is None else self.strategy.scope()

    def _override(self, model: keras.Model) -> None:
        if not any(self.compile_arguments.values()):
            if not model.compiled:
                raise keras_tuner.errors.FatalValueError(
                    "expected the build function to return a compiled model, got one that is not. Call model.compile(), or "
                    "give the tuner `optimizer` and `loss`."
                )
            return
        given = {name: value for name, value in self.compile_arguments.items() if value}
        if isinstance(given.get("optimizer"), keras.optimizers.Optimizer):
            given["optimizer"] = keras.optimizers.deserialize(keras.optimizers.serialize(given["optimizer"]))
        own: dict[str, Any] = {}
        if model.compiled:
            config = dict(model.get_compile_config() or {})
            own = {"optimizer": model.optimizer, "loss": model.loss}
            own |= {k: keras.saving.deserialize_keras_object(v) for k, v in config.items() if k not in own}
        model.compile(**{**own, **given})

    def _ensure_built(self, model: keras.Model) -> None:
        """Makes the variables of a model that waits for data, so that their values depend on the seed alone."""
        if not model.built and self.build_config is not None and _INPUTS not in self.build_config:
            model.build_from_config(self.build_config)
        if not model.built:
            model(self._example())  # not `build`, by which a subclass of Model makes no variables of its layers
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)

    def _example(self) -> Any:
        """Something to call a model with."""
        if self.build_config is not None:
            return keras.tree.map_structure(_zeros, keras.saving.deserialize_keras_object(self.build_config[_INPUTS]))
        example = next(iter(self.data.source.fit_arguments(0, 1, self.seed, {})["x"]))
        return example[0] if isinstance(example, tuple) else example

    def how_it_is_built(self, model: keras.Model) -> dict[str, Any]:
        """By which a model like this one is built where no data are at hand; JSON."""
        inputs = getattr(model, "inputs", None)
        if inputs or self.build_config is not None:
            return self.build_config or dict(model.get_build_config() or {})
        inputs = keras.tree.map_structure(lambda t: keras.KerasTensor((None, *t.shape[1:]), t.dtype), self._example())
        return {_INPUTS: keras.saving.serialize_keras_object(inputs)}


@dataclasses.dataclass(frozen=True)
class StageTask:
    """A stage to train.

    Attributes:
        node: Number of its node in the plan.
        start: Epochs that are done before it.
        end: Epochs that are done after it.
        config: Its hyper-parameters.
        before: Those of the stage before it; None where it is the first.
        state: Name of the checkpoint from which it goes on; None where it is the first.
        execution: Which of the executions of a trial.
        best: Value of the objective at the best epoch so far on its path, or None.
        keep: Name for the checkpoint of its end, or None if nothing goes on from there.
        keep_best: Name for the weights of its best epoch, should it be the best of the path; or None.
    """

    node: int
    start: int
    end: int
    config: Config
    before: Config | None
    state: str | None
    execution: int
    best: float | None = None
    keep: str | None = None
    keep_best: str | None = None


@dataclasses.dataclass(frozen=True)
class StageResult:
    """What came of a stage.

    Attributes:
        history: The metrics of each epoch.
        steps: Optimizer steps.
        seconds: From the first step to the end of the last epoch.
        stopped: Whether a callback ended the training.
        bytes: Of the checkpoint of its end; 0 if none was kept.
        best_epoch: The best epoch of the path, where it lies in this stage and its weights were kept; else None.
        best_bytes: Bytes of these.
    """

    history: list[dict[str, float]]
    steps: int
    seconds: float
    stopped: bool
    bytes: int = 0
    best_epoch: int | None = None
    best_bytes: int = 0


def _zeros(tensor: keras.KerasTensor) -> Any:
    return keras.ops.zeros([size or 1 for size in tensor.shape], tensor.dtype)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Sets the seeds of Keras, TensorFlow, NumPy and Python; puts those of the last two back."""
    python, numpy_state = random.getstate(), np.random.get_state()
    keras.utils.set_random_seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy_state)
