"""Loading a code object: segments into device memory, relocations, variables, kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from luthier.emulator.running.memory import AllocationTable, DeviceAllocation
from luthier.errors import ObjectError
from luthier.objects import CodeObject
from luthier.objects.code_object import ABSOLUTE, Relocation

PAGE = 4096
_ABS32_LO, _ABS32_HI, _ABS64, _REL32, _REL64, _ABS32 = 1, 2, 3, 4, 5, 6
_REL32_LO, _REL32_HI, _RELATIVE64 = 10, 11, 13
_SIZES = {
    _ABS32_LO: 4,
    _ABS32_HI: 4,
    _ABS64: 8,
    _REL32: 4,
    _REL64: 8,
    _ABS32: 4,
    _REL32_LO: 4,
    _REL32_HI: 4,
    _RELATIVE64: 8,
}


class LoadedImage:
    """A code object in memory: virtual address `v` of the object is host address ``bias + v``."""

    def __init__(self, code: CodeObject, memory: AllocationTable, resolve: Callable[[str], int | None]) -> None:
        self.code = code
        self._memory = memory
        self.allocations: list[DeviceAllocation] = []
        low = min((segment.vaddr for segment in code.segments), default=0) // PAGE * PAGE
        high = max((segment.vaddr + segment.memsz for segment in code.segments), default=0)
        if high - low > 1 << 32:
            raise ObjectError("segments span more than 4 GiB", object=code.name)
        # All segments share one block, so that PC-relative addresses hold; only the segments are accessible.
        self._block = memory.allocate(high - low + 64, f"image of {code.name}", PAGE)
        memory.free(self._block)
        self.bias = self._block.address - low
        starts = [*sorted(segment.vaddr for segment in code.segments), high + PAGE]
        for number, segment in enumerate(code.segments):
            if segment.memsz == 0:
                continue
            label = f"segment {number} of {code.name}"
            # Compilers widen scalar loads up to the end of a cache line: allow that before the next segment.
            following = next(start for start in starts if start > segment.vaddr)
            size = max(segment.memsz, min(-(-segment.memsz // 64) * 64, following - segment.vaddr))
            allocation = memory.register(self.bias + segment.vaddr, size, label, self._block)
            self.allocations.append(allocation)
            contents = code.view[segment.offset : segment.offset + segment.filesz]
            allocation.view()[: len(contents)] = np.frombuffer(contents, np.uint8)
        self._managed()
        for relocation in code.relocations:
            self._relocate(relocation, resolve)

    def host(self, address: int) -> int:
        """Return the host address of a virtual address of the object."""
        return self.bias + address

    def unload(self) -> None:
        """Give the memory back."""
        for allocation in self.allocations:
            self._memory.free(allocation)
        self.allocations.clear()

    def _relocate(self, relocation: Relocation, resolve: Callable[[str], int | None]) -> None:
        offset, kind = relocation.offset, relocation.type
        if kind not in _SIZES:
            raise ObjectError(f"relocation type {kind} is not supported", object=self.code.name, offset=offset)
        size = _SIZES[kind]
        place = self.host(offset)
        if not any(a.address <= place and place + size <= a.end for a in self.allocations):
            raise ObjectError("the relocation is outside the loaded segments", object=self.code.name, offset=offset)
        value = self.bias if kind == _RELATIVE64 else self._value_of(relocation, resolve)
        value += relocation.addend
        if kind in (_REL32, _REL64, _REL32_LO, _REL32_HI):
            value -= place
        if kind in (_ABS32_HI, _REL32_HI):
            value >>= 32
        raw = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        target = next(a for a in self.allocations if a.address <= place and place + size <= a.end)
        target.view()[place - target.address :][:size] = np.frombuffer(raw, np.uint8)

    def address_of(self, name: str) -> int | None:
        """Return the host address of a symbol that the object defines."""
        symbol = self.code.symbol(name)
        return None if symbol is None or not symbol.defined else self.host(symbol.address)

    def _value_of(self, relocation: Relocation, resolve: Callable[[str], int | None]) -> int:
        definition, name = relocation.definition, relocation.symbol
        if definition is not None:
            return definition.address if definition.section == ABSOLUTE else self.host(definition.address)
        if not name:
            return 0
        outside = resolve(name)
        if outside is None:
            raise ObjectError(f"undefined symbol {name}", object=self.code.name, offset=relocation.offset)
        return outside

    def _managed(self) -> None:
        """Allocate the storage of HIP managed variables.

        ``NAME`` holds a pointer to it; ``NAME.managed`` has its initial contents.
        """
        self.managed: dict[str, DeviceAllocation] = {}
        for symbol in self.code.symbols:
            if not symbol.name.endswith(".managed") or not symbol.defined:
                continue
            name = symbol.name.removesuffix(".managed")
            pointer = self.code.symbol(name)
            if pointer is None or not pointer.defined or pointer.size != 8 or name in self.managed:
                continue
            storage = self._memory.allocate(symbol.size, f"managed variable {name}")
            self.managed[name] = storage
            self.allocations.append(storage)
            storage.view()[:] = np.frombuffer(self.code.read(symbol.address, symbol.size), np.uint8)
            place = self.host(pointer.address)
            holder = next((a for a in self.allocations if a.address <= place and place + 8 <= a.end), None)
            if holder is None:
                message = f"the pointer {name} is outside the loaded segments"
                raise ObjectError(message, object=self.code.name, offset=pointer.address)
            holder.view()[place - holder.address :][:8] = np.frombuffer(storage.address.to_bytes(8, "little"), np.uint8)
