"""Values of source variables in a stopped wave: DWARF expressions evaluated for each lane.

Source: LLVM, "User Guide for AMDGPU Backend", Register Identifier and Address Space Identifier; DWARF version 5, 2.5.
LLVM gives a frame base as the stack pointer's register. Its unit is bytes of a wave if scratch is accessed by buffer
instructions, and bytes of a lane otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.running.registers import WaveRegisters
from luthier.emulator.running.worker import get_field
from luthier.errors import DeviceError, LuthierError
from luthier.objects.variables import DwarfOperation, DwarfType, DwarfVariable, Expression

ReadMemory = Callable[[int, int], bytes]
"""Device memory by address and size."""
HasFrame = Callable[[int], bool]
"""Whether a scalar register holds the frame of the wave's current function."""
Bytes = NDArray[np.uint8]
"""Of shape (lanes, bytes)."""
_SGPRS = ((32, 64, 0), (1088, 42, 64))
"""First DWARF number, count, and the first register's index."""
_VGPRS = {64: (2560, 3072), 32: (1536, 2048)}
"""First DWARF number of VGPRs and AGPRs by wave size."""
_EXEC = {64: 17, 32: 1}
_LOCAL, _PRIVATE = 2, 1
"""Address spaces in clang's debug information for AMDGPU."""
_GLOBAL = 0
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "plus": lambda a, b: a + b,
    "minus": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
    "shra": lambda a, b: (a.astype(np.int64) >> b.astype(np.int64)).astype(np.uint64),
}


class NotAvailable(LuthierError):
    """The value of a variable cannot be found at this instruction."""


class _ValueLocation(Struct, frozen=True):
    """Location of a value: a register, an address in a space, or the value itself."""

    kind: str
    """"vgpr", "agpr", "sgpr", "memory", "value"."""
    number: Any
    """Number of the register; or addresses or values by lane."""
    space: int = _GLOBAL


