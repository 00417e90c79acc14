"""Every hook of a task with the registers it gets at its point."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from luthier.errors import HookError, LuthierError, PatchError
from luthier.lifting import LiftedRepresentation, Liveness
from luthier.mc import OperandKind
from luthier.patch.binding import Binding, Live, RegisterBudget, bind, is_valid
from luthier.patch.copies import AGPRS, unit_text
from luthier.patch.emission import BoundPayload, emit
from luthier.patch.hazards import seam
from luthier.patch.report import Refusal, RefusalKind
from luthier.payload import Argument, Template
from luthier.payload.cache import template_for
from luthier.payload.template import SGPRS, VGPRS, mask_of
from luthier.task import Insertion, InstrumentationTask
from luthier.tool_module import Hook


def budget_of(lifted: LiftedRepresentation) -> RegisterBudget:
    """The registers a kernel has, and the most it may have without its largest work-group no longer fitting a
    compute unit."""
    kernel, target = lifted.kernel, lifted.target
    descriptor = kernel.descriptor
    # GFX9 gives SGPRs out by sixteen (AMDGPUUsage, "GRANULATED_WAVEFRONT_SGPR_COUNT"); the last six are VCC,
    # FLAT_SCRATCH and XNACK_MASK.
    sgprs = -(-descriptor.sgprs // 16) * 16 - 6 if target.major == 9 else target.sgpr_limit
    waves = -(-(kernel.max_flat_workgroup_size or 1024) // kernel.wave_size)
    waves_per_simd = -(-waves // 4)  # four SIMDs a compute unit, or a work-group processor in its default mode
    granule = target.vgpr_allocation_granule(kernel.wave_size)
    fitting = target.vgpr_file_size(kernel.wave_size) // waves_per_simd // granule * granule
    if target.unified_vgprs:
        fitting -= descriptor.agprs
    limit = max(min(target.addressable_vgprs, fitting), descriptor.architected_vgprs)
    if highest_vgpr(lifted) >= descriptor.architected_vgprs:
        # In a unified file these are AGPRs by another name. More VGPRs would move the AGPRs and part the two.
        limit = descriptor.architected_vgprs
    return RegisterBudget(
        min(sgprs, target.sgpr_limit), min(descriptor.architected_vgprs, 256), target.sgpr_limit, limit
    )


def highest_vgpr(lifted: LiftedRepresentation) -> int:
    """Number of the last VGPR that an instruction of the kernel names, -1 if none does.

    Hand-written kernels for targets with a unified register file name VGPRs at or above the first AGPR
    (``accum_offset``), up to all that the wave has: v(accum_offset + n) is a(n).
    """
    code, isa = lifted.code, lifted.isa
    reached = np.repeat(np.array(lifted.block_of) >= 0, np.diff(code.operand_start))
    registers = np.unique(code.operand_value[reached & (code.operand_kind == int(OperandKind.REGISTER))])
    last = isa.register_first_unit[registers] + isa.register_unit_count[registers] - 1
    return int(last[(last >= VGPRS.start) & (last < VGPRS.stop)].max(initial=VGPRS.start - 1)) - VGPRS.start


@dataclass(frozen=True)
class Site:
    """One insertion, compiled."""

    number: int
    """Among the task's insertions."""
    insertion: Insertion
    template: Template
    sources: tuple[int, ...]
    """Register unit each input of the template is read from."""

    reads: int
    """Bit set of those units."""
    revives: int
    """Bit set of those that the application does not read any more."""

    @property
    def point(self) -> int:
        """Index of the instruction it runs before."""
        return self.insertion.point


class Bound(NamedTuple):
    """A site with its registers, and the bytes that are spliced in there."""

    site: Site
    binding: Binding
    payload: BoundPayload


class _TooFewRegisters(PatchError):
    """There are not enough registers at a point."""


