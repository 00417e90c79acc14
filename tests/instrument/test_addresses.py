"""Effective addresses and sizes that hooks get, against accesses on the emulated device: every memory opcode of every
generation, in every form of addressing."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from accesses import take_accesses
from assembled_cases import assemble
from effort import sample
from luthier import ToolModule, immediate, open_device, patch_object
from luthier.emulator import layout
from luthier.emulator.inspection.coverage import coverage
from luthier.emulator.inspection.debug import WaveStep
from luthier.emulator.inspection.samples import samples
from luthier.emulator.running.memory import host_bytes
from luthier.emulator.running.worker import get_field
from luthier.errors import DecodeError
from luthier.isa import Isa, Opcode, OperandKind
from luthier.isa.registers import SGPRS, VGPRS
from luthier.lifting.instructions.memory import memory_access
from luthier.tool.task import InstrumentationTask
from msgspec.structs import replace

TARGETS = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]

HOOKS = """
__device__ uint64_t seen[1024 * 64];
LUTHIER_HOOK_ANNOTATE see(uint64_t address, uint32_t row) { seen[row * 64 + __lane_id()] = address; }
LUTHIER_HOOK_ANNOTATE see_short(uint32_t address, uint32_t row) { seen[row * 64 + __lane_id()] = address; }
"""

LDS_BYTES, SCRATCH_BYTES, BUFFER_BYTES = 0x8000, 0x4000, 0x20000


class Writer:
    """Machine code for instructions of given opcodes, whose operands are registers that `prologue` sets up."""

    def __init__(self, isa: Isa) -> None:
        self.isa = isa

    def register(self, opcode: Opcode, name: str, units: int) -> int:
        """The first unit of an operand's register."""
        space = memory_access(opcode).space  # type: ignore[union-attr]
        v, s = VGPRS.start, SGPRS.start
        if name == "vaddr":
            if space == "buffer":
                return v + (8 if units == 2 else 9 if "IDXEN" not in opcode.pseudo else 8)
            if space == "scratch":
                return v + 5
            return v + (2 if units == 2 else 4)
        places = {"addr": v + 6, "soffset": s + 12, "srsrc": s + 8, "sdata": s + 64, "sdst": s + 64}
        if name == "saddr":
            return s + (14 if space == "scratch" else 2)
        if name == "sbase":
            return s + (8 if units == 4 else 2)
        return places.get(name, v + 16)

    def write(self, number: int, offset: int) -> bytes | None:
        """One instruction, or None where it does not take the offset."""
        code, index = samples(self.isa)[number]
        opcode = self.isa.opcode(number)
        start, end = int(code.operand_start[index]), int(code.operand_start[index + 1])
        kinds, values = code.operand_kind[start:end].copy(), code.operand_value[start:end].copy()
        for position, operand in enumerate(opcode.operands):
            if kinds[position] == OperandKind.REGISTER:
                old = int(values[position])
                units = int(self.isa.register_unit_count[old])
                if int(self.isa.register_first_unit[old]) < 0 or units == 0:
                    continue
                like = self.isa.register_like(old, self.register(opcode, operand.name, units))
                if like is None:
                    return None
                values[position] = like
            elif operand.name == "offset":
                values[position] = offset
            elif operand.name == "format":
                values[position] = 4 | 4 << 4 if self.isa.target.target.major == 9 else 20
            elif operand.name in ("offset0", "offset1"):
                values[position] = 3 if operand.name == "offset0" else 5
        written = replace(
            code,
            opcode=code.opcode[index : index + 1],
            operand_start=np.array([0, end - start], np.int32),
            operand_kind=kinds,
            operand_value=values,
        )
        try:
            raw, _ = self.isa.encode(written)
        except DecodeError:
            return None
        again = self.isa.decode(raw)
        if len(again) != 1 or int(again.opcode[0]) != number:
            return None
        return raw if again.operands(0) == written.operands(0) else None


MARK = "s_nop 7"
"""Stands between the prologue and the instructions that are looked at."""


