"""A kernel's instructions as the check of waits sees them: blocks of steps."""

from __future__ import annotations

import bisect
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from luthier import _mc
from luthier.cache.memory import BoundedCache
from luthier.hazards.wait_counters.model import Limit, WaitModel, is_gds, wait_model
from luthier.isa import Isa, Opcode
from luthier.isa import registers as r
from luthier.lifting.instructions.effects import Columns, EffectTable, opcode_effects
from luthier.lifting.model import LiftedKernel

HALVES = r.UNIT_LIMIT
"""Offset of the bits of high halves. Where halves of registers are distinguished (`WaitModel.halves`), a set of units
has a bit for the low half of each, and this many bits above it one for the high half."""


def widened(units: int) -> int:
    """Return both halves of units."""
    return units | units << HALVES


def narrowed(units: int) -> int:
    """Return the units of which there is a half."""
    return (units | units >> HALVES) & (1 << HALVES) - 1


class WaitStep(NamedTuple):
    """One instruction that issues or waits, or several that do neither."""

    first: int
    last: int
    """Instructions, inclusive."""
    touches: int
    """Units that are read or written before anything is issued."""
    writes: int
    """Those that are written."""
    issues: tuple[tuple[int, int], ...] = ()
    """(stream, units that are outstanding behind it)"""
    replaced: frozenset[int] = frozenset()
    """Streams whose outstanding results it may overwrite."""
    both: int = 0
    """Units that it reads and writes: outstanding results of those streams that it may not overwrite."""
    limits: tuple[Limit, ...] = ()
    released: int | None = None
    """Stream that is done behind it."""

    @property
    def is_wait(self) -> bool:
        """Return whether it does nothing but wait."""
        return bool(self.limits) and not self.issues and not self.touches

    @property
    def is_plain(self) -> bool:
        """Return whether it neither issues nor waits."""
        return not self.issues and not self.limits and self.released is None


class WaitSteps:
    """The steps of all blocks of a kernel; made for a block when it is first asked for.

    Registers that an instruction finds by a computed number are left out: which ones it touches is not known.

    Args:
        plain: whether those that neither issue nor wait are wanted.
    """

    def __init__(self, lifted: LiftedKernel, *, plain: bool = True) -> None:
        self.lifted, self._plain = lifted, plain
        self.model: WaitModel = wait_model(lifted.target)
        self._blocks: dict[int, list[WaitStep]] = {}
        self._native = lifted.effect_table.code(lifted.columns)
        self._known = known_steps(lifted.isa)
        own = self._known.alone(lifted.code.opcode)
        own[[*lifted.index_mode, *lifted.skipped]] = True
        self._own: list[int] = np.flatnonzero(own).tolist()
        """Instructions that are a step each."""

    def changed(self, lifted: LiftedKernel, block: int) -> WaitSteps:
        """Return the steps of a kernel in which one block has other instructions, and control flow is the same."""
        steps = WaitSteps(lifted, plain=self._plain)
        steps._blocks = {number: known for number, known in self._blocks.items() if number != block}
        return steps

    def of(self, block: int) -> list[WaitStep]:
        """Return the steps of a block."""
        steps = self._blocks.get(block)
        if steps is None:
            steps = self._blocks[block] = self._make(block)
        return steps

    def unchecked(self) -> int:
        """Return how many reached instructions are left out, wholly or in part."""
        lifted = self.lifted
        left_out = self._known.left_out(lifted.code.opcode)
        left_out[list(lifted.index_mode)] = True
        return int((left_out & lifted.reached).sum())

    def _make(self, number: int) -> list[WaitStep]:
        block = self.lifted.blocks[number]
        steps: list[WaitStep] = []
        begin = block.first
        own = self._own
        for index in own[bisect.bisect_left(own, begin) : bisect.bisect_right(own, block.last)]:
            if begin < index and self._plain:
                steps.append(self._together(begin, index - 1))
            steps.append(self._alone(index))
            begin = index + 1
        if begin <= block.last and self._plain:
            steps.append(self._together(begin, block.last))
        return steps

    def _together(self, first: int, last: int) -> WaitStep:
        reads, writes, _ = self._native.together(first, last)
        if self.model.halves:
            reads, writes = widened(reads), widened(writes)
        return WaitStep(first, last, reads | writes, writes)

    def split(self, step: WaitStep) -> list[WaitStep]:
        """Return a step of several instructions as one each."""
        if step.first == step.last:
            return [step]
        return [self._together(index, index) for index in range(step.first, step.last + 1)]

    def _alone(self, index: int) -> WaitStep:
        lifted = self.lifted
        computed = index in lifted.index_mode
        return self._known.step(lifted.effect_table, self._native, lifted.columns, index, computed=computed)


MOST_KNOWN = 1 << 17
"""Instructions with other operands that are kept of a processor."""
_OPCODES = 1 << 16  # LLVM's opcode numbers have 16 bits
_ALONE, _LEFT_OUT, _SEEN = 1, 2, 4


