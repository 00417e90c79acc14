"""A payload as instructions with symbolic registers.

A `Template` is what LLVM made of a hook, taken off the registers LLVM happened to choose: register *groups* (tuples
that must stay together) are renamed at each point by a binding (`luthier.patch.binding`).
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from luthier.errors import DecodeError, HookError
from luthier.isa import Assembly, Fixup, InstructionArray, InstructionFlag, Isa, RegisterRange
from luthier.isa.registers import EXEC, M0, SCC, SGPRS, UNTRACKED, VCC, VGPRS, mask_of
from luthier.isa.waits import wait_model
from luthier.lifting.instructions.effects import Columns, register_lists
from luthier.payload.codegen import Input, PayloadAssembly
from luthier.payload.kept import kept_numbers
from luthier.payload.plain import PlainCount


@dataclass(frozen=True)
class Group:
    """Neighbouring template registers that tuples tie together."""

    first: int
    """Lowest unit in the template."""
    count: int
    alignment: int
    """A new place must equal `first` modulo this."""
    below: int
    """A new place of `first` must lie below this: short encodings of 16-bit operations name 128 VGPRs only."""


@dataclass(frozen=True)
class TemplateInput:
    """Where the payload takes an input: before instruction `position`, into register unit `unit`."""

    position: int
    unit: int
    source: Input


@dataclass(frozen=True)
class TemplateImmediate:
    """Where the payload takes a number of the point's own: before instruction `position`, into register unit
    `unit`."""

    position: int
    unit: int
    source: Input


@dataclass(frozen=True)
class TemplateOutput:
    """Where the payload hands a result over: before instruction `position`, from `unit` to application unit
    `destination`."""

    position: int
    unit: int
    destination: int


@dataclass(frozen=True)
class Stack:
    """The private memory that a payload needs."""

    pointer: int
    """SGPR unit in which it expects the byte offset of its frame, from the beginning of a lane's private memory."""
    size: int
    """Bytes a lane."""


@dataclass(frozen=True, eq=False)  # equal only to itself: bindings are cached by template
class Template:
    """A payload's instructions, without its leading waits and its return; then the functions that it calls."""

    hook: str
    code: InstructionArray
    waits: int
    """Leading instructions of `code` that only wait for outstanding memory operations."""
    relaxed: bool
    """They need wait for nothing but the registers that the payload touches."""
    branches: Mapping[int, int]
    """Instruction index -> index it branches to (len(code): the end)."""
    fixups: tuple[Fixup, ...]
    """References to variables."""
    functions: tuple[tuple[Fixup, int], ...]
    """References to the functions in `code`, with the index of each one's first instruction."""
    inputs: tuple[TemplateInput, ...]
    immediates: tuple[TemplateImmediate, ...]
    """By position."""
    outputs: tuple[TemplateOutput, ...]
    groups: tuple[Group, ...]
    written: frozenset[int]
    """Template units that some instruction writes, or an immediate is put into."""
    clobbers: frozenset[int]
    """Units with a fixed place that it overwrites, inputs put there included: SCC, VCC, M0."""
    runs_without_lanes: bool
    """It has an effect with EXEC 0, and no value in it depends on an active lane."""
    writes_inactive_lanes: bool
    hands_in: bool
    """Its inputs and immediates may be in their places from its beginning: nothing else uses these before."""
    stack: Stack | None = None
    plain: PlainCount | None = None
    """What it counts, if it does nothing else."""
    lds: int = 0
    """Bytes of LDS that a work-group needs more."""

    @functools.cached_property
    def clobber_mask(self) -> int:
        """`clobbers` as a bit set."""
        return mask_of(self.clobbers)

    @functools.cached_property
    def handed(self) -> frozenset[int]:
        """Units that inputs and immediates are put into."""
        return frozenset([*(one.unit for one in self.inputs), *(one.unit for one in self.immediates)])

    @functools.cached_property
    def destinations(self) -> int:
        """Bit set of the application's units it gives new values."""
        return mask_of(output.destination for output in self.outputs)


