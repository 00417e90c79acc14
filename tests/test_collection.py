"""Every test module is run: a bare pytest collects it."""

from __future__ import annotations

import itertools
import json
import math
import re
import subprocess
from pathlib import Path

import costs
import pytest
from selection import COLLECTED, TABLES, covering, is_in_shard, rows_of_tables

ROOT = Path(__file__).parents[1]


def test_every_module_is_collected(request: pytest.FixtureRequest) -> None:
    if request.config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        pytest.skip("only some files were asked for")
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    modules = {ROOT / name for name in files.stdout.splitlines() if re.search(r"(^|/)test_\w*\.py$", name)}
    assert modules == request.config.stash[COLLECTED]


def test_costs_are_of_tests_that_there_are(request: pytest.FixtureRequest) -> None:
    if request.config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        pytest.skip("only some files were asked for")
    assert costs.COSTS.keys() <= request.config.stash[TABLES]


def table(*factors: int) -> dict[str, dict[str, int]]:
    """Return all rows of factors with these numbers of values."""
    return {str(row): dict(zip("abcdef", row, strict=False)) for row in itertools.product(*map(range, factors))}


@pytest.mark.parametrize("strength", [0, 1, 2, 3])
@pytest.mark.parametrize("factors", [(1,), (7,), (3, 4), (5, 2, 2), (6, 2, 4, 2, 17), (4, 4, 4, 4)])
def test_all_values_meet_in_few_rows(factors: tuple[int, ...], strength: int) -> None:
    """Also where some rows do not occur, as targets without waves of some size."""
    rows = {name: row for name, row in table(*factors).items() if row.get("a") != 0 or row.get("b") != 1}
    chosen = covering(rows, strength)
    assert chosen == covering(dict(reversed(rows.items())), strength)
    for names in itertools.combinations("abcdef"[: len(factors)], min(strength, len(factors))):
        everywhere = {tuple(row[name] for name in names) for row in rows.values()}
        assert {tuple(rows[one][name] for name in names) for one in chosen} == everywhere
    least = math.prod(sorted(factors)[-strength:]) if strength else 1
    assert len(chosen) <= min(len(rows), 2 * least)


def test_a_few_rows_are_those_in_which_the_most_values_meet() -> None:
    rows = {f"{a}{b}": {"a": a, "b": b} for a in range(4) for b in range(4)}
    few = covering(rows, 1, most=3)
    assert len(few) == 3
    assert few < covering(rows, 1)
    assert len({name[0] for name in few}) == len({name[1] for name in few}) == 3
    assert covering(rows, 1, most=100) == covering(rows, 1)


TABLES_OF_ALL_KINDS = """
import pytest
@pytest.mark.parametrize("a", range(4))
@pytest.mark.parametrize("b", range(4))
def test_plain(a, b): pass
@pytest.mark.covering(1)
@pytest.mark.parametrize("a", range(4))
@pytest.mark.parametrize("b", range(4))
def test_covering(a, b): pass
@pytest.mark.worth(3)
@pytest.mark.parametrize("a", range(4))
def test_worth(a): pass
def test_single(): pass
"""


@pytest.mark.parametrize(
    ("seconds", "plain", "of_covering", "worth"), [(0, 16, 4, 4), (0.2, 10, 4, 4), (1, 2, 2, 4), (50, 1, 1, 1)]
)
def test_tables_have_rows_for_their_time(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, seconds: float, plain: int, of_covering: int, worth: int
) -> None:
    items, _ = pytester.inline_genitems(pytester.makepyfile(TABLES_OF_ALL_KINDS))
    names = {item.nodeid.partition("[")[0] for item in items}
    monkeypatch.setattr(costs, "BUDGET", 2)
    monkeypatch.setattr(costs, "COSTS", dict.fromkeys(names, seconds) if seconds else {})
    chosen = rows_of_tables(items)
    assert chosen == rows_of_tables(reversed(items))

    def rows(test: str) -> list[str]:
        return [name for name in chosen if f"::{test}[" in name]

    assert [len(rows(test)) for test in ("test_plain", "test_covering", "test_worth")] == [plain, of_covering, worth]
    for place in (0, 1):  # first, rows with unique values
        values = {re.split(r"[\[\]-]", name)[1 + place] for name in rows("test_plain")}
        assert len(values) == min(4, plain)


def test_costs_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "FILE", tmp_path / "costs.json")
    monkeypatch.setattr(costs, "COSTS", {"t.py::test_other": 1.0, "t.py::test_table": 9.0, "t.py::test_quick": 3.0})
    recorder = costs.Recorder()
    for name, when, seconds in (
        ("t.py::test_table[a]", "setup", 2.0),
        ("t.py::test_table[a]", "call", 1.0),
        ("t.py::test_table[b]", "setup", 0.0),
        ("t.py::test_table[b]", "call", 0.505),
        ("t.py::test_skipped[a]", "setup", 5.0),
        ("t.py::test_quick[a]", "call", 0.001),
        ("t.py::test_single", "call", 9.0),
    ):
        location = ("t.py", 1, name)
        report = pytest.TestReport(name, location, {}, "passed", None, when, duration=seconds)  # type: ignore[arg-type]
        recorder.pytest_runtest_logreport(report)
    recorder.pytest_sessionfinish()
    assert json.loads(costs.FILE.read_text()) == {"t.py::test_other": 1.0, "t.py::test_table": 1.8}


@pytest.mark.parametrize("count", [1, 3, 12])
def test_every_test_is_in_exactly_one_shard(count: int) -> None:
    names = [f"tests/folder/test_file.py::test_this[{number}]" for number in range(1000)]
    shards = [[name for name in names if is_in_shard(name, f"{number}/{count}")] for number in range(1, count + 1)]
    assert sorted(name for shard in shards for name in shard) == sorted(names)
    assert min(map(len, shards)) > 500 / count


@pytest.mark.parametrize("shard", ["0/3", "4/3", "3", "x/y", "/", "-1/3"])
def test_a_shard_that_is_none_is_said(shard: str) -> None:
    with pytest.raises(ValueError, match="SHARD="):
        is_in_shard("a test", shard)
