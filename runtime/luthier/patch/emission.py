"""A bound template as bytes: waits, saved state, copies of inputs, the body, copies of outputs, restored state."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from luthier.errors import PatchError
from luthier.mc import Isa, OperandKind
from luthier.patch.binding import Binding
from luthier.patch.hazards import waits_after_readlane
from luthier.payload.template import EXEC, M0, SCC, VCC, VGPRS, Template

AGPRS = range(512, 768)


@dataclass(frozen=True)
class Reference:
    """A 32-bit PC-relative field of a payload: ``symbol + addend - address of the field``, its low or high half."""

    offset: int
    """Byte offset of the field in the payload."""
    symbol: str
    addend: int
    high: bool


@dataclass(frozen=True)
class BoundPayload:
    """Bytes to splice in at one point, position independent but for `references`."""

    code: bytes
    references: tuple[Reference, ...]
    instructions: int


_SPECIAL = {VCC[0]: "vcc_lo", VCC[1]: "vcc_hi", M0: "m0", EXEC[0]: "exec_lo", EXEC[1]: "exec_hi"}


def unit_text(unit: int) -> str:
    """Assembly name of one register unit."""
    if unit in _SPECIAL:
        return _SPECIAL[unit]
    if unit in AGPRS:
        return f"a{unit - AGPRS.start}"
    if unit in VGPRS:
        return f"v{unit - VGPRS.start}"
    if 0 <= unit < VCC[0]:
        return f"s{unit}"
    raise PatchError(f"register unit {unit} cannot be copied")


def copy_text(destination: int, source: int) -> str:
    """Assembly that copies one register unit to another without touching anything else (writing SCC touches only
    SCC)."""
    if destination == SCC:
        return f"s_cmp_lg_u32 {unit_text(source)}, 0"
    if source == SCC:
        return f"s_cselect_b32 {unit_text(destination)}, 1, 0"
    to, from_ = unit_text(destination), unit_text(source)
    if destination in AGPRS:
        return f"v_accvgpr_write_b32 {to}, {from_}"
    if source in AGPRS:
        return f"v_accvgpr_read_b32 {to}, {from_}"
    if destination in VGPRS:
        return f"v_mov_b32_e32 {to}, {from_}"
    if source in VGPRS:
        raise PatchError(f"a vector register ({from_}) has no single value for {to}")
    return f"s_mov_b32 {to}, {from_}"


@functools.lru_cache(maxsize=65536)
def _snippet(isa: Isa, text: str) -> tuple[bytes, int]:
    assembly = isa.assemble(text)
    return assembly.instructions.code, len(assembly.instructions)


@functools.lru_cache(maxsize=4096)
def _renamed_registers(isa: Isa, template: Template, binding: Binding) -> tuple[bytes, tuple[int, ...]]:
    """The template's body encoded with the binding's registers, and each instruction's byte offset (and the end)."""
    units = dict(binding.units)
    values = template.code.operand_value.copy()
    for position in np.flatnonzero(template.code.operand_kind == OperandKind.REGISTER):
        register = int(values[position])
        first, count = int(isa.register_first_unit[register]), int(isa.register_unit_count[register])
        if first not in units:
            continue
        renamed = isa.register_at(units[first], count)
        if renamed is None:
            raise PatchError(f"no register of {count} units at unit {units[first]}", target=str(isa.target))
        values[position] = renamed
    code, offsets = isa.encode(replace(template.code, operand_value=values))
    return code, (*(int(offset) for offset in offsets[: len(template.code)]), len(code))


def emit(
    isa: Isa, template: Template, binding: Binding, waits: tuple[str, ...] = (), after: tuple[str, ...] = ()
) -> BoundPayload:
    """The bytes of a payload. `references` still want addresses.

    Args:
        waits: assembly to begin with, what the seam between application and payload needs (`luthier.patch.hazards`).
        after: assembly to end with.
    """
    body, offsets = _renamed_registers(isa, template, binding)
    units, saved = dict(binding.units), dict(binding.saved)
    before: dict[int, list[str]] = {}
    for taken, source in zip(template.inputs, binding.sources, strict=True):
        destination = units.get(taken.unit, taken.unit)
        # A fixed unit may already be overwritten where LLVM takes it in: its saved copy is right everywhere.
        origin = saved.get(source, source)
        if destination != origin:
            before.setdefault(taken.position, []).append(copy_text(destination, origin))
    for output in template.outputs:
        origin = units.get(output.unit, output.unit)
        if output.destination != origin:
            before.setdefault(output.position, []).append(copy_text(output.destination, origin))
    restore = [copy_text(fixed, kept) for fixed, kept in sorted(binding.saved, reverse=True) if fixed != SCC]
    if SCC in saved:
        restore.append(copy_text(SCC, saved[SCC]))
    save = [copy_text(kept, fixed) for fixed, kept in binding.saved]
    if binding.parking is not None:
        lanes = unit_text(binding.parking)
        park = [f"v_writelane_b32 {lanes}, {unit_text(unit)}, {lane}" for lane, unit in enumerate(binding.parked)]
        unpark = [f"v_readlane_b32 {unit_text(unit)}, {lanes}, {lane}" for lane, unit in enumerate(binding.parked)]
        save = park + save
        restore += [*unpark, *waits_after_readlane(isa.target.target)]

    pieces: list[bytes] = []
    instructions = 0
    start_of: list[int] = []  # byte offset of the copies before each instruction: where branches to it go
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

    guarded = not template.runs_without_lanes
    if guarded:
        add(*_snippet(isa, "s_cbranch_execz 0"))
    add_text(list(waits))
    for index in range(len(template.code) + 1):
        if index == template.waits:
            add_text(save)
        start_of.append(size)
        add_text(before.get(index, []))
        place_of.append(size)
        if index < len(template.code):
            add(body[offsets[index] : offsets[index + 1]], 1)
    add_text([*restore, *after])

    code = bytearray(b"".join(pieces))
    for index, destination in template.branches.items():
        _set_branch(code, place_of[index], start_of[destination])
    if guarded:
        _set_branch(code, 0, size)
    references = tuple(
        Reference(
            place_of[fixup.instruction] + fixup.byte,
            fixup.symbol,
            fixup.addend,
            _is_high(fixup.modifier, template.hook),
        )
        for fixup in template.fixups
    )
    return BoundPayload(bytes(code), references, instructions)


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
