"""Operations that compute addresses. Native code follows them (`runtime/native/lifting/address_operations.h`)."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from functools import lru_cache, reduce
from operator import or_

import numpy as np

from luthier.isa import Isa
from luthier.lifting.instructions.by_opcode import ByOpcode
from luthier.lifting.instructions.semantics import Control, control_of


class AddressAction(IntEnum):
    """Effect of an operation on addresses. The native search has the same numbers."""

    NONE = 0
    GET_COUNTER = 1
    COPY = 2
    MOVE_SHORT = 3
    SELECT = 4
    COMPARE = 5
    SIGN_EXTEND = 6
    ADD = 7
    ADD_SIGNED = 8
    ADD_CARRY = 9
    ADD_PAIR = 10
    SUBTRACT = 11
    SUBTRACT_BORROW = 12
    SAVE_EXEC = 13
    COMBINE_MASKS = 14
    LOAD_LANES = 15
    READ_FIRST_LANE = 16
    WRITE_LANE = 17
    READ_LANE = 18
    LOAD = 19
    LOAD_INDEXED = 20
    LOAD_BOTH = 21


class OperationRole(IntFlag):
    """Properties of an operation that decide whether an instruction is relevant.

    The native search has the same numbers.
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
    ADDS = 4096
    """Its result is one of its sources, plus or minus the rest."""


_LEAVING = {
    Control.CALL: OperationRole.LEAVES,
    Control.CALL_REGISTER: OperationRole.LEAVES | OperationRole.BY_REGISTER,
    Control.JUMP_REGISTER: OperationRole.LEAVES | OperationRole.BY_REGISTER | OperationRole.MAY_RETURN,
}


@lru_cache(maxsize=64)
def roles(isa: Isa) -> ByOpcode:
    """Return the `OperationRole` of each opcode, and its `AddressAction` above these bits."""

    def role_of(number: int) -> int:
        name = isa.opcode(number).pseudo
        role = _LEAVING.get(control_of(name, isa.target.target), OperationRole(0))
        if name in _ACTIONS:
            role = reduce(or_, [other for names, other in _ROLES if name in names], role | OperationRole.FOLLOWED)
        return int(role) | _ACTIONS.get(name, AddressAction.NONE) << _ACTION_SHIFT

    return ByOpcode(role_of, 0, np.uint32)


_ACTION_SHIFT = 16
"""Bits of an `OperationRole` below the action."""
_ACTIONS: dict[str, AddressAction] = {
    "S_GETPC_B64": AddressAction.GET_COUNTER,
    "S_MOV_B32": AddressAction.COPY,
    "S_MOV_B64": AddressAction.COPY,
    "S_MOVK_I32": AddressAction.MOVE_SHORT,
    "S_CSELECT_B32": AddressAction.SELECT,
    "S_CSELECT_B64": AddressAction.SELECT,
    "S_CMP_LG_U32": AddressAction.COMPARE,
    "S_SEXT_I32_I16": AddressAction.SIGN_EXTEND,
    "S_ADD_U32": AddressAction.ADD,
    "S_ADD_I32": AddressAction.ADD_SIGNED,
    "S_ADDC_U32": AddressAction.ADD_CARRY,
    "S_ADD_U64": AddressAction.ADD_PAIR,
    "S_SUB_U32": AddressAction.SUBTRACT,
    "S_SUBB_U32": AddressAction.SUBTRACT_BORROW,
    "S_AND_SAVEEXEC_B32": AddressAction.SAVE_EXEC,
    "S_AND_SAVEEXEC_B64": AddressAction.SAVE_EXEC,
    "S_XOR_B32": AddressAction.COMBINE_MASKS,
    "S_XOR_B64": AddressAction.COMBINE_MASKS,
    "GLOBAL_LOAD_DWORDX2_SADDR": AddressAction.LOAD_LANES,
    "V_READFIRSTLANE_B32": AddressAction.READ_FIRST_LANE,
    "V_WRITELANE_B32": AddressAction.WRITE_LANE,
    "V_READLANE_B32": AddressAction.READ_LANE,
}
for _words in ("", "X2", "X4", "X8", "X16"):
    _ACTIONS[f"S_LOAD_DWORD{_words}_IMM"] = AddressAction.LOAD
    _ACTIONS[f"S_LOAD_DWORD{_words}_SGPR"] = AddressAction.LOAD_INDEXED
    _ACTIONS[f"S_LOAD_DWORD{_words}_SGPR_IMM"] = AddressAction.LOAD_BOTH

_LANE_MOVES = frozenset({"V_WRITELANE_B32", "V_READLANE_B32"})
_LANE_LOADS = frozenset({"GLOBAL_LOAD_DWORDX2_SADDR", "V_READFIRSTLANE_B32"})
"""Operations whose results depend on knowledge of EXEC, or that add to it."""
_SAVES = frozenset({"S_AND_SAVEEXEC_B32", "S_AND_SAVEEXEC_B64"})
_COPIES = _LANE_MOVES | _SAVES | {"S_MOV_B32", "S_MOV_B64", "S_CSELECT_B32", "S_CSELECT_B64"}
_CARRIES = frozenset({"S_ADDC_U32", "S_SUBB_U32", "S_CSELECT_B32"})
_ADDS = frozenset({"S_ADD_U32", "S_ADD_I32", "S_ADDC_U32", "S_ADD_U64", "S_SUB_U32", "S_SUBB_U32"})
_MOVES = frozenset(
    {
        *("S_MOV_B32", "S_MOV_B64", "S_CSELECT_B32", "S_CSELECT_B64", "S_SEXT_I32_I16"),
        *("V_WRITELANE_B32", "V_READLANE_B32"),
    }
)

_ROLES = (
    (frozenset({"S_GETPC_B64"}), OperationRole.READS_COUNTER),
    (_LANE_LOADS, OperationRole.NEEDS_COUNTER | OperationRole.USES_LANES),
    (_MOVES, OperationRole.MOVES),
    (_COPIES, OperationRole.COPIES),
    (_CARRIES, OperationRole.USES_CARRY),
    (_SAVES, OperationRole.USES_EXEC_ALONE),
    (_LANE_MOVES, OperationRole.ANY_LANES),
    (_ADDS, OperationRole.ADDS),
)