def prologue(target: str) -> str:
    """s[2:3] is an address in the buffer, s[8:11] describes what is there, as records of 32 bytes; s12 and s14 are
    offsets; v[2:3] are addresses, v4, v5 (scratch) and v6 (LDS) offsets, v8 an index and v9 an offset."""
    old = target.startswith("gfx9")
    # Formats: X, a 32-bit number, as each generation spells it; from GFX10 on bounds are checked by index.
    word3 = 4 | (4 << 15 | 4 << 12 if old else 20 << 12 | 1 << 28)
    return f"""\
  s_mov_b64 s[2:3], s[4:5]
  s_add_u32 s2, s2, 0x8000
  s_addc_u32 s3, s3, 0
  s_mov_b32 s8, s2
  s_or_b32 s9, s3, 0x200000
  s_mov_b32 s10, 0x4000
  s_mov_b32 s11, {word3}
  s_movk_i32 s12, 0x140
  s_movk_i32 s14, 0x100
  s_movk_i32 m0, 0x100
  v_lshlrev_b32_e32 v4, 6, v0
  v_mov_b32_e32 v2, s2
  v_mov_b32_e32 v3, s3
  vadd v2, v2, v4
  v_lshlrev_b32_e32 v5, 4, v0
  vadd v5, 64, v5
  v_lshlrev_b32_e32 v6, 7, v0
  v_mov_b32_e32 v8, v0
  v_lshlrev_b32_e32 v9, 7, v0
  {MARK}
"""


def instructions(isa: Isa) -> Iterator[tuple[Opcode, bytes]]:
    """Every memory instruction that the emulated device executes, with several offsets."""
    executed = coverage(str(isa.target), isa.wave_size)
    known = {name for names in (executed.exact, executed.bounded) for opcodes in names.values() for name in opcodes}
    writer = Writer(isa)
    for number in samples(isa):
        opcode = isa.opcode(number)
        access = memory_access(opcode)
        if access is None or access.unaddressable or opcode.name not in known or "_TFE_" in opcode.name:
            continue
        if "format" in opcode.mnemonic and "d16" in opcode.mnemonic:
            continue  # how numbers of 32 bits become 16 is not documented
        seen = set()
        for offset in (0, 48, -32, 0xFF0):
            if offset < 0 and access.space == "scalar buffer":
                continue  # the device redirects what is out of bounds
            if offset < 0 and "_ST_" in f"{opcode.name}_":
                continue  # the offset would be the whole address
            raw = writer.write(number, offset)
            if raw is not None and raw not in seen:
                seen.add(raw)
                yield opcode, raw


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_every_memory_instruction(target: str, module: ToolModule) -> None:
    isa = Isa.of(target)
    cases = sample(list(instructions(isa)), 36)
    for start in range(0, len(cases), 1000):
        check(target, isa, cases[start : start + 1000], module)


