"""The parties of a hazard: kinds of instructions, and which of their registers count.

Rows of hazards (`luthier.arch.hazards`) speak of them by name. What a kind is, is said with LLVM's instruction classes
and generic names; a role gives a set of units of one instruction, and nothing where the instruction takes no part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from msgspec import Struct

from luthier.arch.gfx12.hazards import DS_NOPS as DS_NOPS
from luthier.isa import registers as r
from luthier.isa.instructions import InstructionFlag
from luthier.isa.mc import LDS_DIRECT, register_numbers
from luthier.isa.opcodes import Opcode

_F = InstructionFlag
_VECTOR_MEMORY = _F.VMEM | _F.FLAT
_NO_FLAG = InstructionFlag(0)


_AND = int.__and__


@cache
def _begins(pattern: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(pattern).match


class Kind(NamedTuple):
    """Instructions of any of some classes, of none of others, whose generic name begins so and not so."""

    classes: InstructionFlag = _NO_FLAG
    without: InstructionFlag = _NO_FLAG
    names: str = ""
    other_than: str | None = None

    def has(self, opcode: Opcode) -> bool:
        """Return whether instructions of an opcode are of this kind."""
        flags = int(opcode.flags)  # as plain integers, of which others are made much faster
        if (self.classes and not _AND(flags, self.classes)) or _AND(flags, self.without):
            return False
        if self.names and not _begins(self.names)(opcode.pseudo):
            return False
        return self.other_than is None or not _begins(self.other_than)(opcode.pseudo)


_MATRIX_NAMES = "V_MFMA_|V_SMFMAC_"
_DOUBLE_4, _DOUBLE_16 = "V_MFMA_F64_4X4X", "V_MFMA_F64_16X16X"
_SINGLE = r"V_MFMA_F32_\d+X\d+X\d+F32"
_MOVES = "V_ACCVGPR_"

KINDS: Mapping[str, Kind] = {
    "anything": Kind(),
    "VALU": Kind(_F.VALU, _VECTOR_MEMORY),
    "VALU, no transcendental": Kind(_F.VALU, _VECTOR_MEMORY | _F.TRANS),
    "VALU, no v_nop": Kind(_F.VALU, _VECTOR_MEMORY, other_than="V_NOP"),
    "VALU, no MFMA": Kind(_F.VALU, _VECTOR_MEMORY, other_than=_MATRIX_NAMES),
    "VALU, no MFMA or DOT": Kind(_F.VALU, _VECTOR_MEMORY | _F.DOT, other_than=_MATRIX_NAMES),
    "VALU, no MFMA or AGPR move": Kind(_F.VALU, _VECTOR_MEMORY, other_than=f"{_MATRIX_NAMES}|{_MOVES}"),
    "VALU, memory or export, no MFMA": Kind(_F.VALU | _VECTOR_MEMORY | _F.DS | _F.EXPORT, other_than=_MATRIX_NAMES),
    "VALU, no WMMA": Kind(_F.VALU, _VECTOR_MEMORY, other_than="V_WMMA_|V_SWMMAC_"),
    "not VALU": Kind(without=_F.VALU),
    "transcendental": Kind(_F.TRANS, names="V_(?!S_)"),
    "DOT": Kind(_F.DOT, names="V_DOT"),
    "DPP": Kind(_F.DPP),
    "SALU": Kind(_F.SALU),
    "SALU, no call": Kind(_F.SALU, other_than="S_SETPC_|S_SWAPPC_|S_CALL_"),
    "SALU or SMEM": Kind(_F.SALU | _F.SMEM),
    "SALU or VALU": Kind(_F.SALU | _F.VALU),
    "SMEM": Kind(_F.SMEM),
    "not SMEM": Kind(without=_F.SMEM),
    "VMEM": Kind(_VECTOR_MEMORY),
    "not VMEM": Kind(without=_VECTOR_MEMORY),
    "VMEM, no FLAT": Kind(_F.VMEM),
    "LDS": Kind(_F.DS),
    "VMEM or LDS": Kind(_VECTOR_MEMORY | _F.DS),
    "memory or export": Kind(_VECTOR_MEMORY | _F.DS | _F.EXPORT),
    "export": Kind(_F.EXPORT),
    "branch": Kind(_F.BRANCH | _F.CONDITIONAL, names="S_"),
    "call or return": Kind(names="S_SETPC_|S_SWAPPC_|S_CALL_"),
    "LDS direct": Kind(names="LDS_DIRECT_LOAD|LDS_PARAM_LOAD|DS_DIRECT_LOAD|DS_PARAM_LOAD"),
    "interpolation": Kind(names="V_INTERP_"),
    "v_readlane, v_writelane": Kind(names="V_READLANE|V_WRITELANE"),
    "v_readlane, v_readfirstlane": Kind(names="V_READLANE|V_READFIRSTLANE"),
    "lane moves": Kind(names="V_READLANE|V_READFIRSTLANE|V_WRITELANE"),
    "v_permlane": Kind(names="V_PERMLANE"),
    "v_cmpx": Kind(names="V_CMPX_"),
    "v_div_fmas": Kind(names="V_DIV_FMAS_"),
    "v_fma_f64": Kind(names="V_FMA_F64|V_FMAC_F64"),
    "v_accvgpr_read": Kind(names="V_ACCVGPR_READ"),
    "v_accvgpr_write": Kind(names="V_ACCVGPR_WRITE"),
    "AGPR move": Kind(names=_MOVES),
    "s_getreg": Kind(names="S_GETREG_"),
    "s_setreg": Kind(names="S_SETREG_"),
    "s_setreg_imm32": Kind(names="S_SETREG_IMM32_"),
    "s_set_vgpr_msb": Kind(names="S_SET_VGPR_MSB"),
    "s_setvskip": Kind(names="S_SETVSKIP"),
    "not s_wait_alu": Kind(other_than="S_WAITCNT_DEPCTR"),
    "ds_atomic_async_barrier_arrive": Kind(names="DS_ATOMIC_ASYNC_BARRIER_ARRIVE"),
    "64-bit shift": Kind(names="V_LSHLREV_B64|V_LSHRREV_B64|V_ASHRREV_I64"),
    "s_rfe": Kind(names="S_RFE"),
    "s_denorm_mode": Kind(names="S_DENORM_MODE"),
    "M0 message, trace or GDS": Kind(names="S_SENDMSG|S_TTRACEDATA|DS_"),
    "M0 move or LDS address": Kind(names="S_MOVREL|DS_WRITE_ADDTID|DS_READ_ADDTID|V_INTERP_"),
    "store of LDS, FLAT load to LDS": Kind(_VECTOR_MEMORY, names="BUFFER_STORE_LDS|(GLOBAL|SCRATCH|FLAT)_.*_LDS"),
    "wait": Kind(names="S_WAIT"),
    "s_waitcnt": Kind(names="S_WAITCNT$"),
    "s_waitcnt_lgkmcnt": Kind(names="S_WAITCNT_LGKMCNT"),
    "s_waitcnt_vscnt": Kind(names="S_WAITCNT_VSCNT"),
    "s_waitcnt_depctr": Kind(names="S_WAITCNT_DEPCTR"),
    "ds_nop": Kind(names="DS_NOP"),
    "floating-point atomic": Kind(_VECTOR_MEMORY, names=".*_ATOMIC_(F|ADD_F|PK_ADD_|MAX_NUM_F|MIN_NUM_F)"),
    "image": Kind(_F.IMAGE),
    "buffer": Kind(_F.VMEM, _F.IMAGE),
    "MFMA": Kind(names=_MATRIX_NAMES),
    "MFMA or v_accvgpr_write": Kind(names=f"{_MATRIX_NAMES}|V_ACCVGPR_WRITE"),
    "MFMA, no DGEMM": Kind(names=_MATRIX_NAMES, other_than="V_MFMA_F64_"),
    "DGEMM": Kind(names="V_MFMA_F64_"),
    "DGEMM 4x4": Kind(names=_DOUBLE_4),
    "DGEMM 16x16": Kind(names=_DOUBLE_16),
    "XDL": Kind(names=_MATRIX_NAMES, other_than=f"V_MFMA_F64_|{_SINGLE}"),
    "SGEMM": Kind(names=_SINGLE),
    "SGEMM or DGEMM": Kind(names=f"V_MFMA_F64_|{_SINGLE}"),
    "WMMA": Kind(names="V_WMMA_|V_SWMMAC_"),
    "XDL WMMA": Kind(names="V_WMMA_|V_SWMMAC_", other_than=r"V_WMMA_F32_16X16X4_F32|V_WMMA_F64_"),
}
"""MFMA are all matrix instructions of GFX9 but moves to and from AGPRs. Of them SGEMM are those on single floats, DGEMM
those on doubles, XDL all others (LLVM, isXDL). Loads to LDS are VMEM, no VALU."""


class Instance(Struct):
    """An instruction as roles look at it."""

    opcode: Opcode
    reads: int
    writes: int
    """Units, implicit ones too."""
    values: Sequence[int]
    """Values of its operands: numbers of registers, or immediates."""
    operands: Sequence[int]
    """Units of each operand that is a register, else 0."""
    vectors: int = 0
    """Number of VGPRs that the kernel can name, without AGPRs; 0: not known."""
    repeated: int = 0
    """Instructions of the same opcode right before it, of those that count only in a row (`IN_A_ROW`)."""

    def units(self, *names: str) -> int:
        """Return the units of the operands of these names."""
        where = self.opcode.operand_index
        found = 0
        for name in names:
            position = where.get(name)
            if position is not None:
                found |= self.operands[position]
        return found

    def value(self, name: str, otherwise: int = 0) -> int:
        """Return an immediate operand."""
        position = self.opcode.operand_index.get(name)
        return otherwise if position is None else self.values[position]


IN_A_ROW = KINDS["ds_nop"].names
_SCALARS = r.SGPR_MASK | r.VCC_MASK | 1 << r.M0 | r.mask_of(r.TTMPS)
_NOT_VCC = r.SGPR_MASK | r.mask_of(r.TTMPS)
_EVEN = r.mask_of(range(0, r.VGPRS.start, 2))
_FLOAT_8 = re.compile("V_CVT_SR_(FP8|BF8)_F32")
_FLOAT_4 = re.compile("V_CVT_SCALEF32_SR_PK_FP4_")
_WHOLE = 6
"""Value of SDWA's dst_sel."""
_RESULT_HIGH = 8
"""Bit of src0_modifiers: op_sel of the result."""
_SECOND_BYTE = 4
"""Bit of src2_modifiers: the lowest one of op_sel there."""
_MODE, _TRAPS = 1, 3
"""Numbers of hardware registers."""
_VSKIP = 28
"""A bit of MODE."""
_MASKED = re.compile("V_(ADDC|SUBB|SUBBREV|ADD_CO_CI|SUB_CO_CI|SUBREV_CO_CI|CNDMASK|DIV_FMAS)_")


