"""Unmodified programs under every tool that ships: results as without, nothing left out without a word."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from luthier import Tool, ToolModule
from shipped import NAMES, tool_of

from .conftest import RunUnderTools
from .test_programs import SAYS, in_order

TARGETS = ("gfx906", "gfx90a", "gfx1030")
OPTIONS: Mapping[str, Mapping[str, object]] = {
    # Changes that change nothing: results can be compared.
    "instruction_replace": {"find": "v_mov_b32_e32", "put": "v_mov_b32_e32"},
    "register_write": {"at": "v_mov_b32_e32+v_add_f32*", "every": 3},
    "value_log": {"at": "global_store_*+s_endpgm", "values": "vdata+exec"},
}
PROGRAMS = ("saxpy", "reduction", "scan", "transpose", "graph", "sort")
ALL_PROGRAMS = (*SAYS, "saxpy")
PAIRS = [(NAMES[at], NAMES[(at + len(NAMES) // 2) % len(NAMES)]) for at in range((len(NAMES) + 1) // 2)]
FACTOR = 0x40400000
"""The bits of 3.0, by which saxpy multiplies."""
UNORDERED = {"exchange": {"launch_log", "lds_race"}}
"""Programs whose launches wait for each other, and tools that make one wait for the other."""

Build = Callable[[str], Path]
UnderTools = Callable[..., RunUnderTools]


def check(ran: RunUnderTools, program: str) -> dict[str, Any]:
    """The program did what it does alone; all that was not instrumented is told."""
    assert ran.code == 0, ran.err
    assert program == "saxpy" or in_order(program, ran.out) == SAYS[program]
    assert ran.summary["faults"] == []
    own = {name: kernel for name, kernel in ran.kernels().items() if not kernel["skipped"]}
    assert own
    for kernel in own.values():
        assert kernel["covered"] or kernel["refused"] or kernel["reason"], kernel
    return own


def run_folder(path: Path, names: Sequence[str]) -> Path | None:
    """The run directory, for tools that need one."""
    return path / "run" if "lift_dump" in names else None


def made(make_module: Callable[..., ToolModule], name: str) -> Tool:
    return tool_of(make_module, name, TARGETS, **OPTIONS.get(name, {}))


@pytest.mark.rotating(12)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", NAMES)
def test_alone(
    build_program: Build,
    under_tools: UnderTools,
    make_module: Callable[..., ToolModule],
    tmp_path: Path,
    name: str,
    program: str,
) -> None:
    """On each target for some programs."""
    target = TARGETS[(NAMES.index(name) + PROGRAMS.index(program)) % len(TARGETS)]
    folder = run_folder(tmp_path, [name])
    ran = under_tools(f"emu:{target}", [made(make_module, name)], build_program(program), folder=folder)
    own = check(ran, program)
    (tool,) = ran.summary["tools"]
    assert tool["tool"] == name
    rows = [row for table in tool["tables"] for row in table["rows"]]
    has_sites = any(kernel["sites"] or kernel["instrumented"] for kernel in own.values())
    assert rows or not has_sites
    if folder is not None:
        assert {Path(row[1]).parent for row in rows} == {folder / "lifted"}
        assert {row[0] for row in rows} == own.keys()
        assert all(Path(row[1]).read_text().startswith(("kernel", "function", row[0])) for row in rows)


@pytest.mark.rotating(24)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("program", ALL_PROGRAMS)
@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_two_at_once(
    build_program: Build,
    under_tools: UnderTools,
    make_module: Callable[..., ToolModule],
    tmp_path: Path,
    pair: tuple[str, str],
    program: str,
    target: str,
) -> None:
    """Every program under every tool, on three targets."""
    names = [name for name in pair if name not in UNORDERED.get(program, ())]
    tools, folder = [made(make_module, name) for name in names], run_folder(tmp_path, names)
    ran = under_tools(f"emu:{target}", tools, build_program(program), folder=folder)
    check(ran, program)
    assert [tool["tool"] for tool in ran.summary["tools"]] == names


def table(ran: RunUnderTools, tool: str, title: str) -> list[dict[str, Any]]:
    (of_tool,) = (one["tables"] for one in ran.summary["tools"] if one["tool"] == tool)
    (found,) = (one for one in of_tool if one["title"].startswith(title))
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


@pytest.mark.rotating(3)
@pytest.mark.parametrize("target", TARGETS)
def test_launches_and_addresses_of_a_known_program(
    build_program: Build, under_tools: UnderTools, make_module: Callable[..., ToolModule], target: str
) -> None:
    """What saxpy's source says: its launch, arguments, and how often it touches each of its arrays."""
    tools = [made(make_module, name) for name in ("launch_log", "address_heatmap", "coalescing")]
    ran = under_tools(f"emu:{target}", tools, build_program("saxpy"))
    check(ran, "saxpy")
    (launch,) = table(ran, "launch_log", "launches")
    arguments = dict(one.split("=") for one in launch["arguments"].split(", "))
    assert len(arguments) == 4
    factor, x, y, count = arguments.values()
    allocations = {row["allocation"]: row for row in table(ran, "address_heatmap", "allocations")}
    n = int(count)
    assert int(factor) == FACTOR
    assert allocations[x]["loads"] == allocations[y]["loads"] == allocations[y]["stores"] == n
    assert allocations[x]["stores"] == 0
    assert allocations[x]["bytes"] == allocations[y]["bytes"] == 4 * n
    (requests,) = table(ran, "coalescing", "coalescing")
    assert requests["bytes"] == 3 * 4 * n
    work_items = int(launch["grid"].partition("x")[0])
    assert work_items >= n
