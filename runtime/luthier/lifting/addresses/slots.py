"""Memory slots that hold code addresses at run time: GOT entries and constant tables."""

from __future__ import annotations

from collections.abc import Iterator

from luthier.errors import ObjectError
from luthier.lifting.code.text import Text
from luthier.objects import CodeObject
from luthier.objects.code_object import Relocation
from luthier.objects.elf import R_AMDGPU_ABS64, R_AMDGPU_RELATIVE64

_PT_GNU_RELRO, _PF_W = 0x6474E552, 2
_LARGEST_TABLE = 4096
"""Words; a longer table of functions is not followed."""


def pointer_of(relocation: Relocation) -> int | None:
    """Return the address in the object that a relocation writes as a 64-bit word; None if it writes another thing."""
    return relocation.points_to if relocation.type in (R_AMDGPU_RELATIVE64, R_AMDGPU_ABS64) else None


def _beside(address: int) -> Iterator[int]:
    """Yield where relocations begin that may change a part of a word, or more than it."""
    return (at for at in range(address - 7, address + 8) if at != address)


class CodeSlots:
    """The 64-bit words of one object that cannot change while a kernel runs."""

    def __init__(self, object: CodeObject, text: Text) -> None:
        self._object = object
        self._text = text
        self._relocations = text.relocations

    def is_constant(self, address: int) -> bool:
        """Return whether nothing can write the word at `address` once the object is loaded."""
        for segment in self._object.elf.segments:
            if (
                segment.type == _PT_GNU_RELRO
                and segment.vaddr <= address
                and address + 8 <= segment.vaddr + segment.memsz
            ):
                return True
        return any(
            segment.vaddr <= address and address + 8 <= segment.vaddr + segment.memsz and not segment.flags & _PF_W
            for segment in self._object.segments
        )

    def table(self, address: int) -> tuple[int, int] | None:
        """Return address and size of the object at `address` if it is an array of constant code addresses only."""
        for symbol in self._object.symbols:
            if symbol.type == "object" and symbol.defined and symbol.address <= address < symbol.address + symbol.size:
                words = range(symbol.address, symbol.address + symbol.size, 8)
                whole = symbol.address % 8 == 0 and symbol.size % 8 == 0 and len(words) <= _LARGEST_TABLE
                if whole and all(self.value(word) is not None for word in words):
                    return symbol.address, symbol.size
        return None

    def value(self, address: int) -> int | None:
        """Return the code address that the word at `address` holds when the object is loaded at 0.

        None if that is not certain.
        """
        if not self.is_constant(address) or any(at in self._relocations for at in _beside(address)):
            return None
        relocation = self._relocations.get(address)
        if relocation is None:
            try:
                held: int | None = int.from_bytes(self._object.read(address, 8), "little")
            except ObjectError:
                return None
        else:
            held = pointer_of(relocation)
        return held if held is not None and self._text.range_of(held) is not None else None
