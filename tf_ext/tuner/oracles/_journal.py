"""An append-only file of JSON lines: what an oracle did, in order.

Keras Tuner writes all that it knows at every suggestion. A line for each event costs the same for the first trial and for
the ten thousandth. A process that dies while it writes leaves a last line without an end; it is dropped.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterable
from typing import IO, Any

from tf_ext.tuner.errors import CorruptedPlanError
from tf_ext.tuner.oracles._files import replace_text, sync_directory

__all__ = ["Event", "Journal"]

Event = dict[str, Any]


class Journal:
    """The events of one oracle in one file. Nothing is opened or made before the first append.

    Args:
        path: The file.

    Example:
        journal = Journal(pathlib.Path("/data/search/oracle.jsonl"))
        journal.start([{"op": "begin"}])
        journal.append({"op": "create", "id": "0"})
        journal.sync()
        assert journal.read() == [{"op": "begin"}, {"op": "create", "id": "0"}]
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._file: IO[str] | None = None
        self._unsynced = False

    def read(self) -> list[Event]:
        """The events so far; none if there is no file. A torn last line is left out.

        Raises:
            CorruptedPlanError: A line before the last cannot be read.
        """
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        events = []
        for number, line in enumerate(lines, 1):
            try:
                event = json.loads(line)
                if not isinstance(event, dict):
                    raise ValueError("not an object")
            except ValueError:
                if number < len(lines) - 1:
                    raise CorruptedPlanError(
                        f"expected an event in line {number} of {self.path}, got {line[:60]!r}. Keep what is before it: "
                        f"head -n {number - 1} {self.path} > {self.path}.good && mv {self.path}.good {self.path}; "
                        "the oracle suggests the later trials again."
                    ) from None
                continue  # the last line: torn, or empty after the last newline
            if number == len(lines):
                continue  # whole, but its newline never came; whoever wrote it never heard that it was written
            events.append(event)
        return events

    def start(self, events: Iterable[Event]) -> None:
        """Begins the file anew with these events, in one step."""
        self.close()
        replace_text(self.path, "".join(_line(event) for event in events), durable=True)
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 - closed by `close`

    @property
    def is_open(self) -> bool:
        """Whether `start` was called, so that events can be appended."""
        return self._file is not None

    def append(self, event: Event) -> None:
        """Adds an event. A kill of this process cannot undo it any more; a power failure can, until `sync`."""
        if self._file is None:
            raise RuntimeError(f"expected a journal that was started, got {self.path}, which was not. Call `start`.")
        self._file.write(_line(event))
        self._file.flush()
        self._unsynced = True

    def sync(self) -> None:
        """Makes all events durable."""
        if self._file is not None and self._unsynced:
            os.fsync(self._file.fileno())
            self._unsynced = False

    def close(self) -> None:
        """Closes the file; `start` opens it again."""
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None
            sync_directory(self.path.parent)


def _line(event: Event) -> str:
    return json.dumps(event, separators=(",", ":"), default=_plain) + "\n"


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays
        return value.tolist()
    raise TypeError(f"expected what JSON can hold, got {value!r} of {type(value).__name__}.")
