"""Edits of an application's instructions: the results are those of the same edits in the source."""

from __future__ import annotations

import numpy as np
import pytest
from assembled_cases import assemble
from assembly import assembled, function, kernel_text
from effort import EVERYTHING, sample
from luthier import ToolModule, open_device, patch_object, reg
from luthier.errors import LuthierError, PatchError
from luthier.isa import Isa
from luthier.lifting import lift
from luthier.objects import CodeObject, load_object
from luthier.tool.task import InstrumentationTask
from random_kernels import WAVES, random_kernel

pytestmark = pytest.mark.rows()

TARGETS = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]
HOOKS = """
__device__ uint64_t total = 0;
LUTHIER_HOOK_ANNOTATE busy(uint32_t x) { atomicAdd((unsigned long long *)&total, (unsigned long long)x * 3 + 1); }
"""


def build(target: str, body: str, *, vgprs: int = 16, sgprs: int = 30) -> CodeObject:
    return assemble(target, f"{body}\n", vgprs=vgprs, sgprs=sgprs)


def run(target: str, data: bytes, *, groups: int = 1) -> np.ndarray:
    loaded = open_device(f"emu:{target}", threads=1).load(data)
    lanes = Isa.of(target).wave_size
    out = np.zeros(max(groups * lanes, 512), np.uint32)
    loaded.kernel("k").launch(out, grid=groups, block=lanes)
    return out


BODY = """
  s_mov_b32 s20, 3
  v_mov_b32_e32 v2, 7
again:
  v_mul_u32_u24_e32 v2, 3, v2
  v_xor_b32_e32 v2, v0, v2
  s_sub_u32 s20, s20, 1
  s_cmp_lg_u32 s20, 0
  s_cbranch_scc1 again
  v_mov_b32_e32 v3, v2
  put v2, 0
  put v3, 1
"""
MORE = "v_xor_b32_e32 v40, v0, v2\n s_mov_b32 s70, 9\n v_or_b32_e32 v2, s70, v40"
CHANGES = {
    # what is changed in the source, and by the task
    "added before": ("v_xor_b32_e32 v2, v0, v2", "v_or_b32_e32 v2, 16, v2\n v_xor_b32_e32 v2, v0, v2"),
    "added after": ("v_xor_b32_e32 v2, v0, v2", "v_xor_b32_e32 v2, v0, v2\n v_or_b32_e32 v2, 16, v2"),
    "removed": ("v_xor_b32_e32 v2, v0, v2", ""),
    "branched to": ("v_mul_u32_u24_e32 v2, 3, v2", ""),
    "replaced": ("v_xor_b32_e32 v2, v0, v2", "v_or_b32_e32 v2, 5, v2\n v_and_b32_e32 v2, 0x12345, v2"),
    "more registers": (
        "v_xor_b32_e32 v2, v0, v2",
        MORE,
    ),
    "operand": ("v_mov_b32_e32 v3, v2", "v_mov_b32_e32 v3, v0"),
    "number": ("v_mul_u32_u24_e32 v2, 3, v2", "v_mul_u32_u24_e32 v2, 5, v2"),
}


def apply(task: InstrumentationTask, kind: str) -> None:
    old, new = CHANGES[kind]
    (instruction,) = (one for one in task.instructions if one.text == old)
    if kind == "added before":
        task.add_before(instruction, "v_or_b32_e32 v2, 16, v2")
    elif kind == "added after":
        task.add_after(instruction, "v_or_b32_e32 v2, 16, v2")
    elif kind in ("removed", "branched to"):
        task.remove(instruction)
    elif kind == "operand":
        task.change_operand(instruction, "src0", reg("v0"))
    elif kind == "number":
        task.change_operand(instruction, "src0", 5)
    else:
        task.replace(instruction, new)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("hooks", [False, True])
