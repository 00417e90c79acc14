"""Finds the instructions that make NaN and infinity, and tells them from those that pass them on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from luthier import Immediate, Instruction, InstrumentationTask, Run, SiteSums, Table, Tool, ToolModule
from luthier.errors import HookError
from luthier.isa import OperandKind, RegisterRange
from luthier.isa.registers import VGPR_FIRST
from luthier.tool.task import HookArgument

DEVICE = ToolModule.from_package(__name__, "device")
KINDS = ("nan", "infinity", "nan-flow", "infinity-flow")
"""Of the columns of the device's table, as `luthier sanitize` calls them."""
_ARITHMETIC = (
    "add|sub|subrev|mul|fma|fmac|fmaak|fmamk|mad|mac|madak|madmk|max|min|max3|min3|med3|maxmin|minmax|maximum|minimum"
    "|max_num|min_num|rcp|rsq|sqrt|exp|log|sin|cos|tanh|fract|floor|ceil|trunc|rndne|div_fixup|div_fmas|ldexp"
)
_END = r"(?:_e32|_e64|_dpp|_dpp8|_e64_dpp|_sdwa)?$"
_ONE_TYPE = re.compile(rf"v_(pk_)?({_ARITHMETIC})(?:_legacy|_dx9_zero|_iflag)?_(f16|f32|f64){_END}")
_CONVERSION = re.compile(rf"v_cvt_(f16_f32|f32_f16|f32_f64|f64_f32){_END}")
_TO_HALVES = re.compile(rf"v_cvt_pk_?rtz_f16_f32{_END}")
_OTHER = re.compile(r"s_|v_cmpx?_|v_div_scale|v_readfirstlane|v_(?:cvt|frexp_exp)\w*_[iu]\d+_f")
"""Names of instructions with results of other kinds; of `v_div_scale` a NaN has a meaning."""
_READ = {"div_fixup": ("src1", "src2"), "ldexp": ("src0",)}
"""Operands that count where it is not all: the quotient's estimate may be NaN by design, an exponent is an integer."""
_SOURCES = ("src0", "src1", "src2", "imm")
_ELSEWHERE = ("_sdwa", "_dpp", "_dpp8")
_UNLIKE = ("op_sel", "op_sel_hi")


@dataclass(frozen=True)
class Shape:
    """Hook behind an instruction, and the operands that it is given."""

    hook: str
    sources: tuple[str, ...]
    """LLVM's names of the operands that count."""
    arguments: int
    """Operands that the hook takes."""


def gives_floats(instruction: Instruction) -> bool:
    """Return whether an instruction gives floating-point numbers in VGPRs, and not NaN by design."""
    name = instruction.mnemonic
    return instruction.is_float and instruction.memory is None and not _OTHER.match(name)


def shape_of(instruction: Instruction) -> Shape:
    """Return how an instruction that gives floating-point numbers is looked at.

    Raises:
        HookError: it cannot be.
    """
    name = instruction.mnemonic
    there = tuple(one for one in _SOURCES if instruction.operand(one) is not None)
    if found := _ONE_TYPE.match(name):
        shape = Shape(f"{found[1] or ''}{found[3]}", _READ.get(found[2], there), 3)
    elif found := _CONVERSION.match(name):
        shape = Shape(found[1], there, 1)
    elif _TO_HALVES.match(name):
        shape = Shape("pkrtz_f16_f32", there, 2)
    else:
        raise HookError("instructions of this kind are not looked at")
    if name.endswith(_ELSEWHERE):
        raise HookError("it reads other lanes, or parts of registers")
    _check_selection(instruction, shape)
    return shape


def _check_selection(instruction: Instruction, shape: Shape) -> None:
    """Refuse instructions that pair halves or elements otherwise than they lie in registers.

    Raises:
        HookError: it is one.
    """
    chosen = {name: found[1] for name in _UNLIKE if (found := instruction.operand(name)) is not None}
    if not shape.hook.startswith("pk_"):
        chosen.pop("op_sel_hi", None)
        if instruction.operand("op_sel") is None or ".h" in instruction.text or ".l" in instruction.text:
            return
    every = (1 << len(shape.sources)) - 1
    if chosen.get("op_sel", 0) or chosen.get("op_sel_hi", every) != every:
        raise HookError("it takes its operands from other halves of registers")


