"""Coverage of a target's instructions by the emulator: exact, bounded, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from luthier.emulator.binding.bind import Binder
from luthier.emulator.binding.plans import operation_name
from luthier.emulator.inspection.samples import Samples, samples
from luthier.emulator.ir.declare import DeclaredOperation, Unsupported
from luthier.emulator.ir.variant import FloatMode
from luthier.emulator.operations import operations_of
from luthier.emulator.operations.refused import is_graphics
from luthier.isa import Isa, Opcode
from luthier.isa.instructions import InstructionFlag

NOT_COMPUTE = InstructionFlag.IMAGE | InstructionFlag.EXPORT | InstructionFlag.GWS | InstructionFlag.INTERPOLATION
"""Instruction classes that compute kernels do not use."""

_NO_OPERATION = ("v_illegal",)
"""Encodings that LLVM marks as reserved."""
Names = dict[str, set[str]]
"""LLVM's opcode names by mnemonic."""


class Coverage(Struct):
    """Opcodes of one target by how the emulator handles them."""

    target: str
    exact: Names = field(default_factory=dict)
    bounded: Names = field(default_factory=dict)
    refused: Names = field(default_factory=dict)
    outside: Names = field(default_factory=dict)
    """Opcodes outside the compute ISA."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Reasons for refused mnemonics."""

    def share(self) -> float:
        """Return the share of the compute opcodes that are executed."""
        done = _count(self.exact) + _count(self.bounded)
        return done / max(1, done + _count(self.refused))

    def to_json(self) -> dict[str, Any]:
        """Return plain data: counts, and every mnemonic that is not exact."""
        return {
            "target": self.target,
            "share": self.share(),
            "exact": _count(self.exact),
            "bounded": _count(self.bounded),
            "refused": _count(self.refused),
            "outside": _count(self.outside),
            "bounded_mnemonics": sorted(self.bounded),
            "refused_mnemonics": [
                {"mnemonic": name, "reason": self.reasons[name], "opcodes": sorted(self.refused[name])}
                for name in sorted(self.refused)
            ],
        }


def _count(names: Names) -> int:
    return sum(map(len, names.values()))


def is_compute(opcode: Opcode) -> bool:
    """Return whether an opcode belongs to the compute ISA."""
    outside = opcode.flags & NOT_COMPUTE or opcode.mnemonic in _NO_OPERATION
    return not outside and not is_graphics(operation_name(opcode))


_examined: dict[tuple[object, ...], Coverage] = {}
"""By wave size and set of opcodes: many processors have the same."""


def coverage(target: str, wave_size: int | None = None) -> Coverage:
    """Return the coverage of all opcodes of `target`."""
    isa = Isa.of(target, wave_size)
    instructions = samples(isa)
    table = operations_of(isa.target.target.emulated_major)
    key = (isa.wave_size, id(table), isa.target.target.gates, frozenset(instructions))  # tables are kept for good
    if key not in _examined:
        _examined[key] = _examine(isa, table, instructions)
    return replace(_examined[key], target=target)


def _examine(isa: Isa, table: Mapping[str, DeclaredOperation], instructions: Samples) -> Coverage:
    binder = Binder(isa)
    result = Coverage(str(isa.target))
    for number, (code, index) in instructions.items():
        opcode = isa.opcode(number)
        name = opcode.mnemonic
        if not is_compute(opcode):
            result.outside.setdefault(name, set()).add(opcode.name)
            continue
        try:
            variant = binder.bind(code, index, 0, FloatMode()).variant
        except Unsupported as problem:
            result.refused.setdefault(name, set()).add(opcode.name)
            result.reasons[name] = str(problem)
            continue
        parts = [variant, *([variant.second] if variant.second is not None else [])]
        exact = all(table[part.operation].exact for part in parts)
        (result.exact if exact else result.bounded).setdefault(name, set()).add(opcode.name)
    return result


def report(result: Coverage, *, names: bool) -> str:
    """Return the coverage as text; with `names`, every refused mnemonic with the reason."""
    lines = [
        f"{result.target}: {100 * result.share():.1f} % of the compute opcodes: {_count(result.exact)} exact, "
        f"{_count(result.bounded)} bounded, {_count(result.refused)} refused; {_count(result.outside)} outside compute "
        "(image, export, …)"
    ]
    if names:
        lines += [f"  {name}: {result.reasons[name]}" for name in sorted(result.refused)]
    return "\n".join(lines)


__all__ = ["NOT_COMPUTE", "Coverage", "coverage", "is_compute", "report", "samples"]
