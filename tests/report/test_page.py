"""The page in a browser: that it says what the tables say, and that nothing in a run can make it do anything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from luthier.run.folder import RunFolder
from luthier.terminal import visible_lines
from playwright import sync_api
from run_folders import SITE, code, kernel, launch, write_run

from .conftest import Opened

Open = Callable[..., Opened]
HOSTILE = "</script><img src=x onerror=\"window.hacked=1\"><svg onload='window.hacked=2'>&lt;b&gt;\u2028{{7*7}}${7*7}"
"""What a name must not do."""


def _rows(opened: Opened, table: str) -> list[list[str]]:
    """The cells of a table by the name it is labelled with."""
    script = f"""[...document.querySelectorAll('table[aria-label="{table}"] tbody tr')]
        .map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"""
    return list(opened.eval(script))


def _listed(opened: Opened) -> dict[int, tuple[str, float]]:
    """Return address -> (text of the first cell, filled percentage) of the existing rows of the listing."""
    script = """[...document.querySelectorAll('.listing .row[data-at]')].map((row) => [
        row.querySelector('.address').textContent, row.querySelector('.heat').title,
        row.style.getPropertyValue('--share')])"""
    return {int(at, 16): (title, float(share.rstrip("%"))) for at, title, share in opened.eval(script)}


def test_numbers_are_those_of_the_tables(mix_run: Path, open_page: Open) -> None:
    """Kernels by what they executed, the dearest one open, each instruction coloured by its share of the largest."""
    run = RunFolder(mix_run)
    totals: dict[str, int] = {}
    reached = [row for row in run.rows("counts") if row["executions"] is not None]
    for row in reached:
        totals[row["kernel"]] = totals.get(row["kernel"], 0) + row["executions"]
    names = {row["kernel"]: row["name"] for row in run.rows("kernels")}
    opened = open_page(mix_run)
    shown = _rows(opened, "Kernels")
    wanted = [names[symbol] for symbol, _ in sorted(totals.items(), key=lambda item: -item[1])]
    assert [row[0] for row in shown][: len(wanted)] == wanted
    assert set(wanted) == {"collatz", "matmul", "scale", "transpose<float>", "histogram"}
    assert opened.text("#kernel-title") == wanted[0] == "collatz"
    counts = {row["address"]: row["executions"] for row in reached if names[row["kernel"]] == wanted[0]}
    opened.page.eval_on_selector(".listing .lines", "view => { view.style.height = '3000px'; view.scrollTop = 0; }")
    sync_api.expect(opened.page.locator(".listing .row[data-at]")).to_have_count(len(counts))
    most = max(counts.values())
    listed = _listed(opened)
    assert {at: int(title.replace(",", "")) for at, (title, _) in listed.items()} == counts
    assert all(abs(share - 100 * counts[at] / most) < 0.01 for at, (_, share) in listed.items())
    blocks: dict[int, int] = {}
    for row in reached:
        if names[row["kernel"]] == wanted[0]:
            blocks[row["block"]] = blocks.get(row["block"], 0) + row["executions"]
    hottest = max(blocks, key=lambda block: blocks[block])
    assert f"block {hottest}, in a loop" in opened.text("#kernel-why")
    entered = {int(row[0]): int(row[3].replace(",", "")) for row in _rows(opened, "Blocks")}
    (table,) = (table for table in run.tool_tables() if "collatz" in table.title)
    assert entered == {int(str(row[0])): row[2] for row in table.rows}, "what the tool itself reported"
    heats = opened.eval("[...document.querySelectorAll('#metric option')].map((one) => one.textContent)")
    assert "lanes: entered" in heats
    assert "idle lanes, summed" in heats


def test_source_lines(mix_run: Path, open_page: Open) -> None:
    """A line stands above the instructions that come from it, as the run's listing says; it can be searched for."""
    source = (Path(__file__).parent / "mix.hip").read_text().splitlines()
    rows = [row for row in RunFolder(mix_run).rows("listings") if "collatz" in row["kernel"]]
    loop = next(number for number, line in enumerate(source, 1) if "while (v > 1)" in line)
    assert any(row["file"].endswith("mix.hip") and row["line"] == loop for row in rows)
    assert any(row["inlined"] for row in RunFolder(mix_run).rows("listings")), "threadIdx and the like are inlined"
    opened = open_page(mix_run)
    opened.page.fill("#search", f"mix.hip:{loop}")
    opened.page.press("#search", "Enter")
    opened.page.wait_for_selector(f".source-code .row.at[data-line='{loop}']")
    opened.page.wait_for_selector(".listing .row.at")
    above = """[...document.querySelectorAll('.listing .row')].reduce(([last, done], row) => done ? [last, done] :
        row.classList.contains('at') ? [last, true] :
        [row.classList.contains('source') ? row.textContent : last, false], ['', false])[0]"""
    assert opened.eval(above).startswith(f"mix.hip:{loop}")


