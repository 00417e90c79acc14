"""Generic processors: their code must satisfy every processor that runs it."""

from __future__ import annotations

import warnings

import luthier
import numpy as np
import pytest
from luthier.arch.targets import processors_of
from luthier.emulator import CheckWarning
from luthier.hazards.wait_states import check_hazards
from luthier.hazards.wait_states.model import hazard_model
from luthier.isa.targets import TARGETS
from luthier.lifting import lift
from luthier.objects import load_object
from luthier.patch import patch_object
from luthier.tool.task import InstrumentationTask, reg
from pair_findings import lacks
from wait_kernels import kernel

GENERIC = "gfx9-4-generic"
MFMA = "v_mfma_f32_16x16x16_f16 v[0:3], v[8:9], v[12:13], v[0:3]"
DOUBLE = "v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[12:13], v[0:7]"
OVERWRITES = "v_mov_b32 v0, 0"


@pytest.mark.parametrize("target", [name for name, target in TARGETS.items() if target.is_generic])
def test_rows_are_the_strictest(target: str) -> None:
    """Each row of each processor is there, with no fewer wait states."""
    members = processors_of(TARGETS[target])
    assert len(members) > 1
    for lanes in TARGETS[target].wave_sizes:
        rules = {rule.hazard.name: rule for rule in hazard_model(TARGETS[target], lanes).rules}
        for member in members:
            for own in hazard_model(member, lanes).rules:
                assert all(rules[own.hazard.name].needed(tag) >= own.needed(tag) for tag in (0, 2, 4, 8, 16))


CASES = [
    (f"{MFMA}; s_nop 7; {OVERWRITES}", []),
    (f"{MFMA}; s_nop 6; {OVERWRITES}", ["7 wait states, it needs 8 on gfx950 only"]),
    (f"{MFMA}; s_nop 5; {OVERWRITES}", ["6 wait states, it needs 8"]),
    (f"{DOUBLE}; s_nop 15; s_nop 0; v_add_f32 v20, v0, v0", ["17 wait states, it needs 19 on gfx950 only"]),
    # Nothing that they differ in.
    (f"{MFMA}; s_nop 6; v_mov_b32 v20, 0", []),
    ("v_readfirstlane_b32 s4, v0; s_nop 2; v_readlane_b32 s5, v1, s4", ["3 wait states, it needs 4"]),
]


@pytest.mark.parametrize(("body", "lacking"), CASES)
def test_findings_tell_who_needs_it(body: str, lacking: list[str]) -> None:
    findings = check_hazards(lift(kernel(GENERIC, body), "k")).findings
    assert [one.lacking for one in findings] == lacking
    assert [one.to_json()["only_on"] for one in findings] == [["gfx950"] * line.endswith("only") for line in lacking]
    assert all(line in str(one) for one, line in zip(findings, lacking, strict=True))


@pytest.mark.parametrize("device", ["gfx942", "gfx950"])
def test_while_it_runs(device: str) -> None:
    device = luthier.open_device(f"emu:{device}", check="hazards")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckWarning)
        device.load(kernel(GENERIC, CASES[1][0]).data).kernel("k").launch(np.zeros(64, np.uint32), grid=1, block=64)
    assert [lacks(one) for one in device.findings] == CASES[1][1]


HOOKS = """
typedef _Float16 Half4 __attribute__((ext_vector_type(4)));
typedef float Float4 __attribute__((ext_vector_type(4)));
__device__ Float4 sum;
LUTHIER_HOOK_ANNOTATE store(uint32_t value) { *(uint32_t *)&sum = value; }
LUTHIER_HOOK_ANNOTATE multiply(uint32_t value) {
  Half4 some = {_Float16(value), 1, 2, 3};
  Float4 result = __builtin_amdgcn_mfma_f32_16x16x16f16(some, some, sum, 0, 0, 0);
  sum = __builtin_amdgcn_mfma_f32_16x16x16f16(some, some, Float4{result.y, result.x, result.w, result.z}, 0, 0, 0);
}
"""


@pytest.mark.parametrize("hook", ["store", "multiply"])
def test_payloads(make_module, hook: str) -> None:
    """Where they meet the application, and inside, whatever LLVM has kept apart."""
    module = make_module(HOOKS, GENERIC)
    live = "; ".join(f"v_xor_b32 v0, v0, v{unit}" for unit in range(1, 96))
    object = kernel(GENERIC, f"{MFMA}; s_nop 1; s_nop 7; {live}")

    def instrument(task: InstrumentationTask) -> None:
        for point in (1, 2, 3):
            task.insert_hook_before(point, getattr(module, hook), reg("v1"))

    patched = load_object(patch_object(object, instrument, ["k"], strict=True).data)
    lifted = lift(patched, "k")
    assert [str(one) for one in check_hazards(lifted).findings] == []
    names = [lifted.isa.text(lifted.code, index).split()[0] for index in range(len(lifted.code))]
    assert sum(name.startswith("v_mfma") for name in names) == 1 + 6 * (hook == "multiply")
