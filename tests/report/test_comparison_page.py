"""The page of two runs in a browser: that it says what the comparison says, and which blocks ran otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from luthier.report.blocks import changes
from luthier.report.compare import compared
from luthier.run.folder import RunFolder
from run_folders import code, kernel, launch, write_run

from .conftest import Opened

Open = Callable[..., Opened]
HOSTILE = '</script><img src=x onerror="window.hacked=1">{{7*7}}'


def rows(opened: Opened, table: str) -> list[list[str]]:
    script = f"""[...document.querySelectorAll('table[aria-label="{table}"] tbody tr')]
        .map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"""
    return list(opened.eval(script))


def build(folder: Path, digest: str, counts: dict[int, int], texts: list[list[str]], **more: Any) -> Path:
    """Write a run of kernel k with blocks of these instructions and execution counts (default: once)."""
    same = {"kernel": "k", "object": "app", "digest": digest}
    tables: dict[str, list[dict[str, Any]]] = {"listings": [], "counts": [], "blocks": []}
    address = 0x1000
    for block, lines in enumerate(texts):
        tables["blocks"].append(
            {**same, "block": block, "function": "k", "address": address, "instructions": len(lines)}
        )
        for text in lines:
            row = {**same, "address": address, "block": block}
            tables["listings"].append({**row, "text": text, "kind": "vector"})
            times = counts.get(block, 1)
            tables["counts"].append(
                {**row, "mnemonic": text.split()[0], "executions": times, "active_lanes": 64 * times}
            )
            address += 4
    return write_run(
        folder,
        kernels=[kernel("k", digest=digest, **more)],
        launches=[launch("k", 0, 1000, 1000 + 10 * sum(counts.values()), digest=digest)],
        **tables,
    )


FIRST = ["v_mov_b32 v0, 0", "s_cbranch_execz 3"]
LOOP = ["v_add_u32 v0, v0, v1", "s_cbranch_scc1 65530"]
LAST = ["global_store_dword v1, v0, s[0:1]", "s_endpgm"]


Side = tuple[int, int, int, int] | None


def changed(kernel: str, first: str, run: Side, against: Side) -> dict[str, Any]:
    """A change as data; of each side the block's number, address, executions and executed instructions."""

    def side(given: Side) -> dict[str, Any] | None:
        return given and dict(zip(("number", "address", "executions", "executed"), given, strict=True)) | {"lines": ""}

    return {"kernel": kernel, "target": "gfx90a", "first": first, "run": side(run), "against": side(against)}


def test_blocks_of_the_same_and_of_another_build(tmp_path: Path) -> None:
    """Blocks of the same code match by number, those of another build by their instructions, without branch targets."""
    old = RunFolder(build(tmp_path / "old", "a", {1: 10}, [FIRST, LOOP, LAST]))
    again = RunFolder(build(tmp_path / "again", "a", {1: 30}, [FIRST, LOOP, LAST]))
    (row,), left, same = changes(again, old)
    assert row.to_json() == changed("k", LOOP[0], (1, 0x1008, 30, 60), (1, 0x1008, 10, 20))
    assert (left, same) == ([], 2)
    added = ["v_nop"]
    new = RunFolder(
        build(tmp_path / "new", "b", {2: 10, 3: 7}, [FIRST, added, [LOOP[0], "s_cbranch_scc1 65528"], LAST])
    )
    changed_blocks, left, same = changes(new, old)
    assert [row.to_json() for row in changed_blocks] == [
        changed("k", LAST[0], (3, 0x1014, 7, 14), (2, 0x1010, 1, 2)),
        changed("k", "v_nop", (1, 0x1008, 1, 1), None),
    ]
    assert (left, same) == ([], 2)


def test_what_cannot_be_compared_is_told(tmp_path: Path) -> None:
    plain = RunFolder(write_run(tmp_path / "plain", kernels=[kernel("k", digest="a")]))
    counted = RunFolder(build(tmp_path / "counted", "a", {}, [FIRST, LAST]))
    assert changes(plain, counted) == ([], [["k", "gfx90a", "counted in the other run only"]], 0)
    unlisted = RunFolder(build(tmp_path / "unlisted", "b", {}, [[f"{text} " for text in FIRST]]))
    (tmp_path / "unlisted" / "listings.parquet").unlink()
    changed_blocks, ((_, _, reason),), _ = changes(RunFolder(unlisted.path), counted)
    assert changed_blocks == []
    assert "no listing" in reason


