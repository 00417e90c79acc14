"""Every hook of a task with the registers it gets at its point."""

from __future__ import annotations

from dataclasses import dataclass

from luthier.errors import HookError, PatchError
from luthier.lifting import LiftedRepresentation, Liveness
from luthier.patch.binding import Binding, Live, RegisterBudget, bind, is_valid
from luthier.patch.emission import AGPRS, BoundPayload, emit, unit_text
from luthier.patch.hazards import waits_before_payload
from luthier.payload import Template
from luthier.payload.cache import template_for
from luthier.payload.template import SGPRS, VGPRS, mask_of
from luthier.task import Insertion, InstrumentationTask


def budget_of(lifted: LiftedRepresentation) -> RegisterBudget:
    """The registers a kernel has, and the most it may have without its largest work-group no longer fitting a
    compute unit."""
    kernel, target = lifted.kernel, lifted.target
    descriptor = kernel.descriptor
    sgprs = descriptor.sgprs - 6 if target.major == 9 else target.sgpr_limit
    waves = -(-(kernel.max_flat_workgroup_size or 1024) // kernel.wave_size)
    waves_per_simd = -(-waves // 4)  # four SIMDs a compute unit, or a work-group processor in its default mode
    granule = target.vgpr_allocation_granule(kernel.wave_size)
    fitting = target.vgpr_file_size(kernel.wave_size) // waves_per_simd // granule * granule
    if target.unified_vgprs:
        fitting -= descriptor.agprs
    limit = max(min(target.addressable_vgprs, fitting), descriptor.architected_vgprs)
    return RegisterBudget(
        min(sgprs, target.sgpr_limit), min(descriptor.architected_vgprs, 256), target.sgpr_limit, limit
    )


@dataclass(frozen=True)
class Site:
    """One insertion, compiled."""

    insertion: Insertion
    template: Template
    sources: tuple[int, ...]
    """Register unit each input of the template is read from."""

    @property
    def point(self) -> int:
        """Index of the instruction it runs before."""
        return self.insertion.index + (self.insertion.place == "after")


class Splicer:
    """Compiles and binds the insertions of one task.

    Attributes:
        sgprs, vgprs: registers the kernel needs for what was spliced so far.
        instructions: instructions spliced so far.
    """

    def __init__(self, task: InstrumentationTask) -> None:
        self.lifted = task.lifted
        self.budget = budget_of(task.lifted)
        self.sites = [self._compile(insertion) for insertion in task.insertions]
        self.sgprs = self.vgprs = self.instructions = 0
        self._liveness = self._with_what_hooks_read()
        self._recent: dict[Template, list[Binding]] = {}
        self._emitted: dict[tuple[Template, Binding, tuple[str, ...]], BoundPayload] = {}

    def splice(self, site: Site) -> BoundPayload:
        """The bytes of one insertion.

        Raises:
            PatchError: there are not enough registers at its point.
        """
        registers = self._liveness.live_before(site.point)
        binding = self._bind(site, Live(int(registers.active), int(registers.all_lanes)))
        self.sgprs, self.vgprs = max(self.sgprs, binding.sgprs), max(self.vgprs, binding.vgprs)
        key = site.template, binding, waits_before_payload(self.lifted, site.insertion.index)
        payload = self._emitted.get(key)
        if payload is None:
            payload = self._emitted[key] = emit(self.lifted.isa, *key)
        self.instructions += payload.instructions
        return payload

    def _compile(self, insertion: Insertion) -> Site:
        lifted = self.lifted
        template = template_for(insertion.hook, insertion.arguments, lifted.object.target, lifted.wave_size)
        sources = []
        for taken in template.inputs:
            argument = taken.source.argument
            operand = None if argument is None else insertion.registers[argument]
            sources.append(taken.source.unit if operand is None else operand.units[taken.source.unit])
        site = Site(insertion, template, tuple(sources))
        self._check_registers(site)
        return site

    def _check_registers(self, site: Site) -> None:
        """Registers that the kernel does not have hold nothing to read and keep nothing that is written."""
        agprs = self.lifted.kernel.descriptor.agprs
        files = ((SGPRS, self.budget.sgprs), (VGPRS, self.budget.vgprs), (AGPRS, agprs))
        for unit in (*site.sources, *(output.destination for output in site.template.outputs)):
            for file, count in files:
                if unit in file and unit - file.start >= count:
                    raise HookError(
                        f"hook {site.insertion.hook.source} uses {unit_text(unit)}, but the kernel has {count} of them",
                        kernel=self.lifted.kernel.name,
                        offset=int(self.lifted.code.addresses[site.insertion.index]),
                    )

    def _with_what_hooks_read(self) -> Liveness:
        """Liveness in which hooks read too: a payload must not overwrite what a later hook is to see."""
        plain = self.lifted.liveness
        reads: dict[int, int] = {}
        for site in self.sites:
            dead = mask_of(site.sources) & ~int(plain.live_before(site.point).active)
            if dead:
                reads[site.point] = reads.get(site.point, 0) | dead
        return self.lifted.also_reading(reads).liveness if reads else plain

    def _bind(self, site: Site, live: Live) -> Binding:
        recent = self._recent.setdefault(site.template, [])
        wave_size = self.lifted.wave_size
        for binding in recent:
            if is_valid(binding, site.template, site.sources, live, wave_size):
                return binding
        made = bind(site.template, site.sources, live, self.budget, wave_size)
        if made is None:
            raise PatchError(
                f"not enough dead or spare registers for hook {site.insertion.hook.source}: "
                f"it needs {sum(group.count for group in site.template.groups)} and the kernel may have "
                f"{self.budget.vgpr_limit} VGPRs and {self.budget.sgpr_limit} SGPRs",
                kernel=self.lifted.kernel.name,
                offset=int(self.lifted.code.addresses[site.insertion.index]),
            )
        recent.insert(0, made)
        del recent[8:]
        return made
