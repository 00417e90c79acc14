"""What instructions really read and write, found by running them on the emulated device.

An instruction with registers chosen apart runs twice from states that differ in everything it is said not to read. What
it leaves behind must be the same, or be what was there before.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from luthier.emulator.inspection.bench import WaveState, run_assembly
from luthier.emulator.running.memory import AllocationTable
from luthier.errors import DecodeError, EmulationError
from luthier.isa import InstructionArray, InstructionFlag, Isa, Opcode, OperandKind
from luthier.isa import registers as r
from luthier.lifting.instructions.effects import Columns, Effects, EffectTable
from luthier.lifting.instructions.semantics import LaneChange
from numpy.typing import NDArray

VGPRS, AGPRS = 64, 32
"""Registers that are looked at."""
USUAL_MODE, OTHER_MODE = 0x3F0, 0x05A
LDS_BYTES, MEMORY_BYTES, SCRATCH_BYTES = 4096, 8192, 512
PRESERVED = ("vdst_in", "old", "sdst_in")


class Impossible(Exception):
    """Operands of this sort do not fit the opcode."""


@dataclass
class State:
    """A wave's registers. Units as in docs/architecture.md."""

    scalars: NDArray[np.uint32]
    """[128] units 0 to 127."""
    scc: int
    mode: int
    vectors: NDArray[np.uint32]
    """[VGPRS + AGPRS, lanes]"""

    def copy(self) -> State:
        return State(self.scalars.copy(), self.scc, self.mode, self.vectors.copy())


@dataclass
class Outcome:
    state: State
    outside: tuple[bytes, ...]
    """Memory, LDS, and how often each instruction behind it ran."""


def vector_unit(row: int) -> int:
    return r.VGPR_FIRST + row if row < VGPRS else r.AGPR_FIRST + row - VGPRS


