"""How a change of hyper-parameters reaches a model: by a variable, by a setting of the optimizer, or by a new model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np

from tf_ext.checkpoint.keras import State
from tf_ext.tuner.errors import InvalidSequenceError
from tf_ext.tuner.segments import Config, Scalar

__all__ = ["Roles", "inner_optimizer", "move_state", "set_learning_rate", "signature"]

Apply = Callable[[Any, Any], None]

_RATE_NAMES = ("learning_rate", "lr")
_BATCH_NAMES = ("batch_size", "batch")
_SETTINGS = (
    "momentum",
    "weight_decay",
    "beta_1",
    "beta_2",
    "rho",
    "epsilon",
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "ema_momentum",
    "nesterov",
)


@dataclasses.dataclass
class Roles:
    """What each hyper-parameter is applied to.

    Attributes:
        rate: The one that is the learning rate, or None.
        batch: The one that is the batch size, or None.
        data: Those that the data set is made with.
        settings: Settings of the optimizer by hyper-parameter.
        hooks: The user's own functions.
        tried: For which models, by the configuration that is built in, this was tried out.
    """

    rate: str | None = None
    batch: str | None = None
    data: tuple[str, ...] = ()
    settings: dict[str, str] = dataclasses.field(default_factory=dict)
    hooks: dict[str, Apply] = dataclasses.field(default_factory=dict)
    tried: frozenset[Config] = frozenset()

    def assign(self, name: str, applies_to: str | Apply | None) -> None:
        """Gives a hyper-parameter its role: what the user said, or what its name says."""
        role = _role(name, applies_to)
        if role == "batch_size" and self.batch not in (None, name):
            raise InvalidSequenceError(
                f"expected one batch size, got {self.batch!r} and {name!r}. Use one name for both."
            )
        if callable(role):
            self.hooks[name] = role
        elif role == "learning_rate":
            self.rate = name
        elif role == "batch_size":
            self.batch = name
        elif role == "data":
            self.data = (*self.data, name)
        elif role in _SETTINGS:
            self.settings[name] = role
        elif role != "model":
            raise InvalidSequenceError(
                f"expected `applies_to` of {name!r} to be 'learning_rate', 'batch_size', 'data', 'model', a setting of the "
                f"optimizer ({', '.join(_SETTINGS)}) or a function, got {role!r}."
            )

    def require(self, name: str, applies_to: str | Apply | None) -> None:
        """Refuses what was not known when the roles were given and would have no effect.

        Raises:
            InvalidSequenceError: The hyper-parameter concerns the data, or has a function of its own.
        """
        role = _role(name, applies_to)
        known = {self.batch, *self.data, *self.hooks}
        if name not in known and (callable(role) or role in ("batch_size", "data")):
            raise InvalidSequenceError(
                f"expected to know of the sequence {name!r} before the search, got it from a build function that asks for it "
                "only with certain values of others. Ask for it in each build, or within hp.conditional_scope()."
            )

    def drop(self, name: str) -> None:
        """Takes a role away: the model is built anew when the hyper-parameter changes."""
        self.rate = None if self.rate == name else self.rate
        self.settings.pop(name, None)

    def built_in(self, config: Config) -> Config:
        """The part of a configuration that a model is built with and that is not changed in it afterwards."""
        outside = {self.rate, self.batch, *self.data, *self.settings, *self.hooks}
        return tuple((name, value) for name, value in config if name not in outside)

    def data_config(self, config: Config) -> dict[str, Scalar]:
        """The part that concerns the data, the batch size under that name."""
        values = dict(config)
        found = {name: values[name] for name in self.data if name in values}
        if self.batch is not None and self.batch in values:
            found["batch_size"] = values[self.batch]
        return found

    def settings_of(self, config: Config) -> Config:
        """The part that is set in the optimizer or by the user's functions: the train function depends on it."""
        return tuple((name, value) for name, value in config if name in self.settings or name in self.hooks)

    def fits(self, model: keras.Model, config: Config) -> list[str]:
        """The hyper-parameters whose role does not hold: the built model has another value than the configuration."""
        values, optimizer = dict(config), inner_optimizer(model)
        wrong = []
        if self.rate in values and not _has_rate(optimizer, values[str(self.rate)]):
            wrong.append(str(self.rate))
        for name, setting in self.settings.items():
            if name in values and getattr(optimizer, setting, None) != values[name]:
                wrong.append(name)
        return wrong

    def set(self, model: keras.Model, config: Config) -> None:
        """Makes the settings of the optimizer those of a configuration, and calls the user's functions."""
        values, optimizer = dict(config), inner_optimizer(model)
        for name, setting in self.settings.items():
            if name in values:
                setattr(optimizer, setting, values[name])
        for name, hook in self.hooks.items():
            if name in values:
                hook(model, values[name])


def _role(name: str, applies_to: str | Apply | None) -> str | Apply:
    return applies_to if applies_to is not None else _by_name(name)


def _by_name(name: str) -> str:
    last = name.rpartition("/")[2]
    if last in _RATE_NAMES:
        return "learning_rate"
    if last in _BATCH_NAMES:
        return "batch_size"
    return last if last in _SETTINGS else "model"


