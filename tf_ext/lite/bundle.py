"""A bundle: a model made ready for the engine. docs/design/lite.md describes the files."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tf_ext.lite import _builder, _container, _progress, analyzer, converter, errors
from tf_ext.lite._tables import table
from tf_ext.lite.model import Model
from tf_ext.lite.plan import Plan

__all__ = ["Bundle", "make_bundle"]

SUFFIX = ".tfxlite"
_PLAN = "plan.json"


class Bundle:
    """A bundle, opened.

    Args:
        path: a folder or a file.
        plan: its plan.

    Example:
        >>> bundle = Bundle.open("face_landmark.tfxlite")
        >>> print(bundle.explain())
    """

    def __init__(self, path: pathlib.Path, plan: Plan) -> None:
        self.path, self.plan = path, plan

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, verify: bool = True) -> Bundle:
        """Reads the plan of a bundle, and checks its pieces.

        Args:
            path: a folder or a file, as `make_bundle` made it.
            verify: whether to read all pieces and compare their checksums; else only their sizes are looked at.

        Raises:
            NotFoundError: there is no such bundle.
            DataLossError: it is damaged, or of another version.
        """
        found = cls(pathlib.Path(path), _read_plan(pathlib.Path(path)))
        for index in range(len(found.plan.pieces)):
            found._check(index, verify)
        return found

    def __repr__(self) -> str:
        return f"Bundle({str(self.path)!r}, {len(self.plan.units)} units, {len(self.plan.pieces)} pieces)"

    def piece(self, index: int) -> bytes:
        """Returns the ``.tflite`` file of a piece."""
        piece = self.plan.pieces[index]
        if piece.file is not None:
            return _container.read(self.path / piece.file, 0, None)
        return _container.read(self.path, piece.offset or 0, piece.bytes)

    def explain(self) -> str:
        """Returns the pieces, their latencies and what was dropped, as a table."""
        plan = self.plan
        names = [processor.name for processor in plan.processors]
        size = sum(piece.bytes for piece in plan.pieces)
        lines = [
            f"{plan.name}: {plan.operators} operators in {len(plan.units)} units, {len(plan.pieces)} pieces, "
            f"{size / 2**20:.1f} MiB of a model of {plan.bytes / 2**20:.1f} MiB; LiteRT {plan.litert}",
            "",
        ]
        rows = []
        for piece in plan.pieces:
            begin, end = plan.units[piece.units[0]].operators[0], plan.units[piece.units[1] - 1].operators[1]
            told = (piece.latency_us.get(name) for name in names)
            latencies = ("-" if latency is None else f"{latency / 1000:.3f} ms" for latency in told)
            rows.append((_run(piece.units), _run((begin, end)), f"{piece.bytes / 1024:.0f} KiB", *latencies))
        lines.append(table(("units", "operators", "size", *names), rows))
        lines += [f"dropped: units {_run(one.units)} on {one.processor}: {one.reason}" for one in plan.dropped]
        return "\n".join(lines)

    def _check(self, index: int, verify: bool) -> None:
        piece = self.plan.pieces[index]
        place = self.path / piece.file if piece.file is not None else self.path
        needed = (piece.offset or 0) + piece.bytes
        size = place.stat().st_size if place.is_file() else 0
        if size < needed or (piece.file is not None and size > needed):
            raise errors.DataLossError(
                f"{place} was expected to have {needed} bytes, but has {size}; make the bundle anew"
            )
        if verify and hashlib.sha256(self.piece(index)).hexdigest() != piece.sha256:
            told = f"units {_run(piece.units)} of {self.path}"
            raise errors.DataLossError(f"{told} are damaged: the checksum differs; make the bundle anew")


def make_bundle(
    model: str | os.PathLike[str] | bytes | Model | Any,
    path: str | os.PathLike[str],
    *,
    processors: Sequence[str] = ("cpu",),
    support: Mapping[str, Collection[str]] | None = None,
    signature: str | None = None,
    name: str | None = None,
    window: int = 1,
    minimum: int = 1,
    parts: int = 1,
    max_pieces: int = 64,
    warmup: int = 2,
    runs: int = 15,
    seconds: float = 1.0,
    core: int | None = None,
    tolerance: float = 1e-3,
    cache: bool = True,
    overwrite: bool = False,
    progress: bool = False,
) -> Bundle:
    """Makes a bundle of a model: analyses it, cuts it, tries and measures all pieces, and writes them.

    All pieces are run on the CPU, where they must compute what the whole model computes, bit for bit. Those for another
    processor are run there too, and left out of it, with a reason, where their results are too far from the CPU's.

    Args:
        model: a path, the bytes of a ``.tflite`` file, a `Model`, or a Keras model.
        path: where to write it: one file if the name ends in ``.tfxlite``, else a folder. It is there whole or not at all.
        processors: some of ``"cpu"``, ``"gpu"`` and ``"npu"``, those that this machine has.
        support: for each processor the names of the operators that it supports; what is not told is found by compiling.
        signature: which of several signatures is meant.
        name: what the model is called; else as its file.
        window: the fewest operators in a row that an accelerator is given; see `tf_ext.lite.analyze`.
        minimum: the fewest operators of a piece, if no others need it.
        parts: into how many each unit is cut.
        max_pieces: how many pieces to make, if no more are needed.
        warmup: runs of each piece before it is measured; see `tf_ext.lite.profile`.
        runs: runs of each piece that are measured.
        seconds: for each piece at most.
        core: the core to measure on.
        cache: whether measurements are kept, and not repeated.
        tolerance: how far results of an accelerator may be from the CPU's: the largest difference over the larger of 1
            and the CPU's largest value. Quantised results may always differ by one step.
        overwrite: whether to replace what is there.
        progress: whether to show on the terminal how far it has come.

    Returns:
        The bundle.

    Raises:
        DataLossError: the model is damaged.
        InvalidArgumentError: an argument is out of its range; there is something at `path` already; or the model cannot be
            run piece by piece, or on any worker: variables, resources, dynamic shapes.
        UnavailableError: the runtime or a processor is absent.

    Source: Band (MobiSys 2022), sections 3.1 and 3.2.

    Example:
        >>> bundle = tf_ext.lite.make_bundle("face_landmark.tflite", "face_landmark.tfxlite")
        >>> print(bundle.explain())
    """
    target = pathlib.Path(path)
    _refuse_target(target, overwrite)
    read = read_model(model, signature, name)
    cuts = {"window": window, "minimum": minimum, "parts": parts, "max_pieces": max_pieces}
    found = analyze_model(read, processors, support, progress=progress, **cuts)
    effort = _builder.Effort(warmup, runs, seconds, core, tolerance, cache)
    plan, pieces = _builder.Builder(found, effort, _progress.tracker(progress)).build()
    if target.suffix == SUFFIX:
        _container.write(target, plan, pieces)
    else:
        _write_folder(target, plan, pieces)
    return Bundle.open(target, verify=False)


def _refuse_target(target: pathlib.Path, overwrite: bool) -> None:
    if target.exists() and not overwrite:
        raise errors.InvalidArgumentError(f"there is already something at {target}; remove it, or say overwrite=True")
    if target.is_dir() and (target.suffix == SUFFIX or (any(target.iterdir()) and not (target / _PLAN).is_file())):
        raise errors.InvalidArgumentError(f"{target} is a folder and no bundle; give another path")
    if target.is_file() and target.suffix != SUFFIX:
        raise errors.InvalidArgumentError(f"{target} is a file; a bundle in one file is called something{SUFFIX}")


def analyze_model(
    model: Model,
    processors: Sequence[str],
    support: Mapping[str, Collection[str]] | None,
    *,
    progress: bool = False,
    **cuts: Any,
) -> analyzer.Analysis:
    """Analyses a model for some processors; see `make_bundle` for the arguments."""
    return analyzer.analyze(model, _supported(model, processors, support, _progress.tracker(progress)), **cuts)


def read_model(model: Any, signature: str | None = None, name: str | None = None) -> Model:
    """Reads what `make_bundle` takes as a model."""
    if isinstance(model, Model):
        return model
    if isinstance(model, str | os.PathLike | bytes):
        return Model(model, signature=signature, name=name)
    if converter.is_keras(model):
        called = name or getattr(model, "name", None)
        return Model(converter.from_keras(model), signature=signature, name=called)
    raise errors.InvalidArgumentError(
        f"expected a path, the bytes of a .tflite file, a Model or a Keras model, got {type(model).__name__}"
    )


def _supported(
    model: Model, processors: Sequence[str], support: Mapping[str, Collection[str]] | None, track: _builder.Track
) -> dict[str, Collection[int]]:
    unknown = [one for one in processors if one not in ("cpu", "gpu", "npu")]
    if unknown or not processors or len(set(processors)) < len(processors):
        raise errors.InvalidArgumentError(f"expected some of cpu, gpu and npu, each once, got {list(processors)}")
    stray = sorted(set(support or {}) - set(processors))
    if stray:
        raise errors.InvalidArgumentError(
            f"`support` tells of {stray}, which are not among the processors {processors}"
        )
    told = analyzer.support_from_table(model, support or {})
    for processor in processors:
        if processor not in told:
            from tf_ext.lite import prober

            told[processor] = prober.probe(model, processor, track=track)
    return {processor: told[processor] for processor in processors}


def _read_plan(path: pathlib.Path) -> Plan:
    if path.is_dir():
        if not (path / _PLAN).is_file():
            raise errors.NotFoundError(f"{path} is no bundle: it holds no {_PLAN}")
        return Plan.from_json(_container.text(_container.read(path / _PLAN, 0, None)))
    if not path.is_file():
        raise errors.NotFoundError(f"there is no bundle at {path}; make one: tf-ext lite bundle MODEL {path}")
    return _container.read_plan(path)


def _write_folder(target: pathlib.Path, plan: Plan, pieces: Sequence[bytes]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = pathlib.Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        (scratch / "sub").mkdir()
        for piece, data in zip(plan.pieces, pieces, strict=True):
            _container.put(scratch / str(piece.file), data)
        _container.put(scratch / _PLAN, plan.to_json(indent=1).encode())
        scratch.chmod(0o755)
        if target.exists():
            old = scratch / "old"
            target.rename(old)  # a folder cannot replace one that is not empty
        scratch.rename(target)
        shutil.rmtree(target / "old", ignore_errors=True)
    except BaseException:
        if (scratch / "old").exists() and not target.exists():
            (scratch / "old").rename(target)
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _run(ends: tuple[int, int]) -> str:
    begin, end = ends
    return str(begin) if end - begin == 1 else f"{begin}-{end - 1}"