def test_search(mix_run: Path, open_page: Open) -> None:
    """All by keys: a slash, letters, arrows, Enter."""
    page = open_page(mix_run).page
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("mat")
    assert page.get_attribute("#search", "aria-expanded") == "true"
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#kernel-title")).to_have_text("matmul")
    page.wait_for_selector(".listing .row[data-at]")
    page.keyboard.press("/")
    page.keyboard.type("s_barrier")
    matches = page.locator("#found li")
    sync_api.expect(matches.nth(1)).to_contain_text("s_barrier")
    texts = [one for one in matches.all_inner_texts() if "0x" in one]
    assert [" of " in one for one in texts] == [False, False, *[True] * (len(texts) - 2)], "the open kernel's first"
    assert len(texts) > 2
    second = matches.all_inner_texts().index(texts[1])
    for _ in range(second):
        page.keyboard.press("ArrowDown")
    address = matches.nth(second).inner_text().split("0x")[1].split(",")[0]
    page.keyboard.press("Enter")
    page.wait_for_selector(".listing .row.at")
    assert f"0x{address}" in page.inner_text(".listing .row.at")
    assert "s_barrier" in page.inner_text(".listing .row.at")
    page.keyboard.press("/")
    page.keyboard.type("no such thing")
    sync_api.expect(page.locator("#found")).to_have_text("nothing found")
    page.keyboard.press("Escape")
    assert not page.is_visible("#found")


_CONTRAST = """() => {
  const channels = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ground = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) layers.push(channels(getComputedStyle(one).backgroundColor));
    return layers.reverse().reduce(
      (below, [r, g, b, alpha = 1]) => below.map((value, at) => [r, g, b][at] * alpha + value * (1 - alpha)),
      [255, 255, 255]);
  };
  let worst = [99, ''];
  for (const element of document.querySelectorAll('body *:not(script)')) {
    const says = [...element.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim());
    if (!says || !element.getClientRects().length || element.closest('svg, .hidden, .skip, noscript')) continue;
    const pair = [light(channels(getComputedStyle(element).color)), light(ground(element))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < worst[0]) worst = [ratio, element.outerHTML.slice(0, 200)];
  }
  return worst;
}"""
"""The smallest contrast of a text with what is behind it, as WCAG has it, and where."""


