"""Report of what patching did to an object, and what it refused to do."""

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
"""Reason why something was left out.

- *no such register*: the hook uses a register that the kernel does not have;
- *too few registers*: not enough are dead or spare at the point;
- *over budget*: not enough are, within the budget that the tool gave its hooks;
- *sampled*: so it would be here, and the tool asked for a sample of such points;
- *hook*: the hook cannot be compiled or spliced;
- *unfinished*: the system ended the hook's compilation, twice; another run may succeed;
- a `Restriction`: nothing can run at the point;
- *lifting*, *layout*: the whole kernel, since its code cannot be understood, or cannot be moved;
- *unallocated*: the whole kernel, since it uses registers, LDS or private memory that its descriptor does not allocate.
"""


class UnallocatedError(PatchError):
    """A kernel that uses registers or memory that its descriptor does not allocate."""


class PatchRefusal(Struct, frozen=True):
    """A hook that was left out at one point, or a kernel that was left as it is."""

    kind: RefusalKind
    message: str
    kernel: str
    address: int | None
    """Virtual address of the instruction in the original object."""
    hook: str | None = None
    """None where a whole kernel is meant; so are the two below."""
    place: Literal["before", "after", "taken", "entry"] | None = None
    insertion: int | None = None
    """Its number among the hooks that were to be spliced into the kernel."""

    @classmethod
    def of_kernel(cls, kind: RefusalKind, kernel: str, error: LuthierError) -> PatchRefusal:
        """Return the refusal of a kernel that `error` keeps from being patched."""
        return cls(kind, error.message, kernel, error.offset)


_NAMED = 4
"""Targets that the text of a call names."""


class UnresolvedCall(Struct, frozen=True):
    """A call or jump by register with unknown targets: what it reaches there is not instrumented."""

    address: int
    """Virtual, in the original object."""
    text: str
    function: str
    """The symbol of what it is in."""
    reason: str
    """Why its targets are not known, or not all of them."""
    known_targets: tuple[str, ...] = ()
    """Functions that it may reach as far as is known: their copies are instrumented."""

    def __str__(self) -> str:
        names = ", ".join(self.known_targets[:_NAMED])
        more = f" and {len(self.known_targets) - _NAMED} more" if len(self.known_targets) > _NAMED else ""
        followed = f"; followed to {names}{more}" if names else ""
        return f"{self.text!r} at {self.address:#x} in {self.function}: {self.reason}{followed}"


class KernelReport(Struct, frozen=True):
    """Report of what patching did to one kernel."""

    kernel: str
    sites: int
    """Instructions with hooks before or after them."""
    insertions: int
    """Hooks spliced in."""
    instructions: int
    """Instructions of the kernel and the functions it calls."""
    added_instructions: int
    code_bytes: int
    """Bytes of the instructions, before."""
    patched_bytes: int
    vgprs: tuple[int, int]
    """Before and after, as the wave has them."""
    sgprs: tuple[int, int]
    waves_per_simd: tuple[int, int]
    """Most waves a SIMD can hold by their registers and static LDS, before and after (`Kernel.occupancy`)."""
    unknown_calls: int
    """Calls and jumps whose targets are not all known: what they reach beside those is not instrumented."""
    requested_sites: int
    """Instructions that were to have hooks before or after them."""
    refusals: tuple[PatchRefusal, ...]
    """Hooks left out, in the order they were inserted."""
    counts: int = 0
    """Requests to count something."""
    counters: int = 0
    """Numbers that each wave counts for them, and for `hoisted`."""
    hoisted: int = 0
    """Number of `insertions` that do nothing but count and are counted in registers instead."""
    edits: int = 0
    """Changes of the application's own instructions."""
    calls: int = 0
    """Number of `insertions` that call a payload which is placed once."""
    shared: int = 0
    """Payloads that are placed once."""
    spilling: int = 0
    """Number of `insertions` that spill registers to private memory while they run."""
    excess: int = 0
    """Number of `insertions` with more VGPRs than the tool's budget, which says *keep*."""
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
    """Report of what patching did to an object."""

    kernels: tuple[KernelReport, ...]
    """Those that hooks were to be spliced into, but for `refused_kernels`. One that is not `changed` is as it was."""
    variables: Mapping[str, int]
    """Name -> bytes of each tool variable defined in the object."""
    refused_kernels: tuple[PatchRefusal, ...]
    """Kernels left as they are."""

    @property
    def refusals(self) -> tuple[PatchRefusal, ...]:
        """Return everything left out: kernels, then hooks."""
        return self.refused_kernels + tuple(refusal for kernel in self.kernels for refusal in kernel.refusals)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    def refusal_lines(self) -> Iterator[str]:
        """Yield how much was left out and why, as text."""
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
        """Return a row for each kernel: what was asked for, what it costs, and why something was left out."""
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
        rows += [
            (one.kernel, *[None] * (len(columns) - 2), f"{one.kind}: {one.message}") for one in self.refused_kernels
        ]
        return Table("", columns, rows)

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the table of `cost`, with kernels by their names in the source."""
        (table,) = as_in_source([self.cost()])
        return table._repr_html_()


def by_kind(refusals: Iterable[PatchRefusal]) -> dict[RefusalKind, tuple[int, PatchRefusal]]:
    """Return the number of refusals of each kind, and the first one; the most frequent kind first."""
    refusals = list(refusals)
    counts = Counter(refusal.kind for refusal in refusals)
    first = {refusal.kind: refusal for refusal in reversed(refusals)}
    return {kind: (count, first[kind]) for kind, count in counts.most_common()}


class RefusedError(PatchError):
    """Everything that was asked for was refused.

    Args:
        report: says what; its kernels have no hooks.
        object: the object's name.
    """

    def __init__(self, report: PatchReport, object: str) -> None:
        kinds = by_kind(report.refusals)
        ((kind, (_, first)),) = list(kinds.items())[:1]
        others = f"; {len(report.refusals)} in all ({summary(kinds)})" if len(report.refusals) > 1 else ""
        what = f"{kind}: {first.message}{others}"
        super().__init__(
            f"nothing could be instrumented: {what}", object=object, kernel=first.kernel, offset=first.address
        )
        self.report = report


def summary(kinds: Mapping[RefusalKind, tuple[int, PatchRefusal]]) -> str:
    """Return the kinds as text: ``3 too few registers, 1 hook``."""
    return ", ".join(f"{count} {kind}" for kind, (count, _) in kinds.items())
