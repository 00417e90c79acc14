"""Wait states between application and payload: on GFX9, before writes of MODE, and after copies of hooks' arguments."""

from __future__ import annotations

import pytest
from luthier.hazards.wait_counters import check_waits
from luthier.hazards.wait_states import check_hazards
from luthier.lifting import lift
from luthier.module import ToolModule
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.tool.task import InstrumentationTask, reg
from wait_kernels import kernel

TARGETS = ("gfx906", "gfx90a", "gfx942")
HOOKS = """
__device__ uint32_t seen[64];
__device__ uint32_t sum;
LUTHIER_HOOK_ANNOTATE store(uint32_t value) { seen[__builtin_amdgcn_mbcnt_lo(~0u, 0)] = value; }
LUTHIER_HOOK_ANNOTATE chosen(uint32_t value) { seen[value & 63] = value == sum ? value : 2 * value; }
LUTHIER_HOOK_ANNOTATE first(uint32_t value) { luthier::sAtomicAdd<uint32_t>(&sum, value); }
LUTHIER_HOOK_ANNOTATE every(uint32_t value) { if (value > 3) atomicAdd(&sum, value); }
LUTHIER_HOOK_ANNOTATE wide(uint32_t value) {
  uint32_t many[24];
  for (int k = 0; k < 24; ++k) many[k] = seen[(value + k) & 63];
  uint32_t total = 0;
  for (int k = 0; k < 24; ++k) total = total * 3 + many[k] * many[(k * 5) % 24];
  seen[0] = total;
}
"""
NAMES = ("store", "chosen", "first", "every", "wide")
FRESH = range(60, 70)
"""SGPRs that nothing uses."""
WRITERS = [f"v_cmp_eq_u32 s[{first}:{first + 1}], v{first - 60}, v1" for first in FRESH[-2::-2]]
VGPRS = 96


def around(target: str, before: str, behind: str = "s_nop 7") -> CodeObject:
    """A kernel in which all SGPRs but the fresh ones are live at an s_nop 1, and all VGPRs."""
    live = [f"s_xor_b32 s2, s2, s{unit}" for unit in (0, 1, *range(3, 102)) if unit not in FRESH]
    vectors = [f"v_xor_b32 v0, v0, v{unit}" for unit in range(1, VGPRS)]
    filled = [f"s_mov_b32 s{unit}, {unit}" for unit in range(8, 102)]
    filled += [f"v_mov_b32 v{unit}, {unit}" for unit in range(4, VGPRS)]
    return kernel(target, "; ".join([*filled, "s_nop 7", before, "s_nop 1", behind, *live, *vectors]))


@pytest.mark.rows(2)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", TARGETS)
def test_payloads_wait_for_what_was_written_right_before(hooks: ToolModule, target: str, name: str) -> None:
    lengths = []
    for distance in (0, 3, 8):
        apart = f"; s_nop {distance - 1}" if distance else ""
        object = around(target, "; ".join(WRITERS) + apart)
        lengths.append(_patched(object, hooks, name))
    assert lengths == sorted(lengths, reverse=True)


READERS = (
    "s_mov_b64 s[60:61], 0; global_load_dword v3, v2, s[60:61]",
    "s_mov_b64 s[60:61], 0; s_mov_b64 s[62:63], 0; s_mov_b32 s64, 0; buffer_load_dword v3, off, s[60:63], s64",
    "s_mov_b32 s62, 0; v_readlane_b32 s66, v3, s62",
    "s_mov_b64 vcc, 0; v_div_fmas_f32 v3, v2, v2, v2",
)


@pytest.mark.rows(8)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", TARGETS)
def test_what_follows_does_not_come_too_early(hooks: ToolModule, target: str, name: str, reader: str) -> None:
    """Between two hooks, and behind both: what is in the registers then is the application's own."""
    for marker in ("s_nop 1", reader.split("; ")[0]):
        _patched(around(target, "s_nop 7", reader), hooks, name, marker)


