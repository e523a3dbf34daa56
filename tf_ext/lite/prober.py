"""Which operators an accelerator supports: told by trying each kind of them on it (Band, section 3.1)."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from typing import Any

from tf_ext.lite import _runners, cutter, errors, profiler
from tf_ext.lite._builder import Track
from tf_ext.lite._progress import hidden
from tf_ext.lite.model import Model, Tensor

__all__ = ["probe"]

_VERSION = 1


def probe(model: Model, processor: str, *, track: Track = hidden, cache: bool = True) -> frozenset[int]:
    """Finds the operators of a model that an accelerator runs.

    Tables of supported operators are not to be trusted: what counts are versions, types, shapes, and the driver. So each
    kind of operator, with its options, types and shapes, is cut out, compiled for the accelerator and run once. Those
    that it runs are kept in the user's cache.

    Args:
        model: whose operators to try.
        processor: ``"gpu"`` or ``"npu"``; ``"cpu"`` supports all.
        track: shows how far it has come.
        cache: whether to look into the cache, and to keep what was found.

    Returns:
        The indices of operators.

    Raises:
        UnavailableError: the accelerator is absent: it runs none of them.

    Example:
        >>> tf_ext.lite.probe(tf_ext.lite.Model("face_landmark.tflite"), "gpu")
        frozenset({0, 1, 2, ...})
    """
    from tf_ext.lite import _accelerators

    if processor == "cpu":
        return frozenset(operator.id for operator in model.operators)
    kinds: dict[str, list[int]] = {}
    for index in model.ordinary:
        kinds.setdefault(_kind(model, index), []).append(index)
    found = set(model.constant_operators)
    refused: list[str] = []
    with _accelerators.Accelerator(processor) as accelerator:
        for kind, indices in track(kinds.items(), f"probing {processor}"):
            reason = _try(accelerator, model, indices[0], _file(kind, processor) if cache else None)
            if reason is None:
                found.update(indices)
            else:
                refused.append(reason)
    if len(refused) == len(kinds):
        raise errors.UnavailableError(f"{processor} runs no operator of {model.name}: {refused[0]}")
    return frozenset(found)


def _kind(model: Model, index: int) -> str:
    """What makes a difference for support, as text: not the weights."""
    operator, raw = model.operators[index], model.graph.operators[index]
    options = [
        sorted((name, repr(value)) for name, value in vars(one).items()) if one is not None else None
        for one in (raw.builtinOptions, raw.builtinOptions2)
    ]
    tensors = [[_told(model, index) for index in ids] for ids in (operator.inputs, operator.outputs)]
    return json.dumps([operator.name, operator.version, options, repr(raw.customOptions), tensors])


def _told(model: Model, index: int) -> list[Any]:
    tensor: Tensor = model.tensors[index]
    quantization = model.graph.tensors[index].quantization
    axis = None if quantization is None or quantization.scale is None else len(quantization.scale)
    return [tensor.type, tensor.shape, index in model.fixed_tensors, axis]


def _try(accelerator: Any, model: Model, index: int, file: str | None) -> str | None:
    """Why an operator is not supported, or None if it is. Only that it is, is kept: the accelerator may have been absent."""
    if file is not None and os.path.exists(file):
        return None
    part = cutter.single(model, index)
    if part is None:
        return f"operator {index} ({model.operators[index].name}) takes constants alone"
    inputs = _runners.random_inputs([model.tensors[tensor] for tensor in part.inputs])
    try:
        accelerator.run(part.data, inputs, [model.tensors[tensor] for tensor in part.outputs])
    except (errors.LiteError, ValueError, TypeError) as error:
        return str(error)
    if file is not None:
        _keep(file)
    return None


def _file(kind: str, processor: str) -> str:
    key = json.dumps([_VERSION, kind, processor, _runners.runtime_version(), os.environ.get("VK_ICD_FILENAMES")])
    return str(profiler.cache_folder() / "probes" / hashlib.sha256(key.encode()).hexdigest())


def _keep(file: str) -> None:
    """A cache that cannot be written is done without."""
    try:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(file), delete=False) as scratch:
            pass
        os.replace(scratch.name, file)
    except OSError:
        return
