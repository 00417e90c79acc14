"""A payload as instructions with symbolic registers.

A `Template` is what LLVM made of a hook, taken off the registers LLVM happened to choose: register *groups* (tuples
that must stay together) are renamed at each point by a binding (`luthier.patch.binding`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from luthier.errors import DecodeError, HookError
from luthier.isa import Fixup, InstructionArray, InstructionFlag, Isa, OperandKind, RegisterRange
from luthier.isa.registers import EXEC, M0, SCC, SGPRS, UNTRACKED, VCC, VGPRS, mask_of
from luthier.payload.codegen import Input, PayloadAssembly
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
class TemplateOutput:
    """Where the payload hands a result over: before instruction `position`, from `unit` to application unit
    `destination`."""

    position: int
    unit: int
    destination: int


@dataclass(frozen=True, eq=False)  # equal only to itself: bindings are cached by template
class Template:
    """A payload's instructions, without its leading waits and its return."""

    hook: str
    code: InstructionArray
    waits: int
    """Leading instructions of `code` that only wait for outstanding memory operations."""
    branches: Mapping[int, int]
    """Instruction index -> index it branches to (len(code): the end)."""
    fixups: tuple[Fixup, ...]
    """References to variables."""
    inputs: tuple[TemplateInput, ...]
    outputs: tuple[TemplateOutput, ...]
    groups: tuple[Group, ...]
    written: frozenset[int]
    """Template units some instruction writes."""
    clobbers: frozenset[int]
    """Units with a fixed place that it overwrites, inputs put there included: SCC, VCC, M0."""
    runs_without_lanes: bool
    """It has an effect with EXEC 0, and no value in it depends on an active lane."""
    writes_inactive_lanes: bool
    plain: PlainCount | None = None
    """What it counts, if it does nothing else."""

    @functools.cached_property
    def clobber_mask(self) -> int:
        """`clobbers` as a bit set."""
        return mask_of(self.clobbers)

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
_INDEXED = re.compile("movrel|gpr_idx")
"""Instructions through which registers are named by a number that is known only when they run."""
_IDLE = re.compile(_WAIT.pattern + "|s_nop$|s_delay_alu$")


def _function_text(assembly: str, hook: str) -> str:
    others = set(re.findall(r"^\s*\.type\s+\"?([^\s,\"]+)\"?,@function", assembly, re.MULTILINE)) - {"luthier.payload"}
    if others:
        raise HookError(f"hook {hook} calls {', '.join(sorted(others))}, which cannot be inlined")
    stack = re.search(r"^\s*\.set [\w.\"]*private_seg_size, (.*)$", assembly, re.MULTILINE)
    if stack is None or stack[1].strip() != "0":
        raise HookError(f"hook {hook} needs private memory ({stack[1] if stack else 'unknown'} bytes a lane)")
    if not re.search(r"^\s*\.set [\w.\"]*has_dyn_sized_stack, 0$", assembly, re.MULTILINE):
        raise HookError(f"hook {hook} needs private memory (of a size known only when it runs)")
    match = re.search(r"^\"?luthier\.payload\"?:[^\n]*\n(.*?)^\.Lfunc_end\d+:", assembly, re.MULTILINE | re.DOTALL)
    if match is None:
        raise HookError(f"LLVM generated no code for hook {hook}")
    return match[1]


def make_template(payload: PayloadAssembly, hook: str, isa: Isa) -> Template:
    """Read a payload's assembly back as instructions.

    Raises:
        HookError: it uses something that cannot be spliced into a kernel: calls, private memory, special registers.
    """
    text = _function_text(payload.text, hook)
    *_, last = [None, *_RETURN.finditer(text)]
    if last is not None and not text[last.end() :].strip():
        text = text[: last.start()]
    text = _RETURN.sub("\ts_branch luthier_end\n", text) + "luthier_end:\n"
    markers = [match.group() for match in _MARKER.finditer(text)]
    if len(set(markers)) != len(markers):
        raise HookError(f"hook {hook} writes registers and has several ways out; give it one")
    text = _MARKER.sub(lambda match: f"luthier_{match[1]}_{match[2]}_{match[3]}:", text)
    text = _MARKER_AT_LABEL.sub(r"\1\ts_nop 0\n", text)
    try:
        assembly = isa.assemble(text)
    except DecodeError as problem:
        raise HookError(f"hook {hook}: LLVM's own output does not assemble: {problem}") from problem
    code = assembly.instructions
    branches: dict[int, int] = {}
    references: list[Fixup] = []
    for fixup in assembly.fixups:
        if fixup.symbol in assembly.labels:
            branches[fixup.instruction] = assembly.labels[fixup.symbol]
        else:
            references.append(fixup)

    inputs: list[TemplateInput] = []
    outputs: list[TemplateOutput] = []
    for label, position in assembly.labels.items():
        match = _LABEL.match(label)
        if match is None:
            continue
        unit = _unit_named(match[3], hook)
        if match[1] == "input":
            inputs.append(TemplateInput(position, unit, payload.inputs[int(match[2])]))
        else:
            outputs.append(TemplateOutput(position, unit, payload.outputs[int(match[2])]))
    if len(outputs) != len(payload.outputs):
        raise HookError(f"hook {hook}: LLVM duplicated or dropped a register write")
    if outputs:
        _check_nothing_follows(code, isa, hook, outputs, branches)

    waits, first = 0, min((taken.position for taken in inputs), default=len(code))
    while waits < first and _WAIT.match(isa.opcode(int(code.opcode[waits])).mnemonic):
        waits += 1
    mnemonics = {isa.opcode(int(number)).mnemonic for number in code.opcode}
    takes_lane_values = any(name.startswith("v_readfirstlane") for name in mnemonics)
    groups, written = _registers(code, isa, hook, [*(i.unit for i in inputs), *(o.unit for o in outputs)])
    clobbers = frozenset((written | {taken.unit for taken in inputs}) & {SCC, *VCC, M0})
    return Template(
        hook,
        code,
        waits,
        branches,
        tuple(references),
        tuple(inputs),
        tuple(outputs),
        groups,
        written,
        clobbers,
        payload.runs_without_lanes and not takes_lane_values,
        payload.writes_inactive_lanes,
        payload.plain,
    )


