"""Shows on a terminal how far a loop has come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tf_ext.lite._builder import Track


def hidden(items: Iterable[Any], what: str) -> Iterable[Any]:
    """Shows nothing."""
    del what
    return items


def shown(items: Iterable[Any], what: str) -> Iterable[Any]:
    """Shows a bar while items are taken; it is removed at the end."""
    import rich.console
    import rich.progress

    console = rich.console.Console(stderr=True)
    listed: Sequence[Any] = list(items)
    return rich.progress.track(listed, what, console=console, transient=True, disable=not console.is_terminal)


def tracker(progress: bool) -> Track:
    """Returns `shown` or `hidden`."""
    return shown if progress else hidden