class Frame:
    """State of a stopped wave in which expressions are evaluated.

    Args:
        scratch_unit: units of the stack pointer for one byte of a lane.
        lds: contents of the work-group's LDS.
        read: returns device memory by address and size; raises DeviceError if it cannot be accessed.
        has_frame: returns whether a scalar register holds the function's frame.
    """

    def __init__(
        self,
        registers: WaveRegisters,
        scratch_unit: int,
        lds: NDArray[np.uint8],
        read: ReadMemory,
        has_frame: HasFrame,
    ) -> None:
        self.registers, self.scratch_unit, self.lds, self.read = registers, scratch_unit, lds, read
        self.has_frame = has_frame
        self.lanes = registers.wave_size

    def value(self, variable: DwarfVariable, address: int) -> Bytes:
        """Return the bytes of a variable in each lane when the wave is at an instruction.

        Raises:
            NotAvailable: the debug information does not give the value, or uses an unsupported form.
        """
        size = variable.type.size
        if not size:
            raise NotAvailable("it has no known size")
        expression = variable.expression_at(address)
        if expression is None:
            if variable.constant is None:
                raise NotAvailable("optimised away here")
            return self._numbers(np.full(self.lanes, variable.constant & (1 << 64) - 1, np.uint64), size)
        parts: list[Bytes] = []
        part: list[DwarfOperation] = []
        for operation in expression:
            if operation.name == "piece":
                parts.append(self._bytes(self._evaluate(tuple(part), variable), int(operation.arguments[0])))
                part = []
            else:
                part.append(operation)
        if parts and part:
            raise NotAvailable("its expression does not end with DW_OP_piece")
        if not parts:
            return self._bytes(self._evaluate(expression, variable), size)
        whole = np.concatenate(parts, axis=1)[:, :size]
        if whole.shape[1] < size:
            raise NotAvailable(f"only {whole.shape[1]} of its {size} bytes have a location here")
        return whole

    def _evaluate(self, expression: Expression, variable: DwarfVariable) -> _ValueLocation:
        if not expression:
            raise NotAvailable("optimised away here")
        stack: list[_ValueLocation] = []
        for operation in expression:
            try:
                self._step(operation, stack, variable)
            except IndexError:
                raise NotAvailable(f"DW_OP_{operation.name} has too few operands on the stack") from None
        if not stack:
            raise NotAvailable("its expression leaves an empty stack")
        return stack[-1]

    def _step(self, operation: DwarfOperation, stack: list[_ValueLocation], variable: DwarfVariable) -> None:
        name, arguments = operation.name, operation.arguments
        if name == "regx" or name.startswith("reg"):
            stack.append(self._register(arguments[0] if name == "regx" else int(name[3:])))
        elif name == "fbreg":
            base = self._evaluate(variable.frame_base, variable)
            if base.kind != "sgpr":
                raise NotAvailable("its frame base is not a scalar register")
            if not self.has_frame(base.number):
                raise NotAvailable("its function has no frame here")
            lane = self.registers.sgpr(base.number) // self.scratch_unit + arguments[0]
            stack.append(_ValueLocation("memory", self._uniform(lane), _PRIVATE))
        elif name == "bregx":
            register = self._register(arguments[0])
            stack.append(_ValueLocation("memory", self._number(register) + self._uniform(arguments[1]), _GLOBAL))
        elif name == "addr":
            stack.append(_ValueLocation("memory", self._uniform(arguments[0]), _GLOBAL))
        elif name.startswith(("lit", "const")):
            stack.append(
                _ValueLocation("memory", self._uniform(int(name[3:]) if name.startswith("lit") else arguments[0]))
            )
        elif name == "plus_uconst":
            at = stack.pop()
            stack.append(_ValueLocation("memory", self._number(at) + self._uniform(arguments[0]), at.space))
        elif name in _BINARY:
            second, first = stack.pop(), stack.pop()
            value = _BINARY[name](self._number(first), self._number(second))
            stack.append(_ValueLocation("memory", value, first.space or second.space))
        elif name == "swap":
            stack[-1], stack[-2] = stack[-2], stack[-1]
        elif name == "dup":
            stack.append(stack[-1])
        elif name == "drop":
            stack.pop()
        elif name == "xderef":  # LLVM uses it for a location in an address space
            address, space = stack.pop(), stack.pop()
            stack.append(_ValueLocation("memory", self._number(address), int(self._number(space)[0])))
        elif name == "deref":
            stack.append(_ValueLocation("memory", self._bytes(stack.pop(), 8).copy().view(np.uint64)[:, 0]))
        elif name == "convert" and len(arguments) > 1:
            stack.append(_ValueLocation("value", _converted(self._number(stack.pop()), *arguments)))
        elif name == "stack_value":
            stack.append(_ValueLocation("value", self._number(stack.pop())))
        else:
            raise NotAvailable(f"DW_OP_{name} is not supported")

    def _uniform(self, value: int) -> NDArray[np.uint64]:
        return np.full(self.lanes, value & (1 << 64) - 1, np.uint64)

    def _register(self, number: int) -> _ValueLocation:
        for first, count, index in _SGPRS:
            if first <= number < first + count:
                return _ValueLocation("sgpr", number - first + index)
        vgprs, agprs = _VGPRS[self.lanes]
        if vgprs <= number < vgprs + layout.VECTOR_ROWS:
            return _ValueLocation("vgpr", number - vgprs)
        if agprs <= number < agprs + layout.VECTOR_ROWS:
            return _ValueLocation("agpr", number - agprs)
        if number == _EXEC[self.lanes]:
            return _ValueLocation("value", self._uniform(self.registers.exec))
        raise NotAvailable(f"DWARF register {number} is not known")

    def _number(self, place: _ValueLocation) -> NDArray[np.uint64]:
        """Return a location as a stack entry: the contents of a register, or an address itself."""
        if place.kind in ("memory", "value"):
            numbers: NDArray[np.uint64] = place.number
            return numbers
        wide = np.zeros((self.lanes, 8), np.uint8)
        wide[:, :4] = self._bytes(place, 4)
        return wide.view(np.uint64)[:, 0]

    def _numbers(self, values: NDArray[np.uint64], size: int) -> Bytes:
        raw = np.ascontiguousarray(values).view(np.uint8).reshape(self.lanes, 8)
        return raw[:, :size] if size <= 8 else np.pad(raw, ((0, 0), (0, size - 8)))

    def _bytes(self, place: _ValueLocation, size: int) -> Bytes:
        """Return `size` bytes of each lane from a location."""
        if place.kind == "value":
            return self._numbers(place.number, size)
        if place.kind == "memory":
            return self._memory(place, size)
        words = -(-size // 4)
        try:
            if place.kind == "sgpr":
                number = self.registers.sgpr(place.number, words)
                return np.tile(np.frombuffer(number.to_bytes(4 * words, "little"), np.uint8), (self.lanes, 1))[:, :size]
            read = self.registers.vgpr if place.kind == "vgpr" else self.registers.agpr
            rows = np.atleast_2d(read(place.number, words))
        except DeviceError as problem:
            raise NotAvailable(problem.message) from None
        return np.ascontiguousarray(rows.T).view(np.uint8).reshape(self.lanes, 4 * words)[:, :size]

    def _memory(self, place: _ValueLocation, size: int) -> Bytes:
        if place.space == _PRIVATE:
            memory = self.registers.memory
            base, most = (get_field(memory, layout.WAVE, name) for name in ("scratch", "scratch_size"))
            starts = [base + lane * most + int(at) for lane, at in enumerate(place.number)]
            if any(int(at) + size > most for at in place.number):
                raise NotAvailable("it is outside the lane's scratch")
            return np.stack([np.frombuffer(self.read(start, size), np.uint8) for start in starts])
        at = int(place.number[0])
        if place.space == _LOCAL:
            if at + size > len(self.lds):
                raise NotAvailable("it is outside LDS")
            return np.tile(self.lds[at : at + size], (self.lanes, 1))
        if place.space != _GLOBAL:
            raise NotAvailable(f"address space {place.space} is not known")
        try:
            return np.stack([np.frombuffer(self.read(int(lane), size), np.uint8) for lane in place.number])
        except DeviceError as problem:
            raise NotAvailable(problem.message) from None


def _converted(values: NDArray[np.uint64], kind: str, size: int) -> NDArray[np.uint64]:
    """Return numbers converted to an integer type: truncated, then extended according to its sign.

    Raises:
        NotAvailable: it is not an integer type.
    """
    if kind not in ("signed", "unsigned") or size not in (1, 2, 4, 8):
        raise NotAvailable(f"a conversion to {kind} of {size} bytes is not supported")
    cut = values.astype(f"u{size}")
    return (cut.view(f"i{size}").astype(np.int64).view(np.uint64)) if kind == "signed" else cut.astype(np.uint64)


def numbers(kind: DwarfType, data: Bytes) -> NDArray[Any] | None:
    """Return the bytes of a variable as numbers by lane, for an array of numbers with further dimensions; None if the
    type has none."""
    shape: list[int] = []
    while kind.kind == "array" and kind.element is not None and kind.element.size:
        shape.append(kind.size // kind.element.size)
        kind = kind.element
    code = {"signed": "i", "unsigned": "u", "float": "f", "boolean": "u", "pointer": "u"}.get(kind.kind)
    if code is None or kind.size not in (1, 2, 4, 8) or (code == "f" and kind.size == 1):
        return None
    flat = np.ascontiguousarray(data).view(f"<{code}{kind.size}")
    return flat.reshape(data.shape[0], *shape) if shape else flat[:, 0]


def text(kind: DwarfType, data: bytes) -> str:
    """Return one lane's value in C++ syntax."""
    if kind.kind == "array" and kind.element is not None and kind.element.size:
        size = kind.element.size
        return "{" + ", ".join(text(kind.element, data[at : at + size]) for at in range(0, kind.size, size)) + "}"
    if kind.kind == "record":
        members = (f"{name} = {text(one, data[at : at + one.size])}" for name, at, one in kind.members)
        return "{" + ", ".join(members) + "}"
    values = numbers(kind, np.frombuffer(data, np.uint8)[None])
    if values is None:
        return f"<{kind.name or 'unknown'}: {data.hex(' ')}>"
    if kind.kind == "boolean":
        return "true" if values[0] else "false"
    return f"{int(values[0]):#x}" if kind.kind == "pointer" else str(values[0])