def test_changes(target: str, hooks: bool, module: ToolModule) -> None:
    object = build(target, BODY)
    for kind, (old, new) in CHANGES.items():

        def instrument(task: InstrumentationTask, kind=kind) -> None:
            apply(task, kind)
            if hooks:
                for instruction in task.instructions:
                    task.insert_hook_before(instruction, module.busy, reg("v0"))

        patched = patch_object(object, instrument, strict=True)
        assert patched.report.kernels[0].edits == 1
        wanted = run(target, build(target, BODY.replace(old, new), vgprs=48, sgprs=80).data)
        assert np.array_equal(run(target, patched.data), wanted), kind


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("hooks", [False, True])
def test_changes_that_change_nothing(target: str, hooks: bool, module: ToolModule) -> None:
    """In random kernels: every instruction that may be replaced becomes itself, by text or by operand, with others
    around it; and registers that hooks use are still chosen right."""
    changed = 0
    for seed in sample(range(200 if EVERYTHING else 40), 10, turn=hooks):
        object = random_kernel(seed, target, calls=bool(seed % 2))

        def instrument(task: InstrumentationTask, seed=seed) -> None:
            nonlocal changed
            for instruction in task.instructions:
                number = instruction.index + seed
                try:
                    if number % 3 == 0:
                        task.replace(instruction, f"s_nop 0\n{instruction.text}")
                    elif number % 3 == 1 and instruction.operands:
                        register = task.operand(instruction, 0)
                        if hasattr(register, "count"):
                            task.change_operand(instruction, 0, register)
                    if number % 2:
                        task.add_before(instruction, "s_nop 1")
                        task.add_after(instruction, "s_mov_b32 s35, s35")
                except LuthierError:
                    continue
                finally:
                    if hooks:
                        task.insert_hook_before(instruction, module.busy, reg("s20"))
            changed += len(task.edits)

        patched = patch_object(object, instrument, strict=True)
        wanted = run(target, object.data, groups=WAVES)
        assert np.array_equal(run(target, patched.data, groups=WAVES), wanted), seed
    assert changed > 50


@pytest.mark.rows(5)
@pytest.mark.parametrize("target", TARGETS)
def test_removed_memory_instructions_are_waited_for(target: str) -> None:
    """What waits count is still there to be waited for."""
    new = target in ("gfx1100", "gfx1201")
    load = "global_load_b32" if new else "global_load_dword"
    wait = "s_wait_loadcnt 0x1" if target == "gfx1201" else "s_waitcnt vmcnt(1)"
    object = build(target, f"{load} v2, v1, s[4:5]\n{load} v3, v1, s[4:5]\n{wait}\nv_add_f32_e32 v2, v2, v2")

    def instrument(task: InstrumentationTask) -> None:
        loads = task.select(lambda instruction: instruction.is_load and instruction.memory.space == "global")
        task.remove(loads[1])

    patched = patch_object(object, instrument, strict=True)
    texts = [one.text for one in lift(patched.data, "k").instructions if one.block >= 0]
    assert sum(text.startswith(load) for text in texts) == 1
    following = texts[[text.startswith(load) for text in texts].index(True) + 1 :]
    counts = Isa.of(target).target.target.wait_for_everything
    assert [text.split()[0] for text in following[: len(counts)]] == [text.split()[0] for text in counts]
    run(target, patched.data)


@pytest.mark.rows(3)
@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("text", ["", "s_nop 0", "v_mov_b32_e32 v3, 0\nv_mov_b32_e32 v4, 0"])
def test_clauses_around_what_is_replaced_dissolve(target: str, text: str) -> None:
    loads = "\n".join(f"global_load_b32 v{register}, v1, s[4:5]" for register in (2, 3, 4))
    object = build(target, f"s_clause 0x2\n{loads}")

    def instrument(task: InstrumentationTask) -> None:
        task.replace(task.select(lambda point: point.is_load and point.memory.space == "global")[1], text)

    texts = [one.text for one in lift(patch_object(object, instrument, strict=True).data, "k").instructions]
    assert "s_clause 0x2" in [one.text for one in lift(object, "k").instructions]
    assert not any(text.startswith("s_clause") for text in texts)


