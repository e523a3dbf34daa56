"""The tuner: `keras_tuner.Tuner` with stages that trials share."""

from __future__ import annotations

import os
import pathlib
import random
from typing import Any

import keras
import keras_tuner
import numpy as np
from absl import logging
from keras_tuner.engine.trial import Trial

from tf_ext.checkpoint.keras import capture, unknown_callbacks
from tf_ext.tuner import _best, _preparing
from tf_ext.tuner._discovery import Discovery
from tf_ext.tuner._display import Display
from tf_ext.tuner._engine import Engine
from tf_ext.tuner._fit_data import FitData, require_exact, source_of
from tf_ext.tuner._job import Job, Prepared
from tf_ext.tuner._reruns import keep_job
from tf_ext.tuner._schema import FILE
from tf_ext.tuner._search import Search
from tf_ext.tuner._sources import NoData, OnceOnly
from tf_ext.tuner._tensorboard_logs import TensorBoardLogs
from tf_ext.tuner.errors import PlanMismatchError, SharingError
from tf_ext.tuner.executors import Executor, InProcessExecutor, LocalExecutor
from tf_ext.tuner.oracles import StagedOracle, StageOracle
from tf_ext.tuner.plan import Plan
from tf_ext.tuner.segments import Config, Path, Sequence

__all__ = ["Tuner"]

# What a subclass may override to train in its own way; then trials are trained one by one, from beginning to end.
_OWN_TRAINING = ("run_trial", "_build_and_fit_model", "_build_hypermodel", "_try_build")
_OWN_HOOKS = ("on_epoch_begin", "on_epoch_end", "on_batch_begin", "on_batch_end")


