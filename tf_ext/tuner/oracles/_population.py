"""Population-based training."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import keras_tuner
from keras_tuner.engine.trial import Trial

from tf_ext.tuner.oracles._checks import check_fraction, check_whole
from tf_ext.tuner.oracles._durable import DurableOracle
from tf_ext.tuner.oracles._journal import Event
from tf_ext.tuner.oracles._perturb import changeable, changed
from tf_ext.tuner.oracles._rungs import best
from tf_ext.tuner.oracles._staged import History

__all__ = ["PopulationBasedTrainingOracle"]


class PopulationBasedTrainingOracle(DurableOracle):
    """Trains a population; every `interval` epochs the worst go on from the state of the best, with values that differ a bit.

    Each member of each generation is a trial of its own. It continues the path of a trial of the generation before:
    its own, or that of a better one (exploit). What it changes (explore) becomes a sequence in its values, such as
    ``learning_rate = "0.1@0|0.08@5"``, so that the part before the change is shared and not trained again. All members
    of a generation are compared by their last epochs when all have ended; who continues whom, and with what, depends
    on the seed and on these scores alone.

    Args:
        objective: As for `keras_tuner.Oracle`.
        population: How many members a generation has; at least 2.
        interval: How many epochs a generation trains.
        max_epochs: How many epochs the last generation ends at. May be raised when a search is continued.
        quantile: Which part of the population is replaced by members of the best part of the same size.
        perturbation_factors: One of these multiplies a number; an ordered choice moves to a neighbour, others are drawn.
        resample_probability: How likely a value is drawn afresh instead.
        perturb: Names of the hyper-parameters that may change while a trial is trained. None: all. Name them if the space
            has some that shape the model, such as a number of units: those cannot change once weights are there.
        seed: What the values depend on.
        hyperparameters: The search space, or part of it.
        allow_new_entries: Whether a model may ask for hyper-parameters that are not in `hyperparameters`.
        tune_new_entries: Whether those are searched, too.
        max_retries_per_trial: How often a trial that failed is tried again.
        max_consecutive_failed_trials: After how many failures in a row the search is given up.

    Raises:
        ValueError: An argument is out of its range.

    Example:
        oracle = PopulationBasedTrainingOracle("val_loss", population=8, interval=2, max_epochs=20, perturb=["learning_rate"])

    Source: Jaderberg et al., "Population Based Training of Neural Networks", arXiv:1711.09846, 2017.
    """

    _fixed = ("population", "interval", "quantile", "perturbation_factors", "resample_probability", "perturb")

    def __init__(
        self,
        objective: Any = None,
        population: int = 8,
        interval: int = 1,
        max_epochs: int = 10,
        quantile: float = 0.25,
        perturbation_factors: Iterable[float] = (0.8, 1.2),
        resample_probability: float = 0.25,
        perturb: Iterable[str] | None = None,
        seed: int | None = None,
        hyperparameters: keras_tuner.HyperParameters | None = None,
        allow_new_entries: bool = True,
        tune_new_entries: bool = True,
        max_retries_per_trial: int = 0,
        max_consecutive_failed_trials: int = 3,
    ) -> None:
        self.perturbation_factors = tuple(perturbation_factors)
        _check(population, interval, max_epochs, quantile, self.perturbation_factors, resample_probability, perturb)
        super().__init__(
            objective=objective,
            seed=seed,
            hyperparameters=hyperparameters,
            allow_new_entries=allow_new_entries,
            tune_new_entries=tune_new_entries,
            max_retries_per_trial=max_retries_per_trial,
            max_consecutive_failed_trials=max_consecutive_failed_trials,
        )
        self.population, self.interval, self.max_epochs = population, interval, max_epochs
        self.quantile, self.resample_probability = quantile, resample_probability
        self.perturb = None if perturb is None else frozenset(perturb)
        self._generations: list[list[str]] = []
        self._parents: dict[str, str] = {}
        self._scores: dict[str, float | None] = {}
        self._last: dict[str, float | None] = {}  # the objective at the last epoch
        self._plans: dict[int, list[tuple[str, bool]]] = {}
        self._exhausted = False

    def cut_epochs(self) -> set[int]:
        """The epochs at which generations end."""
        return {*range(self.interval, self.max_epochs, self.interval), self.max_epochs}

    def advance(self, trial_id: str, history: History) -> int | None:
        """Notes the objective at the last epoch, by which members are compared. A member never goes on by itself."""

        def note() -> None:
            if history and self.objective.has_value(history[-1]):
                value = float(self.objective.get_value(history[-1]))
                self._last[trial_id] = None if value != value else value
                self._log({"op": "last", "id": trial_id, "value": self._last[trial_id]})

        self._exclusively(note)
        return None

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """Draws the first generation at random; makes each later one from the one before when all of that have ended."""
        number = len(self._generations) - 1
        if number <= 0 and not self._exhausted and len(self._generations[0] if number == 0 else ()) < self.population:
            values = self._random_values()
            if values is not None:
                return {"status": "RUNNING", "values": values | self._place(0, len((self._generations or [[]])[0]), 0)}
            self._exhausted = True
        if number >= 0:
            suggestion = self._successor(number, trial_id)
            if suggestion is not None:
                return suggestion
        return {"status": "IDLE" if self.ongoing_trials else "STOPPED"}

    def can_resume(self, trial_id: str) -> bool:
        """Whether a member of the next generation may still continue the trial."""
        trial = self.trials.get(trial_id)
        if trial is None or trial.status == "FAILED":
            return False
        number = trial.hyperparameters.values["tuner/round"]
        begun = self._generations[number + 1] if number + 1 < len(self._generations) else []
        plan = self._plan(number)
        if trial.hyperparameters.values["tuner/epochs"] >= self.max_epochs or number + 1 < len(self._generations) - 1:
            return False
        return plan is None or any(parent == trial_id for parent, _ in plan[len(begun) :])

    def _successor(self, number: int, trial_id: str) -> dict[str, Any] | None:
        """The next member of the generation that is being made, or the first of the one after it."""
        last = self._generations[number]
        if number > 0 and len(last) < len(self._plan(number - 1) or ()):
            number, last = number - 1, self._generations[number - 1]
            member = len(self._generations[number + 1])
        else:
            member = 0
        plan = self._plan(number)
        if not plan or self.trials[last[0]].hyperparameters.values["tuner/epochs"] >= self.max_epochs:
            return None
        parent, exploits = plan[member]
        values = dict(self.trials[parent].hyperparameters.values)
        epoch = values["tuner/epochs"]
        if exploits:
            self._explore(values, number + 1, member, epoch)
            replaced = last[member]
            told = {"member": member, "generation": number + 1, "epoch": epoch}
            self._decide("exploit", trial_id=trial_id, parent=parent, replaces=replaced, **told)
        return {
            "status": "RUNNING",
            "values": values | self._place(number + 1, member, epoch) | {"tuner/trial_id": parent},
        }

    def _plan(self, number: int) -> list[tuple[str, bool]] | None:
        """For each member of generation `number` + 1: whom it continues, and whether it explores. None: not yet known."""
        if number not in self._plans:
            members = self._generations[number]
            is_full = len(members) == self.population or (number == 0 and self._exhausted)
            if number > 0:
                is_full = len(members) == len(self._plan(number - 1) or ())
            if not is_full or any(trial_id not in self._scores for trial_id in members):
                return None
            self._plans[number] = self._exploited(number, members)
        return self._plans[number]

    def _exploited(self, number: int, members: list[str]) -> list[tuple[str, bool]]:
        ranked = best(members, self._scores, len(members), self.objective.direction)
        if not ranked:
            return []  # all failed
        size = max(1, int(len(members) * self.quantile))
        failed = [trial_id for trial_id in members if trial_id not in ranked]
        top = ranked[:size]
        # Those that failed are the worst; they are replaced even where there are more of them than the quantile has.
        bottom = {*failed, *(set([*ranked, *failed][-size:]) - set(top))}
        plan = []
        for member, trial_id in enumerate(members):
            chance = random.Random(f"{self.seed} exploit {number} {member}")
            plan.append((chance.choice(top), True) if trial_id in bottom else (trial_id, False))
        return plan

    def _explore(self, values: dict[str, Any], number: int, member: int, epoch: int) -> None:
        for hp in changeable(self.hyperparameters.space, self.perturb):
            if hp.name in values and all(condition.is_active(values) for condition in hp.conditions):
                chance = random.Random(f"{self.seed} explore {number} {member} {hp.name}")
                factors, resample = self.perturbation_factors, self.resample_probability
                values[hp.name] = changed(hp, values[hp.name], epoch, chance, factors, resample)

    def _place(self, number: int, member: int, epoch: int) -> dict[str, Any]:
        return {
            "tuner/epochs": min(epoch + self.interval, self.max_epochs),
            "tuner/initial_epoch": epoch,
            "tuner/bracket": 0,
            "tuner/round": number,
            "tuner/member": member,
        }

    def _compute_values_hash(self, values: dict[str, Any]) -> str:
        return super()._compute_values_hash({k: v for k, v in values.items() if not k.startswith("tuner/")})

    def _opened(self, trial: Trial, note: Any) -> None:
        del note
        number = trial.hyperparameters.values["tuner/round"]
        if number == len(self._generations):
            self._generations.append([])
        self._exhausted |= number > 0
        self._generations[number].append(trial.trial_id)

    def _closed(self, trial: Trial) -> None:
        score = self._last.get(trial.trial_id, trial.score) if trial.status == "COMPLETED" else None
        self._scores[trial.trial_id] = score
        self._decide("report", trial_id=trial.trial_id, score=score)

    def _event(self, event: Event) -> None:
        self._last[event["id"]] = event["value"]

    def _settings(self) -> Event:
        named = {name: getattr(self, name) for name in self._fixed}
        named["perturbation_factors"] = list(self.perturbation_factors)
        named["perturb"] = None if self.perturb is None else sorted(self.perturb)
        return super()._settings() | named


def _check(
    population: Any, interval: Any, max_epochs: Any, quantile: Any, factors: Any, resample: Any, perturb: Any
) -> None:
    check_whole("population", population, 2)
    check_whole("interval", interval, 1)
    check_whole("max_epochs", max_epochs, 1)
    check_fraction("quantile", quantile, 0.0, 0.5)
    check_fraction("resample_probability", resample, 0.0, 1.0)
    if not factors or not all(isinstance(each, int | float) and each > 0 for each in factors):
        raise ValueError(f"expected `perturbation_factors` to be positive numbers such as (0.8, 1.2), got {factors!r}.")
    if isinstance(perturb, str):
        raise ValueError(f"expected `perturb` to be a list of names, got the text {perturb!r}. Write [{perturb!r}].")
