"""Evaluation of the parties of hazards (`luthier.arch.parties`): their instructions and registers.

A role maps an instruction to a set of units, which is empty if the instruction does not play the role.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from msgspec import Struct

from luthier.arch import parties as p
from luthier.errors import TargetError
from luthier.isa import registers as r
from luthier.isa.instructions import InstructionFlag
from luthier.isa.mc import LDS_DIRECT, register_numbers
from luthier.isa.opcodes import Opcode

_F = InstructionFlag
_FLAGS = {flag.name: int(flag) for flag in InstructionFlag}


@cache
def test_of(kind: p.InstructionKind) -> Callable[[Opcode], bool]:
    """Return the predicate that opcodes of a kind satisfy."""
    classes, without = (sum(_FLAGS[name] for name in names) for names in (kind.classes, kind.without))
    names, other_than = (re.compile(pattern).match for pattern in (kind.names, kind.other_than or "$"))

    def is_of_kind(opcode: Opcode) -> bool:
        # Operations on members of an enumeration create members, which would take most of the time.
        flags = int(opcode.flags)
        return (
            not flags & without
            and (not classes or flags & classes != 0)
            and names(opcode.pseudo) is not None
            and other_than(opcode.pseudo) is None
        )

    return is_of_kind


class Instance(Struct):
    """The properties of an instruction that roles depend on."""

    opcode: Opcode
    reads: int
    writes: int
    """Units, including implicit ones."""
    values: Sequence[int]
    """Values of its operands: register numbers or immediates."""
    operands: Sequence[int]
    """Units of each register operand, 0 for other operands."""
    vectors: int = 0
    """Number of VGPRs that the kernel can name, without AGPRs; 0: not known."""
    repeated: int = 0
    """Number of instructions of the same opcode directly before it, for those that count only in a row (`IN_A_ROW`)."""

    def units(self, *names: str) -> int:
        """Return the units of the operands with these names."""
        where = self.opcode.operand_index
        units = 0
        for name in names:
            position = where.get(name)
            if position is not None:
                units |= self.operands[position]
        return units

    def value(self, name: str, otherwise: int = 0) -> int:
        """Return an immediate operand."""
        position = self.opcode.operand_index.get(name)
        return otherwise if position is None else self.values[position]


IN_A_ROW = p.DS_NOP.kind.names
_SCALARS = r.SGPR_MASK | r.VCC_MASK | 1 << r.M0 | r.mask_of(r.TTMPS)
_EVEN = r.mask_of(range(0, r.VGPRS.start, 2))
_FLOAT_8 = re.compile("V_CVT_SR_(FP8|BF8)_F32")
_FLOAT_4 = re.compile("V_CVT_SCALEF32_SR_PK_FP4_")
_WHOLE = 6
"""Value of SDWA's dst_sel."""
_RESULT_HIGH = 8
"""Bit of src0_modifiers: op_sel of the result."""
_SECOND_BYTE = 4
"""Bit of src2_modifiers: the lowest bit of op_sel."""
_MODE, _TRAPS = 1, 3
"""Numbers of hardware registers."""
_VSKIP = 28
"""A bit of MODE."""
_MASKED = re.compile("V_(ADDC|SUBB|SUBBREV|ADD_CO_CI|SUB_CO_CI|SUBREV_CO_CI|CNDMASK|DIV_FMAS)_")


_STATES = frozenset({2, 4, 17, 18})
"""Numbers of hardware registers of GFX1250: STATUS, STATE_PRIV, EXCP_FLAG_PRIV, EXCP_FLAG_USER."""


def _sets_vskip(i: Instance) -> int:
    field = i.value("simm16")
    first, size = field >> 6 & 31, (field >> 11 & 31) + 1
    return int(field & 63 == _MODE and first <= _VSKIP < first + size)


