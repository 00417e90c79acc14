"""Storage for live vector registers: unused AGPRs, LDS (`luthier.patch.registers.lds_slots`), or private memory.

A payload's frame in private memory is above all private memory that the kernel and its callees can use, so its byte
offset in each lane's memory is the same everywhere in a kernel. It contains the spills, then the hook's stack. Both are
addressed by FLAT_SCRATCH, which later generations initialise themselves. In earlier ones, code at the kernel's
entry sets it from SGPRs that the descriptor requests (`luthier.patch.registers.launch_state`).

Source: LLVM AMDGPUUsage, "Kernel Prolog", "Flat Scratch".
"""

from __future__ import annotations

from collections.abc import Iterator

from luthier.hazards.insertion import wait_states, waits_around_outputs
from luthier.hazards.wait_counters.model import wait_model
from luthier.hazards.wait_states.model import hazard_model
from luthier.isa.registers import EXEC_LO, FLAT_SCRATCH_SGPR, M0, SCC, unit_name
from luthier.isa.targets import Target
from luthier.lifting import LiftedRepresentation
from luthier.patch.boundary.scalar_reads import settled
from luthier.patch.registers.binding import Binding, Slice
from luthier.patch.registers.copies import copy_text

ALIGNMENT = 16
"""Alignment of frames in bytes (AMDGPUUsage, "Non-Kernel Functions")."""


def frame_place(lifted: LiftedRepresentation, most_stack: int | None) -> int:
    """Return the byte offset in a lane's private memory from which payloads may use it.

    Args:
        most_stack: see `InstrumentationTask`.
    """
    own = lifted.kernel.private_segment_fixed_size
    if lifted.kernel.uses_dynamic_stack:
        own += most_stack or 0
    return aligned(own)


