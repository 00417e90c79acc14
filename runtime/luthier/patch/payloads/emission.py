"""Emission of a bound template: waits, saved state, copies of inputs, the body, copies of outputs, restored state."""

from __future__ import annotations

import bisect
import functools
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from luthier.errors import PatchError
from luthier.hazards.insertion import waits_after_m0, waits_after_readlane, waits_around_outputs, waits_behind
from luthier.hazards.wait_counters.model import Limit, wait_model
from luthier.isa import Fixup, Isa, OperandKind
from luthier.isa.registers import M0, SGPRS, VGPRS, mask_of
from luthier.patch.boundary.scalar_reads import Leftovers, copies_settled, settled
from luthier.patch.payloads.code import OFFSET_3F, BoundPayload, PayloadRelocation, snippet
from luthier.patch.registers import lane_masks
from luthier.patch.registers.binding import Binding, last_copies
from luthier.patch.registers.copies import LANES, PRIVATE, copy_text, parallel_copy, private_offset, unit_text
from luthier.patch.registers.spill_slots import load_text, spills_of
from luthier.payload.template import Template

PROGRAM_COUNTER = ("s_getpc_b64", "s_get_pc_i64")
"""LLVM's names of the instruction that reads the program counter in different generations."""

Limits = tuple[Limit, ...] | None
"""Waits of a payload before it accesses registers; None: for everything."""

_PLACEHOLDER = 0x7EAD1234
"""Placeholder for a per-point number: a literal without a shorter encoding."""


@functools.lru_cache(maxsize=1024)
def _renamable(isa: Isa, template: Template) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the positions of the body's operands in register groups, and the register and first unit of each."""
    grouped = {unit for group in template.groups for unit in range(group.first, group.first + group.count)}
    positions, registers = [], []
    for position in np.flatnonzero(template.code.operand_kind == int(OperandKind.REGISTER)).tolist():
        register = int(template.code.operand_value[position])
        first = int(isa.register_first_unit[register])
        if first in grouped:
            positions.append(position)
            registers.append((register, first))
    return positions, registers


@functools.lru_cache(maxsize=65536)
def _register_like(isa: Isa, register: int, unit: int) -> int:
    renamed = isa.register_like(register, unit)
    if renamed is None:
        count = int(isa.register_unit_count[register])
        raise PatchError(f"no register of {count} units at unit {unit}", target=str(isa.target))
    return renamed


@functools.lru_cache(maxsize=4096)
def _renamed_registers(isa: Isa, template: Template, binding: Binding) -> tuple[bytes, list[int]]:
    """Return the body encoded with the binding's registers, and the byte offsets of instructions and of the end."""
    units = dict(binding.units)
    positions, registers = _renamable(isa, template)
    values = template.code.operand_value.copy()
    values[positions] = [_register_like(isa, register, units[first]) for register, first in registers]
    code, offsets = isa.encode(replace(template.code, operand_value=values))
    return code, offsets.tolist()


@functools.lru_cache(maxsize=4096)
def emit(
    isa: Isa,
    template: Template,
    binding: Binding,
    waits: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
    settle: tuple[str, ...] = (),
    frame: int = 0,
    limits: Limits = None,
) -> BoundPayload:
    """Return the bytes of a payload, or of a called one if its binding has a link. `references` lack addresses.

    Args:
        frame: byte offset in a lane's private memory from which the payload may use it.
        waits: assembly at the beginning that the boundary to the application requires (`luthier.hazards.insertion`).
        after: assembly at the end.
        settle: assembly before anything else, after outstanding operations on the payload's registers are complete.
        limits: waits instead of the template's own; None: the template's own.
    """
    around = _Around(
        [*settle, *_saving(isa, template, binding, frame)],
        _inputs(isa, template, binding),
        _own_numbers(template, binding),
        _outputs(isa, template, binding),
        [*_restoring(isa, template, binding, frame), *after],
    )
    padded: Counter[int] = Counter()
    while True:
        writer = _PayloadWriter(isa, template, binding, around, padded)
        writer.begin(waits, limits)
        writer.write_body()
        writer.end()
        wrong = _wrong_branches(isa, template, writer)
        if not wrong:
            break
        padded.update(wrong)
    code = bytearray(b"".join(writer.pieces))
    _set_branches(code, template, writer)
    counters = _ProgramCounters(isa, template, writer.place_of)
    _set_functions(code, template, counters)
    references = tuple(field for fixup in template.fixups for field in counters.references(fixup))
    return BoundPayload(bytes(code), references, writer.instructions, tuple(writer.immediates))