def inner_optimizer(model: keras.Model) -> Any:
    """The optimizer of a model, without the loss scaling around it."""
    optimizer = getattr(model, "optimizer", None)
    return getattr(optimizer, "inner_optimizer", optimizer)


def set_learning_rate(model: keras.Model, value: Scalar) -> None:
    """Assigns the learning rate.

    Raises:
        InvalidSequenceError: The optimizer has a schedule of its own.
    """
    optimizer = inner_optimizer(model)
    if _has_schedule(optimizer):
        raise InvalidSequenceError(
            "expected an optimizer with a plain learning rate, since the study has a sequence for it, got one with a "
            "LearningRateSchedule. Use one of the two."
        )
    optimizer.learning_rate = value


def signature(model: keras.Model, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a build made, apart from optimizer settings of the given names and from names that Keras counts up."""
    optimizer = inner_optimizer(model)
    settings = {} if optimizer is None else dict(optimizer.get_config())
    for name in ("name", *values):
        settings.pop(name, None)
    variables = tuple(
        (tuple(v.shape), str(v.dtype), bool(v.trainable), keras.ops.convert_to_numpy(v).tobytes())
        for v in model.variables
    )
    try:
        architecture = _plain(model.get_config())
    except NotImplementedError:  # a subclass of Model without it: its layers then
        architecture = tuple((type(layer).__name__, _plain(layer.get_config())) for layer in model.layers)
    return type(optimizer).__name__, _plain(settings), variables, architecture


def move_state(state: State, model: keras.Model, *, rate_changed: bool) -> State:
    """The state of a model that was built with other hyper-parameters, as one of this model.

    Args:
        state: The old one.
        model: The new model, as built.
        rate_changed: Whether the two were built with different learning rates: then the new one counts.

    Returns:
        All variables of the model, and those of the optimizer that the two have in common; what is new is as built. An
        optimizer of another kind begins afresh.

    Raises:
        InvalidSequenceError: The variables of the two models differ.
    """
    old = [(value.shape, str(value.dtype)) for _, value in state.model]
    new = [(tuple(v.shape), str(v.dtype)) for v in model.variables]
    if old != new:
        raise InvalidSequenceError(
            f"expected a hyper-parameter that changes during the training to leave the variables of the model as they are, "
            f"got {len(old)} variables before and {len(new)} after, or others. One that decides what the model is made of "
            "cannot be a sequence."
        )
    variables = tuple((v.path, value) for v, (_, value) in zip(model.variables, state.model, strict=True))
    return dataclasses.replace(state, model=variables, optimizer=_moved_optimizer(state, model, rate_changed))


def _moved_optimizer(state: State, model: keras.Model, rate_changed: bool) -> Any:
    optimizer = getattr(model, "optimizer", None)
    if state.optimizer is None or optimizer is None:
        return state.optimizer
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    if _owners(path for path, _ in state.optimizer) != _owners(v.path for v in optimizer.variables):
        return tuple((v.path, keras.ops.convert_to_numpy(v).copy()) for v in optimizer.variables)  # of another kind
    old = dict(_keyed([(path, value) for path, value in state.optimizer]))
    moved = []
    for variable, (key, _) in zip(optimizer.variables, _keyed([(v.path, v) for v in optimizer.variables]), strict=True):
        value = keras.ops.convert_to_numpy(variable).copy()
        was = old.get(key)
        fits = was is not None and was.shape == value.shape and was.dtype == value.dtype
        if fits and not (rate_changed and key[0] == "learning_rate"):
            value = was
        moved.append((variable.path, value))
    return tuple(moved)


def _owners(paths: Iterable[str]) -> set[str]:
    """The names of the optimizers, inner and outer, whose variables these are."""
    return {path.partition("/")[0] for path in paths}


def _keyed(variables: list[tuple[str, Any]]) -> list[tuple[tuple[str, int], Any]]:
    """Names a variable by what it is ('momentum', 'velocity') and its place among those: layers' numbers may differ."""
    counts: dict[str, int] = {}
    keyed = []
    for path, value in variables:
        last = path.rpartition("/")[2]
        kind = next((k for k in ("learning_rate", "iteration") if last == k), None) or last.rpartition("_")[2]
        counts[kind] = counts.get(kind, -1) + 1
        keyed.append(((kind, counts[kind]), value))
    return keyed


def _has_rate(optimizer: Any, value: Scalar) -> bool:
    if optimizer is None or isinstance(value, str):
        return False
    return not _has_schedule(optimizer) and bool(np.float32(optimizer.learning_rate) == np.float32(value))


def _has_schedule(optimizer: Any) -> bool:
    return isinstance(optimizer.get_config().get("learning_rate"), dict)


def _plain(value: Any) -> Any:
    """A configuration without the names of layers, comparable."""
    if isinstance(value, dict):
        return tuple((k, _plain(v)) for k, v in sorted(value.items()) if k not in ("name", "build_config"))
    if isinstance(value, list | tuple):
        return tuple(_plain(v) for v in value)
    return repr(value)
