"""Parties of hazards: kinds of instructions, and the registers with which they participate.

A kind is defined by LLVM's instruction classes and generic names. A role selects registers of an instruction, none if
it does not participate; `luthier.hazards.wait_states.kinds` implements roles. Rows of hazards (`luthier.arch.hazards`)
use ``VALU.writes(SGPRS)``, ``MFMA.by(RESULT)``, or ``VALU`` for all vector instructions with any operands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

_Memory = Literal["SMEM", "VMEM", "FLAT", "DS", "IMAGE", "EXPORT"]
InstructionClass = _Memory | Literal["SALU", "VALU", "TRANS", "DOT", "DPP", "BRANCH", "CONDITIONAL"]
"""Name of a member of `luthier.isa.instructions.InstructionFlag`."""


class InstructionKind(Struct, frozen=True):
    """Instructions selected by classes and by the prefix of their generic name."""

    name: str
    """Name in words, for names of hazards."""
    classes: tuple[InstructionClass, ...] = ()
    """Any of these; empty: any class."""
    without: tuple[InstructionClass, ...] = ()
    names: str = ""
    """Regular expression for prefixes of the name; empty: any."""
    other_than: str = ""
    """Regular expression for prefixes of excluded names; empty: none."""


class RegisterSet(Struct, frozen=True):
    """Set of registers."""

    name: str
    scalar: bool = True
    """Whether the registers have one value per wave."""


class HazardRole(Struct, frozen=True):
    """Registers with which an instruction participates, or a condition for participation."""

    name: str
    access: Literal["", "reads", "writes"] = ""
    """Whether the role is the registers in `registers` that the instruction reads, or writes."""
    registers: RegisterSet | None = None

    @property
    def writes_scalars(self) -> bool:
        """Return whether every instruction in the role writes a scalar register."""
        return self.access == "writes" and self.registers is not None and self.registers.scalar


ALWAYS = HazardRole("")
"""Role of instructions that participate with any operands."""


class Party(Struct, frozen=True):
    """Instructions of a kind in a role."""

    kind: InstructionKind
    role: HazardRole = ALWAYS

    def __str__(self) -> str:
        return self.kind.name

    def reads(self, registers: RegisterSet) -> Party:
        """Return the party of instructions that read some of these registers."""
        return Party(self.kind, HazardRole(f"reads {registers.name}", "reads", registers))

    def writes(self, registers: RegisterSet) -> Party:
        """Return the party of instructions that write some of these registers."""
        return Party(self.kind, HazardRole(f"writes {registers.name}", "writes", registers))

    def by(self, role: HazardRole) -> Party:
        """Return the party of instructions in a role."""
        return Party(self.kind, role)


def _kind(
    name: str,
    names: str = "",
    classes: tuple[InstructionClass, ...] = (),
    without: tuple[InstructionClass, ...] = (),
    other_than: str = "",
) -> Party:
    return Party(InstructionKind(name, classes, without, names, other_than))


DS_NOPS: Mapping[int, int] = {32: 4, 64: 8}
"""Lanes of a wave -> number of consecutive ds_nop that make the hardware forget the SGPRs that vector instructions read
(LLVM, AMDGPUWaitSGPRHazards)."""

# Registers.
SGPRS = RegisterSet("SGPRs")
SGPRS_OR_EXEC = RegisterSet("SGPRs or EXEC")
SGPRS_OTHER_THAN_VCC = RegisterSet("SGPRs other than VCC")
VCC, EXEC, M0 = RegisterSet("VCC"), RegisterSet("EXEC"), RegisterSet("M0")
VECTORS, VGPRS = RegisterSet("vectors", scalar=False), RegisterSet("VGPRs", scalar=False)

# Kinds. MFMA are all matrix instructions of GFX9 except moves to and from AGPRs: SGEMM on single floats, DGEMM on
# doubles, XDL all others (LLVM, isXDL). Loads to LDS are VMEM, not VALU.
_MEMORY: tuple[InstructionClass, ...] = ("VMEM", "FLAT")
_MATRIX, _MOVES, _DOUBLE, _SINGLE = "V_MFMA_|V_SMFMAC_", "V_ACCVGPR_", "V_MFMA_F64_", r"V_MFMA_F32_\d+X\d+X\d+F32"
_WMMA, _CALLS = "V_WMMA_|V_SWMMAC_", "S_SETPC_|S_SWAPPC_|S_CALL_"
ANYTHING = _kind("anything")
VALU = _kind("VALU", classes=("VALU",), without=_MEMORY)
VALU_NO_TRANSCENDENTAL = _kind("VALU, no transcendental", classes=("VALU",), without=(*_MEMORY, "TRANS"))
VALU_NO_V_NOP = _kind("VALU, no v_nop", classes=("VALU",), without=_MEMORY, other_than="V_NOP")
VALU_NO_MFMA = _kind("VALU, no MFMA", classes=("VALU",), without=_MEMORY, other_than=_MATRIX)
VALU_NO_MFMA_OR_DOT = _kind("VALU, no MFMA or DOT", classes=("VALU",), without=(*_MEMORY, "DOT"), other_than=_MATRIX)
VALU_NO_MFMA_OR_AGPR_MOVE = _kind(
    "VALU, no MFMA or AGPR move", classes=("VALU",), without=_MEMORY, other_than=f"{_MATRIX}|{_MOVES}"
)
VALU_MEMORY_OR_EXPORT_NO_MFMA = _kind(
    "VALU, memory or export, no MFMA", classes=("VALU", *_MEMORY, "DS", "EXPORT"), other_than=_MATRIX
)
VALU_NO_WMMA = _kind("VALU, no WMMA", classes=("VALU",), without=_MEMORY, other_than=_WMMA)
NOT_VALU = _kind("not VALU", without=("VALU",))
TRANSCENDENTAL = _kind("transcendental", classes=("TRANS",), names="V_(?!S_)")
DOT = _kind("DOT", classes=("DOT",), names="V_DOT")
DPP = _kind("DPP", classes=("DPP",))
SALU = _kind("SALU", classes=("SALU",))
SALU_NO_CALL = _kind("SALU, no call", classes=("SALU",), other_than=_CALLS)
SALU_OR_SMEM = _kind("SALU or SMEM", classes=("SALU", "SMEM"))
SALU_OR_VALU = _kind("SALU or VALU", classes=("SALU", "VALU"))
SMEM = _kind("SMEM", classes=("SMEM",))
NOT_SMEM = _kind("not SMEM", without=("SMEM",))
VMEM = _kind("VMEM", classes=_MEMORY)
NOT_VMEM = _kind("not VMEM", without=_MEMORY)
VMEM_NO_FLAT = _kind("VMEM, no FLAT", classes=("VMEM",))
LDS = _kind("LDS", classes=("DS",))
VMEM_OR_LDS = _kind("VMEM or LDS", classes=(*_MEMORY, "DS"))
MEMORY_OR_EXPORT = _kind("memory or export", classes=(*_MEMORY, "DS", "EXPORT"))
EXPORT = _kind("export", classes=("EXPORT",))
BRANCH = _kind("branch", classes=("BRANCH", "CONDITIONAL"), names="S_")
CALL_OR_RETURN = _kind("call or return", names=_CALLS)
LDS_DIRECT = _kind("LDS direct", names="LDS_DIRECT_LOAD|LDS_PARAM_LOAD|DS_DIRECT_LOAD|DS_PARAM_LOAD")
V_READLANE_OR_V_WRITELANE = _kind("v_readlane, v_writelane", names="V_READLANE|V_WRITELANE")
V_READLANE_OR_V_READFIRSTLANE = _kind("v_readlane, v_readfirstlane", names="V_READLANE|V_READFIRSTLANE")
LANE_MOVES = _kind("lane moves", names="V_READLANE|V_READFIRSTLANE|V_WRITELANE")
V_PERMLANE = _kind("v_permlane", names="V_PERMLANE")
V_CMPX = _kind("v_cmpx", names="V_CMPX_")
V_DIV_FMAS = _kind("v_div_fmas", names="V_DIV_FMAS_")
V_FMA_F64 = _kind("v_fma_f64", names="V_FMA_F64|V_FMAC_F64")
V_ACCVGPR_READ = _kind("v_accvgpr_read", names="V_ACCVGPR_READ")
V_ACCVGPR_WRITE = _kind("v_accvgpr_write", names="V_ACCVGPR_WRITE")
AGPR_MOVE = _kind("AGPR move", names=_MOVES)
S_GETREG = _kind("s_getreg", names="S_GETREG_")
S_SETREG = _kind("s_setreg", names="S_SETREG_")
S_SETREG_IMM32 = _kind("s_setreg_imm32", names="S_SETREG_IMM32_")
S_SET_VGPR_MSB = _kind("s_set_vgpr_msb", names="S_SET_VGPR_MSB")
S_SETVSKIP = _kind("s_setvskip", names="S_SETVSKIP")
NOT_S_WAIT_ALU = _kind("not s_wait_alu", other_than="S_WAITCNT_DEPCTR")
DS_ATOMIC_ASYNC_BARRIER_ARRIVE = _kind("ds_atomic_async_barrier_arrive", names="DS_ATOMIC_ASYNC_BARRIER_ARRIVE")
SHIFT_64 = _kind("64-bit shift", names="V_LSHLREV_B64|V_LSHRREV_B64|V_ASHRREV_I64")
S_RFE = _kind("s_rfe", names="S_RFE")
S_DENORM_MODE = _kind("s_denorm_mode", names="S_DENORM_MODE")
M0_MESSAGE_TRACE_OR_GDS = _kind("M0 message, trace or GDS", names="S_SENDMSG|S_TTRACEDATA|DS_")
M0_MOVE_OR_LDS_ADDRESS = _kind("M0 move or LDS address", names="S_MOVREL|DS_WRITE_ADDTID|DS_READ_ADDTID|V_INTERP_")
STORE_OF_LDS_OR_FLAT_LOAD_TO_LDS = _kind(
    "store of LDS, FLAT load to LDS", classes=_MEMORY, names="BUFFER_STORE_LDS|(GLOBAL|SCRATCH|FLAT)_.*_LDS"
)
WAIT = _kind("wait", names="S_WAIT")
S_WAITCNT = _kind("s_waitcnt", names="S_WAITCNT$")
S_WAITCNT_LGKMCNT = _kind("s_waitcnt_lgkmcnt", names="S_WAITCNT_LGKMCNT")
S_WAITCNT_VSCNT = _kind("s_waitcnt_vscnt", names="S_WAITCNT_VSCNT")
S_WAITCNT_DEPCTR = _kind("s_waitcnt_depctr", names="S_WAITCNT_DEPCTR")
DS_NOP = _kind("ds_nop", names="DS_NOP")
FLOATING_POINT_ATOMIC = _kind(
    "floating-point atomic", classes=_MEMORY, names=".*_ATOMIC_(F|ADD_F|PK_ADD_|MAX_NUM_F|MIN_NUM_F)"
)
IMAGE = _kind("image", classes=("IMAGE",))
BUFFER = _kind("buffer", classes=("VMEM",), without=("IMAGE",))
MFMA = _kind("MFMA", names=_MATRIX)
MFMA_OR_V_ACCVGPR_WRITE = _kind("MFMA or v_accvgpr_write", names=f"{_MATRIX}|V_ACCVGPR_WRITE")
MFMA_NO_DGEMM = _kind("MFMA, no DGEMM", names=_MATRIX, other_than=_DOUBLE)
DGEMM = _kind("DGEMM", names=_DOUBLE)
DGEMM_4X4 = _kind("DGEMM 4x4", names="V_MFMA_F64_4X4X")
DGEMM_16X16 = _kind("DGEMM 16x16", names="V_MFMA_F64_16X16X")
XDL = _kind("XDL", names=_MATRIX, other_than=f"{_DOUBLE}|{_SINGLE}")
SGEMM = _kind("SGEMM", names=_SINGLE)
SGEMM_OR_DGEMM = _kind("SGEMM or DGEMM", names=f"{_DOUBLE}|{_SINGLE}")
WMMA = _kind("WMMA", names=_WMMA)
XDL_WMMA = _kind("XDL WMMA", names=_WMMA, other_than="V_WMMA_F32_16X16X4_F32|V_WMMA_F64_")

MATRIX_KINDS = frozenset(one.kind for one in (MFMA, MFMA_NO_DGEMM, XDL, SGEMM, DGEMM, DGEMM_4X4, DGEMM_16X16))
"""Matrix instructions of GFX9."""

# Roles.
SGPRS_BY_DS_NOPS: Mapping[int, HazardRole] = {count: HazardRole(f"SGPRs, by {count}") for count in DS_NOPS.values()}
"""By number of consecutive ds_nop: all SGPRs, for the last ds_nop."""
WRITES_SGPRS_OR_EXEC_BY_NAME = HazardRole("writes SGPRs or EXEC by name", "writes", SGPRS_OR_EXEC)
READS_SGPRS_AS_CONSTANTS = HazardRole("reads SGPRs as constants")
READS_EXEC_AS_A_CONSTANT = HazardRole("reads EXEC as a constant")
READS_PAIRS_OF_SGPRS = HazardRole("reads pairs of SGPRs")
WRITES_AN_SGPR = HazardRole("writes an SGPR")
ALL_SGPRS = HazardRole("all SGPRs")
ALL_SGPRS_BY_A_READ_OF_ONE = HazardRole("all SGPRs, by a read of one")
ALL_SGPRS_BY_SA_SDST_0 = HazardRole("all SGPRs, by sa_sdst 0")
READS_A_MASK = HazardRole("reads a mask")
READS_M0 = HazardRole("reads M0")
USES_M0 = HazardRole("uses M0")
READS_LDS_AT_M0 = HazardRole("reads LDS at M0")
READS_OR_KEEPS_VGPRS = HazardRole("reads or keeps VGPRs")
VGPRS_OF_SOURCES = HazardRole("VGPRs of sources")
USES_VECTORS = HazardRole("uses vectors")
RESULT = HazardRole("result")
LANE_SELECT = HazardRole("lane select")
SOURCE_0 = HazardRole("source 0")
MATRIX_A_B = HazardRole("matrix A, B")
MATRIX_C = HazardRole("matrix C")
AGPRS_OF_A_B = HazardRole("AGPRs of A, B")
DATA_OF_A_WIDE_STORE = HazardRole("data of a wide store")
DATA_OF_A_WIDE_STORE_OFFSET_IN_AN_SGPR = HazardRole("data of a wide store, offset in an SGPR")
SHIFTED_RESULT = HazardRole("shifted result")
FOUR_BIT_RESULT = HazardRole("4-bit result")
HARDWARE_REGISTER = HazardRole("hardware register")
MODE = HazardRole("MODE")
OF_MODE = HazardRole("of MODE")
OF_THE_STATE = HazardRole("of the state")
BY_THE_LAST_VGPR = HazardRole("by the last VGPR")
SETS_VSKIP = HazardRole("sets VSKIP")
TRAP_STATUS = HazardRole("trap status")
OVERWRITES_ITS_OWN_SOURCE = HazardRole("overwrites its own source")
ADDRESS_UNDER_SEVERAL_LOADED = HazardRole("address under several loaded")
LOADS = HazardRole("loads")
READS_VECTORS_TO_LOAD = HazardRole("reads vectors to load")
READS_SGPRS_TO_LOAD = HazardRole("reads SGPRs to load")
WAITS_FOR_ALL = HazardRole("waits for all")
LGKMCNT_0 = HazardRole("lgkmcnt 0")
WAITS_FOR_0 = HazardRole("waits for 0")
NO_SOPP = HazardRole("no SOPP")
SA_SDST_0 = HazardRole("sa_sdst 0")
VA_VCC_0 = HazardRole("va_vcc 0")
VM_VSRC_0 = HazardRole("vm_vsrc 0")
VA_SDST_0 = HazardRole("va_sdst 0")
VA_VDST_0 = HazardRole("va_vdst 0")
WAIT_VM_VSRC_0 = HazardRole("wait_vm_vsrc 0")
RESULT_WITHOUT_WAIT_VM_VSRC_0 = HazardRole("result without wait_vm_vsrc 0")
RESULT_WITHOUT_WAIT_VA_VDST_0 = HazardRole("result without wait_va_vdst 0")
OFFSET_OF_0X3F = HazardRole("offset of 0x3f")
LONG_ADDRESS = HazardRole("long address")
OFFSET_WITH_2_OR_4 = HazardRole("offset with 2 or 4")