def _wide_store_data(i: Instance, offset_in_sgpr: bool) -> int:
    """Return the data of a store of more than 64 bits.

    Buffer stores are included only if they have an offset in an SGPR, or only if they have none.
    """
    if not i.opcode.flags & (_F.STORE | _F.ATOMIC) or i.opcode.flags & _F.IMAGE:
        return 0
    if bool(i.opcode.flags & _F.VMEM and i.units("soffset")) is not offset_in_sgpr:
        return 0
    data = i.units("vdata")
    return data if data.bit_count() > 2 and data & ~i.writes else 0


def _may_shift(opcode: Opcode) -> bool:
    """Return whether the result may be placed above the low end of its register."""
    return bool(opcode.flags & _F.SDWA) or ("op_sel" in opcode.operand_index and not opcode.flags & _F.PACKED)


def _shifted_result(i: Instance) -> int:
    """Return a result that is placed above the low end of its register: SDWA, op_sel, conversions to a byte."""
    opcode = i.opcode
    if not _may_shift(opcode):
        return 0
    if opcode.flags & _F.SDWA:
        return i.units("vdst") if i.value("dst_sel", _WHOLE) != _WHOLE else 0
    high = i.value("src0_modifiers") & _RESULT_HIGH
    byte = _FLOAT_8.match(opcode.pseudo) and i.value("src2_modifiers") & _SECOND_BYTE
    return i.units("vdst") if high or byte else 0


def _mask(i: Instance) -> int:
    """Return the SGPRs of a lane mask."""
    if not _MASKED.match(i.opcode.pseudo):
        return 0
    if "e64" in i.opcode.pseudo and "DIV_FMAS" not in i.opcode.pseudo:
        return i.units("src2") & _SCALARS
    return i.reads & r.VCC_MASK


def _constants(i: Instance) -> int:
    """Return the SGPRs that are not lane masks."""
    if not _mask(i):
        return i.reads & _SCALARS
    return i.units("src0", "src1") & _SCALARS


def _last_vector(i: Instance) -> int:
    """Return whether the shift amount is in the kernel's last VGPR, which is the last of a block of eight."""
    return int(i.vectors % 8 == 0 < i.vectors and i.units("src0") == 1 << r.VGPRS.start + i.vectors - 1)


def pairs(units: int) -> int:
    """Return both registers of each aligned pair of SGPRs with a given one, since GFX12 records reads by pairs."""
    low = (units | units >> 1) & _EVEN
    return low | low << 1


def _lds_at_m0(i: Instance) -> int:
    """Return M0 if an operand is in LDS at the address in M0."""
    number, address = register_numbers()[LDS_DIRECT], 1 << r.M0
    if number not in i.values:
        return 0
    return address if (address, number) in zip(i.operands, i.values, strict=False) else 0


def _depctr(low: int, bits: int) -> UnitsOf:
    """Return the role of waits until a field of the counter is 0."""
    return lambda i: int(not i.value("simm16") >> low & (1 << bits) - 1)


def _in_a_row(count: int) -> UnitsOf:
    """Return the role that is all SGPRs for the last of `count` instructions in a row."""
    return lambda i: _SCALARS if i.repeated >= count - 1 else 0


def _loads(i: Instance) -> bool:
    return bool(i.writes & (_SCALARS | r.VECTOR_MASK))


def _loaded_over_address(i: Instance) -> int:
    """Return the registers of the address that a load of more than one register overwrites."""
    return i.writes & i.units("sbase", "soffset") if i.units("sdst").bit_count() > 1 else 0


def _is_gds(i: Instance) -> int:
    return int(i.opcode.pseudo.startswith("S_") or bool(i.opcode.flags & _F.GWS) or bool(i.value("gds")))


_SOPP = 1 << 6
"""Bit of LLVM's SIInstrFlags."""
_WAITS_IN_SOPK = ("S_SETVSKIP", "S_VERSION", "S_WAITCNT_")