class Splicer:
    """Compiles and binds the insertions of one task.

    Args:
        strict: whether an insertion that cannot be spliced in is an error; else it is in `refusals`.

    Attributes:
        payloads: (instruction index, place) -> what is spliced in there, in the order of insertion.
        points: index of every instruction that something is spliced in before.
        refusals: what was left out.
        sgprs, vgprs: registers the kernel needs for what was spliced.
        instructions: instructions spliced.

    Raises:
        LuthierError: the first insertion that is refused, if `strict`.
    """

    def __init__(self, task: InstrumentationTask, *, strict: bool) -> None:
        self.lifted = task.lifted
        self.budget = budget_of(task.lifted)
        vgprs = max(self.budget.vgprs, highest_vgpr(task.lifted) + 1)
        agprs = task.lifted.kernel.descriptor.agprs
        self._files = ((SGPRS, self.budget.sgprs), (VGPRS, vgprs), (AGPRS, agprs))
        self.payloads: dict[tuple[int, str], list[BoundPayload]] = {}
        self.points: set[int] = set()
        self.refusals: list[Refusal] = []
        self.sgprs = self.vgprs = self.instructions = 0
        self._strict = strict
        self._recent: dict[Template, list[Binding]] = {}
        self._emitted: dict[tuple[Template, Binding, tuple[str, ...], tuple[str, ...]], BoundPayload] = {}
        self._failed: dict[tuple[Hook, tuple[Argument, ...]], LuthierError] = {}
        prepared = [self._prepare(number, insertion) for number, insertion in enumerate(task.insertions)]
        for site, binding, payload in self._bind_all([site for site in prepared if site is not None]):
            self.sgprs, self.vgprs = max(self.sgprs, binding.sgprs), max(self.vgprs, binding.vgprs)
            self.instructions += payload.instructions
            self.points.add(site.point)
            self.payloads.setdefault((site.insertion.index, site.insertion.place), []).append(payload)
        self.refusals.sort(key=lambda refusal: refusal.insertion or 0)

    # What is known before registers are chosen

    def _prepare(self, number: int, insertion: Insertion) -> Site | None:
        """An insertion compiled; None if it is refused."""
        lifted, point = self.lifted, insertion.point
        if point >= len(lifted.block_of) or lifted.block_of[point] < 0:
            behind = PatchError("control does not come back to behind this instruction")
            self._refuse(number, insertion, "hook", behind)
            return None
        restriction = lifted.restrictions.get(point)
        if restriction is not None:
            self._refuse(number, insertion, restriction, PatchError(f"no code can be inserted {restriction}"))
            return None
        key = insertion.hook, insertion.arguments
        try:
            if key in self._failed:
                raise self._failed[key]
            template = template_for(*key, lifted.object.target, lifted.wave_size)
        except LuthierError as problem:
            self._failed[key] = problem
            self._refuse(number, insertion, "hook", problem)
            return None
        sources = []
        for taken in template.inputs:
            argument = taken.source.argument
            operand = None if argument is None else insertion.registers[argument]
            sources.append(taken.source.unit if operand is None else operand.units[taken.source.unit])
        missing = self._missing_register((*sources, *(output.destination for output in template.outputs)))
        if missing is not None:
            error = HookError(f"hook {insertion.hook.source} uses {missing}")
            self._refuse(number, insertion, "no such register", error)
            return None
        reads = mask_of(sources)
        revives = reads & ~int(lifted.liveness.live_before(point).active) if reads else 0
        return Site(number, insertion, template, tuple(sources), reads, revives)

    def _missing_register(self, units: Iterable[int]) -> str | None:
        """Registers that the kernel does not have hold nothing to read and keep nothing that is written: the first of
        them, in words."""
        for unit in units:
            for file, count in self._files:
                if unit in file and unit - file.start >= count:
                    return f"{unit_text(unit)}, but the kernel has {count} of them"
        return None

    def _refuse(self, number: int, insertion: Insertion, kind: RefusalKind, error: LuthierError) -> None:
        """Note an insertion that is left out.

        Raises:
            LuthierError: instead, if refusals are errors.
        """
        address = self.lifted.columns.address[insertion.index]
        kernel = self.lifted.kernel.name
        if self._strict:
            error.object = error.object or self.lifted.object.name
            error.kernel, error.offset = kernel, address
            raise error
        self.refusals.append(
            Refusal(kind, error.message, kernel, address, insertion.hook.source, insertion.place, number)
        )

    # Registers and code

    def _bind_all(self, sites: list[Site]) -> list[Bound]:
        """Registers and code for every site that can have them.

        What is left out must leave no trace: a site that fails and has changed what is live is taken out of the
        liveness, and all others get another try.
        """
        exec_mask = self.lifted.effect_table.exec
        while True:
            liveness, disturbing = self._with_what_hooks_do(sites)
            any_lanes = {site.point for site in sites if site.template.destinations & exec_mask}
            self._recent.clear()
            bound: list[Bound] = []
            failed: list[tuple[Site, RefusalKind, LuthierError]] = []
            for site in sites:
                registers = liveness.live_before(site.point)
                live = Live(int(registers.active), int(registers.all_lanes))
                if site.point in any_lanes or site.reads >> AGPRS.start:
                    # After EXEC has changed, other lanes are active. Whether reading an AGPR heeds EXEC is not
                    # documented.
                    live = Live(live.all_lanes, live.all_lanes)
                try:
                    binding = self._bind(site, live)
                    bound.append(Bound(site, binding, self._emit(site, binding)))
                except _TooFewRegisters as problem:
                    failed.append((site, "too few registers", problem))
                except LuthierError as problem:
                    failed.append((site, "hook", problem))
                if failed and self._strict:
                    break
            gone = {site.number for site, _, _ in failed if site.number in disturbing}
            for site, kind, reason in failed:
                if not gone or self._strict or site.number in gone:
                    self._refuse(site.number, site.insertion, kind, reason)
            if not gone:
                return bound
            sites = [site for site in sites if site.number not in gone]

    def _with_what_hooks_do(self, sites: Sequence[Site]) -> tuple[Liveness, set[int]]:
        """Liveness in which hooks take part, and the numbers of the sites that change it: a payload must not overwrite
        what a later hook is to see, nor lanes that a hook turns on or off."""
        reads: dict[int, int] = {}
        changes: dict[int, int] = {}
        for site in sites:
            if site.template.destinations:
                changes[site.point] = changes.get(site.point, 0) | site.template.destinations
        disturbing = set()
        for site in sites:
            # What the application reads later may not be what a hook reads now, where another one writes.
            read = site.reads if changes else site.revives
            if read:
                reads[site.point] = reads.get(site.point, 0) | read
            if read or site.template.destinations:
                disturbing.add(site.number)
        lifted = self.lifted.also_reading(reads) if reads else self.lifted
        return (lifted.also_changing(changes) if changes else lifted).liveness, disturbing

    def _bind(self, site: Site, live: Live) -> Binding:
        recent = self._recent.setdefault(site.template, [])
        wave_size = self.lifted.wave_size
        for binding in recent:
            if is_valid(binding, site.template, site.sources, live, wave_size):
                return binding
        made = bind(site.template, site.sources, live, self.budget, wave_size)
        if made is None:
            raise _TooFewRegisters(
                f"not enough dead or spare registers for hook {site.insertion.hook.source}: "
                f"it needs {sum(group.count for group in site.template.groups)} and the kernel may have "
                f"{self.budget.vgpr_limit} VGPRs and {self.budget.sgpr_limit} SGPRs"
            )
        recent.insert(0, made)
        del recent[8:]
        return made

    def _emit(self, site: Site, binding: Binding) -> BoundPayload:
        before, after = seam(self.lifted, site.point, site.insertion.index)
        key = site.template, binding, before, after
        payload = self._emitted.get(key)
        if payload is None:
            payload = self._emitted[key] = emit(self.lifted.isa, *key)
        return payload
