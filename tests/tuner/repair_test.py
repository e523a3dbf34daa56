"""Repairing a damaged plan: whatever can be read is kept, nothing is invented, and the damaged file stays."""

import json
import shutil
import sqlite3

import pytest

from tests.tuner.views import studies
from tf_ext.tuner import _schema, _tables, views
from tf_ext.tuner.errors import CorruptedPlanError, PlanMismatchError, PlanVersionError
from tf_ext.tuner.plan import Plan, Run
from tf_ext.tuner.repair import repair

_PAGE = 4096


def _rows(directory):
    db = sqlite3.connect(directory / "plan.sqlite")
    rows = {}
    for table, columns in _tables.COLUMNS.items():
        names = ", ".join(f'"{name}"' for name in columns)
        rows[table] = set(db.execute(f"SELECT {names} FROM {table}"))
    db.close()
    return rows


def _damage(directory, page, data=b"\0" * _PAGE):
    with (directory / "plan.sqlite").open("r+b") as file:
        file.seek((page - 1) * _PAGE)
        file.write(data)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A plan of many pages: interior ones, and histories that are too long for one."""
    root = tmp_path_factory.mktemp("original")
    studies.grid(root, rates=3, changes=18)
    with Plan(root) as plan:
        study = plan.study("long", "val_loss", "min", {"max_trials": 1})
        record = studies.ask(plan, study, 1, "long", {"lr": 3.0}, 300, "COMPLETED", score=0.5, best_epoch=299)
        history = [{"loss": 1.5 / (e + 1), "val_loss": float(e)} for e in range(300)]
        plan.record(Run(record.leaf, 0, 300, history, 3000, 60.0))
        for node in range(1, 40):
            plan.add_checkpoint(node, 3, f"checkpoint-{node:04d}" * 8, 1 << 20)
        for node in range(1, 36):
            plan.drop_checkpoint(node, 3)
    return root


@pytest.fixture
def plan(original, tmp_path):
    shutil.copy(original / "plan.sqlite", tmp_path)
    return tmp_path


def test_the_tables_that_are_saved_are_those_of_the_schema(original):
    db = sqlite3.connect(original / "plan.sqlite")
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables - {"claim", "sqlite_sequence"} == set(_tables.COLUMNS)
    for table, columns in _tables.COLUMNS.items():
        assert tuple(row[1] for row in db.execute(f"PRAGMA table_info({table})")) == columns
    db.close()
    for table, rows in _rows(original).items():
        assert rows and all(_tables.whole(table, row) for row in rows), table


def test_a_whole_plan_is_left_as_it_is(plan):
    before = (plan / "plan.sqlite").read_bytes()
    done = repair(plan)
    assert (done.damaged, done.unreadable) == (None, 0)
    assert (plan / "plan.sqlite").read_bytes() == before
    assert "Nothing is wrong" in done.told()


def test_whichever_page_is_lost_the_rows_of_all_others_are_kept(original, tmp_path):
    rows = _rows(original)
    everything = sum(len(of_table) for of_table in rows.values())
    pages = (original / "plan.sqlite").stat().st_size // _PAGE
    assert pages > 20
    worst = 1.0
    for page in range(1, pages + 1):
        directory = tmp_path / str(page)
        directory.mkdir()
        shutil.copy(original / "plan.sqlite", directory)
        _damage(directory, page)
        done = repair(directory)
        if done.damaged is None:
            continue  # a page that held nothing
        left = _rows(directory)
        more = {table: left[table] - rows[table] for table in rows if left[table] - rows[table]}
        # Nothing is invented. Nothing comes back, unless the header is lost, which tells the pages that are free.
        assert set(more) <= ({"checkpoint"} if page == 1 else set()), (page, more)
        with Plan(directory, create=False) as opened:
            opened.check()
        assert done.kept == {table: len(of_table) for table, of_table in left.items()}
        if left["context"] and left["study"] == rows["study"]:  # all else refers to them
            worst = min(worst, sum(map(len, left.values())) / everything)
        assert done.damaged.stat().st_size == pages * _PAGE
    assert worst > 0.5


@pytest.mark.parametrize("lost", [16, 100, _PAGE])
def test_nothing_is_lost_with_the_header_and_the_schema(plan, original, lost):
    _damage(plan, 1, b"\xff" * lost)
    with pytest.raises((CorruptedPlanError, sqlite3.DatabaseError)):
        views.read(plan)
    done = repair(plan)
    left, rows = _rows(plan), _rows(original)
    # Without its header it is not known which pages hold what was deleted: checkpoints may come back, nothing else.
    assert {t: left[t] for t in left if t != "checkpoint"} == {t: rows[t] for t in rows if t != "checkpoint"}
    assert left["checkpoint"] >= rows["checkpoint"]
    assert views.read(plan).totals.executed == views.read(original).totals.executed
    assert done.damaged is not None and done.damaged.read_bytes()[:16] == b"\xff" * 16


def test_of_a_file_that_is_cut_off_the_rest_is_kept(plan, original):
    path = plan / "plan.sqlite"
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3 + 100])
    done = repair(plan)
    left, rows = _rows(plan), _rows(original)
    assert done.unreadable > 0 and all(left[table] <= rows[table] for table in rows)
    assert len(left["node"]) > 0 and left["context"] == rows["context"]
    assert "could not be read" in done.told()


def test_what_stands_in_the_wal_is_kept(tmp_path):
    source = tmp_path / "source"
    with Plan(source) as plan:
        studies.digits(tmp_path / "other")
        study, context = plan.study("s", "val_loss", "min", {}), plan.context("c", {})
        plan._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        studies.ask(plan, study, context, "0", {"lr": 0.1}, 3, "RUNNING")
        studies.train(plan, 1, 0, 3, 0.1)
        killed = tmp_path / "killed"
        killed.mkdir()
        for name in ("plan.sqlite", "plan.sqlite-wal"):  # what a process leaves that is killed now
            shutil.copy(source / name, killed)
        rows = _rows(source)
    assert (killed / "plan.sqlite-wal").stat().st_size > 0
    _damage(killed, 1, b"\xff" * 100)
    # SQLite reads page 1 from the WAL if it was written there; either way nothing is lost.
    done = repair(killed)
    left = _rows(killed)
    assert {t: left[t] for t in ("node", "run", "trial", "study")} == {
        t: rows[t] for t in ("node", "run", "trial", "study")
    }
    assert done.damaged is None or (killed / f"{done.damaged.name}-wal").exists()


def test_rows_that_do_not_parse_or_refer_to_nothing_are_dropped_and_counted(plan, original):
    db = sqlite3.connect(plan / "plan.sqlite")
    db.execute("UPDATE run SET history = '[{\"loss\": 0.' WHERE node = 2")
    db.execute("UPDATE trial SET \"values\" = 'oops' WHERE trial = '000003'")
    db.execute("DELETE FROM study WHERE name = 'long'")
    child = db.execute("SELECT MAX(id) FROM node WHERE parent != 0").fetchone()[0]
    parent = db.execute("SELECT parent FROM node WHERE id = ?", (child,)).fetchone()[0]
    children = db.execute("SELECT COUNT(*) FROM node WHERE parent = ?", (parent,)).fetchone()[0]
    db.execute("UPDATE node SET config = '{}' WHERE id = ?", (parent,))
    db.commit()
    db.close()
    done = repair(plan)
    assert done.dropped["node"] == children + 1
    assert done.dropped["run"] == children + 2  # those of the nodes, and the one that does not parse
    assert done.dropped["trial"] == children + 2  # those that end there, the one that does not parse, that of the study
    assert f"run: {done.kept['run']} kept, {children + 2} dropped" in done.told()
    with Plan(plan, create=False) as opened:
        opened.check()
        assert len(opened.all_runs()) == done.kept["run"]


def test_a_repaired_plan_goes_on(plan):
    _damage(plan, 1, b"\xff" * 100)
    repair(plan)
    with Plan(plan) as opened:
        before = max(node for node, *_ in opened.all_nodes())
        record = studies.ask(opened, 1, 1, "new", {"lr": 77.0}, 2, "RUNNING")
        assert record.leaf == before + 1
        studies.train(opened, record.leaf, 0, 2, 77.0)
        assert [event["kind"] for event in opened.events()][-1] == "run"


def test_a_second_repair_keeps_the_first_damaged_file(plan):
    names = set()
    for _ in range(2):
        _damage(plan, 1, b"\xff" * 100)
        done = repair(plan)
        assert done.damaged is not None and done.damaged.exists()
        names.add(done.damaged)
    assert len(names) == 2
    assert sorted(p.name for p in plan.iterdir()) == sorted(["plan.sqlite", *(n.name for n in names)])


def test_nobody_may_be_at_work(plan):
    with Plan(plan) as opened:
        name = opened.owner
        with pytest.raises(PlanMismatchError, match=f"found {name}. Stop it"):
            repair(plan)


def test_what_is_no_damage_is_not_repaired(plan, tmp_path):
    with pytest.raises(PlanMismatchError, match=r"found no plan\.sqlite"):
        repair(tmp_path / "nowhere")
    db = sqlite3.connect(plan / "plan.sqlite")
    db.execute(f"PRAGMA user_version = {_schema.VERSION + 1}")
    db.close()
    with pytest.raises(PlanVersionError):
        repair(plan)
    (plan / "plan.sqlite").write_bytes(json.dumps(["no data base"]).encode() * 1000)
    before = (plan / "plan.sqlite").read_bytes()
    with pytest.raises(CorruptedPlanError, match="found nothing"):
        repair(plan)
    assert (plan / "plan.sqlite").read_bytes() == before
