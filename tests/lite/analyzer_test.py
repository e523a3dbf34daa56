"""Units by what processors support, candidates that lead from the beginning to the end, and what is told of them."""

import hypothesis
import hypothesis.strategies as st
import pytest

from tests.lite import tiny
from tf_ext.lite import _candidates, errors
from tf_ext.lite.analyzer import analyze, support_from_table
from tf_ext.lite.model import Model

pytestmark = pytest.mark.usefixtures("litert")


def row(*names: str) -> Model:
    """Operators of one input in a row."""
    graph = tiny.Graph()
    x = graph.input((1, 4))
    for name in names:
        x = graph.op(name, [x], (1, 4))
    return Model(graph.data(x), name="row")


def units_of(found) -> list:
    return [(unit.begin, unit.end, " ".join(unit.processors)) for unit in found.units]


def pieces_of(found) -> list:
    return [(one.begin, one.end, " ".join(one.processors)) for one in found.candidates]


def test_operators_with_the_same_support_form_a_unit():
    model = row("ABS", "ABS", "SIN", "ABS", "EXP")
    found = analyze(model, support_from_table(model, {"gpu": {"ABS"}, "npu": {"ABS", "SIN"}}))
    assert units_of(found) == [(0, 2, "cpu gpu npu"), (2, 3, "cpu npu"), (3, 4, "cpu gpu npu"), (4, 5, "cpu")]
    assert found.fallback == {"cpu": {}, "gpu": {"SIN": 1, "EXP": 1}, "npu": {"EXP": 1}}


def test_units_are_merged_where_one_processor_supports_all():
    model = row("ABS", "SIN", "ABS")
    found = analyze(model, support_from_table(model, {"gpu": {"ABS"}}))
    assert pieces_of(found) == [
        (0, 1, "cpu gpu"),
        (0, 2, "cpu"),
        (0, 3, "cpu"),
        (1, 2, "cpu"),
        (1, 3, "cpu"),
        (2, 3, "cpu gpu"),
    ]
    assert found.operators(found.candidates[1]) == (0, 2)


def test_a_window_keeps_short_runs_from_an_accelerator():
    model = row("ABS", "SIN", "ABS", "ABS", "ABS", "SIN")
    table = support_from_table(model, {"gpu": {"ABS"}})
    assert len(analyze(model, table).units) == 4
    assert units_of(analyze(model, table, window=2)) == [(0, 2, "cpu"), (2, 5, "cpu gpu"), (5, 6, "cpu")]
    assert units_of(analyze(model, table, window=4)) == [(0, 6, "cpu")]


def test_a_window_takes_no_operator_from_its_only_processor():
    model = row("ABS", "SIN", "SIN")
    kinds = {"gpu": frozenset({0}), "npu": frozenset({1, 2})}
    assert units_of(analyze(model, kinds, window=3)) == [(0, 1, "gpu"), (1, 3, "npu")]


def test_small_candidates_are_left_out_unless_others_need_them():
    model = row("ABS", "SIN", "SIN", "SIN", "ABS", "ABS")
    found = analyze(model, support_from_table(model, {"gpu": {"SIN"}}), minimum=3)
    # 0-0 and 2-2 have one and two operators, but without them nothing would lead to units 1 and on from it.
    assert pieces_of(found) == [
        (0, 1, "cpu"),
        (0, 2, "cpu"),
        (0, 3, "cpu"),
        (1, 2, "cpu gpu"),
        (1, 3, "cpu"),
        (2, 3, "cpu"),
    ]
    lean = analyze(model, support_from_table(model, {"gpu": {"SIN"}}), minimum=6)
    assert pieces_of(lean) == [(0, 3, "cpu")]


def test_what_no_processor_supports_is_told():
    model = row("ABS", "SIN")
    with pytest.raises(errors.InvalidArgumentError, match=r"none of gpu supports operators 1 \(SIN\)"):
        analyze(model, {"gpu": {0}})
    with pytest.raises(errors.InvalidArgumentError, match=r"support \['SINE'\], which are no operators"):
        support_from_table(model, {"gpu": {"SINE"}})
    for wrong in ({"window": 0}, {"minimum": 0}, {"parts": 0}, {"max_pieces": 0}):
        with pytest.raises(errors.InvalidArgumentError, match=f"expected {next(iter(wrong))} >= 1, got 0"):
            analyze(model, {"cpu": {0, 1}}, **wrong)