def aligned(size: int) -> int:
    """Return a number of bytes rounded up to a multiple of `ALIGNMENT`."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def refusal(lifted: LiftedRepresentation, most_stack: int | None) -> str:
    """Return why payloads of a kernel cannot have private memory; empty if they can.

    Args:
        most_stack: see `InstrumentationTask`.
    """
    if lifted.kernel.uses_dynamic_stack:
        if most_stack is None:
            return "how much private memory it uses itself is known only when it runs"
        if most_stack < 0:
            return f"its stack limit of {most_stack} bytes is negative"
        most = lifted.target.scratch_per_lane(lifted.wave_size)
        if frame_place(lifted, most_stack) >= most:
            return f"a stack of {most_stack} bytes leaves none of the {most} that a lane can have"
    entry = lifted.index_at(lifted.kernel.entry)
    for index in _sets_flat_scratch(lifted):
        # The kernel's prologue sets it to the value that it already has.
        if entry is None or lifted.block_of[index] != lifted.block_of[entry]:
            return f"it changes FLAT_SCRATCH after its entry, at {lifted.columns.address[index]:#x}"
    return ""


def _sets_flat_scratch(lifted: LiftedRepresentation) -> Iterator[int]:
    if lifted.target.architected_flat_scratch:
        return  # no instruction can change it
    for index, block in enumerate(lifted.block_of):
        if block < 0:
            continue
        if lifted.target.flat_scratch_sgprs:
            if lifted.effects(index).writes >> FLAT_SCRATCH_SGPR & 3:
                yield index
        elif "FLAT_SCR" in (text := lifted.isa.text(lifted.code, index)) and text.startswith("s_setreg"):
            yield index


def set_flat_scratch(target: Target, init: int, offset: int) -> list[str]:
    """Return assembly that sets FLAT_SCRATCH at a kernel's entry, and preserves the kernel's inputs.

    Args:
        init: first of the two SGPRs with the address of the queue's private memory.
        offset: the SGPR with the byte offset of the wave's private memory.
    """
    places = ("flat_scratch_lo", "flat_scratch_hi") if target.flat_scratch_sgprs else ("vcc_lo", "vcc_hi")
    low, high = places
    lines = [
        f"s_add_u32 {low}, {unit_name(init)}, {unit_name(offset)}",
        f"s_addc_u32 {high}, {unit_name(init + 1)}, 0",
    ]
    if target.flat_scratch_sgprs:
        return lines
    return [*lines, f"s_setreg_b32 hwreg(HW_REG_FLAT_SCR_LO), {low}", f"s_setreg_b32 hwreg(HW_REG_FLAT_SCR_HI), {high}"]


def store_text(target: Target, unit: int, place: int, address: int) -> list[str]:
    """Return assembly that stores a VGPR in the lanes' private memory.

    Args:
        unit: its register unit.
        place: byte offset in a lane's private memory.
        address: unit of a VGPR that is overwritten.
    """
    width = "b32" if target.sized_memory_names else "dword"
    return [
        f"v_mov_b32_e32 {unit_name(address)}, {place:#x}",
        f"scratch_store_{width} {unit_name(address)}, {unit_name(unit)}, off",
    ]


def load_text(target: Target, unit: int, place: int) -> list[str]:
    """Return assembly that loads a VGPR from private memory and waits for it. It needs no other register, since the
    VGPR itself first holds the address.
    """
    name, width = unit_name(unit), "b32" if target.sized_memory_names else "dword"
    return [f"v_mov_b32_e32 {name}, {place:#x}", f"scratch_load_{width} {name}, {name}, off", target.wait_for_loads]


def spills_of(binding: Binding, place: int, target: Target, wave_size: int) -> Spills | Slots | Moves:
    """Return the code that saves and restores the spills of a binding; for the arguments see `Spills`."""
    if binding.lds is not None:
        return Slots(binding, binding.lds, target, wave_size)
    return Moves(binding, target, wave_size) if binding.agpr_slots else Spills(binding, place, target, wave_size)


class Moves:
    """Code that spills to AGPRs.

    It is not documented whether moves to and from AGPRs depend on EXEC. All lanes are therefore saved, by inverting
    EXEC between two writes; then any restored lanes are correct if they include those that the payload may change.
    """

    def __init__(self, binding: Binding, target: Target, wave_size: int) -> None:
        self._binding = binding
        self._target = target
        self._wave_size = wave_size
        self._hazards = hazard_model(target, wave_size)

    def save(self) -> list[str]:
        """Return assembly that runs before anything of the payload is overwritten."""
        units = (*self._binding.spilled, *self._binding.spilled_whole)
        writes = [
            f"v_accvgpr_write_b32 {unit_name(slot)}, {unit_name(unit)}"
            for slot, unit in zip(self._binding.agpr_slots, units, strict=True)
        ]
        return [*wait_states(self._hazards.before_agpr_moves), *self._in_all_lanes(writes)]

    def restore(self) -> list[str]:
        """Return assembly that runs after the payload."""
        binding = self._binding
        agpr_slots = binding.agpr_slots[: len(binding.spilled)], binding.agpr_slots[len(binding.spilled) :]
        some, whole = (
            [f"v_accvgpr_read_b32 {unit_name(unit)}, {unit_name(slot)}" for slot, unit in zip(*pair, strict=True)]
            for pair in zip(agpr_slots, (binding.spilled, binding.spilled_whole), strict=True)
        )
        states = wait_states(self._hazards.before_agpr_moves), wait_states(self._hazards.behind_agpr_moves)
        return [*states[0], *some, *(self._in_all_lanes(whole) if whole else []), *states[1]]

    def _in_all_lanes(self, lines: list[str]) -> list[str]:
        return in_all_lanes(lines, self._binding.kept_scc, self._target, self._wave_size)


def in_all_lanes(lines: list[str], kept_scc: int | None, target: Target, wave_size: int) -> list[str]:
    """Return `lines` executed in the active lanes, and then in the inactive ones.

    Args:
        kept_scc: SGPR unit in which SCC is saved, if SCC is live.
    """
    mask = "exec" if wave_size > 32 else unit_name(EXEC_LO)
    invert = f"s_not_b{wave_size} {mask}, {mask}"
    wholly = [*lines, invert, *lines, invert]
    if kept_scc is None:
        return wholly
    return [*settled(target, [copy_text(kept_scc, SCC)]), *wholly, copy_text(SCC, kept_scc)]


class Slots:
    """Code that spills to LDS. While the payload runs, M0 has the application's value, or is dead."""

    def __init__(self, binding: Binding, place: Slice, target: Target, wave_size: int) -> None:
        self._binding = binding
        self._place = place
        self._target = target
        self._wave_size = wave_size

    def save(self) -> list[str]:
        """Return assembly that runs before anything of the payload is overwritten."""
        return self._with_address("ds_write_addtid_b32", [])

    def restore(self) -> list[str]:
        """Return assembly that runs after the payload.

        The payload's vector instructions may have written scalars that this code reads.
        """
        if not self._binding.lds_slots:
            return []
        before = waits_around_outputs(self._target)[1]
        return [*before, *self._with_address("ds_read_addtid_b32", [self._target.wait_for_lds])]

    def _with_address(self, mnemonic: str, wait: list[str]) -> list[str]:
        binding, hazards = self._binding, hazard_model(self._target, self._wave_size)
        if not binding.lds_slots:
            return []

        def each(units: tuple[int, ...], first: int) -> list[str]:
            offsets = (self._place.stride * (first + number) for number in range(len(units)))
            return [f"{mnemonic} {unit_name(unit)} offset:{at}" for unit, at in zip(units, offsets, strict=True)]

        kept, back = [], []
        if binding.kept_m0 is not None:
            kept = settled(self._target, [copy_text(binding.kept_m0, M0)])
            back = [copy_text(M0, binding.kept_m0)]
        whole = each(binding.spilled_whole, len(binding.spilled))
        if whole:
            whole = in_all_lanes(whole, binding.kept_scc, self._target, self._wave_size)
        address = [copy_text(M0, self._place.address), *wait_states(hazards.behind_m0)]
        return [*kept, *address, *each(binding.spilled, 0), *whole, *wait, *back]


