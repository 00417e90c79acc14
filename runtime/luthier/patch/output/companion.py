"""Patched kernels in code objects of their own, with the blocks of variables that they refer to.

Cached kernels are read as these records, without the modules that patch (`companion_code`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from msgspec import Struct

from luthier.module import LoadedModule, qualified
from luthier.objects import CodeObject
from luthier.patch.outcome import KernelReport, PatchReport
from luthier.tool.counts import CellModule, KernelCounters


class VariableBlock(Struct, frozen=True):
    """The variables of a tool module in a block of memory that patched kernels share."""

    symbol: str
    module: LoadedModule
    size: int
    """Size in bytes. The block is aligned to a page."""
    offsets: Mapping[str, int]
    """Byte offset of each variable."""

    @classmethod
    def of(cls, module: LoadedModule, symbol: str) -> VariableBlock:
        """Return the block of a module's variables, without those that have a `DeviceVariable.problem`."""
        offsets: dict[str, int] = {}
        size = 0
        for name, variable in module.variables.items():
            if not variable.storage.problem:
                size = -(-size // variable.storage.align) * variable.storage.align
                offsets[name] = size
                size += variable.size
        return cls(symbol, module, size, offsets)

    def places(self) -> dict[str, int]:
        """Return name of a variable in patched code -> byte offset."""
        return {qualified(self.module, name): offset for name, offset in self.offsets.items()}


class Companion(Struct, frozen=True):
    """A patched kernel in its own object."""

    data: bytes
    report: PatchReport
    blocks: tuple[VariableBlock, ...]
    """Blocks to which its external symbols refer."""
    counters: KernelCounters | None = None
    """Counters whose cells are in the block of a `CellModule`."""

    @classmethod
    def of(
        cls,
        data: bytes,
        report: KernelReport,
        blocks: tuple[VariableBlock, ...],
        counters: KernelCounters | None = None,
    ) -> Companion:
        """Return the companion of a kernel."""
        return cls(data, PatchReport((report,), sizes_of(blocks), ()), blocks, counters)


def cell_modules(object: CodeObject, counters: KernelCounters | None) -> list[CellModule]:
    """Return the module with a kernel's own cells, if it has any."""
    if counters is None or not counters.size:
        return []
    digest = hashlib.blake2b(object.data, digest_size=8).hexdigest()
    return [CellModule(f"{counters.kernel} {digest}", counters)]


def sizes_of(blocks: Iterable[VariableBlock]) -> dict[str, int]:
    """Return the sizes of the variables in blocks that hold a tool's state, by name."""
    return {
        name: variable.size
        for block in blocks
        for name in block.offsets
        if (variable := block.module.variables[name]).is_state
    }
