"""A payload as instructions with symbolic registers.

A `Template` is LLVM's code for a hook, independent of the registers that LLVM chose: register *groups* (tuples that
must stay together) are renamed at each point by a binding (`luthier.patch.registers.binding`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from msgspec import Struct

from luthier.isa import Fixup, InstructionArray
from luthier.isa.registers import mask_of
from luthier.payload.arguments import Input
from luthier.payload.plain import PlainCount


class Group(Struct, frozen=True):
    """Adjacent template registers that tuples tie together."""

    first: int
    """Lowest unit in the template."""
    count: int
    alignment: int
    """A new first unit must equal `first` modulo this."""
    below: int
    """A new first unit must be below this: short encodings of 16-bit operations can name only 128 VGPRs."""


class TemplateInput(Struct, frozen=True):
    """An input that the payload takes before instruction `position`, into register unit `unit`."""

    position: int
    unit: int
    source: Input


class TemplateImmediate(Struct, frozen=True):
    """A per-point immediate that the payload takes before instruction `position`, into register unit `unit`."""

    position: int
    unit: int
    source: Input


class TemplateOutput(Struct, frozen=True):
    """A result that is copied from `unit` to the application's unit `destination` before instruction `position`."""

    position: int
    unit: int
    destination: int


class Stack(Struct, frozen=True):
    """The private memory that a payload needs."""

    pointer: int
    """SGPR unit for the byte offset of its frame in a lane's private memory."""
    size: int
    """Bytes per lane."""


class Template(Struct, frozen=True, eq=False, dict=True):  # equal only to itself: bindings are cached by template
    """A payload's instructions without its return, followed by the functions that it calls."""

    hook: str
    code: InstructionArray
    waits: int
    """Leading instructions of `code` that only wait for outstanding memory operations."""
    relaxed: bool
    """Whether these waits are needed only for the registers that the payload accesses."""
    branches: Mapping[int, int]
    """Instruction index -> index of its branch target (len(code): the end)."""
    fixups: tuple[Fixup, ...]
    """References to variables."""
    functions: tuple[tuple[Fixup, int], ...]
    """References to functions in `code`, with the index of the function's first instruction."""
    inputs: tuple[TemplateInput, ...]
    immediates: tuple[TemplateImmediate, ...]
    """By position."""
    outputs: tuple[TemplateOutput, ...]
    groups: tuple[Group, ...]
    written: frozenset[int]
    """Template units that are written by an instruction, or receive an immediate."""
    clobbers: frozenset[int]
    """Units that are not renamed and that it overwrites, also by inputs: SCC, VCC, M0."""
    runs_without_lanes: bool
    """Whether it has an effect with EXEC 0, and none of its values depends on an active lane."""
    writes_inactive_lanes: bool
    hands_in: bool
    """Whether inputs and immediates may be in their units from the beginning, since nothing else uses these before."""
    stack: Stack | None = None
    plain: PlainCount | None = None
    """The count that it performs, if it does nothing else."""
    lds: int = 0
    """Bytes of LDS that a work-group needs in addition."""

    @functools.cached_property
    def clobber_mask(self) -> int:
        """Return `clobbers` as a bit set."""
        return mask_of(self.clobbers)

    @functools.cached_property
    def handed(self) -> frozenset[int]:
        """Return the units that receive inputs and immediates."""
        return frozenset([*(taken.unit for taken in self.inputs), *(taken.unit for taken in self.immediates)])

    @functools.cached_property
    def destinations(self) -> int:
        """Return the bit set of the application's units that it writes."""
        return mask_of(output.destination for output in self.outputs)
