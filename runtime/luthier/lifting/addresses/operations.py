"""Scalar operations that compute addresses."""

from __future__ import annotations

from collections.abc import Callable, Container
from enum import IntFlag
from functools import lru_cache, reduce
from operator import or_
from typing import TypeAlias

import numpy as np

from luthier.isa import Isa, OperandKind
from luthier.isa import registers as r
from luthier.lifting.addresses.values import (
    MASK32,
    MASK64,
    AddressState,
    Carry,
    Const,
    Element,
    GetpcReference,
    HalfAddress,
    High,
    Key,
    LaneElement,
    Low,
    Notes,
    PointerSlot,
    Taint,
    Value,
    Values,
    Within,
    near_of,
    pair_of,
)
from luthier.lifting.instructions.by_opcode import ByOpcode
from luthier.lifting.instructions.effects import Columns, Effects
from luthier.lifting.instructions.semantics import Control, LaneChange, control_of

Results: TypeAlias = dict[Key, Values | None]

_TRUTH = (frozenset([Const(1)]), frozenset([Const(0)]))
"""Values of SCC when it is saved in a register."""


class ScalarOperations:
    """The effects of scalar operations on an `AddressState`.

    Args:
        filled: addresses in the code that the loader writes.
    """

    def __init__(
        self, columns: Columns, first_unit: list[int], unit_count: list[int], filled: Container[int] = ()
    ) -> None:
        self.columns = columns
        self.filled = filled
        self.first_unit = first_unit
        self.unit_count = unit_count

    def apply(self, name: str, index: int, effects: Effects, state: AddressState, notes: Notes | None) -> None:
        """Run one instruction.

        Args:
            name: its generic opcode name.
            notes: receives references and uses on the last pass.
        """
        action = _ACTIONS.get(name)
        results = action(self, index, state, notes) if action is not None else {}
        if effects.writes & r.EXEC_MASK and r.EXEC_LO in state.values and not effects.lanes & LaneChange.BECOMES_ACTIVE:
            for half in (r.EXEC_LO, r.EXEC_HI):
                results.setdefault(half, state[half])
        taints = self._taints(name, index, effects, state)
        fresh: frozenset[Taint] = frozenset()
        if name == "S_GETPC_B64":
            fresh = frozenset([(self.columns.address[index], False)])
        elif taints and name in _MOVES:
            fresh = taints
        elif taints and name in _SUMS and results:
            fresh = frozenset((getpc, True) for getpc, _ in taints)
        elif taints and notes is not None and name not in _JUMPS:
            notes.use(taints, self.columns.address[index])
        state.overwrite(effects.writes, effects.kills)
        for key, values in results.items():
            state[key] = values
        if name == "V_WRITELANE_B32":
            lane = self._lane(index, state)
            if lane is not None:  # the previous value of that lane is lost
                state.taint((self.unit(index, 0), lane), fresh)
            elif fresh and notes is not None:
                notes.use(fresh, self.columns.address[index])
        elif fresh:
            for unit in r.UnitSet(effects.writes & r.SGPR_MASK | effects.writes & r.VCC_MASK):
                state.taint(unit, fresh)

    def _taints(self, name: str, index: int, effects: Effects, state: AddressState) -> frozenset[Taint]:
        """Return the program counters that an instruction may read; from a known lane, only those in that lane."""
        lane = self._lane(index, state) if name in _LANE_MOVES else None
        if lane is None:
            return state.tainted(effects.reads)
        taints = state.tainted(effects.reads & r.SCALAR_MASK)
        if name == "V_READLANE_B32":
            taints |= state.taints.get((self.unit(index, 1), lane), frozenset())
        return taints

    def unit(self, index: int, operand: int) -> int:
        """Return the first unit of a register operand, -1 if it has none."""
        registers = self.columns.registers(index)
        return self.first_unit[registers[operand]] if operand < len(registers) else -1

    def source(self, state: AddressState, index: int, operand: int, half: int = 0) -> Values | None:
        """Return the values of a 32-bit operand, or of one half of a 64-bit one."""
        columns = self.columns
        position = columns.start[index] + operand
        register = columns.register[position]
        if register:
            unit = self.first_unit[register]
            if unit < 0 or unit >= r.VGPR_FIRST or half >= self.unit_count[register]:
                return None
            return state[unit + half]
        if columns.code.operand_kind[position] == int(OperandKind.EXPRESSION):
            return None
        if columns.address[index] + columns.size[index] - 4 in self.filled:  # the address of a literal
            return None
        return frozenset([Const(columns.value[position] >> (32 * half) & MASK32)])

    def is_immediate(self, index: int, operand: int) -> bool:
        """Return whether an operand is a constant, not a register."""
        return self.columns.register[self.columns.start[index] + operand] == 0

    # Each action returns new values of registers that it writes; its other results become unknown.

    def _getpc(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        unit, place = self.unit(index, 0), self.columns.address[index]
        return {unit: frozenset([Low(place, 0)]), unit + 1: frozenset([High(place, 0)])} if unit >= 0 else {}

    def _copy(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        unit = self.unit(index, 0)
        halves = range(self.unit_count[self.columns.registers(index)[0]])
        if unit < 0 or (len(halves) > 1 and self.is_immediate(index, 1)):
            return {}
        return {unit + half: self.source(state, index, 1, half) for half in halves}

    def _move_short(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        value = self.columns.values(index)[1] & 0xFFFF
        return {self.unit(index, 0): frozenset([Const((value ^ 0x8000) - 0x8000 & MASK32)])}

    def _conditional(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        unit = self.unit(index, 0)
        carries = state[r.SCC]
        sources = self.source(state, index, 1), self.source(state, index, 2)
        if sources == _TRUTH and carries and all(isinstance(value, Carry) for value in carries):
            return {unit: carries}  # SCC is saved, as payloads do
        result: Results = {}
        for half in range(self.unit_count[self.columns.registers(index)[0]]):
            left, right = self.source(state, index, 1, half), self.source(state, index, 2, half)
            result[unit + half] = None if left is None or right is None else left | right
        return result

    def _compare(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        """Return SCC after a comparison that restores the value saved by `_conditional`."""
        values = self.source(state, index, 0)
        if values and self.source(state, index, 1) == _TRUTH[1] and all(isinstance(value, Carry) for value in values):
            return {r.SCC: values}
        return {}

    def _sign_extend(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        # GFX12: the program counter is zero-extended from 48 bits.
        values = self.source(state, index, 1)
        if values and all(isinstance(value, High) and value.offset == 0 for value in values):
            return {self.unit(index, 0): values}
        return {}

    def _add(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        return self._sum(index, state, notes, subtract=False)

    def _add_signed(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        results = self._sum(index, state, notes, subtract=False)
        results.pop(r.SCC, None)  # SCC is the signed overflow, not the carry
        return results

    def _subtract(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        return self._sum(index, state, notes, subtract=True)

    def _sum(self, index: int, state: AddressState, notes: Notes | None, subtract: bool) -> Results:
        unit = self.unit(index, 0)
        bases, addends, literal = self._operands(index, state, Low, subtract)
        if bases is None:
            return {}
        amount = next(iter(addends)) if addends is not None and len(addends) == 1 else None
        if not isinstance(amount, Const):
            return self._indexed(unit, bases, 0)
        sign, place = -1 if subtract else 1, self.columns.address[index]
        sums: set[Value] = set()
        carries: set[Value] = set()
        for value in bases:
            if isinstance(value, Const):
                sums.add(Const(value.value + sign * amount.value & MASK32))
            elif isinstance(value, Low):
                sums.add(Low(value.getpc, value.offset + sign * amount.value & MASK32))
                exact = literal and len(bases) == 1 and not subtract
                carries.add(Carry(value.getpc, value.offset, amount.value, place, exact, subtract))
                if notes is not None and value.offset == 0:
                    notes.low_adds[place] = value.getpc
                    if not exact:
                        notes.computed.add(value.getpc)
            else:
                return self._indexed(unit, bases, 0)
        return {unit: frozenset(sums), r.SCC: frozenset(carries) or None}

    def _indexed(self, unit: int, values: Values, half: int) -> Results:
        """Return the sum of a complete address and an unknown offset: an address in the same data object."""
        result: set[Value] = set()
        for value in values:
            if isinstance(value, HalfAddress) and value.half == half:
                result.add(value)
            elif isinstance(value, Low if half == 0 else High) and value.offset:
                result.add(HalfAddress(value.getpc, value.offset & MASK32 if half == 0 else value.offset, half))
            else:
                return {}
        return {unit: frozenset(result)}

    def _add_carry(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        return self._sum_carry(index, state, notes, subtract=False)

    def _subtract_borrow(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        return self._sum_carry(index, state, notes, subtract=True)

    def _sum_carry(self, index: int, state: AddressState, notes: Notes | None, subtract: bool) -> Results:
        bases, addends, literal = self._operands(index, state, High, subtract)
        carries = state[r.SCC]
        if bases is None:
            return {}
        amount = next(iter(addends)) if addends is not None and len(addends) == 1 else None
        if carries is None or not isinstance(amount, Const):
            return self._indexed(self.unit(index, 0), bases, 1)
        sums: set[Value] = set()
        for value in bases:
            if not isinstance(value, High):
                return {}
            matching = [
                carry
                for carry in carries
                if isinstance(carry, Carry)
                and (carry.getpc, carry.before, carry.subtract) == (value.getpc, value.offset & MASK32, subtract)
            ]
            if len(matching) != 1:
                return {}
            carry = matching[0]
            added = amount.value << 32 | carry.amount
            offset = value.offset + (-added if subtract else added) & MASK64
            sums.add(High(value.getpc, offset))
            if notes is not None and value.offset == 0:
                if carry.literal and literal and len(bases) == 1 and len(carries) == 1:
                    notes.references.add(GetpcReference(value.getpc, carry.place, self.columns.address[index], offset))
                else:
                    notes.computed.add(value.getpc)
        return {self.unit(index, 0): frozenset(sums)}

    def _add_pair(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        # GFX12's 64-bit addition; a complete address plus an offset points into the same data object.
        unit = self.unit(index, 0)
        for operand in (1, 2):
            source = self.unit(index, operand)
            low, high = self.source(state, index, operand, 0), self.source(state, index, operand, 1)
            if source < 0 or low is None or high is None:
                continue
            pair, amount = pair_of(low, high), self._wide_literal(index, 3 - operand)
            if pair is not None and not pair[1] and amount is not None:
                getpc, place = pair[0], self.columns.address[index]
                if notes is not None:
                    notes.references.add(GetpcReference(getpc, place, place, amount))
                return {
                    unit: frozenset([Low(getpc, amount & MASK32)]),
                    unit + 1: frozenset([High(getpc, amount)]),
                }
            sums = [*self._indexed(unit, low, 0).items(), *self._indexed(unit + 1, high, 1).items()]
            if len(sums) == 2:
                return dict(sums)
        return {}

    def _wide_literal(self, index: int, operand: int) -> int | None:
        """Return the value of an operand if it is a 64-bit literal, otherwise None."""
        columns = self.columns
        position = columns.start[index] + operand
        literal = columns.address[index] + 4
        if (
            columns.size[index] != 4 + 8
            or columns.register[position]
            or columns.code.operand_kind[position] == int(OperandKind.EXPRESSION)
            or literal in self.filled
            or literal + 4 in self.filled
        ):
            return None
        return columns.value[position] & MASK64

    def _operands(
        self, index: int, state: AddressState, kind: type[Low] | type[High], subtract: bool
    ) -> tuple[Values | None, Values | None, bool]:
        """Return the sources of a sum with the address first, and whether the second is an immediate."""
        left, right = self.source(state, index, 1), self.source(state, index, 2)
        if not subtract and right and any(isinstance(value, kind) for value in right):
            return right, left, self.is_immediate(index, 1)
        return left, right, self.is_immediate(index, 2)

    def _load(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        return self._load_at(index, state, self.columns.values(index)[2], frozenset([Const(0)]))

    def _load_indexed(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        return self._load_at(index, state, 0, self._offset_register(index, state))

    def _load_both(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        return self._load_at(index, state, self.columns.values(index)[3], self._offset_register(index, state))

    def _offset_register(self, index: int, state: AddressState) -> Values | None:
        unit = self.unit(index, 2)
        return state[unit] if unit >= 0 else frozenset([Const(0)])  # SGPR_NULL

    def _load_at(self, index: int, state: AddressState, immediate: int, register: Values | None) -> Results:
        """Return the results of a scalar load from a base pair plus an immediate and a register."""
        unit, base = self.unit(index, 0), self.unit(index, 1)
        if unit < 0 or base < 0:
            return {}
        count = self.unit_count[self.columns.registers(index)[0]]
        pair = pair_of(state[base], state[base + 1])
        near = near_of(state[base], state[base + 1])
        starts: set[tuple[int, int]] = set()
        if near is not None:
            starts.add(near)
        elif pair is not None:
            getpc, offset = pair
            amount = next(iter(register)) if register is not None and len(register) == 1 else None
            if isinstance(amount, Const):
                at = offset + immediate + amount.value
                return {
                    unit + one: frozenset([PointerSlot(getpc, at + (one & ~1) * 4 & MASK64, one & 1)])
                    for one in range(count)
                }
            if offset:  # an element of the data object; the immediate may also lead into another one
                starts = {(getpc, offset), (getpc, offset + immediate & MASK64)}
        if not starts:
            return {}
        return {
            unit + one: frozenset([Element(getpc, offset, one & 1) for getpc, offset in starts]) for one in range(count)
        }

    def _load_lanes(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        """Return the results of a load from a base pair, an immediate and a VGPR, for each lane."""
        unit, base = self.unit(index, 0), self.unit(index, 1)
        pair = pair_of(state[base], state[base + 1]) if base >= 0 else None
        if unit < 0 or pair is None or not pair[1]:
            return {}
        getpc, offset = pair
        immediate, place = self.columns.values(index)[3], self.columns.address[index]
        results: Results = {}
        for word in range(self.unit_count[self.columns.registers(index)[0]]):
            starts = {offset, offset + immediate & MASK64}
            results[unit + word] = frozenset([LaneElement(place, getpc, start, word & 1) for start in starts])
        for key, values in state.values.items():  # facts from an earlier execution of this load are outdated
            if values and any(isinstance(value, Within) and place in value.loads for value in values):
                results[key] = frozenset(
                    [Within(value.loads - {place}) if isinstance(value, Within) else value for value in values]
                )
        for key in (r.EXEC_LO, r.EXEC_HI):
            active = results.get(key, state[key]) or frozenset([Within(frozenset())])
            results[key] = frozenset(
                [Within((value.loads if isinstance(value, Within) else frozenset()) | {place}) for value in active]
            )
        return results

    def _read_first_lane(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        unit = self.unit(index, 1)
        values = state[unit] if unit >= r.VGPR_FIRST else None
        active = [state[key] for key in (r.EXEC_LO, r.EXEC_HI)]
        if not values or not all(active):
            return {}
        elements: set[Value] = set()
        for value in values:
            if not isinstance(value, LaneElement):
                return {}
            for masks in active:
                if not all(isinstance(mask, Within) and value.load in mask.loads for mask in masks or ()):
                    return {}
            elements.add(Element(value.getpc, value.offset, value.half))
        return {self.unit(index, 0): frozenset(elements)}

    def _save_exec(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        unit = self.unit(index, 0)
        halves = range(self.unit_count[self.columns.registers(index)[0]])
        return {unit + half: state[r.EXEC_LO + half] for half in halves if r.EXEC_LO + half in state.values}

    def _combine_masks(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        """Return the results of an operation on two masks that sets only lanes of these masks.

        The result was active for the loads for which both masks were.
        """
        unit = self.unit(index, 0)
        results: Results = {}
        for half in range(self.unit_count[self.columns.registers(index)[0]]):
            left, right = self.source(state, index, 1, half), self.source(state, index, 2, half)
            pairs = [(a, b) for a in left or () for b in right or ()]
            if pairs and all(isinstance(a, Within) and isinstance(b, Within) for a, b in pairs):
                results[unit + half] = frozenset(
                    [Within(a.loads & b.loads) for a, b in pairs if isinstance(a, Within) and isinstance(b, Within)]
                )
        return results

    def _write_lane(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        unit = self.unit(index, 0)
        results: Results = {
            key: value for key, value in state.values.items() if isinstance(key, tuple) and key[0] == unit
        }
        lane = self._lane(index, state)
        if lane is None:
            return {}
        results[unit, lane] = self.source(state, index, 1)
        return results

    def _lane(self, index: int, state: AddressState) -> int | None:
        """Return the lane that an instruction reads or writes; None if not known."""
        lane = self.source(state, index, 2)
        (which,) = lane if lane is not None and len(lane) == 1 else (None,)
        return which.value & 63 if isinstance(which, Const) else None

    def _read_lane(self, index: int, state: AddressState, notes: Notes | None) -> Results:
        lane = self._lane(index, state)
        return {} if lane is None else {self.unit(index, 0): state[self.unit(index, 1), lane]}


class OperationRole(IntFlag):
    """Properties of an operation that decide whether an instruction is relevant.

    The native search has the same numbers (`runtime/native/lifting/address_paths.h`).
    """

    FOLLOWED = 1
    """Its results may be known."""
    READS_COUNTER = 2
    """It reads the program counter."""
    NEEDS_COUNTER = 4
    """Its results are known only if its sources derive from a program counter."""
    MOVES = 8
    """Its result is one of its sources, so it may copy a program counter."""
    COPIES = 16
    """It may copy a value from the function's entry."""
    BY_REGISTER = 32
    """It jumps to an address in registers."""
    MAY_RETURN = 64
    """It may return to the caller."""
    LEAVES = 128
    """Control may leave the function there."""
    USES_CARRY = 256
    """Its results depend on everything it reads, including SCC; those of other operations do not depend on SCC."""
    USES_EXEC_ALONE = 512
    """Its results depend on EXEC alone."""
    USES_LANES = 1024
    """Its results depend on knowledge of EXEC."""
    ANY_LANES = 2048
    """Its results do not depend on EXEC, although it reads it."""


_LEAVING = {
    Control.CALL: OperationRole.LEAVES,
    Control.CALL_REGISTER: OperationRole.LEAVES | OperationRole.BY_REGISTER,
    Control.JUMP_REGISTER: OperationRole.LEAVES | OperationRole.BY_REGISTER | OperationRole.MAY_RETURN,
}


@lru_cache(maxsize=64)
def roles(isa: Isa) -> ByOpcode:
    """Return the `OperationRole` of each opcode."""

    def role_of(number: int) -> OperationRole:
        name = isa.opcode(number).pseudo
        role = _LEAVING.get(control_of(name, isa.target.target), OperationRole(0))
        if name in _ACTIONS:
            role = reduce(or_, [other for names, other in _ROLES if name in names], role | OperationRole.FOLLOWED)
        return role

    return ByOpcode(role_of, 0, np.uint16)


Action: TypeAlias = Callable[[ScalarOperations, int, AddressState, Notes | None], Results]

_ACTIONS: dict[str, Action] = {
    "S_GETPC_B64": ScalarOperations._getpc,
    "S_MOV_B32": ScalarOperations._copy,
    "S_MOV_B64": ScalarOperations._copy,
    "S_MOVK_I32": ScalarOperations._move_short,
    "S_CSELECT_B32": ScalarOperations._conditional,
    "S_CSELECT_B64": ScalarOperations._conditional,
    "S_CMP_LG_U32": ScalarOperations._compare,
    "S_SEXT_I32_I16": ScalarOperations._sign_extend,
    "S_ADD_U32": ScalarOperations._add,
    "S_ADD_I32": ScalarOperations._add_signed,
    "S_ADDC_U32": ScalarOperations._add_carry,
    "S_ADD_U64": ScalarOperations._add_pair,
    "S_SUB_U32": ScalarOperations._subtract,
    "S_SUBB_U32": ScalarOperations._subtract_borrow,
    "S_AND_SAVEEXEC_B32": ScalarOperations._save_exec,
    "S_AND_SAVEEXEC_B64": ScalarOperations._save_exec,
    "S_XOR_B32": ScalarOperations._combine_masks,
    "S_XOR_B64": ScalarOperations._combine_masks,
    "GLOBAL_LOAD_DWORDX2_SADDR": ScalarOperations._load_lanes,
    "V_READFIRSTLANE_B32": ScalarOperations._read_first_lane,
    "V_WRITELANE_B32": ScalarOperations._write_lane,
    "V_READLANE_B32": ScalarOperations._read_lane,
}
for _words in ("", "X2", "X4", "X8", "X16"):
    _ACTIONS[f"S_LOAD_DWORD{_words}_IMM"] = ScalarOperations._load
    _ACTIONS[f"S_LOAD_DWORD{_words}_SGPR"] = ScalarOperations._load_indexed
    _ACTIONS[f"S_LOAD_DWORD{_words}_SGPR_IMM"] = ScalarOperations._load_both

_LANE_MOVES = frozenset({"V_WRITELANE_B32", "V_READLANE_B32"})
_LANE_LOADS = frozenset({"GLOBAL_LOAD_DWORDX2_SADDR", "V_READFIRSTLANE_B32"})
"""Operations whose results depend on knowledge of EXEC, or that add to it."""
_SAVES = frozenset({"S_AND_SAVEEXEC_B32", "S_AND_SAVEEXEC_B64"})
_COPIES = _LANE_MOVES | _SAVES | {"S_MOV_B32", "S_MOV_B64", "S_CSELECT_B32", "S_CSELECT_B64"}
_CARRIES = frozenset({"S_ADDC_U32", "S_SUBB_U32", "S_CSELECT_B32"})
_MOVES = frozenset(
    {
        *("S_MOV_B32", "S_MOV_B64", "S_CSELECT_B32", "S_CSELECT_B64", "S_SEXT_I32_I16"),
        *("V_WRITELANE_B32", "V_READLANE_B32"),
    }
)
_SUMS = frozenset({"S_ADD_U32", "S_ADD_I32", "S_ADDC_U32", "S_ADD_U64", "S_SUB_U32", "S_SUBB_U32"})
_JUMPS = frozenset({"S_SETPC_B64", "S_SWAPPC_B64"})
"""Handled by `AddressAnalysis`."""

_ROLES = (
    (frozenset({"S_GETPC_B64"}), OperationRole.READS_COUNTER),
    (_LANE_LOADS, OperationRole.NEEDS_COUNTER | OperationRole.USES_LANES),
    (_MOVES, OperationRole.MOVES),
    (_COPIES, OperationRole.COPIES),
    (_CARRIES, OperationRole.USES_CARRY),
    (_SAVES, OperationRole.USES_EXEC_ALONE),
    (_LANE_MOVES, OperationRole.ANY_LANES),
)