_STATES = frozenset({2, 4, 17, 18})
"""Numbers of hardware registers of GFX1250: STATUS, STATE_PRIV, EXCP_FLAG_PRIV, EXCP_FLAG_USER."""


def _hardware_register(i: Instance) -> int:
    """Return the number of a hardware register, as a unit."""
    return 1 << (i.value("simm16") & 63)


def _sets_vskip(i: Instance) -> int:
    field = i.value("simm16")
    first, size = field >> 6 & 31, (field >> 11 & 31) + 1
    return int(field & 63 == _MODE and first <= _VSKIP < first + size)


def _wide_store_data(i: Instance, offset_in_sgpr: bool) -> int:
    """Return the data of a store of more than 64 bits.

    Of buffer stores it is either of those with an offset in an SGPR, or of those without.
    """
    if not i.opcode.flags & (_F.STORE | _F.ATOMIC) or i.opcode.flags & _F.IMAGE:
        return 0
    if bool(i.opcode.flags & _F.VMEM and i.units("soffset")) is not offset_in_sgpr:
        return 0
    data = i.units("vdata")
    return data if data.bit_count() > 2 and data & ~i.writes else 0


def _may_shift(opcode: Opcode) -> bool:
    """Return whether the result may be put elsewhere than at the bottom of its register."""
    return bool(opcode.flags & _F.SDWA) or ("op_sel" in opcode.operand_index and not opcode.flags & _F.PACKED)