class Tuner(keras_tuner.Tuner):
    """`keras_tuner.Tuner` that trains every prefix once that several trials have in common.

    Takes what `keras_tuner.Tuner` takes, and gives the scores of trials that are trained separately with the same seed.

    Args:
        oracle: One of `tf_ext.tuner.oracles`, or any of `keras_tuner`.
        hypermodel: As for `keras_tuner.Tuner`, as are the following up to `executions_per_trial`.
        max_model_size: See there.
        optimizer: See there.
        loss: See there.
        metrics: See there.
        distribution_strategy: See there.
        directory: See there.
        project_name: See there.
        logger: See there.
        tuner_id: See there.
        overwrite: See there.
        executions_per_trial: See there. The n-th execution has the seed `seed` + n.
        seed: Of weights, masks and the order of the data, the same for all trials. That of the oracle if left out.
        workers: Processes on this machine that train at a time; None for this process.
        executor: Where else to train; in the place of `workers`.
        plan: Directory of a search plan that several studies share. That of the project if left out.
        exact: Refuse what keeps scores from being exactly those of separate trials, instead of warning.
        memory: Bytes of states that each worker may keep in memory; all are on disk in any case.
        keep_best_models: Of how many trials the weights of the best epoch are kept. `get_best_models` trains those of
            others again.
        keep_checkpoints: Bytes of states that stay on disk though no trial needs them, from which later studies go on; the
            oldest go first. None: 1 GiB where `plan` is given, nothing otherwise.

    Example:
        search = tuner.Tuner(tuner.oracles.GridSearchOracle("val_accuracy"), build, directory="studies")
        search.search(x, y, validation_split=0.2, epochs=20)

    Source: Hippo, PVLDB 15(5), 2022.
    """

    def __init__(
        self,
        oracle: keras_tuner.Oracle,
        hypermodel: Any = None,
        max_model_size: int | None = None,
        optimizer: Any = None,
        loss: Any = None,
        metrics: Any = None,
        distribution_strategy: Any = None,
        directory: str | os.PathLike[str] | None = None,
        project_name: str | None = None,
        logger: Any = None,
        tuner_id: str | None = None,
        overwrite: bool = False,
        executions_per_trial: int = 1,
        *,
        seed: int | None = None,
        workers: int | None = None,
        executor: Executor | None = None,
        plan: str | os.PathLike[str] | None = None,
        exact: bool = False,
        memory: int = 256 << 20,
        keep_best_models: int = 10,
        keep_checkpoints: int | None = None,
        **kwargs: Any,
    ) -> None:
        if keras.backend.backend() != "tensorflow":
            raise ValueError(
                f"expected Keras to run on TensorFlow, got the back end {keras.backend.backend()!r}. Set the environment "
                "variable KERAS_BACKEND=tensorflow before Keras is imported."
            )
        if workers is not None and executor is not None:
            raise ValueError("expected `workers` or `executor`, got both. Give the number to the executor.")
        if executions_per_trial < 1 or keep_best_models < 1:
            raise ValueError(
                "expected executions_per_trial and keep_best_models from 1 on, got "
                f"{executions_per_trial} and {keep_best_models}."
            )
        if isinstance(oracle, keras_tuner.Oracle) and not isinstance(oracle, StagedOracle):
            oracle = StageOracle(oracle)
        self._executor = executor if executor is not None else None if workers is None else LocalExecutor(workers)
        self._plan_directory = None if plan is None else pathlib.Path(plan)
        self._exact, self._memory = exact, memory
        self._budget = keep_checkpoints if keep_checkpoints is not None else (1 << 30 if plan is not None else 0)
        self._keep_best_models = keep_best_models
        self._staged = oracle  # `self.oracle` asks for it over the network where it is in another process
        self._seed = seed
        self._engine: Engine | None = None
        self._last_job: Job | None = None
        self._separate = False
        self._boards: TensorBoardLogs | None = None
        _tell_of_journal(directory, project_name, overwrite)
        super().__init__(
            oracle,
            hypermodel,
            max_model_size,
            optimizer,
            loss,
            metrics,
            distribution_strategy,
            os.fspath(directory) if directory is not None else None,
            project_name,
            logger,
            tuner_id,
            overwrite,
            executions_per_trial,
            **kwargs,
        )

    # --- the search --------------------------------------------------------------------------------------------------

    def search(self, *fit_args: Any, **fit_kwargs: Any) -> None:
        """Searches, as `keras_tuner.Tuner.search` does, which takes what `keras.Model.fit` takes.

        Raises:
            SharingError: With `exact`, where something keeps trials from sharing.
            InexactDataError: With `exact`, where the order of the data cannot be reproduced.
            keras_tuner.errors.FatalError: The study cannot work: the objective is not among the metrics, the build
                function returns no model, and the like.
        """
        if "KERASTUNER_ORACLE_IP" in os.environ:
            super().search(*fit_args, **fit_kwargs)  # this process is the chief, or asks it for one trial at a time
            return
        arguments = _preparing.bind_fit(fit_args, fit_kwargs)
        self._separate = False
        reasons = self._reasons(arguments)
        if reasons:
            self._tell_why_not(reasons)
            super().search(*fit_args, **fit_kwargs)
            return
        verbose = fit_kwargs.get("verbose", self.oracle.verbose)
        verbose = 1 if verbose == "auto" else verbose
        own, self.oracle.verbose = self.oracle.verbose, 0  # what keras_tuner prints is no news when all begin at once
        with Display(self.oracle, verbose) as display:
            begun = self._begin_search(arguments, display)
            if begun is None:
                self.oracle.verbose = own
                super().search(*fit_args, **fit_kwargs)
                return
            search, plan = begun
            try:
                self.on_search_begin()
                search.run()
                if self._engine is not None:
                    _best.sweep(plan, self._engine.keeper, self._keep_best_models)
            finally:
                self._end_search(plan)
            self.on_search_end()

    def run_trial(self, trial: Trial, *args: Any, **kwargs: Any) -> Any:
        """Trains one trial; for subclasses, and where the oracle is in another process."""
        if "tuner/epochs" in trial.hyperparameters.values:
            kwargs["epochs"] = trial.hyperparameters.values["tuner/epochs"]
        arguments = _preparing.bind_fit(args, kwargs)
        if self._separate or self._reasons(arguments):
            return super().run_trial(trial, *args, **kwargs)
        with Display(self._staged, 0) as display:
            begun = self._begin_search(arguments, display)
            if begun is None:
                return super().run_trial(trial, *args, **kwargs)
            search, plan = begun
            try:
                return search.run_one(trial)
            finally:
                self._end_search(plan)

    def _reasons(self, arguments: dict[str, Any]) -> list[str]:
        """What keeps trials from sharing stages."""
        reasons = [
            f"{type(self).__name__}.{name} is overridden"
            for name in (*_OWN_TRAINING, *_OWN_HOOKS)
            if getattr(type(self), name) is not _stock(name)
        ]
        if self.hypermodel is not None and type(self.hypermodel).fit is not keras_tuner.HyperModel.fit:
            reasons.append(f"{type(self.hypermodel).__name__}.fit is overridden")
        if self._staged.objective is None or type(self._staged.objective).__name__ == "DefaultObjective":
            reasons.append("no objective is named")
        if arguments.get("initial_epoch"):
            reasons.append("`initial_epoch` is given")
        x = arguments.get("x")
        if x is not None or not reasons:  # a training of one's own may do without
            _require_data(x)
            data = source_of({name: value for name, value in arguments.items() if name not in ("epochs", "callbacks")})
            if isinstance(data.source, OnceOnly):
                reasons.append(str(data.source.inexact))
            if data.reads_once:
                reasons.append(f"validation data of type {data.reads_once} go on where the last validation ended")
        callbacks = TensorBoardLogs.others(arguments.get("callbacks") or [])
        reasons += [
            f"it is not known what the callback {name} learns (give it get_state() and set_state(state))"
            for name in unknown_callbacks(callbacks)
        ]
        return reasons

    def _tell_why_not(self, reasons: list[str]) -> None:
        """Says, or refuses, that trials are trained separately, where nothing changes a sequence during the training."""
        why = "; ".join(reasons)
        if self._exact:
            raise SharingError(f"expected trials that can share stages, since exact=True; but {why}.")
        changing = sorted(name for name, values in self._starting_points()[1].items() if any(map(_changes, values)))
        if changing and not any(reason.endswith("is overridden") for reason in reasons):
            raise SharingError(
                f"expected a search in which the sequences {', '.join(changing)} can change during the training, which only "
                f"stages do; but {why}. Mend that, or let the values be constant."
            )
        if changing:
            why += f"; what changes {', '.join(changing)} is your code"
        logging.warning("Trials are trained separately, from beginning to end: %s.", why)
        self._separate = True

    def _begin_search(self, arguments: dict[str, Any], display: Display) -> tuple[Search, Plan] | None:
        """What trains; None where the model turns out to be one whose state cannot be shared."""
        epochs = _whole_epochs(arguments.pop("epochs", 1))
        given = list(arguments.pop("callbacks", None) or [])
        self._boards = TensorBoardLogs(self, given)
        job = self._job(source_of(arguments), TensorBoardLogs.others(given))
        require_exact(job.data, self._exact, logging.warning)
        self._require_one_replica()
        configs, candidates = self._starting_points()
        config = configs[0]
        job.roles, model = _preparing.find_roles(job, configs, candidates)
        if more := _preparing.more_optimizers(model):
            self._tell_why_not([f"the state of the model's {' and '.join(more)} is not that of its one optimizer"])
            return None
        job.prepared = Prepared(config, model, capture(model))
        _preparing.check_objective(job, model, config)
        self._last_job = job
        job.build_config = job.how_it_is_built(model)
        plan = Plan(self._plan_directory or self.project_dir)
        try:
            key, description = _preparing.context_of(job, self.project_dir)
            context = plan.context(key, {**description, "build_config": job.build_config})
            keep_job(plan, context, job)
            objective = self._staged.objective
            settings = {"executions": self._executions, "epochs": epochs, "oracle": type(self._staged).__name__}
            _refuse_other_budget(plan, self._study_name(), settings)
            study = plan.study(self._study_name(), objective.name, objective.direction, settings)
            self._staged.on_decision = lambda event: plan.log("decision", event, study)
            executor = self._executor or InProcessExecutor()
            cuts = self._staged.cut_epochs() | _boundaries(candidates) | {epochs}
            self._staged.parallelism = executor.workers
            engine = Engine(
                plan,
                context,
                job,
                executor,
                cuts=cuts,
                memory=self._memory,
                budget=self._budget,
                on_change=display.refresh,
            )
        except BaseException:
            plan.close()
            raise
        self._engine = engine
        display.watch(engine)
        search = Search(
            self._staged,
            engine,
            plan,
            study,
            context,
            epochs=epochs,
            executions=self._executions,
            tuner=self,
            display=display,
            discovery=Discovery(job, config),
        )
        return search, plan

    def _end_search(self, plan: Plan) -> None:
        if self._engine is not None:
            self._engine.close()
        self._engine = None
        plan.close()

    def _trial_ended(self, trial: Trial, paths: dict[int, Path]) -> None:
        """Called by the search before `on_trial_end`."""
        assert self._engine is not None
        if self._boards is not None:
            self._boards.write(trial, {e: self._engine.history(path) for e, path in paths.items()})

    def _require_one_replica(self) -> None:
        """Says, or refuses, that a state is that of the first replica: seeds of the others begin anew with each stage."""
        if getattr(self.distribution_strategy, "num_replicas_in_sync", 1) == 1:
            return
        what = "the masks of replicas other than the first depend on where a training was cut"
        if self._exact:
            raise SharingError(f"expected one replica, since exact=True; with several, {what}.")
        logging.warning("Scores may differ from those of separate trials: %s.", what)

    @property
    def _executions(self) -> int:
        return int(self.executions_per_trial)

    def _study_name(self) -> str:
        return f"{self.project_name}" if self._plan_directory is None else os.path.abspath(self.project_dir)

    def _job(self, data: FitData, callbacks: list[keras.callbacks.Callback]) -> Job:
        seed = self._seed if self._seed is not None else self._staged.seed
        return Job(
            hypermodel=self.hypermodel,
            space=self.oracle.get_space(),
            data=data,
            callbacks=callbacks,
            objective=self._staged.objective,
            seed=int(seed if seed is not None else random.randint(1, 10_000)),
            compile_arguments={"optimizer": self.optimizer, "loss": self.loss, "metrics": self.metrics},
            max_model_size=self.max_model_size,
            strategy=self.distribution_strategy,
        )

    def _starting_points(self) -> tuple[list[Config], dict[str, list[Any]]]:
        """First configurations of trials, and the values that each hyper-parameter may have.

        The default trial is the first; others follow, so that each hyper-parameter is active in one.
        """
        hp = self.oracle.get_space()
        given, seen, configs = dict(hp.values), set[str](), []
        for entry in [None, *hp.space]:
            if entry is not None and entry.name in seen:
                continue
            wanted = {c.name: c.values[0] for c in (entry.conditions if entry is not None else [])}
            hp.values = {}
            for each in hp.space:
                if hp.is_active(each):
                    hp.values.setdefault(each.name, wanted.get(each.name, each.default))
            hp.values = {**hp.values, **({} if entry is not None else given)}
            seen |= set(hp.values)
            configs.append(_preparing.path_for(hp, 1)[0].config)
        candidates: dict[str, list[Any]] = {}
        for entry in hp.space:
            for value in getattr(entry, "values", [entry.default]):
                is_text = Sequence.is_text(value)
                candidates.setdefault(entry.name, []).extend([Sequence.parse(value)] if is_text else [value])
        return configs, candidates

    # --- what was found ----------------------------------------------------------------------------------------------

    def load_model(self, trial: Trial) -> keras.Model:
        """The model of a trial with the weights of its best epoch, of the best of its executions.

        Weights that were not kept are trained again, to the same bits.
        """
        directory = self._plan_directory or pathlib.Path(self.project_dir)
        if not (directory / FILE).exists():
            return super().load_model(trial)
        with Plan(directory, create=False) as plan:
            studies = [study["id"] for study in plan.studies() if study["name"] == self._study_name()]
            records = [r for study in studies for r in plan.trials(study) if r.trial == trial.trial_id]
            if not records:
                return super().load_model(trial)  # it was trained by itself, as by keras_tuner
            job = self._last_job or self._job(FitData(NoData(), None, {}), [])
            job.build_config = plan.description(records[0].context).get("build_config")
            return _best.load(job, plan, trial, records)