class Spills:
    """Code that spills to private memory.

    Args:
        place: byte offset in a lane's private memory.
    """

    def __init__(self, binding: Binding, place: int, target: Target, wave_size: int) -> None:
        self._binding = binding
        self._target = target
        self._wave_size = wave_size
        self._pointer = [] if binding.frame is None else [f"s_mov_b32 {unit_name(binding.frame)}, {place:#x}"]

    def save(self) -> list[str]:
        """Return assembly that runs before anything of the payload is overwritten."""
        return [*self._pointer, *self._access("store")]

    def restore(self) -> list[str]:
        """Return assembly that runs after the payload."""
        if self._binding.frame is None:
            return []
        # The payload's vector instructions may have written the pointer's register.
        states = wait_states(hazard_model(self._target, self._wave_size).behind_vector_scalars)
        return [*states, *self._pointer, *self._access("load"), self._target.wait_for_loads]

    def _access(self, what: str) -> list[str]:
        binding = self._binding
        if binding.frame is None:
            return []
        width = "b32" if self._target.sized_memory_names else "dword"

        def each(units: tuple[int, ...], first: int) -> list[str]:
            pointer = unit_name(binding.frame or 0)
            places = [f"{pointer} offset:{4 * (first + number)}" for number in range(len(units))]
            operands = (
                f"off, {unit_name(unit)}, {place}" if what == "store" else f"{unit_name(unit)}, off, {place}"
                for unit, place in zip(units, places, strict=True)
            )
            return [f"scratch_{what}_{width} {one}" for one in operands]

        lines = each(binding.spilled, 0)
        if binding.spilled_whole:
            whole = each(binding.spilled_whole, len(binding.spilled))
            if what == "load" and not _in_order(self._target):
                whole.append(self._target.wait_for_loads)
            lines += in_all_lanes(whole, binding.kept_scc, self._target, self._wave_size)
        return lines


def _in_order(target: Target) -> bool:
    """Return whether a load may write a register that another load is still to write."""
    model = wait_model(target)
    loads = model.stream_index["vector"]
    return loads in model.replaced[loads]
