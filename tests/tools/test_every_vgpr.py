"""Kernels that use every VGPR, under tools that want work-item ids: nothing is refused, and what is seen is true."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from luthier import lift, load_object, patch_object, reported
from luthier.hazards.wait_counters import check_waits
from luthier.hazards.wait_states import check_hazards
from luthier.isa.registers import VGPRS

from .conftest import TARGETS, rows

BLOCK = 256
NAMES = [f"v{number}" for number in range(3, 256)]
SOURCE = """
#include <hip/hip_runtime.h>
extern "C" __global__ __launch_bounds__(256) void full(unsigned *out, unsigned shift) {
  __shared__ volatile unsigned lds[256];
  unsigned v = threadIdx.x * 5 + blockIdx.x;
  asm volatile("FILL" : "+v"(v) :: CLOBBERED);
  lds[threadIdx.x] = v;
  BARRIER
  out[blockIdx.x * 256 + threadIdx.x] = lds[(threadIdx.x + shift) & 255];
}
"""


def source(*, barrier: bool) -> str:
    """The kernel: every VGPR is written, the middle of that has all of them live, and all are read."""
    fill = "".join(f"v_xor_b32_e32 {name}, {3 + at % 60}, %0\\n" for at, name in enumerate(NAMES))
    fill += "".join(f"v_mad_u32_u24 %0, %0, 3, {name}\\n" for name in NAMES)
    text = SOURCE.replace("FILL", fill).replace("CLOBBERED", ", ".join(f'"{name}"' for name in NAMES))
    return text.replace("BARRIER", "__syncthreads();" if barrier else "")


def full(bench: Any, target: str, *, barrier: bool = True) -> Any:
    kernel = bench(source(barrier=barrier), "full", target, np.zeros(2 * BLOCK, np.uint32), 64, grid=2, block=BLOCK)
    named = lift(kernel.object, "full").named_units
    assert set(VGPRS[:256]) <= set(named.tolist())
    return kernel


def findings(data: Any) -> Counter[str]:
    lifted = lift(load_object(data), "full")
    waits = (f"{one.access} {one.counter}" for one in check_waits(lifted, unneeded=False).findings)
    return Counter([*waits, *(hazard for _, hazard in check_hazards(lifted, unneeded=False, searches=0).consumers)])


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("barrier", [True, False])
def test_races_are_found(bench: Any, shipped: Any, target: str, barrier: bool) -> None:
    kernel = full(bench, target, barrier=barrier)
    tool = shipped("lds_race")
    patched = patch_object(kernel.object, tool.instrument, strict=True)
    _, (before,) = kernel.launch(kernel.object.data)
    module, (after,) = kernel.launch(patched.data)
    if barrier:
        assert before == after
    tables = {table.title.partition(":")[0]: rows(table) for table in reported(tool, module, patched)}
    assert (not tables["races"]) == barrier
    assert not tables["not checked"]


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030", "gfx1100", "gfx1201"])
def test_values_are_those_of_their_work_items(bench: Any, shipped: Any, target: str) -> None:
    """In the midst of code in which every VGPR is live, and where the value is stored; nothing is unsafe."""
    kernel = full(bench, target)
    _, (before,) = kernel.launch(kernel.object.data)
    tool = shipped("value_log", at="flat_store_*", values="vdata")
    middle = shipped("value_log", at="v_xor_b32_e32", values="src1")
    for variant in (tool, middle):
        patched = patch_object(kernel.object, variant.instrument, strict=True)
        assert not variant.left_out
        assert variant.sites
        assert not findings(patched.data) - findings(kernel.object.data)
        module, (after,) = kernel.launch(patched.data)
        assert before == after
        records = module.channel("values").records()
        items = records["workgroup"].astype(int) * BLOCK + records["item"]
        per_item = np.bincount(items, minlength=2 * BLOCK)
        assert len(per_item) == 2 * BLOCK
        assert (per_item == len(records) // (2 * BLOCK)).all()
        if variant is tool:
            stored = np.zeros(2 * BLOCK, np.uint32)
            stored[items] = records["bits"]
            turned = np.roll(stored.reshape(2, BLOCK), -64, axis=1)
            assert np.array_equal(turned.ravel(), np.frombuffer(before, np.uint32))
