"""Addresses of gfx1250's own memory instructions that hooks get. The emulated device does not execute these: launches
end after the hook."""

from __future__ import annotations

import numpy as np
import pytest
from assembled_cases import assemble
from luthier import ToolModule, open_device, patch_object
from luthier.emulator.inspection.debug import WaveStep
from luthier.errors import HookError
from luthier.objects import CodeObject
from luthier.tool.task import InstrumentationTask

TARGET = "gfx1250"
LANES = np.arange(32, dtype=np.uint64)
SOURCE = """
LUTHIER_HOOK_ANNOTATE see(uint64_t address) {
  luthier::writeReg<uint32_t>(luthier::vgpr(20), address);
  luthier::writeReg<uint32_t>(luthier::vgpr(21), address >> 32);
}
"""
RECORDS, STRIDE = 0x7F << 25, 20 << 12
"""Of the second and fourth word of a descriptor: the lowest bits of the buffer's size, and 20 bytes as the stride."""


@pytest.fixture(scope="module")
def module(make_module) -> ToolModule:
    return make_module(SOURCE, TARGET)


def build(line: str, fourth: int) -> CodeObject:
    body = f"""
      s_mov_b32 s8, s4
      s_or_b32 s9, s5, {RECORDS:#x}
      s_mov_b32 s10, -1
      s_mov_b32 s11, {fourth:#x}
      s_movk_i32 s12, 0x140
      v_mov_b32 v2, s4
      v_mov_b32 v3, s5
      {line}
    """
    return assemble(TARGET, f"{body}\n", vgprs=64, sgprs=90, workgroup=32)


def offsets(module: ToolModule, line: str, fourth: int = STRIDE) -> np.ndarray | None:
    """[32] what each lane's address is more than the kernel's argument; None where it is all ones."""
    name = line.split()[0]
    argument, addresses = [0], []

    def instrument(task: InstrumentationTask) -> None:
        (access,) = (one for one in task.instructions if one.mnemonic == name)
        task.insert_hook_before(access, module.see, task.effective_address(access))

    def trace(step: WaveStep) -> bool:
        if step.text.startswith("s_mov_b32 s8, s4"):
            argument[0] = step.registers.sgpr(4, 2)
        if step.text.startswith(name):
            addresses.append(step.registers.vgpr(20, dtype=np.uint64).copy())
        return not addresses

    loaded = open_device(f"emu:{TARGET}").load(patch_object(build(line, fourth), instrument, strict=True).data)
    loaded.kernel("k").launch(np.zeros(4096, np.uint32), grid=1, block=32, trace=trace)
    return None if (addresses[0] == np.uint64(2**64 - 1)).all() else addresses[0] - np.uint64(argument[0])


@pytest.mark.rows(2)
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("buffer_load_b32 v8, off, s[8:11], s12 offset:48", 0x140 + 48 + 0 * LANES),
        ("buffer_load_b32 v8, v1, s[8:11], null offen offset:16", 16 + 4 * LANES),
        ("buffer_atomic_add_f32 v8, v1, s[8:11], s12 offen", 0x140 + 4 * LANES),
        ("buffer_store_b64 v[6:7], v0, s[8:11], null idxen offset:8", 8 + 20 * LANES),
        ("s_buffer_load_b32 s20, s[8:11], s12 offset:0x8", 0x148 + 0 * LANES),
        ("global_load_async_to_lds_b32 v8, v1, s[4:5] offset:8", 8 + 4 * LANES),
        ("global_load_async_to_lds_b128 v8, v[2:3], off", 0 * LANES),
        ("global_store_async_from_lds_b64 v1, v8, s[4:5]", 4 * LANES),
        ("global_load_b32 v8, v1, s[4:5] offset:8 scale_offset", 8 + 16 * LANES),
        ("global_store_b96 v1, v[8:10], s[4:5] offset:-8 scale_offset", 48 * LANES - 8),
        ("global_load_u16 v8, v1, s[4:5] scale_offset", 8 * LANES),
        ("flat_load_b64 v[8:9], v1, s[4:5] offset:16 scale_offset", 16 + 32 * LANES),
        ("global_atomic_add_u64 v1, v[8:9], s[4:5] scale_offset", 32 * LANES),
        ("s_load_b64 s[20:21], s[4:5], s12 offset:0x10 scale_offset", 8 * 0x140 + 16 + 0 * LANES),
    ],
)
def test_they_are_where_the_instruction_accesses(module: ToolModule, line: str, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(offsets(module, line), expected)


@pytest.mark.rows(4)
@pytest.mark.parametrize("bit", range(26, 32))
def test_descriptors_that_no_address_is_told_of(module: ToolModule, bit: int) -> None:
    """What these bits do no source says: never a wrong number."""
    assert offsets(module, "buffer_load_b32 v8, v1, s[8:11], null offen", STRIDE | 1 << bit) is None


def test_copies_of_tensors_have_no_addresses(module: ToolModule) -> None:
    def look(task: InstrumentationTask) -> None:
        (copy,) = (one for one in task.instructions if one.mnemonic.startswith("tensor_"))
        for ask in (task.effective_address, task.access_size):
            with pytest.raises(HookError, match="a descriptor selects the part of a tensor"):
                ask(copy)
        assert copy.memory is not None
        assert (copy.memory.space, copy.memory.kind) == ("global", "store")
        task.count(task.instructions)

    patch_object(build("tensor_store_from_lds s[8:11], s[16:23]", 0), look, strict=True)
