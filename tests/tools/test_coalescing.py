"""The coalescing tool against known patterns, and against the addresses that the emulated device sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accesses import take_accesses
from luthier.emulator.inspection.debug import WaveStep
from luthier.errors import ToolError
from luthier.verify.launch_plan import read_plans

from .conftest import ALL, TARGETS, rows

ROOT = Path(__file__).parents[2]
PLANS = read_plans(ROOT / "examples/apps/launch.toml")
STRIDE = """
#include <hip/hip_runtime.h>
extern "C" __global__ void strided(const TYPE *in, TYPE *out, unsigned stride) {
  out[threadIdx.x] = in[threadIdx.x * stride];
}
"""
SIZES = {"float": 4, "double": 8, "float4": 16, "char": 1}


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("type", SIZES)
def test_lines_of_a_stride(bench: Any, shipped: Any, type: str, target: str) -> None:
    """A wave that reads at a stride touches as many lines as its addresses are in: closed form."""
    size, line, wave = SIZES[type], ALL[target].vector_cache_line, ALL[target].wave_sizes[0]
    source = STRIDE.replace("TYPE", type)
    for stride in (0, 1, 2, 7, 32, 1000):
        data = np.zeros(1000 * wave * size + 16, np.uint8)
        kernel = bench(source, "strided", target, data, np.zeros(wave * size, np.uint8), stride, block=wave)
        tables = kernel.under(shipped("coalescing"))
        begin, out = kernel.placed[0].address, kernel.placed[1].address
        touched = {(begin + lane * stride * size) // line for lane in range(wave)}
        touched |= {(begin + lane * stride * size + size - 1) // line for lane in range(wave)}
        stored = ALL[target].vector_store_line
        written = (out + wave * size - 1) // stored - out // stored + 1
        load, store = (
            next(row for row in rows(tables["most cache lines"]) if word in row["instruction"])
            for word in ("load", "store")
        )
        assert (load["requests"], load["lanes"], load["lines"]) == (1, wave, len(touched))
        assert load["efficiency %"] == pytest.approx(100 * wave * size / (len(touched) * line), abs=0.06)
        assert (store["requests"], store["lanes"], store["lines"]) == (1, wave, written)
        (total,) = rows(tables["coalescing"])
        assert (total["requests"], total["bytes"], total["lines"]) == (2, 2 * wave * size, len(touched) + written)


def observed(kernel: Any, load_line: int, store_line: int) -> dict[int, tuple[int, int, int]]:
    """Requests, lanes and lines by address of the instruction, as the device sees them."""
    counts: dict[int, Counter[str]] = {}
    before: list[WaveStep] = []

    def see(step: WaveStep) -> None:
        accesses = [one for one in take_accesses(step.worker) if not one.scalar]
        if accesses and before[0].text.startswith(("global_", "flat_", "buffer_")):
            row = counts.setdefault(before[0].address, Counter())
            lines: set[int] = set()
            line = store_line if "_store_" in before[0].text else load_line
            for access in accesses:
                last = access.places + np.uint64(access.size - 1)
                lines.update((access.places // line).tolist(), (last // line).tolist())
            row["requests"] += 1
            row["lanes"] += len(accesses[0].lanes)
            row["lines"] += len(lines)
        before[:] = [step]

    kernel.watch(see)
    return {address: (row["requests"], row["lanes"], row["lines"]) for address, row in counts.items()}


@pytest.mark.rows(1)
@pytest.mark.parametrize("line", [0, 256])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["vector_add", "divergent_loop", "function_call", "reduction"])
def test_as_the_device_sees_it(bench: Any, shipped: Any, name: str, target: str, line: int) -> None:
    plan = PLANS[name]
    arguments = plan.materialise()
    source = ROOT / "examples/apps" / f"{name}.hip"
    kernel = bench(source, name, target, *arguments, grid=plan.grid[0], block=plan.block[0])
    expected = observed(kernel, line or ALL[target].vector_cache_line, line or ALL[target].vector_store_line)
    tables = kernel.under(shipped("coalescing", line=line, top=0))
    table = rows(tables["most cache lines"])
    assert {int(row["address"], 16): (row["requests"], row["lanes"], row["lines"]) for row in table} == expected
    assert expected
    assert "not measured" not in tables


@pytest.mark.parametrize("options", [{"line": 48}, {"line": 8}, {"spaces": "lds"}, {"kinds": "global"}], ids=str)
def test_options_that_there_are_not(shipped: Callable[..., Any], options: Any) -> None:
    with pytest.raises(ToolError, match="option"):
        shipped("coalescing", **options)


def test_a_full_table_is_told(bench: Any, shipped: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = shipped("coalescing")
    monkeypatch.setattr(tool.sums, "capacity", 1)
    kernel = bench(
        STRIDE.replace("TYPE", "float"), "strided", "gfx90a", np.zeros(256, np.uint8), np.zeros(256, np.uint8), 1
    )
    tables = {}
    from luthier import patch_object, reported

    patched = patch_object(kernel.object, tool.instrument)
    monkeypatch.undo()
    module, _ = kernel.launch(patched.data)
    tables = {table.title: table for table in reported(tool, module, patched)}
    (row,) = rows(tables["not measured"])
    assert "store" in row["instruction"]
    assert "supports at most 1 sites" in row["reason"]
    assert len(tables["most cache lines"].rows) == 1


def test_verify_shows_what_the_tool_reports(app: Any, shipped: Any) -> None:
    """Its tables, and not the bytes of its large variable as one number."""
    from luthier import load_object
    from luthier.verify import verify_kernel

    verdict = verify_kernel(load_object(app("vector_add", "gfx90a")), shipped("coalescing"), PLANS["vector_add"])
    assert verdict.problems == ()
    assert verdict.counters == {}
    (total,) = rows(verdict.tables[0])
    assert (total["requests"], total["bytes"]) == (48, 12000)