@pytest.mark.rows(1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(mix_run: Path, open_page: Open, scheme: str) -> None:
    """As the system says, until the switch says otherwise; all text can be read in both."""
    opened = open_page(mix_run, color_scheme=scheme)
    ground = "getComputedStyle(document.body).backgroundColor"
    first = opened.eval(ground)
    assert (first == "rgb(255, 255, 255)") == (scheme == "light")
    ratio, where = opened.eval(_CONTRAST)
    assert ratio >= 4.5, where
    picture = opened.page.locator("#timeline canvas").screenshot()
    opened.page.click("#theme")
    assert opened.eval(ground) != first
    assert opened.page.locator("#timeline canvas").screenshot() != picture


def test_phone(mix_run: Path, open_page: Open) -> None:
    """No scrolling sideways at 360 pixels, and the instructions are there."""
    opened = open_page(mix_run, width=360, height=740, has_touch=True, is_mobile=True)
    assert opened.eval("document.documentElement.scrollWidth") <= 360
    texts = opened.page.locator(".listing .row[data-at] .text")
    box = texts.first.bounding_box()
    assert box is not None
    assert box["width"] > 150
    bars = "[...document.querySelectorAll('#kernel-table .bar')]"
    lefts = opened.eval(f"{bars}.map((bar) => Math.round(bar.getBoundingClientRect().left))")
    assert len(set(lefts)) == 1, "bars begin in line, or they compare nothing"


def test_blocks_and_graph_side_by_side(mix_run: Path, open_page: Open) -> None:
    """The table of blocks has the width that it needs."""
    opened = open_page(mix_run, width=1280)
    assert (
        opened.eval("""(() => { const table = document.querySelector('table[aria-label="Blocks"]');
        return table.scrollWidth - table.parentElement.clientWidth; })()""")
        <= 0
    )


def test_flame_graph(tmp_path: Path, open_page: Open) -> None:
    """By calls, Python functions and ranges, whose names are inert; a click shows one part, and Back the rest."""
    sizes = dict.fromkeys(("grid_x", "block_x"), 64) | dict.fromkeys(("grid_y", "grid_z", "block_y", "block_z"), 1)
    frame = {"process": 1, "python": False, "file": None, "line": 0, "object": "app", "offset": 16}
    names = ["_start", "main", HOSTILE, "other"]
    frames = [frame | {"frame": at, "function": name} for at, name in enumerate(names)]
    frames[2] |= {"python": True, "file": "/a/b.py", "line": 7, "object": None, "offset": None}
    stacks = [
        {"process": 1, "stack": 1, "frames": [0, 1, 2], "ranges": ["outer"], "whole": True},
        {"process": 1, "stack": 2, "frames": [0, 1, 3], "ranges": [], "whole": False},
    ]
    launches = [launch("k", at, None, None, stack=1 if at < 3 else 2, **sizes) for at in range(4)]
    run = write_run(tmp_path / "run", kernels=[kernel("k")], launches=launches, stacks=stacks, frames=frames)
    opened = open_page(run)
    chart = opened.page.locator(".flame")

    def shown() -> list[str]:
        return [
            text.split("\n")[0] for text in chart.locator("button").evaluate_all("all => all.map((one) => one.title)")
        ]

    escaped = HOSTILE.replace("\u2028", "\\u2028")
    assert shown() == ["all", "main", escaped, "k", "(outer calls unknown)", "_start", "main", "other", "k"]
    assert opened.eval("window.hacked") is None
    chart.locator("button.python").click()
    assert shown() == ["all", "main", escaped, "k"]
    opened.page.get_by_role("button", name="Back", exact=True).click()
    opened.page.get_by_label("Group by").select_option("range")
    assert shown() == ["all", "outer", "k", "(no range)", "k"]
    opened.page.get_by_label("Group by").select_option("python")
    assert chart.locator("button.python").get_attribute("title") == f"{escaped}\n/a/b.py, line 7\n3, 75.0 %"


def test_tools_tables_have_names_of_the_source(tmp_path: Path, open_page: Open) -> None:
    """In titles and cells, and only where they are one kernel's alone without parameters."""
    run = write_run(tmp_path / "run", kernels=[kernel("_Z5scalePf")])
    summary = json.loads((run / "summary.json").read_text())
    rows = [["_Z5scalePf", 1], ["_Z3addi", 2], ["_Z3addf", 3], ["other", 4]]
    table = {"title": "_Z5scalePf: active lanes", "columns": ["kernel", "lanes"], "rows": rows}
    summary["tools"] = [{"tool": "some", "options": {}, "tables": [table]}]
    (run / "summary.json").write_text(json.dumps(summary))
    opened = open_page(run)
    assert "some scale: active lanes" in opened.text("#tables summary")
    assert [row[0] for row in _rows(opened, "some scale: active lanes")] == ["scale", "add(int)", "add(float)", "other"]


def test_large_kernel_has_the_rows_that_can_be_seen(tmp_path: Path, open_page: Open) -> None:
    """Of 20,000 instructions, the page has only visible rows; the last one can be reached."""
    run = write_run(
        tmp_path / "run",
        kernels=[kernel("big", instructions=20_000)],
        launches=[launch("big", 0, 1100, 1900)],
        **code("big", 20_000, block=25),
    )
    opened = open_page(run)
    assert opened.page.locator(".listing .row").count() < 120
    opened.page.focus(".listing .lines")
    opened.page.keyboard.press("End")
    opened.page.wait_for_selector(f".listing .row[data-at='{20_000 - 1}']")
    assert opened.page.locator(".graph .node").count() == 800
    assert max(share for _, share in _listed(opened).values()) == 100


def test_hostile_names_are_inert(tmp_path: Path, open_page: Open) -> None:
    """Every text of a run is shown as it is, but for what is not printable, and runs nothing."""
    listing = code(HOSTILE, 8, block=4, text=HOSTILE)
    process = {"process": 1, "command": HOSTILE, "launches": 1, "kernels": 1}
    table = {"title": HOSTILE, "columns": ["address", HOSTILE], "rows": [["0x1000", 3], [HOSTILE, 4]]}
    run = write_run(
        tmp_path / "run",
        {
            "command": [HOSTILE, HOSTILE],
            "devices": [HOSTILE],
            "processes": [process],
            "faults": [HOSTILE],
            "tools": [{"tool": HOSTILE, "options": {}, "tables": [table]}],
        },
        kernels=[kernel(HOSTILE, name=HOSTILE, reason=HOSTILE, target=HOSTILE, object=HOSTILE, instructions=8)],
        launches=[launch(HOSTILE, 0, 1100, 1900)],
        sites=[{"kernel": HOSTILE, "digest": "d", "address": 0x1000, **SITE, "status": "refused", "reason": HOSTILE}],
        **listing,
    )
    opened = open_page(run)
    opened.page.fill("#search", "img")
    opened.page.wait_for_timeout(200)
    assert opened.eval("window.hacked") is None
    assert opened.eval("document.querySelectorAll('img, main svg[onload]').length") == 0
    for selector in ("#kernel-title", "#problem", "#found", ".listing .text", "table[aria-label='Refused sites']"):
        assert "</script><img src=x" in opened.page.locator(selector).first.inner_text().replace("\n", "")
    assert opened.eval("document.getElementById('kernel-title').textContent") == visible_lines(HOSTILE)


def test_policy_forbids_what_is_not_the_pages_own(mix_run: Path, open_page: Open) -> None:
    """Even an element that got in would neither run nor load anything."""
    opened = open_page(mix_run)
    opened.eval("document.body.append(Object.assign(document.createElement('script'), {textContent: 'hacked = 1'}))")
    opened.eval("document.body.append(Object.assign(new Image(), {src: 'https://example.org/x.png'}))")
    opened.page.wait_for_timeout(100)
    assert opened.eval("window.hacked") is None
    refused = [one for one in opened.problems if "violates the following Content Security Policy" in one]
    assert len(refused) == 2
    opened.problems.clear()


@pytest.mark.rows(1)
@pytest.mark.parametrize("has", ["nothing", "a launch without times"])
def test_little_to_show(tmp_path: Path, open_page: Open, has: str) -> None:
    tables: dict[str, Any] = {}
    if has != "nothing":
        tables = {"kernels": [kernel("k", requested_sites=0, sites=0)], "launches": [launch("k", 0, None, None)]}
    opened = open_page(write_run(tmp_path / "run", **tables))
    if has == "nothing":
        assert "No kernel was launched" in opened.text("#kernels")
        assert "no launches" in opened.text("#launches")
        assert not opened.page.is_visible("#kernel")
    else:
        assert "code was not recorded" in opened.text("#kernel-why")
        assert "unknown times on the device" in opened.text("#launches")


@pytest.mark.thorough
def test_many_kernels_and_launches(tmp_path: Path, open_page: Open) -> None:
    """10,000 kernels and a million launches: drawn together, and all of them counted."""
    names = [f"kernel_{number}" for number in range(10_000)]
    rows = 1_000_000
    choose = np.random.default_rng(1)
    begin = np.sort(choose.integers(0, 10**9, rows))
    run = write_run(
        tmp_path / "run",
        kernels=[kernel(name, launches=rows // 10_000) for name in names],
        launches={
            "kernel": np.array(names)[np.arange(rows) % 10_000].tolist(),
            "object": "app",
            "digest": "d",
            "process": 1,
            "device": 0,
            "queue": np.arange(rows) % 3,
            "number": np.arange(rows) // 10_000,
            "instrumented": True,
            "time_ns": begin,
            "begin_ns": begin,
            "end_ns": begin + 500,
        },
    )
    opened = open_page(run)
    assert opened.page.locator("table[aria-label='Kernels'] tbody tr").count() == 100
    assert "1.00 M" in opened.text("#totals")
    assert "1,000,000 launches" in opened.text("#launches")
    assert (tmp_path / "page-0.html").stat().st_size < 2_000_000
    opened.page.fill("#search", "kernel_9876")
    sync_api.expect(opened.page.locator("#found li")).to_have_count(1)
    opened.page.press("#search", "Enter")
    sync_api.expect(opened.page.locator("#kernel-title")).to_have_text("kernel_9876")


def test_alike_tables_of_many_kernels_are_one(tmp_path: Path, open_page: Open) -> None:
    """With the kernels in a column; search opens it. Two tables stay two."""
    names = [f"k{number}" for number in range(9)]
    alike = [
        {"title": name, "columns": ["block", "entered"], "rows": [[0, at], [1, 7]]} for at, name in enumerate(names)
    ]
    few = [{"title": name, "columns": ["lanes"], "rows": [[at]]} for at, name in enumerate(names[:2])]
    tools = [{"tool": "many", "options": {}, "tables": [*alike, *few]}]
    opened = open_page(write_run(tmp_path / "run", {"tools": tools}, kernels=[kernel(name) for name in names]))
    assert opened.eval("[...document.querySelectorAll('#tables > details > summary')].map((one) => one.innerText)") == [
        "many 9 tables 18 rows",
        "many k0 1 row",
        "many k1 1 row",
    ]
    opened.page.fill("#search", "many k5")
    opened.page.press("#search", "Enter")
    sync_api.expect(opened.page.locator("#tables > details").first).to_have_attribute("open", "")
    assert ["k8", "0", "8"] in _rows(opened, "many 9 tables")


def test_without_lines_code_has_the_whole_width(tmp_path: Path, open_page: Open) -> None:
    """And counts of a kernel of which some launches ran the original say so."""
    rows = [launch("k", number, 10, 20, grid_x=64, block_x=64) | {"instrumented": number < 1} for number in range(3)]
    run = write_run(tmp_path / "run", kernels=[kernel("k", launches=3, instrumented=1)], launches=rows, **code("k", 6))
    opened = open_page(run, width=1500)
    assert opened.eval("document.querySelector('.listing').clientWidth") > 1300
    assert opened.page.locator(".source-code, [aria-label='Source file']").count() == 0
    assert "Counts of the kernel cover 1 of 3 launches" in opened.text("#kernel-shapes")
