"""The instructions of a kernel for the check of waits: blocks of steps."""

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
"""Offset of the bits of high halves. If halves of registers are distinguished (`WaitModel.halves`), a set of units has
one bit for the low half of each, and another one at this offset for the high half."""


def widened(units: int) -> int:
    """Return both halves of units."""
    return units | units << HALVES


def narrowed(units: int) -> int:
    """Return the units of which at least one half is in a set."""
    return (units | units >> HALVES) & (1 << HALVES) - 1


class WaitStep(NamedTuple):
    """One instruction that issues or waits, or several that do neither."""

    first: int
    last: int
    """Instructions, inclusive."""
    touches: int
    """Units that are read or written before anything is issued."""
    writes: int
    """Units that are written."""
    issues: tuple[tuple[int, int], ...] = ()
    """(stream, units that are outstanding after it)"""
    replaced: frozenset[int] = frozenset()
    """Streams whose outstanding results it may overwrite."""
    both: int = 0
    """Units that it reads and writes, so that it may not overwrite outstanding results of these streams in them."""
    limits: tuple[Limit, ...] = ()
    released: int | None = None
    """Stream that is complete after it."""

    @property
    def is_wait(self) -> bool:
        """Return whether it only waits."""
        return bool(self.limits) and not self.issues and not self.touches

    @property
    def is_plain(self) -> bool:
        """Return whether it neither issues nor waits."""
        return not self.issues and not self.limits and self.released is None


class WaitSteps:
    """The steps of all blocks of a kernel, created for each block on demand.

    Registers that an instruction selects by a computed number are left out, since they are unknown.

    Args:
        plain: whether to include steps that neither issue nor wait.
    """

    def __init__(self, lifted: LiftedKernel, *, plain: bool = True) -> None:
        self.lifted, self._plain = lifted, plain
        self.model: WaitModel = wait_model(lifted.target)
        self._blocks: dict[int, list[WaitStep]] = {}
        self._native = lifted.effect_table.code(lifted.columns)
        self._known = known_steps(lifted.isa)
        own = self._known.alone(lifted.code.opcode)
        if computed := [*lifted.index_mode, *lifted.skipped]:
            own[computed] = True
        self._own: list[int] = np.flatnonzero(own).tolist()
        """Instructions that form a step of their own."""

    def changed(self, lifted: LiftedKernel, block: int) -> WaitSteps:
        """Return the steps of a kernel that differs only in the instructions of one block, with equal control flow."""
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
        """Return the number of reachable instructions that are left out completely or in part."""
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
        """Split a step of several instructions into one for each."""
        if step.first == step.last:
            return [step]
        return [self._together(index, index) for index in range(step.first, step.last + 1)]

    def _alone(self, index: int) -> WaitStep:
        lifted = self.lifted
        computed = index in lifted.index_mode
        return self._known.step(lifted.effect_table, self._native, lifted.columns, index, computed=computed)


MOST_KNOWN = 1 << 17
"""Maximum number of different instructions that are cached for a processor."""
_OPCODES = 1 << 16  # LLVM's opcode numbers have 16 bits
_ALONE, _LEFT_OUT, _SEEN = 1, 2, 4


class KnownSteps:
    """Cache of the steps of the instructions of one processor, for all kernels."""

    def __init__(self, isa: Isa) -> None:
        self.model: WaitModel = wait_model(isa.target.target)
        self._isa = isa
        self._opcodes = np.zeros(_OPCODES + 1, np.uint8)
        self._opcodes[-1] = _SEEN | _ALONE | _LEFT_OUT  # an undecodable word
        self._steps: BoundedCache[tuple[int, ...], WaitStep] = BoundedCache(MOST_KNOWN)
        self._computed: BoundedCache[tuple[int, ...], WaitStep] = BoundedCache(MOST_KNOWN)

    def alone(self, opcodes: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return [n] whether each instruction forms a step of its own."""
        return (self._of(opcodes) & _ALONE).astype(np.bool_)

    def left_out(self, opcodes: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return [n] whether each instruction accesses unknown registers."""
        return (self._of(opcodes) & _LEFT_OUT).astype(np.bool_)

    def step(self, table: EffectTable, native: _mc.Code, columns: Columns, index: int, *, computed: bool) -> WaitStep:
        """Return `step_of`, cached by opcode and operands."""
        steps = self._computed if computed else self._steps
        alike = columns.alike(index)
        step = steps.get(alike)
        if step is None:
            step = steps.put(alike, step_of(table, native, columns, index, self.model, computed=computed))
        return WaitStep(index, index, *step[2:])

    def _of(self, opcodes: NDArray[np.int32]) -> NDArray[np.uint8]:
        facts = self._opcodes[opcodes]
        if not facts.all():
            for number in set(opcodes[facts == 0].tolist()):
                self._opcodes[number] = _SEEN | self._looked_at(number)
            facts = self._opcodes[opcodes]
        return facts

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
        computed: whether it runs in VGPR index mode, where numbers of vector registers are computed.
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
    """Return the halves of units that an instruction reads and writes."""
    isa = table.isa
    halves = [[0, 0], [0, 0]]  # reads, writes: units with the low half, the high half
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
        halves[operand.is_def][high] |= units
    sets = []
    for all_units, (low, high_units) in ((reads, halves[0]), (writes, halves[1])):
        rest = all_units & ~((halves[0][0] | halves[0][1] | halves[1][0] | halves[1][1]) & ~whole)
        sets.append(rest | low | (rest | high_units) << HALVES)
    return sets[0], sets[1]


def fills_half(pseudo: str) -> bool:
    """Return whether a load fills only half of its first register."""
    if "_D16" not in pseudo or "STORE" in pseudo or "WRITE" in pseudo or pseudo.startswith("IMAGE_"):
        return False
    return "_D16_XY" not in pseudo and "_FORMAT_XY" not in pseudo


_COMPUTED = frozenset({"relative vector", "relative scalar", "everything"})
"""Instructions whose registers are determined at run time (`OpcodeEffects.special`); a trap may access all."""