def test_without_an_accelerator_the_model_is_one_unit():
    model = Model(tiny.residual())
    found = analyze(model, support_from_table(model, {}))
    assert units_of(found) == [(0, len(model.operators), "cpu")]
    assert pieces_of(found) == [(0, 1, "cpu")]


def test_a_unit_is_cut_into_parts_of_like_work():
    model = row(*["ABS"] * 9)
    found = analyze(model, support_from_table(model, {}), parts=3)
    assert units_of(found) == [(0, 3, "cpu"), (3, 6, "cpu"), (6, 9, "cpu")]
    assert len(found.candidates) == 6


def test_parts_weigh_convolutions():
    model = Model(tiny.residual(depth=4))
    begins = [unit.begin for unit in analyze(model, support_from_table(model, {}), parts=2).units]
    kernels = [operator.id for operator in model.operators if operator.name == "CONV_2D"]
    assert len(begins) == 2
    assert sum(kernel < begins[1] for kernel in kernels) == 2


def test_a_model_that_must_not_be_cut_is_one_unit():
    model = Model(tiny.looping(), name="loop")
    found = analyze(model, support_from_table(model, {"gpu": {"ADD"}}), parts=2)
    assert units_of(found) == [(0, 2, "cpu")]
    assert "It runs as a whole: WHILE calls another graph of the model." in found.explain()


def test_operators_of_constants_alone_count_for_nothing():
    model = Model(tiny.residual(depth=2))
    table = {"gpu": {"CONV_2D", "LOGISTIC", "MUL", "ADD"}}
    found = analyze(model, support_from_table(model, table))
    assert units_of(found) == [(0, len(model.operators), "cpu gpu")]  # DEQUANTIZE is unpacked ahead of time


def test_the_explanation_names_units_pieces_and_fallback_operators():
    model = row("ABS", "SIN", "SIN", "ABS")
    text = analyze(model, support_from_table(model, {"gpu": {"ABS"}})).explain()
    assert text.splitlines()[0] == "row: 4 operators, 0 of constants alone"
    assert "1     1-2        2 SIN  cpu         0.0 KiB" in text
    assert text.splitlines()[-1] == "gpu does not support: 2 SIN"


class Sized:
    """Sizes of runs where each unit has one operator and ten bytes."""

    def __init__(self, count: int) -> None:
        self.model_bytes = 10 * count

    def operators(self, run) -> int:
        return run[1] - run[0]

    def bytes(self, run) -> int:
        return 10 * (run[1] - run[0])


@hypothesis.given(
    units=st.lists(st.sets(st.sampled_from(["cpu", "gpu", "npu"]), min_size=1), min_size=1, max_size=9),
    minimum=st.integers(1, 4),
    most=st.integers(1, 40),
    growth=st.floats(0, 10),
)
@hypothesis.settings(deadline=None)
def test_from_each_candidate_others_lead_to_both_ends(units, minimum, most, growth):
    named = [tuple(sorted(unit)) for unit in units]
    chosen = _candidates.choose(named, Sized(len(units)), minimum, most, growth)
    reached = {0}
    for begin, end, processors in chosen:
        assert processors == tuple(name for name in named[begin] if all(name in unit for unit in units[begin:end]))
        assert processors
        assert begin in reached
        reached.add(end)
    leading = {len(units)}
    for begin, end, _ in reversed(chosen):
        if end in leading:
            leading.add(begin)
    assert all(end in leading for _, end, _ in chosen)
    assert len(set(chosen)) == len(chosen)


def test_the_number_and_the_size_of_candidates_are_bounded():
    units = [("cpu",)] * 20
    assert len(_candidates.choose(units, Sized(20), 1, 10**6, 10**6)) == 210
    assert len(_candidates.choose(units, Sized(20), 1, 30, 10**6)) <= 30 + 20
    few = _candidates.choose(units, Sized(20), 1, 10**6, 3.0)
    assert sum(10 * (end - begin) for begin, end, _ in few) <= 3 * 200
    assert (0, 20, ("cpu",)) in few
