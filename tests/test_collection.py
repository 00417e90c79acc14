"""Every test module is run: a bare pytest collects it."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from selection import COLLECTED, is_in_shard, spread

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


def table(*factors: int) -> dict[str, dict[str, int]]:
    """All rows of some factors of so many values."""
    return {str(row): dict(zip("abcdef", row, strict=False)) for row in itertools.product(*map(range, factors))}


@pytest.mark.parametrize("factors", [(1,), (7,), (3, 4), (5, 2, 2), (6, 2, 4, 2, 17), (4, 4, 4, 4)])
def test_every_value_is_in_few_rows(factors: tuple[int, ...]) -> None:
    """Also where some rows do not occur, as targets without waves of some size."""
    rows = {name: row for name, row in table(*factors).items() if row.get("a") != 0 or row.get("b") != 1}
    chosen = spread(rows)
    assert chosen == spread(dict(reversed(rows.items())))
    for name in "abcdef"[: len(factors)]:
        assert {rows[row][name] for row in chosen} == {row[name] for row in rows.values()}
    assert len(chosen) <= min(len(rows), 2 * max(factors))


def test_more_rows_have_more_pairs() -> None:
    rows = {f"{a}{b}{c}": {"a": a, "b": b, "c": c} for a in range(4) for b in range(4) for c in range(4)}
    assert spread(rows, 3) < spread(rows) < spread(rows, 20)
    for place in range(3):
        assert len({name[place] for name in spread(rows, 3)}) == 3
    for places in ((0, 1), (0, 2), (1, 2)):
        assert len({tuple(name[place] for place in places) for name in spread(rows, 24)}) == 16
    assert spread(rows, 100) == rows.keys()


TABLES_OF_ALL_KINDS = """
import pytest
@pytest.mark.parametrize("a", range(4))
@pytest.mark.parametrize("b", range(5))
def test_all(a, b): pass
@pytest.mark.rows()
@pytest.mark.parametrize("a", range(4))
@pytest.mark.parametrize("b", range(5))
def test_each_value(a, b): pass
@pytest.mark.rows(7)
@pytest.mark.parametrize("a", range(4))
@pytest.mark.parametrize("b", range(5))
def test_seven(a, b): pass
@pytest.mark.rows(None, "a")
@pytest.mark.parametrize("a", range(4))
@pytest.mark.parametrize("b", range(5))
def test_each_a(a, b): pass
def test_single(): pass
@pytest.mark.parametrize("a", [0, 1, 2, pytest.param(3, marks=pytest.mark.thorough)])
def test_not_thorough(a): pass
@pytest.mark.thorough
def test_thorough(): pass
@pytest.mark.parametrize("a", [pytest.param(3, marks=pytest.mark.thorough)])
def test_thorough_row(a): pass
"""


def test_marks_say_which_rows_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selection.EVERYTHING", False)
    monkeypatch.setattr("selection.SHARD", "")
    pytester.makeconftest("from selection import pytest_collection_modifyitems, pytest_generate_tests")
    pytester.makepyfile(TABLES_OF_ALL_KINDS)
    listed = pytester.runpytest_inprocess("--collect-only", "-q").outlines
    tables = {"test_all": 20, "test_each_value": 5, "test_seven": 7, "test_each_a": 4, "test_not_thorough": 3}
    assert Counter(re.findall(r"::(\w+)", "\n".join(listed))) == {**tables, "test_single": 1}


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