def _shifted_result(i: Instance) -> int:
    """Return the result that is not put at the bottom of its register: SDWA, op_sel, conversions to a byte."""
    opcode = i.opcode
    if not _may_shift(opcode):
        return 0
    if opcode.flags & _F.SDWA:
        return i.units("vdst") if i.value("dst_sel", _WHOLE) != _WHOLE else 0
    high = i.value("src0_modifiers") & _RESULT_HIGH
    byte = _FLOAT_8.match(opcode.pseudo) and i.value("src2_modifiers") & _SECOND_BYTE
    return i.units("vdst") if high or byte else 0


def _four_bit_result(i: Instance) -> int:
    return i.units("vdst") if _FLOAT_4.match(i.opcode.pseudo) else 0


def _mask(i: Instance) -> int:
    """Return the SGPRs of a lane mask."""
    if not _MASKED.match(i.opcode.pseudo):
        return 0
    if "e64" in i.opcode.pseudo and "DIV_FMAS" not in i.opcode.pseudo:
        return i.units("src2") & _SCALARS
    return i.reads & r.VCC_MASK


def _constants(i: Instance) -> int:
    """Return the SGPRs that are no lane mask."""
    if not _mask(i):
        return i.reads & _SCALARS
    return i.units("src0", "src1") & _SCALARS


