"""Whether what is known of a hyper-parameter holds for other models than that on which it was tried out."""

from __future__ import annotations

import copy
from typing import Any

import keras

from tf_ext.tuner._applying import Roles, signature
from tf_ext.tuner._job import Job
from tf_ext.tuner.segments import Config

__all__ = ["Branches"]


class Branches:
    """The roles of hyper-parameters, branch by branch.

    A branch is what models are built with and what is not changed in them afterwards. With `optimizer="adam"` a build
    function may take `learning_rate` as it is, and ten times as much of it with `optimizer="sgd"`; before the search only one
    branch was tried out. So each other one is looked at when a second value of a rate or a setting comes to it.

    Args:
        job: How models are built, and the roles that hold where they were tried out.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._first: dict[Config, Config] = {}  # by branch
        self._found: dict[Config, Roles] = {}

    def roles(self, config: Config) -> Roles:
        """Those that hold for models of a configuration."""
        roles = self._job.roles
        applied = _applied(roles, config)
        branch = roles.built_in(config)
        if not applied or branch in roles.tried:
            return roles
        first = self._first.setdefault(branch, config)
        if branch not in self._found and _applied(roles, first) != applied:
            self._found[branch] = self._tried(roles, first, config)
        return self._found.get(branch, roles)

    def check(self, model: keras.Model, config: Config) -> None:
        """Looks at a model that was just built: a rate or a setting that it has otherwise is not to be touched."""
        roles = self.roles(config)
        wrong = roles.fits(model, config)
        if wrong:
            self._found[self._job.roles.built_in(config)] = _without(roles, wrong)

    def _tried(self, roles: Roles, first: Config, second: Config) -> Roles:
        """The roles that hold for two configurations of a branch."""
        changed = [name for name, value in _applied(roles, first) if dict(second).get(name) != value]
        models = [self._job.build(config, 0) for config in (first, second)]
        pairs = zip(models, (first, second), strict=True)
        wrong = [name for model, config in pairs for name in roles.fits(model, config)]
        settings: dict[str, Any] = {roles.settings.get(name, "learning_rate"): None for name in changed}
        if not wrong and signature(models[0], settings) != signature(models[1], settings):
            wrong = changed
        return _without(roles, wrong) if wrong else roles


def _applied(roles: Roles, config: Config) -> Config:
    return tuple((name, value) for name, value in config if name == roles.rate or name in roles.settings)


def _without(roles: Roles, names: list[str]) -> Roles:
    fewer = copy.copy(roles)
    fewer.settings = dict(roles.settings)
    for name in names:
        fewer.drop(name)
    return fewer
