"""Effects of operations on control flow and on EXEC, by LLVM's generic opcode name.

LLVM's MC layer knows which registers an instruction reads and writes. This module adds how control leaves an
instruction, the effect of EXEC writes on lanes, operations that access other lanes, and operations that are refused.

Sources: the "Vega", "CDNA3", "RDNA2", "RDNA3" and "RDNA4" instruction set architecture documents, chapters "Program
Flow Control", "Scalar ALU Operations" and "Vector ALU Operations"; LLVM AMDGPUUsage.
"""

from __future__ import annotations

import re
from enum import IntEnum, IntFlag

from luthier.arch.target import Target


class Control(IntEnum):
    """Ways in which control leaves an instruction."""

    NEXT = 0
    """Only to the next instruction."""
    BRANCH = 1
    """To its target."""
    CONDITIONAL = 2
    """To its target or to the next instruction."""
    CALL = 3
    """To its target; the callee may return (s_call_b64)."""
    CALL_REGISTER = 4
    """To an address in registers; the callee may return (s_swappc_b64)."""
    JUMP_REGISTER = 5
    """To an address in registers (s_setpc_b64): a return, a long branch, a tail call, or a computed jump."""
    END = 6
    """Ends the wave."""
    TRAP = 7
    """Enters the trap handler, which returns to the next instruction or never."""
    REFUSED = 8
    """Its control flow or its meaning depends on state or addresses that cannot be followed
    (`Generation.refused_control`)."""


_CONTROL = {
    "S_BRANCH": Control.BRANCH,
    "S_CALL_B64": Control.CALL,
    "S_SWAPPC_B64": Control.CALL_REGISTER,
    "S_SETPC_B64": Control.JUMP_REGISTER,
    "S_ENDPGM": Control.END,
    "S_ENDPGM_SAVED": Control.END,
    "S_ENDPGM_ORDERED_PS_DONE": Control.END,
    "S_TRAP": Control.TRAP,
}


def control_of(pseudo: str, target: Target) -> Control:
    """Return how control leaves the operation with this generic name."""
    if pseudo in target.refused_control:
        return Control.REFUSED
    if pseudo.startswith("S_CBRANCH_"):
        return Control.CONDITIONAL
    return _CONTROL.get(pseudo, Control.NEXT)


class Mark(IntFlag):
    """Properties of opcodes that lifting looks for in whole runs of code."""

    ADDRESS = 1
    """It reads the program counter, or is an indirect jump or call."""
    REGION = 2
    """It begins or ends a region in which code cannot be inserted or a mode is on (`luthier.lifting.code.regions`)."""
    ANY_REGISTER = 4
    """It may access any vector register: it computes the number of one, or its effects are not known.

    `luthier.lifting.code.text` adds this mark: it follows from effects, not from the name that `marks_of` gets.
    """


MODE_SWITCHES = frozenset(
    {"S_SET_GPR_IDX_ON", "S_SET_GPR_IDX_OFF", "S_SET_GPR_IDX_MODE", "S_SET_GPR_IDX_IDX", "S_SETVSKIP"}
)
"""Operations that change VGPR index mode or vector skip mode."""


def marks_of(pseudo: str) -> Mark:
    """Return the marks of the operation with this generic name, except `Mark.ANY_REGISTER`."""
    marks = Mark(0)
    if pseudo in ("S_GETPC_B64", "S_SETPC_B64", "S_SWAPPC_B64"):
        marks |= Mark.ADDRESS
    if pseudo in ("S_CLAUSE", "S_SENDMSG") or pseudo in MODE_SWITCHES or pseudo.startswith("S_SETREG"):
        marks |= Mark.REGION
    return marks


class LaneChange(IntFlag):
    """Changes of a lane's activity that an EXEC write can make."""

    STAYS_ACTIVE = 1
    BECOMES_INACTIVE = 2
    BECOMES_ACTIVE = 4
    STAYS_INACTIVE = 8

    UNCHANGED = STAYS_ACTIVE | STAYS_INACTIVE
    NARROWED = STAYS_ACTIVE | BECOMES_INACTIVE | STAYS_INACTIVE
    WIDENED = STAYS_ACTIVE | BECOMES_ACTIVE | STAYS_INACTIVE
    ANY = STAYS_ACTIVE | BECOMES_INACTIVE | BECOMES_ACTIVE | STAYS_INACTIVE


