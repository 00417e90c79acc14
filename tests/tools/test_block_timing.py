"""The timing tool on the emulated device, whose clock advances by 100 only when it is read: a time is a number of
readings, which follows from the source."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from luthier import InstrumentationTask, lift, patch_object, reported
from luthier.errors import ToolError

from .conftest import ALL, TARGETS, rows

TICK = 100
READINGS = {("gfx1201", "cycles"): 3, ("gfx1201 wave64", "cycles"): 3}
"""Of the clock's registers for one value, if not one: GFX12's halves are read high, low, high."""
ROUNDS = """
#include <hip/hip_runtime.h>
__device__ inline unsigned long long now() {
#if defined(__GFX11__)
  return __builtin_amdgcn_s_sendmsg_rtnl(0x83);
#elif defined(__GFX12__)
  return __builtin_readcyclecounter();
#else
  return __builtin_amdgcn_s_memtime();
#endif
}
extern "C" __global__ void rounds(unsigned *out, unsigned count, unsigned skip) {
  unsigned sum = 1;
  __builtin_amdgcn_s_setprio(1);
#pragma unroll 1
  for (unsigned round = 0; round < count; ++round)
    sum += now() != 0;
  __builtin_amdgcn_s_setprio(2);
  out[threadIdx.x] = sum;
}
"""


def timed(kernel: Any, tool: Any) -> dict[str, list[dict[str, Any]]]:
    patched = patch_object(kernel.object, tool.instrument, [kernel.kernel])
    _, before = kernel.launch(kernel.object.data)
    module, after = kernel.launch(patched.data)
    assert before == after
    return {table.title: rows(table) for table in reported(tool, module, patched)}


@pytest.mark.rows(1)
@pytest.mark.parametrize("clock", ["auto", "cycles", "real"])
@pytest.mark.parametrize("target", TARGETS)
def test_readings(bench: Any, shipped: Any, target: str, clock: str) -> None:
    """The time of a wave is that of the readings in its loop and its own; of the way between two points likewise."""
    count = 7
    kernel = bench(ROUNDS, "rounds", target, np.zeros(32, np.uint32), count, 0, block=32)
    used = {"auto": "real" if target.startswith("gfx1100") else "cycles"}.get(clock, clock)
    own, apps = READINGS.get((target, used), 1), READINGS.get((target, "cycles"), 1)
    tool = shipped("block_timing", what="waves", clock=clock)
    tables = timed(kernel, tool)
    if ALL[target].cycle_counter_bits < 64 and clock == "cycles":
        assert tables["time"] == []
        (left,) = tables["not measured"]
        assert "20 bits" in left["reason"]
        return
    (wave,) = tables["time"]
    assert (wave["clock"], wave["times"]) == (used, 1)
    assert wave["time"] == TICK * (count * apps + own)

    points = [one.address for one in instructions(kernel) if one.mnemonic == "s_setprio"]
    for between, expected in ((points, count * apps + own), (points[::-1], None)):
        tool = shipped("block_timing", between="-".join(map(hex, between)), clock=clock)
        (row,) = timed(kernel, tool)["time"]
        assert row["times"] == 1
        if expected is None:  # the end came first
            assert (row["time"], row["note"]) == (None, "the clock went back")
        else:
            assert row["time"] == TICK * expected


def instructions(kernel: Any) -> Any:
    return InstrumentationTask(lift(kernel.object, kernel.kernel)).instructions


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_blocks(bench: Any, shipped: Any, target: str) -> None:
    """As often as the device entered them; and a block with a reading takes one more."""
    count = 5
    apps = READINGS.get((target, "cycles"), 1)
    own = READINGS.get((target, "real" if target.startswith("gfx1100") else "cycles"), 1)
    kernel = bench(ROUNDS, "rounds", target, np.zeros(32, np.uint32), count, 0, block=32)
    kernel.launch(kernel.object.data)
    counts = kernel.device.stats.by_address
    entered = dict(zip(counts.addresses.tolist(), counts.executions.tolist(), strict=True))
    times = timed(kernel, shipped("block_timing", top=0))["time"]
    means = {row["mean"]: row["times"] for row in times}
    assert means.keys() == {TICK * own, TICK * (own + apps)}
    assert means[TICK * (own + apps)] == count
    assert sum(row["%"] for row in times) == pytest.approx(100, abs=0.1)
    assert all(entered[int(row["address"], 16)] == row["times"] for row in times)


def test_an_end_that_is_not_always_reached(bench: Any, shipped: Any) -> None:
    """Beginnings without an end make no time out of numbers that do not belong together."""
    kernel = bench(ROUNDS, "rounds", "gfx90a", np.zeros(32, np.uint32), 4, 0, block=32)
    inside = next(one.address for one in instructions(kernel) if one.mnemonic == "s_memtime")
    first = next(one.address for one in instructions(kernel))
    (row,) = timed(kernel, shipped("block_timing", between=f"{first:#x}-{inside:#x}"))["time"]
    assert (row["times"], row["time"], row["note"]) == (1, None, "ended 4 times")
    tables = timed(kernel, shipped("block_timing", between=f"{first:#x}-0x7777"))
    assert "no instruction at 0x7777" in tables["not measured"][0]["reason"]


@pytest.mark.parametrize("options", [{"what": "lines"}, {"clock": "sundial"}, {"between": "a-b"}])
def test_options_that_mean_nothing(shipped: Any, options: dict[str, str]) -> None:
    with pytest.raises(ToolError, match=next(iter(options))):
        shipped("block_timing", **options)
