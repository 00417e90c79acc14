"""Counts that GPUs gave, against the emulated device and the tools that model what GPUs count (docs/hardware.md)."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from luthier import Tool, ToolModule, load_object, open_device, patch_object, reported
from luthier.emulator.running.stats import LaunchStats
from shipped import tool_of

from luthier_build.compile import compile_application
from luthier_build.selftest.devices import sq_counters
from luthier_build.selftest.launches import ELEMENTS, LAUNCHES, SOURCE

FOLDER = Path(__file__).parent
RECORDS = tomllib.loads((FOLDER / "records.toml").read_text())
COUNTERS = RECORDS["counters"]
CONFLICTS, CYCLES = RECORDS["lds_bank_conflicts"], RECORDS["lds_cycles"]


def name_of(record: dict[str, Any]) -> str:
    return f"{record['kernel']} {record['gpu']}"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("hardware")

    def build(target: str) -> Path:
        path = folder / f"{target}.hsaco"
        if not path.exists():
            compile_application(SOURCE, target, path, flags=["-O3"])
        return path

    return build


def launched(data: Any, target: str, kernel: str, block: int = 64, grid: int = 1) -> tuple[Any, LaunchStats]:
    module = open_device(f"emu:{target}").load(data)
    return module, module.kernel(kernel).launch(*LAUNCHES[kernel].arguments(), grid=grid, block=block)


def counted(stats: LaunchStats) -> Counter[str]:
    """Return the counters of a launch, of all its waves."""
    counters = sq_counters(stats)
    assert stats.lift is not None
    for instruction in stats.lift().instructions:
        if instruction.memory is not None and instruction.memory.space == "global":
            lanes = stats.active_lanes_at(instruction.address)
            counters["TCP_TOTAL_READ" if instruction.memory.kind == "load" else "TCP_TOTAL_WRITE"] += lanes
    return counters


def tool_row(tool: Tool, path: Path, target: str, kernel: str, block: int, grid: int = 1) -> dict[str, Any]:
    """Return the row of a kernel in a tool's first table."""
    patched = patch_object(load_object(path), tool.instrument, strict=True)
    module, _ = launched(patched.data, target, kernel, block, grid)
    table = reported(tool, module, patched)[0]
    (row,) = (dict(zip(table.columns, row, strict=True)) for row in table.rows if row[0] == kernel)
    return row


@pytest.mark.parametrize("record", COUNTERS, ids=name_of)
def test_instructions(built: Callable[[str], Path], record: dict[str, Any]) -> None:
    copies = record["kernel"] == "copy"
    block, grid = (256, ELEMENTS // 256) if copies else (64, 1)
    _, stats = launched(built(record["target"]), record["target"], record["kernel"], block, grid)
    counters = counted(stats)
    assert {name: counters[name] / stats.waves for name in record["values"]} == record["values"]


def test_one_instruction_more_is_noticed(built: Callable[[str], Path], tmp_path: Path) -> None:
    """The control: a kernel that is not the one that was measured has other counts."""
    source = SOURCE.read_text().replace("to[i] = from[i];", "to[i] = from[i] + 1;")
    (tmp_path / "other.hip").write_text(source)
    other = compile_application(tmp_path / "other.hip", "gfx90a", tmp_path / "other.hsaco", flags=["-O3"])
    _, stats = launched(other, "gfx90a", "copy", 256, ELEMENTS // 256)
    record = next(record for record in COUNTERS if record["gpu"] == "MI200")
    counters = counted(stats)
    differing = {name for name, value in record["values"].items() if counters[name] / stats.waves != value}
    assert differing == {"SQ_INSTS", "SQ_INSTS_VALU", "SQ_INSTS_VALU_ADD_F64"}


@pytest.mark.parametrize("record", [record for record in COUNTERS if "l2_requests" in record], ids=name_of)
@pytest.mark.parametrize("kind", ["load", "store"])
def test_requests_to_l2(
    make_module: Callable[..., ToolModule], built: Callable[[str], Path], record: dict[str, Any], kind: str
) -> None:
    target = record["target"]
    tool = tool_of(make_module, "coalescing", (target,), kinds=kind)
    row = tool_row(tool, built(target), target, record["kernel"], 256, ELEMENTS // 256)
    assert row["lines"] / (ELEMENTS // 64) == record["l2_requests"][kind]


def test_lds_bank_conflicts(make_module: Callable[..., ToolModule], built: Callable[[str], Path]) -> None:
    target = CONFLICTS["target"]
    tool = tool_of(make_module, "lds_bank_conflicts", (target,))
    rows = [tool_row(tool, built(target), target, "one_bank", lanes) for lanes in range(1, 65)]
    assert [row["conflicts"] for row in rows] == CONFLICTS["conflicts"]
    assert [row["cycles"] for row in rows[:20]] == CONFLICTS["cycles"]


@pytest.mark.parametrize("target", [name for name in CYCLES if name != "kernel"])
def test_lds_cycles(make_module: Callable[..., ToolModule], built: Callable[[str], Path], target: str) -> None:
    tool = tool_of(make_module, "lds_bank_conflicts", (target,))
    assert tool_row(tool, built(target), target, CYCLES["kernel"], 16)["cycles"] == CYCLES[target]
