"""Reports of patching: the changes to an object, and the refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from luthier.errors import LuthierError, PatchError
from luthier.lifting import Restriction
from luthier.objects.names import as_in_source
from luthier.support.table import Cell, Table

RefusalKind = (
    Literal["no such register", "too few registers", "over budget", "sampled", "hook", "unfinished"]
    | Literal["lifting", "layout", "unallocated"]
    | Restriction
)
"""Reason of a refusal.

- *no such register*: the hook uses a register that the kernel does not have;
- *too few registers*: not enough registers are dead or unused at the point;
- *over budget*: not enough are within the tool's budget for its hooks;
- *sampled*: the point exceeds the budget, and the tool requested a sample of such points, without this one;
- *hook*: the hook cannot be compiled or spliced;
- *unfinished*: the system ended the hook's compilation, twice; another run may succeed;
- a `Restriction`: no code can be inserted at the point;
- *lifting*, *layout*: the whole kernel is refused because its code cannot be analysed, or cannot be moved;
- *unallocated*: the whole kernel is refused because it uses registers, LDS or private memory that its descriptor does
  not allocate.
"""


class UnallocatedError(PatchError):
    """A kernel uses registers or memory that its descriptor does not allocate."""


class PatchRefusal(Struct, frozen=True):
    """A hook that was left out at one point, or a kernel that was left unchanged."""

    kind: RefusalKind
    message: str
    kernel: str
    address: int | None
    """Virtual address of the instruction in the original object."""
    hook: str | None = None
    """Name of the hook; None, like `place` and `insertion`, if the whole kernel is refused."""
    place: Literal["before", "after", "taken", "entry"] | None = None
    insertion: int | None = None
    """Position among the hooks requested for the kernel."""

    @classmethod
    def of_kernel(cls, kind: RefusalKind, kernel: str, error: LuthierError) -> PatchRefusal:
        """Return the refusal of a whole kernel because of an error."""
        return cls(kind, error.message, kernel, error.offset)


_NAMED = 4
"""Maximum number of targets in the text of a call."""


class UnresolvedCall(Struct, frozen=True):
    """An indirect call or jump with unknown targets, which are not instrumented."""

    address: int
    """Virtual, in the original object."""
    text: str
    function: str
    """Symbol of the function that contains it."""
    reason: str
    """Why some of its targets are unknown."""
    known_targets: tuple[str, ...] = ()
    """Its known targets: their copies are instrumented."""

    def __str__(self) -> str:
        names = ", ".join(self.known_targets[:_NAMED])
        more = f" and {len(self.known_targets) - _NAMED} more" if len(self.known_targets) > _NAMED else ""
        followed = f"; known targets: {names}{more}" if names else ""
        return f"{self.text!r} at {self.address:#x} in {self.function}: {self.reason}{followed}"


class KernelReport(Struct, frozen=True):
    """Report of patching one kernel."""

    kernel: str
    sites: int
    """Instructions with hooks before or after them."""
    insertions: int
    """Number of spliced hooks."""
    instructions: int
    """Instructions of the kernel and the functions it calls."""
    added_instructions: int
    code_bytes: int
    """Bytes of the original instructions."""
    patched_bytes: int
    vgprs: tuple[int, int]
    """Before and after, as allocated to a wave."""
    sgprs: tuple[int, int]
    waves_per_simd: tuple[int, int]
    """Maximum waves per SIMD by registers and static LDS, before and after (`Kernel.occupancy`)."""
    unknown_calls: int
    """Number of calls and jumps with unknown targets, which are not instrumented."""
    requested_sites: int
    """Instructions for which hooks were requested before or after them."""
    refusals: tuple[PatchRefusal, ...]
    """Hooks left out, in the order in which they were inserted."""
    counts: int = 0
    """Number of requested counts."""
    counters: int = 0
    """Number of counters of each wave for `counts` and `hoisted`."""
    hoisted: int = 0
    """Number of `insertions` that only count and are counted in registers instead."""
    edits: int = 0
    """Edits of the application's own instructions."""
    calls: int = 0
    """Number of `insertions` that call a shared payload."""
    shared: int = 0
    """Number of shared payloads, each of which is placed once."""
    spilling: int = 0
    """Number of `insertions` that spill registers to private memory while they run."""
    excess: int = 0
    """Number of `insertions` that exceed the tool's VGPR budget with the policy *keep*."""
    unresolved: tuple[UnresolvedCall, ...] = ()
    """The `unknown_calls`, by address."""
    lds: tuple[int, int] = (0, 0)
    """Bytes of static LDS of a work-group, before and after."""
    in_agprs: int = 0
    """Number of `insertions` that spill registers to unused AGPRs while they run."""
    in_lds: int = 0
    """Number of `insertions` that spill registers to LDS while they run."""

    @property
    def changed(self) -> bool:
        """Return whether the kernel differs from the original."""
        return bool(self.sites or self.counts or self.edits)