def _require_data(x: Any) -> None:
    if x is None or (isinstance(x, list | tuple) and all(isinstance(v, bool | int | float | list) for v in x)):
        raise ValueError(
            "expected training data: arrays, a tf.data.Dataset, a PyDataset, a generator or what tuner.data makes, got "
            f"{'none' if x is None else f'a {type(x).__name__} of numbers; make an array of it with numpy.asarray'}."
        )


def _whole_epochs(epochs: Any) -> int:
    if not isinstance(epochs, int | float | np.number) or int(epochs) != epochs or epochs < 1:
        raise ValueError(f"expected `epochs` to be a whole number from 1 on, got {epochs!r}.")
    return int(epochs)


def _tell_of_journal(directory: Any, project_name: str | None, overwrite: bool) -> None:
    """Makes `keras_tuner` reload a project whose tuner was killed before it had written its own file."""
    project = pathlib.Path(directory or ".") / (project_name or "untitled_project")
    own = project / f"{os.environ.get('KERASTUNER_TUNER_ID', 'tuner0')}.json"
    if (
        not overwrite
        and any((project / name).exists() for name in ("oracle.jsonl", "oracle.json"))
        and not own.exists()
    ):
        own.write_text("{}")


def _refuse_other_budget(plan: Plan, name: str, settings: dict[str, Any]) -> None:
    """Trials that ended are not trained on, so that another number of epochs would count for some of them only."""
    for study in plan.studies():
        if study["name"] != name or not plan.trials(study["id"]):
            continue
        for what in ("epochs", "executions"):
            was, now = study["settings"].get(what, settings[what]), settings[what]
            if was != now:
                raise PlanMismatchError(
                    f"expected {what}={was}, with which the trials of this project were trained, got {now}. Give the project "
                    "another `project_name` (with the same `plan=`, it goes on from what is trained), or `overwrite=True`."
                )


def _changes(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value.values) > 1


def _stock(name: str) -> Any:
    return getattr(Tuner, name) if name == "run_trial" else getattr(keras_tuner.Tuner, name)


def _boundaries(candidates: dict[str, list[Any]]) -> set[int]:
    found = {start for values in candidates.values() for v in values if isinstance(v, Sequence) for start in v.starts}
    return found - {0}
