"""Guards of hooks: comparisons at the point itself that decide whether a hook needs to run."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from luthier.errors import DecodeError, HookError
from luthier.isa.registers import SGPRS, VCC, VGPRS, mask_of
from luthier.lifting import LiftedRepresentation
from luthier.tool.edits import effects_of

_COMPARES = re.compile(r"v_cmp_")
_SETS_UP = re.compile(r"s_mov(?:k_i|_b)32$")
RESULT = "{vcc}"
"""Placeholder for the register that comparisons write; `HALF` stands for its lower half."""
HALF = "{vcc_lo}"
_REGISTERS = mask_of((*SGPRS, *VGPRS, *VCC))


class Guard(Struct, frozen=True):
    """Comparisons of which at least one must be true in some lane for a hook to run."""

    tests: tuple[str, ...]
    """Assembly of each."""
    reads: int
    """Bit set of the application's units that they read."""

    @classmethod
    def of(cls, lifted: LiftedRepresentation, tests: Sequence[str]) -> Guard:
        """Return the guard of some comparisons.

        Args:
            tests: assembly of each: moves of numbers to `HALF`, if any, then a comparison that writes `RESULT`.

        Raises:
            HookError: a test contains other instructions, writes other registers, or reads the result of the previous
                test.
        """
        named = tuple(
            test.replace(RESULT, "vcc" if lifted.wave_size > len(VCC) * 16 else "vcc_lo").replace(HALF, "vcc_lo")
            for test in tests
        )
        reads = 0
        for number, text in enumerate(named):
            units = _reads_of(text, lifted)
            if number and units & mask_of(VCC):
                raise HookError(f"{text!r} reads VCC, which the previous test writes", kernel=lifted.kernel.name)
            reads |= units
        return cls(named, reads)


def _reads_of(text: str, lifted: LiftedRepresentation) -> int:
    """Return the units that a test reads before it writes them.

    Raises:
        HookError: the text is not a test.
    """
    isa = lifted.isa
    try:
        code = isa.assemble(text).instructions
    except DecodeError as problem:
        raise HookError(f"{text!r} does not assemble: {problem.message}", kernel=lifted.kernel.name) from None
    *before, last = [isa.opcode(int(number)).mnemonic for number in code.opcode] or [""]
    reads = writes = 0
    for effects in effects_of(lifted, code.code):
        reads, writes = reads | effects.reads & ~writes, writes | effects.writes
    if not _COMPARES.match(last) or not all(map(_SETS_UP.match, before)) or writes & ~mask_of(VCC):
        raise HookError(f"{text!r} is not a comparison that writes {RESULT}", kernel=lifted.kernel.name)
    return reads & _REGISTERS
