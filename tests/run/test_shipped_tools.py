"""Unmodified programs under every tool that ships: results as without, nothing left out without a word."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from luthier import Tool, ToolModule
from shipped import NAMES, tool_of
from shipped_tools import shipped_tools

from .conftest import RunUnderTools
from .expectations import EXPECTED, truth, well_formed
from .test_programs import SAYS, in_order
from .test_tools import UNSTEADY

TARGETS = ("gfx906", "gfx90a", "gfx1030")
TOOLS = shipped_tools()
OPTIONS: Mapping[str, Mapping[str, object]] = {
    # What expectations are about; other tools have those of `[tool.shipped]`, which change no results either.
    "register_write": {"at": "v_mov_b32_e32+v_add_f32*", "every": 3},
    "value_log": {"at": "global_store_*+s_endpgm", "values": "vdata+exec"},
    "instr_count": {"per_block": True},
    **{
        name: {"top": 0}
        for name in ("opcode_histogram", "block_timing", "divergence", "coalescing", "lds_bank_conflicts")
    },
    **{name: {"top": 0} for name in ("address_heatmap", "launch_log")},
}
PROGRAMS = ("saxpy", "reduction", "scan", "transpose", "graph", "sort")
ALL_PROGRAMS = (*SAYS, "saxpy")
FACTOR = 3
"""By which saxpy multiplies."""
FINDERS = {"fp_check"}
"""Tools whose tables are empty where nothing is wrong."""
UNORDERED = {"exchange": {"launch_log", "lds_race", "memcheck"}}
"""Programs whose launches wait for each other, and tools that make one wait for the other."""

Counts = Sequence[tuple[bytes, Mapping[int, tuple[int, int]]]]
Build = Callable[[str], Path]
UnderTools = Callable[..., RunUnderTools]


def rounds(names: Sequence[str]) -> list[list[tuple[str, ...]]]:
    """A tournament: in each round, every tool runs once, in pairs, and one alone if their number is odd; after all
    rounds, every tool has run with every other one."""
    places: list[str | None] = [*names, None] if len(names) % 2 else [*names]
    half, made = len(places) // 2, []
    for _ in places[1:]:
        pairs = zip(places[:half], reversed(places[half:]), strict=True)
        made.append([tuple(one for one in pair if one) for pair in pairs])
        places = [places[0], places[-1], *places[1:-1]]
    return made


WHERE = [(program, target) for target in TARGETS for program in ALL_PROGRAMS]
MATRIX = [
    pytest.param(*where, together, id=f"{'+'.join(together)}-{'-'.join(where)}")
    for number, where in enumerate(WHERE)
    for together in rounds(NAMES)[number % len(rounds(NAMES))]
]
"""Every program on three targets under every tool, and every pair of tools on some of them."""


NOT_COUNTED = {*UNSTEADY, "compiled_late"}
"""Programs whose numbers are not compared: the latter's three modules, each freed before the next, have kernels of one
name, which what is expected here takes for one."""


@pytest.fixture(scope="module")
def known() -> dict[tuple[str, str], Counts]:
    """Return the devices' counts by program and target."""
    return {}


Check = Callable[[RunUnderTools, str, str], dict[str, Any]]


@pytest.fixture
def check(build_program: Build, executed: Callable[..., Counts], known: dict[tuple[str, str], Counts]) -> Check:
    """``check(ran, program, target)``: check that the program behaves as without tools, each tool reports the device's
    counts of a run without tools, and everything that was not instrumented is listed. Return the program's own
    kernels."""

    def check(ran: RunUnderTools, program: str, target: str) -> dict[str, Any]:
        assert ran.code == 0, ran.err
        assert program == "saxpy" or in_order(program, ran.out) == SAYS[program]
        assert ran.summary["faults"] == []
        own = {name: kernel for name, kernel in ran.kernels().items() if not kernel["skipped"]}
        assert own
        for kernel in own.values():
            assert kernel["covered"] or kernel["refused"] or kernel["reason"], kernel
        if program not in NOT_COUNTED and all(kernel["covered"] for kernel in own.values()):
            if (program, target) not in known:
                known[program, target] = executed(f"emu:{target}", build_program(program))
            expected = truth(known[program, target], own)
            for tool in ran.summary["tools"]:
                EXPECTED.get(tool["tool"], well_formed)(tool["tables"], expected)
        return own

    return check


def run_folder(path: Path, names: Sequence[str]) -> Path | None:
    """The run directory, for tools that need one."""
    return path / "run" if "lift_dump" in names else None


def made(make_module: Callable[..., ToolModule], name: str) -> Tool:
    return tool_of(make_module, name, TARGETS, **OPTIONS.get(name, TOOLS[name].trial))


@pytest.mark.thorough
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", NAMES)
def test_alone(
    build_program: Build,
    under_tools: UnderTools,
    make_module: Callable[..., ToolModule],
    check: Check,
    tmp_path: Path,
    name: str,
    program: str,
) -> None:
    """On each target for some programs."""
    target = TARGETS[(NAMES.index(name) + PROGRAMS.index(program)) % len(TARGETS)]
    folder = run_folder(tmp_path, [name])
    ran = under_tools(f"emu:{target}", [made(make_module, name)], build_program(program), folder=folder)
    own = check(ran, program, target)
    (tool,) = ran.summary["tools"]
    assert tool["tool"] == name
    rows = [row for table in tool["tables"] for row in table["rows"]]
    has_sites = any(kernel["sites"] or kernel["instrumented"] for kernel in own.values())
    assert rows or not has_sites or name in FINDERS
    if folder is not None:
        assert {Path(row[1]).parent for row in rows} == {folder / "lifted"}


def test_every_tool_meets_every_other_one() -> None:
    met = [frozenset(together) for one in rounds(NAMES) for together in one if len(together) == 2]
    assert len(met) == len(set(met)) == len(NAMES) * (len(NAMES) - 1) // 2
    assert all(sorted(name for together in one for name in together) == NAMES for one in rounds(NAMES))
    assert len(WHERE) >= len(rounds(NAMES))


@pytest.mark.rows(6, "target", "together")
@pytest.mark.parametrize(("program", "target", "together"), MATRIX)
def test_two_at_once(
    build_program: Build,
    under_tools: UnderTools,
    make_module: Callable[..., ToolModule],
    check: Check,
    tmp_path: Path,
    program: str,
    target: str,
    together: tuple[str, ...],
) -> None:
    """Every program under every tool."""
    names = [name for name in together if name not in UNORDERED.get(program, ())]
    tools, folder = [made(make_module, name) for name in names], run_folder(tmp_path, names)
    ran = under_tools(f"emu:{target}", tools, build_program(program), folder=folder)
    check(ran, program, target)
    assert [tool["tool"] for tool in ran.summary["tools"]] == names


def table(ran: RunUnderTools, tool: str, title: str) -> list[dict[str, Any]]:
    (of_tool,) = (one["tables"] for one in ran.summary["tools"] if one["tool"] == tool)
    (table,) = (one for one in of_tool if one["title"].startswith(title))
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_launches_and_addresses_of_a_known_program(
    build_program: Build, under_tools: UnderTools, make_module: Callable[..., ToolModule], check: Check, target: str
) -> None:
    """The facts of saxpy's source: launch, arguments, and accesses to each array."""
    tools = [made(make_module, name) for name in ("launch_log", "address_heatmap", "coalescing")]
    ran = under_tools(f"emu:{target}", tools, build_program("saxpy"))
    check(ran, "saxpy", target)
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
    work_items = int(launch["work-items"].partition("x")[0])
    assert work_items >= n
