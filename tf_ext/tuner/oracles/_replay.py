"""Checking a log of decisions: whether they follow from the reports before them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tf_ext.tuner.oracles._asynchronous import AsynchronousRungs
from tf_ext.tuner.oracles._curves import Curves

__all__ = ["replay"]


def replay(events: Iterable[Mapping[str, Any]]) -> list[str]:
    """Decides anew what ASHA and median stopping decided, from the reports alone, and compares.

    Args:
        events: What `on_decision` was given, in order, from the beginning of the search. Events of others are passed over.

    Returns:
        A sentence for each decision that does not follow from what was reported before it; none if all do.

    Example:
        log = []
        oracle.on_decision = log.append
        ...  # the search
        assert replay(log) == []
    """
    logs: dict[str, _AshaLog | _MedianLog] = {"ASHAOracle": _AshaLog(), "MedianStoppingOracle": _MedianLog()}
    differences: list[str] = []
    for number, event in enumerate(events):
        log = logs.get(event.get("oracle", ""))
        expected = log.check(event) if log is not None else None
        if expected is not None:
            differences.append(f"event {number}: expected {expected}, got {dict(event)!r}.")
    return differences


class _AshaLog:
    def __init__(self) -> None:
        self._rungs: AsynchronousRungs | None = None

    def check(self, event: Mapping[str, Any]) -> str | None:
        """Takes an event in; returns what was to be expected instead, if it does not follow."""
        if event["decision"] == "report":
            if self._rungs is None:
                return "a trial to begin before one is reported"
            self._rungs.report(event["trial_id"], event["rung"], event["score"])
            return None
        if self._rungs is None:
            self._rungs = AsynchronousRungs(event["rungs"], event["factor"], event["direction"])
        promotion = self._rungs.promotion()
        self._rungs.start(event["trial_id"], event["parent"], event["rung"])
        if promotion == (None if event["parent"] is None else (event["rung"], event["parent"])):
            return None
        return "a new trial" if promotion is None else f"trial {promotion[1]!r} to climb to rung {promotion[0]}"


class _MedianLog:
    def __init__(self) -> None:
        # The rule's numbers come with the decisions, which may begin after the first reports.
        self._curves = Curves(1, "min")
        self._maximizing = Curves(1, "max")

    def check(self, event: Mapping[str, Any]) -> str | None:
        """Takes an event in; returns what was to be expected instead, if it does not follow."""
        for curves in (self._curves, self._maximizing):
            if event["decision"] == "report":
                curves.report(event["trial_id"], event["start"], event["values"])
            elif event["decision"] == "complete":
                curves.complete(event["trial_id"])
        if event["decision"] not in ("stop", "continue"):
            return None
        curves = self._maximizing if event["direction"] == "max" else self._curves
        curves.min_trials = event["min_trials"]
        expected = "stop" if curves.should_stop(event["trial_id"], event["epoch"]) else "continue"
        return None if expected == event["decision"] else repr(expected)