UnitsOf = Callable[[Instance], int]
_UNITS: Mapping[p.HazardRole, UnitsOf] = {
    p.ALWAYS: lambda i: 1,
    p.WRITES_SGPRS_OR_EXEC_BY_NAME: lambda i: (
        i.units("sdst", "sdst_hi", "vdst", "sdata") & i.writes & (_SCALARS | r.EXEC_MASK)
    ),
    p.READS_SGPRS_AS_CONSTANTS: _constants,
    p.READS_EXEC_AS_A_CONSTANT: lambda i: i.units("src0", "src1", "src2") & r.EXEC_MASK,
    p.READS_PAIRS_OF_SGPRS: lambda i: pairs(i.reads & _SCALARS & ~(1 << r.M0)),
    p.WRITES_AN_SGPR: lambda i: int(bool(i.writes & (_SCALARS | r.EXEC_MASK))),
    p.ALL_SGPRS: lambda i: _SCALARS,
    p.ALL_SGPRS_BY_A_READ_OF_ONE: lambda i: _SCALARS if i.reads & _SCALARS else 0,
    p.ALL_SGPRS_BY_SA_SDST_0: lambda i: _SCALARS if _depctr(0, 1)(i) else 0,
    **{role: _in_a_row(count) for count, role in p.SGPRS_BY_DS_NOPS.items()},
    p.READS_A_MASK: _mask,
    p.READS_M0: lambda i: (1 << r.M0) * _is_gds(i),
    p.USES_M0: lambda i: 1 << r.M0,
    p.READS_LDS_AT_M0: _lds_at_m0,
    p.READS_OR_KEEPS_VGPRS: lambda i: (
        (i.reads | (i.units("vdst") if i.opcode.pseudo.startswith("V_WRITELANE") else 0)) & r.VGPR_MASK
    ),
    p.VGPRS_OF_SOURCES: lambda i: i.units("src0", "src1", "src2") & r.VGPR_MASK,
    p.USES_VECTORS: lambda i: (i.reads | i.writes) & r.VECTOR_MASK,
    p.RESULT: lambda i: i.units("vdst"),
    p.LANE_SELECT: lambda i: i.units("src1") & r.SCALAR_MASK,
    p.SOURCE_0: lambda i: i.units("src0") & r.VECTOR_MASK,
    p.MATRIX_A_B: lambda i: (
        (
            i.units("src0", "src1", "idx", "scale_src0", "scale_src1")
            | (i.units("src2") if "V_SWMMAC" in i.opcode.pseudo else 0)
        )
        & r.VECTOR_MASK
    ),
    p.MATRIX_C: lambda i: i.units("src2") & r.VECTOR_MASK,
    p.AGPRS_OF_A_B: lambda i: i.units("src0", "src1") & r.AGPR_MASK,
    p.DATA_OF_A_WIDE_STORE: lambda i: _wide_store_data(i, offset_in_sgpr=False),
    p.DATA_OF_A_WIDE_STORE_OFFSET_IN_AN_SGPR: lambda i: _wide_store_data(i, offset_in_sgpr=True),
    p.SHIFTED_RESULT: _shifted_result,
    p.FOUR_BIT_RESULT: lambda i: i.units("vdst") if _FLOAT_4.match(i.opcode.pseudo) else 0,
    p.HARDWARE_REGISTER: lambda i: 1 << (i.value("simm16") & 63),
    p.MODE: lambda i: 1 << _MODE,
    p.OF_MODE: lambda i: int(i.value("simm16") & 63 == _MODE),
    p.OF_THE_STATE: lambda i: int(i.value("simm16") & 63 in _STATES),
    p.BY_THE_LAST_VGPR: _last_vector,
    p.SETS_VSKIP: _sets_vskip,
    p.TRAP_STATUS: lambda i: int(i.value("simm16") & 63 == _TRAPS),
    p.OVERWRITES_ITS_OWN_SOURCE: lambda i: int(bool(i.reads & i.writes & ~(1 << r.SCC))),
    p.ADDRESS_UNDER_SEVERAL_LOADED: _loaded_over_address,
    p.LOADS: lambda i: int(_loads(i)),
    p.READS_VECTORS_TO_LOAD: lambda i: i.reads & r.VECTOR_MASK if _loads(i) else 0,
    p.READS_SGPRS_TO_LOAD: lambda i: i.reads & _SCALARS if _loads(i) else 0,
    p.WAITS_FOR_ALL: lambda i: int(i.value("simm16") == 0),
    p.LGKMCNT_0: lambda i: int(not i.value("simm16") >> 8 & 63),
    p.WAITS_FOR_0: lambda i: int(i.value("simm16") == 0 and not i.units("sdst")),
    p.NO_SOPP: lambda i: int(not i.opcode.ts_flags & _SOPP and not i.opcode.pseudo.startswith(_WAITS_IN_SOPK)),
    p.SA_SDST_0: _depctr(0, 1),
    p.VA_VCC_0: _depctr(1, 1),
    p.VM_VSRC_0: _depctr(2, 3),
    p.VA_SDST_0: _depctr(9, 3),
    p.VA_VDST_0: _depctr(12, 4),
    p.WAIT_VM_VSRC_0: lambda i: int(i.value("waitvsrc", 1) == 0),
    p.RESULT_WITHOUT_WAIT_VM_VSRC_0: lambda i: i.units("vdst") if i.value("waitvsrc", 1) else 0,
    p.RESULT_WITHOUT_WAIT_VA_VDST_0: lambda i: i.units("vdst") if i.value("waitvdst", 1) else 0,
    p.OFFSET_OF_0X3F: lambda i: int(i.value("simm16") & 0xFFFF == 0x3F),
    p.LONG_ADDRESS: lambda i: int(i.opcode.size >= 16 and "_nsa" in i.opcode.pseudo),
    p.OFFSET_WITH_2_OR_4: lambda i: int(bool(i.value("offset") & 6)),
}
_REGISTERS: Mapping[p.RegisterSet, int] = {
    p.SGPRS: _SCALARS,
    p.SGPRS_OR_EXEC: _SCALARS | r.EXEC_MASK,
    p.SGPRS_OTHER_THAN_VCC: r.SGPR_MASK | r.mask_of(r.TTMPS),
    p.VCC: r.VCC_MASK,
    p.EXEC: r.EXEC_MASK,
    p.M0: 1 << r.M0,
    p.VECTORS: r.VECTOR_MASK,
    p.VGPRS: r.VGPR_MASK,
}


