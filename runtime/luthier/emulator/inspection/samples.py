"""One instruction for every opcode of a target.

LLVM's table has the opcodes of all processors. Each candidate is encoded with the simplest operands, and the target's
disassembler decides which of them exist.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from msgspec import Struct

from luthier.errors import DecodeError
from luthier.isa import InstructionArray, Isa, Opcode
from luthier.isa.instructions import NO_TARGET, OperandKind

Samples = dict[int, tuple[InstructionArray, int]]
"""By opcode: a decoded array and a position in it."""

_GENERATION = re.compile(r"_(si|ci|vi|gfx\d\w*?)(?:_gfx\d\w*|_format|_[av]cd)?$")
_ROOM = 24
"""Bytes reserved for one instruction, more than the longest takes."""
_CHUNK = 256
"""Opcodes encoded at once; each one that cannot be encoded costs another try with the rest."""
_DPP8_ALL_LANES = 0xE9
_VECTOR, _SCALAR = re.compile(r"[VA]GPR0(_|$)"), re.compile(r"SGPR0(_|$)")


class _OperandChoice(Struct, frozen=True):
    """Choice of operands."""

    registers: tuple[re.Pattern[str], ...] = (_VECTOR, _SCALAR)
    """Preferred registers of a class that has several kinds."""
    immediates: tuple[tuple[str, int], ...] = (("simm16", 1),)
    """By operand name; all others are 0. Hardware register 1 is MODE, which every target has."""


_ATTEMPTS = (
    _OperandChoice(),
    _OperandChoice((_SCALAR, _VECTOR), (("offset", 4), ("cpol", 1), ("simm16", 1))),
    _OperandChoice(immediates=(("cpol", 16), ("simm16", 1))),
)
"""Later attempts are for opcodes whose encoding with the earlier operands is another instruction."""


@functools.lru_cache(maxsize=4)
def samples(isa: Isa) -> Samples:
    """Return one decoded instruction for every opcode of the target."""
    by_opcode: Samples = {}
    aliased: Samples = {}
    for attempt in range(len(_ATTEMPTS)):
        encoded = _encodings(isa.target.target.widest, isa.wave_size, attempt)
        wanted = [number for number in encoded if number not in by_opcode]
        code = isa.decode(b"".join(encoded[number] for number in wanted))
        starts = np.flatnonzero(code.offset % _ROOM == 0)
        for number, index in zip(code.opcode[starts].tolist(), starts.tolist(), strict=True):
            if number >= 0 and (isa.target.target.has_agprs or "_agpr" not in isa.opcode(number).name):
                # Another target's encoding may decode as this opcode with fields set that these operands leave at 0.
                kind = by_opcode if wanted[int(code.offset[index]) // _ROOM] == number else aliased
                kind.setdefault(number, (code, index))
    by_opcode |= {number: place for number, place in aliased.items() if number not in by_opcode}
    return by_opcode


@functools.cache
def _candidates(widest: str, wave_size: int) -> tuple[Isa, tuple[Opcode, ...]]:
    """Return the opcodes that targets of a generation may have, and the `Isa` that describes them."""
    isa = Isa.of(widest, wave_size)
    prefixes = isa.target.target.opcode_suffixes
    matches = enumerate(map(_GENERATION.search, isa.opcode_names()))
    names = ((match[1] if match else "", number) for number, match in matches)
    chosen = [number for suffix, number in names if suffix == "" or suffix.startswith(prefixes)]
    return isa, tuple(opcode for opcode in map(isa.opcode, chosen) if opcode.encodable)


@functools.cache
def _encodings(widest: str, wave_size: int, attempt: int) -> Mapping[int, bytes]:
    """Return the candidates' encodings with the operands of an attempt, each followed by zeros."""
    isa, opcodes = _candidates(widest, wave_size)
    register = _register_choice(isa, _ATTEMPTS[attempt])
    encodings: dict[int, bytes] = {}
    for start in range(0, len(opcodes), _CHUNK):
        encodings |= _encoded(isa, opcodes[start : start + _CHUNK], _ATTEMPTS[attempt], register)
    return encodings


def _encoded(
    isa: Isa, opcodes: tuple[Opcode, ...], choice: _OperandChoice, register: Callable[[str], int]
) -> dict[int, bytes]:
    """Return encodings of some opcodes, without those whose operands LLVM rejects."""
    while True:
        try:
            code, offsets = isa.encode(_instructions(opcodes, choice, register))
        except DecodeError as problem:
            refused = re.match(r"instruction (\d+): ", str(problem))
            if refused is None:
                raise
            opcodes = opcodes[: int(refused[1])] + opcodes[int(refused[1]) + 1 :]
            continue
        places = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        pieces = (code[begin:end].ljust(_ROOM, b"\0") for begin, end in places)
        return dict(zip((opcode.number for opcode in opcodes), pieces, strict=True))


def _register_choice(isa: Isa, choice: _OperandChoice) -> Callable[[str], int]:
    @functools.cache
    def register(name: str) -> int:
        numbers = isa.registers_in_class(name)
        for pattern in choice.registers:
            for number in numbers:
                if pattern.match(isa.register(number).name):
                    return number
        return numbers[0]

    return register


def _instructions(
    opcodes: Iterable[Opcode], choice: _OperandChoice, register: Callable[[str], int]
) -> InstructionArray:
    """Return one instruction per opcode, without code bytes."""
    immediates = dict(choice.immediates)
    starts = [0]
    kinds: list[int] = []
    values: list[int] = []
    for opcode in opcodes:
        first = len(values)
        for operand in opcode.operands:
            kind, value = int(OperandKind.IMMEDIATE), immediates.get(operand.name, 0)
            if operand.tied_to >= 0:
                kind, value = kinds[first + operand.tied_to], values[first + operand.tied_to]
            elif operand.register_class is not None:
                kind, value = OperandKind.REGISTER, register(operand.register_class)
            elif operand.name == "fi" and "dpp8" in opcode.operand_index:
                value = _DPP8_ALL_LANES
            kinds.append(kind)
            values.append(value)
        starts.append(len(values))
    count = len(starts) - 1
    return InstructionArray(
        0,
        b"",
        np.zeros(count, np.int64),
        np.zeros(count, np.int32),
        np.array([opcode.number for opcode in opcodes], np.int32),
        np.zeros(count, np.uint32),
        np.full(count, NO_TARGET),
        np.array(starts, np.int32),
        np.array(kinds, np.uint8),
        np.array(values, np.int64),
    )
