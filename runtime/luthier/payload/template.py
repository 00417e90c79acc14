"""A payload as instructions with symbolic registers.

A `Template` is what LLVM made of a hook, taken off the registers LLVM happened to choose: register *groups* (tuples
that must stay together) are renamed at each point by a binding (`luthier.patch.registers.binding`).
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
    """Neighbouring template registers that tuples tie together."""

    first: int
    """Lowest unit in the template."""
    count: int
    alignment: int
    """A new place must equal `first` modulo this."""
    below: int
    """A new place of `first` must lie below this: short encodings of 16-bit operations name 128 VGPRs only."""


class TemplateInput(Struct, frozen=True):
    """Place where the payload takes an input: before instruction `position`, into register unit `unit`."""

    position: int
    unit: int
    source: Input


class TemplateImmediate(Struct, frozen=True):
    """Place where the payload takes a per-point immediate: before instruction `position`, into register unit `unit`."""

    position: int
    unit: int
    source: Input


class TemplateOutput(Struct, frozen=True):
    """Place where the payload passes on a result.

    It is before instruction `position`, from `unit` to application unit `destination`.
    """

    position: int
    unit: int
    destination: int


class Stack(Struct, frozen=True):
    """The private memory that a payload needs."""

    pointer: int
    """SGPR unit in which it expects the byte offset of its frame, from the beginning of a lane's private memory."""
    size: int
    """Bytes a lane."""


class Template(Struct, frozen=True, eq=False, dict=True):  # equal only to itself: bindings are cached by template
    """A payload's instructions, without its leading waits and its return; then the functions that it calls."""

    hook: str
    code: InstructionArray
    waits: int
    """Leading instructions of `code` that only wait for outstanding memory operations."""
    relaxed: bool
    """They need wait for nothing but the registers that the payload touches."""
    branches: Mapping[int, int]
    """Instruction index -> index it branches to (len(code): the end)."""
    fixups: tuple[Fixup, ...]
    """References to variables."""
    functions: tuple[tuple[Fixup, int], ...]
    """References to the functions in `code`, with the index of each one's first instruction."""
    inputs: tuple[TemplateInput, ...]
    immediates: tuple[TemplateImmediate, ...]
    """By position."""
    outputs: tuple[TemplateOutput, ...]
    groups: tuple[Group, ...]
    written: frozenset[int]
    """Template units that some instruction writes, or an immediate is put into."""
    clobbers: frozenset[int]
    """Units with a fixed place that it overwrites, inputs put there included: SCC, VCC, M0."""
    runs_without_lanes: bool
    """It has an effect with EXEC 0, and no value in it depends on an active lane."""
    writes_inactive_lanes: bool
    hands_in: bool
    """Its inputs and immediates may be in their places from its beginning: nothing else uses these before."""
    stack: Stack | None = None
    plain: PlainCount | None = None
    """Count that it makes, if it does nothing else."""
    lds: int = 0
    """Bytes of LDS that a work-group needs more."""

    @functools.cached_property
    def clobber_mask(self) -> int:
        """Return `clobbers` as a bit set."""
        return mask_of(self.clobbers)

    @functools.cached_property
    def handed(self) -> frozenset[int]:
        """Return the units that inputs and immediates are put into."""
        return frozenset([*(one.unit for one in self.inputs), *(one.unit for one in self.immediates)])

    @functools.cached_property
    def destinations(self) -> int:
        """Return the bit set of the application's units that it gives new values."""
        return mask_of(output.destination for output in self.outputs)
