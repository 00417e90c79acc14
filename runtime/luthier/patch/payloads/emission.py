"""A bound template as bytes: waits, saved state, copies of inputs, the body, copies of outputs, restored state."""

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
"""LLVM's names of the instruction that reads the program counter, by generation."""

Limits = tuple[Limit, ...] | None
"""Counters that a payload waits for before it accesses registers; None: for everything."""

_PLACEHOLDER = 0x7EAD1234
"""Placeholder for a point's own number: a literal that no shorter encoding has."""


@functools.lru_cache(maxsize=1024)
def _renamable(isa: Isa, template: Template) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the positions of the body's operands that name registers of its groups.

    Also return the register and the first unit of each.
    """
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
    """Return the template's body encoded with the binding's registers, and byte offsets of instructions and the end."""
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
    """The bytes of a payload, or of one that is called, if its binding is for that. `references` still want addresses.

    Args:
        frame: byte offset, within a lane's private memory, of what the payload may use.
        waits: assembly to begin with, what the boundary between application and payload needs
            (`luthier.hazards.insertion`).
        after: assembly to end with.
        settle: assembly before anything else is done, where nothing that the payload touches is on its way any more.
        limits: what to wait for instead of what the template waits for; None: for that.
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
    """Assembly that stands around the instructions of a template, and between them."""

    save: list[str]
    """Keeps what the payload overwrites, before the first input is taken."""
    inputs: Mapping[int, list[str]]
    """Instruction of the template -> copies of the inputs that are taken before it."""
    numbers: Mapping[int, list[str]]
    """Instruction of the template -> moves of the numbers that each point has of its own."""
    outputs: list[str]
    """Copies the outputs, and what was kept in fixed places, to where the application has them."""
    restore: list[str]
    """Gives back all else that was kept."""


def _inputs(isa: Isa, template: Template, binding: Binding) -> dict[int, list[str]]:
    """Copies of the inputs, where the application does not have them in the right registers already. Whoever calls a
    payload has done that."""
    if binding.link is not None:
        return {}
    units, saved = dict(binding.units), dict(binding.saved)
    copies: dict[int, list[str]] = {}
    vectors: set[int] = set()
    for taken, source in zip(template.inputs, binding.sources, strict=True):
        destination = units.get(taken.unit, taken.unit)
        # A fixed unit may already be overwritten where LLVM reads it as an input; its saved copy is valid everywhere.
        origin = saved.get(source, source)
        if destination != origin:
            copies.setdefault(taken.position, []).extend(_input(isa, destination, origin))
            if destination in VGPRS:
                vectors.add(taken.position)
    for position in vectors:
        copies[position] += _behind_vectors(isa)
    return copies


def _behind_vectors(isa: Isa) -> list[str]:
    """Return assembly behind copies to VGPRs: after a change of EXEC they must not be read too soon together with what
    is written behind it, and LLVM does not know of the copies."""
    target = isa.target.target
    return [target.lane_mask_wait] if lane_masks.matter(target, isa.wave_size) and target.lane_mask_wait else []


def _input(isa: Isa, destination: int, source: int) -> list[str]:
    """Copy one input, also from where launch state is kept that is in no register."""
    target = isa.target.target
    if source in PRIVATE:
        return load_text(target, destination, private_offset(source))
    copy = [copy_text(destination, source)]
    return [*copy, *waits_around_outputs(target)[1]] if source in LANES else copy


def _own_numbers(template: Template, binding: Binding) -> dict[int, list[str]]:
    """Moves of the numbers that each point has of its own, into which the point's are written later."""
    if binding.link is not None:
        return {}
    units = dict(binding.units)
    moves: dict[int, list[str]] = {}
    for own in template.immediates:
        name = unit_text(units.get(own.unit, own.unit))
        moves.setdefault(own.position, []).append(f"s_mov_b32 {name}, {_PLACEHOLDER:#x}")
    return moves


def _saving(isa: Isa, template: Template, binding: Binding, frame: int) -> list[str]:
    """Keep what is overwritten: VGPRs first, in whose lanes SGPRs may go then, and fixed places last, which are copied
    to SGPRs that are free by now."""
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
    """Copy outputs at once with what was kept in fixed places: each may be where another one comes from."""
    target = isa.target.target
    copies = parallel_copy(last_copies(template, dict(binding.units), binding.saved), binding.spare)
    waits = waits_around_outputs(target)[0] if template.outputs else []
    return [*waits_behind(isa, template.code), *waits, *copies_settled(target, copies)]