def check(target: str, isa: Isa, cases: list[tuple[Opcode, bytes]], module: ToolModule) -> None:
    body = "\n".join(
        "  .long " + ", ".join(f"{word:#x}" for word in np.frombuffer(raw, "<u4").tolist()) for _, raw in cases
    )
    architected = isa.target.target.architected_flat_scratch
    enabled = "enable_private_segment" if architected else "system_sgpr_private_segment_wavefront_offset"
    descriptor = f"group_segment_fixed_size {LDS_BYTES}; private_segment_fixed_size {SCRATCH_BYTES}; {enabled} 1"
    object = assemble(target, f"{prologue(target)}{body}\n", vgprs=96, sgprs=100, descriptor=descriptor)
    rows: list[tuple[str, int | None, int, int]] = []

    def everywhere(task: InstrumentationTask) -> None:
        instructions = list(task.instructions)
        first = [instruction.text for instruction in instructions].index(MARK)
        for instruction in instructions[first + 1 : -1]:
            assert instruction.memory is not None
            for which in range(instruction.memory.count):
                address = task.effective_address(instruction, which)
                hook = module.see_short if address.expression.bits == 32 else module.see
                task.insert_hook_before(instruction, hook, address, immediate(len(rows)))
                rows.append((instruction.text, instruction.memory.size, which, instruction.memory.count))

    patched = patch_object(object, everywhere, strict=True)
    device = open_device(f"emu:{target}", threads=1)
    loaded = device.load(patched.data)
    buffer = device.allocate(BUFFER_BYTES)
    accesses: list[tuple[str, list]] = []
    pending: list[str] = []

    def trace(step: WaveStep) -> None:
        touched = take_accesses(step.worker)
        wave = step.worker.wave(step.wave)
        if pending and pending[0] in texts:
            known = [places(one, step, wave) for one in touched]
            if pending[0].startswith("scratch_"):  # what it moves to LDS cannot be told from its registers
                to_lds = " lds" in pending[0] or "_lds_" in pending[0]
                known = [] if to_lds else in_scratch(pending[0], step, wave)
            accesses.append((pending[0], known))
        pending[:] = [step.text]
        if step.text in texts and step.text.startswith("scratch_"):
            fill_scratch(step, wave)

    texts = {text for text, *_ in rows}
    loaded.kernel("k").launch(buffer, grid=1, block=isa.wave_size, trace=trace)
    seen = np.frombuffer(loaded.variable("seen").read(), np.uint64).reshape(-1, 64)
    assert len(accesses) == sum(which == 0 for _, _, which, _ in rows)
    at = iter(accesses)
    for row, (text, size, which, count) in enumerate(rows):
        if which == 0:
            name, touched = next(at)
            assert name == text
        if not touched:
            continue
        access = touched[which] if count > 1 else touched[0]
        lanes, wanted, _ = access
        got = seen[row, : isa.wave_size] if lanes is None else seen[row, lanes]
        assert np.array_equal(got, np.broadcast_to(wanted, got.shape)), (text, which, got[:4], wanted[:4])
        if text.endswith(" lds") or "_lds_" in text:  # what it writes in LDS is no address of the instruction's
            touched = touched[:1]
        if size is not None and touched[0][2] is not None:
            assert sum(bytes_ for *_, bytes_ in touched) == size * count, text


def scratch_of(step: WaveStep, wave) -> np.ndarray:
    """[lanes, bytes] the scratch of a wave."""
    first, room = (get_field(wave, layout.WAVE, name) for name in ("scratch", "scratch_size"))
    lanes = step.registers.wave_size
    return host_bytes(first, lanes * room).reshape(lanes, room)


def fill_scratch(step: WaveStep, wave) -> None:
    """Before an access of scratch, which the device does not tell of: each dword holds its offset, and what is stored
    differs from that in every byte."""
    memory = scratch_of(step, wave)
    offsets = np.arange(0, memory.shape[1], 4, dtype=np.uint32)
    memory.view(np.uint32)[:] = offsets | 0x80000000
    for register in range(16, 20):
        step.registers.set_vgpr(register, np.full(memory.shape[0], 0x7F7F7F7F, np.uint32))


def in_scratch(text: str, step: WaveStep, wave) -> list:
    """What an access of scratch has read, or changed."""
    lanes = np.arange(step.registers.wave_size)
    if "_load_" in text:
        if not re.search(r"_load_(?:dword|b(?:32|64|96|128))", text):
            return []  # of what is smaller the bytes do not say where they come from
        value = step.registers.vgpr(16)
        return [(lanes, (value & 0x7FFFFFFF).astype(np.uint64), None)]
    changed = scratch_of(step, wave)[: len(lanes)] == 0x7F
    return [(lanes, changed.argmax(axis=1).astype(np.uint64), int(changed.sum(axis=1).max()))]


def places(access, step: WaveStep, wave):
    hosts = access.places
    if access.scalar:
        return None, hosts[:1], access.size
    lds, lds_size = step.worker.group_field("lds"), step.worker.group_field("lds_size")
    scratch, room = (get_field(wave, layout.WAVE, name) for name in ("scratch", "scratch_size"))
    offsets = hosts - np.uint64(lds)
    if (offsets < lds_size).all():
        return access.lanes, offsets, access.size
    inside = hosts - np.uint64(scratch) - access.lanes.astype(np.uint64) * np.uint64(room)
    if room and (inside < room).all():
        return access.lanes, inside, access.size
    return access.lanes, hosts, access.size
