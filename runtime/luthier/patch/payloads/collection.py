"""The distinct payloads of a kernel, which points share."""

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
    """The distinct payloads of a kernel.

    Args:
        frame: byte offset in a lane's private memory from which payloads may use it.

    Attributes:
        all: payloads that are spliced in somewhere, or called.
        called: position in `all` of a payload that calls another one -> position of the other.
        bindings: position -> registers, for payloads of hooks.
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
        """Return the bytes of private memory per lane that some payloads need beyond the kernel's own; 0 for none."""
        most = max((self._frame_sizes.get(number, 0) for number in set(numbers)), default=0)
        return self._frame + most if most else 0

    def slots(self, numbers: Sequence[int]) -> int:
        """Return the number of VGPRs that some payloads spill to LDS."""
        return max((self._slots.get(number, 0) for number in set(numbers)), default=0)

    def begins_with(self, number: int) -> tuple[NearUse, ...]:
        """Return the uses near the beginning of a payload, or of a call (`luthier.patch.boundary.neighbours`)."""
        uses = self._begins.get(number)
        if uses is None:
            code = self.all[number].code
            called = self.called.get(number)
            if called is not None:  # apart from what follows its return, the call is the caller's last instruction
                code = code[: (self.all[number].call or 0) + 4] + self.all[called].code
            uses = self._begins[number] = begins_with(self._isa, code)
        return uses

    def ends_with(self, number: int) -> tuple[NearUse, ...]:
        """Return the uses near the end of a payload, or of the one that it calls."""
        uses = self._ends.get(number)
        if uses is None:
            uses = self._ends[number] = ends_with(self._isa, self.all[self.called.get(number, number)].code)
        return uses

    def add(self, payload: BoundPayload) -> int:
        """Add code that does not belong to a hook, and return its position."""
        number = self._own.get(payload)
        if number is None:
            self.all.append(payload)
            number = self._own[payload] = len(self.all) - 1
        return number

    def of(self, use: PayloadUse, binding: Binding, boundary: Boundary, settle: tuple[str, ...], limits: Limits) -> int:
        """Return the position of a bound template at a point, or of its call."""
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
        number_of_guarded = self._emitted.get(key)
        if number_of_guarded is None:
            self.all.append(guarded(self._isa, self.all[number], place))
            number_of_guarded = self._emitted[key] = len(self.all) - 1
            for known in (self.called, self._frame_sizes, self._slots):
                if number in known:
                    known[number_of_guarded] = known[number]
            self.bindings[number_of_guarded] = self.bindings[number]
        return number_of_guarded

    def _keep(self, key: Hashable, template: Template, binding: Binding, make: Callable[[], BoundPayload]) -> int:
        """Return the position of a payload, which is created on first use."""
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