_MARKER = re.compile(r"^\s*; luthier\.(input|output) (\d+) (\w+)\s*$", re.MULTILINE)
_LABEL = re.compile(r"luthier_(input|output)_(\d+)_(\w+)$")
_MARKER_AT_LABEL = re.compile(
    r"^(luthier_\w+:\n(?:[ \t]*(?:;[^\n]*)?\n)*)(?=(?:[ \t]*(?:;[^\n]*)?\n)*[.\w$]*BB\d+_\d+:)", re.MULTILINE
)
"""A marker, and then a label: they stand before the same instruction, but a branch to the label (a loop) must not come
by the marker again."""
_RETURN = re.compile(r"^[ \t]*s_set(?:pc_b64|_pc_i64) s\[30:31\][ \t]*\n", re.MULTILINE)
_WAIT = re.compile(r"s_wait(cnt)?(_\w+)?$")
_LAST_WAITS = re.compile(
    r"(^[ \t]*s_wait(cnt(_\w+)?|_\w*cnt(_dscnt)?)[ \t][^\n]*\n)+(?=^[ \t]*s_branch luthier_end|^\"|^luthier_end:)",
    re.MULTILINE,
)
"""Waits for counters before the payload ends."""
_WIDE_STORE = re.compile(r"_store_(?:dwordx[34]|b96|b128)\b")
"""What wants a wait state before the registers it takes data from are overwritten (Vega ISA 4.5, "Manually Inserted
Wait States")."""
_INDEXED = re.compile("movrel|gpr_idx")
"""Instructions through which registers are named by a number that is known only when they run."""
_JOIN = re.compile(r"\S*BB\d+_\d+:")
"""A label of LLVM's, where ways may join."""
_SCALAR_READS_VCC = re.compile(r"[ \t]*s_(cbranch_vcc|(bit)?cmpk?\w*[ \t][^\n]*\bvcc|\w+[ \t][^\n,]*,[^\n]*\bvcc)")
_SETTLES_VCC = {
    32: re.compile(r"[ \t]*(s_wait_alu[^\n]*sa_sdst\(0\)|[sv]_\w+[ \t]+vcc_lo,)"),
    64: re.compile(r"[ \t]*(s_wait_alu[^\n]*sa_sdst\(0\)|[sv]_\w+[ \t]+vcc,)"),
}
"""By lanes of a wave: behind it VCC is what one instruction wrote, or it was waited for."""
_IDLE = re.compile(_WAIT.pattern + "|s_nop$|s_delay_alu$")


RECURSION_BYTES = 16384
"""Private memory for functions that call themselves, or are called through pointers: nobody knows how much they need.
LLVM assumes as much for functions that it does not know (``amdgpu-assume-external-call-stack-size``)."""
_STACK_ALIGNMENT = 16
_STACK_POINTER = SGPRS[32]
"""Where AMDGPUUsage, "Non-Kernel Functions", puts it."""
_SETTING = re.compile(
    r"^[ \t]*\.set (?:\.L)?\"?(?:\.L)?[^\s,]*?\."
    r"(has_dyn_sized_stack|has_indirect_call|has_recursion|private_seg_size)\"?, (?:or\()?(\d+)",
    re.MULTILINE,
)
"""What LLVM says of each function."""
_FUNCTION = re.compile(r"^(\"?)([^\s\"]+)\1:[^\n]*\n(.*?)^\.Lfunc_end\d+:", re.MULTILINE | re.DOTALL)


def _functions_text(assembly: str, hook: str) -> tuple[str, dict[str, str]]:
    """The payload's instructions, and those of every function that it may call, by name."""
    names = set(re.findall(r"^\s*\.type\s+\"?([^\s,\"]+)\"?,@function", assembly, re.MULTILINE))
    texts = {match[2]: match[3] for match in _FUNCTION.finditer(assembly) if match[2] in names}
    payload = texts.pop("luthier.payload", None)
    if payload is None or len(texts) != len(names) - 1:
        raise HookError(f"LLVM generated no code for hook {hook}")
    return payload, texts


