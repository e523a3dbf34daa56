"""Which parts of a model may run where: units, and the candidates that they are merged into (Band, section 3.1)."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

from tf_ext.lite import _candidates, errors
from tf_ext.lite._tables import table
from tf_ext.lite.model import Model, Operator

__all__ = ["Analysis", "Candidate", "Unit", "analyze", "support_from_table"]


@dataclasses.dataclass(frozen=True)
class Unit:
    """A run of consecutive operators that the same processors support.

    Attributes:
        begin, end: the operators [begin, end).
        processors: in the order in which they were given.
    """

    begin: int
    end: int
    processors: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A run of units that may be run at one go.

    Attributes:
        begin, end: the units [begin, end).
        processors: that support all of them.
    """

    begin: int
    end: int
    processors: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Analysis:
    """What `analyze` found.

    Attributes:
        model: what was analysed.
        processors: for which.
        units: in order; they cover the model.
        candidates: by their first unit, then their last one; from each, the rest of the model can be reached.
        fallback: for each processor, how many operators of which kind it does not support; they fall back to others.
    """

    model: Model
    processors: tuple[str, ...]
    units: tuple[Unit, ...]
    candidates: tuple[Candidate, ...]
    fallback: Mapping[str, Mapping[str, int]]

    def operators(self, candidate: Candidate) -> tuple[int, int]:
        """Returns the operators [begin, end) of a candidate."""
        return self.units[candidate.begin].begin, self.units[candidate.end - 1].end

    def explain(self) -> str:
        """Returns units, candidates and fallback operators as a table."""
        model = self.model
        lines = [f"{model.name}: {len(model.operators)} operators, {len(model.constant_operators)} of constants alone"]
        if model.whole:
            lines.append(f"It runs as a whole: {model.whole}.")
        rows = [
            (str(i), f"{u.begin}-{u.end - 1}", self._told(u), " ".join(u.processors), self._handed(u))
            for i, u in enumerate(self.units)
        ]
        lines += ["", table(("unit", "operators", "kinds", "processors", "hands on"), rows), ""]
        pieces = [(f"{c.begin}-{c.end - 1}", " ".join(c.processors)) for c in self.candidates]
        lines.append(table(("units", "may run on"), pieces))
        for processor, kinds in self.fallback.items():
            if kinds:
                told = ", ".join(f"{count} {name}" for name, count in kinds.items())
                lines += ["", f"{processor} does not support: {told}"]
        return "\n".join(lines)

    def _told(self, unit: Unit, most: int = 3) -> str:
        own = (i for i in range(unit.begin, unit.end) if i not in self.model.constant_operators)
        counts = collections.Counter(self.model.operators[i].name for i in own)
        kinds = [f"{count} {name}" for name, count in counts.most_common(most)]
        return ", ".join([*kinds, *(["..."] if len(counts) > most else [])])

    def _handed(self, unit: Unit) -> str:
        size = sum(self.model.tensors[tensor].bytes for tensor in self.model.crossing(unit.end))
        return f"{size / 1024:.1f} KiB"


def support_from_table(model: Model, kinds: Mapping[str, Collection[str]]) -> dict[str, frozenset[int]]:
    """Tells which operators are supported from the names of those that a processor supports.

    Args:
        model: whose operators are meant.
        kinds: for each processor the names of operators, such as ``"CONV_2D"``, or of custom operators. A processor
            ``"cpu"`` that is not among them supports all.

    Returns:
        For each processor the indices of operators.

    Raises:
        InvalidArgumentError: there is no operator of such a name, neither builtin nor in the model.
    """
    from tf_ext.lite import _flatbuffer

    known = {*_flatbuffer.operator_names().values(), *(operator.name for operator in model.operators)}
    for processor, names in kinds.items():
        unknown = sorted(set(names) - known)
        if unknown:
            raise errors.InvalidArgumentError(f"{processor} was said to support {unknown}, which are no operators")
    found = {name: frozenset(o.id for o in model.operators if o.name in names) for name, names in kinds.items()}
    return {"cpu": frozenset(operator.id for operator in model.operators), **found}