class FpCheck(Tool):
    """Adds up lanes by instruction, and by what its result is and its operands were."""

    @dataclass(frozen=True)
    class Options:
        """Options: what is shown."""

        flow: bool = False
        """Show what operands have passed on, too."""
        top: int = 20
        """Show so many, in the order of the code; 0: all."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.sums = SiteSums(DEVICE, "found", len(KINDS))

    def instrument(self, task: InstrumentationTask) -> None:
        """Put a hook behind every instruction that gives floating-point numbers in VGPRs."""
        for instruction in task.instructions:
            if gives_floats(instruction):
                self.sums.add(task, instruction, partial(_look, task, instruction))

    def report(self, run: Run) -> Iterable[Table]:
        """Yield the instructions that made or passed on exceptional numbers, by kernel in the order of the code."""
        measured = sorted(self.sums.read(run), key=lambda one: (one.site.kernel, one.site.address))
        shown = len(KINDS) if self.options.flow else 2
        rows = [
            (site.kernel, kind, site.source, hex(site.address), site.text, int(lanes))
            for site, sums in measured
            for kind, lanes in zip(KINDS[:shown], sums, strict=False)
            if lanes
        ]
        yield Table(
            "exceptional numbers",
            ("kernel", "kind", "source", "address", "instruction", "lanes"),
            rows[: self.options.top or None],
        )
        yield from self.sums.tables()


def _look(task: InstrumentationTask, instruction: Instruction, site: Immediate) -> None:
    """Insert the hook, and before the instruction copies of operands that it overwrites.

    Raises:
        HookError: the instruction cannot be looked at, or there is no register for a copy.
    """
    shape = shape_of(instruction)
    arguments: list[HookArgument] = []
    copies: list[str] = []
    free = _free(task, instruction)
    for name in shape.sources:
        units, shift = _registers(task, instruction, name)
        if not any(instruction.effects.writes >> unit & 1 for unit in units):
            arguments.append(task.operand(instruction, name))
            continue
        first = next((one for one in free if all(one + at in free for at in range(len(units)))), None)
        if first is None:
            raise HookError("it overwrites an operand, and no register is free for a copy")
        for at, unit in enumerate(units):
            free.remove(first + at)
            move = f"v_lshrrev_b32_e32 v{first + at}, {shift}," if shift else f"v_mov_b32_e32 v{first + at},"
            copies.append(f"{move} {RegisterRange(unit)}")
        arguments.append(RegisterRange(VGPR_FIRST + first, len(units)))
    arguments += [0] * (shape.arguments - len(arguments))
    result = task.operand(instruction, "vdst")
    task.insert_hook_after(instruction, DEVICE.hook(shape.hook), result, *arguments, site)
    for copy in copies:
        task.add_before(instruction, copy)


def _free(task: InstrumentationTask, instruction: Instruction) -> list[int]:
    """Return the numbers of the kernel's VGPRs that hold nothing where an instruction runs, highest last."""
    liveness = task.lifted.liveness
    live = liveness.live_before(instruction.index).active | liveness.live_after(instruction.index).active
    held = live | instruction.effects.reads | instruction.effects.writes
    return [one for one in range(task.lifted.kernel.descriptor.architected_vgprs) if not held >> VGPR_FIRST + one & 1]


def _registers(task: InstrumentationTask, instruction: Instruction, name: str) -> tuple[range, int]:
    """Return the units of an operand, none if it is a number, and by how much its bits are shifted there."""
    operand = instruction.operand(name)
    if operand is None or operand[0] != OperandKind.REGISTER:
        return range(0), 0
    register = task.lifted.isa.register(operand[1])
    units = RegisterRange(register.first_unit, register.unit_count).units
    return units, 16 if register.name.endswith("_HI16") else 0
