"""Patched objects as they lie in a program's memory: their code, and what it can reach of the original."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from luthier.errors import DeviceError
from luthier.objects import CodeObject, Kernel
from luthier.objects.elf import R_AMDGPU_ABS32_HI, R_AMDGPU_ABS32_LO

_SHIFT = {R_AMDGPU_ABS32_LO: 0, R_AMDGPU_ABS32_HI: 32}


@dataclass(frozen=True)
class LoadedCompanion:
    """A patched kernel's object beside the original."""

    object: CodeObject
    delta: int
    """What was added to its virtual addresses."""
    original: CodeObject
    original_delta: int
    symbols: Mapping[str, int]
    """Addresses of its external symbols."""
    goes_back: bool
    """It may call functions of the original."""

    @property
    def kernel(self) -> Kernel:
        """The patched kernel, at its address."""
        (kernel,) = self.object.kernels.values()
        return replace(kernel, descriptor_address=kernel.descriptor_address + self.delta)

    def code(self) -> list[tuple[int, bytes]]:
        """Addresses and bytes of all code that it can reach, as the loader has written it.

        Raises:
            DeviceError: the object is no such one.
        """
        ranges = [(start, bytearray(self.object.read(start, size))) for start, size in self.object.text_ranges]
        for relocation in self.object.relocations:
            for start, data in ranges:
                at = relocation.offset - start
                if 0 <= at < len(data):
                    if relocation.type not in _SHIFT or relocation.symbol not in self.symbols:
                        raise DeviceError(
                            "a patched object with a relocation that is not known", object=self.object.name
                        )
                    address = self.symbols[relocation.symbol] + relocation.addend
                    data[at : at + 4] = (address >> _SHIFT[relocation.type] & 0xFFFFFFFF).to_bytes(4, "little")
        code = [(start + self.delta, bytes(data)) for start, data in ranges]
        if self.goes_back:
            original = self.original
            code += [(start + self.original_delta, original.read(start, size)) for start, size in original.text_ranges]
        return code
