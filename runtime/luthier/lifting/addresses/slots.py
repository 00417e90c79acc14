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
"""Maximum length in words of a table of functions that is followed."""


def pointer_of(relocation: Relocation) -> int | None:
    """Return the address in the object that a relocation writes as a 64-bit word; None if it writes another value."""
    return relocation.points_to if relocation.type in (R_AMDGPU_RELATIVE64, R_AMDGPU_ABS64) else None


def _beside(address: int) -> Iterator[int]:
    """Yield the addresses of relocations that may change a part of the word at an address."""
    return (at for at in range(address - 7, address + 8) if at != address)


class CodeSlots:
    """The 64-bit words of one object that cannot change while a kernel runs."""

    def __init__(self, object: CodeObject, text: Text) -> None:
        self._object = object
        self._text = text
        self._relocations = text.relocations

    def is_constant(self, address: int) -> bool:
        """Return whether the word at an address is constant once the object is loaded."""
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
        """Return the address and size of the data symbol at an address if it contains only constant code addresses."""
        for symbol in self._object.symbols:
            if symbol.type == "object" and symbol.defined and symbol.address <= address < symbol.address + symbol.size:
                words = range(symbol.address, symbol.address + symbol.size, 8)
                whole = symbol.address % 8 == 0 and symbol.size % 8 == 0 and len(words) <= _LARGEST_TABLE
                if whole and all(self.value(word) is not None for word in words):
                    return symbol.address, symbol.size
        return None

    def value(self, address: int) -> int | None:
        """Return the code address in the word at an address if the object is loaded at 0; None if not certain."""
        if not self.is_constant(address) or any(at in self._relocations for at in _beside(address)):
            return None
        relocation = self._relocations.get(address)
        if relocation is None:
            try:
                value: int | None = int.from_bytes(self._object.read(address, 8), "little")
            except ObjectError:
                return None
        else:
            value = pointer_of(relocation)
        return value if value is not None and self._text.range_of(value) is not None else None
