"""Adds up pytest's closing lines in a log, and prints the totals in one line."""

import pathlib
import re
import sys

_CLOSING = re.compile(r"^=* ?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s")
_KINDS = {"passed": "passed", "failed": "failed", "error": "failed", "errors": "failed", "skipped": "skipped"}

totals = {"passed": 0, "failed": 0, "skipped": 0}
for line in pathlib.Path(sys.argv[1]).read_text(errors="replace").splitlines():
    closing = _CLOSING.match(line)
    for number, kind in re.findall(r"(\d+) ([a-z]+)", closing.group(1)) if closing else ():
        if kind in _KINDS:
            totals[_KINDS[kind]] += int(number)
print(", ".join(f"{number} {kind}" for kind, number in totals.items()))
