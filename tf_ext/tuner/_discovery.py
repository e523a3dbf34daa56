"""Hyper-parameters that a build function asks for only where others have certain values: `hp.Int(f"units_{i}")` in a loop."""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import keras_tuner

from tf_ext.tuner._job import Job, seeded
from tf_ext.tuner._preparing import is_sequence, path_for
from tf_ext.tuner.segments import Config

__all__ = ["Discovery"]


class Discovery:
    """Builds the model of a trial, where its like has not been seen, and adds what the build function asked for.

    Keras Tuner learns of such hyper-parameters when it builds the model of a trial, and suggests values for them from the
    next trial on. Here many trials are open before the first is built, perhaps in another process. So each combination of
    whole numbers and choices is built once when the first such trial begins. Fractions and sequences, which make no
    difference to what a model is made of, do not count.

    Args:
        job: How models are built.
        config: A configuration that was built already.
    """

    def __init__(self, job: Job, config: Config) -> None:
        self._job = job
        self._known: set[Config] = {self._shape(job.space, config)}

    def look(self, hp: keras_tuner.HyperParameters) -> bool:
        """Adds what is new to the hyper-parameters of a trial, with its default; whether there was anything."""
        shape = self._shape(hp, tuple(sorted(hp.values.items())))
        if shape in self._known:
            return False
        self._known.add(shape)
        tried = self._job.hyperparameters(path_for(hp, 1)[0].config)
        keras.backend.clear_session()
        # What a build function raises fails the trial when it is trained, with a traceback.
        with contextlib.suppress(Exception), seeded(self._job.seed), self._job.scope():
            self._job.hypermodel.build(tried)
        known = {_key(entry) for entry in hp.space}
        new = [entry for entry in tried.space if _key(entry) not in known]
        hp.merge(new, overwrite=False)
        return bool(new)

    def _shape(self, hp: keras_tuner.HyperParameters, config: Config) -> Config:
        outside = {*self._job.roles.settings, self._job.roles.rate, self._job.roles.batch, *self._job.roles.data}
        return tuple(
            (name, value)
            for name, value in config
            if name not in outside
            and not name.startswith("tuner/")
            and not isinstance(value, float)
            and not is_sequence(hp, name, value)
        )


def _key(entry: Any) -> tuple[str, str]:
    return entry.name, str([condition.get_config() for condition in entry.conditions])