class _Around(Struct, frozen=True):
    """Assembly around and between the instructions of a template."""

    save: list[str]
    """Saves overwritten registers before the first input is taken."""
    inputs: Mapping[int, list[str]]
    """Instruction of the template -> copies of inputs before it."""
    numbers: Mapping[int, list[str]]
    """Instruction of the template -> moves of per-point numbers before it."""
    outputs: list[str]
    """Copies outputs, and saved fixed registers, to the application's registers."""
    restore: list[str]
    """Restores all other saved registers."""


def _inputs(isa: Isa, template: Template, binding: Binding) -> dict[int, list[str]]:
    """Return the copies of inputs that are not already in the right registers. For called payloads, callers copy
    them."""
    if binding.link is not None:
        return {}
    units, saved = dict(binding.units), dict(binding.saved)
    copies: dict[int, list[str]] = {}
    vectors: set[int] = set()
    for taken, source in zip(template.inputs, binding.sources, strict=True):
        destination = units.get(taken.unit, taken.unit)
        # A fixed unit may be overwritten before LLVM reads it as an input; its saved copy is always valid.
        origin = saved.get(source, source)
        if destination != origin:
            copies.setdefault(taken.position, []).extend(_input(isa, destination, origin))
            if destination in VGPRS:
                vectors.add(taken.position)
    for position in vectors:
        copies[position] += _behind_vectors(isa)
    return copies


def _behind_vectors(isa: Isa) -> list[str]:
    """Return assembly after copies to VGPRs. Instructions after a change of EXEC must not read them too early together
    with later results, and LLVM does not know of the copies."""
    target = isa.target.target
    return [target.lane_mask_wait] if lane_masks.matter(target, isa.wave_size) and target.lane_mask_wait else []


def _input(isa: Isa, destination: int, source: int) -> list[str]:
    """Return assembly that copies one input, also from launch state outside of registers."""
    target = isa.target.target
    if source in PRIVATE:
        return load_text(target, destination, private_offset(source))
    copy = [copy_text(destination, source)]
    return [*copy, *waits_around_outputs(target)[1]] if source in LANES else copy


def _own_numbers(template: Template, binding: Binding) -> dict[int, list[str]]:
    """Return moves of placeholders for the per-point numbers."""
    if binding.link is not None:
        return {}
    units = dict(binding.units)
    moves: dict[int, list[str]] = {}
    for own in template.immediates:
        name = unit_text(units.get(own.unit, own.unit))
        moves.setdefault(own.position, []).append(f"s_mov_b32 {name}, {_PLACEHOLDER:#x}")
    return moves


def _saving(isa: Isa, template: Template, binding: Binding, frame: int) -> list[str]:
    """Return assembly that saves overwritten registers: VGPRs, then SGPRs, possibly in lanes of these, then fixed
    registers, in SGPRs that are now free."""
    lines = spills_of(binding, frame, isa.target.target, isa.wave_size).save()
    if binding.lane_vgpr is not None:
        lanes = unit_text(binding.lane_vgpr)
        lines += [
            f"v_writelane_b32 {lanes}, {unit_text(unit)}, {lane}" for lane, unit in enumerate(binding.spilled_sgprs)
        ]
    lines += [copy_text(kept, fixed) for fixed, kept in binding.saved]
    if template.stack is not None:
        pointer = unit_text(dict(binding.units)[template.stack.pointer])
        lines.append(f"s_mov_b32 {pointer}, {frame + binding.spill_size:#x}")
    return lines


def _outputs(isa: Isa, template: Template, binding: Binding) -> list[str]:
    """Return parallel copies of outputs and saved fixed registers, since each may be the source of another."""
    target = isa.target.target
    copies = parallel_copy(last_copies(template, dict(binding.units), binding.saved), binding.spare)
    waits = waits_around_outputs(target)[0] if template.outputs else []
    return [*waits_behind(isa, template.code), *waits, *copies_settled(target, copies)]


