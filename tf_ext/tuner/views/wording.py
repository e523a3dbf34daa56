"""How numbers, configurations and changes read, the same in the terminal and in pictures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tf_ext.tuner.views.stages import Change, Stage

__all__ = ["bytes_of", "changes", "duration", "epochs", "message", "number", "settings", "what"]

_LONGEST = 60


def number(value: Any) -> str:
    """A number with four digits that count, a thing that is not there as a dash, all else as it is, but not too long."""
    if value is None:
        return "-"
    if isinstance(value, str) and len(value) > _LONGEST:
        return value[: _LONGEST - 1] + "…"  # a schedule with a value for each epoch
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    return f"{value:.4g}"


def settings(pairs: Iterable[tuple[str, Any]]) -> str:
    """``lr=0.1 units=8``."""
    return " ".join(f"{name}={number(value)}" for name, value in pairs)


def changes(pairs: Iterable[Change]) -> str:
    """``lr 0.1 → 0.01``."""
    return ", ".join(f"{name} {number(old)} → {number(new)}" for name, old, new in pairs)


def what(stage: Stage) -> str:
    """What a stage does: all settings of one that begins with a fresh model, else what changes."""
    if stage.parent is None:
        return settings(stage.config) or "no hyper-parameters"
    return changes(stage.changes) or "unchanged"


def epochs(stage: Stage) -> str:
    """The epochs that are done before and after."""
    return f"epochs {stage.start}–{stage.end}"  # noqa: RUF001


def duration(seconds: float) -> str:
    """``850 ms``, ``12.3 s``, ``4 min 10 s`` or ``3 h 5 min``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def message(text: str) -> str:
    """The last line of what went wrong: of a traceback, the error itself."""
    return text.strip().rpartition("\n")[2].strip()


def bytes_of(count: int) -> str:
    """``1.1 MB``."""
    size, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
