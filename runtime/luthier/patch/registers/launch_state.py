"""Plan of the places of launch state for hooks.

A value stays in the register in which the hardware delivers it, if nothing in the kernel writes this register.
Otherwise code at the kernel's entry saves it in the cheapest place: an SGPR that neither the kernel nor its callees
name, or a lane of such a VGPR. Values that differ between lanes are saved in such a VGPR, in an AGPR, or in the lane's
private memory below the payloads' spills. No payload may overwrite these places.

State that the kernel does not request is requested in its descriptor. This moves the inputs that come after it; the
code at the entry moves them back, so that the kernel finds its inputs in the expected registers.

Source: LLVM AMDGPUUsage, "Initial Kernel Execution State".
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from luthier.hazards.insertion import waits_around_outputs
from luthier.isa.registers import SGPRS, TTMPS, VGPRS, bits_of, mask_of
from luthier.lifting import LiftedRepresentation
from luthier.objects import KernelDescriptor
from luthier.patch.boundary.scalar_reads import copies_settled
from luthier.patch.registers import lds_slots as slices
from luthier.patch.registers.binding import RegisterBudget
from luthier.patch.registers.copies import (
    LANES,
    copy_text,
    lane_text,
    lane_unit,
    needs_spare,
    parallel_copy,
    private_unit,
    unit_text,
)
from luthier.patch.registers.spill_slots import set_flat_scratch, store_text
from luthier.payload.launch_state import HIDDEN_V4, HIDDEN_V5, STATES

MOST_USER_SGPRS = 16
"""Maximum number of SGPRs that the hardware initialises before the work-group ids."""
_FIRST_FREE = 3
"""Number of VGPRs in which work-item ids arrive."""
_ID_BITS = 10
"""Bits of each work-item id if they share a register."""

Part = tuple[str, int]
"""A state's name, and the index of a 32-bit part."""


class StatePlan(Struct, frozen=True):
    """Places of the launch state, and the changes of the kernel that they need."""

    places: Mapping[Part, int] = field(default_factory=dict)
    """Part -> register unit, or a unit of `LANES` or `PRIVATE`."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """State -> why it is not available in this kernel."""
    reserved: int = 0
    """Bit set of the register units that no payload may overwrite."""
    prologue: tuple[str, ...] = ()
    """Assembly for the kernel's entry."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the kernel descriptor with new values."""
    sgprs: int = 0
    """Numbers of SGPRs and VGPRs that the kernel needs for it."""
    vgprs: int = 0
    private: int = 0
    """End of the launch state in private memory, in bytes per lane; 0 if there is none."""
    homeless: bool = False
    """Whether some state is missing that could be in private memory."""
    no_frame: str = "it was not requested"
    """Why payloads have no private memory; empty if they have."""
    wave_lds: int | None = None
    """SGPR unit with the wave's address in LDS, if requested, without the part that
    `luthier.patch.registers.lds_slots.begin_slots` adds to `prologue`."""
    no_lds: str = no_frame
    """Why there is no LDS for payloads; empty if there is."""


def plan_state(
    lifted: LiftedRepresentation,
    budget: RegisterBudget,
    states: Iterable[str],
    written: int,
    no_frame: str = StatePlan.no_frame,
    no_lds: str = StatePlan.no_lds,
    *,
    frame: int = 0,
    in_registers: Collection[str] = (),
) -> StatePlan:
    """Return places for launch state.

    Args:
        budget: the kernel's register files.
        states: names of `luthier.payload.launch_state.STATES`.
        written: bit set of the units that hooks write.
        no_frame: why payloads must not use private memory; empty if they may.
        no_lds: why payloads must not use LDS for spills; empty if they may.
        frame: byte offset in a lane's private memory from which payloads may use it.
        in_registers: states that must be in SGPRs, VGPRs or lanes of VGPRs.
    """
    wanted = sorted(set(states), key=lambda name: (STATES[name].units, name), reverse=True)
    if not wanted and no_frame and no_lds:
        return StatePlan(no_frame=no_frame, no_lds=no_lds)
    return _LaunchStatePlanner(lifted, budget, written, no_frame, no_lds, frame, in_registers).plan(wanted)


