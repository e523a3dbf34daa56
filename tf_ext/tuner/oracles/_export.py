"""Copies of an oracle's state in Keras Tuner's own files, whole or absent."""

from __future__ import annotations

import datetime
import json
import pathlib
from typing import Any

from keras_tuner.engine.trial import Trial

from tf_ext.tuner.oracles._files import replace_text

__all__ = ["introduce", "write_oracle", "write_trial"]


def write_trial(oracle: Any, trial: Trial) -> None:
    """Writes `trial_<id>/trial.json`. The journal is what a restart reads, so that nothing here waits for the disk."""
    path = pathlib.Path(oracle._project_dir) / f"trial_{trial.trial_id}" / "trial.json"
    replace_text(path, json.dumps(trial.get_state()), durable=False)


def write_oracle(oracle: Any) -> None:
    """Writes `oracle.json`."""
    path = pathlib.Path(oracle._project_dir) / "oracle.json"
    replace_text(path, json.dumps(oracle.get_state()), durable=False)


def introduce(oracle: Any, trial: Trial) -> None:
    """Tells Keras Tuner's display of a trial whose beginning it has not seen, since it was silent or another process."""
    display, now = oracle._display, datetime.datetime.now()
    display.trial_start.setdefault(trial.trial_id, now)
    display.trial_number.setdefault(trial.trial_id, len(oracle.trials))
    display.search_start = display.search_start or now
