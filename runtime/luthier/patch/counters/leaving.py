"""The path from a kernel to unknown code, which may use every register of the kernel, and in which a wave may end.
Counters are added to memory before the unknown code, and start again after it.

In its copies of the functions that pointers lead to, a kernel's counters stay in registers. This code therefore runs
only if a dispatcher (`luthier.patch.layout.dispatchers`) finds none of them. Values that must survive the unknown code
are in VGPRs above those of the original, which code for the original kernel cannot use.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from msgspec import Struct

from luthier.hazards.insertion import Boundaries, wait_states, waits_around_outputs
from luthier.isa.registers import SGPRS, VCC_LO, bits_of
from luthier.lifting import CallSite, Function, LiftedRepresentation
from luthier.patch.counters.code import Batch, CounterCode
from luthier.patch.payloads.code import BoundPayload, join
from luthier.patch.payloads.likely_targets import SYMBOLS, KeptAddresses
from luthier.patch.registers.copies import unit_text

_STATES = 16
"""Wait states after which no hazard remains, except those of matrix instructions, which `Boundaries` handles."""


class LeavingRegisters(Struct, frozen=True):
    """Registers that are reserved for the path."""

    scc: int
    """First unit of two aligned SGPRs."""
    exec: int
    """First unit of two aligned SGPRs."""
    address: int
    """First unit of two SGPRs for the address of cells."""
    vectors: tuple[int, int, int, int]
    """VGPR units above those of the original: two adjacent pairs."""
    link: int
    """VGPR unit above those of the original."""

    @staticmethod
    def take(scalars: list[int], vectors: list[int]) -> LeavingRegisters | None:
        """Choose the registers from free units; None if there are too few."""
        pairs = [low for low in scalars if low % 2 == 0 and low + 1 in scalars][:3]
        fours = [low for low in vectors if low % 2 == 0 and low + 1 in vectors][:2]
        singles = [unit for unit in vectors if unit - unit % 2 not in fours]
        if len(pairs) < 3 or len(fours) < 2 or not singles:
            return None
        registers = LeavingRegisters(
            pairs[0], pairs[1], pairs[2], (fours[0], fours[0] + 1, fours[1], fours[1] + 1), singles[0]
        )
        for units in (scalars, vectors):
            units[:] = [unit for unit in units if not registers.units >> unit & 1]
        return registers

    @property
    def units(self) -> int:
        """Return the bit set of all units."""
        pairs = (self.scc, self.exec, self.address)
        return sum(1 << unit for low in pairs for unit in (low, low + 1)) | sum(
            1 << unit for unit in (*self.vectors, self.link)
        )


def can_leave(lifted: LiftedRepresentation) -> bool:
    """Return whether control reaches unknown code only through dispatchers, and returns from it only by returns."""
    calls = {call.index: (function, call) for function in lifted.functions for call in function.calls}
    # Unknown code might get addresses from copied tables, and call them.
    hindered = lifted.code_tables or lifted.vgpr_bits
    if hindered or not all(
        one.index in calls
        and calls[one.index][1].pointer is not None
        and one.index not in lifted.index_mode
        and one.index not in lifted.skipped
        and one.index not in lifted.restrictions
        for one in lifted.unknown
    ):
        return False
    sources = {function.index: _Sources(lifted, function) for function in lifted.functions}
    return all(
        sources[function.index].are_loaded(call) for function, call in (calls[one.index] for one in lifted.unknown)
    )


class _Sources:
    """Origins of the values in SGPRs within a function.

    Addresses of functions in memory are those of the original. An address that the function computes from the program
    counter is that of a copy, which dispatchers do not know: counts in the copy would be lost on return. Compilers
    compute addresses this way if they keep one across a call, after which register contents are unknown.
    """

    def __init__(self, lifted: LiftedRepresentation, function: Function) -> None:
        self._lifted, self._function = lifted, function
        self._effects = lifted.effect_table.code(lifted.columns)
        self._blocks = {block.index: block for block in function.blocks}
        self._seen: set[tuple[int, int]] = set()

    def are_loaded(self, call: CallSite) -> bool:
        """Return whether the pointer of a call comes from memory or a lane on every path."""
        assert call.pointer is not None
        return all(self._is_loaded(call.index, call.pointer + half) for half in range(2))

    def _is_loaded(self, index: int, unit: int) -> bool:
        """Return whether the value of a unit before an instruction comes from memory or a lane. Values that are already
        being examined are assumed to."""
        if (index, unit) in self._seen:
            return True
        self._seen.add((index, unit))
        writers = self._writers(index, unit)
        return writers is not None and all(map(self._loads, writers))

    def _loads(self, index: int) -> bool:
        name = self._name(index)
        if name in ("S_MOV_B32", "S_MOV_B64"):
            return all(self._is_loaded(index, unit) for unit in bits_of(self._effects.together(index, index)[0]))
        if name == "V_READLANE_B32":
            read = self._lifted.instructions[index]
            return self._kept_are_loaded(read.operand("src0"), read.operand("src1"))
        return name.startswith(("S_LOAD_DWORD", "V_READFIRSTLANE"))

    def _kept_are_loaded(self, vector: object, lane: object) -> bool:
        """Return whether all SGPRs that the function stores in a lane of a VGPR are loaded, regardless of order."""
        kept = self._kept.get((vector, lane), ())
        reads = [(index, self._effects.together(index, index)[0]) for index in kept]
        return bool(kept) and all(
            self._is_loaded(index, unit) for index, units in reads for unit in bits_of(units) if unit in SGPRS
        )

    @functools.cached_property
    def _kept(self) -> dict[tuple[object, object], list[int]]:
        """Return the instructions that write each lane of each VGPR."""
        writers: dict[tuple[object, object], list[int]] = {}
        for block in self._function.blocks:
            for index in range(block.first, block.last + 1):
                if self._name(index) == "V_WRITELANE_B32":
                    write = self._lifted.instructions[index]
                    writers.setdefault((write.operand("vdst"), write.operand("src1")), []).append(index)
        return writers

    def _writers(self, index: int, unit: int) -> list[int] | None:
        """Return the last writes of a unit before an instruction, on each path; None if it may be a caller's value.
        Initial values of a kernel's registers are not addresses of functions."""
        block = self._blocks[self._lifted.block_of[index]]
        writers, done, pending = [], set[int](), [(block, index - 1)]
        while pending:
            block, last = pending.pop()
            writer = next((at for at in range(last, block.first - 1, -1) if self._writes(at, unit)), None)
            if writer is not None:
                writers.append(writer)
                continue
            if block.index == self._function.entry_block and not self._function.is_kernel:
                return None
            for number in block.predecessors:
                if number not in done and number in self._blocks:
                    done.add(number)
                    pending.append((self._blocks[number], self._blocks[number].last))
        return writers

    def _writes(self, index: int, unit: int) -> bool:
        return bool(self._effects.together(index, index)[1] >> unit & 1)

    def _name(self, index: int) -> str:
        opcode = int(self._lifted.columns.opcode[index])
        return self._lifted.effect_table.pseudos[opcode] if opcode >= 0 else ""


