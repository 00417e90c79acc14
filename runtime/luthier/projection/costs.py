"""Costs of one execution of an instruction: the unit that it occupies, and for how long."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from luthier.errors import LuthierError
from luthier.isa.opcodes import Opcode
from luthier.lifting import LiftedRepresentation
from luthier.lifting.instructions.memory import MemoryAccess
from luthier.lifting.instructions.operations import MATRIX_NAME, operations_of
from luthier.projection.machine import MachineModel

Unit = Literal["VALU", "matrix", "SALU", "branch", "LDS", "vector memory", "scalar memory", "none"]
"""Unit that executes an instruction; waits have none."""
UNIT_OF_CLASS: dict[str, Unit] = {
    "vector ALU": "VALU",
    "matrix": "matrix",
    "scalar ALU": "SALU",
    "branch": "branch",
    "LDS": "LDS",
    "vector memory": "vector memory",
    "scalar memory": "scalar memory",
    "wait": "none",
    "other": "none",
}
"""`luthier.lifting.instructions.operations.OperationClass` -> unit."""
_F64 = re.compile(r"_f64(_|$)")
_TRANS = re.compile(r"v_(s_)?(rcp|rsq|sqrt|exp|log|sin|cos)_")
_MULTIPLY = re.compile(r"v_(mul_(lo|hi)_[ui]32|mad_(co_)?[iu]64_[iu]32)")
_CONVERT = re.compile(r"v_cvt_(?!pk|norm|f32_ubyte|f16_[iu]16|[iu]16_f16)")
_WIDE = re.compile(r"_([bui]64)(_|$)")
_SMALL = re.compile(r"(iu[48]|fp8|bf8|u[48]|i[48])(_|$)")


class InstructionCost(Struct, frozen=True):
    """Costs of one execution, in cycles. Those of memory instructions do not include what depends on addresses."""

    unit: Unit
    busy: float
    """Time that it occupies its unit."""
    issue: float
    """Time until the wave's next instruction can issue."""
    latency: float
    """Time from its issue until its result can be read."""


class InstructionFacts(Struct, frozen=True):
    """Facts of all instructions with an opcode, which are the same on every machine."""

    opcode: Opcode
    unit: Unit
    access: MemoryAccess | None
    lane_operations: int
    """Floating-point operations of an active lane; likewise of the wave:"""
    wave_operations: int


def instruction_facts(lifted: LiftedRepresentation, indices: list[int]) -> dict[int, InstructionFacts]:
    """Return the facts of these instructions of a kernel, by index."""
    calls = {call.index for function in lifted.functions for call in function.calls}
    by_kind: dict[tuple[int, bool], InstructionFacts] = {}
    facts = {}
    for index, number in zip(indices, lifted.code.opcode[indices].tolist(), strict=True):
        kind = number, index in calls
        if kind not in by_kind:
            instruction = lifted.instructions[index]
            operations = operations_of(instruction)
            by_kind[kind] = InstructionFacts(
                instruction.opcode,
                UNIT_OF_CLASS[instruction.operation_class],
                instruction.memory,
                sum(each.count for each in operations if each.per == "lane"),
                sum(each.count for each in operations if each.per == "wave"),
            )
        facts[index] = by_kind[kind]
    return facts


def instruction_costs(
    lifted: LiftedRepresentation, machine: MachineModel, facts: Mapping[int, InstructionFacts]
) -> dict[int, InstructionCost]:
    """Return the costs of instructions of a kernel, by index.

    Args:
        facts: of `instruction_facts`.
    """
    costs = {}
    by_opcode: dict[tuple[int, int], InstructionCost] = {}
    for index, of_opcode in facts.items():
        key = id(of_opcode), _operand(lifted, index) if of_opcode.unit == "none" else 0
        if key not in by_opcode:
            by_opcode[key] = _cost(of_opcode.unit, of_opcode.opcode, key[1], lifted.wave_size, machine)
        costs[index] = by_opcode[key]
    return costs


def _operand(lifted: LiftedRepresentation, index: int) -> int:
    """Return the immediate of a wait; 0 if it has none."""
    values = lifted.columns.values(index)
    return values[0] if values else 0


def _cost(unit: Unit, opcode: Opcode, immediate: int, wave_size: int, machine: MachineModel) -> InstructionCost:
    value, mnemonic = machine.value, opcode.mnemonic
    issue = value("issue")
    if unit == "VALU":
        plain = max(1.0, wave_size / value("valu_lanes"))
        factor, latency = 1.0, value("valu_latency")
        if _F64.search(mnemonic):
            factor, latency = value("f64_factor"), value("f64_latency")
        elif _MULTIPLY.match(mnemonic):
            factor = value("multiply_factor")
        elif _CONVERT.match(mnemonic):
            factor = value("convert_factor")
        elif _WIDE.search(mnemonic):
            factor = value("wide_factor")
        if _TRANS.match(mnemonic):
            factor, latency = factor * value("trans_factor"), max(latency, value("trans_latency"))
        busy = plain * factor
        return InstructionCost("VALU", busy, max(issue, plain), busy + latency)
    if unit == "matrix":
        busy = _matrix_cycles(mnemonic, opcode.pseudo, machine)
        return InstructionCost("matrix", busy, max(issue, wave_size / value("valu_lanes")), busy)
    if mnemonic in ("s_barrier", "s_barrier_wait"):
        return InstructionCost("none", 0, max(issue, value("barrier")), issue)
    if unit == "SALU":
        return InstructionCost("SALU", value("salu_issue"), issue, value("salu_issue") + value("salu_latency"))
    if unit == "branch":
        return InstructionCost("branch", issue, issue, issue)
    if unit == "none":
        if mnemonic == "s_nop":
            return InstructionCost("none", 0, issue * (1 + immediate % 16), issue)
        return InstructionCost("none", 0, 64.0 * (immediate % 128) if mnemonic == "s_sleep" else issue, issue)
    return InstructionCost(unit, 1, issue, issue)


def _matrix_cycles(mnemonic: str, pseudo: str, machine: MachineModel) -> float:
    match = MATRIX_NAME.match(mnemonic)
    if "mfma" in mnemonic or "smfmac" in mnemonic:
        if not machine.value("matrix_pass"):
            raise LuthierError(f"{machine.name} does not have {mnemonic}: choose a machine with MFMA")
        passes = machine.target.passes_of(pseudo)
        if not passes:
            raise LuthierError(f"the passes of {mnemonic} on {machine.processor} are not known")
        return passes * machine.value("matrix_pass")
    name = "matrix_8bit" if match is None or _SMALL.search(match["type"]) else "matrix_16bit"
    if not machine.value(name):
        raise LuthierError(f"{machine.name} does not have {mnemonic}: choose a machine with WMMA")
    depth = int(match["k"]) if match else 16
    return machine.value(name) * max(1.0, depth / (32 if "swmmac" in mnemonic else 16))
