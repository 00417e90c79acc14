"""Runs in Python: tables, data frames, plots."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import luthier
import matplotlib as mpl
import pytest
from luthier.errors import LuthierError
from luthier.support.table import Cell
from run_folders import code, kernel, wasteful_run, write_run

mpl.use("agg")


def test_tables_are_those_of_the_run(mix_run: Path) -> None:
    """Sums by pandas over the run's own files are those of every table."""
    import pandas

    run = luthier.open_run(mix_run)
    counts = pandas.read_parquet(mix_run / "counts.parquet").dropna(subset="executions")
    names = pandas.read_parquet(mix_run / "kernels.parquet").set_index("kernel")["name"]
    by_kernel = counts.groupby(counts["kernel"].map(names))["executions"].sum().to_dict()
    kernels = run.kernels.to_pandas()
    assert dict(zip(kernels["kernel"], kernels["executed"], strict=True)) == by_kernel
    assert kernels.attrs["title"] == "kernels by cost"
    for table in (run.lines, run.opcodes, run.by("function"), run.by("block"), run.by("address")):
        frame = table.to_pandas()
        assert frame.groupby("kernel")["executed"].sum().to_dict() == by_kernel
        assert list(frame["executed"]) == sorted(frame["executed"], reverse=True)
    opcodes = counts.groupby("mnemonic")["executions"].sum()
    assert run.opcodes.to_pandas().groupby("opcode")["executed"].sum().to_dict() == opcodes[opcodes > 0].to_dict()


def test_bars_are_the_numbers_of_the_table(tmp_path: Path) -> None:
    rows: list[list[Cell]] = [
        ["k", "/a/x.hip:1", 300, 50.0],
        ["k", "/a/x.hip:2", 20, None],
        ["k", "/b/$_0$.hip:2", 7, 25.0],
    ]
    table = luthier.Table("lines", ("kernel", "source", "executed", "lanes %"), rows)
    axes = table.plot()
    assert [bar.get_width() for bar in axes.patches] == [300, 20, 7]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x.hip:1", "x.hip:2", "$_0$.hip:2"]
    assert not any(label.get_parse_math() for label in [*axes.get_yticklabels(), *axes.texts, axes.xaxis.label])
    axes.figure.savefig(tmp_path / "bars.png")
    assert axes.get_title("left") == "lines"
    first = table.plot("lanes %", top=1)
    assert [bar.get_width() for bar in first.patches] == [50]
    assert first.get_title("left") == "lines, the first 1 of 2, 1 without a value"
    assert [bar.get_width() for bar in table.where(source="/a/x.hip:2").plot(axes=first).patches][-1] == 20
    assert first.yaxis_inverted()


@pytest.mark.parametrize(
    ("column", "message"),
    [("executes", "not 'executes'; lines has executed; did you mean 'executed'?"), ("kernel", "not 'kernel'")],
)
def test_only_numbers_are_drawn(column: str, message: str) -> None:
    table = luthier.Table("lines", ("kernel", "executed"), [["k", 1]])
    with pytest.raises(LuthierError) as raised:
        table.plot(column)
    assert message in str(raised.value)
    with pytest.raises(LuthierError, match="there is no column 'line'; lines has kernel, executed"):
        table.where(line=3)
    with pytest.raises(LuthierError, match="top must be at least 1, not 0"):
        table.plot(top=0)
    with pytest.raises(LuthierError, match="lines has no rows to draw"):
        table.where(kernel="other").plot()


def test_a_notebook_shows_the_answer(tmp_path: Path) -> None:
    shown = luthier.open_run(wasteful_run(tmp_path / "run"))._repr_html_()
    for text in ("kernels by cost", "executed by line", "6.2 % efficient", "did not run (luthier profile runs them)"):
        assert text in shown
    hostile = "</td><script>alert(1)</script>"
    other = luthier.open_run(write_run(tmp_path / "other", kernels=[kernel(hostile)], **code(hostile, 3)))
    assert "<script" not in other._repr_html_()


def test_a_kernel_on_two_targets_has_a_column(tmp_path: Path) -> None:
    targets = ("gfx90a", "gfx1100")
    rows: dict[str, list[dict[str, Any]]] = {"listings": [], "blocks": [], "counts": []}
    for target in targets:
        for name, own in code("k", 4).items():
            rows[name] += [row | {"digest": target} for row in own]
    kernels = [kernel("k", digest=target, target=target) for target in targets]
    table = luthier.open_run(write_run(tmp_path / "run", kernels=kernels, **rows)).opcodes
    assert {row[1] for row in table.rows} == set(targets)
    assert table.columns[:3] == ("kernel", "target", "opcode")


def test_what_was_not_counted_or_projected_is_an_error(tmp_path: Path) -> None:
    run = luthier.open_run(write_run(tmp_path / "run", kernels=[kernel("k")]))
    for table in ("lines", "opcodes"):
        with pytest.raises(LuthierError, match="has no counts of instructions"):
            getattr(run, table)
    assert not run.projections.rows
    with pytest.raises(LuthierError, match="has no projected times: run the program with --project"):
        run.roofline()
    with pytest.raises(LuthierError, match="is not a run folder"):
        luthier.open_run(tmp_path / "nothing")


def test_the_example_of_the_document(mix_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/results.md: its code runs, and its data frame has all instructions."""
    page = (Path(__file__).parents[2] / "docs/results.md").read_text()
    (tmp_path / "RUN").symlink_to(mix_run)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    assert names["frame"]["executed"].sum() == sum(row[1] for row in names["run"].kernels.rows)


@pytest.mark.parametrize("package", ["pandas", "matplotlib"])
def test_a_missing_package_is_named_with_its_extra(package: str) -> None:
    script = f"""import sys
sys.modules[{package!r}] = None
from luthier import LuthierError, Table
table = Table("t", ("a",), [[1]])
try:
    table.to_pandas() if {package!r} == "pandas" else table.plot()
except LuthierError as problem:
    print(problem)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert f"{package} is not installed" in done.stdout
    assert "pip install 'luthier[plot]'" in done.stdout
