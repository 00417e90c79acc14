"""Upper bits of VGPR numbers (``s_set_vgpr_msb``).

A wave of some processors has 1,024 VGPRs, but instructions encode only 256. For each of four operand places (src0,
src1, src2, the result, or their equivalents: `Isa.vgpr_places`) the wave has a state of two more bits, set by the
operand of ``s_set_vgpr_msb``, bits 1:0 to 7:6. Its upper half records the previous state; hardware ignores it. All bits
are 0 at calls, entries and returns of functions.

A forward analysis of the blocks finds the state; the columns then have the complete register numbers, so that later
analyses need not know the state. A backward analysis finds the bits that are used before they are set again: where
paths with different states meet and neither uses the bits, inserted code may leave any value. Source: LLVM,
AMDGPULowerVGPREncoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from luthier.errors import LiftError
from luthier.isa import InstructionArray
from luthier.isa import registers as r
from luthier.lifting.code.graph import Graph
from luthier.lifting.instructions.effects import Columns, EffectTable

Fail = Callable[[str, int], LiftError]

_PLACES = range(4)
_ALL_PLACES = 0b1111
"""Bit set of all places."""
_UNKNOWN = -1
"""In a state: the bits of a place are unknown."""
State = tuple[int, int, int, int]
_AT_ENTRY: State = (0, 0, 0, 0)
_LEAVING = ("call", "tail", "return", "unknown")
"""Exits of blocks after which code of other functions runs."""
_MODE = 1
"""Number of the hardware register MODE in s_setreg."""
_IN_MODE = 12
"""Lowest of the eight bits in MODE: those of the result, then of src0, src1, src2."""


def state_of(bits: int) -> State:
    """Return the state that ``s_set_vgpr_msb`` with this operand sets."""
    return (bits & 3, bits >> 2 & 3, bits >> 4 & 3, bits >> 6 & 3)


def bits_of(state: State) -> int | None:
    """Return the operand of ``s_set_vgpr_msb`` that sets this state; None if some bits are unknown."""
    return None if _UNKNOWN in state else sum(bits << 2 * place for place, bits in enumerate(state))


def _with_zeros(state: State, places: int) -> State:
    """Return the state with 0 for the unknown bits of these places."""
    a, b, c, d = (0 if bits == _UNKNOWN and places >> place & 1 else bits for place, bits in enumerate(state))
    return a, b, c, d


class VgprBanks:
    """The state before each reachable instruction.

    Args:
        graph: the blocks.
        starts: addresses at which the hardware may start.
        fail: returns the error for a message and an address.
    """

    def __init__(self, table: EffectTable, columns: Columns, graph: Graph, starts: Iterable[int], fail: Fail) -> None:
        self._isa, self._table, self._columns, self._graph, self._fail = table.isa, table, columns, graph, fail
        self._names = {number: self._isa.opcode(number).pseudo for number in columns.opcodes}
        self._before = self._flow(starts)

    def _flow(self, starts: Iterable[int]) -> dict[int, State]:
        """Return the state before each block."""
        before: dict[int, State] = {}
        work = [(self._graph.native.at(entry), _AT_ENTRY) for entry in {*self._graph.members, *starts}]
        while work:
            number, incoming = work.pop()
            known = before.get(number)
            both = incoming if known is None else _joined(known, incoming)
            if both == known:
                continue
            before[number] = both
            after = self._after(self._graph.last[number], self._at_end(number, both))
            work += [(successor, after) for _, successor in self._graph.successors(number)]
        return before

    def _indices(self, number: int) -> range:
        """Return the instructions of a block."""
        return range(self._graph.first[number], self._graph.last[number] + 1)

    def _inside(self, number: int, state: State) -> Iterable[tuple[int, State]]:
        for index in self._indices(number):
            yield index, state
            state = self._after(index, state)

    def _at_end(self, number: int, state: State) -> State:
        """Return the state before the last instruction of a block, from the one before the block."""
        *_, (_, last) = self._inside(number, state)
        return last

    def _after(self, index: int, state: State) -> State:
        name = self._names.get(self._columns.opcode[index])
        if name is None:  # an undecodable word, or the one after it: only scalar encodings set the state
            return (_UNKNOWN,) * 4 if self._word(index) >> 30 == 0b10 else state
        if name == "S_SET_VGPR_MSB":
            return state_of(self._columns.values(index)[0])
        if name.startswith("S_SETREG") and self._names_mode(index):
            return self._after_mode(index, name, state)
        return state

    def _word(self, index: int) -> int:
        return int.from_bytes(self._columns.code.bytes_of(index)[:4], "little")

    def _names_mode(self, index: int) -> bool:
        return self._columns.values(index)[self._position(index, "simm16")] & 0x3F == _MODE

    def _after_mode(self, index: int, name: str, state: State) -> State:
        """Return the state after a write of MODE.

        Some hardware uses bits 19:12 of the operand whichever bits of MODE are selected (LLVM, handleSetregMode), so
        the state is known only if this makes no difference.
        """
        if name != "S_SETREG_IMM32_B32":
            return (_UNKNOWN,) * 4
        result, *sources = state_of(self._columns.values(index)[self._position(index, "imm")] >> _IN_MODE)
        return _joined(state, (sources[0], sources[1], sources[2], result))

    def _position(self, index: int, operand: str) -> int:
        return self._isa.opcode(self._columns.opcode[index]).operand_index[operand]

    def restored(self) -> dict[int, int | None]:
        """Return the state that code inserted before an instruction must restore.

        Returns:
            Instruction index -> operand of ``s_set_vgpr_msb``, None if unknown bits are used later. Instructions at
            which all bits are 0 are left out.
        """
        operands: dict[int, int | None] = {}
        used_after = self._used_after()
        for number, at_start in self._before.items():
            used = dict(self._used(number, used_after[number]))
            for index, state in self._inside(number, at_start):
                if state != _AT_ENTRY:
                    operands[index] = bits_of(_with_zeros(state, _ALL_PLACES & ~used[index]))
        return operands

    def _used_after(self) -> dict[int, int]:
        """Return block number -> places whose bits may be used after the block before they are set again."""
        before: dict[int, list[int]] = {}
        after: dict[int, int] = {}
        for number in self._before:
            exit, successors = self._graph.exits[number], self._graph.successors(number)
            known = exit == "end" or (successors and exit not in _LEAVING)
            after[number] = 0 if known else _ALL_PLACES
            for _, successor in successors:
                before.setdefault(successor, []).append(number)
        work = list(self._before)
        while work:
            number = work.pop()
            *_, (_, used) = self._used(number, after[number])
            for predecessor in before.get(number, ()):
                if used & ~after[predecessor]:
                    after[predecessor] |= used
                    work.append(predecessor)
        return after

    def _used(self, number: int, after: int) -> Iterable[tuple[int, int]]:
        """Yield each instruction of a block, last first, with the places whose bits may be used from there on."""
        for index in reversed(self._indices(number)):
            after = self._used_before(index, after, number)
            yield index, after

    def _used_before(self, index: int, after: int, number: int) -> int:
        opcode = self._columns.opcode[index]
        name = self._names.get(opcode)
        if name is None:
            return _ALL_PLACES
        if name == "S_SET_VGPR_MSB":
            return 0
        if name.startswith("S_GETREG") and self._names_mode(index) and not self._overwritten(index, number):
            return _ALL_PLACES
        registers = self._columns.registers(index)
        for operand, place in enumerate(self._isa.vgpr_places(opcode)):
            if place >= 0 and registers[operand] and self._is_vgpr(registers[operand]):
                after |= 1 << place
        return after

    def _overwritten(self, index: int, number: int) -> bool:
        """Return whether the result of an instruction is overwritten in its block before it is read.

        s_getreg of MODE also serves as a wait for writes of MODE, without a use of its result.
        """
        written = self._table.of(self._columns, index).writes
        for later in range(index + 1, self._graph.last[number] + 1):
            effects = self._table.of(self._columns, later)
            if written & effects.reads:
                return False
            written &= ~effects.hard_kills
            if not written:
                return True
        return False

    def check_calls(self) -> None:
        """Check that all bits are 0 at calls and returns.

        Raises:
            LiftError: they are not.
        """
        for number, state in self._before.items():
            if self._graph.exits[number] in _LEAVING and self._at_end(number, state) != _AT_ENTRY:
                message = "a call, return or unknown jump where upper bits of VGPR numbers (s_set_vgpr_msb) are not 0"
                raise self._fail(message, self._columns.address[self._graph.last[number]])

    def meant(self, code: InstructionArray) -> InstructionArray:
        """Return the instructions with complete register numbers, according to the state.

        Instructions that use unknown bits become like undecodable words: their opcode is -1.

        Raises:
            LiftError: a register does not exist.
        """
        values, opcodes = code.operand_value.copy(), code.opcode.copy()
        for number, at_start in self._before.items():
            for index, state in self._inside(number, at_start):
                if state == _AT_ENTRY or code.opcode[index] < 0:
                    continue
                first = int(code.operand_start[index])
                for operand, place in enumerate(self._isa.vgpr_places(int(code.opcode[index]))):
                    register = self._columns.registers(index)[operand] if place >= 0 else 0
                    if not register or not self._is_vgpr(register):
                        continue
                    if state[place] == _UNKNOWN:
                        opcodes[index] = -1
                    else:
                        values[first + operand] = self._moved(register, state[place], self._columns.address[index])
        values.flags.writeable = opcodes.flags.writeable = False
        return replace(code, operand_value=values, opcode=opcodes)

    def _is_vgpr(self, register: int) -> bool:
        return int(self._isa.register_first_unit[register]) in r.VGPRS

    def _moved(self, register: int, upper: int, address: int) -> int:
        unit = int(self._isa.register_first_unit[register]) + upper * self._isa.target.target.named_vgprs
        moved = self._isa.register_like(register, unit)
        if moved is None:
            raise self._fail(f"there is no register of the operand's width at {r.unit_name(unit)}", address)
        return moved


def _joined(left: State, right: State) -> State:
    a, b, c, d = (first if first == second else _UNKNOWN for first, second in zip(left, right, strict=True))
    return a, b, c, d
