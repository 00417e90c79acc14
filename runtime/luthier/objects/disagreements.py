"""Contradictions between a kernel's metadata and its descriptor, or within the metadata, and the value that is used.

Hardware starts a kernel by its descriptor, and runtimes take the sizes of LDS and private memory from it. Metadata
contains what a compiler, or the author of assembly, states.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from luthier.objects.code_object import Kernel
from luthier.objects.metadata import SAME_IN_BOTH
from luthier.objects.occupancy import LARGEST_WORKGROUP


class Disagreement(NamedTuple):
    """A wrong entry of a kernel's metadata."""

    entry: str
    """Its name, e.g. ``.agpr_count``."""
    says: int | bool
    """Its value; the product of a list of sizes."""
    counts: int | bool
    """The value that is used; for registers, the maximum."""

    def __str__(self) -> str:
        return f"metadata entry {self.entry} is {self.says}, but the value in use is {self.counts}"


def disagreements(kernel: Kernel) -> tuple[Disagreement, ...]:
    """Return the contradictions in a kernel's metadata."""
    return tuple(_found(kernel)) if kernel.metadata else ()


def _found(kernel: Kernel) -> Iterator[Disagreement]:
    row, descriptor = kernel.metadata, kernel.descriptor
    for key, name in SAME_IN_BOTH.items():
        if row.get(key, getattr(descriptor, name)) != getattr(descriptor, name):
            yield Disagreement(key, row[key], getattr(descriptor, name))
    sgprs = max(descriptor.allocated_sgprs, descriptor.sgprs)
    for key, has in ((".vgpr_count", descriptor.vgprs), (".agpr_count", descriptor.agprs), (".sgpr_count", sgprs)):
        if row.get(key, 0) > has:
            yield Disagreement(key, row[key], has)
    if row.get(".kernarg_segment_size", kernel.kernarg_size) != kernel.kernarg_size:
        yield Disagreement(".kernarg_segment_size", row[".kernarg_segment_size"], kernel.kernarg_size)
    if ".uses_dynamic_stack" in row and row[".uses_dynamic_stack"] != bool(descriptor.uses_dynamic_stack):
        yield Disagreement(".uses_dynamic_stack", row[".uses_dynamic_stack"], kernel.uses_dynamic_stack)
    if kernel.max_flat_workgroup_size not in (0, kernel.largest_workgroup):
        yield Disagreement(".max_flat_workgroup_size", kernel.max_flat_workgroup_size, kernel.largest_workgroup)
    required = math.prod(row.get(".reqd_workgroup_size") or (1,))
    if not 1 <= required <= LARGEST_WORKGROUP:
        yield Disagreement(".reqd_workgroup_size", required, kernel.largest_workgroup)