def test_the_page_says_what_the_comparison_says(tmp_path: Path, open_page: Open) -> None:
    against = build(tmp_path / "old", "a", {1: 10}, [FIRST, LOOP, LAST], vgprs=32)
    run = build(tmp_path / "new", "a", {1: 30, 2: 4}, [FIRST, LOOP, LAST], vgprs=40)
    opened = open_page(run, against)
    (shown,) = rows(opened, "Kernels")
    numbers = {row[2]: row[3:5] for row in compared(RunFolder(run), RunFolder(against))[0].rows}
    assert shown[:4] == ["k", *map(str, numbers["executed"]), "+191.7 %"]
    assert "32 → 40 +25.0 %" in shown
    blocks = rows(opened, "Blocks")
    assert [[row[1], row[2], *row[6:]] for row in blocks] == [
        ["1", "0x1008", "30", "10", "+40", "+200.0 %"],
        ["2", "0x1010", "4", "1", "+6", "+300.0 %"],
    ]
    assert "1 block ran equally often" in opened.text("#block-table")
    assert "70" in opened.text("#totals")
    assert {row[2] for row in rows(opened, "executed opcodes")} == {
        *("v_add_u32", "s_cbranch_scc1", "global_store_dword", "s_endpgm")
    }


def test_of_a_real_program(mix_run: Path, open_page: Open, tmp_path: Path) -> None:
    """A run against itself: nothing differs, and all blocks were compared."""
    opened = open_page(mix_run, mix_run)
    counted = {(row["kernel"], row["block"]) for row in RunFolder(mix_run).rows("counts") if row["block"] is not None}
    assert f"{len(counted)} blocks ran equally often" in opened.text("#block-table").replace(",", "")
    assert rows(opened, "Blocks") == []
    cells = [cell for row in rows(opened, "Kernels") for cell in row]
    assert "=" in cells
    assert not [cell for cell in cells if "→" in cell or cell.startswith(("+", "−", "-", "new", "gone"))]


def test_runs_under_other_tools_say_so(tmp_path: Path, open_page: Open) -> None:
    """Times of such runs are not those of the program alone."""
    plain, counted = (build(tmp_path / name, "a", {}, [FIRST, LOOP, LAST]) for name in ("plain", "counted"))
    assert not open_page(counted, plain).page.is_visible("#tools-differ")
    summary = json.loads((counted / "summary.json").read_text())
    summary["tools"] = [{"tool": name, "options": {}, "tables": []} for name in ("one", "two")]
    (counted / "summary.json").write_text(json.dumps(summary))
    opened = open_page(counted, plain)
    assert opened.page.is_visible("#tools-differ")
    assert "under one, two" in opened.text("#runs")


@pytest.mark.rows(2)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1366])
def test_sizes_and_colours(tmp_path: Path, open_page: Open, scheme: str, width: int) -> None:
    against = build(tmp_path / "old", "a", {1: 10}, [FIRST, LOOP, LAST], vgprs=32)
    run = build(tmp_path / "new", "a", {1: 30}, [FIRST, LOOP, LAST], vgprs=40)
    opened = open_page(run, against, width=width, color_scheme=scheme)
    assert opened.eval("document.documentElement.scrollWidth") <= width
    assert (opened.eval("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)") == (
        scheme == "light"
    )


def test_hostile_names_are_inert(tmp_path: Path, open_page: Open) -> None:
    pages = []
    for name, many in (("a", 8), ("b", 12)):
        made = code(HOSTILE, many, block=4, text=HOSTILE)
        listed = {key: [{**row, "digest": name} for row in value] for key, value in made.items()}
        same = {"kernels": [kernel(HOSTILE, digest=name, name=HOSTILE, target=HOSTILE)], **listed}
        value = {"tool": HOSTILE, "variable": "v", "process": 1, "device": 0, "first": 0, "type": "double"}
        pages.append(
            write_run(
                tmp_path / name,
                {"command": [HOSTILE]},
                counters=[{**value, "real": [float("inf") if name == "a" else 1.0]}],
                **same,
            )
        )
    opened = open_page(*pages)
    assert opened.eval("window.hacked") is None
    assert opened.eval("document.querySelectorAll('img').length") == 0
    assert rows(opened, "Kernels")[0][0].startswith("</script><img")
