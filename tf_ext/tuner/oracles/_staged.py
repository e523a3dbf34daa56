"""What the engine of the tuner asks of an oracle beyond what Keras Tuner's oracles answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras_tuner
from keras_tuner.engine.trial import Trial

__all__ = ["History", "StagedOracle"]

# The metrics of each epoch of a trial so far, from epoch 0 on.
History = list[dict[str, float]]


class StagedOracle(keras_tuner.Oracle):
    """An oracle many of whose trials may be open at once, so that their common prefixes can be merged and trained once.

    The engine calls `create_trial` with a new tuner id for each trial that it opens, up to `lookahead` of them or until
    the oracle is idle; trains; calls `advance` when a trial has reached its target; and at last `update_trial` and
    `end_trial`. Values that begin with ``tuner/`` follow Keras Tuner's convention: ``tuner/epochs`` is the epoch at
    which a trial ends, ``tuner/initial_epoch`` that at which it leaves the trial ``tuner/trial_id``, whose path it
    continues; ``tuner/bracket`` and ``tuner/round`` say where it stands in a search by halving.

    Attributes:
        lookahead: How many trials may be open at once without changing what is suggested. None: any number. 1: each
            suggestion depends on all results so far.
        parallelism: How many trials are trained at once; the engine sets it. It matters to asynchronous oracles alone.
        on_decision: Called with a dict of JSON values for each report and each decision that rests on reports
            (promotion, stop, exploit), in order; what it was given can be checked with `replay`.

    Source: Misra et al., "Hippo: Sharing Computations in Hyper-Parameter Optimization", PVLDB 15(5), 2022, section 3.
    """

    lookahead: int | None = None
    parallelism: int = 1
    on_decision: Callable[[dict[str, Any]], None] | None = None

    def cut_epochs(self) -> set[int]:
        """The epochs at which trials may end or branch besides those at which their own sequences change.

        Returns:
            Numbers of epochs done, such as the rungs of a search by halving.
        """
        return set()

    def first_target(self, trial: Trial, epochs: int) -> int:
        """How far to train a trial at first.

        Args:
            trial: A trial that `create_trial` returned.
            epochs: How many epochs the search was told to train.

        Returns:
            The number of epochs, counted from the beginning of the trial's path.
        """
        return int(trial.hyperparameters.values.get("tuner/epochs", epochs))

    def goes_on(self) -> bool:
        """Whether any trial may be trained on after its target: only then is the state at its end worth keeping."""
        kind = type(self)
        return kind.advance is not StagedOracle.advance or kind.can_resume is not StagedOracle.can_resume

    def advance(self, trial_id: str, history: History) -> int | None:
        """Decides whether an open trial that has reached its target goes on.

        Args:
            trial_id: The trial.
            history: The metrics of each of its epochs so far, those of the path that it continues included.

        Returns:
            A number of epochs greater than `len(history)` to train on to, or None if the trial is done. The same
            question gets the same answer, after a restart, too.
        """
        del trial_id, history
        return None

    def can_resume(self, trial_id: str) -> bool:
        """Whether a trial that ended may still be continued by another, so that its last checkpoint must be kept."""
        del trial_id
        return False