class KnownSteps:
    """Cache of the steps of the instructions of one processor, for all kernels."""

    def __init__(self, isa: Isa) -> None:
        self.model: WaitModel = wait_model(isa.target.target)
        self._isa = isa
        self._opcodes = np.zeros(_OPCODES + 1, np.uint8)
        self._opcodes[-1] = _SEEN | _ALONE | _LEFT_OUT  # a word that is no known instruction
        self._steps: BoundedCache[tuple[int, ...], WaitStep] = BoundedCache(MOST_KNOWN)
        self._computed: BoundedCache[tuple[int, ...], WaitStep] = BoundedCache(MOST_KNOWN)

    def alone(self, opcodes: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return [n] which instructions are a step each."""
        return (self._of(opcodes) & _ALONE).astype(np.bool_)

    def left_out(self, opcodes: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return [n] which instructions have registers that are not known."""
        return (self._of(opcodes) & _LEFT_OUT).astype(np.bool_)

    def step(self, table: EffectTable, native: _mc.Code, columns: Columns, index: int, *, computed: bool) -> WaitStep:
        """Return `step_of`, remembered for the next instruction with the same opcode and operands."""
        steps = self._computed if computed else self._steps
        alike = columns.alike(index)
        step = steps.get(alike)
        if step is None:
            step = steps.put(alike, step_of(table, native, columns, index, self.model, computed=computed))
        return WaitStep(index, index, *step[2:])

    def _of(self, opcodes: NDArray[np.int32]) -> NDArray[np.uint8]:
        found = self._opcodes[opcodes]
        if not found.all():
            for number in set(opcodes[found == 0].tolist()):
                self._opcodes[number] = _SEEN | self._looked_at(number)
            found = self._opcodes[opcodes]
        return found

    def _looked_at(self, number: int) -> int:
        opcode, model = self._isa.opcode(number), self.model
        if opcode_effects(self._isa, number).special in _COMPUTED:
            return _ALONE | _LEFT_OUT
        halves = model.halves and _may_have_halves(opcode)
        return _ALONE if halves or model.may_issue(opcode) or model.may_wait(opcode) else 0


@lru_cache(maxsize=64)
def known_steps(isa: Isa) -> KnownSteps:
    """Return the cache of a processor."""
    return KnownSteps(isa)


def step_of(
    table: EffectTable, native: _mc.Code, columns: Columns, index: int, model: WaitModel, *, computed: bool = False
) -> WaitStep:
    """Return one instruction as a step.

    Args:
        table: effects of the processor's instructions.
        native: `columns` for the native analyses.
        computed: it runs in VGPR index mode, where numbers of vector registers are computed.
    """
    number = columns.opcode[index]
    if number < 0:
        return WaitStep(index, index, 0, 0)
    entry = table.opcode(number)
    reads, _, writes, *_ = native.effects(index)
    if entry.special == "everything":
        reads = writes = 0
    if entry.special == "coordinates":
        reads = table.certain_reads(columns, index)
    if entry.special in _COMPUTED or computed:
        reads, writes = reads & r.SCALAR_MASK, writes & r.SCALAR_MASK
    values = columns.values(index)
    late_sources = reads & (r.VECTOR_MASK | r.EXEC_MASK)
    if model.halves:
        reads, writes = _halves(table, entry.opcode, columns, index, reads, writes)
        late_sources = widened(late_sources)
    issues = model.issues(entry.opcode, is_gds(entry.opcode, values))
    outstanding = []
    for stream, registers in issues:
        late = late_sources if model.streams[stream].locks else writes
        outstanding.append((stream, late if registers else 0))
    replaced = model.replaced[issues[0].stream] if len(issues) == 1 else frozenset[int]()
    return WaitStep(
        index,
        index,
        reads | writes,
        writes,
        tuple(outstanding),
        replaced,
        reads & writes if replaced else 0,
        model.limits(table.isa, entry.opcode, values),
        model.released(entry.opcode),
    )


def _may_have_halves(opcode: Opcode) -> bool:
    """Return whether an instruction may read or write half a vector register."""
    return (
        "_D16" in opcode.pseudo
        or "t16" in opcode.name
        or any(operand.register_class is not None and "16" in operand.register_class for operand in opcode.operands)
    )


def _halves(
    table: EffectTable, opcode: Opcode, columns: Columns, index: int, reads: int, writes: int
) -> tuple[int, int]:
    """Return what an instruction reads and writes, by halves of units."""
    isa = table.isa
    found = [[0, 0], [0, 0]]  # reads, writes; units of which the low, the high half
    whole = 0
    registers = columns.registers(index)
    for position, (operand, number) in enumerate(zip(opcode.operands, registers, strict=False)):
        if not number or operand.name == "vdst_in":
            continue
        units = table.masks[number]
        high = "_D16_HI" in opcode.pseudo
        if isa.register_is_half[number]:
            high = isa.register(number).name.endswith("_HI16")
        elif not (position == 0 and operand.is_def and fills_half(opcode.pseudo)):
            whole |= units
            continue
        found[operand.is_def][high] |= units
    sets = []
    for all_units, (low, high_units) in ((reads, found[0]), (writes, found[1])):
        rest = all_units & ~((found[0][0] | found[0][1] | found[1][0] | found[1][1]) & ~whole)
        sets.append(rest | low | (rest | high_units) << HALVES)
    return sets[0], sets[1]


def fills_half(pseudo: str) -> bool:
    """Return whether a load fills half a register (its first)."""
    if "_D16" not in pseudo or "STORE" in pseudo or "WRITE" in pseudo or pseudo.startswith("IMAGE_"):
        return False
    return "_D16_XY" not in pseudo and "_FORMAT_XY" not in pseudo


_COMPUTED = frozenset({"relative vector", "relative scalar", "everything"})
"""Instructions whose registers are found while they run (`OpcodeEffects.special`); a trap may touch all."""