@cache
def units_of(role: p.HazardRole) -> UnitsOf:
    """Return the function that computes the units of a role.

    Raises:
        TargetError: there is no such function.
    """
    if role in _UNITS:
        return _UNITS[role]
    mask = None if role.registers is None else _REGISTERS.get(role.registers)
    if not role.access or mask is None:
        raise TargetError(f"{__name__} has no function for the role {role.name!r} of a hazard")
    return (lambda i: i.reads & mask) if role.access == "reads" else (lambda i: i.writes & mask)


ALWAYS = units_of(p.ALWAYS)


@cache
def either(first: UnitsOf, second: UnitsOf) -> UnitsOf:
    """Return the function that computes the units of two roles; that of `ALWAYS` if it is one of them."""
    return ALWAYS if ALWAYS in (first, second) else lambda instance: first(instance) | second(instance)


OF_KERNELS = frozenset({_last_vector})
"""Functions of roles that depend on the kernel, not only on the instruction."""


def _writes_scalars(opcode: Opcode) -> bool:
    """Return whether instructions of an opcode may write scalar registers."""
    return bool(opcode.implicit_defs) or any(
        operand.is_def and (operand.register_class or "S").startswith("S") for operand in opcode.operands
    )


_MAY_PLAY: Mapping[p.HazardRole, Callable[[Opcode], bool]] = {
    p.SHIFTED_RESULT: _may_shift,
    p.FOUR_BIT_RESULT: lambda opcode: _FLOAT_4.match(opcode.pseudo) is not None,
    p.READS_A_MASK: lambda opcode: _MASKED.match(opcode.pseudo) is not None,
}


def may_play(role: p.HazardRole, opcode: Opcode) -> bool:
    """Return whether instructions of an opcode may play a role; others need not be examined individually."""
    known = _MAY_PLAY.get(role, _writes_scalars if role.writes_scalars else None)
    return known is None or known(opcode)