CROSS_LANE_PREFIXES = (
    "V_READLANE",
    "V_READFIRSTLANE",  # lane 0 when EXEC is zero
    "V_PERMLANE",
    "V_ACCVGPR",
    "V_MFMA",
    "V_SMFMAC",
    "V_WMMA",
    "V_SWMMAC",
    "V_INTERP",
    "DS_BPERMUTE",
    "DS_PERMUTE",
    "DS_SWIZZLE",
    "DS_ORDERED",
    "DS_GWS",
    "LDS_",
    "IMAGE_",
)
"""Operations, besides those with DPP, that read vector registers of other lanes or regardless of EXEC."""

EXEC_IGNORED_PREFIXES = ("V_MFMA", "V_SMFMAC", "V_WMMA", "V_SWMMAC")
"""Operations that write every lane of their vector destination regardless of EXEC."""

WRITES_ANYWHERE_PREFIXES = (
    *EXEC_IGNORED_PREFIXES,
    "V_WRITELANE",
    "V_ACCVGPR",
    "V_PERMLANE16_SWAP",
    "V_PERMLANE32_SWAP",
    "V_INTERP",
    "LDS_",
    "IMAGE_",
)
"""Operations that may write their vector destination in inactive lanes."""

ACCUMULATING_PREFIXES = ("V_PK_FMAC_F16",)
"""Operations that add to their destination without a corresponding source operand in LLVM's tables."""

SWAPPING_PREFIXES = ("V_PERMLANE16_SWAP", "V_PERMLANE32_SWAP")
"""Operations that move the previous value of their first destination to the second."""

CONDITIONAL_WRITE_PREFIXES = ("S_CMOV", "GLOBAL_LOAD_BLOCK", "SCRATCH_LOAD_BLOCK", "V_PERMLANE64_")
"""Operations whose destination keeps its value if SCC, or the register's bit of M0, is 0, or in wave32."""

ROUNDED_PREFIXES = (
    *(f"{kind}_{name}" for kind in ("V", "S", "V_PK") for name in ("MAXIMUM", "MINIMUM")),
    *("V_CVT_RPI_I32", "V_CVT_FLR_I32", "V_CVT_NEAREST_I32", "V_CVT_FLOOR_I32"),
)
"""Operations that may depend on MODE's treatment of denormal numbers, although LLVM does not list MODE."""

FLOAT_ATOMIC_OF_LDS = re.compile(r"DS_(ADD|PK_ADD|MIN|MAX|CMPST|CMPSTORE)_(\w+_)?B?F\d")
"""Operations that depend on MODE, too (CDNA4's document, 9.2.2)."""

NARROW_TYPES = frozenset({"F16", "BF16", "U16", "I16", "B16", "U8", "I8", "B8", "FP8", "BF8", "F8"})
"""Result types smaller than a register: the rest of the destination may keep its value (RDNA3 "16-bit math and
VGPRs")."""


_WIDE_TYPES = frozenset({"F32", "U32", "I32", "B32", "F64", "U64", "I64", "B64", "U24", "I24", "B128", "B96"})


_SAMPLER_WORDS = {"l": 1, "b": 1, "c": 1, "o": 1, "cl": 1, "d": 6, "cd": 6}
"""Part of the name of an operation with a sampler -> registers that it adds: a level, a bias, a reference, offsets, the
minimum level, and derivatives along three axes (Vega ISA, "Image opcodes with a sampler")."""


def most_coordinates(mnemonic: str) -> int:
    """Return the maximum number of registers of an image operation's coordinates.

    Without a sampler there are three, and a level or the number of a sample (Vega ISA, "Image opcodes with no
    sampler").
    """
    verb, *words = mnemonic.removeprefix("image_").split("_")
    if not verb.startswith(("sample", "gather")) and (verb, *words) != ("get", "lod"):
        return 4
    return 3 + sum(_SAMPLER_WORDS.get(word, 0) for word in words)


def result_is_narrow(pseudo: str) -> bool:
    """Return whether a vector operation may leave part of its 32-bit destination unchanged.

    The first type in the name of a vector operation is that of its result. Packed operations fill the register.
    """
    if not pseudo.startswith("V_"):
        return False
    parts = pseudo.split("_")
    if any(part.startswith("PK") for part in parts[1:3]) or parts[1] in ("CMP", "CMPX"):
        # v_cvt_pk_* with 8-bit results fills only half a register
        return any(part in ("FP8", "BF8", "U8", "I8", "F8") for part in parts)
    return next((part in NARROW_TYPES for part in parts[1:] if part in NARROW_TYPES or part in _WIDE_TYPES), False)


TRANSPOSING_LOAD = re.compile(r"_TR\d*_B")
"""Loads that return data addressed by other lanes (GFX950, GFX12): they read all lanes."""
