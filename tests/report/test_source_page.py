"""The page around the source: findings, hot lines, source and instructions linked both ways, honest time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from luthier.cli.main import main
from luthier.report.analysis import AnalysedRun
from luthier.report.charging import SourceLine, span
from luthier.report.measures import together
from luthier.report.page import document
from luthier.report.sources import read_sources
from luthier.run.folder import RunFolder
from playwright import sync_api
from run_folders import code, kernel, wasteful_run, write_run

from .conftest import Opened

Open = Callable[..., Opened]
MIX = Path(__file__).parent / "mix.hip"


def test_source_and_instructions_are_linked_both_ways(mix_run: Path, open_page: Open) -> None:
    """A line marks all of its instructions, an instruction marks its line; numbers are those of the tables."""
    run = RunFolder(mix_run)
    listed = [row for row in run.rows("listings") if "collatz" in row["kernel"]]
    executed = {row["address"]: row["executions"] for row in run.rows("counts") if "collatz" in row["kernel"]}
    text = MIX.read_text().splitlines()
    line = next(number for number, one in enumerate(text, 1) if "while (v > 1)" in one)
    addresses = [row["address"] for row in listed if row["line"] == line and row["file"].endswith("mix.hip")]
    opened = open_page(mix_run)
    page = opened.page
    page.eval_on_selector(".listing .lines", "view => { view.style.height = '3000px'; }")
    page.locator(f".source-code .row[data-line='{line}']").click()
    row = page.locator(f".source-code .row[data-line='{line}']")
    assert row.locator(".text").inner_text() == text[line - 1]
    assert row.locator(".heat").inner_text() == opened.eval(f"short({sum(executed[one] for one in addresses)})")
    marked = opened.eval("[...document.querySelectorAll('.listing .row.mine .address')].map((one) => one.textContent)")
    assert {hex(one) for one in addresses} <= set(marked)
    other = next(row for row in listed if row["line"] not in (0, line) and row["file"].endswith("mix.hip"))
    page.locator(".listing .row[data-at]", has_text=hex(other["address"])).click()
    sync_api.expect(page.locator(".source-code .row.at")).to_have_attribute("data-line", str(other["line"]))
    assert page.locator(".listing .row.mine").count()
    assert opened.text("#hot-list tbody tr:first-child td").startswith("mix.hip:")


def test_findings_come_first_and_lead_to_their_lines(tmp_path: Path, open_page: Open) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "k.hip").write_text("// </script>\nread();\nwrite();\n")
    opened = open_page(wasteful_run(tmp_path / "run"))
    entries = opened.page.locator("#finding-list li")
    texts = [entries.nth(at).inner_text().replace("\n", " ") for at in range(entries.count())]
    assert "k.hip:3 k: race in LDS: w-w, with k.hip:2" in texts[0]
    assert "k.hip:2 k: 6.2 % efficient accesses, 32 cache lines per request where 2 would do" in texts[1]
    assert "k.hip:3 k: 200 cycles of LDS bank conflicts, 3 times" in texts[2]
    assert all("50 % of the lanes are active" in text for text in texts[3:])
    opened.page.click("#finding-list li:nth-child(3) a")
    row = opened.page.locator(".source-code .row.at")
    sync_api.expect(row).to_have_attribute("data-line", "3")
    sync_api.expect(row.locator(".text")).to_have_text("write();")
    opened.page.fill("#search", "read(")
    opened.page.press("#search", "Enter")
    sync_api.expect(row).to_have_attribute("data-line", "2")
    assert "k.hip:2" in opened.text(".graph")


def test_what_is_of_no_line_is_lost_as_well(tmp_path: Path) -> None:
    """Conflicts of instructions without a source line are reported at the kernel's code."""
    rows = code("k", 8, block=4)
    for at, row in enumerate(rows["listings"]):
        row |= {"file": "/src/k.hip", "line": 0 if at < 4 else 3}
    columns = ("kernel", "address", "cycles needed", "cycles", "conflicts", "cycles/needed")
    cells = [["k", "0x1000", 8, 64, 56, 8], ["k", "0x1004", 8, 64, 56, 8], ["k", "0x1010", 10, 15, 5, 1.5]]
    tables = [{"title": "by", "columns": columns, "rows": cells}]
    summary = {"tools": [{"tool": "banks", "options": {}, "tables": tables}]}
    run = write_run(tmp_path / "run", summary, kernels=[kernel("k", instructions=8)], **rows)
    findings = [
        one for one in document(AnalysedRun.of(RunFolder(run)))[0]["findings"] if one["rule"] == "bank-conflicts"
    ]
    assert [(one["lost"], one["place"]) for one in findings] == [(112, None), (5, [0, 3])]
    assert findings[0]["text"] == "112 cycles of LDS bank conflicts, 8 times the cycles needed"
    assert findings[1]["text"] == "5 cycles of LDS bank conflicts, 1.5 times the cycles needed"