STORE = "global_store_dwordx4 v[2:3], v[4:7], off"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", TARGETS)
def test_data_of_stores_is_not_overwritten_at_once(hooks: ToolModule, target: str, name: str) -> None:
    object = kernel(target, f"s_nop 7; {STORE}; s_nop 1; s_waitcnt vmcnt(0)")
    _patched(object, hooks, name)


@pytest.mark.parametrize("free", [1, 2, 3])
@pytest.mark.parametrize("target", ["gfx1030", "gfx1201", "gfx1250"])
def test_registers_come_back_in_all_lanes(make_module, target: str, free: int) -> None:
    """Where hardly an SGPR is dead, a VGPR is kept in private memory for all lanes, and loaded in two steps."""
    module = make_module(HOOKS, target)
    scalars, vectors = range(3, 106 - free), range(4, VGPRS)
    filled = [f"s_mov_b32 s{unit}, {unit}" for unit in scalars[5:]] + [f"v_mov_b32 v{unit}, {unit}" for unit in vectors]
    used = [f"s_xor_b32 s2, s2, s{unit}" for unit in (0, 1, *scalars)]
    used += [f"v_xor_b32 v0, v0, v{unit}" for unit in (1, 2, 3, *vectors)]
    object = kernel(target, "; ".join([*filled, "s_nop 1", *used]), wave_size=32)

    def instrument(task: InstrumentationTask) -> None:
        task.budget(registers=VGPRS, on_excess="spill")
        point = next(one for one in task.instructions if one.text == "s_nop 1")
        for name in NAMES:
            task.insert_hook_before(point, module.hook(name), reg("v1"))

    lifted = lift(load_object(patch_object(object, instrument, ["k"], strict=True).data), "k")
    texts = [lifted.isa.text(lifted.code, index) for index in range(len(lifted.code))]
    assert "s_not_b32 exec_lo, exec_lo" in texts
    assert any(text.startswith("scratch_load") for text in texts)
    assert not check_waits(lifted, unneeded=False).findings


MODE = "s_setreg_imm32_b32 hwreg(HW_REG_WAVE_MODE, 25, 1), 1"
WRITES_OF_MODE = [
    f"{MODE}; v_mov_b32 v1, v2; v_mov_b32 v3, v2; v_nop; v_nop; {MODE}; v_mov_b32 v4, v2",
    f"s_nop 0; v_nop; s_nop 0; v_nop; {MODE}",
    f"s_cmp_eq_u32 s0, 0; s_cbranch_scc1 a; v_nop; s_nop 0; a: ; v_nop; s_nop 0; s_branch b; c: ; v_nop; {MODE}; "
    f"s_branch d; b: ; s_nop 0; s_branch c; d: ; v_mov_b32 v1, v2",
    f"s_nop 0; s_nop 0; a: ; v_mov_b32 v4, v5; v_nop; v_nop; {MODE}; s_nop 0; s_cbranch_scc0 a",
]


@pytest.mark.parametrize("only_if", [[], ["v_cmp_eq_u32 {vcc}, 5, v5"]])
@pytest.mark.parametrize("code", WRITES_OF_MODE)
def test_payloads_are_not_too_near_to_writes_of_mode(make_module, code: str, only_if: list[str]) -> None:
    """At all points of code that keeps its own instructions away from them, on GFX1250."""
    module = make_module(HOOKS, "gfx1250")
    object = kernel("gfx1250", code)
    assert not check_hazards(lift(object, "k"), unneeded=False).findings

    def instrument(task: InstrumentationTask) -> None:
        task.insert_hook_at_kernel_entry(module.every, reg("v0"))
        for instruction in task.instructions:
            task.insert_hook_before(instruction, module.every, reg("v5"), only_if=only_if)
        for edge in task.lifted.edges:
            if edge.kind in ("taken", "branch"):
                task.insert_hook_on_edge(edge, module.every, reg("v5"))

    patched = load_object(patch_object(object, instrument, ["k"], strict=True).data)
    lifted = lift(patched, "k")
    assert not check_hazards(lifted, unneeded=False).findings