def _stack_size(assembly: str, hook: str, functions: int) -> int:
    """Private memory in bytes a lane: each function's frame once, and more where they may be entered again.

    Args:
        functions: how many there are.
    """

    found: defaultdict[str, list[int]] = defaultdict(list)
    for name, value in _SETTING.findall(assembly):
        found[name].append(int(value))

    def settings(name: str) -> list[int]:
        if len(found[name]) != functions:
            raise HookError(f"hook {hook}: LLVM does not tell {name} of its functions")
        return found[name]

    if any(settings("has_dyn_sized_stack")):
        if any(settings("has_indirect_call")):
            raise HookError(f"hook {hook} calls a function through a pointer that may be any function's")
        raise HookError(f"hook {hook} needs private memory of a size known only when it runs")
    frames = sum(-(-size // _STACK_ALIGNMENT) * _STACK_ALIGNMENT for size in settings("private_seg_size"))
    again = any(settings("has_recursion")) or any(settings("has_indirect_call"))
    return frames + (RECURSION_BYTES if again and functions > 1 else 0)


def make_template(payload: PayloadAssembly, hook: str, isa: Isa) -> Template:
    """Read a payload's assembly back as instructions.

    Raises:
        HookError: it uses something that cannot be spliced into a kernel: calls, private memory, special registers.
    """
    text, called = _functions_text(payload.text, hook)
    *_, last = [None, *_RETURN.finditer(text)]
    if last is not None and not called and not text[last.end() :].strip():
        text = text[: last.start()]
    text = _RETURN.sub("\ts_branch luthier_end\n", text)
    text = "".join([text, *(f'"{name}":\n{body}' for name, body in called.items()), "luthier_end:\n"])
    markers = [match.group() for match in _MARKER.finditer(text)]
    if len(set(markers)) != len(markers):
        raise HookError(f"hook {hook} writes registers and has several ways out; give it one")
    text = _MARKER.sub(lambda match: f"luthier_{match[1]}_{match[2]}_{match[3]}:", text)
    text = _MARKER_AT_LABEL.sub(r"\1\ts_nop 0\n", text)
    if isa.target.target.scalar_wait is not None:
        text = _with_scalar_waits(text, isa.target.target.scalar_wait, isa.wave_size)
    assembly = _assemble(text, hook, isa)
    if not payload.ordered and not _gives_registers(assembly.instructions, isa):
        # LLVM ends functions by waits. Nobody need wait for what gives nothing back.
        text, count = _LAST_WAITS.subn("\ts_nop 0\n" if _WIDE_STORE.search(text) else "", text)
        assembly = _assemble(text, hook, isa) if count else assembly
    code = assembly.instructions
    columns = Columns(code)
    branches: dict[int, int] = {}
    references: list[Fixup] = []
    functions: list[tuple[Fixup, int]] = []
    for fixup in assembly.fixups:
        if fixup.symbol in called:
            functions.append((fixup, assembly.labels[fixup.symbol]))
        elif fixup.symbol in assembly.labels:
            branches[fixup.instruction] = assembly.labels[fixup.symbol]
        else:
            references.append(fixup)
    size = _stack_size(payload.text, hook, 1 + len(called))

    inputs: list[TemplateInput] = []
    immediates: list[TemplateImmediate] = []
    outputs: list[TemplateOutput] = []
    for label, position in assembly.labels.items():
        match = _LABEL.match(label)
        if match is None:
            continue
        unit = _unit_named(match[3], hook)
        if match[1] == "input":
            source = payload.inputs[int(match[2])]
            if source.immediate:
                immediates.append(TemplateImmediate(position, unit, source))
            else:
                inputs.append(TemplateInput(position, unit, source))
        else:
            outputs.append(TemplateOutput(position, unit, payload.outputs[int(match[2])]))
    if len(outputs) != len(payload.outputs):
        raise HookError(f"hook {hook}: LLVM duplicated or dropped a register write")
    if outputs:
        outputs = _behind_epilogue(columns, isa, hook, outputs, branches)

    taken_in: list[TemplateInput | TemplateImmediate] = [*inputs, *immediates]
    waits, first = 0, min((taken.position for taken in taken_in), default=len(code))
    while waits < first and _WAIT.match(isa.opcode(columns.opcode[waits]).mnemonic):
        waits += 1
    mnemonics = {isa.opcode(number).mnemonic for number in columns.opcode}
    takes_lane_values = any(name.startswith("v_readfirstlane") for name in mnemonics)
    marked = [*(i.unit for i in taken_in), *(o.unit for o in outputs), *([_STACK_POINTER] if size else [])]
    groups, written = _registers(columns, isa, hook, marked, calls=bool(called))
    written |= {taken.unit for taken in immediates}
    clobbers = frozenset((written | {taken.unit for taken in inputs}) & {SCC, *VCC, M0})
    return Template(
        hook,
        code,
        waits,
        not payload.ordered and wait_model(isa.target.target).complete and not _has_flat_access(code),
        branches,
        tuple(references),
        tuple(functions),
        tuple(inputs),
        tuple(sorted(immediates, key=lambda taken: taken.position)),
        tuple(outputs),
        groups,
        written,
        clobbers,
        payload.runs_without_lanes and not takes_lane_values,
        payload.writes_inactive_lanes,
        _hands_in(columns, isa, waits, taken_in, [_STACK_POINTER] if size else []),
        Stack(_STACK_POINTER, size) if size else None,
        payload.plain,
        payload.lds,
    )


def _with_scalar_waits(text: str, wait: str, wave_size: int) -> str:
    """With a wait where LLVM may have left one out (GFX12).

    Where ways join and VCC was written by a scalar instruction on one and by a vector instruction on another, LLVM 22
    forgets both at a scalar instruction that reads it (AMDGPUWaitSGPRHazards: ``VCCHazard = None``); hardware waits
    there for vector instructions alone.

    Args:
        wait: for results of scalar instructions.
    """
    lines, joined = [], False
    for line in text.splitlines(keepends=True):
        if _JOIN.match(line):
            joined = True
        elif joined and _SCALAR_READS_VCC.match(line):
            lines.append(f"\t{wait}\n")
            joined = False
        elif _SETTLES_VCC[wave_size].match(line):
            joined = False
        lines.append(line)
    return "".join(lines)


def _assemble(text: str, hook: str, isa: Isa) -> Assembly:
    try:
        return isa.assemble(text)
    except DecodeError as problem:
        raise HookError(f"hook {hook}: LLVM's own output does not assemble: {problem}") from problem


def _gives_registers(code: InstructionArray, isa: Isa) -> bool:
    """Whether registers may be outstanding in a payload: of generations of which that is not fully known, always."""
    model = wait_model(isa.target.target)
    opcodes = [isa.opcode(number) for number in set(code.opcode.tolist())]
    found = (issue for opcode in opcodes for gds in (False, True) for issue in model.issues(opcode, gds))
    return not model.complete or any(issue.registers for issue in found)


def _has_flat_access(code: InstructionArray) -> bool:
    """Whether some instruction may access LDS as well as memory, in an order that only waits make sure of."""
    flags = code.flags
    special = int(InstructionFlag.FLAT_GLOBAL | InstructionFlag.FLAT_SCRATCH)
    return bool(((flags & int(InstructionFlag.FLAT) != 0) & (flags & special == 0)).any())


def _behind_epilogue(
    columns: Columns, isa: Isa, hook: str, outputs: Sequence[TemplateOutput], branches: Mapping[int, int]
) -> list[TemplateOutput]:
    """The outputs, taken where nothing of the payload is left to run, which would see the application's new values:
    behind the code that gives a frame back, if that leaves them alone."""
    end = len(columns.opcode)
    positions = {output.position for output in outputs}
    first = index = min(positions)
    idle = True
    results = {output.unit for output in outputs}
    overwritten = False
    while index < end and branches.get(index) != end:
        idle = idle and _IDLE.match(isa.opcode(columns.opcode[index]).mnemonic) is not None
        overwritten |= not results.isdisjoint(_written_by(columns, isa, index))
        if index in branches or columns.code.flags[index] & (InstructionFlag.CALL | InstructionFlag.INDIRECT):
            overwritten = True
        index += 1
    entered = any(first < destination <= index for destination in branches.values() if destination != end)
    if len(positions) > 1 or (not idle and (overwritten or entered)):
        raise HookError(f"hook {hook}: LLVM put code behind its register writes")
    return list(outputs) if idle else [replace(output, position=index) for output in outputs]


def _hands_in(
    columns: Columns,
    isa: Isa,
    waits: int,
    taken_in: Sequence[TemplateInput | TemplateImmediate],
    others: Sequence[int],
) -> bool:
    """What `Template.hands_in` says.

    Args:
        others: units that have a value from the beginning.
    """
    units = [taken.unit for taken in taken_in]
    if len({*units, *others}) < len(units) + len(others) or not _GROUPED.issuperset(units):
        return False
    last = {taken.unit: taken.position for taken in taken_in}
    used: set[int] = set()
    for index in range(waits, max(last.values(), default=0)):
        used |= _written_by(columns, isa, index) | _named_by(columns, isa, index)
        if any(position > index and unit in used for unit, position in last.items()):
            return False
    return True


def _named_by(columns: Columns, isa: Isa, index: int) -> set[int]:
    """Units among one instruction's operands."""
    return _units(isa, filter(None, columns.registers(index)))


def _written_by(columns: Columns, isa: Isa, index: int) -> set[int]:
    """Units that one instruction writes."""
    opcode = isa.opcode(columns.opcode[index])
    operands = zip(opcode.operands, columns.registers(index), strict=False)
    return _units(
        isa, [*(register for operand, register in operands if operand.is_def and register), *opcode.implicit_defs]
    )


def _units(isa: Isa, registers: Iterable[int]) -> set[int]:
    """Those of some of LLVM's registers."""
    firsts, counts = register_lists(isa)
    named = [(firsts[register], counts[register]) for register in registers]
    return {unit for first, count in named if first >= 0 for unit in range(first, first + count)}


_GROUPED = frozenset((*SGPRS, *VGPRS))
"""Units that are renamed."""
_HOLDERS = frozenset((*SGPRS, *VCC, M0, *VGPRS))
"""Units that LLVM may keep a value of a payload in."""


def _unit_named(name: str, hook: str) -> int:
    register = RegisterRange.parse(name)
    if register is None or register.count > 1 or register.first not in _HOLDERS:
        raise HookError(f"hook {hook}: LLVM put a value into {name}")
    return register.first


@functools.lru_cache(maxsize=64)
def _ends_of_classes(isa: Isa) -> dict[str, int]:
    """For each of LLVM's register classes, one above the highest VGPR unit that a register of it has."""
    first, count = isa.register_first_unit, isa.register_unit_count
    limit = VGPRS.start + isa.target.target.named_vgprs

    def make() -> dict[str, int]:
        found = {}
        for name, members in isa.register_classes().items():
            registers = np.array(members, np.int64)
            ends = first[registers] + count[registers]
            ends = ends[(ends >= VGPRS.start) & (ends <= limit)]
            found[name] = int(ends.max()) if len(ends) else limit
        return found

    return kept_numbers(("ends of register classes", limit), make)


def _registers(
    columns: Columns, isa: Isa, hook: str, marked: list[int], *, calls: bool
) -> tuple[tuple[Group, ...], frozenset[int]]:
    """Register groups and units written."""
    leader: dict[int, int] = {unit: unit for unit in marked if unit in SGPRS or unit in VGPRS}
    alignment: dict[int, int] = dict.fromkeys(leader, 1)
    below: dict[int, int] = {}
    written: set[int] = set()

    def find(unit: int) -> int:
        while leader[unit] != unit:
            unit = leader[unit]
        return unit

    vector_alignment, ends = isa.target.target.tied_vector_alignment, _ends_of_classes(isa)
    firsts, counts = register_lists(isa)
    for index, number in enumerate(columns.opcode):
        opcode = isa.opcode(number)
        if not calls and opcode.flags & (InstructionFlag.CALL | InstructionFlag.INDIRECT):
            raise HookError(f"hook {hook}: cannot splice {isa.text(columns.code, index)!r}")
        if opcode.mnemonic.startswith(("s_endpgm", "s_setreg", "s_round_mode", "s_denorm_mode", "s_trap", "s_barrier")):
            raise HookError(f"hook {hook}: a payload may not contain {opcode.mnemonic}")
        if _INDEXED.search(opcode.mnemonic):
            raise HookError(
                f"hook {hook} takes an element of a vector or array by a number that is known only when it runs, for "
                f"which LLVM uses {opcode.mnemonic}: the registers that it may reach cannot be renamed"
            )
        for operand, register in enumerate(columns.registers(index)):
            first, count = firsts[register], counts[register]
            if not register or first < 0:
                continue
            units = range(first, first + count)
            if first in SGPRS or first in VGPRS:
                for unit in units:
                    leader.setdefault(unit, unit)
                    alignment.setdefault(unit, 1)
                for unit in units[1:]:
                    leader[find(unit)] = find(first)
                kind = opcode.operands[operand].register_class if operand < len(opcode.operands) else None
                if kind is not None and first in VGPRS:
                    below[first] = min(below.get(first, VGPRS.stop), ends[kind] - count + 1)
                need = 1
                if count > 1:
                    need = min(4, 1 << (count - 1).bit_length()) if first in SGPRS else vector_alignment
                if opcode.mnemonic.startswith("v_dual_") and first in VGPRS:
                    need = 4  # VOPD pairs registers by bank (number modulo 4) and parity
                alignment[first] = max(alignment[first], need)
            elif first not in (*VCC, *EXEC, M0, SCC, UNTRACKED):
                raise HookError(f"hook {hook}: a payload may not use {isa.register(register).text}")
        written |= _written_by(columns, isa, index)
    members: dict[int, list[int]] = {}
    for unit in leader:
        members.setdefault(find(unit), []).append(unit)
    limit = VGPRS.start + isa.target.target.named_vgprs
    groups = []
    for units_of_group in members.values():
        first, last = min(units_of_group), max(units_of_group)
        need = max(alignment[unit] for unit in units_of_group)
        end = min(
            (below[unit] - (unit - first) for unit in units_of_group if unit in below), default=limit - (last - first)
        )
        groups.append(Group(first, last - first + 1, need, end))
    groups.sort(key=lambda group: (-group.count, group.first))
    return tuple(groups), frozenset(written)