def _last_vector(i: Instance) -> int:
    """Return whether the shift amount is in the kernel's last VGPR, and that the last of a block of eight."""
    return int(i.vectors % 8 == 0 < i.vectors and i.units("src0") == 1 << r.VGPRS.start + i.vectors - 1)


def pairs(units: int) -> int:
    """Return both registers of each aligned pair of SGPRs of which one is given: how GFX12 records reads."""
    low = (units | units >> 1) & _EVEN
    return low | low << 1


def _lds_at_m0(i: Instance) -> int:
    """Return M0 where an operand is in LDS at the address that it holds."""
    number, address = register_numbers()[LDS_DIRECT], 1 << r.M0
    if number not in i.values:
        return 0
    return address if (address, number) in zip(i.operands, i.values, strict=False) else 0


def _others_than_vcc(units: int) -> int:
    return units & _NOT_VCC


def _depctr(low: int, bits: int) -> Role:
    """Return the role of waits that wait until that field of the counter is 0."""
    return lambda i: int(not i.value("simm16") >> low & (1 << bits) - 1)


def _in_a_row(count: int) -> Role:
    """Return the role that is all SGPRs, for the last of so many instructions in a row."""
    return lambda i: _SCALARS if i.repeated >= count - 1 else 0


def _self_overlap(i: Instance) -> int:
    return int(bool(i.reads & i.writes & ~(1 << r.SCC)))


def _loads(i: Instance) -> bool:
    return bool(i.writes & (_SCALARS | r.VECTOR_MASK))


def _loaded_over_address(i: Instance) -> int:
    """Return the registers of the address that a load of more than one register overwrites."""
    return i.writes & i.units("sbase", "soffset") if i.units("sdst").bit_count() > 1 else 0


def _is_gds(i: Instance) -> int:
    return int(i.opcode.pseudo.startswith("S_") or bool(i.opcode.flags & _F.GWS) or bool(i.value("gds")))


_SOPP = 1 << 6
"""LLVM's SIInstrFlags."""
_WAITS_IN_SOPK = ("S_SETVSKIP", "S_VERSION", "S_WAITCNT_")

