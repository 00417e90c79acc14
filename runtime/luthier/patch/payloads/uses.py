"""Hooks of a task before register assignment: their templates, points and refusals."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from luthier.errors import HookError, LuthierError, PatchError, UnfinishedError
from luthier.isa.registers import mask_of
from luthier.lifting import LiftedRepresentation
from luthier.module import Hook, LoadedModule
from luthier.patch.outcome import PatchRefusal, RefusalKind
from luthier.patch.payloads.sites import ZONES, InsertionSite, PayloadUse, numbers_of
from luthier.patch.registers.copies import unit_text
from luthier.patch.registers.launch_state import StatePlan
from luthier.payload import Template
from luthier.payload.arguments import Input
from luthier.payload.cache import template_for
from luthier.payload.launch_state import STATES
from luthier.support.losses import note_loss
from luthier.support.named_tuples import new_tuple
from luthier.tool.guards import Guard
from luthier.tool.hook_calls import HookCall, Insertion
from luthier.tool.points import Place


class Refusals:
    """Hooks that were left out.

    Args:
        strict: whether a refusal is an error instead.
    """

    def __init__(self, lifted: LiftedRepresentation, *, strict: bool) -> None:
        self._lifted = lifted
        self.strict = strict
        self.found: list[PatchRefusal] = []

    def refuse(self, number: int, insertion: Insertion, kind: RefusalKind, error: LuthierError) -> None:
        """Record an insertion that is left out.

        Raises:
            LuthierError: refusals are errors.
        """
        address = self._lifted.columns.address[insertion.at]
        kernel = self._lifted.kernel.name
        if self.strict:
            error.object = error.object or self._lifted.object.name
            error.kernel, error.offset = kernel, address
            raise error
        if isinstance(error, UnfinishedError):
            kind = "unfinished"
            note_loss(f"hook {insertion.hook.name} in {kernel}: {error.message}")
        self.leave_out(number, insertion, kind, error.message)

    def leave_out(self, number: int, insertion: Insertion, kind: RefusalKind, why: str) -> None:
        """Record an insertion that is left out without an error."""
        kernel, address = self._lifted.kernel.name, self._lifted.columns.address[insertion.at]
        self.found.append(PatchRefusal(kind, why, kernel, address, insertion.hook.name, insertion.place, number))


class Templates:
    """Cache of the templates of one kernel's hooks, and of the errors of hooks without one."""

    def __init__(self, lifted: LiftedRepresentation) -> None:
        self._lifted = lifted
        self._of: dict[HookCall, Template | LuthierError] = {}

    def of(self, call: HookCall) -> Template | LuthierError:
        """Return the template of a call, or the error if there is none."""
        template = self._of.get(call)
        if template is None:
            target, wave_size = self._lifted.object.target, self._lifted.wave_size
            try:
                template = template_for(call.hook, call.arguments, target, wave_size, call.groups)
            except LuthierError as problem:
                template = problem
            self._of[call] = template
        return template


def unit_of(call: HookCall, source: Input) -> int:
    """Return the application's register unit of an input of a call that is not launch state."""
    return source.unit if source.argument is None else call.sources[source.argument][source.unit]