class Bench:
    """Runs instructions of one processor.

    Args:
        isa: the processor.
        seed: of all that is random.
    """

    def __init__(self, isa: Isa, seed: int) -> None:
        self.isa = isa
        self.random = np.random.default_rng(seed)
        self.memory = AllocationTable()
        self.place = self.memory.allocate(MEMORY_BYTES)
        self.table = EffectTable(isa, isa.wave_size, r.VGPR_MASK | r.AGPR_MASK)
        self.units = isa.register_first_unit.tolist()
        self.counts = isa.register_unit_count.tolist()
        self.members: dict[str, dict[str, list[int]]] = {}
        self.after = isa.assemble("s_nop 0\ns_nop 0\ns_nop 0").instructions.code
        fill = [f"v_accvgpr_write_b32 a{n}, v{VGPRS + n}" for n in range(AGPRS)]
        has_agprs = isa.target.target.has_agprs
        self.fill = isa.assemble("\n".join(fill)).instructions.code if has_agprs else b""

    # Instructions

    def variant(self, opcode: Opcode, operands: list[tuple[OperandKind, int]], files: str) -> InstructionArray:
        """The instruction with other registers, no two the same unless they must be.

        Args:
            files: which registers to take where there is a choice: letters of s, v, a and x (any).

        Raises:
            Impossible: it has no encoding like that.
        """
        kinds, values = [], []
        used = {"s": 8, "v": 2, "a": 2}
        for info, (kind, value) in zip(opcode.operands, operands, strict=True):
            if info.tied_to >= 0 or info.name in PRESERVED:
                kind, value = kinds[max(info.tied_to, 0)], values[max(info.tied_to, 0)]
            elif info.register_class and (kind is OperandKind.REGISTER or files != "v"):
                register = self._register(info.register_class, files, used)
                if register is not None and not (kind is OperandKind.REGISTER and value == 0 and info.name != "vdst"):
                    kind, value = OperandKind.REGISTER, register
            elif kind is OperandKind.IMMEDIATE:
                value = self._immediate(info.name, value, opcode)
            kinds.append(kind)
            values.append(value)
        made = InstructionArray(
            0,
            b"",
            *(np.zeros(1, dtype) for dtype in (np.int64, np.int32)),
            np.array([opcode.number], np.int32),
            np.zeros(1, np.uint32),
            np.zeros(1, np.int64),
            np.array([0, len(values)], np.int32),
            np.array(kinds, np.uint8),
            np.array(values, np.int64),
        )
        try:
            code = self.isa.decode(self.isa.encode(made)[0])
        except DecodeError as problem:
            raise Impossible from problem
        if len(code) != 1 or code.opcode[0] < 0:
            raise Impossible
        return code

    def _register(self, name: str, files: str, used: dict[str, int]) -> int | None:
        by_file = self.members.get(name)
        if by_file is None:
            by_file = self.members[name] = {"s": [], "v": [], "a": [], "x": []}
            for number in self.isa.registers_in_class(name):
                unit, count = self.units[number], self.counts[number]
                last = unit + count - 1
                if unit >= r.VGPR_FIRST and last < r.VGPR_FIRST + VGPRS:
                    by_file["v"].append(number)
                elif unit >= r.AGPR_FIRST and last < r.AGPR_FIRST + AGPRS:
                    by_file["a"].append(number)
                elif unit >= 0 and last < 100:
                    by_file["s"].append(number)
                elif 100 <= unit <= r.SCC:
                    by_file["x"].append(number)
            for numbers in by_file.values():
                numbers.sort(key=lambda number: self.units[number])
        choices = [file for file in files if by_file[file]] or [file for file in "vsax" if by_file[file]]
        if not choices:
            return None
        if choices[0] == "x":
            return int(self.random.choice(by_file["x"]))
        file = choices[0]
        base = {"s": 0, "v": r.VGPR_FIRST, "a": r.AGPR_FIRST}[file]
        for number in by_file[file]:
            first = self.units[number] - base
            if first >= used[file]:
                used[file] = first + self.counts[number]
                return number
        return by_file[file][0]

    def _immediate(self, name: str, value: int, opcode: Opcode) -> int:
        pick = self.random.integers
        if opcode.flags & InstructionFlag.BRANCH and name in ("simm16", "src0", ""):
            return 1
        if name == "dpp_ctrl":
            controls = [0x1B, 0x4E, 0xE4, 0x101, 0x111, 0x121, 0x140, 0x141]
            controls += [0x138, 0x130, 0x142, 0x143] if self.isa.target.target.major == 9 else [0x151, 0x161]
            return int(self.random.choice(controls))
        if name in ("row_mask", "bank_mask"):
            return 15 if pick(2) else int(pick(16))
        if name in ("bound_ctrl", "fi", "clamp") and not (name == "fi" and "dpp8" in opcode.operand_index):
            return value | int(pick(2))
        if name == "dpp8":
            return int(pick(1 << 24))
        if name in ("dst_sel", "src0_sel", "src1_sel"):
            return int(pick(7))
        if name == "dst_unused":
            return int(pick(3))
        if name.endswith("_modifiers") and not opcode.flags & (InstructionFlag.SDWA | InstructionFlag.DPP):
            return int(self.random.choice([0, 0, 4, 8, 12]))
        return value

    # States

    def state(self, lanes_on: int) -> State:
        """Numbers of several sorts; what a scalar operation takes for an address is none."""
        size = self.isa.wave_size

        def numbers(*shape: int) -> NDArray[np.uint32]:
            sorts = self.random.integers(0, 3, (shape[0], *[1] * (len(shape) - 1)))
            whole = self.random.integers(0, 1 << 32, shape, np.uint32)
            small = self.random.integers(0, 32, shape).astype(np.uint32)
            real = self.random.uniform(-4, 4, shape).astype(np.float32).view(np.uint32)
            return np.where(sorts == 0, whole, np.where(sorts == 1, small, real)).astype(np.uint32)

        scalars = numbers(128)
        scalars[r.M0] = 4
        lanes_on &= (1 << size) - 1
        scalars[r.EXEC_LO], scalars[r.EXEC_HI] = lanes_on & 0xFFFFFFFF, lanes_on >> 32
        return State(scalars, int(self.random.integers(2)), USUAL_MODE, numbers(VGPRS + AGPRS, size))

    def address(self, state: State, opcode: Opcode, operands: list[tuple[OperandKind, int]]) -> None:
        """Let the registers of an address hold one."""
        flags = opcode.flags
        lanes = np.arange(self.isa.wave_size, dtype=np.uint32)
        low, high = self.place.address & 0xFFFFFFFF, self.place.address >> 32
        word3 = {9: 0x00027000, 10: 0x31016FAC, 11: 0x31016000, 12: 0x31016000}[self.isa.target.target.major]

        def put(number: int, words: list[int | NDArray[np.uint32]]) -> None:
            unit = self.units[number]
            for index, word in enumerate(words):
                if unit >= r.VGPR_FIRST:
                    row = unit - r.VGPR_FIRST if unit < r.AGPR_FIRST else VGPRS + unit - r.AGPR_FIRST
                    state.vectors[row + index] = word
                elif 0 <= unit < r.EXEC_LO:
                    state.scalars[unit + index] = word

        named = sorted(zip(opcode.operands, operands, strict=True), key=lambda each: each[0].name != "soffset")
        for info, (kind, number) in named:  # an offset that is a part of the address is as good as any
            if kind is not OperandKind.REGISTER or not number:
                continue
            count = self.counts[number]
            if flags & (InstructionFlag.FLAT_SCRATCH | InstructionFlag.DS) and info.name in ("addr", "vaddr", "saddr"):
                put(number, [lanes * 4 % 128 if info.name != "saddr" else 16])
            elif info.name in ("srsrc", "rsrc") or (info.name == "sbase" and count == 4):
                put(number, [low, high, MEMORY_BYTES, word3])
            elif info.name in ("sbase", "saddr"):
                put(number, [low, high])
            elif info.name == "vaddr" and flags & InstructionFlag.FLAT and count == 2:
                put(number, [low + 32 * lanes, high])
            elif info.name == "vaddr":
                put(number, [16 * lanes, 0][:count])
            elif info.name == "soffset":
                put(number, [8])

    def run(self, code: InstructionArray, state: State, contents: bytes) -> Outcome:
        """Run one instruction.

        Raises:
            EmulationError: it does not run.
        """
        lanes_on = int(state.scalars[r.EXEC_LO]) | int(state.scalars[r.EXEC_HI]) << 32
        lanes_on &= (1 << self.isa.wave_size) - 1
        vgprs = {n: state.vectors[n] for n in range(VGPRS)}
        source = code.code + self.after
        start = lanes_on
        if state.vectors[VGPRS:].any():
            vgprs |= {VGPRS + n: state.vectors[VGPRS + n] for n in range(AGPRS)}
            source = self.fill + self._set_exec(lanes_on) + source
            start = (1 << self.isa.wave_size) - 1
        self.place.view()[:] = np.frombuffer(contents, np.uint8)
        ended = run_assembly(
            str(self.isa.target),
            source,
            vgprs,
            {n: int(state.scalars[n]) for n in range(126)},
            exec=start,
            wave_size=self.isa.wave_size,
            mode=state.mode,
            scc=state.scc,
            lds=contents[:LDS_BYTES],
            scratch=SCRATCH_BYTES,
            memory=self.memory,
        )
        outside = (self.place.view().tobytes(), ended.lds.tobytes(), ended.counts[-4:].tobytes())
        return Outcome(self._state_of(ended), outside)

    @functools.lru_cache(maxsize=8)  # noqa: B019 - as few as there are benches
    def _set_exec(self, lanes_on: int) -> bytes:
        text = f"s_mov_b32 exec_lo, lit({lanes_on & 0xFFFFFFFF:#x})\ns_mov_b32 exec_hi, lit({lanes_on >> 32:#x})"
        return self.isa.assemble(text).instructions.code

    def _has_agprs(self, code: InstructionArray) -> bool:
        """Whether AGPRs are worth filling: that takes an instruction for each."""
        named = (self.units[number] for kind, number in code.operands(0) if kind is OperandKind.REGISTER)
        return bool(self.fill) and any(unit >= r.AGPR_FIRST for unit in named)

    def _state_of(self, ended: WaveState) -> State:
        scalars = np.frombuffer(ended.sgpr(0, 128).to_bytes(512, "little"), np.uint32)
        vectors = [ended.vgpr(0, VGPRS), ended.agpr(0, AGPRS)]
        return State(scalars, ended.scc, ended.mode, np.concatenate(vectors))

    # The trial

    def disturbed(self, state: State, effects: Effects) -> State:
        """The state with everything changed that the instruction is said not to read."""
        other = state.copy()
        lanes = active_lanes(state, self.isa.wave_size)
        noise = self.random.integers(1, 1 << 32, other.scalars.shape, np.uint32)
        for unit in range(128):
            tracked = unit < 124 or unit == r.M0
            if tracked and not effects.reads >> unit & 1:
                other.scalars[unit] ^= noise[unit]
        if not effects.reads & r.EXEC_MASK:
            other.scalars[r.EXEC_LO] ^= noise[r.EXEC_LO]
        if not effects.reads >> r.SCC & 1:
            other.scc ^= 1
        if not effects.reads >> r.MODE & 1:
            other.mode = OTHER_MODE
        changes = self.random.integers(1, 1 << 32, other.vectors.shape, np.uint32)
        for row in range(len(other.vectors) if state.vectors[VGPRS:].any() else VGPRS):
            unit = vector_unit(row)
            if not effects.reads >> unit & 1:
                other.vectors[row] ^= changes[row]
            elif not effects.cross_reads >> unit & 1:
                other.vectors[row] ^= np.where(lanes, 0, changes[row]).astype(np.uint32)
        return other

    def effects(self, code: InstructionArray) -> Effects:
        """What is said of the instruction."""
        return self.table.of(Columns(code), 0)

    def problems(self, code: InstructionArray, lanes_on: int, effects: Effects) -> list[str]:
        """What is said of the instruction and is not so.

        Raises:
            EmulationError: it does not run.
        """
        opcode = self.isa.opcode(int(code.opcode[0]))
        state = self.state(lanes_on)
        if not self._has_agprs(code):
            state.vectors[VGPRS:] = 0
        self.address(state, opcode, code.operands(0))
        contents = self.random.integers(0, 256, MEMORY_BYTES, np.uint8).tobytes()
        other = self.disturbed(state, effects)
        first = self.run(code, state, contents)
        try:
            second = self.run(code, other, contents)
        except EmulationError as problem:
            return [f"faults with other registers: {problem}"]
        anywhere = self.table.opcode(opcode.number).writes_anywhere
        return list(self._differences(effects, anywhere, (state, first), (other, second)))

    def _differences(self, effects: Effects, anywhere: bool, *runs: tuple[State, Outcome]) -> Iterator[str]:
        (state, first_run), (other, other_run) = runs
        size = self.isa.wave_size
        if first_run.outside != other_run.outside:
            yield "memory, LDS or control depends on what is not read"
        for (before, after), name in (((state, first_run.state), "first"), ((other, other_run.state), "second")):
            lanes = active_lanes(before, size)
            for unit in range(126):
                if before.scalars[unit] != after.scalars[unit] and not effects.writes >> unit & 1:
                    yield f"{r.unit_name(unit)} changes ({name} run)"
            if (before.scalars[126:] != after.scalars[126:])[: size // 32].any():
                if not effects.writes & r.EXEC_MASK:
                    yield "EXEC changes"
                else:
                    yield from _transitions(effects.lanes, lanes, active_lanes(after, size))
            if before.scc != after.scc and not effects.writes >> r.SCC & 1:
                yield "SCC changes"
            if before.mode != after.mode and not effects.writes >> r.MODE & 1:
                yield "MODE changes"
            changed = before.vectors != after.vectors
            for row in np.flatnonzero(changed.any(axis=1)).tolist():
                if not effects.writes >> vector_unit(row) & 1:
                    yield f"{r.unit_name(vector_unit(row))} changes"
            if (changed & ~lanes).any() and not anywhere:
                yield "vector registers change in lanes that are not active"
        # What differs at the end was there before, or nothing said that it was replaced.
        for unit in range(126):
            if effects.kills >> unit & 1 and first_run.state.scalars[unit] != other_run.state.scalars[unit]:
                yield f"{r.unit_name(unit)} depends on what is not read, or is not replaced"
        differs = first_run.state.scalars ^ other_run.state.scalars
        moved = differs & ((first_run.state.scalars ^ state.scalars) | (other_run.state.scalars ^ other.scalars))
        for unit in np.flatnonzero(moved[:126]).tolist():
            yield f"{r.unit_name(unit)} depends on what is not read"
        if first_run.state.scc != other_run.state.scc and (effects.kills >> r.SCC & 1 or effects.reads >> r.SCC & 1):
            yield "SCC depends on what is not read"
        lanes = active_lanes(state, size)
        first, second = first_run.state.vectors, other_run.state.vectors
        differs = first ^ second
        moved = differs & ((first ^ state.vectors) | (second ^ other.vectors))
        for row in np.flatnonzero(differs.any(axis=1)).tolist():
            unit = vector_unit(row)
            if moved[row].any():
                yield f"{r.unit_name(unit)} depends on what is not read"
            replaced = np.ones(size, bool) if effects.hard_kills >> unit & 1 else lanes
            if effects.kills >> unit & 1 and (differs[row] != 0)[replaced].any():
                yield f"{r.unit_name(unit)} is not replaced"


def active_lanes(state: State, size: int) -> NDArray[np.bool_]:
    mask = int(state.scalars[r.EXEC_LO]) | int(state.scalars[r.EXEC_HI]) << 32
    return np.array([mask >> lane & 1 for lane in range(size)], bool)


def _transitions(lanes: LaneChange, before: NDArray[np.bool_], after: NDArray[np.bool_]) -> Iterator[str]:
    for change, changed in (
        (LaneChange.STAYS_ACTIVE, before & after),
        (LaneChange.BECOMES_INACTIVE, before & ~after),
        (LaneChange.BECOMES_ACTIVE, ~before & after),
        (LaneChange.STAYS_INACTIVE, ~before & ~after),
    ):
        if changed.any() and not lanes & change:
            yield f"lanes: {change.name} is not among {lanes!r}"
