"""Which VGPRs instructions name where their numbers have upper bits elsewhere (``s_set_vgpr_msb``).

A wave of some processors has 1,024 VGPRs, and instructions have numbers for 256. Two more bits for each of four places
of operands (src0, src1, src2, the result, or what stands for them: `Isa.vgpr_places`) are state of the wave: the
operand of ``s_set_vgpr_msb``, bits 1:0 to 7:6. Its upper half is a note of what was before, which hardware does not
read. A function is entered, called and left with all of them 0.

Found here by a forward analysis of the blocks; then the registers in the columns are those that are meant, and nothing
that comes later need know. Source: LLVM, AMDGPULowerVGPREncoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from luthier.errors import LiftError
from luthier.isa import InstructionArray, Isa
from luthier.isa import registers as r
from luthier.lifting.code.graph import Graph, Node
from luthier.lifting.instructions.effects import Columns

Fail = Callable[[str, int], LiftError]

_PLACES = range(4)
_UNKNOWN = -1
"""In a state: the bits of a place may be anything."""
State = tuple[int, int, int, int]
_AT_ENTRY: State = (0, 0, 0, 0)
_MODE = 1
"""Which hardware register MODE is for s_setreg."""
_IN_MODE = 12
"""The lowest of the eight bits in MODE: of the result, then of src0, src1, src2."""


def state_of(bits: int) -> State:
    """What ``s_set_vgpr_msb`` with this operand makes of the state."""
    return (bits & 3, bits >> 2 & 3, bits >> 4 & 3, bits >> 6 & 3)


def bits_of(state: State) -> int | None:
    """The operand of ``s_set_vgpr_msb`` that makes this state, None where it is not wholly known."""
    return None if _UNKNOWN in state else sum(bits << 2 * place for place, bits in enumerate(state))


class VgprBanks:
    """The state before each instruction that control reaches.

    Args:
        graph: the blocks.
        starts: addresses at which the hardware may start.
        fail: makes the error for a message and an address.

    Attributes:
        bits: instruction index -> operand of ``s_set_vgpr_msb`` that makes the state before it, None where that is not
            known; those with 0 are left out.

    Raises:
        LiftError: a call or return with bits that are not 0.
    """

    def __init__(self, isa: Isa, columns: Columns, graph: Graph, starts: Iterable[int], fail: Fail) -> None:
        self._isa, self._columns, self._graph, self._fail = isa, columns, graph, fail
        self._names = {number: isa.opcode(number).pseudo for number in columns.opcodes}
        self._before = self._flow(starts)
        self.bits: dict[int, int | None] = {}
        for number, state in self._before.items():
            for index, here in self._inside(graph.nodes[number], state):
                if here != _AT_ENTRY:
                    self.bits[index] = bits_of(here)

    def _flow(self, starts: Iterable[int]) -> dict[int, State]:
        """The state before each block."""
        before: dict[int, State] = {}
        work = [(self._graph.node_at[entry], _AT_ENTRY) for entry in {*self._graph.members, *starts}]
        while work:
            number, incoming = work.pop()
            known = before.get(number)
            both = incoming if known is None else _joined(known, incoming)
            if both == known:
                continue
            before[number] = both
            node = self._graph.nodes[number]
            *_, (_, last) = self._inside(node, both)
            after = self._after(node.last, last)
            work += [(successor, after) for _, successor in node.successors]
        return before

    def _inside(self, node: Node, state: State) -> Iterable[tuple[int, State]]:
        for index in range(node.first, node.last + 1):
            yield index, state
            state = self._after(index, state)

    def _after(self, index: int, state: State) -> State:
        name = self._names.get(self._columns.opcode[index])
        if name is None:  # a word that LLVM does not know, or what follows it: only scalar encodings set the state
            return (_UNKNOWN,) * 4 if self._word(index) >> 30 == 0b10 else state
        if name == "S_SET_VGPR_MSB":
            return state_of(self._columns.values(index)[0])
        if name.startswith("S_SETREG") and self._writes_mode(index):
            return self._after_mode(index, name, state)
        return state

    def _word(self, index: int) -> int:
        return int.from_bytes(self._columns.code.bytes_of(index)[:4], "little")

    def _writes_mode(self, index: int) -> bool:
        return self._columns.values(index)[self._position(index, "simm16")] & 0x3F == _MODE

    def _after_mode(self, index: int, name: str, state: State) -> State:
        """Some hardware takes bits 19:12 of the operand whichever bits of MODE are named (LLVM, handleSetregMode), so
        the state is known only where that makes no difference."""
        if name != "S_SETREG_IMM32_B32":
            return (_UNKNOWN,) * 4
        result, *sources = state_of(self._columns.values(index)[self._position(index, "imm")] >> _IN_MODE)
        return _joined(state, (sources[0], sources[1], sources[2], result))

    def _position(self, index: int, operand: str) -> int:
        return self._isa.opcode(self._columns.opcode[index]).operand_index[operand]

    def check_calls(self) -> None:
        """Refuse calls and returns with bits that are not 0.

        Raises:
            LiftError: there is one.
        """
        for number in self._before:
            node = self._graph.nodes[number]
            if node.exit in ("call", "tail", "return", "unknown") and self.bits.get(node.last, 0) != 0:
                message = "a call, return or unknown jump where upper bits of VGPR numbers (s_set_vgpr_msb) are not 0"
                raise self._fail(message, self._columns.address[node.last])

    def meant(self, code: InstructionArray) -> InstructionArray:
        """The same instructions with the registers that are meant. Where that is not known, they are like words that
        LLVM does not know: their opcode is -1.

        Raises:
            LiftError: a register is meant that does not exist.
        """
        values, opcodes = code.operand_value.copy(), code.opcode.copy()
        for number, state in self._before.items():
            for index, here in self._inside(self._graph.nodes[number], state):
                if here == _AT_ENTRY or code.opcode[index] < 0:
                    continue
                first = int(code.operand_start[index])
                for operand, place in enumerate(self._isa.vgpr_places(int(code.opcode[index]))):
                    register = self._columns.registers(index)[operand] if place >= 0 else 0
                    if not register or int(self._isa.register_first_unit[register]) not in r.VGPRS:
                        continue
                    if here[place] == _UNKNOWN:
                        opcodes[index] = -1
                    else:
                        values[first + operand] = self._moved(register, here[place], self._columns.address[index])
        values.flags.writeable = opcodes.flags.writeable = False
        return replace(code, operand_value=values, opcode=opcodes)

    def _moved(self, register: int, upper: int, address: int) -> int:
        unit = int(self._isa.register_first_unit[register]) + upper * self._isa.target.target.named_vgprs
        moved = self._isa.register_like(register, unit)
        if moved is None:
            raise self._fail(f"there is no register {r.unit_name(unit)} of the width that is named", address)
        return moved


def _joined(one: State, other: State) -> State:
    a, b, c, d = (mine if mine == theirs else _UNKNOWN for mine, theirs in zip(one, other, strict=True))
    return a, b, c, d