def analyze(
    model: Model,
    support: Mapping[str, Collection[int]],
    *,
    window: int = 1,
    minimum: int = 1,
    parts: int = 1,
    max_pieces: int = 64,
    max_growth: float = 8.0,
) -> Analysis:
    """Finds the units of a model and the candidates to run at one go.

    Args:
        model: what to analyse.
        support: for each processor the indices of the operators that it supports, as `support_from_table` or
            `tf_ext.lite.probe` tells them.
        window: a run of fewer operators is not worth its way to an accelerator and back: it counts as not supported
            (the granularity window of later work on Band). The CPU has no window.
        minimum: candidates of fewer operators are left out, unless others need them to get at their inputs or on to
            the model's outputs.
        parts: cut each unit into about so many, so that a scheduler may change its mind in between.
        max_pieces: how many candidates to keep, if no more are needed. The whole model, the units, and the longest
            runs come first.
        max_growth: how many times the model's size all candidates together may take, if they need no more.

    Returns:
        Units and candidates.

    Raises:
        InvalidArgumentError: an argument is out of its range, or no processor supports some operators.

    Example:
        >>> table = {"gpu": {"CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "PAD", "MAX_POOL_2D"}}
        >>> found = analyze(model, support_from_table(model, table), window=5)
        >>> print(found.explain())
    """
    for name, value in (("window", window), ("minimum", minimum), ("parts", parts), ("max_pieces", max_pieces)):
        if value < 1:
            raise errors.InvalidArgumentError(f"expected {name} >= 1, got {value}")
    if not support:
        raise errors.InvalidArgumentError("expected at least one processor, got none")
    atoms = _atoms(model, support)
    for processor in support:
        if processor != "cpu":
            _drop_short_runs(atoms, processor, window)
    units = tuple(_units(model, atoms, tuple(support), parts))
    sizes = _candidates.Sizes(model, [(unit.begin, unit.end) for unit in units])
    chosen = _candidates.choose([unit.processors for unit in units], sizes, minimum, max_pieces, max_growth)
    candidates = tuple(Candidate(begin, end, processors) for begin, end, processors in chosen)
    return Analysis(model, tuple(support), units, candidates, _fallback(model, support))


@dataclasses.dataclass
class _Atom:
    """Operators between two places where the model may be cut."""

    operators: list[Operator]
    processors: set[str]


def _atoms(model: Model, support: Mapping[str, Collection[int]]) -> list[_Atom]:
    sets = {processor: frozenset(ids) for processor, ids in support.items()}
    atoms: list[_Atom] = []
    for index in model.ordinary:
        if not atoms or model.cuttable(index):
            atoms.append(_Atom([], set(support)))
        atoms[-1].operators.append(model.operators[index])
        atoms[-1].processors &= {processor for processor, ids in sets.items() if index in ids}
    for atom in atoms:
        _refuse_unsupported(atom, support)
    return atoms


def _refuse_unsupported(atom: _Atom, support: Iterable[str]) -> None:
    if not atom.processors:
        first, last = atom.operators[0], atom.operators[-1]
        raise errors.InvalidArgumentError(
            f"none of {', '.join(support)} supports operators {first.id} ({first.name}) to {last.id} ({last.name}), "
            "which cannot be parted; add the processor cpu"
        )


def _drop_short_runs(atoms: list[_Atom], processor: str, window: int) -> None:
    for supported, run in itertools.groupby(atoms, lambda atom: processor in atom.processors):
        members = list(run)
        alone = any(len(atom.processors) == 1 for atom in members)
        if supported and not alone and sum(len(atom.operators) for atom in members) < window:
            for atom in members:
                atom.processors.discard(processor)


def _units(model: Model, atoms: list[_Atom], processors: Sequence[str], parts: int) -> Iterable[Unit]:
    groups = [list(run) for _, run in itertools.groupby(atoms, lambda atom: atom.processors)]
    groups = [part for group in groups for part in _split(model, group, parts)]
    starts = [0, *(group[0].operators[0].id for group in groups[1:]), len(model.operators)]
    for begin, end, group in zip(starts, starts[1:], groups, strict=False):
        yield Unit(begin, end, tuple(name for name in processors if name in group[0].processors))


def _split(model: Model, atoms: list[_Atom], parts: int) -> list[list[_Atom]]:
    """Parts of about the same work, cut where little is handed on."""
    done = list(itertools.accumulate(sum(_work(model, one) for one in atom.operators) for atom in atoms))
    cuts: list[int] = []
    for part in range(1, parts):
        target, slack = done[-1] * part / parts, done[-1] * 0.25 / parts
        near = [i for i in range(1, len(atoms)) if abs(done[i - 1] - target) <= slack and i > max(cuts, default=0)]
        if near:
            cuts.append(min(near, key=lambda i: (_handed(model, atoms[i]), abs(done[i - 1] - target))))
    return [atoms[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(atoms)], strict=True)]


def _handed(model: Model, atom: _Atom) -> int:
    return sum(model.tensors[tensor].bytes for tensor in model.crossing(atom.operators[0].id))


def _work(model: Model, operator: Operator) -> float:
    """Multiplications, roughly: each element of the result takes as many as the kernel has for it."""
    made = sum(_elements(model.tensors[tensor].shape) for tensor in operator.outputs)
    kernels = [model.tensors[t].shape for t in operator.inputs if t in model.fixed_tensors]
    kernels = [shape for shape in kernels if len(shape) >= 2]
    if operator.name in ("CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV") and kernels:
        return float(made * _elements(kernels[0][1:]))
    if operator.name == "DEPTHWISE_CONV_2D" and kernels:
        return float(made * _elements(kernels[0][1:3]))
    return float(made)


def _elements(shape: Iterable[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _fallback(model: Model, support: Mapping[str, Collection[int]]) -> dict[str, dict[str, int]]:
    found = {}
    for processor, ids in support.items():
        left = [model.operators[index].name for index in model.ordinary if index not in ids]
        found[processor] = dict(collections.Counter(left).most_common())
    return found