REFUSED = {
    "s_branch 0": "cannot be added|symbols cannot be added",
    "here:": "labels and symbols",
    "s_endpgm": "s_endpgm cannot be added",
    "s_getpc_b64 s[8:9]": "s_getpc_b64 cannot be added",
    "s_setreg_imm32_b32 hwreg(1), 3": "cannot be added",
    "s_barrier": "s_barrier cannot be added",
    "s_sendmsg 1": "cannot be added",
    "v_nonsense v0": "does not assemble",
    "v_mov_b32 v0, a99": "does not assemble|outside the kernel's registers|invalid operand",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_added(text: str) -> None:
    task = InstrumentationTask(lift(build("gfx90a", BODY), "k"))
    first = next(iter(task.instructions))
    for change in (task.add_before, task.add_after, task.replace):
        with pytest.raises(PatchError, match=REFUSED[text]) as caught:
            change(first, text)
        assert caught.value.offset == first.address
    assert not task.edits


def test_what_cannot_be_changed() -> None:
    body = """
  address 8, 9, there
  s_cmp_eq_u32 s20, 0
  s_cbranch_scc1 over
  s_nop 3
over:
  s_setpc_b64 s[8:9]
there:
  v_mov_b32_e32 v2, v0
"""
    task = InstrumentationTask(lift(build("gfx90a", body), "k"))
    by_name = {one.mnemonic: one for one in task.instructions}
    for name in ("s_getpc_b64", "s_add_u32", "s_addc_u32", "s_cbranch_scc1", "s_setpc_b64", "s_endpgm"):
        with pytest.raises(PatchError, match=r"cannot be removed|cannot be changed") as caught:
            task.remove(by_name[name])
        assert caught.value.offset == by_name[name].address
    for name in ("s_cbranch_scc1", "s_setpc_b64", "s_endpgm"):
        with pytest.raises(PatchError, match="transfers control"):
            task.add_after(by_name[name], "s_nop 0")
    move = by_name["v_mov_b32_e32"]
    for which, value in (("src9", 1), (7, 1), ("vdst", reg("s3")), ("vdst", reg("v[2:3]")), ("src0", 1 << 40)):
        with pytest.raises(PatchError):
            task.change_operand(move, which, value)
    task.remove(move)
    with pytest.raises(PatchError, match="replaced twice"):
        task.replace(move, "s_nop 0")
    assert len(task.edits) == 1


def test_instructions_that_llvm_does_not_encode_as_they_are() -> None:
    """A field that the instruction does not use is set, and LLVM writes it as 0: no edit by operand."""
    isa = Isa.of("gfx90a")
    word = int.from_bytes(isa.assemble("ds_write_b32 v0, v1").instructions.code, "little")
    raw = (word | 5 << 56).to_bytes(8, "little")  # of a store that returns nothing, the result
    assert isa.encode(isa.decode(raw))[0] != raw
    words = ", ".join(f"{one:#x}" for one in np.frombuffer(raw, "<u4").tolist())
    task = InstrumentationTask(lift(build("gfx90a", f".long {words}\nv_mov_b32_e32 v2, v0"), "k"))
    (odd,) = task.select(lambda instruction: instruction.mnemonic.startswith("ds_write"))
    with pytest.raises(PatchError, match=r"LLVM encodes .* differently"):
        task.change_operand(odd, "addr", reg("v3"))
    task.replace(odd, "v_cmp_eq_u32_e32 vcc, v0, v1")


@pytest.mark.parametrize(("register", "possible"), [(127, True), (128, False), (255, False)])
@pytest.mark.parametrize("by", ["edit", "guard"])
def test_registers_that_the_largest_work_group_leaves_no_room_for(
    module: ToolModule, register: int, possible: bool, by: str
) -> None:
    """A work-group of 1,024 work-items has 128 VGPRs a lane."""
    object = assembled(kernel_text(function("k", ["s_nop 0", "s_endpgm"]), "gfx90a", workgroup=1024), "gfx90a")

    def instrument(task: InstrumentationTask) -> None:
        first = next(task.instructions)
        if by == "edit":
            task.add_before(first, f"v_mov_b32_e32 v{register}, 0")
        else:
            guard = [f"v_cmp_le_u32_e64 {{vcc}}, 3, v{register}"]
            task.insert_hook_before(first, module.busy, reg("v0"), only_if=guard)

    if not possible:
        with pytest.raises(PatchError, match=f"need 0 SGPRs and {register + 1} VGPRs; the kernel may have .* and 128"):
            patch_object(object, instrument, strict=True)
        return
    patched = patch_object(object, instrument, strict=True)
    run("gfx90a", patched.data)
    assert load_object(patched.data).kernels["k"].largest_workgroup == 1024


@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx942"])
def test_flat_instructions_take_no_scalar_registers(target: str) -> None:
    """They read FLAT_SCRATCH, whose number is above those that a kernel may have."""
    object = build(target, "v_mov_b32 v4, s4\n v_mov_b32 v5, s5\n flat_load_dword v2, v[4:5]\n s_waitcnt 0\n put v2, 0")

    def instrument(task: InstrumentationTask) -> None:
        (load,) = task.select(lambda instruction: instruction.mnemonic == "flat_load_dword")
        task.replace(load, load.text)

    patched = patch_object(object, instrument, strict=True)
    np.testing.assert_array_equal(run(target, patched.data), run(target, object.data))