def may_tail(lifted: LiftedRepresentation) -> bool:
    """Return whether control may jump to unknown code, which then returns to an unknown address."""
    tails = {call.index for function in lifted.functions for call in function.calls if call.kind == "tail"}
    return any(one.index in tails for one in lifted.unknown)


def lanes_for(counters: int, wave_size: int) -> int:
    """Return the number of VGPRs whose lanes can hold the SGPRs in a set of units."""
    return -(-len([unit for unit in bits_of(counters) if unit in SGPRS]) // wave_size)


class LeavingCode:
    """Generator of the code of the path.

    Args:
        registers: registers reserved for it.
        batches: the counters.
        counters: bit set of the units of counters.
        between: waits before registers are overwritten that a memory instruction reads.
        keeping: VGPR units, also above those of the original, that preserve counters (`lanes_for`): a wave that returns
            subtracts from memory what it added there, and continues with complete counters.
        kept: registers to restore when control returns.
        alone: whether only counters are spliced in.
    """

    def __init__(
        self,
        lifted: LiftedRepresentation,
        code: CounterCode,
        registers: LeavingRegisters,
        batches: Sequence[Batch],
        counters: int,
        between: Sequence[str],
        keeping: Sequence[int],
        kept: KeptAddresses,
        *,
        alone: bool,
    ) -> None:
        self._lifted, self._code, self._registers = lifted, code, registers
        self._batches, self._between = batches, between
        self._scalars = [unit for unit in bits_of(counters) if unit in SGPRS]
        self._vectors = [unit for unit in bits_of(counters) if unit not in SGPRS]
        size = lifted.wave_size
        self._kept = {unit: (keeping[at // size], at % size) for at, unit in enumerate(self._scalars) if keeping}
        self._keeps = bool(keeping)
        self.kept, self.alone = kept, alone
        self._boundaries = Boundaries(lifted)
        target = lifted.target
        self._settle, self._read = waits_around_outputs(target)
        self._waits = [*between, *target.wait_for_every_load]
        self._move = f"s_mov_b{lifted.wave_size}"
        self._exec = "exec" if lifted.wave_size == 64 else "exec_lo"

    def code(self, pair: int, link: int | None, callers: Sequence[int]) -> BoundPayload:
        """Return the code that continues at the target of a pointer.

        Args:
            pair: first unit of the SGPRs with the pointer.
            link: first unit of the SGPRs with the return address; None if it is unknown, and no counter is in an SGPR.
            callers: the instructions that lead to it.
        """
        registers = self._registers
        scc, kept = unit_text(registers.scc), self._pair(registers.exec)
        boundaries = {line: None for index in callers for line in self._boundaries.at(index, index)[0]}
        begin = [*boundaries, *wait_states(_STATES), f"s_cselect_b32 {scc}, 1, 0"]
        begin += [f"{self._move} {kept}, {self._exec}", *self._waits, *self._settle]
        pieces = [self._code.assemble(begin)]
        pieces += self._flush(take_back=False)
        lines = [f"{self._move} {self._exec}, -1"]
        lines += [f"v_mov_b32 {unit_text(unit)}, 0" for unit in self._vectors if not self._keeps]
        lines += [*self._settle, f"{self._move} {self._exec}, {kept}"]
        for unit, (to, lane) in self._kept.items():
            lines.append(f"v_writelane_b32 {unit_text(to)}, {unit_text(unit)}, {lane}")
        goal = "vcc" if pair == VCC_LO else f"s[{pair}:{pair + 1}]"
        if link is None:
            pieces.append(self._code.assemble([*lines, *self._scc_again(), f"s_setpc_b64 {goal}"]))
            return join(pieces)
        halves = [(unit_text(link + half), half) for half in range(2)]
        back = f"s[{link}:{link + 1}]"
        saved = unit_text(registers.link)
        # Use another register: the call writes these, and on GFX12 their reads by vector instructions are hazards.
        other = unit_text(registers.scc + 1)
        for half, lane in halves:
            lines += [f"s_mov_b32 {other}, {half}", *self._settle]
            lines += [f"v_writelane_b32 {saved}, {other}, {lane}", *self._settle]
        lines += [*self._scc_again(), f"s_swappc_b64 {back}, {goal}"]
        lines += [f"s_cselect_b32 {scc}, 1, 0", *wait_states(_STATES), *self._waits, *self._settle]
        lines += [f"s_mov_b32 {unit_text(unit)}, 0" for unit in self._scalars if not self._keeps]
        pieces.append(self._code.assemble([*lines, *self.kept.lines], SYMBOLS))
        lines = [
            f"v_readlane_b32 {unit_text(unit)}, {unit_text(of)}, {lane}" for unit, (of, lane) in self._kept.items()
        ]
        if self._keeps:
            lines += [f"{self._move} {kept}, {self._exec}", *self._read]
            pieces += [self._code.assemble(lines), *self._flush(take_back=True)]
            lines = [*self._settle, f"{self._move} {self._exec}, {kept}"]
        lines += [f"v_readlane_b32 {half}, {saved}, {lane}" for half, lane in halves]
        lines += [*self._read, *self._scc_again(), f"s_setpc_b64 {back}"]
        return join([*pieces, self._code.assemble(lines)])

    def _flush(self, *, take_back: bool) -> list[BoundPayload]:
        """Return the code that adds all counters to memory, or subtracts them."""
        pieces: list[BoundPayload] = []
        for batch in self._batches:
            waits = [*self._between, *self._settle] if pieces else []
            vectors, address = self._registers.vectors, self._registers.address
            pieces.append(self._code.flush(batch, vectors, address, waits, fresh=False, take_back=take_back))
        return pieces

    def _scc_again(self) -> list[str]:
        return [f"s_cmp_lg_u32 {unit_text(self._registers.scc)}, 0"]

    def _pair(self, low: int) -> str:
        return f"s[{low}:{low + 1}]" if self._lifted.wave_size == 64 else unit_text(low)