PARTIAL = """
__device__ uint64_t ran;
__device__ uint32_t seen[1000];
LUTHIER_HOOK_ANNOTATE both(uint32_t value) {
  atomicAdd((unsigned long long *)&ran, 1ull);
  seen[value % 1000] = value;
}
LUTHIER_HOOK_ANNOTATE large(uint32_t value) {
  atomicAdd((unsigned long long *)&ran, 1ull);
  uint32_t x = value % 1000;
#pragma unroll
  for (uint32_t bit = 0; bit < 24; ++bit) x = (x ^ x >> 7) * 2654435761u + bit;
  seen[x % 1000] = value;
}
"""


@pytest.mark.parametrize("name", ["both", "large"])
@pytest.mark.parametrize("target", ["gfx1100", "gfx1151"])
def test_copies_of_inputs_are_there_before_exec_changes(make_module, target: str, name: str) -> None:
    """In waves of 64, one register from before a change of EXEC is not read at once with one from behind it."""
    module = make_module(PARTIAL, target, both_wave_sizes=True)
    object = kernel(target, "; ".join([*["s_nop 1; v_xor_b32 v5, v5, v4"] * 8, "v_xor_b32 v3, v3, v5"]), wave_size=64)

    def instrument(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            if instruction.text == "s_nop 1":
                task.insert_hook_before(instruction, module.hook(name), reg("v5"))

    lifted = lift(load_object(patch_object(object, instrument, ["k"], strict=True).data), "k")
    assert not check_hazards(lifted, unneeded=False).findings


TRANSCENDENTAL = """
LUTHIER_HOOK_ANNOTATE turned(float value) {
  luthier::writeReg(luthier::vgpr(2), __builtin_bit_cast(uint32_t, __builtin_amdgcn_rcpf(value)));
}
__device__ float last;
LUTHIER_HOOK_ANNOTATE kept(float value) { last = __builtin_amdgcn_rsqf(value); }
"""


@pytest.mark.parametrize("name", ["turned", "kept"])
def test_payloads_are_not_too_near_to_transcendental_operations(make_module, name: str) -> None:
    """On GFX1250 vector instructions use registers of these no sooner than behind another one: those of the
    application that a hook reads and overwrites, and those of a hook."""
    hook = make_module(TRANSCENDENTAL, "gfx1250").hook(name)
    object = kernel(
        "gfx1250",
        "v_rcp_f32 v0, v0; v_nop; v_mov_b32 v2, v0; v_exp_f32 v1, v2; v_nop; v_mov_b32 v3, v1; v_mov_b32 v4, v2",
    )
    assert not check_hazards(lift(object, "k"), unneeded=False).findings

    def instrument(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            task.insert_hook_before(instruction, hook, reg("v0"))
            if instruction.mnemonic.startswith("v_"):
                task.insert_hook_after(instruction, hook, reg("v1"))

    patched = load_object(patch_object(object, instrument, ["k"], strict=True).data)
    assert not check_hazards(lift(patched, "k"), unneeded=False).findings


def _patched(object: CodeObject, hooks: ToolModule, name: str, marker: str = "s_nop 1") -> int:
    """Instructions that a patched kernel without hazards has more."""

    def instrument(task: InstrumentationTask) -> None:
        task.budget(registers=VGPRS, on_excess="spill")
        point = next(one for one in task.instructions if one.text == marker)
        task.insert_hook_before(point, hooks.hook(name), reg("v1"))

    original = lift(object, "k")
    assert not check_hazards(original, unneeded=False).findings
    patched = load_object(patch_object(object, instrument, ["k"], strict=True).data)
    lifted = lift(patched, "k")
    assert not check_hazards(lifted, unneeded=False).findings
    return len(lifted.code) - len(original.code)
