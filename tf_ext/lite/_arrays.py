"""Numpy arrays as the engine takes them: in place where they begin at a multiple of 64."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf_ext.lite import _library, errors

ALIGNMENT = 64

Arrays = Mapping[str, Any] | Sequence[Any]


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """An input or an output of a model.

    Attributes:
        name: by which a dictionary of inputs or outputs has it.
        type: its numpy type.
        shape: its sizes.
    """

    name: str
    type: np.dtype[Any]
    shape: tuple[int, ...]

    @functools.cached_property
    def bytes(self) -> int:
        """What its data takes."""
        return math.prod(self.shape) * self.type.itemsize

    def empty(self) -> np.ndarray:
        """Returns an array for it, of any content, that the engine uses without a copy."""
        return _aligned(self.bytes).view(self.type).reshape(self.shape)


def aligned(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Returns an array of any content that the engine uses without a copy.

    Args:
        shape: its sizes.
        dtype: its type.

    Returns:
        An array that begins at a multiple of 64 bytes.

    Example:
        >>> frame = tf_ext.lite.aligned((1, 192, 192, 3), np.float32)
        >>> frame[...] = picture
        >>> engine.request(model, [frame])
    """
    kind = np.dtype(dtype)
    return _aligned(math.prod(shape) * kind.itemsize).view(kind).reshape(tuple(shape))


def _aligned(size: int) -> np.ndarray:
    # The end too: what reads whole blocks must not read beyond the memory.
    raw = np.empty(-(-size // ALIGNMENT) * ALIGNMENT + ALIGNMENT, np.uint8)
    begin = -_address(raw) % ALIGNMENT
    return raw[begin : begin + size]


def _address(array: np.ndarray) -> int:
    """`array.ctypes.data`, in a third of the time."""
    address: int = array.__array_interface__["data"][0]
    return address


def taken(arrays: Any, specs: Sequence[TensorSpec], role: str) -> list[np.ndarray]:
    """Returns arrays in the order of the model, contiguous, of the right types and shapes.

    Args:
        arrays: a mapping by name, a sequence in the model's order, or a single array where there is one.
        specs: what the model wants.
        role: ``"input"`` or ``"output"``, for errors.

    Raises:
        InvalidArgumentError: there are others than the model wants, or of other types or shapes.
    """
    if isinstance(arrays, Mapping):
        names = [spec.name for spec in specs]
        if set(arrays) != set(names):
            raise errors.InvalidArgumentError(f"expected the {role}s {names}, got {list(arrays)}")
        listed = [arrays[name] for name in names]
    else:
        listed = [arrays] if isinstance(arrays, np.ndarray) and len(specs) == 1 else list(arrays)
    if len(listed) != len(specs):
        raise errors.InvalidArgumentError(f"expected {len(specs)} {role}s, got {len(listed)}")
    return [_fit(array, spec, role) for array, spec in zip(listed, specs, strict=True)]


def _fit(value: Any, spec: TensorSpec, role: str) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype != spec.type or array.shape != spec.shape:
        raise errors.InvalidArgumentError(
            f"expected the {role} {spec.name!r} as {spec.type} of the shape {spec.shape}, got {array.dtype} of the shape "
            f"{array.shape}; shapes are fixed when the bundle is made"
        )
    if role == "output" and not (array.flags.c_contiguous and array.flags.writeable and array is value):
        raise errors.InvalidArgumentError(f"expected the output {spec.name!r} to be a contiguous array to write into")
    return np.ascontiguousarray(array)


def buffers(arrays: Sequence[np.ndarray]) -> Any:
    """Returns `TfExtLiteBuffer`s of arrays, which must outlive them."""
    return (_library.Buffer * len(arrays))(*(_library.Buffer(_address(array), array.nbytes) for array in arrays))


def specs_of(count: int, describe: Any) -> tuple[TensorSpec, ...]:
    """Returns what the engine tells of the inputs or outputs of a model."""
    found = []
    for index in range(count):
        tensor = _library.Tensor()
        _library.check(describe(index, ctypes.byref(tensor)))
        shape = tuple(tensor.shape[axis] for axis in range(tensor.rank))
        found.append(TensorSpec(tensor.name.decode(), np.dtype(tensor.type.decode()), shape))
    return tuple(found)