class CompiledHooks:
    """Hooks compiled for one kernel.

    Args:
        templates: templates of their calls.
        files: register files, and the number of registers of each in the kernel.
        state: places of launch state.

    Attributes:
        lds: bytes of LDS that a work-group needs in addition.
    """

    def __init__(
        self,
        lifted: LiftedRepresentation,
        templates: Templates,
        files: Sequence[tuple[range, int]],
        state: StatePlan,
        refusals: Refusals,
    ) -> None:
        self._lifted, self._templates, self._files = lifted, templates, files
        self._state, self._refusals = state, refusals
        self.lds = 0
        self._lds_owner: LoadedModule | None = None
        self._of: dict[HookCall, PayloadUse | LuthierError] = {}
        self._forms: dict[tuple[Template, tuple[int, ...], Guard | None], int] = {}

    def sites(self, insertions: Sequence[Insertion], left_out: Container[int]) -> list[InsertionSite]:
        """Return the sites of the insertions that can be compiled; refuse the others.

        Args:
            left_out: numbers of insertions that sampling leaves out.
        """
        block_of, restrictions, uses = self._lifted.block_of, self._lifted.restrictions, self._of
        sites: list[InsertionSite] = []
        for number, insertion in enumerate(insertions):
            index, place, call, _ = insertion
            if number in left_out:
                self._refusals.leave_out(number, insertion, "sampled", "sampling leaves this point out")
                continue
            point = index if place == "before" else self._point(index, place)
            if point >= len(block_of) or block_of[point] < 0:
                behind = PatchError("control does not return to the point after this instruction")
                self._refusals.refuse(number, insertion, "hook", behind)
                continue
            restriction = restrictions.get(index if place == "taken" else point)
            if restriction is not None:
                self._refusals.refuse(
                    number, insertion, restriction, PatchError(f"no code can be inserted {restriction}")
                )
                continue
            use = uses.get(call)
            if use is None:
                use = uses[call] = self._compile(call)
            if isinstance(use, LuthierError):
                self._refusals.refuse(number, insertion, "hook", use)
            elif use.missing is not None:
                error = HookError(f"hook {call.hook.name} uses {use.missing}")
                self._refusals.refuse(number, insertion, "no such register", error)
            else:
                numbers = numbers_of(insertion, use) if use.immediates else ()
                # Equivalent to Site(…), in half the time.
                sites.append(
                    new_tuple(InsertionSite, (number, insertion, index, point, use, ZONES.get(place), numbers))
                )
        return sites

    def _point(self, index: int, place: Place) -> int:
        """Return the index of the next instruction; the number of instructions if it is not known."""
        lifted = self._lifted
        if place == "after":
            return index + 1
        if place != "taken":
            return index
        targets = {jump.index: jump.target for jump in lifted.direct_jumps}
        target = lifted.index_at(targets.get(index, lifted.columns.target[index]))
        return len(lifted.block_of) if target is None else target

    def counter(self, template: Template) -> PayloadUse:
        """Return the use of a counter without a register."""
        return PayloadUse(None, template, (), 0, None, form=self._form(template, ()))

    def _compile(self, call: HookCall) -> PayloadUse | LuthierError:
        template = self._templates.of(call)
        if isinstance(template, LuthierError):
            return template
        if template.stack is not None and self._state.no_frame:
            return HookError(
                f"hook {call.hook.name} needs private memory, which it cannot have in this kernel: "
                f"{self._state.no_frame}"
            )
        if template.lds and (refused := self._lds_refused(call.hook, template.lds)):
            return HookError(f"hook {call.hook.name} uses LDS, which it cannot have in this kernel: {refused}")
        sources, registers = [], []
        for taken in template.inputs:
            source = taken.source
            if source.state:
                if reason := self._state.missing.get(source.state):
                    what = STATES[source.state].what
                    return HookError(f"hook {call.hook.name} uses {what}, which this kernel cannot have: {reason}")
                sources.append(self._state.places[source.state, source.unit])
                continue
            sources.append(unit_of(call, source))
            registers.append(sources[-1])
        missing = self._missing_register((*registers, *(output.destination for output in template.outputs)))
        immediates = tuple((one.source.argument or 0, one.source.unit) for one in template.immediates)
        form = self._form(template, tuple(sources), call.guard)
        reads = mask_of(registers) | (0 if call.guard is None else call.guard.reads)
        return PayloadUse(call, template, tuple(sources), reads, missing, immediates, form)

    def _lds_refused(self, hook: Hook, size: int) -> str:
        """Return why a hook cannot have LDS.

        It is empty if it can, and then the kernel needs so many bytes more.
        """
        has, most = self._lifted.kernel.group_segment_fixed_size, self._lifted.object.target.target.lds_bytes
        if has + size > most:
            return f"it has {has} bytes, hooks need {size} more, and a work-group has at most {most}"
        if self._lds_owner not in (None, hook.module):
            return "another tool's hooks use it"
        self._lds_owner, self.lds = hook.module, size
        return ""

    def _form(self, template: Template, sources: tuple[int, ...], guard: Guard | None = None) -> int:
        return self._forms.setdefault((template, sources, guard), len(self._forms))

    def _missing_register(self, units: Iterable[int]) -> str | None:
        """Return a description of the first register that the kernel does not have, if any."""
        for unit in units:
            for file, count in self._files:
                if unit in file and unit - file.start >= count:
                    return f"{unit_text(unit)}, but the kernel has {count} of them"
        return None