@pytest.mark.rows(1)
@pytest.mark.parametrize("device", ["emu:gfx90a", "hip:0"])
def test_emulation_is_not_gpu_time(tmp_path: Path, open_page: Open, device: str) -> None:
    """Emulation time has its own name, excludes first launches, and has no share, mean or bar."""
    opened = open_page(wasteful_run(tmp_path / "run", devices=[device]))
    heads = opened.eval("[...document.querySelectorAll('table[aria-label=Kernels] th')].map((one) => one.innerText)")
    totals = opened.text("#totals")
    if device == "hip:0":
        assert "Time on devices\n920 ns" in totals
        assert "time" in heads
    else:
        assert "Emulation time\n20 ns" in totals
        assert "Time on devices" not in opened.text("body")
        assert not {"time", "mean"} & set(heads)
    sizes = (
        "[...document.querySelectorAll('table[aria-label=\"Launches by size\"] tbody tr')].map((row) => row.innerText)"
    )
    assert opened.eval(sizes)[0].split("\t")[0:4:3] == ["128 × 1 × 1", "2"]


def test_nothing_is_cut_on_a_phone(tmp_path: Path, open_page: Open) -> None:
    """Tables that are too wide become cards; neither the page nor any table scrolls sideways."""
    opened = open_page(wasteful_run(tmp_path / "run"), width=390, height=844, has_touch=True, is_mobile=True)
    opened.eval("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    opened.page.wait_for_timeout(100)
    assert opened.eval("document.documentElement.scrollWidth") <= 390
    wide = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth + 1)"
    assert opened.eval(f"{wide}.map((one) => one.ariaLabel)") == []
    assert opened.page.is_visible(".source-code .row .text")


def test_where_source_is_looked_for(tmp_path: Path) -> None:
    """The longest suffix of the path below a root, then the path; never a file that is no source, too large, or
    moved."""
    for name, text in (
        ("deep/src/a.hip", "deep"),
        ("src/a.hip", "near"),
        ("a.hip", "top"),
        ("secret", "s"),
        (".env", "s"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "large.hip").write_bytes(b"\n" * ((2 << 20) + 1))
    (tmp_path / "folder.hip").mkdir()

    def read(path: str, *roots: Path) -> tuple[str | None, str]:
        (file,) = read_sources([path], roots)
        return None if file.lines is None else "\n".join(file.lines), file.note

    assert read("/build/deep/src/a.hip", tmp_path)[0] == "deep"
    assert read("/build/other/src/a.hip", tmp_path)[0] == "near"
    assert read("/build/b.hip", tmp_path)[1].startswith("it was not found")
    assert read("/build/../a.hip", tmp_path)[0] is None
    assert read(str(tmp_path / "a.hip"))[0] == "top"
    for name in ("secret", ".env"):
        assert read(str(tmp_path / name), tmp_path) == (None, "its name does not have the suffix of a source file")
    assert "exceed" in read(str(tmp_path / "large.hip"))[1]
    assert read(str(tmp_path / "folder.hip"))[0] is None
    assert read("/x\0.hip", tmp_path)[0] is None
    odd = tmp_path / os.fsdecode(b"odd\xff") / os.fsdecode(b"\xe9.hip")
    odd.parent.mkdir()
    odd.write_text("odd")
    kept = os.fsencode(odd).decode(errors="replace")  # as in a run
    assert read(kept)[0] == read(kept.replace(str(tmp_path), "/build"), tmp_path)[0] == "odd"
    assert read("/x\0/\ufffd.hip", tmp_path)[0] is None
    for place, link in (
        ("src/secret.c", "secret"),
        ("src/other.hip", "a.hip"),
        ("src/folder", "deep"),
        ("src/inside.hip", "src/a.hip"),
    ):
        (tmp_path / place).symlink_to(tmp_path / link)
    for name in ("secret.c", "other.hip", "folder/src/a.hip"):
        assert "contains a link" in read(str(tmp_path / "src" / name))[1]
    assert "contains a link" in read("/build/other.hip", tmp_path / "src")[1]
    assert "that is not a source file" in read("/build/src/secret.c", tmp_path)[1]
    assert "contains a link" in read(f"/proc/self/root{tmp_path}/a.hip")[1]
    assert read("/build/src/inside.hip", tmp_path)[0] == "near"  # what a user confirms may have links within
    (late,) = read_sources([str(tmp_path / "a.hip")], (), began_ns=1)
    assert "changed after the run" in late.note


def test_source_path_is_for_pages(mix_run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(mix_run), "--source-path", str(tmp_path), "--format", "json"]) == 1
    assert "--source-path works with the format html, and not with --against" in capfd.readouterr().err


def test_ratios_are_not_added() -> None:
    columns: dict[str, list[float | int | None]] = {
        "lines": [30, 10],
        "requests": [10, 10],
        "lines/request": [3.0, 1.0],
        "efficiency %": [20.0, 100.0],
        "other %": [1, 2],
    }
    assert together("lines", columns, [0, 1]) == 40
    assert together("lines/request", columns, [0, 1]) == 2
    assert together("efficiency %", columns, [0, 1]) == 40
    assert together("other %", columns, [0, 1]) is None
    assert together("other %", columns, [1]) == 2


def test_spans() -> None:
    assert (
        span([SourceLine("/x/a.hip", 12), None, SourceLine("/x/a.hip", 9), SourceLine("/y/b.h", 400)]) == "a.hip:9-12"
    )
    assert span([None]) == ""
