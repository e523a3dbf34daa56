import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.harness import UnavailableError
from benchmarks.recursion import __main__ as program
from benchmarks.recursion import data, models, peers_eager, peers_level, peers_level_loop, peers_torch, physical, suite
from benchmarks.recursion.data import Forest
from benchmarks.recursion.models import Model
from benchmarks.recursion.schedule import by_level
from tf_ext.testing import require

CASES = {
    "trees": ("binary", data.random_binary(5, words=40)),
    "small trees": ("binary", data.random_binary(6, leaves=(1, 4), words=40)),
    "chain": ("binary", data.chain(30, words=40)),
    "syntax": ("childsum", data.syntax_trees(4)),
}


def _case(name: str) -> tuple[Model, Forest]:
    kind, forest = CASES[name]
    words = 40 if kind == "binary" else len(data.node_types())
    return models.make(kind, 12, words), forest  # type: ignore[arg-type]


def _double(model: Model) -> dict[str, models.Array]:
    return {name: value.astype(np.float64) for name, value in model.weights.items()}


@pytest.mark.parametrize("name", CASES)
def test_the_control_computes_the_formula(name: str) -> None:
    model, forest = _case(name)
    control = peers_eager.prepare(model, forest, tf.float64)
    expected = models.reference(model, forest, _double(model))
    np.testing.assert_allclose(control.infer(), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["trees", "syntax"])
def test_the_gradient_of_the_control_is_the_slope(name: str) -> None:
    model, forest = _case(name)
    loss, gradients = peers_eager.prepare(model, forest, tf.float64).train()
    random = np.random.default_rng(0)
    for weight, gradient in gradients.items():
        at = _double(model)
        way = random.normal(size=at[weight].shape)

        def along(step: float, at=at, weight=weight, way=way) -> float:
            moved = {**at, weight: at[weight] + step * way}
            return float((models.reference(model, forest, moved) @ model.probe).mean())

        slope = (along(1e-5) - along(-1e-5)) / 2e-5
        np.testing.assert_allclose(np.vdot(suite.to_numpy(gradient), way), slope, rtol=1e-6)
        np.testing.assert_allclose(loss, along(0.0), rtol=1e-12)


@pytest.mark.parametrize("peer", ["eager", "while_loop", "level_batched", "torch"])
@pytest.mark.parametrize("name", CASES)
def test_peers_agree_with_the_control(name: str, peer: str) -> None:
    if peer == "torch":
        require("torch")
    model, forest = _case(name)
    runner = suite.IMPLEMENTATIONS[peer](model, forest)
    values, gradients = suite.errors(runner, peers_eager.prepare(model, forest, tf.float64))
    assert values < 1e-6
    assert gradients < 1e-5
    if peer != "torch":
        assert isinstance(runner.train()[1]["embedding"], tf.IndexedSlices)


@pytest.mark.parametrize("name", ["trees", "small trees", "chain"])
def test_the_loop_over_levels_agrees_with_the_unrolled_levels(name: str) -> None:
    model, forest = _case(name)
    loop = peers_level_loop.prepare(model, by_level(forest), tf.float64)
    assert max(suite.errors(loop, peers_level.prepare(model, forest, tf.float64))) < 1e-12


def test_the_loop_over_levels_refuses_other_models() -> None:
    model, forest = _case("syntax")
    with pytest.raises(ValueError, match="binary"):
        peers_level_loop.prepare(model, by_level(forest))


def test_without_pytorch_its_peer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_torch, "torch", None)
    with pytest.raises(UnavailableError, match="PyTorch"):
        peers_torch.prepare(*_case("trees"))
    assert suite.prepare(["torch"], *_case("trees")) == {}


@pytest.mark.parametrize("name", ["trees", "syntax"])
def test_the_bare_products_are_those_of_the_levels(name: str) -> None:
    """Counts what the level-batched graph multiplies, forward and backward."""
    model, forest = _case(name)
    rows = physical.rows(model, by_level(forest))
    inner = int((forest.arity > 0).sum())
    assert sum(n for weight, n in rows if weight == "kernel") == inner
    if name == "syntax":
        assert sum(n for weight, n in rows if weight == "forget_kernel") == forest.size - forest.batch
    runner = physical.prepare(model, forest)
    assert len(runner.infer()) == len(rows)
    assert len(runner.train()[0]) == 3 * len(rows)


def test_a_chain_has_no_bare_products() -> None:
    forest = data.chain(physical.MOST_PRODUCTS, words=40)
    with pytest.raises(UnavailableError, match="operators cost more"):
        physical.prepare(models.make("binary", 4, 40), forest)


def test_forests_are_numbered_children_first() -> None:
    for forest in (*(forest for _, forest in CASES.values()), data.random_binary(25), data.syntax_trees(1)):
        parent = np.repeat(np.arange(forest.size), forest.arity)
        assert (forest.children < parent).all()
        assert sorted([*forest.children, *forest.roots]) == list(range(forest.size))


def test_trees_have_the_sizes_that_are_said() -> None:
    leaves = [int((data.random_binary(1, seed).arity == 0).sum()) for seed in range(3)]
    assert leaves == [35, 35, 35]
    chain = data.chain(10)
    assert int((chain.arity == 2).sum()) == 10
    assert by_level(chain).depth == 11


@pytest.mark.slow
def test_a_smoke_run_fails_no_cell(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--bars", "3", "--smoke"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1]["cell"] == "all"
    assert {line["bar"] for line in lines} == {3}
    assert len({line["cell"] for line in lines}) == len(lines) == 1 + 14 + 2 * 6 + 2 * 4


@pytest.mark.slow
def test_results_are_lines_and_a_figure(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    require("matplotlib")
    case = suite.CASES["treelstm/1"]
    monkeypatch.setattr(suite.Case, "make", lambda self: _case("trees"))
    monkeypatch.setattr(program, "QUICK", (case.name,))
    assert program.main(["--quick", f"--plot={tmp_path}"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"benchmark", "case", "metric", "value", "unit", "peer", "ratio"} == set(lines[0])
    assert {line["peer"] for line in lines} == set(suite.IMPLEMENTATIONS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recursion_inference.png", "recursion_training.png"]