def _restoring(isa: Isa, template: Template, binding: Binding, frame: int) -> list[str]:
    """Return assembly that restores SGPRs from lanes of a VGPR, then VGPRs, and waits for the loads."""
    target, lines = isa.target.target, list[str]()
    if binding.lane_vgpr is not None:
        lanes = unit_text(binding.lane_vgpr)
        lines += [
            f"v_readlane_b32 {unit_text(unit)}, {lanes}, {lane}" for lane, unit in enumerate(binding.spilled_sgprs)
        ]
        lines += waits_after_readlane(target)
    lines += spills_of(binding, frame, target, isa.wave_size).restore()
    called = binding.link is not None
    if not called and (binding.kept_m0 is not None or any(fixed == M0 for fixed, _ in binding.saved)):
        lines += waits_after_m0(target)
    if template.outputs:
        lines += waits_around_outputs(target)[1]
    return lines


class _PayloadWriter:
    """Writes a payload.

    Args:
        padded: instruction of the template -> number of s_nop before it, for branch offsets.

    Attributes:
        pieces: its bytes; its branches and addresses are still missing.
        instructions: number of instructions.
        immediates: byte offsets of per-point numbers.
        guarded: whether it begins with a branch to its end, for waves without active lanes.
        start_of: [instruction of the template] byte offset after the inputs before it, the target of branches to it.
        place_of: [instruction of the template] its byte offset.
        branch, landing: byte offsets of the branch for waves without active lanes, and of its target.
        size: bytes so far.
    """

    def __init__(
        self, isa: Isa, template: Template, binding: Binding, around: _Around, padded: Mapping[int, int]
    ) -> None:
        self._isa, self._template, self._binding, self._around = isa, template, binding, around
        self._padded = padded
        self.pieces: list[bytes] = []
        self.instructions = self.size = 0
        self.immediates: list[int] = []
        self.start_of: list[int] = []
        self.place_of: list[int] = []
        self.guarded = not template.runs_without_lanes and binding.link is None
        self._apart = isa.target.target.inserted_waits if binding.link is None else ()
        self.branch = self.landing = 0
        self._skipped = 0

    def begin(self, waits: Sequence[str], limits: Limits) -> None:
        """Write the waits for the application. The template's own waits are left out if `limits` replace them, and in
        called payloads, since the caller has waited."""
        self._add_text(self._apart)
        self.branch = self.size
        if self.guarded:
            self._add_text(["s_cbranch_execz 0"])
        self._add_text(waits)
        if self._binding.link is not None:
            self._skipped = self._template.waits
        elif limits is not None:
            self._skipped = self._template.waits
            self._add_text(wait_model(self._isa.target.target).text(limits))

    def write_body(self) -> None:
        """Write the template's instructions, with the assembly before and between them.

        Inputs are taken in the first block, before any branch target; all paths pass the outputs.
        """
        template, around = self._template, self._around
        body, offsets = _renamed_registers(self._isa, template, self._binding)
        # Every path through the payload passes its outputs, which only jumps to its end follow.
        leaving = template.outputs[0].position if template.outputs else len(template.code)
        for index in range(len(template.code) + 1):
            self._add_text(["s_nop 0"] * self._padded.get(index, 0))
            self._take_in(index)
            self.start_of.append(self.size)
            if index == leaving:
                self._add_text(around.outputs)
            self.place_of.append(self.size)
            if self._skipped <= index < len(template.code):
                self._add(body[offsets[index] : offsets[index + 1]], 1)

    def end(self) -> None:
        """Write what gives registers back, and the way back to who called the payload."""
        self._add_text(self._around.restore)
        if self.guarded:
            self._add_text(_padding(self._isa, self.size - self.branch))
        self.landing = self.size
        self._add_text(self._apart)
        if self._binding.link is not None:
            wait = self._isa.target.target.scalar_wait  # the application may have read by vectors what the call wrote
            self._add_text([*([] if wait is None else [wait]), f"s_setpc_b64 {_pair_text(self._binding.link)}"])

    def _take_in(self, index: int) -> None:
        """Write the assembly before an instruction of the template: saves registers after the template's waits, and
        takes inputs and per-point numbers."""
        lines = [*(self._around.save if index == self._template.waits else []), *self._around.inputs.get(index, [])]
        self._add_text(lines)
        numbers = self._around.numbers.get(index, [])
        for line in numbers:
            self._add_text([line])
            self.immediates.append(self.size - 4)
        lines += numbers
        self._add_text(settled(self._isa.target.target, lines)[len(lines) :])

    def _add_text(self, lines: Sequence[str]) -> None:
        if lines:
            self._add(*snippet(self._isa, "\n".join(lines)))

    def _add(self, code: bytes, instructions: int) -> None:
        self.pieces.append(code)
        self.size += len(code)
        self.instructions += instructions


