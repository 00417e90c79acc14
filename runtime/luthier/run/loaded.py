"""Patched objects in a program's memory: their code, and the code of the original that it can reach."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from luthier.objects import CodeObject, Kernel
from luthier.objects.origins import Origins, Teller, origins_of, teller


class LoadedCompanion(Struct, frozen=True, dict=True):
    """Object of a patched kernel beside the original."""

    object: CodeObject
    delta: int
    """Offset added to its virtual addresses."""
    original: CodeObject
    original_delta: int
    symbols: Mapping[str, int]
    """Addresses of its external symbols."""
    goes_back: bool
    """Whether it may call functions of the original."""

    @property
    def kernel(self) -> Kernel:
        """Return the patched kernel, at its address."""
        (kernel,) = self.object.kernels.values()
        return replace(kernel, descriptor_address=kernel.descriptor_address + self.delta)

    @cached_property
    def origin(self) -> Teller:
        """Return the function that describes the origin of the code at an address."""
        return teller(self.object, self.original, self.delta, self.original_delta)

    @cached_property
    def _origins(self) -> tuple[Origins, ...]:
        return origins_of(self.object)

    def original_address(self, address: int) -> int | None:
        """Return the virtual address in the original of the program's instruction at an address; None if the
        instruction is not the program's."""
        for origins in self._origins:
            if origins.start <= address - self.delta < origins.start + origins.size:
                return origins.original(address - self.delta)
        return address - self.original_delta

    def code(self) -> list[tuple[int, bytes]]:
        """Return addresses and bytes of all code that it can reach, with relocations applied.

        Raises:
            ObjectError: its relocations cannot be resolved.
        """
        text = self.object.text_as_loaded(self.symbols.get)
        code = [(start + self.delta, data) for start, data in text]
        if self.goes_back:
            original = self.original
            code += [(start + self.original_delta, original.read(start, size)) for start, size in original.text_ranges]
        return code
