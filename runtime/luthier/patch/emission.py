"""A bound template as bytes: waits, saved state, copies of inputs, the body, copies of outputs, restored state."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from luthier.errors import PatchError
from luthier.isa import Fixup, Isa, OperandKind
from luthier.isa.registers import M0, SGPRS, mask_of
from luthier.isa.waits import Limit, wait_model
from luthier.patch import lane_masks
from luthier.patch.binding import Binding, last_copies
from luthier.patch.copies import LANES, copy_text, parallel_copy, unit_text
from luthier.patch.frame import spills_of
from luthier.patch.hazards import waits_after_m0, waits_after_readlane, waits_around_outputs
from luthier.patch.scalar_reads import Leftovers, copies_settled, settled
from luthier.payload.template import Template

ORIGINAL = "luthier.original"
"""Symbol of what is added to the original's virtual addresses where it is loaded."""
PROGRAM_COUNTER = ("s_getpc_b64", "s_get_pc_i64")
"""What LLVM calls the instruction that reads it, by generation."""


Limits = tuple[Limit, ...] | None
"""What a payload waits for before it touches registers; None: for everything."""


@dataclass(frozen=True)
class Reference:
    """A 32-bit field of a payload: the low or high half of ``symbol + addend``, less the address of the field if it is
    PC-relative."""

    offset: int
    """Byte offset of the field in the payload."""
    symbol: str
    addend: int
    high: bool
    distance: int
    """Bytes from what the payload's s_getpc_b64 gives, which the field is added to, to the field; 0 if the field is not
    PC-relative."""

    @property
    def key(self) -> tuple[str, int, bool, int]:
        """Everything but the place."""
        return self.symbol, self.addend, self.high, self.distance


@dataclass(frozen=True)
class BoundPayload:
    """Bytes to splice in at one point, position independent but for `references`."""

    code: bytes
    references: tuple[Reference, ...]
    instructions: int
    immediates: tuple[int, ...] = ()
    """Byte offsets of the 32-bit numbers that each point has of its own, in the order of `Template.immediates`."""
    call: int | None = None
    """Byte offset of an s_call_b64 of a payload that is placed once, whose offset is not known yet."""

    def with_numbers(self, numbers: Sequence[int]) -> BoundPayload:
        """The payload of one point, given its own numbers."""
        code = bytearray(self.code)
        for offset, number in zip(self.immediates, numbers, strict=True):
            code[offset : offset + 4] = number.to_bytes(4, "little")
        return replace(self, code=bytes(code), immediates=())


def join(payloads: Sequence[BoundPayload]) -> BoundPayload:
    """One after the other."""
    code = b""
    references: list[Reference] = []
    for payload in payloads:
        references += [replace(field, offset=len(code) + field.offset) for field in payload.references]
        code += payload.code
    return BoundPayload(code, tuple(references), sum(payload.instructions for payload in payloads))


@functools.lru_cache(maxsize=65536)
def _snippet(isa: Isa, text: str) -> tuple[bytes, int]:
    assembly = isa.assemble(text)
    return assembly.instructions.code, len(assembly.instructions)


def assemble_payload(isa: Isa, lines: Iterable[str]) -> BoundPayload:
    """Assembly text as a payload."""
    code, instructions = _snippet(isa, "\n".join(lines))
    return BoundPayload(code, (), instructions)


_PLACEHOLDER = 0x7EAD1234
"""What stands for a point's own number: one that no shorter encoding has."""


