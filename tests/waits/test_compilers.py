"""Luthier's patched kernels wait for all that they use: no finding on any path."""

from __future__ import annotations

from pathlib import Path

import pytest
from luthier.hazards.wait_counters import check_waits
from luthier.hazards.wait_states import check_hazards
from luthier.lifting import lift
from luthier.objects import load_object
from luthier.patch import patch_object
from luthier.tool import Tool
from luthier.tool.task import InstrumentationTask, reg

KERNELS = Path(__file__).parents[1] / "emulator" / "kernels"


class Everywhere(Tool):
    """A hook that takes values of the kernel and touches memory, before every instruction where there may be one."""

    def __init__(self, module) -> None:
        super().__init__()
        self.module = module

    def instrument(self, task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            # Not inside what makes an address of the program counter: such a kernel is not lifted again.
            chosen = instruction.is_vector or instruction.mnemonic.startswith("s_waitcnt")
            if chosen and not task.lifted.restrictions.get(instruction.index):
                task.insert_hook_before(instruction, self.module.mix, reg("s4"), reg("v0"))


PATCHED = ["vector_add", "collatz", "call_function"]
HOOK = """
__device__ uint64_t seen = 0;
LUTHIER_HOOK_ANNOTATE mix(uint32_t scalar, uint32_t vector) {
  atomicAdd(reinterpret_cast<unsigned long long *>(&seen), vector * 2654435761ull + scalar);
}
"""


@pytest.mark.rows(1)
@pytest.mark.parametrize("level", ["-O1", "-O3"])
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx942", "gfx1010", "gfx1030", "gfx1100", "gfx1200"])
def test_patched_kernels_wait(make_module, compile_object, target: str, level: str) -> None:
    module = make_module(HOOK, "gfx906", "gfx90a", "gfx942", "gfx1010", "gfx1030", "gfx1100", "gfx1200")
    object = load_object(compile_object(KERNELS / "plain.hip", target, f"-I{KERNELS}", "-ffp-contract=off", level))
    patched = patch_object(object, Everywhere(module).instrument, PATCHED)
    checked = 0
    again = load_object(patched.data)
    for kernel in PATCHED:
        lifted = lift(again, kernel)
        report = check_waits(lifted, unneeded=False)
        assert [str(finding) for finding in report.findings] == []
        assert [str(finding) for finding in check_hazards(lifted, unneeded=False).findings] == []
        checked += report.instructions
    assert checked > 500
