"""Refusal of instructions of a generation that uses the operations of an older one, if they are not known to mean the
same (`luthier.arch.gates`)."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from luthier.arch.gates import Gates
from luthier.isa import Opcode

_WITH_NUMBER = ("s_getreg", "s_setreg")
_OF_BARRIERS = (
    *("s_barrier_signal", "s_barrier_signal_isfirst", "s_barrier_wait"),
    *("s_barrier_init", "s_barrier_join", "s_get_barrier_state"),
)
_SCALE_OFFSET = 1 << 11
_CACHE_POLICY = 0x3F
"""TH, SCOPE and NV: hints, as the emulated memory is coherent."""
_LARGEST_OFFSET = 1 << 23
"""LLVM's assembler takes 23 bits for buffers (AMDGPUAsmParser, "expected a 23-bit unsigned offset")."""
_BARRIERS = (-1, -2, -3, *range(32))
"""The barriers of the work-group, the trap handler and the cluster (where nothing waits), and named barriers."""
_NO_FIRST = (-3, 0)
"""Barriers for which the sources differ on which wave is first."""
_MODE, _SCHEDULING, _IB_STS2 = 1, 26, 28
_CLUSTER = ((_IB_STS2, 0xF << 6), (_IB_STS2, 0xF << 21))
"""Registers and bits: whether there are clusters, and the work-group's number in its cluster (LLVM, SIISelLowering,
lowerWorkGroupId and ID_IB_STS2). Both are 0 here, as in every launch without clusters."""
_SCALED = re.compile(r"(flat|global|scratch)_(load|store|atomic)_(?!tr|block|addtid|monitor|lds)|s_load_")
"""Accesses for which ``scale_offset`` multiplies by the bytes per lane."""
_MESSAGES, _NEW_ANSWERS = (1, 3), 134
"""Interrupts and the release of VGPRs; the first answer that GFX12 lacks."""
_NO_MODIFIERS = ("v_cvt_pk_fp8_f16", "v_cvt_pk_bf8_f16")
_SAME_MODE = 0xFF
"""Bits of MODE: rounding and denormals."""
_REPLAY_MODE = 1 << 25
"""LLVM's Hwreg::REPLAY_MODE: what is replayed after a page fault. The emulated device has none."""


@functools.cache
def _different(gates: Gates) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern), why) for pattern, why in gates.different.items())


def refused_opcode(gates: Gates, opcode: Opcode, name: str, *, own: bool) -> str | None:
    """Return why an opcode is refused; None if it means the same as the operation `name`.

    `own`: the operation is declared for this generation, not for an older one.
    """
    if own:
        return None
    for pattern, why in _different(gates):
        if pattern.match(name):
            return f"{name} of {gates.name}: {why}"
    new_form = f"{gates.base} has no such instruction or form of it"
    known = name in gates.same or opcode.name.startswith("V_DUAL_")
    if gates.own_opcodes in opcode.name and not known:
        return f"{name} of {gates.name}: {new_form}"
    return None


def checked_operands(gates: Gates, name: str) -> tuple[str, ...]:
    """Return LLVM's names of the operands of an operation that `refused_operands` checks if they are immediates."""
    if name in _NO_MODIFIERS:
        return ("clamp", "src0_modifiers")
    if name in gates.not_clamped:
        return ("clamp", "omod")
    if name in _OF_BARRIERS:
        return ("simm16",) if name == "s_barrier_wait" else ("src0",)
    if name.startswith("s_sendmsg"):
        return ("simm16", "src0")
    if name.startswith("buffer_"):
        return ("cpol", "offset")
    return ("cpol", "simm16") if name.startswith(_WITH_NUMBER) else ("cpol",)


def refused_operands(gates: Gates, name: str, values: Mapping[str, int]) -> str | None:
    """Return why an instruction is refused, given the values of its immediate operands by LLVM's names."""
    policy = values.get("cpol", 0)
    if policy & _SCALE_OFFSET and not _SCALED.match(name):
        return f"{name} with scale_offset: no source says by how much"
    if policy & ~(_CACHE_POLICY | _SCALE_OFFSET):
        return f"{name} with the cache policy {policy:#x}, which {gates.base} does not have"
    if name.startswith("s_sendmsg") and not _known_message(name, values):
        return f"{name} of a message that is not GFX12's"
    if name.startswith("buffer_") and not 0 <= values.get("offset", 0) < _LARGEST_OFFSET:
        return f"{name} with a negative offset, which is not allowed"
    if name in _NO_MODIFIERS and values.get("src0_modifiers", 0) & 3:
        return f"{name} with a negated or absolute source: no source says of which half"
    if name in gates.not_clamped and (values.get("clamp") or values.get("omod")):
        return f"{name} with clamp or omod, which is not modelled"
    if name in _OF_BARRIERS and (why := _refused_barrier(name, values)):
        return why
    if name.startswith(("s_getreg", "s_setreg")) and not _same_register(name, values["simm16"]):
        return f"{name} of hardware register {values['simm16'] & 63}: {gates.name}'s own fields are not modelled"
    return None


def _refused_barrier(name: str, values: Mapping[str, int]) -> str | None:
    """Return why an instruction is refused for its immediate barrier; a barrier in M0 is checked at run time."""
    number = _signed(next(iter(values.values()), 1))
    if number not in _BARRIERS or (number < 0 and name in ("s_barrier_init", "s_barrier_join")):
        return f"{name} {number}: there is no such barrier"
    if name.endswith("isfirst") and number in _NO_FIRST:
        return f"{name} {number}: the sources differ on which wave is first"
    if name == "s_get_barrier_state" and number < -1:
        return f"{name} {number}: the sources differ on the state of a barrier that the wave cannot use"
    return None


def _known_message(name: str, values: Mapping[str, int]) -> bool:
    """Return whether GFX12 has a message, too: LLVM's table (AMDGPUAsmUtils) has new answers for GFX1250."""
    if name.startswith("s_sendmsg_rtn"):
        return values.get("src0", 0) & 0xFF < _NEW_ANSWERS
    return values.get("simm16", 0) & 15 in _MESSAGES


def scales_offset(values: Mapping[str, int]) -> bool:
    """Return whether an offset in a register counts accesses, not bytes."""
    return bool(values.get("cpol", 0) & _SCALE_OFFSET)


def asks_for_cluster(name: str, values: Mapping[str, int]) -> bool:
    """Return whether the instruction reads only a field of IB_STS2 about clusters."""
    return name.startswith("s_getreg") and _hardware_field(values["simm16"]) in _CLUSTER


def is_replay_mode(name: str, values: Mapping[str, int]) -> bool:
    """Return whether the instruction sets only MODE.REPLAY_MODE, which matters only after page faults."""
    return name.startswith("s_setreg") and _hardware_field(values["simm16"]) == (_MODE, _REPLAY_MODE)


def _same_register(name: str, code: int) -> bool:
    register, mask = _hardware_field(code)
    if name.startswith("s_getreg") and (register, mask) in _CLUSTER:
        return True
    if register == _MODE:
        return not mask & ~_SAME_MODE or (name.startswith("s_setreg") and mask == _REPLAY_MODE)
    return register == _SCHEDULING and name.startswith("s_setreg")


def _hardware_field(code: int) -> tuple[int, int]:
    """Return the register and the mask of bits that a hwreg immediate names."""
    return code & 63, (1 << (code >> 11 & 31) + 1) - 1 << (code >> 6 & 31) & 0xFFFFFFFF


def _signed(value: int) -> int:
    return (value & 0xFFFF) - ((value & 0x8000) << 1)