@functools.lru_cache(maxsize=1024)
def _renamable(isa: Isa, template: Template) -> tuple[list[int], list[tuple[int, int]]]:
    """Which of the body's operands name registers of its groups, and the register and its first unit of each."""
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
    """The template's body encoded with the binding's registers, and each instruction's byte offset (and the end)."""
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
        waits: assembly to begin with, what the seam between application and payload needs (`luthier.patch.hazards`).
        after: assembly to end with.
        settle: assembly before anything else is done, where nothing that the payload touches is on its way any more.
        limits: what to wait for instead of what the template waits for; None: for that.
    """
    body, offsets = _renamed_registers(isa, template, binding)
    units, saved = dict(binding.units), dict(binding.saved)
    called = binding.link is not None
    taken_in: dict[int, list[str]] = {}
    for taken, source in zip(template.inputs if not called else (), binding.sources, strict=True):
        destination = units.get(taken.unit, taken.unit)
        # A fixed unit may already be overwritten where LLVM takes it in: its saved copy is right everywhere.
        origin = saved.get(source, source)
        if destination != origin:
            taken_in.setdefault(taken.position, []).append(copy_text(destination, origin))
            if origin in LANES:
                taken_in[taken.position] += waits_around_outputs(isa.target.target)[1]
    numbers: dict[int, list[str]] = {}
    for own in template.immediates if not called else ():
        name = unit_text(units.get(own.unit, own.unit))
        numbers.setdefault(own.position, []).append(f"s_mov_b32 {name}, {_PLACEHOLDER:#x}")
    # Every way through the payload comes past its outputs, and nothing but jumps to its end follows.
    leaving = template.outputs[0].position if template.outputs else len(template.code)
    target = isa.target.target
    restore = copies_settled(target, parallel_copy(last_copies(template, units, binding.saved), binding.spare))
    save = [copy_text(kept, fixed) for fixed, kept in binding.saved]
    final: list[str] = []
    if binding.parking is not None:
        lanes = unit_text(binding.parking)
        park = [f"v_writelane_b32 {lanes}, {unit_text(unit)}, {lane}" for lane, unit in enumerate(binding.parked)]
        unpark = [f"v_readlane_b32 {unit_text(unit)}, {lanes}, {lane}" for lane, unit in enumerate(binding.parked)]
        save = park + save
        final = [*unpark, *waits_after_readlane(isa.target.target)]
    spills = spills_of(binding, frame, isa.target.target, isa.wave_size)
    save = spills.save() + save
    final += spills.restore()
    if not called and (binding.kept_m0 is not None or any(fixed == M0 for fixed, _ in binding.saved)):
        final += waits_after_m0(target)
    if template.stack is not None:
        save.append(f"s_mov_b32 {unit_text(units[template.stack.pointer])}, {frame + binding.spill_size:#x}")
    save = [*settle, *save]
    if template.outputs:
        waits_before, waits_after = waits_around_outputs(isa.target.target)
        restore = waits_before + restore
        final += waits_after

    pieces: list[bytes] = []
    immediates: list[int] = []
    instructions = 0
    # Inputs are taken in the first block, before any place that is branched to; all branches come past the outputs.
    start_of: list[int] = []  # byte offset behind the inputs before each instruction: where branches to it go
    place_of: list[int] = []  # byte offset of the instruction itself
    size = 0

    def add(code: bytes, count: int) -> None:
        nonlocal size, instructions
        pieces.append(code)
        size += len(code)
        instructions += count

    def add_text(lines: list[str]) -> None:
        if lines:
            add(*_snippet(isa, "\n".join(lines)))

    guarded = not template.runs_without_lanes and not called
    if guarded:
        add(*_snippet(isa, "s_cbranch_execz 0"))
    add_text(list(waits))
    skipped = 0
    if called:
        skipped = template.waits
    elif limits is not None:
        skipped = template.waits
        add_text(list(wait_model(isa.target.target).text(limits)))
    for index in range(len(template.code) + 1):
        taken_here = [*(save if index == template.waits else []), *taken_in.get(index, [])]
        add_text(taken_here)
        for line in numbers.get(index, []):
            add_text([line])
            immediates.append(size - 4)
        taken_here += numbers.get(index, [])
        add_text(settled(target, taken_here)[len(taken_here) :])
        start_of.append(size)
        if index == leaving:
            add_text(restore)
        place_of.append(size)
        if skipped <= index < len(template.code):
            pieces.append(body[offsets[index] : offsets[index + 1]])
            size += offsets[index + 1] - offsets[index]
    instructions += len(template.code) - skipped
    add_text([*final, *after])
    if binding.link is not None:
        wait = target.scalar_wait  # vector instructions of the application may have read what the call wrote
        add_text([*([] if wait is None else [wait]), f"s_setpc_b64 {_pair_text(binding.link)}"])

    code = bytearray(b"".join(pieces))
    for index, destination in template.branches.items():
        _set_branch(code, place_of[index], start_of[destination])
    if guarded:
        _set_branch(code, 0, size)
    counters = [number for number, name in enumerate(_mnemonics(isa, template)) if name in PROGRAM_COUNTER]

    def counter_of(fixup: Fixup) -> int:
        """What the program counter was where the reference's s_getpc_b64 read it."""
        before = bisect.bisect_left(counters, fixup.instruction)
        if not before:
            raise PatchError(f"hook {template.hook} refers to a symbol without the program counter")
        return place_of[counters[before - 1]] + 4

    for fixup, function in template.functions:
        distance = (place_of[function] - counter_of(fixup)) & (1 << 64) - 1
        field = place_of[fixup.instruction] + fixup.byte
        if fixup.modifier == "rel64":
            code[field : field + 8] = distance.to_bytes(8, "little")
        else:
            half = distance >> 32 if _is_high(fixup.modifier, template.hook) else distance & 0xFFFFFFFF
            code[field : field + 4] = half.to_bytes(4, "little")

    def reference(fixup: Fixup) -> list[Reference]:
        offset = place_of[fixup.instruction] + fixup.byte
        counter = counter_of(fixup)
        if fixup.modifier == "rel64":  # two halves, and each is relative to where it is
            low = Reference(offset, fixup.symbol, fixup.addend, False, offset - counter)
            return [low, replace(low, offset=offset + 4, addend=low.addend + 4, high=True, distance=low.distance + 4)]
        high = _is_high(fixup.modifier, template.hook)
        return [Reference(offset, fixup.symbol, fixup.addend, high, offset - counter)]

    return BoundPayload(
        bytes(code),
        tuple(field for fixup in template.fixups for field in reference(fixup)),
        instructions,
        tuple(immediates),
    )


