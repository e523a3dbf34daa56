"""Policies that are Python functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tf_ext.lite import _library

Policy = Callable[[_library.Snapshot], Sequence[tuple[int, int, int]]]


def callback(policy: Policy, raised: list[BaseException]) -> Any:
    """Returns the C face of a policy.

    Args:
        policy: see `tf_ext.lite.simulator.Policy`.
        raised: takes what it raises, which must not cross the C code; it is not asked again while something is there.
    """

    def call(_: Any, snapshot: Any, decisions: Any) -> int:
        if raised:
            return 0
        try:
            answers = list(policy(snapshot.contents))[: snapshot.contents.num_jobs]
            for index, (job, worker, piece) in enumerate(answers):
                decisions[index] = _library.Decision(job, worker, piece)
        except BaseException as error:
            raised.append(error)
            return 0
        return len(answers)

    return _library.PolicyCallback(call)
