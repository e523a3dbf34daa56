"""From the arguments of `search` to a `Job`: what each hyper-parameter does, and what it all depends on."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import keras_tuner
import tensorflow as tf
from absl import logging

from tf_ext.tuner import schedules
from tf_ext.tuner._applying import Roles, inner_optimizer, signature
from tf_ext.tuner._fingerprint import environment, fingerprint_of_arrays, fingerprint_of_code
from tf_ext.tuner._fit_data import source_of
from tf_ext.tuner._job import Job
from tf_ext.tuner.errors import InvalidSequenceError
from tf_ext.tuner.segments import Config, Path, Scalar, path_of
from tf_ext.tuner.segments import Sequence as ValueSequence

__all__ = ["bind_fit", "check_objective", "context_of", "find_roles", "is_sequence", "more_optimizers", "path_for"]

_ALTERNATIVES = 3


def bind_fit(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `search` by name, as `keras.Model.fit` takes them.

    Raises:
        TypeError: `fit` does not take them.
    """
    bound = inspect.signature(keras.Model.fit).bind(None, *arguments, **keywords)
    return {name: value for name, value in bound.arguments.items() if name != "self"}


def path_for(hp: keras_tuner.HyperParameters, epochs: int, extra: Mapping[str, Scalar] | None = None) -> Path:
    """The path of a trial.

    Args:
        hp: Its hyper-parameters. Names that begin with ``tuner/`` are the oracle's own.
        epochs: How many epochs it trains.
        extra: More that tells it from other trials.

    Raises:
        InvalidSequenceError: A sequence is shorter than the training.
    """
    values: dict[str, Scalar | ValueSequence] = dict(extra or {})
    for name, value in hp.values.items():
        if not name.startswith("tuner/") and value is not None:
            values[name] = ValueSequence.parse(value) if is_sequence(hp, name, value) else value
    return path_of(values, epochs)


def is_sequence(hp: keras_tuner.HyperParameters, name: str, value: Any) -> bool:
    """Whether a text is a sequence: it looks like one, and so do all choices, or the parameter is a number otherwise."""
    if not ValueSequence.is_text(value):
        return False
    known = [entry for entry in hp.space if entry.name == name]
    choices = [choice for entry in known for choice in getattr(entry, "values", [])]
    return all(ValueSequence.is_text(choice) or not isinstance(choice, str) for choice in choices)


def find_roles(job: Job, configs: Sequence[Config], spaces: Mapping[str, Sequence[Any]]) -> tuple[Roles, keras.Model]:
    """What each hyper-parameter is applied to, tried out on built models.

    A name such as `learning_rate` is a guess: a build function may scale it, or use it for something else besides. So the
    model is built with other values, and all that differs must be that one setting.

    Args:
        job: The job; its roles are not used.
        configs: Those of some trials at their beginning, in which all hyper-parameters occur that are known.
        spaces: Values that each hyper-parameter may have.

    Returns:
        The roles, and the model as built with the first configuration.

    Raises:
        InvalidSequenceError: `applies_to` says what is not so, or what nothing would come of.
    """
    roles, seen = Roles(), set[str]()
    with schedules.recording() as uses:
        model = job.build(configs[0], 0)
    _add_roles(job, roles, configs[0], spaces, uses, model, seen)
    roles.tried = frozenset([roles.built_in(configs[0])])
    for config in configs[1:]:
        if seen.issuperset(name for name, _ in config):
            continue
        with schedules.recording() as uses:
            try:
                other = job.build(config, 0)
            except Exception:  # a trial that has these values will say so
                logging.info("No model can be built with %s.", dict(config))
                continue
        _add_roles(job, roles, config, spaces, uses, other, seen)
    roles.tried = frozenset([roles.built_in(configs[0])])
    _refuse_without_effect(job, roles)
    return roles, model


def _add_roles(
    job: Job,
    roles: Roles,
    config: Config,
    spaces: Mapping[str, Sequence[Any]],
    uses: Sequence[schedules.Use],
    model: keras.Model,
    seen: set[str],
) -> None:
    """Adds the roles of those hyper-parameters of a configuration that were not seen before."""
    said = {use.name: use.applies_to for use in uses}
    new = [name for name, _ in config if name not in seen]
    seen.update(new)
    for name in new:
        guess = Roles()
        guess.assign(name, said.get(name))
        if guess.rate and roles.rate:
            continue  # a second one: models are built anew for it
        if name in said or (isinstance(dict(config)[name], float) and (guess.rate or guess.settings)):
            roles.assign(name, said.get(name))
        elif guess.batch and isinstance(dict(config)[name], int) and job.data.source.takes_batch_size:
            roles.assign(name, None)
    for name in [n for n in (roles.rate, *roles.settings) if n is not None and n in new]:
        if name in roles.fits(model, config) or not _only_that(job, roles, config, name, spaces.get(name, ()), model):
            if isinstance(said.get(name), str):
                raise InvalidSequenceError(
                    f"expected {name!r} to be the optimizer's {said[name]}, as applies_to says, but the built model has "
                    "another value, or something else depends on it. Use applies_to='model', or leave it out."
                )
            roles.drop(name)


def _refuse_without_effect(job: Job, roles: Roles) -> None:
    """Refuses hyper-parameters that concern the data where the data do not take them."""
    source = job.data.source
    taken = getattr(source, "wanted", ())
    lost = [name for name in roles.data if name not in taken]
    if roles.batch is not None and not source.takes_batch_size:
        lost.append(roles.batch)
    if lost:
        raise InvalidSequenceError(
            f"expected data that are made with {' and '.join(map(repr, lost))}, got {source.kind}. Give "
            "tuner.data.dataset_fn() a function with parameters of these names; the batch size of arrays changes by itself."
        )


