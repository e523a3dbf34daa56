"""A bundle in one file: magic, length of the plan, the plan, the pieces, each at a multiple of 64."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import struct
import tempfile
from collections.abc import Sequence
from typing import IO

from tf_ext.lite import errors
from tf_ext.lite.plan import Plan

MAGIC = b"TFXLITE1"
ALIGNMENT = 64
_HEAD = struct.Struct("<8sQ")


def read(path: pathlib.Path, offset: int, length: int | None) -> bytes:
    """Returns a part of a file.

    Raises:
        DataLossError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(-1 if length is None else length)
    except OSError as error:
        raise errors.DataLossError(f"{path} cannot be read: {error.strerror}") from error


def text(data: bytes) -> str:
    """Returns the text of a plan.

    Raises:
        DataLossError: it is no UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise errors.DataLossError(f"the plan of the bundle is damaged: {error}; make the bundle anew") from error


def read_plan(path: pathlib.Path) -> Plan:
    """Returns the plan of a bundle in one file.

    Raises:
        DataLossError: it is no bundle, or a damaged one.
    """
    head = read(path, 0, _HEAD.size)
    if len(head) < _HEAD.size or not head.startswith(MAGIC):
        raise errors.DataLossError(f"{path} was expected to begin with {MAGIC!r}, but begins with {head[:8]!r}")
    length = _HEAD.unpack(head)[1]
    if length > path.stat().st_size - _HEAD.size:
        raise errors.DataLossError(f"{path} is cut off: its plan has {length} bytes, the file {path.stat().st_size}")
    plan = Plan.from_json(text(read(path, _HEAD.size, length)))
    if any(piece.offset is None or piece.offset % ALIGNMENT for piece in plan.pieces):
        raise errors.DataLossError(f"{path} is damaged: a piece does not begin at a multiple of {ALIGNMENT}")
    return plan


def write(path: pathlib.Path, plan: Plan, pieces: Sequence[bytes]) -> None:
    """Writes a bundle in one file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            dump(file, plan, pieces)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def dump(file: IO[bytes], plan: Plan, pieces: Sequence[bytes]) -> None:
    """Writes a bundle to a file that is empty."""
    plan, written = _placed(plan)
    file.write(_HEAD.pack(MAGIC, len(written)) + written)
    for piece, data in zip(plan.pieces, pieces, strict=True):
        file.write(bytes((piece.offset or 0) - file.tell()))
        file.write(data)


def put(path: pathlib.Path, data: bytes) -> None:
    """Writes a file down to the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _placed(plan: Plan) -> tuple[Plan, bytes]:
    """The plan holds the offsets, and its length moves them: repeated until they stay."""
    length = 0
    while True:
        place, offsets = _aligned(_HEAD.size + length), []
        for piece in plan.pieces:
            offsets.append(place)
            place = _aligned(place + piece.bytes)
        pairs = zip(plan.pieces, offsets, strict=True)
        pieces = tuple(dataclasses.replace(piece, file=None, offset=offset) for piece, offset in pairs)
        placed = dataclasses.replace(plan, pieces=pieces)
        made = placed.to_json().encode()
        if len(made) <= length:  # offsets only grow, so that this comes to an end
            return placed, made
        length = len(made)


def _aligned(place: int) -> int:
    return -(-place // ALIGNMENT) * ALIGNMENT