@functools.lru_cache(maxsize=4096)
def leftovers(isa: Isa, template: Template, binding: Binding, sources: tuple[int, ...]) -> Leftovers:
    """By which SGPRs a payload meets the application behind it.

    Args:
        sources: application unit for each of the template's inputs.
    """
    written = mask_of((*last_copies(template, dict(binding.units), binding.saved), *binding.parked))
    code = emit(isa, template, binding).code
    if binding.link is not None:
        code += emit_call(isa, template, binding, sources).code
    return Leftovers.of(isa, code, written)


@functools.lru_cache(maxsize=4096)
def forgotten_masks(isa: Isa, template: Template, binding: Binding) -> tuple[str, ...]:
    """Assembly to end a payload with, after which nothing that it has read as a lane mask counts as read."""
    restored = mask_of(last_copies(template, dict(binding.units), binding.saved))
    return lane_masks.behind(isa, emit(isa, template, binding).code, restored & ~mask_of(binding.parked))


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
    """What stands in the place of a payload that is called: it puts inputs where that wants them.

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
        copies.append(copy_text(units[taken.unit], source))
        if source in LANES:
            copies += waits_around_outputs(isa.target.target)[1]
    numbers = [f"s_mov_b32 {unit_text(units[own.unit])}, {_PLACEHOLDER:#x}" for own in template.immediates]
    guard = [] if template.runs_without_lanes else ["s_cbranch_execz 0"]
    copied, count = _snippet(isa, "\n".join([*guard, *copies, *numbers]))
    # The payload is entered with nothing on its way.
    settling = settled(isa.target.target, [*copies, *numbers])[len(copies) + len(numbers) :]
    waiting, waits_more = _snippet(isa, "\n".join(settling))
    before = copied + waiting
    call, _ = _snippet(isa, f"s_call_b64 {_pair_text(binding.link)}, 0")
    behind, more = _snippet(isa, "\n".join(after))
    code = bytearray(before + call + behind)
    if guard:
        _set_branch(code, 0, len(code))
    first = len(copied) - 8 * len(numbers) + 4
    immediates = tuple(range(first, first + 8 * len(numbers), 8))
    return BoundPayload(bytes(code), (), count + waits_more + 1 + more, immediates, len(before))


def _pair_text(unit: int) -> str:
    first = unit - SGPRS.start
    return f"s[{first}:{first + 1}]"


def _mnemonics(isa: Isa, template: Template) -> list[str]:
    return [isa.opcode(int(number)).mnemonic for number in template.code.opcode]


def _is_high(modifier: str, hook: str) -> bool:
    if modifier not in ("rel32@lo", "rel32@hi"):
        raise PatchError(f"hook {hook} refers to a symbol in a way that is not PC-relative ({modifier or 'plain'})")
    return modifier == "rel32@hi"


def _set_branch(code: bytearray, place: int, destination: int) -> None:
    """Fill the 16-bit word offset of a branch in one payload."""
    words = (destination - place - 4) // 4
    if not -32768 <= words <= 32767:
        raise PatchError(f"a payload of {len(code)} bytes is too long for its own branches")
    code[place : place + 2] = words.to_bytes(2, "little", signed=True)
