"""Loads, stores and atomics: addresses made here, and the documents' pseudo-code of the access."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from isa_lanes import Inputs, environment
from isa_language import Cell, Environment, Places
from isa_machine import Machine, WaveRegisters
from isa_numbers import V, make
from isa_operands import Expected, Instruction, Operand, Unmodelled
from isa_pseudocode import compile_text
from isa_state import EXEC, LDS_SIZE, M0, SCRATCH, State
from luthier.isa.instructions import InstructionFlag
from numpy.typing import NDArray

STRIDE = 32
"""Bytes between the places of two lanes."""
SIZE = 4096
"""Bytes of the allocation that global accesses reach."""
_DUMMIES = (
    *("SADDR", "VADDR", "SRSRC", "SOFFSET", "SBASE", "v_addr", "s_saddr", "flat_scratch", "vgpr_a", "sgpr_o"),
    *("sgpr_base", "v_addr_off", "s_saddr_off"),
)
"""What the texts hand to the address calculation, which is done here."""


class Bytes(Places):
    """MEM[address]: an array at an address."""

    def __init__(self, array: NDArray[np.uint8], base: int) -> None:
        self.array, self.base = array, base

    def _at(self, address: int, width: int) -> slice:
        start = address - self.base
        if not 0 <= start <= len(self.array) - width // 8:
            raise Unmodelled(f"address {address:#x}")
        return slice(start, start + width // 8)

    def get(self, indices: tuple[int, ...], low: int, width: int) -> int:
        return int.from_bytes(self.array[self._at(indices[0], width)].tobytes(), "little")

    def put(self, indices: tuple[int, ...], low: int, width: int, value: V) -> None:
        data = (value.bits & ((1 << width) - 1)).to_bytes(width // 8, "little")
        self.array[self._at(indices[0], width)] = np.frombuffer(data, np.uint8)


def is_memory(ins: Instruction) -> bool:
    kinds = InstructionFlag.DS | InstructionFlag.FLAT | InstructionFlag.VMEM | InstructionFlag.SMEM
    return bool(ins.opcode.flags & kinds)


def kind_of(ins: Instruction) -> str:
    """lds, scratch, scalar, buffer, or global."""
    flags = ins.opcode.flags
    if flags & InstructionFlag.DS:
        return "lds"
    if flags & InstructionFlag.SMEM:
        return "scalar"
    if flags & InstructionFlag.VMEM:
        return "buffer"
    return "scratch" if flags & InstructionFlag.FLAT_SCRATCH else "global"


def immediate(name: str, random: np.random.Generator) -> int | None:
    """Offsets that keep accesses inside and aligned."""
    if name in ("offset0", "offset1"):
        return int(random.integers(0, 4))
    if name == "offset":
        return 16 * int(random.integers(1, 8))
    return None


def prepare(state: State, ins: Instruction, address: int, random: np.random.Generator, *, wide: bool) -> None:
    """Addresses in the registers, contents in memory."""
    lanes = state.vgprs.shape[1]
    kind = kind_of(ins)
    state.memory = random.integers(0, 256, SIZE, np.uint8)
    state.lds = random.integers(0, 256, LDS_SIZE, np.uint8)
    state.scratch = random.integers(0, 256, (lanes, SCRATCH), np.uint8)
    if re.search("_f(16|32|64)|bf16|_f(min|max|cmpswap)", ins.name):
        # Finite numbers: which NaN comes of another is not told.
        finite = 0xBFFFBFFF if "f16" in ins.name else 0xBFFFFFFF
        for array in (state.memory, state.lds):
            array.view(np.uint32)[:] &= np.uint32(finite)
        for name in ("data0", "data1", "vdata"):
            operand = ins.operands.get(name)
            if operand is not None and operand.kind in ("v", "a"):
                bank = state.vgprs if operand.kind == "v" else state.agprs
                bank[operand.index : operand.index + operand.count] &= np.uint32(finite)
    state.sgprs[M0] = 0xFFFFFFFF if "M0[15" not in ins.text_of_code else 16
    far = "st64" in ins.name or "stride64" in ins.name  # the offsets are as far apart as all lanes together
    places = np.arange(lanes, dtype=np.uint64) * np.uint64((8 if "b64" in ins.name else 4) if far else STRIDE)
    operands = ins.operands
    where = operands.get("vaddr") or operands.get("addr")
    base = operands.get("saddr")
    has_base = base is not None and base.kind == "s"
    if kind == "lds":
        if where is not None:
            state.vgprs[where.index] = random.integers(0, 1 << 10, lanes) if "permute" in ins.name else places
    elif kind == "scratch":
        if where is not None and where.kind == "v":
            state.vgprs[where.index] = 16 * random.integers(0, 4, lanes)
        if base is not None and has_base:
            state.sgprs[base.index] = 32
    elif kind == "global":
        if base is not None and has_base:
            state.put_wide(base.index, 2, address)
            if where is not None and where.kind == "v":
                state.vgprs[where.index] = places.astype(np.uint32)
        elif where is not None:
            whole = places + np.uint64(address)
            state.vgprs[where.index] = whole.astype(np.uint32)
            state.vgprs[where.index + 1] = (whole >> np.uint64(32)).astype(np.uint32)
    elif kind == "buffer":
        resource = operands["srsrc"]
        state.put_wide(resource.index, 4, descriptor(ins, address, wide))
        if where is not None and where.kind == "v":
            by_index = re.search("_(IDXEN|BOTHEN)", ins.opcode.name)
            values = np.arange(lanes) if by_index else places
            state.vgprs[where.index] = values.astype(np.uint32)
            if where.count == 2:
                state.vgprs[where.index + 1] = 16
        offset = operands.get("soffset")
        if offset is not None and offset.kind == "s" and offset.index < 106:
            state.sgprs[offset.index] = 32
    else:
        resource = operands["sbase"]
        if resource.count == 4:
            state.put_wide(resource.index, 4, descriptor(ins, address, wide))
        else:
            state.put_wide(resource.index, 2, address)
        offset = operands.get("soffset") or operands.get("soff")
        if offset is not None and offset.kind == "s" and offset.index < 106:
            state.sgprs[offset.index] = 64
    if "cmp" in ins.name and "cmpx" not in ins.name:
        equal_halves(state, ins, kind, random)


def descriptor(ins: Instruction, address: int, wide: bool) -> int:
    """A buffer of SIZE bytes; with indices, of rows of STRIDE. `wide`: in the format of GFX1250."""
    by_index = bool(re.search("_(IDXEN|BOTHEN)", ins.opcode.name))
    if wide:
        return address | SIZE << 57 | (STRIDE << 108 if by_index else 0)
    raw = 0x27000 | (3 << 28 if "gfx9" not in ins.opcode.name and "_vi" not in ins.opcode.name else 0)
    return address | (STRIDE << 48 if by_index else 0) | SIZE << 64 | raw << 96


def equal_halves(state: State, ins: Instruction, kind: str, random: np.random.Generator) -> None:
    """Comparisons that succeed in some lanes: memory is made of few values, and so is what is compared."""
    state.memory[:] = 0
    state.lds[:] = 0
    for name in ("data0", "data1", "vdata", "sdata"):
        operand = ins.operands.get(name)
        if operand is None:
            continue
        if operand.kind == "s":
            state.sgprs[operand.index + operand.count // 2 : operand.index + operand.count] = 0
            continue
        half = operand.count // 2 if name == "vdata" else 0
        rows = state.vgprs[operand.index + half : operand.index + operand.count]
        rows[:, random.integers(0, 2, rows.shape[1]).astype(bool)] = 0


class MemoryMachine(Machine):
    """A processor with memory: `address` is where the allocation is."""

    address = 0

    def expected(self, before: State, ins: Instruction) -> Expected:
        if not is_memory(ins):
            return super().expected(before, ins)
        text = ins.text_of_code
        if "VGPR[i]" in text:
            return self.across(before, ins, text)
        if kind_of(ins) == "scalar":
            return self.scalar_access(before, ins, text)
        return self.vector_access(before, ins, text)

    def offset(self, ins: Instruction) -> int:
        return ins.values.get("offset", 0)

    def lane_address(self, before: State, ins: Instruction, kind: str, lane: int) -> int:
        """Of the lane's place, offset included where the text does not add it."""
        operands = ins.operands
        where = operands.get("vaddr") or operands.get("addr")
        base = operands.get("saddr")
        own = self.read(before, where, lane) if where is not None and where.kind == "v" else 0
        scalar = self.read(before, base, lane) if base is not None and base.kind == "s" else 0
        if kind in ("global", "scratch"):
            return own + scalar + self.offset(ins)
        if kind == "buffer":
            assert operands["srsrc"]
            total = self.offset(ins)
            if re.search("_(IDXEN|BOTHEN)", ins.opcode.name):
                total += (own & 0xFFFFFFFF) * STRIDE + (own >> 32)
            else:
                total += own
            soffset = operands.get("soffset")
            if soffset is not None:
                total += self.read(before, soffset, lane, 32)
            return self.address + total
        return own

    def memory_environment(self, ins: Instruction, before: State, after: State, lane: int, kind: str) -> Environment:
        text = ins.text_of_code
        # Whatever MODE says, atomics round to nearest (LLVM's SITargetLowering::shouldExpandAtomicRMWInIR).
        setting = self.setting(ins, text, before)._replace(round32=0, round16=0)
        env = environment(setting, Inputs((), lane=lane, m0=int(before.sgprs[M0])))
        for name in _DUMMIES:
            env.constants[name] = make(0, "u", 64)
        offset = self.offset(ins)
        address = self.lane_address(before, ins, kind, lane)
        env.constants |= {
            "OFFSET": make(offset, "u", 32),
            "offset": make(offset, "u", 64),
            "OFFSET0": make(ins.values.get("offset0", offset & 255), "u", 8),
            "OFFSET1": make(ins.values.get("offset1", offset >> 8), "u", 8),
            "INST_OFFSET": make(offset, "u", 32),
            "ADDR_BASE": make(address, "u", 32),
        }
        total = address + offset if kind == "lds" and ("CalcDsAddr" in text or "OFFSET" not in text) else address
        env.constants["ADDR"] = make(total, "u", 64)
        base = ins.operands.get("saddr")
        if base is not None and base.kind == "s":
            env.constants["SGPR_ADDR"] = make(self.read(before, base, lane), "u", 64)
        env.functions = _Functions(env.functions, address, total)  # type: ignore[assignment]
        if kind == "lds":
            env.places["MEM"] = env.places["LDS"] = Bytes(after.lds, 0)
        elif kind == "scratch":
            env.places["MEM"] = Bytes(after.scratch[lane], 0)
        else:
            env.places["MEM"] = Bytes(after.memory, self.address)
        return env

    def vector_access(self, before: State, ins: Instruction, text: str) -> Expected:
        after = Expected(before.copy())
        kind = kind_of(ins)
        exec_bits = self.mask_bits(before.wide(EXEC, 2))
        operands = ins.operands
        result = operands.get("vdst")
        data = operands.get("data0") or operands.get("vdata")
        if result is None and data is not None and ("vdata_in" in operands or ins.opcode.operands[0].is_def):
            result = data
        run = compile_text(text)
        for lane in range(self.lanes):
            if not exec_bits >> lane & 1:
                continue
            env = self.memory_environment(ins, before, after.state, lane, kind)
            self.give_data(env, before, ins, lane, data, result)
            run(env)
            self.take_data(env, after, ins, lane, result)
            if "_TFE_" in ins.opcode.name and result is not None:
                self.bank(after.state, result)[result.index + result.count - 1, lane] = 0  # no fault
        return after

    def give_data(
        self, env: Environment, before: State, ins: Instruction, lane: int, data: Operand | None, result: Operand | None
    ) -> None:
        for names, operand in ((("DATA", "DATA0", "VDATA"), data), (("DATA2", "DATA1"), ins.operands.get("data1"))):
            if operand is not None:
                cell = Cell(self.read(before, operand, lane), 32 * operand.count)
                for name in names:
                    env.cells[name] = Cell(cell.bits, cell.width)
        env.cells["S0"] = Cell(env.constants["ADDR_BASE"].bits, 32)
        if data is not None:
            env.cells["S1"] = Cell(self.read(before, data, lane), 32 * data.count)
        if result is not None:
            old = self.read(before, result, lane)
            env.cells["RETURN_DATA"] = Cell(old, 32 * result.count)
            if data is None or data is result:
                env.cells["VDATA"] = Cell(old, 32 * result.count)

    def take_data(self, env: Environment, after: Expected, ins: Instruction, lane: int, result: Operand | None) -> None:
        if result is None:
            return
        pair = env.arrays.get("RETURN_DATA")
        if pair is not None:
            self.write(after, result, lane, pair[0].bits | pair[1].bits << 32, (1 << 64) - 1)
            return
        for name in ("RETURN_DATA", "VDATA"):
            cell = env.cells.get(name)
            if cell is not None and cell.written:
                mask = cell.written
                if mask in (0xFFFF, 0xFFFF0000) and "d16" in ins.name and self.clears_halves:
                    mask = 0xFFFFFFFF
                self.write(after, result, lane, cell.bits & cell.written, mask, cell.loose)
                return

    @property
    def clears_halves(self) -> bool:
        """Whether 16-bit loads clear the other half of the register: always, or under SRAMECC, taken to be on."""
        target = self.isa.target.target
        return target.supports_sramecc or target.small_loads_clear

    def across(self, before: State, ins: Instruction, text: str) -> Expected:
        """LDS permutations: lanes' registers alone."""
        after = Expected(before.copy())
        env = environment(self.setting(ins, text, before), Inputs((), exec=self.mask_bits(before.wide(EXEC, 2))))
        both = np.concatenate([before.vgprs, before.agprs])
        env.places["VGPR"] = WaveRegisters(both, both)
        for name, key in (("ADDR", "addr"), ("DATA0", "data0"), ("VDST", "vdst")):
            operand = ins.operands[key]
            env.constants[name] = make(operand.index + (len(before.vgprs) if operand.kind == "a" else 0), "u", 32)
        env.constants["OFFSET"] = make(self.offset(ins), "u", 16)
        compile_text(text)(env)
        after.state.vgprs, after.state.agprs = both[: len(before.vgprs)], both[len(before.vgprs) :]
        return after

    def scalar_access(self, before: State, ins: Instruction, text: str) -> Expected:
        after = Expected(before.copy())
        operands = ins.operands
        address = self.address + ins.values.get("offset", 0)
        offset = operands.get("soffset") or operands.get("soff")
        if offset is not None and offset.kind != "none":
            address += self.read(before, offset, 0, 32)
        env = environment(self.setting(ins, text, before), Inputs(()))
        for name in (*_DUMMIES, "OFFSET", "offset"):
            env.constants[name] = make(0, "u", 64)
        if "SGPR_IMM" in ins.opcode.name and offset is not None and offset.index == operands["sbase"].index:
            raise Unmodelled("an offset that is its own base")
        address &= ~3 if not re.search(r"\.[iu](8|16)\)?", text) else ~0
        env.constants["ADDR"] = make(address, "u", 64)
        env.functions = _Functions(env.functions, address, address)  # type: ignore[assignment]
        env.places["MEM"] = Bytes(after.state.memory, self.address)
        data = operands["sdata"] if "sdata" in operands else operands["sdst"]
        old = self.read(before, data, 0)
        for name in ("SDATA", "DATA", "RETURN_DATA"):
            env.cells[name] = Cell(old, 32 * data.count)
        compile_text(text)(env)
        for name in ("SDATA", "RETURN_DATA"):
            cell = env.cells[name]
            if cell.written and ins.opcode.operands[0].is_def:
                value = (old & ~cell.written) | (cell.bits & cell.written)
                after.state.put_wide(data.index, data.count, value)
        return after


class _Functions(dict):  # type: ignore[type-arg]
    """The library, and address calculations that give what was calculated here."""

    def __init__(self, inner: Any, base: int, total: int) -> None:
        super().__init__()
        self.inner, self.base, self.total = inner, base, total

    def get(self, name: str, default: object = None) -> object:
        if name == "CalcDsAddr":
            # With no offset given the text adds it itself.
            return lambda env, first, *rest: make(self.total if any(v.bits for v in rest) else self.base, "u", 64)
        if name.startswith("Calc"):
            return lambda env, *rest: make(self.total, "u", 64)
        return self.inner.get(name, default)

    def __getitem__(self, name: str) -> object:
        return self.inner[name]
