"""The payloads of a kernel, each once, however many points have it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from luthier.hazards.insertion import Boundary
from luthier.lifting import LiftedRepresentation
from luthier.patch.boundary.neighbours import NearUse, begins_with, ends_with
from luthier.patch.payloads.code import BoundPayload
from luthier.patch.payloads.emission import Limits, emit, emit_call
from luthier.patch.payloads.guarded import GuardedPlace, guarded
from luthier.patch.payloads.sites import PayloadUse
from luthier.patch.registers.binding import Binding
from luthier.payload import Template


class Payloads:
    """Every payload of a kernel, each once.

    Args:
        frame: byte offset, within a lane's private memory, of what they may use.

    Attributes:
        all: those that are spliced in somewhere, or called.
        called: of payloads that call another one: position in `all` -> that of the other.
        bindings: position -> its registers, of those that hooks became.
    """

    def __init__(self, lifted: LiftedRepresentation, frame: int) -> None:
        self._isa, self._frame = lifted.isa, frame
        self.all: list[BoundPayload] = []
        self.called: dict[int, int] = {}
        self.bindings: dict[int, Binding] = {}
        self._emitted: dict[Hashable, int] = {}
        self._own: dict[BoundPayload, int] = {}
        self._begins: dict[int, tuple[NearUse, ...]] = {}
        self._ends: dict[int, tuple[NearUse, ...]] = {}
        self._frame_sizes: dict[int, int] = {}  # of payloads that use private memory
        self._slots: dict[int, int] = {}  # of payloads that spill registers to LDS

    def private_memory(self, numbers: Sequence[int]) -> int:
        """Return the bytes of private memory per lane that the kernel needs for some payloads, beyond its own.

        If it is 0, none is used.
        """
        most = max((self._frame_sizes.get(number, 0) for number in set(numbers)), default=0)
        return self._frame + most if most else 0

    def slots(self, numbers: Sequence[int]) -> int:
        """Return the number of VGPRs for which the kernel needs LDS for some payloads."""
        return max((self._slots.get(number, 0) for number in set(numbers)), default=0)

    def begins_with(self, number: int) -> tuple[NearUse, ...]:
        """Return what a payload, or a call of one, does at its beginning (`luthier.patch.boundary.neighbours`)."""
        uses = self._begins.get(number)
        if uses is None:
            code = self.all[number].code
            called = self.called.get(number)
            if called is not None:  # apart from what follows its return, the call is the caller's last instruction
                code = code[: (self.all[number].call or 0) + 4] + self.all[called].code
            uses = self._begins[number] = begins_with(self._isa, code)
        return uses

    def ends_with(self, number: int) -> tuple[NearUse, ...]:
        """Return what a payload, or the one that it calls, does at its end."""
        uses = self._ends.get(number)
        if uses is None:
            uses = self._ends[number] = ends_with(self._isa, self.all[self.called.get(number, number)].code)
        return uses

    def add(self, payload: BoundPayload) -> int:
        """Add code that is no hook's, and return its position."""
        number = self._own.get(payload)
        if number is None:
            self.all.append(payload)
            number = self._own[payload] = len(self.all) - 1
        return number

    def of(self, use: PayloadUse, binding: Binding, boundary: Boundary, settle: tuple[str, ...], limits: Limits) -> int:
        """Return the position of a template with its registers at a point, or of the call of it."""
        template, isa = use.template, self._isa
        if binding.link is None:
            key = template, binding, boundary, settle, limits
            return self._keep(
                key, template, binding, lambda: emit(isa, template, binding, *boundary, settle, self._frame, limits)
            )
        body = self._keep(
            (template, binding), template, binding, lambda: emit(isa, template, binding, frame=self._frame)
        )
        caller = self._keep(
            (template, binding, use.sources, boundary, limits),
            template,
            binding,
            lambda: emit_call(isa, template, binding, use.sources, *boundary, limits),
        )
        self.called[caller] = body
        return caller

    def behind(self, number: int, place: GuardedPlace) -> int:
        """Return the position of a payload with a guard before it."""
        key = number, place
        found = self._emitted.get(key)
        if found is None:
            self.all.append(guarded(self._isa, self.all[number], place))
            found = self._emitted[key] = len(self.all) - 1
            for known in (self.called, self._frame_sizes, self._slots):
                if number in known:
                    known[found] = known[number]
            self.bindings[found] = self.bindings[number]
        return found

    def _keep(self, key: Hashable, template: Template, binding: Binding, make: Callable[[], BoundPayload]) -> int:
        """Return the position of a payload, which is made when it is first needed."""
        number = self._emitted.get(key)
        if number is None:
            self.all.append(make())
            number = self._emitted[key] = len(self.all) - 1
            self.bindings[number] = binding
            if size := binding.spill_size + (template.stack.size if template.stack else 0):
                self._frame_sizes[number] = size
            if binding.lds_slots:
                self._slots[number] = binding.lds_slots
        return number