def _only_that(job: Job, roles: Roles, config: Config, name: str, values: Sequence[Any], model: keras.Model) -> bool:
    """Whether a model that is built with other values of a hyper-parameter differs in nothing else."""
    now = dict(config)[name]
    flat = [w for v in values for w in (v.values if isinstance(v, ValueSequence) else (v,))]
    others = list(dict.fromkeys(v for v in flat if v != now))
    tried = ([v for v in others if not v] + [v for v in others if v])[:_ALTERNATIVES]  # 0 often leaves variables out
    setting = roles.settings.get(name, "learning_rate")
    mine = signature(model, {setting: None}), len(model.optimizer.variables)
    for value in tried:
        changed = tuple((n, value if n == name else v) for n, v in config)
        other = job.build(changed, 0)
        if (signature(other, {setting: None}), len(other.optimizer.variables)) != mine:
            return False
        if name in roles.fits(other, changed):
            return False
    return True


def check_objective(job: Job, model: keras.Model, config: Config) -> None:
    """Looks whether training will report the objective, with one batch and before any training.

    Raises:
        keras_tuner.errors.FatalValueError: It will not.
    """
    own_step = getattr(type(model), "train_step", None) is not keras.Model.train_step
    if own_step and job.data.validation is None:
        return  # only training tells what it reports; the first epoch is looked at
    data_config = job.roles.data_config(config)
    arguments = job.data.source.fit_arguments(0, 1, job.seed, data_config)
    if isinstance(arguments["x"], tf.data.Dataset):
        # In the form in which `fit` will see it, so that the function that is traced here serves there.
        arguments = {"x": arguments["x"].take(1)}
    logs = model.evaluate(**arguments, steps=1, verbose=0, return_dict=True)
    if own_step and not _is_of_validation(job.objective):
        return
    names = set(logs) | ({f"val_{name}" for name in logs} if job.data.validation is not None else set())
    if not job.objective.has_value(dict.fromkeys(names, 0.0)) and not job.callbacks:
        raise keras_tuner.errors.FatalValueError(
            f"expected the objective {job.objective.name!r} among the metrics that training will report, which are "
            f"{sorted(names)}. Name one of these, compile the model with it"
            + ("." if job.data.validation is not None else ", or give validation data.")
        )


def _is_of_validation(objective: keras_tuner.Objective) -> bool:
    parts = getattr(objective, "objectives", [objective])
    return all(part.name.startswith("val_") for part in parts)


def more_optimizers(model: keras.Model) -> list[str]:
    """Names of attributes of a model that are optimizers, apart from the one that it was compiled with."""
    own = [model.optimizer, inner_optimizer(model)]
    found = ((name, value) for name, value in vars(model).items() if isinstance(value, keras.optimizers.Optimizer))
    return [name for name, value in found if all(value is not each for each in own)]


def context_of(job: Job, project: str) -> tuple[str, dict[str, Any]]:
    """A text that is equal for trainings that may share stages, and what it is made of.

    Args:
        job: How they are trained.
        project: Where the study lies. Where it cannot be told what something is, it keeps the study apart from others.
    """
    rest = {k: v for k, v in job.data.rest.items() if k not in ("verbose", "epochs")}
    parts = {
        "model": fingerprint_of_code(_hypermodel_source(job.hypermodel)),
        "data": job.data.source.fingerprint(),
        "validation": _validation(job.data.validation),
        "fit": fingerprint_of_code(rest),
        "callbacks": fingerprint_of_code([_settings(c) for c in job.callbacks]),
        "compile": fingerprint_of_code([_settings(v) for v in job.compile_arguments.values()]),
        "strategy": type(job.strategy).__name__,
        "seed": job.seed,
        "folds": len(job.folds),
        "environment": environment(),
    }
    unknown = sorted(name for name, value in parts.items() if value is None)
    if unknown:
        logging.info("Stages are shared with no other study: it cannot be told what %s is.", " and ".join(unknown))
    description = {**parts, "private": [*unknown, os.path.abspath(project)] if unknown else []}
    return hashlib.blake2b(json.dumps(description, sort_keys=True).encode(), digest_size=16).hexdigest(), description


def _hypermodel_source(hypermodel: keras_tuner.HyperModel) -> Any:
    build = getattr(hypermodel, "_build", hypermodel.build)
    if type(hypermodel).__name__ == "DefaultHyperModel":
        return hypermodel.build
    settings = {k: v for k, v in vars(hypermodel).items() if k not in ("build", "_build")}
    return [type(hypermodel), getattr(build, "__func__", build), settings]


def _settings(thing: Any) -> Any:
    if isinstance(thing, keras.optimizers.Optimizer | keras.losses.Loss | keras.metrics.Metric):
        return [type(thing).__name__, thing.get_config()]
    if isinstance(thing, keras.callbacks.Callback):
        kept = {k: v for k, v in vars(thing).items() if isinstance(v, str | int | float | bool | None | list | tuple)}
        return [type(thing), kept]
    return thing


def _validation(validation: Any) -> str | None:
    if validation is None:
        return "none"
    if isinstance(validation, tuple | list):
        return fingerprint_of_arrays(tuple(v for v in validation if v is not None), [])
    return source_of({"x": validation}).source.fingerprint()