def _check_nothing_follows(
    code: InstructionArray, isa: Isa, hook: str, outputs: Sequence[TemplateOutput], branches: Mapping[int, int]
) -> None:
    """Where results are handed over, nothing of the payload may be left to run: it would see the new values."""
    positions = {output.position for output in outputs}
    index = min(positions)
    while index < len(code) and _IDLE.match(isa.opcode(int(code.opcode[index])).mnemonic):
        index += 1
    if len(positions) > 1 or (index < len(code) and branches.get(index) != len(code)):
        raise HookError(f"hook {hook}: LLVM put code behind its register writes")


_HOLDERS = frozenset((*SGPRS, *VCC, M0, *VGPRS))
"""Units that LLVM may keep a value of a payload in."""


def _unit_named(name: str, hook: str) -> int:
    register = RegisterRange.parse(name)
    if register is None or register.count > 1 or register.first not in _HOLDERS:
        raise HookError(f"hook {hook}: LLVM put a value into {name}")
    return register.first


@functools.lru_cache(maxsize=1024)
def _end_of_class(isa: Isa, name: str) -> int:
    """One above the highest VGPR unit that a register of LLVM's class `name` has."""
    registers = isa.registers_in_class(name)
    ends = isa.register_first_unit[registers] + isa.register_unit_count[registers]
    limit = VGPRS.start + isa.target.target.named_vgprs
    return int(max((end for end in ends if end in range(VGPRS.start, limit + 1)), default=limit))


def _registers(
    code: InstructionArray, isa: Isa, hook: str, marked: list[int]
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

    vector_alignment = isa.target.target.tied_vector_alignment
    for index in range(len(code)):
        number = int(code.opcode[index])
        opcode = isa.opcode(number)
        if code.flags[index] & (InstructionFlag.CALL | InstructionFlag.INDIRECT):
            raise HookError(f"hook {hook}: cannot splice {isa.text(code, index)!r}")
        if opcode.mnemonic.startswith(("s_endpgm", "s_setreg", "s_round_mode", "s_denorm_mode", "s_trap", "s_barrier")):
            raise HookError(f"hook {hook}: a payload may not contain {opcode.mnemonic}")
        if _INDEXED.search(opcode.mnemonic):
            raise HookError(
                f"hook {hook} takes an element of a vector or array by a number that is known only when it runs, for "
                f"which LLVM uses {opcode.mnemonic}: the registers that it may reach cannot be renamed"
            )
        start, end = int(code.operand_start[index]), int(code.operand_start[index + 1])
        for position in range(start, end):
            if code.operand_kind[position] != OperandKind.REGISTER:
                continue
            register = int(code.operand_value[position])
            first, count = int(isa.register_first_unit[register]), int(isa.register_unit_count[register])
            if first < 0:
                continue
            units = range(first, first + count)
            operand = position - start
            if operand < len(opcode.operands) and opcode.operands[operand].is_def:
                written.update(units)
            if first in SGPRS or first in VGPRS:
                for unit in units:
                    leader.setdefault(unit, unit)
                    alignment.setdefault(unit, 1)
                for unit in units[1:]:
                    leader[find(unit)] = find(first)
                kind = opcode.operands[operand].register_class if operand < len(opcode.operands) else None
                if kind is not None and first in VGPRS:
                    below[first] = min(below.get(first, VGPRS.stop), _end_of_class(isa, kind) - count + 1)
                need = 1
                if count > 1:
                    need = min(4, 1 << (count - 1).bit_length()) if first in SGPRS else vector_alignment
                if opcode.mnemonic.startswith("v_dual_") and first in VGPRS:
                    need = 4  # VOPD pairs registers by bank (number modulo 4) and parity
                alignment[first] = max(alignment[first], need)
            elif first not in (*VCC, *EXEC, M0, SCC, UNTRACKED):
                raise HookError(f"hook {hook}: a payload may not use {isa.register(register).text}")
        for register in opcode.implicit_defs:
            first, count = int(isa.register_first_unit[register]), int(isa.register_unit_count[register])
            written.update(range(first, first + count) if first >= 0 else ())
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
