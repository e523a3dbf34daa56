"""Which stages of a huge plan are drawn."""

from __future__ import annotations

import heapq

from tf_ext.tuner.views.model import View
from tf_ext.tuner.views.stages import Stage

__all__ = ["Choice", "most_shared"]


class Choice:
    """The stages that are drawn.

    Attributes:
        stages: In the order of `View.stages`; with a stage, the one before it is always there.
        left_out: How many are not drawn.
        hidden: By stage, how many behind it are not drawn, itself aside; only where there are some.
    """

    def __init__(self, view: View, chosen: list[Stage]) -> None:
        self.stages = sorted(chosen, key=lambda stage: stage.index)
        self.left_out = len(view.stages) - len(chosen)
        self.hidden: dict[int, int] = {}
        if self.left_out:
            self.hidden = self._count(view)

    def _count(self, view: View) -> dict[int, int]:
        drawn = {stage.index for stage in self.stages}
        hidden: dict[int, int] = {}
        for stage in view.stages:
            parent = stage.parent
            # Whole branches are left out, so that the first stage of one tells of all behind it.
            if stage.index not in drawn and parent is not None and parent in drawn:
                hidden[parent] = hidden.get(parent, 0) + stage.last - stage.index
        return hidden


def most_shared(view: View, limit: int | None) -> Choice:
    """Chooses the stages that most trials go through, and that are at work; none without the one before it.

    Args:
        view: The plan.
        limit: How many; None for all.

    Returns:
        The stages, and what is left out.
    """
    if limit is None or len(view.stages) <= limit:
        return Choice(view, list(view.stages))
    children: dict[int | None, list[Stage]] = {}
    for stage in view.stages:
        children.setdefault(stage.parent, []).append(stage)

    def key(stage: Stage) -> tuple[bool, int, int]:
        return stage.state != "running", stage.trials[0] - stage.trials[1], stage.index

    queue = [key(stage) for stage in children.get(None, [])]
    heapq.heapify(queue)
    chosen: list[Stage] = []
    while queue and len(chosen) < limit:
        stage = view.stages[heapq.heappop(queue)[-1]]
        chosen.append(stage)
        for child in children.get(stage.index, []):
            heapq.heappush(queue, key(child))
    return Choice(view, chosen)