Role = Callable[[Instance], int]
ROLES: Mapping[str, Role] = {
    "": lambda i: 1,
    "writes SGPRs": lambda i: i.writes & _SCALARS,
    "reads SGPRs": lambda i: i.reads & _SCALARS,
    "writes SGPRs or EXEC": lambda i: i.writes & (_SCALARS | r.EXEC_MASK),
    "writes SGPRs or EXEC by name": lambda i: (
        i.units("sdst", "sdst_hi", "vdst", "sdata") & i.writes & (_SCALARS | r.EXEC_MASK)
    ),
    "reads SGPRs or EXEC": lambda i: i.reads & (_SCALARS | r.EXEC_MASK),
    "reads SGPRs as constants": _constants,
    "reads EXEC as a constant": lambda i: i.units("src0", "src1", "src2") & r.EXEC_MASK,
    "reads pairs of SGPRs": lambda i: pairs(i.reads & _SCALARS & ~(1 << r.M0)),
    "writes SGPRs other than VCC": lambda i: _others_than_vcc(i.writes),
    "reads SGPRs other than VCC": lambda i: _others_than_vcc(i.reads),
    "writes VCC": lambda i: i.writes & r.VCC_MASK,
    "reads VCC": lambda i: i.reads & r.VCC_MASK,
    "writes an SGPR": lambda i: int(bool(i.writes & (_SCALARS | r.EXEC_MASK))),
    "all SGPRs": lambda i: _SCALARS,
    "all SGPRs, by a read of one": lambda i: _SCALARS if i.reads & _SCALARS else 0,
    "all SGPRs, by sa_sdst 0": lambda i: _SCALARS if _depctr(0, 1)(i) else 0,
    **{f"SGPRs, by {count}": _in_a_row(count) for count in DS_NOPS.values()},
    "reads a mask": _mask,
    "writes EXEC": lambda i: i.writes & r.EXEC_MASK,
    "reads EXEC": lambda i: i.reads & r.EXEC_MASK,
    "writes M0": lambda i: i.writes & 1 << r.M0,
    "reads M0": lambda i: (1 << r.M0) * _is_gds(i),
    "uses M0": lambda i: 1 << r.M0,
    "reads LDS at M0": _lds_at_m0,
    "reads vectors": lambda i: i.reads & r.VECTOR_MASK,
    "reads VGPRs": lambda i: i.reads & r.VGPR_MASK,
    "reads or keeps VGPRs": lambda i: (
        (i.reads | (i.units("vdst") if i.opcode.pseudo.startswith("V_WRITELANE") else 0)) & r.VGPR_MASK
    ),
    "writes vectors": lambda i: i.writes & r.VECTOR_MASK,
    "writes VGPRs": lambda i: i.writes & r.VGPR_MASK,
    "VGPRs of sources": lambda i: i.units("src0", "src1", "src2") & r.VGPR_MASK,
    "uses vectors": lambda i: (i.reads | i.writes) & r.VECTOR_MASK,
    "result": lambda i: i.units("vdst"),
    "lane select": lambda i: i.units("src1") & r.SCALAR_MASK,
    "source 0": lambda i: i.units("src0") & r.VECTOR_MASK,
    "matrix A, B": lambda i: (
        (
            i.units("src0", "src1", "idx", "scale_src0", "scale_src1")
            | (i.units("src2") if "V_SWMMAC" in i.opcode.pseudo else 0)
        )
        & r.VECTOR_MASK
    ),
    "matrix C": lambda i: i.units("src2") & r.VECTOR_MASK,
    "AGPRs of A, B": lambda i: i.units("src0", "src1") & r.AGPR_MASK,
    "data of a wide store": lambda i: _wide_store_data(i, offset_in_sgpr=False),
    "data of a wide store, offset in an SGPR": lambda i: _wide_store_data(i, offset_in_sgpr=True),
    "shifted result": _shifted_result,
    "4-bit result": _four_bit_result,
    "hardware register": _hardware_register,
    "MODE": lambda i: 1 << _MODE,
    "of MODE": lambda i: int(i.value("simm16") & 63 == _MODE),
    "of the state": lambda i: int(i.value("simm16") & 63 in _STATES),
    "by the last VGPR": _last_vector,
    "sets VSKIP": _sets_vskip,
    "trap status": lambda i: int(i.value("simm16") & 63 == _TRAPS),
    "overwrites its own source": _self_overlap,
    "address under several loaded": _loaded_over_address,
    "loads": lambda i: int(_loads(i)),
    "reads vectors to load": lambda i: i.reads & r.VECTOR_MASK if _loads(i) else 0,
    "reads SGPRs to load": lambda i: i.reads & _SCALARS if _loads(i) else 0,
    "waits for all": lambda i: int(i.value("simm16") == 0),
    "lgkmcnt 0": lambda i: int(not i.value("simm16") >> 8 & 63),
    "waits for 0": lambda i: int(i.value("simm16") == 0 and not i.units("sdst")),
    "no SOPP": lambda i: int(not i.opcode.ts_flags & _SOPP and not i.opcode.pseudo.startswith(_WAITS_IN_SOPK)),
    "sa_sdst 0": _depctr(0, 1),
    "va_vcc 0": _depctr(1, 1),
    "vm_vsrc 0": _depctr(2, 3),
    "va_sdst 0": _depctr(9, 3),
    "va_vdst 0": _depctr(12, 4),
    "wait_vm_vsrc 0": lambda i: int(i.value("waitvsrc", 1) == 0),
    "result without wait_vm_vsrc 0": lambda i: i.units("vdst") if i.value("waitvsrc", 1) else 0,
    "result without wait_va_vdst 0": lambda i: i.units("vdst") if i.value("waitvdst", 1) else 0,
    "offset of 0x3f": lambda i: int(i.value("simm16") & 0xFFFF == 0x3F),
    "long address": lambda i: int(i.opcode.size >= 16 and "_nsa" in i.opcode.pseudo),
    "offset with 2 or 4": lambda i: int(bool(i.value("offset") & 6)),
}
OF_KERNELS = frozenset({ROLES["by the last VGPR"]})
"""Roles that depend on more than the instruction."""
SCALAR_WRITERS = frozenset(name for name in ROLES if name.startswith(("writes SGPRs", "writes VCC", "writes EXEC")))
"""Roles that no instruction has which writes only vector registers."""


def _writes_scalars(opcode: Opcode) -> bool:
    """Return whether it may write a register that has one value per wave."""
    return bool(opcode.implicit_defs) or any(
        operand.is_def and (operand.register_class or "S").startswith("S") for operand in opcode.operands
    )


MAY_PLAY: Mapping[str, Callable[[Opcode], bool]] = {
    **dict.fromkeys(SCALAR_WRITERS, _writes_scalars),
    "shifted result": _may_shift,
    "4-bit result": lambda opcode: _FLOAT_4.match(opcode.pseudo) is not None,
    "reads a mask": lambda opcode: _MASKED.match(opcode.pseudo) is not None,
}
"""Opcodes that can play a role, where not all can: others need not be examined one instruction at a time."""