def _wrong_branches(isa: Isa, template: Template, writer: _PayloadWriter) -> list[int]:
    """Return the targets of the template's branches with an offset that the hardware executes incorrectly."""
    if not isa.target.target.offset_3f_bug:
        return []
    return [
        destination
        for index, destination in template.branches.items()
        if writer.start_of[destination] - writer.place_of[index] == 4 + 4 * OFFSET_3F
    ]


def _set_branches(code: bytearray, template: Template, writer: _PayloadWriter) -> None:
    """Fill in the template's branches, and the one for waves without active lanes."""
    for index, destination in template.branches.items():
        _set_branch(code, writer.place_of[index], writer.start_of[destination])
    if writer.guarded:
        _set_branch(code, writer.branch, writer.landing)


class _ProgramCounters:
    """The results of a payload's s_getpc_b64, which are the bases of its addresses.

    Args:
        place_of: byte offset of each of the template's instructions.
    """

    def __init__(self, isa: Isa, template: Template, place_of: Sequence[int]) -> None:
        self._hook, self._place_of = template.hook, place_of
        names = (isa.opcode(int(number)).mnemonic for number in template.code.opcode)
        self._counters = [number for number, name in enumerate(names) if name in PROGRAM_COUNTER]

    def field(self, fixup: Fixup) -> int:
        """Return the byte offset of a field."""
        return self._place_of[fixup.instruction] + fixup.byte

    def distance(self, fixup: Fixup, instruction: int) -> int:
        """Return the bytes from the program counter of a field to an instruction of the template."""
        return self._place_of[instruction] - self._of(fixup)

    def references(self, fixup: Fixup) -> list[PayloadRelocation]:
        """Return the fields with the address of a symbol."""
        offset = self.field(fixup)
        distance = offset - self._of(fixup)
        if fixup.modifier == "rel64":  # two halves, each relative to its own address
            low = PayloadRelocation(offset, fixup.symbol, fixup.addend, False, distance)
            return [low, replace(low, offset=offset + 4, addend=low.addend + 4, high=True, distance=distance + 4)]
        return [PayloadRelocation(offset, fixup.symbol, fixup.addend, _is_high(fixup.modifier, self._hook), distance)]

    def _of(self, fixup: Fixup) -> int:
        """Return the byte offset that the s_getpc_b64 of a field reads."""
        before = bisect.bisect_left(self._counters, fixup.instruction)
        if not before:
            raise PatchError(f"hook {self._hook} refers to a symbol by an address that is not PC-relative")
        return self._place_of[self._counters[before - 1]] + 4


def _set_functions(code: bytearray, template: Template, counters: _ProgramCounters) -> None:
    """Fill in the offsets of functions in the template itself."""
    for fixup, function in template.functions:
        distance = counters.distance(fixup, function) & (1 << 64) - 1
        field = counters.field(fixup)
        if fixup.modifier == "rel64":
            code[field : field + 8] = distance.to_bytes(8, "little")
        else:
            half = distance >> 32 if _is_high(fixup.modifier, template.hook) else distance & 0xFFFFFFFF
            code[field : field + 4] = half.to_bytes(4, "little")


