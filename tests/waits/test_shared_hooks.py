"""Hooks that many points share: sharing adds no finding and hides none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from called_programs import is_a_way
from luthier.hazards.wait_counters import WaitFinding, check_waits
from luthier.lifting import lift
from luthier.module import ToolModule
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.tool.task import InstrumentationTask
from mutation import Mutant, mutants
from wait_kernels import kernel

TARGETS = {
    "gfx942": ("dword", "s_waitcnt vmcnt({})"),
    "gfx1100": ("b32", "s_waitcnt vmcnt({})"),
    "gfx1201": ("b32", "s_wait_loadcnt {}"),
}
REGISTERS = range(50, 90)
HOOK = """
__device__ uint32_t table[64];
LUTHIER_HOOK_ANNOTATE mix() {
  uint32_t v[20];
  uint32_t seed = __lane_id();
#pragma unroll
  for (int i = 0; i < 20; ++i) v[i] = seed * (i + 1);
#pragma unroll
  for (int i = 0; i < 40; ++i) v[i % 20] = v[(i + 7) % 20] * v[(i + 3) % 20] ^ v[i % 20] >> 3;
  uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < 20; ++i) sum ^= v[i];
  if (sum == 12345) table[0] = table[sum & 63] * 3;
}
"""


def application(target: str) -> CodeObject:
    """A kernel with more states at its loads than a function was once followed apart for."""
    width, wait = TARGETS[target]
    lines = []
    for registers in (REGISTERS, REGISTERS[::-1]):
        lines += [f"global_load_{width} v{number}, v[2:3], off" for number in registers]
        for at, number in enumerate(registers, 1):
            lines += [wait.format(len(registers) - at), f"v_mov_b32 v4, v{number}"]
    return kernel(target, "; ".join(lines))


def findings(object: CodeObject) -> tuple[WaitFinding, ...]:
    lifted = lift(object, "k")
    result = check_waits(lifted, unneeded=False).findings
    assert all(is_a_way(lifted, one.path) for one in result)
    return result


def kinds(findings: tuple[WaitFinding, ...]) -> Counter[tuple[str, ...]]:
    return Counter((one.consumer.text, one.producer.text, one.access, one.counter) for one in findings)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_waits_around_a_shared_hook(make_module: Callable[..., ToolModule], target: str) -> None:
    module, object = make_module(HOOK, *TARGETS), application(target)

    def instrument(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            if instruction.is_load or instruction.mnemonic.startswith("v_mov"):
                task.insert_hook_before(instruction, module.mix)

    patched = patch_object(object, instrument, strict=True)
    assert patched.report.kernels[0].calls > 140 > 60 * patched.report.kernels[0].shared
    after = load_object(patched.data)
    assert findings(object) == findings(after) == ()

    def removed(object: CodeObject) -> dict[int, Mutant]:
        return {one.address: one for one in mutants(object, lift(object, "k")) if one.kind == "wait" and one.removed}

    behind_callers, (addresses,) = removed(after), patched.maps
    for address, mutant in list(removed(object).items())[::20]:
        moved = addresses.moved(address)
        assert moved is not None
        missing = kinds(findings(load_object(mutant.object(object))))
        assert missing
        assert kinds(findings(load_object(behind_callers.pop(moved).object(after)))) == missing
    lifted = lift(after, "k")
    hooks = {
        lifted.columns.address[index]
        for index, block in enumerate(lifted.block_of)
        if block >= 0 and lifted.blocks[block].function
    }
    inside = [mutant for address, mutant in behind_callers.items() if address in hooks]
    findings_inside = [findings(load_object(mutant.object(after))) for mutant in inside]
    assert any(findings_inside)  # not all: what hooks wait for before they return need not be used
    assert all(one.function != "k" for some in findings_inside for one in some)
