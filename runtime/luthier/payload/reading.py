"""Conversion of a payload's assembly to a template."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from luthier.errors import DecodeError, HookError
from luthier.hazards.wait_counters.model import wait_model
from luthier.isa import Assembly, Fixup, InstructionArray, InstructionFlag, Isa, RegisterRange
from luthier.isa.registers import M0, SCC, SGPRS, VCC, VGPRS
from luthier.lifting.instructions.effects import Columns
from luthier.payload.arguments import PayloadAssembly
from luthier.payload.assembly_text import prepared, stack_size
from luthier.payload.groups import named_by, registers_of, written_by
from luthier.payload.template import Stack, Template, TemplateImmediate, TemplateInput, TemplateOutput

_LABEL = re.compile(r"luthier_(input|output)_(\d+)_(\w+)$")
_WAIT = re.compile(r"s_wait(cnt)?(_\w+)?$")
_LAST_WAITS = re.compile(
    r"(^[ \t]*s_wait(cnt(_\w+)?|_\w*cnt(_dscnt)?)[ \t][^\n]*\n)+(?=^[ \t]*s_branch luthier_end|^\"|^luthier_end:)",
    re.MULTILINE,
)
"""Waits for counters at the end of the payload."""
_WIDE_STORE = re.compile(r"_store_(?:dwordx[34]|b96|b128)\b")
"""Stores that need a wait state before the registers of their data are overwritten (Vega ISA 4.5, "Manually Inserted
Wait States")."""
_IDLE = re.compile(_WAIT.pattern + "|s_nop$|s_delay_alu$")
_STACK_POINTER = SGPRS[32]
"""Stack pointer of AMDGPUUsage, "Non-Kernel Functions"."""
_GROUPED = frozenset((*SGPRS, *VGPRS))
"""Units that are renamed."""
_HOLDERS = frozenset((*SGPRS, *VCC, M0, *VGPRS))
"""Units in which LLVM may keep a payload's values."""


def make_template(payload: PayloadAssembly, hook: str, isa: Isa) -> Template:
    """Convert a payload's assembly to a template.

    Raises:
        HookError: it uses something that cannot be spliced into a kernel, such as special registers.
    """
    text = prepared(payload.text, hook, isa)
    assembly = _assembled(text.text, payload, hook, isa)
    code, columns = assembly.instructions, Columns(assembly.instructions)
    links = _links(assembly, text.called)
    size = stack_size(payload.text, hook, 1 + len(text.called))
    pointer = [_STACK_POINTER] if size else []
    marks = _marks(assembly, payload, hook)
    outputs = _behind_epilogue(columns, isa, hook, marks.outputs, links.branches) if marks.outputs else marks.outputs
    waits = _leading_waits(columns, isa, marks)
    mnemonics = {isa.opcode(number).mnemonic for number in columns.opcode}
    takes_lane_values = any(name.startswith("v_readfirstlane") for name in mnemonics)
    marked = [*(taken.unit for taken in marks.taken_in), *(output.unit for output in outputs), *pointer]
    groups, written = registers_of(columns, isa, hook, marked, calls=bool(text.called))
    written |= {taken.unit for taken in marks.immediates}
    clobbers = frozenset((written | {taken.unit for taken in marks.inputs}) & {SCC, *VCC, M0})
    return Template(
        hook,
        code,
        waits,
        not payload.ordered and wait_model(isa.target.target).complete and not _has_flat_access(code),
        links.branches,
        tuple(links.references),
        tuple(links.functions),
        tuple(marks.inputs),
        tuple(sorted(marks.immediates, key=lambda taken: taken.position)),
        tuple(outputs),
        groups,
        written,
        clobbers,
        payload.runs_without_lanes and not takes_lane_values,
        payload.writes_inactive_lanes,
        _hands_in(columns, isa, waits, marks.taken_in, pointer),
        Stack(_STACK_POINTER, size) if size else None,
        payload.plain,
        payload.lds,
    )


def _assembled(text: str, payload: PayloadAssembly, hook: str, isa: Isa) -> Assembly:
    """Assemble a payload, without LLVM's waits at its end if no memory operation returns registers."""
    assembly = _assemble(text, hook, isa)
    if payload.ordered or _gives_registers(assembly.instructions, isa):
        return assembly
    text, count = _LAST_WAITS.subn("\ts_nop 0\n" if _WIDE_STORE.search(text) else "", text)
    return _assemble(text, hook, isa) if count else assembly


class _Links(Struct, frozen=True):
    """References in the instructions of a payload."""

    branches: dict[int, int]
    """Instruction -> its branch target."""
    references: list[Fixup]
    """Fields with the address of a symbol."""
    functions: list[tuple[Fixup, int]]
    """Fields with the address of a function of the payload, and its first instruction."""


def _links(assembly: Assembly, called: frozenset[str]) -> _Links:
    """Classify a payload's fixups: branches, references to its own functions, and references to symbols."""
    links = _Links({}, [], [])
    for fixup in assembly.fixups:
        if fixup.symbol in called:
            links.functions.append((fixup, assembly.labels[fixup.symbol]))
        elif fixup.symbol in assembly.labels:
            links.branches[fixup.instruction] = assembly.labels[fixup.symbol]
        else:
            links.references.append(fixup)
    return links


class _Marks(Struct, frozen=True):
    """The inputs and outputs of a payload."""

    inputs: list[TemplateInput]
    immediates: list[TemplateImmediate]
    outputs: list[TemplateOutput]

    @property
    def taken_in(self) -> list[TemplateInput | TemplateImmediate]:
        return [*self.inputs, *self.immediates]


def _marks(assembly: Assembly, payload: PayloadAssembly, hook: str) -> _Marks:
    """Find the markers, each with the register that LLVM chose."""
    marks = _Marks([], [], [])
    for label, position in assembly.labels.items():
        match = _LABEL.match(label)
        if match is None:
            continue
        unit = _unit_named(match[3], hook)
        if match[1] == "output":
            marks.outputs.append(TemplateOutput(position, unit, payload.outputs[int(match[2])]))
            continue
        source = payload.inputs[int(match[2])]
        if source.immediate:
            marks.immediates.append(TemplateImmediate(position, unit, source))
        else:
            marks.inputs.append(TemplateInput(position, unit, source))
    if len(marks.outputs) != len(payload.outputs):
        raise HookError(f"hook {hook}: LLVM duplicated or dropped a register write")
    return marks


def _leading_waits(columns: Columns, isa: Isa, marks: _Marks) -> int:
    """Return the number of waits at the beginning of the payload. They are for the application, and depend on the
    point."""
    waits, first = 0, min((taken.position for taken in marks.taken_in), default=len(columns.opcode))
    while waits < first and _WAIT.match(isa.opcode(columns.opcode[waits]).mnemonic):
        waits += 1
    return waits


def _assemble(text: str, hook: str, isa: Isa) -> Assembly:
    try:
        return isa.assemble(text)
    except DecodeError as problem:
        raise HookError(f"hook {hook}: LLVM's own output does not assemble: {problem}") from problem


def _gives_registers(code: InstructionArray, isa: Isa) -> bool:
    """Return whether memory operations of a payload may have outstanding result registers.

    In generations whose model is incomplete, they always may.
    """
    model = wait_model(isa.target.target)
    opcodes = [isa.opcode(number) for number in set(code.opcode.tolist())]
    issues = (issue for opcode in opcodes for gds in (False, True) for issue in model.issues(opcode, gds))
    return not model.complete or any(issue.registers for issue in issues)


def _has_flat_access(code: InstructionArray) -> bool:
    """Return whether an instruction may access both LDS and memory, in an order that only waits ensure."""
    flags = code.flags
    special = int(InstructionFlag.FLAT_GLOBAL | InstructionFlag.FLAT_SCRATCH)
    return bool(((flags & int(InstructionFlag.FLAT) != 0) & (flags & special == 0)).any())


def _behind_epilogue(
    columns: Columns, isa: Isa, hook: str, outputs: Sequence[TemplateOutput], branches: Mapping[int, int]
) -> list[TemplateOutput]:
    """Return the outputs at a position after which no code of the payload would see the new values.

    That is after the code that frees a frame, if it does not change the outputs.
    """
    end = len(columns.opcode)
    positions = {output.position for output in outputs}
    first = index = min(positions)
    idle = True
    results = {output.unit for output in outputs}
    overwritten = False
    while index < end and branches.get(index) != end:
        idle = idle and _IDLE.match(isa.opcode(columns.opcode[index]).mnemonic) is not None
        overwritten |= not results.isdisjoint(written_by(columns, isa, index))
        if index in branches or columns.code.flags[index] & (InstructionFlag.CALL | InstructionFlag.INDIRECT):
            overwritten = True
        index += 1
    entered = any(first < destination <= index for destination in branches.values() if destination != end)
    if len(positions) > 1 or (not idle and (overwritten or entered)):
        raise HookError(f"hook {hook}: LLVM placed code after its register writes")
    return list(outputs) if idle else [replace(output, position=index) for output in outputs]


def _hands_in(
    columns: Columns,
    isa: Isa,
    waits: int,
    taken_in: Sequence[TemplateInput | TemplateImmediate],
    reserved: Sequence[int],
) -> bool:
    """Return the value of `Template.hands_in`.

    Args:
        reserved: further units that have a value at the beginning.
    """
    units = [taken.unit for taken in taken_in]
    if len({*units, *reserved}) < len(units) + len(reserved) or not _GROUPED.issuperset(units):
        return False
    last = {taken.unit: taken.position for taken in taken_in}
    used: set[int] = set()
    for index in range(waits, max(last.values(), default=0)):
        used |= written_by(columns, isa, index) | named_by(columns, isa, index)
        if any(position > index and unit in used for unit, position in last.items()):
            return False
    return True


def _unit_named(name: str, hook: str) -> int:
    register = RegisterRange.parse(name)
    if register is None or register.count > 1 or register.first not in _HOLDERS:
        raise HookError(f"hook {hook}: LLVM placed a value in {name}, which is not supported")
    return register.first