@functools.lru_cache(maxsize=4096)
def leftovers(isa: Isa, template: Template, binding: Binding, sources: tuple[int, ...]) -> Leftovers:
    """Return the SGPRs through which a payload can affect the application code after it.

    Args:
        sources: application unit for each of the template's inputs.
    """
    written = mask_of((*last_copies(template, dict(binding.units), binding.saved), *binding.spilled_sgprs))
    code = emit(isa, template, binding).code
    if binding.link is not None:
        code += emit_call(isa, template, binding, sources).code
    return Leftovers.of(isa, code, written)


@functools.lru_cache(maxsize=4096)
def forgotten_masks(isa: Isa, template: Template, binding: Binding) -> tuple[str, ...]:
    """Return assembly for a payload's end that makes hardware forget the payload's reads of lane masks."""
    restored = mask_of(last_copies(template, dict(binding.units), binding.saved))
    return lane_masks.behind(isa, emit(isa, template, binding).code, restored & ~mask_of(binding.spilled_sgprs))


@functools.lru_cache(maxsize=65536)
def emit_call(
    isa: Isa,
    template: Template,
    binding: Binding,
    sources: tuple[int, ...],
    waits: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
    limits: Limits = None,
) -> BoundPayload:
    """Return the call of a shared payload, with copies of inputs to its registers.

    Args:
        sources: application unit for each of the template's inputs.
        waits, after, limits: see `emit`.
    """
    assert binding.link is not None
    units = dict(binding.units)
    copies = [*waits]
    if limits is None:
        copies += [isa.text(template.code, index) for index in range(template.waits)]
    else:
        copies += wait_model(isa.target.target).text(limits)
    for taken, source in zip(template.inputs, sources, strict=True):
        copies += _input(isa, units[taken.unit], source)
    if any(units[taken.unit] in VGPRS for taken in template.inputs):
        copies += _behind_vectors(isa)
    numbers = [f"s_mov_b32 {unit_text(units[own.unit])}, {_PLACEHOLDER:#x}" for own in template.immediates]
    guard = [] if template.runs_without_lanes else ["s_cbranch_execz 0"]
    apart, few = snippet(isa, "\n".join(isa.target.target.inserted_waits))
    copied, count = snippet(isa, "\n".join([*guard, *copies, *numbers]))
    # No operations are outstanding when the payload is entered.
    settling = settled(isa.target.target, [*copies, *numbers])[len(copies) + len(numbers) :]
    waiting, waits_more = snippet(isa, "\n".join(settling))
    before = apart + copied + waiting
    call, _ = snippet(isa, f"s_call_b64 {_pair_text(binding.link)}, 0")
    behind, more = snippet(isa, "\n".join(after))
    if guard:
        padding, padded = snippet(isa, "\n".join(_padding(isa, len(copied + waiting + call + behind))))
        behind, more = behind + padding, more + padded
    code = bytearray(before + call + behind)
    if guard:
        _set_branch(code, len(apart), len(code))
    first = len(apart + copied) - 8 * len(numbers) + 4
    immediates = tuple(range(first, first + 8 * len(numbers), 8))
    instructions = count + waits_more + 1 + more + 2 * few
    return BoundPayload(bytes(code) + apart, (), instructions, immediates, len(before))


def _pair_text(unit: int) -> str:
    first = unit - SGPRS.start
    return f"s[{first}:{first + 1}]"


def _is_high(modifier: str, hook: str) -> bool:
    if modifier not in ("rel32@lo", "rel32@hi"):
        raise PatchError(
            f"hook {hook} refers to a symbol by relocation {modifier or 'plain'}, which is not PC-relative"
        )
    return modifier == "rel32@hi"


def _padding(isa: Isa, size: int) -> list[str]:
    """Return padding so that a branch over `size` bytes, including itself, has a valid offset."""
    return ["s_nop 0"] if isa.target.target.offset_3f_bug and size // 4 - 1 == OFFSET_3F else []


def _set_branch(code: bytearray, place: int, destination: int) -> None:
    """Fill in the 16-bit word offset of a branch inside a payload."""
    words = (destination - place - 4) // 4
    if not -32768 <= words <= 32767:
        raise PatchError(f"the payload has {len(code)} bytes, too many for its branches")
    code[place : place + 2] = words.to_bytes(2, "little", signed=True)