_Inputs = Mapping[str, tuple[int, int]]
"""Name of an input -> its first SGPR unit at the kernel's start, and the number of units."""


class _NoSpare(Exception):
    """Inputs cannot be moved."""


class _Placing(NamedTuple):
    """Assembly that moves launch state to its places."""

    lanes: list[str]
    """Moves of inputs to lanes of VGPRs."""
    vectors: list[str]
    constants: list[str]
    """Moves of constants, which come after all uses of inputs."""


class _LaunchStatePlanner:
    def __init__(
        self,
        lifted: LiftedRepresentation,
        budget: RegisterBudget,
        written: int,
        no_frame: str,
        no_lds: str,
        frame: int,
        in_registers: Collection[str],
    ) -> None:
        self.lifted = lifted
        self.frame, self.in_registers = frame, in_registers
        self.private = 0
        self.homeless = False
        self.no_frame, self.no_lds = no_frame, no_lds
        self.budget = budget
        self.descriptor = lifted.kernel.descriptor
        self.named, self.written = _registers_of(lifted)
        self.written |= written
        self.named |= self.written
        if lifted.unknown:  # unknown code that is called may use all registers of the kernel
            self.named |= mask_of((*range(budget.sgprs), *range(VGPRS.start, VGPRS.start + budget.vgprs)))
            self.written |= self.named
        self.taken = 0
        self.places: dict[Part, int] = {}
        self.missing: dict[str, str] = {}
        self.changes: dict[str, Any] = {}
        self.lanes: Iterator[int] | None = None

    def plan(self, wanted: list[str]) -> StatePlan:
        """Ask the hardware for what is wanted, find places for it, and move back what that has moved."""
        asked = self._ask(wanted)
        before, after = self.descriptor.sgpr_inputs, self._new_descriptor(asked).sgpr_inputs
        for name in asked:
            self._leave_in_place(name, before)
        scalars = self._moved_inputs(before, after)
        placing = self._place(asked, after, scalars)
        try:
            spare = self._spare_for(scalars)
        except _NoSpare:
            reason = "no SGPR is free for moving the kernel's inputs"
            missing = dict.fromkeys(wanted, reason)
            return StatePlan(missing=missing, no_frame=self.no_frame or reason, no_lds=self.no_lds or reason)
        wave, wave_lds, temporaries = self._find_wave(after)
        moves = copies_settled(self.lifted.target, parallel_copy(scalars, spare))
        lines = [*wave, *placing.lanes, *placing.vectors, *self._masked_ids(), *moves, *placing.constants]
        placed = [unit for unit in self.places.values() if unit < LANES.start]
        reserved = self.taken | mask_of(unit for unit in placed if unit not in TTMPS)
        # When the kernel starts, inputs are in the registers that they are moved from.
        last_input = max((first + count for first, count in after.values()), default=0) if self.changes else 0
        return StatePlan(
            self.places,
            self.missing,
            reserved,
            tuple(self._prologue(lines, after)),
            self.changes,
            max((reserved & mask_of(SGPRS)).bit_length(), last_input, temporaries),
            (reserved >> VGPRS.start & (1 << len(VGPRS)) - 1).bit_length(),
            self.private,
            self.homeless,
            self.no_frame,
            wave_lds,
            self.no_lds,
        )

    def _ask(self, wanted: list[str]) -> list[str]:
        """Request states, private memory and the wave's LDS. Return the available states."""
        asked = [name for name in wanted if self._ask_for(name)]
        if not self.no_frame:
            self._change("enable_private_segment", 1)
            if not self.lifted.target.architected_flat_scratch:
                self._change("enable_sgpr_flat_scratch_init", 1)
        if not self.no_lds:
            self._ask_for_wave()
        return asked

    def _moved_inputs(self, before: _Inputs, after: _Inputs) -> dict[int, int]:
        """Return register in which the kernel expects an input -> register in which it now arrives."""
        scalars: dict[int, int] = {}
        for name, (first, count) in before.items():
            for number in range(count):
                # An input whose register is never used need not be moved: its register may hold something else.
                if name in after and (self.named | self.taken) >> first + number & 1:
                    scalars[first + number] = after[name][0] + number
        return scalars

    def _place(self, asked: list[str], after: _Inputs, scalars: dict[int, int]) -> _Placing:
        """Find places for states that do not stay in place. `scalars` receives those that are copied in parallel with
        the kernel's inputs."""
        placing = _Placing([], [], [])
        for name in asked:
            if not STATES[name].uniform:
                self._place_lanes_value(name, placing.vectors)
            elif name.startswith("implicit_offset"):
                self._place_constant(name, placing.constants)
            elif (name, 0) not in self.places:
                self._place_scalar(name, after[name][0], scalars, placing.lanes)
        return placing

    def _spare_for(self, scalars: Mapping[int, int]) -> int | None:
        """Return an SGPR for copies that form a cycle, if there are such.

        Raises:
            _NoSpare: none is free.
        """
        if not needs_spare(scalars):
            return None
        self.named |= mask_of(scalars.values())
        spare = self._free_sgpr()
        if spare is None:
            raise _NoSpare
        return spare

    def _prologue(self, lines: Sequence[str], after: _Inputs) -> list[str]:
        """Return the code for the kernel's entry, with the set-up of private memory before its first use."""
        target = self.lifted.target
        stored = target.wait_for_everything if self.private else ()
        prologue = [*lines, *stored, *(waits_around_outputs(target)[1] if lines else [])]
        if self.no_frame or target.architected_flat_scratch:
            return prologue
        init, offset = after["flat_scratch_init"][0], after["private_segment_wavefront_offset"][0]
        return [*set_flat_scratch(target, init, offset), *prologue]

    # Requests to the hardware

    def _ask_for(self, name: str) -> bool:
        """Record the changes of the descriptor for a state. Return whether it is available."""
        reason = self._why_not(name)
        if reason:
            self.missing[name] = reason
            return False
        if name.startswith("workitem_id"):
            level = 2 if name == "workitem_id" else "xyz".index(name[-1])
            self._change("enable_vgpr_workitem_id", max(level, self.changes.get("enable_vgpr_workitem_id", 0)))
        elif not name.startswith("implicit_offset"):
            self._change(f"enable_sgpr_{name}", 1)
        return True

    def _ask_for_wave(self) -> None:
        """Record the changes for the wave's address in LDS."""
        names = slices.states(self.lifted.target)
        self.no_lds = next(filter(None, map(self._why_not, names)), "")
        if not self.no_lds:
            for name in names:
                self._ask_for(name)

    def _change(self, name: str, value: int) -> None:
        if getattr(self.descriptor, name) < value:
            self.changes[name] = value

    def _why_not(self, name: str) -> str:
        descriptor = self.descriptor
        if name.startswith("workitem_id") and descriptor.enable_vgpr_workitem_id == 3:
            return "its descriptor requests work-item ids with an undefined value"
        ttmps = self.lifted.target.launch_ttmps
        if name == "workgroup_id_z" and ttmps is not None and self.named >> TTMPS[ttmps.workgroup_id_yz] & 1:
            y, z = descriptor.enable_sgpr_workgroup_id_y, descriptor.enable_sgpr_workgroup_id_z
            if y and not z:  # then compilers omit the mask of y
                return "it reads y of the work-group id without z, and both share a register that nothing can write"
        if name.startswith("implicit_offset") and self._implicit_offset(name) is None:
            return "it has none in the layout for which the hook was compiled"
        return ""

    def _implicit_offset(self, name: str) -> int | None:
        """Return the byte offset of the kernel's hidden arguments; None if their layout is not the expected one.

        The metadata determine where runtimes place them.
        """
        kernel = self.lifted.kernel
        hidden = [argument for argument in kernel.arguments if argument.hidden]
        places = HIDDEN_V4 if name.endswith("v4") else HIDDEN_V5
        first = hidden[0].offset if hidden else 0
        for argument in hidden:
            place = places.get(argument.value_kind)
            moved = place is not None and (argument.offset - first, argument.size) != place
            if moved or not kernel.has_room_for(argument):
                return None
        return first if hidden and places.get(hidden[0].value_kind, (1, 0))[0] == 0 else None

    def _new_descriptor(self, asked: list[str]) -> KernelDescriptor:
        """Return the descriptor with `changes`, to which the number of user SGPRs is added.

        Without room for all of them, arguments are not preloaded: the kernel's first entry loads them itself.
        """
        if self._user_sgprs() > MOST_USER_SGPRS and self.descriptor.kernarg_preload_length:
            self.changes |= {"kernarg_preload_length": 0, "kernarg_preload_offset": 0}
        # Leave out first what fewest hooks need.
        for name in ("dispatch_id", "queue_ptr", "flat_scratch_init", "dispatch_ptr", "kernarg_segment_ptr"):
            if self._user_sgprs() > MOST_USER_SGPRS and self.changes.pop(f"enable_sgpr_{name}", 0):
                reason = f"it has no room for it among the {MOST_USER_SGPRS} SGPRs that the hardware initialises"
                if name == "flat_scratch_init":
                    self.no_frame = reason
                    self.changes.pop("enable_private_segment", 0)
                else:
                    if name == "dispatch_ptr" and not self.no_lds:
                        self.no_lds = reason
                    if name in asked:
                        self.missing[name] = reason
                        asked.remove(name)
        # The count may exceed those filled in: gfx11 needs sixteen initialized SGPRs (LLVM, "UserSGPRInit16Bug").
        self._change("user_sgpr_count", self._user_sgprs())
        return replace(self.descriptor, **self.changes)

    def _user_sgprs(self) -> int:
        """Return the number of initialised user SGPRs, with `changes`."""
        return sum(
            count
            for name, (_, count) in replace(self.descriptor, **self.changes).sgpr_inputs.items()
            if not name.startswith(("workgroup", "private_segment_wavefront"))
        )

    # Places

    def _leave_in_place(self, name: str, inputs: Mapping[str, tuple[int, int]]) -> None:
        """Leave a scalar in its input register, if nothing writes there."""
        ttmps = self.lifted.target.launch_ttmps
        if ttmps is not None and name.startswith("workgroup_id"):
            number = ttmps.workgroup_id_x if name == "workgroup_id_x" else ttmps.workgroup_id_yz
            self.places[name, 0] = TTMPS[number]
        elif name in inputs:
            first, count = inputs[name]
            units = mask_of(range(first, first + count))
            if not self.written & units:
                self.places.update({(name, number): first + number for number in range(count)})
                self.taken |= units

    def _place_scalar(self, name: str, after: int, scalars: dict[int, int], lanes: list[str]) -> None:
        places: list[int] = []
        for number in range(STATES[name].units):
            free = self._free_sgpr()
            if free is not None:
                scalars[free] = after + number
            else:
                free = self._free_lane()
                if free is None:
                    self.missing[name] = "it uses all SGPRs and all lanes of VGPRs"
                    return
                vgpr, lane = lane_text(free)
                lanes.append(f"v_writelane_b32 {vgpr}, {unit_text(after + number)}, {lane}")
            places.append(free)
        self.places.update({(name, number): place for number, place in enumerate(places)})

    def _find_wave(self, inputs: Mapping[str, tuple[int, int]]) -> tuple[list[str], int | None, int]:
        """Return assembly that finds the wave's part of LDS before anything else is moved.

        Also return the SGPR that holds it, and the number of SGPRs that the kernel needs for it.

        Args:
            inputs: registers in which inputs arrive.
        """
        if self.no_lds:
            return [], None, 0
        arriving = mask_of(unit for first, count in inputs.values() for unit in range(first, first + count))
        named, self.named = self.named, self.named | arriving
        address = self._free_sgpr()
        self.named = named
        if address is None:
            self.no_lds = "it has no SGPR that it never uses"
            return [], None, 0
        # SGPRs in which no input arrives are still free.
        nobodys = (unit for unit in SGPRS[: self.budget.sgpr_limit] if not (arriving | 1 << address) >> unit & 1)
        scalars = list(itertools.islice(nobodys, slices.SCALARS))
        first = inputs["dispatch_ptr"][0]
        lines = slices.find_wave(
            self.lifted.target,
            self.lifted.wave_size,
            unit_text(address),
            [unit_text(unit) for unit in scalars],
            f"s[{first}:{first + 1}]",
            self.lifted.kernel.most_waves,
        )
        return lines, address, max(scalars) + 1

    def _place_constant(self, name: str, constants: list[str]) -> None:
        free = self._free_sgpr()
        if free is None:
            self.missing[name] = "it has no SGPR that it never uses"
            return
        constants.append(f"s_mov_b32 {unit_text(free)}, {self._implicit_offset(name)}")
        self.places[name, 0] = free

    def _place_lanes_value(self, name: str, vectors: list[str]) -> None:
        number = 0 if name == "workitem_id" else "xyz".index(name[-1])
        arrives = VGPRS.start + number
        masked = name == "workitem_id" and "enable_vgpr_workitem_id" in self.changes
        if not self.written >> arrives & 1 and not masked:
            self.places[name, 0] = arrives
            self.taken |= 1 << arrives
            return
        free = self._free_vgpr()
        if name not in self.in_registers and free is None:
            free = self._free_agpr()
        if free is not None:
            vectors.append(copy_text(free, arrives))
            self.places[name, 0] = free
        elif name in self.in_registers:
            self.missing[name] = "it has no VGPR that it never uses"
        elif self.no_frame:
            self.missing[name] = f"it has no VGPR that it never uses, and no private memory for it: {self.no_frame}"
            self.homeless = True
        else:
            place = self.private or self.frame
            vectors += store_text(self.lifted.target, arrives, place, self._dead_at_entry())
            self.places[name, 0] = private_unit(place)
            self.private = place + 4

    def _masked_ids(self) -> list[str]:
        """Return assembly that removes work-item ids that the kernel does not request.

        The kernel may assume that the register contains only the requested ids.
        """
        if not self.lifted.target.packed_work_item_ids or "enable_vgpr_workitem_id" not in self.changes:
            return []
        mask = (1 << _ID_BITS * (self.descriptor.enable_vgpr_workitem_id + 1)) - 1
        return [f"v_and_b32_e32 v0, {mask:#x}, v0"]

    def _free_sgpr(self) -> int | None:
        return self._free(SGPRS.start, (self.budget.sgprs, self.budget.sgpr_limit))

    def _free_vgpr(self) -> int | None:
        return self._free(VGPRS.start, (self.budget.vgprs, self.budget.vgpr_limit), skip=_FIRST_FREE)

    def _free_agpr(self) -> int | None:
        free = next(bits_of(self.budget.agpr_slots & ~self.taken), None)
        if free is not None:
            self.taken |= 1 << free
        return free

    def _dead_at_entry(self) -> int:
        """Return a VGPR without an input or launch state. There is one, since the others are all in use."""
        vgprs = VGPRS[_FIRST_FREE : max(self.budget.vgprs, self.budget.vgpr_limit)]
        return next(unit for unit in vgprs if not self.taken >> unit & 1)

    def _free(self, first: int, limits: tuple[int, int], skip: int = 0) -> int | None:
        for limit in limits:
            for unit in range(first + skip, first + limit):
                if not (self.named | self.taken) >> unit & 1:
                    self.taken |= 1 << unit
                    return unit
        return None

    def _free_lane(self) -> int | None:
        if self.lanes is None:
            vgpr = self._free_vgpr()
            self.lanes = iter(() if vgpr is None else (lane_unit(vgpr, lane) for lane in range(self.lifted.wave_size)))
        return next(self.lanes, None)


def _registers_of(lifted: LiftedRepresentation) -> tuple[int, int]:
    """Return the bit sets of the units that the kernel and its callees read or write, and of those that they write."""
    read = written = 0
    for index, block in enumerate(lifted.block_of):
        if block >= 0:
            effects = lifted.effects(index)
            read |= effects.reads
            written |= effects.writes
    return read | written, written
