"""Which of a target's instructions the emulator executes: exact, bounded, or refused.

What a target has is asked of LLVM's disassembler: every value of the bits that can hold an opcode is decoded, in a few
surroundings, and the opcodes that come back are counted.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luthier.emulator.bind import Binder, Unsupported
from luthier.emulator.builder import FloatMode
from luthier.emulator.operations import operations_of
from luthier.mc import InstructionArray, Isa
from luthier.mc.instructions import InstructionFlag

NOT_COMPUTE = InstructionFlag.IMAGE | InstructionFlag.EXPORT | InstructionFlag.GWS | InstructionFlag.INTERPOLATION
"""Classes that compute kernels do not use: no descriptors, no parameters, no global wave sync exist for them here."""

_NO_OPERATION = ("v_illegal",)
"""Encodings that LLVM knows as reserved."""
_LOW_HALVES = (0x0000, 0x4000, 0x8000, 0xC000, 0x00FF, 0x00FA, 0x00F9, 0x00E9, 0x0100, 0x0180, 0x0081)
_TAILS = (
    (0x00000000, 0x00000000),
    (0x02020202, 0x00000000),
    (0x00000100, 0x00000000),
    (0x000000FF, 0x00000000),
    (0xFF000000, 0x00000000),
    (0xFF00E400, 0x00000000),  # DPP: quad_perm with all rows and banks
    (0x06060600, 0x00000000),  # SDWA: whole registers
    (0x007C0000, 0x00000000),  # FLAT without a scalar address
    (0x007F0000, 0x00000000),
    (0x04020000, 0x00000000),
    (0x1C000000, 0x00000000),
    (0x80000000, 0x00000080),
)


@dataclass
class Coverage:
    """Opcodes of one target by what becomes of them; each a mapping of base mnemonic to LLVM's opcode names."""

    target: str
    exact: dict[str, set[str]] = field(default_factory=dict)
    bounded: dict[str, set[str]] = field(default_factory=dict)
    refused: dict[str, set[str]] = field(default_factory=dict)
    outside: dict[str, set[str]] = field(default_factory=dict)
    """Not of the compute ISA."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why a refused mnemonic is refused."""

    def share(self) -> float:
        """Part of the compute opcodes that are executed."""
        done = sum(len(names) for table in (self.exact, self.bounded) for names in table.values())
        missing = sum(len(names) for names in self.refused.values())
        return done / max(1, done + missing)


def _block(tops: NDArray[Any], low: int, second: int, third: int) -> NDArray[np.uint32]:
    """Three dwords for each upper half of a first dword."""
    block = np.zeros((len(tops), 3), np.uint32)
    block[:, 0] = tops | np.uint32(low)
    block[:, 1] = second
    block[:, 2] = third
    return block


def _lower_opcodes() -> Iterator[NDArray[np.uint32]]:
    """SOP1 and VOP1 have their opcode in the lower half of the first dword."""
    for first in (0xBE800000, 0x7E000000, 0xBE820000, 0x7E0000FA, 0x7E0000F9, 0x7E000100, 0x7E000080):
        shift = 8 if first >> 24 == 0xBE else 9
        firsts = first + (np.arange(256, dtype=np.uint32) << shift)
        for second, third in _TAILS:
            yield _block(firsts, 0, second, third)


@functools.lru_cache(maxsize=4)
def samples(isa: Isa) -> dict[int, tuple[InstructionArray, int]]:
    """For every opcode of the target, one decoded instruction."""
    found: dict[int, tuple[InstructionArray, int]] = {}

    def look(block: NDArray[np.uint32]) -> NDArray[np.int32]:
        """Decode; the opcode at each start, -1 where there is none."""
        code = isa.decode(block.tobytes())
        starts = np.flatnonzero(code.offset % 12 == 0)
        numbers, first = np.unique(code.opcode[starts], return_index=True)
        for number, index in zip(numbers.tolist(), first.tolist(), strict=True):
            if number >= 0 and number not in found:
                found[number] = (code, int(starts[index]))
        opcodes = np.full(len(block), -1, np.int32)
        opcodes[code.offset[starts] // 12] = code.opcode[starts]
        return opcodes

    tops = np.arange(65536, dtype=np.uint32) << 16
    plain = look(_block(tops, 0, 0, 0))
    # Other surroundings only where they can tell something new: where nothing was decoded, and twice for each opcode.
    order = np.argsort(plain, kind="stable")
    position = np.arange(len(order)) - np.searchsorted(plain[order], plain[order])
    interesting = tops[np.sort(order[(position < 2) | (plain[order] < 0)])]
    for low in _LOW_HALVES:
        for second, third in _TAILS if low in (0x0000, 0x00FA, 0x00F9, 0x00FF) else _TAILS[:2]:
            look(_block(interesting, low, second, third))
    for block in _lower_opcodes():
        look(block)
    return found


def coverage(target: str, wave_size: int | None = None) -> Coverage:
    """Examine every opcode of `target`."""
    isa = Isa.of(target, wave_size)
    binder = Binder(isa)
    table = operations_of(isa.target.target.major)
    result = Coverage(target)
    for number, (code, index) in samples(isa).items():
        opcode = isa.opcode(number)
        name = opcode.mnemonic
        if opcode.flags & NOT_COMPUTE or name in _NO_OPERATION:
            result.outside.setdefault(name, set()).add(opcode.name)
            continue
        try:
            variant = binder.bind(code, index, 0, FloatMode()).variant
        except Unsupported as problem:
            result.refused.setdefault(name, set()).add(opcode.name)
            result.reasons[name] = str(problem)
            continue
        parts = [variant, *([variant.second] if variant.second is not None else [])]
        exact = all(table[part.operation].exact for part in parts)
        (result.exact if exact else result.bounded).setdefault(name, set()).add(opcode.name)
    return result


def report(result: Coverage, *, names: bool) -> str:
    """The coverage as text; with `names`, every refused mnemonic with the reason."""
    count = {
        key: sum(len(value) for value in getattr(result, key).values())
        for key in ("exact", "bounded", "refused", "outside")
    }
    lines = [
        f"{result.target}: {100 * result.share():.1f} % of the compute opcodes: {count['exact']} exact, "
        f"{count['bounded']} bounded, {count['refused']} refused; {count['outside']} outside compute (image, export, …)"
    ]
    if names:
        lines += [f"  {name}: {result.reasons[name]}" for name in sorted(result.refused)]
    return "\n".join(lines)
