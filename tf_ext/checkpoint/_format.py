"""The bytes on the disk: framed JSON documents, and how a blob is described in them.

A document is two lines of JSON. The first tells the format, its version, and the length and CRC-32 of the second:

    {"format": "tf_ext.checkpoint.manifest", "version": 1, "length": 212, "crc32": 3735928559}
    {"name": "step-100", "attempt": "4f0c...", "shards": [...], "blobs": {...}, "metadata": {...}}

CRC-32 and not a cryptographic hash: it guards against bits that a disk or a copy lost, not against people, and `zlib`
computes it four times as fast as `hashlib` does BLAKE2b, which would be nearly all the time of a load.
"""

from __future__ import annotations

import dataclasses
import json
import math
import zlib
from typing import Any

import numpy as np

from tf_ext.checkpoint.errors import CorruptedCheckpointError, FormatVersionError, InvalidBlobError

VERSION = 1
MANIFEST = "tf_ext.checkpoint.manifest"
SHARD = "tf_ext.checkpoint.shard"

# Arrays begin at multiples of it, so that a shard can be mapped into memory by whoever wants to.
ALIGNMENT = 64

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Entry:
    """Where a blob lies and what it is.

    Attributes:
        dtype: NumPy's name of the type with its byte order (``"<f4"``), the name alone for types of `ml_dtypes`
            (``"bfloat16"``), None for plain bytes.
        shape: Shape of the array; the number of bytes for plain bytes.
        offset: First byte in the shard's file.
        length: Number of bytes.
        crc32: Checksum of these bytes.
        shard: Number of the shard.
    """

    dtype: str | None
    shape: tuple[int, ...]
    offset: int
    length: int
    crc32: int
    shard: int

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Entry:
        """Reads what `dataclasses.asdict` gave."""
        return cls(**{**record, "shape": tuple(record["shape"])})


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Returns the text that `dtype_of` turns back into `dtype`.

    Raises:
        InvalidBlobError: The type holds references, has fields, or is none that can be named.
    """
    # The types of ml_dtypes are "user-defined" to NumPy, and several of them call themselves "<V1" or "<f1".
    name = dtype.name if dtype.isbuiltin == 2 else dtype.str
    plain = not dtype.hasobject and dtype.fields is None and dtype.subdtype is None
    if not plain or _dtype_or_none(name) != dtype:
        raise InvalidBlobError(
            f"expected an array of numbers, text or bytes, got dtype {dtype}. "
            "Store the fields of a structured array one by one, and objects as bytes of your own making."
        )
    return name


def dtype_of(name: str) -> np.dtype[Any]:
    """Returns the type that `dtype_name` named.

    Raises:
        CorruptedCheckpointError: There is no such type here.
    """
    dtype = _dtype_or_none(name)
    if dtype is None:
        raise CorruptedCheckpointError(
            f"expected a type of NumPy or ml_dtypes, found {name!r} in the checkpoint. "
            "Install the ml_dtypes that it was written with."
        )
    return dtype


def _dtype_or_none(name: str) -> np.dtype[Any] | None:
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes  # only where it is needed: it comes with TensorFlow, and the store does without
    except ModuleNotFoundError:
        return None
    found = getattr(ml_dtypes, name, None)
    return np.dtype(found) if isinstance(found, type) else None


def flat_bytes(value: Any) -> tuple[memoryview, str | None, tuple[int, ...]]:
    """Returns the bytes of a blob in C order, its dtype's name (None for plain bytes) and its shape.

    Raises:
        InvalidBlobError: It is neither an array that can be stored exactly nor bytes.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        view = memoryview(value)
        view = view.cast("B") if view.c_contiguous and view.nbytes else memoryview(view.tobytes())
        return view, None, (view.nbytes,)
    if isinstance(value, np.ma.MaskedArray) or not isinstance(value, np.ndarray | np.generic):
        raise InvalidBlobError(
            f"expected a NumPy array or bytes, got {type(value).__name__}. "
            "Convert it with numpy.asarray; small values go into the metadata."
        )
    array = np.asarray(value)
    name = dtype_name(array.dtype)
    if not array.nbytes:
        return memoryview(b""), name, array.shape
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, name, array.shape


def frame(kind: str, document: dict[str, Any]) -> bytes:
    """Lays out a document with its format, version, length and checksum."""
    body = json.dumps(document, separators=(",", ":")).encode("ascii")
    header = {"format": kind, "version": VERSION, "length": len(body), "crc32": zlib.crc32(body)}
    return json.dumps(header).encode("ascii") + b"\n" + body + b"\n"


def unframe(kind: str, data: bytes, where: str) -> dict[str, Any]:
    """Returns the document that `frame` laid out.

    Args:
        kind: The format that is expected.
        data: The bytes.
        where: What they were read from, for messages.

    Raises:
        CorruptedCheckpointError: They are not what was written.
        FormatVersionError: They were written in another version of the format.
    """
    first, _, rest = data.partition(b"\n")
    try:
        header = json.loads(first)
        found, version, length, checksum = (header[key] for key in ("format", "version", "length", "crc32"))
    except (ValueError, KeyError, TypeError) as error:
        raise corrupted(where, f"a header of {kind}", repr(first[:60])) from error
    if found != kind:
        raise corrupted(where, kind, repr(found))
    if version != VERSION:
        raise FormatVersionError(
            f"{where}: expected version {VERSION} of {kind}, found {version!r}. "
            "Read it with the tf_ext that wrote it, or write it anew with this one."
        )
    body = rest[:length]
    if len(body) != length or zlib.crc32(body) != checksum:
        raise corrupted(where, f"{length} bytes with CRC-32 {checksum}", f"{len(body)} with {zlib.crc32(body)}")
    return dict(json.loads(body))


def corrupted(where: str, expected: str, found: str) -> CorruptedCheckpointError:
    """Makes the error for bytes that are not what was written."""
    return CorruptedCheckpointError(
        f"{where} is corrupted: expected {expected}, found {found}. Delete this checkpoint and fall back on another one."
    )


def checked_metadata(metadata: Any, where: str = "metadata") -> Any:
    """Returns metadata if JSON gives it back as it is.

    Raises:
        InvalidBlobError: It holds something else than dicts with text as keys, lists, text, numbers, booleans and None.
    """
    if isinstance(metadata, dict):
        for key, value in metadata.items():
            if not isinstance(key, str):
                raise InvalidBlobError(f"{where}: expected text as key, got {key!r}. Convert it with str().")
            checked_metadata(value, f"{where}[{key!r}]")
    elif isinstance(metadata, list):
        for position, value in enumerate(metadata):
            checked_metadata(value, f"{where}[{position}]")
    elif metadata is not None and type(metadata) not in (str, int, float, bool):
        raise InvalidBlobError(
            f"{where}: expected dicts, lists, text, numbers, booleans or None, which JSON gives back as they are, got "
            f"{type(metadata).__name__}. Convert it, or store it as a blob."
        )
    return metadata


def same_metadata(one: Any, other: Any) -> bool:
    """Tells whether two values of metadata are the same; a NaN is the same as a NaN."""
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)