def _restoring(isa: Isa, template: Template, binding: Binding, frame: int) -> list[str]:
    """Give back SGPRs from the lanes of a VGPR, then VGPRs, and wait until the application may read them."""
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
    """Puts a payload together.

    Args:
        padded: instructions of the template before which there are so many s_nop, for the distances of branches.

    Attributes:
        pieces: its bytes; its own branches and addresses are still to be filled in.
        instructions: how many they are.
        immediates: byte offsets of the numbers that each point has of its own.
        guarded: whether it begins with a branch to its end, for waves without lanes.
        start_of: [instruction of the template] byte offset behind the inputs before it: where branches to it go.
        place_of: [instruction of the template] its own byte offset.
        branch, landing: byte offsets of the branch for waves without lanes, if it is guarded, and of where it goes.
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
        """Write what waits for the application. The template's own waits are left out where `limits` say for what, and
        in a payload that is called, since who calls it has waited."""
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
        """Write the template's instructions, with what is to be done before and between them.

        Inputs are taken in the first block, before any place that is branched to; all branches come past the outputs.
        """
        template, around = self._template, self._around
        body, offsets = _renamed_registers(self._isa, template, self._binding)
        # Every path through the payload comes past its outputs, and nothing but jumps to its end follows.
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
        """Write what is done before an instruction of the template: registers are kept where the template has waited,
        and inputs and own numbers are there where they are read."""
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
    """Return the instructions that branches of the template go to over a distance which they do not take."""
    if not isa.target.target.offset_3f_bug:
        return []
    return [
        destination
        for index, destination in template.branches.items()
        if writer.start_of[destination] - writer.place_of[index] == 4 + 4 * OFFSET_3F
    ]


def _set_branches(code: bytearray, template: Template, writer: _PayloadWriter) -> None:
    """Fill in the template's branches, and the one for waves without lanes."""
    for index, destination in template.branches.items():
        _set_branch(code, writer.place_of[index], writer.start_of[destination])
    if writer.guarded:
        _set_branch(code, writer.branch, writer.landing)


class _ProgramCounters:
    """The bases of addresses that a payload makes: what its s_getpc_b64 give.

    Args:
        place_of: byte offset of each of the template's instructions.
    """

    def __init__(self, isa: Isa, template: Template, place_of: Sequence[int]) -> None:
        self._hook, self._place_of = template.hook, place_of
        names = (isa.opcode(int(number)).mnemonic for number in template.code.opcode)
        self._counters = [number for number, name in enumerate(names) if name in PROGRAM_COUNTER]

    def field(self, fixup: Fixup) -> int:
        """Byte offset of a field."""
        return self._place_of[fixup.instruction] + fixup.byte

    def distance(self, fixup: Fixup, instruction: int) -> int:
        """Bytes from the program counter that a field is relative to, to an instruction of the template."""
        return self._place_of[instruction] - self._of(fixup)

    def references(self, fixup: Fixup) -> list[PayloadRelocation]:
        """The fields that wait for the address of a symbol."""
        offset = self.field(fixup)
        distance = offset - self._of(fixup)
        if fixup.modifier == "rel64":  # two halves, each relative to its own address
            low = PayloadRelocation(offset, fixup.symbol, fixup.addend, False, distance)
            return [low, replace(low, offset=offset + 4, addend=low.addend + 4, high=True, distance=distance + 4)]
        return [PayloadRelocation(offset, fixup.symbol, fixup.addend, _is_high(fixup.modifier, self._hook), distance)]

    def _of(self, fixup: Fixup) -> int:
        """Return what the program counter was where the s_getpc_b64 of a field read it."""
        before = bisect.bisect_left(self._counters, fixup.instruction)
        if not before:
            raise PatchError(f"hook {self._hook} refers to a symbol without the program counter")
        return self._place_of[self._counters[before - 1]] + 4


def _set_functions(code: bytearray, template: Template, counters: _ProgramCounters) -> None:
    """Fill in the distances to functions of the template itself, which nothing moves."""
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
    """Return assembly for a payload's end, after which nothing that it has read as a lane mask counts as read."""
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
    """Return the code in the place of a payload that is called: it puts inputs where the payload takes them.

    Args:
        sources: application unit for each of the template's inputs.
        waits, after, limits: as of `emit`.
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
    # The payload is entered with nothing outstanding.
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
        raise PatchError(f"hook {hook} refers to a symbol in a way that is not PC-relative ({modifier or 'plain'})")
    return modifier == "rel32@hi"


def _padding(isa: Isa, size: int) -> list[str]:
    """Return assembly behind which a branch over so many bytes, its own included, may land."""
    return ["s_nop 0"] if isa.target.target.offset_3f_bug and size // 4 - 1 == OFFSET_3F else []


def _set_branch(code: bytearray, place: int, destination: int) -> None:
    """Fill the 16-bit word offset of a branch in one payload."""
    words = (destination - place - 4) // 4
    if not -32768 <= words <= 32767:
        raise PatchError(f"a payload of {len(code)} bytes is too long for its own branches")
    code[place : place + 2] = words.to_bytes(2, "little", signed=True)
