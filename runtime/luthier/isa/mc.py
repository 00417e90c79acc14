"""LLVM's MC view of one processor."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luthier import _mc
from luthier.errors import DecodeError
from luthier.isa.instructions import Assembly, Fixup, InstructionArray, InstructionFlag
from luthier.isa.native import data_text, make, native_isa
from luthier.isa.opcodes import Opcode, OperandInfo
from luthier.isa.registers import VGPRS, Register
from luthier.isa.targets import Target, TargetId

_PROCESSOR = re.compile(r"_(?:ci|vi|gfx\d+)(?:_[a-z]+)?$")


class Isa:
    """LLVM's MC view of one processor, its features and its wave size.

    `Isa.of` returns a cached object. Reading is safe from several threads; decoding releases the interpreter lock.
    """

    target: TargetId
    wave_size: int
    """Lanes per wavefront: 32 or 64."""
    register_count: int
    """Upper limit of LLVM's register numbers."""

    @staticmethod
    def of(target: TargetId | Target | str, wave_size: int | None = None) -> Isa:
        """Return the cached instruction set of a target.

        Args:
            target: a target id such as ``"gfx942:xnack-"``, parsed or as text.
            wave_size: lanes per wavefront; None: the target's default.

        Raises:
            TargetError: the target is unknown, or does not have the wave size.
        """
        if isinstance(target, str):
            target = TargetId.parse(target)
        elif isinstance(target, Target):
            target = TargetId(target)
        return _isa(target, target.target.default_wave_size if wave_size is None else wave_size)

    def __init__(self, target: TargetId, wave_size: int) -> None:
        self.target = target
        self.wave_size = wave_size
        self._native = native_isa(target, wave_size)
        self.register_count = self._native.register_count
        self._opcodes: dict[int, Opcode] = {}

    @functools.cached_property
    def _register_columns(self) -> tuple[NDArray[Any], ...]:
        return self._native.register_units()

    @property
    def register_first_unit(self) -> NDArray[np.int32]:
        """Return the first register unit by LLVM register number, -1 if there is none."""
        return self._register_columns[0]

    @property
    def register_unit_count(self) -> NDArray[np.int32]:
        """Return the number of units by LLVM register number."""
        return self._register_columns[1]

    @property
    def register_is_half(self) -> NDArray[np.bool_]:
        """Return whether a register is a 16-bit half of its unit, by LLVM register number."""
        return self._register_columns[2].view(np.bool_)

    # Instructions

    def decode(self, code: bytes | bytearray | memoryview, address: int = 0) -> InstructionArray:
        """Decode all of `code`, whose first byte is at virtual address `address`.

        Undecodable bytes become entries with opcode -1; nothing raises.
        """
        code = bytes(code)
        return InstructionArray(address, code, *self._native.decode(code, address & (2**64 - 1)))

    def piece(self, code: bytes, address: int, traits: _mc.OpcodeTraits) -> _mc.Piece:
        """Decode all of `code`, at least one byte, for the native explorer; see `decode`."""
        return _mc.Piece(self._native, code, address, traits)

    def texts(self, code: InstructionArray, which: Sequence[int] | None = None) -> list[str]:
        """Return the assembly text of every instruction, or of those with the indices `which`.

        Texts have single spaces and no comments; undecodable bytes become ``.long`` or ``.byte``.
        """
        return self._texts(code, range(len(code)) if which is None else which)

    def text(self, code: InstructionArray, index: int) -> str:
        """Return the assembly text of one instruction."""
        return self._texts(code, range(index, index + 1))[0]

    def _texts(self, code: InstructionArray, which: Sequence[int]) -> list[str]:
        good = [index for index in which if code.opcode[index] >= 0]
        whole = len(good) == len(code)
        start, kind, value = code.operand_start, code.operand_kind, code.operand_value
        if not whole:
            pieces = [slice(start[index], start[index + 1]) for index in good]
            sizes = [0, *(piece.stop - piece.start for piece in pieces)]
            start = np.cumsum(sizes, dtype=np.int32)
            kind = np.concatenate([kind[piece] for piece in pieces]) if pieces else kind[:0]
            value = np.concatenate([value[piece] for piece in pieces]) if pieces else value[:0]
        try:
            printed = iter(
                self._native.print(
                    code.opcode if whole else code.opcode[good],
                    start,
                    kind,
                    value,
                    code.addresses if whole else code.offset[good] + code.address,
                )
            )
        except _mc.McError as problem:
            raise DecodeError(problem.args[0], target=str(self.target)) from None
        return [next(printed) if code.opcode[index] >= 0 else data_text(code.bytes_of(index)) for index in which]

    def encode(self, code: InstructionArray) -> tuple[bytes, NDArray[np.int32]]:
        """Encode opcodes and operands. Return the bytes, and [n + 1] the offset of each instruction and of the end.

        EXPRESSION operands are encoded as a field or literal of value 0.

        Raises:
            DecodeError: an opcode, register or operand list has no encoding, or an entry is undecodable.
        """
        try:
            return self._native.encode(code.opcode, code.operand_start, code.operand_kind, code.operand_value)
        except _mc.McError as problem:
            raise DecodeError(problem.args[0], target=str(self.target)) from None

    def assemble(self, source: str) -> Assembly:
        """Assemble `source` and return the contents of its text section; other sections are left out.

        Raises:
            DecodeError: the source does not assemble; with the line and LLVM's message.
        """
        try:
            columns, code, labels, fixups = self._native.assemble(source)
        except _mc.McError as problem:
            message, line = problem.args
            raise DecodeError(f"line {line}: {message}" if line else message, target=str(self.target)) from None
        return Assembly(
            InstructionArray(0, code, *columns),
            dict(labels),
            tuple(
                Fixup(instruction, byte, kind, symbol, addend, modifier, subtrahend)
                for instruction, byte, kind, symbol, subtrahend, addend, modifier in fixups
            ),
        )

    # Descriptions

    def opcode(self, number: int) -> Opcode:
        """Return the opcode with a number; the result is cached.

        Raises:
            DecodeError: there is none. Undecodable entries have number -1.
        """
        try:
            return self._opcodes[number]
        except KeyError:
            return self._opcodes.setdefault(number, self._describe_opcode(int(number)))

    @staticmethod
    def opcode_names() -> list[str]:
        """Return LLVM's name of every opcode of every processor, by number."""
        return _mc.opcode_names()

    def _describe_opcode(self, number: int) -> Opcode:
        try:
            described = self._native.describe_opcode(number)
        except (_mc.McError, TypeError):  # TypeError: negative
            raise DecodeError(f"no opcode has the number {number}", target=str(self.target)) from None
        name, mnemonic, pseudo, pseudo_number, operands, uses, defs, size, flags, ts_flags, is_pseudo = described
        return Opcode(
            number,
            name,
            mnemonic,
            pseudo if pseudo_number != number else _PROCESSOR.sub("", name),
            pseudo_number,
            tuple(
                OperandInfo(operand, is_def, tied, kind, _register_class_name(cls) if cls >= 0 else None)
                for operand, is_def, tied, kind, cls in operands
            ),
            tuple(self._wave_register(register) for register in uses),
            tuple(self._wave_register(register) for register in defs),
            size,
            InstructionFlag(flags),
            ts_flags,
            not is_pseudo,
        )

    def _wave_register(self, number: int) -> int:
        """Return the register that an instruction uses implicitly: in wave32 the low half of VCC or EXEC."""
        if self.wave_size == 64:
            return number
        name = self._native.register(number)[0]
        return register_numbers()[f"{name}_LO"] if name in ("VCC", "EXEC") else number

    def register(self, number: int) -> Register:
        """Return the register with a number.

        Raises:
            DecodeError: there is none.
        """
        if not 0 <= number < self.register_count:
            raise DecodeError(f"no register has the number {number}", target=str(self.target))
        return Register(int(number), *self._native.register(int(number)))

    def register_named(self, name: str) -> Register:
        """Return the register with LLVM's name, e.g. ``SGPR0_SGPR1``.

        Raises:
            DecodeError: there is none.
        """
        number = register_numbers().get(name)
        if number is None:
            raise DecodeError(f"LLVM has no register {name!r}")
        return self.register(number)

    @functools.lru_cache(maxsize=4096)  # noqa: B019  there is one for each processor, for good
    def vgpr_places(self, opcode: int) -> tuple[int, ...]:
        """Return, for each operand of an opcode, the place in ``s_set_vgpr_msb`` of the upper bits of its VGPR number.

        Places 0 to 3 are src0, src1, src2 and the result of vector operations; -1 stands for none. A source that is
        tied to the result has the result's place (LLVM, AMDGPULowerVGPREncoding).
        """
        places = self._native.vgpr_places(opcode)
        for position, operand in enumerate(self.opcode(opcode).operands):
            if not operand.is_def and operand.tied_to >= 0:  # one field of the encoding, or two that must agree
                if places[operand.tied_to] < 0:
                    places[operand.tied_to] = places[position]
                places[position] = places[operand.tied_to]
        return tuple(places)

    def register_at(self, unit: int, count: int = 1) -> int | None:
        """Return the register number that instructions of this processor use for exactly these units, if any."""
        return self._register_at.get((unit, count))

    def register_like(self, number: int, unit: int) -> int | None:
        """Return the register at `unit` with the width of register `number`, if any.

        If `number` is a 16-bit half of a VGPR, the result is the same half.
        """
        if not self.register_is_half[number]:
            return self.register_at(unit, int(self.register_unit_count[number]))
        return self._halves.get((unit, self._is_high_half(number)))

    @functools.cached_property
    def _halves(self) -> dict[tuple[int, bool], int]:
        return {
            (unit, self._is_high_half(number)): number
            for number in np.flatnonzero(self.register_is_half).tolist()
            if (unit := int(self.register_first_unit[number])) in VGPRS
        }

    def _is_high_half(self, number: int) -> bool:
        return str(self._native.register(number)[0]).endswith("_HI16")

    @functools.cached_property
    def _register_at(self) -> dict[tuple[int, int], int]:
        """Return (first unit, number of units) -> the first register that this processor's encoder accepts."""
        numbers = np.flatnonzero(self._register_columns[3])
        units = zip(self.register_first_unit[numbers].tolist(), self.register_unit_count[numbers].tolist(), strict=True)
        table: dict[tuple[int, int], int] = {}
        for key, number in zip(units, numbers.tolist(), strict=True):
            table.setdefault(key, number)
        return table

    def register_classes(self) -> Mapping[str, Sequence[int]]:
        """Return LLVM's register class -> the numbers of its registers."""
        return _register_classes()

    def registers_in_class(self, name: str) -> list[int]:
        """Return the numbers of the registers in a register class, in LLVM's order.

        Raises:
            DecodeError: there is no such class.
        """
        try:
            return list(self.register_classes()[name])
        except KeyError:
            raise DecodeError(f"LLVM has no register class {name!r}") from None


@functools.cache
def _isa(target: TargetId, wave_size: int) -> Isa:
    return Isa(target, wave_size)


LDS_DIRECT = "LDS_DIRECT"
"""LLVM's name of an operand that is read from LDS, at the address in M0."""


# The tables below are the same for every processor.


@functools.cache
def _any() -> _mc.Isa:
    return make("gfx942", "")


@functools.cache
def register_numbers() -> dict[str, int]:
    """Return register name -> LLVM's register number."""
    return _any().register_numbers()


@functools.cache
def _register_classes() -> dict[str, list[int]]:
    return dict(_any().register_classes())


@functools.cache
def _register_class_name(number: int) -> str:
    return _any().register_class_name(number)
