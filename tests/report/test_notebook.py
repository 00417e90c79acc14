"""Output for lifted kernels, costs, counts and runs in notebooks."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from assembly import assembled, function, kernel_text
from luthier import KernelCounts, Table
from luthier.errors import PatchError
from luthier.lifting import lift
from luthier.patch.outcome import KernelReport, PatchRefusal, PatchReport
from luthier.run.folder import RunFolder
from luthier.tool.counts import KernelCounters
from run_folders import kernel, write_run

HOSTILE = "</td><script>alert(1)</script>' onmouseover='x"


class _Reader(HTMLParser):
    """Tags, and the text of each cell."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cells: list[str] = []
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] in ("td", "th") and self.cells:
            self.cells[-1] += data.strip()


def _read(html: str) -> _Reader:
    reader = _Reader()
    reader.feed(html)
    assert set(reader.tags) <= {"p", "b", "div", "table", "thead", "tbody", "tr", "th", "td"}
    assert reader.attributes <= {"style"}
    return reader


def test_tables_show_text_as_it_is() -> None:
    table = Table(HOSTILE, ("name", HOSTILE), [[HOSTILE, 1234567], [None, 2.5]])
    cells = _read(table._repr_html_()).cells
    assert cells == ["name", HOSTILE, HOSTILE, "1,234,567", "", "2.5"]


def test_long_tables_say_what_is_left_out() -> None:
    html = Table("", ("n",), [[number] for number in range(1000)])._repr_html_()
    assert "and 800 more rows" in html
    assert len(_read(html).cells) == 201


def test_lifted_kernels() -> None:
    code = function("k", ["s_cbranch_scc0 1", "v_mov_b32 v1, v0", "s_endpgm"])
    lifted = lift(assembled(kernel_text(code, "gfx90a"), "gfx90a"), "k")
    assert repr(lifted) == "<LiftedRepresentation k: gfx90a, 3 instructions, 3 blocks>"
    cells = _read(lifted._repr_html_()).cells
    assert cells[8:13] == ["k", "0", cells[10], "1", "conditional"]
    assert len(cells) == 8 * 4


def test_costs() -> None:
    refusal = PatchRefusal("too few registers", "none", "k", 16)
    cost = KernelReport("k", 3, 3, 10, 30, 40, 160, (8, 12), (16, 24), (8, 5), 0, 4, (refusal,))
    report = PatchReport((cost,), {}, (PatchRefusal.of_kernel("layout", HOSTILE, PatchError("too far")),))
    cells = _read(report._repr_html_()).cells
    assert cells[21:42] == [
        "k",
        "3",
        "4",
        "10",
        "30",
        "40",
        "160",
        "8",
        "12",
        "16",
        "24",
        "8",
        "5",
        *("0", "0", "0", "0", "0", "0", "0"),
        "1 too few registers",
    ]
    assert cells[42] == HOSTILE
    assert cells[-1] == "layout: too far"


def test_runs(tmp_path: Path) -> None:
    run = RunFolder(write_run(tmp_path / "run", {"faults": [HOSTILE]}, kernels=[kernel("k")]))
    cells = _read(run._repr_html_()).cells
    assert {"k", HOSTILE, "1"} <= set(cells)


def test_kernels_have_names_of_the_source(tmp_path: Path) -> None:
    """As in the terminal; and numbers that are names have no commas."""
    mangled = "_Z5scalePf"
    code = function(mangled, ["s_endpgm"])
    lifted = lift(assembled(kernel_text(code, "gfx90a", name=mangled), "gfx90a"), mangled)
    report = PatchReport((KernelReport(mangled, 3, 3, 10, 30, 40, 160, (8, 12), (16, 24), (8, 5), 0, 4, ()),), {}, ())
    run = RunFolder(write_run(tmp_path / "run", kernels=[kernel(mangled)]))
    counters = KernelCounters(
        mangled, "cells", 0, np.array([0]), {}, np.ones(1, np.int32), np.zeros(1, np.int32), (), ()
    )
    counts = KernelCounts(counters, np.array([5]), np.ones(1, bool), np.zeros(1, np.int64), np.zeros(1, bool))
    for shown in (lifted, report, run, counts):
        html = shown._repr_html_()
        assert "scale" in html
        assert mangled not in html
    assert _read(Table("", ("process", "waves"), [[8258, 8258]])._repr_html_()).cells[2:] == ["8258", "8,258"]


def test_counts() -> None:
    """Blocks by what they executed."""
    counters = KernelCounters(
        HOSTILE,
        "cells",
        0,
        np.array([0, 4, 8]),
        {1: "s_nop"},
        np.ones(3, np.int32),
        np.array([0, 0, 1], np.int32),
        (),
        (),
    )
    counts = KernelCounts(counters, np.array([5, 5, 2]), np.ones(3, bool), np.zeros(3, np.int64), np.zeros(3, bool))
    html = counts._repr_html_()
    assert _read(html).cells[6:] == ["0", "", "0x0", "2", "5", "10", "1", "", "0x8", "1", "2", "2"]
    assert "100.0%" in html
    assert "20.0%" in html


def test_a_column_without_a_name_is_no_column_of_heat() -> None:
    assert _read(Table("", ("", "n"), [["a", 1]])._repr_html_()).cells[2:] == ["a", "1"]