class PatchReport(Struct, frozen=True):
    """Report of patching an object."""

    kernels: tuple[KernelReport, ...]
    """The requested kernels, without `refused_kernels`. A kernel that is not `changed` equals the original."""
    variables: Mapping[str, int]
    """Name -> bytes of each tool variable defined in the object."""
    refused_kernels: tuple[PatchRefusal, ...]
    """Kernels left unchanged because of an error."""

    @property
    def refusals(self) -> tuple[PatchRefusal, ...]:
        """Return all refusals: of kernels, then of hooks."""
        return self.refused_kernels + tuple(refusal for kernel in self.kernels for refusal in kernel.refusals)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    def refusal_lines(self) -> Iterator[str]:
        """Yield lines of text about the refusals: their number and reasons."""
        for kernel in self.kernels:
            if kernel.refusals:
                wanted = kernel.insertions + len(kernel.refusals)
                hooks = f" ({kernel.insertions} of {wanted} hooks)" if wanted != kernel.requested_sites else ""
                yield f"{kernel.kernel}: {kernel.sites} of {kernel.requested_sites} sites{hooks}"
                for kind, (count, first) in by_kind(kernel.refusals).items():
                    where = "" if first.address is None else f", first at {first.address:#x}"
                    yield f"  {count} refused, {kind}{where}: {first.message}"
        for refusal in self.refused_kernels:
            where = "" if refusal.address is None else f" at {refusal.address:#x}"
            yield f"{refusal.kernel}: refused, {refusal.kind}{where}: {refusal.message}"

    def cost(self) -> Table:
        """Return a table with a row for each kernel: its requests, their cost, and the reasons of refusals."""
        columns = (
            *("kernel", "sites", "asked for", "instructions", "added", "bytes", "patched bytes"),
            *("VGPRs", "patched VGPRs", "SGPRs", "patched SGPRs", "waves a SIMD", "patched waves"),
            *("LDS", "patched LDS", "called", "in AGPRs", "in LDS", "spilling", "over budget", "refused"),
        )
        rows: list[tuple[Cell, ...]] = [
            (
                *(row.kernel, row.sites, row.requested_sites, row.instructions, row.added_instructions),
                *(row.code_bytes, row.patched_bytes, *row.vgprs, *row.sgprs, *row.waves_per_simd),
                *(*row.lds, row.calls, row.in_agprs, row.in_lds, row.spilling, row.excess),
                summary(by_kind(row.refusals)),
            )
            for row in self.kernels
        ]
        empty = [None] * (len(columns) - 2)
        rows += [(refusal.kernel, *empty, f"{refusal.kind}: {refusal.message}") for refusal in self.refused_kernels]
        return Table("", columns, rows)

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the table of `cost`, with kernels by their names in the source."""
        (table,) = as_in_source([self.cost()])
        return table._repr_html_()


def by_kind(refusals: Iterable[PatchRefusal]) -> dict[RefusalKind, tuple[int, PatchRefusal]]:
    """Return kind -> number of refusals and the first one, the most frequent kind first."""
    refusals = list(refusals)
    counts = Counter(refusal.kind for refusal in refusals)
    first = {refusal.kind: refusal for refusal in reversed(refusals)}
    return {kind: (count, first[kind]) for kind, count in counts.most_common()}


class RefusedError(PatchError):
    """All requests were refused.

    Args:
        report: the report with the refusals; its kernels have no hooks.
        object: the object's name.
    """

    def __init__(self, report: PatchReport, object: str) -> None:
        kinds = by_kind(report.refusals)
        ((kind, (_, first)),) = list(kinds.items())[:1]
        more = f"; {len(report.refusals)} refusals in total ({summary(kinds)})" if len(report.refusals) > 1 else ""
        message = f"nothing could be instrumented: {kind}: {first.message}{more}"
        super().__init__(message, object=object, kernel=first.kernel, offset=first.address)
        self.report = report


def summary(kinds: Mapping[RefusalKind, tuple[int, PatchRefusal]]) -> str:
    """Return the kinds as text: ``3 too few registers, 1 hook``."""
    return ", ".join(f"{count} {kind}" for kind, (count, _) in kinds.items())
