"""Instructions of a kernel that take part in hazards, and their roles.

Facts about an opcode, or about instructions with the same operands, are computed once for a processor and cached for
all kernels.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from luthier.hazards.wait_states.kinds import ALWAYS, IN_A_ROW, OF_KERNELS
from luthier.hazards.wait_states.model import NEEDED, PARTS, HazardModel, Rule, Ticks, ticks
from luthier.isa import Isa
from luthier.lifting.instructions.effects import opcode_effects
from luthier.lifting.model import LiftedKernel

UNLIMITED = 1 << 30
MOST_KNOWN = 1 << 17
"""Maximum number of different instructions that are cached for a processor."""
_OPCODES = 1 << 16  # LLVM's opcode numbers have 16 bits


class Taking(Struct, eq=False):
    """Possible roles of an instruction, with cached results for instructions that have them."""

    places: tuple[tuple[int, str], ...]
    """Rules by number, and fields of `Hazard`."""
    known: dict[tuple[int, ...], tuple[Any, ...]] = field(default_factory=dict)
    """`Columns.alike` -> fields of `HazardStep` after its times."""
    plans: dict[int, Any] = field(default_factory=dict)
    """Opcode -> roles to evaluate (`plan_of`)."""


class _Rows(NamedTuple):
    """Facts about opcodes, a row each."""

    ticks: NDArray[np.int64]
    """[rows, 3] ticks, of ``s_nop`` with the shortest wait."""
    nop: NDArray[np.bool_]
    """[rows] whether the operand determines the wait."""
    parts: NDArray[np.bool_]
    """[rows, places] possible roles."""
    sure: NDArray[np.bool_]
    """[rows, rules] whether they clear with any operands."""


class Opcodes:
    """The known opcodes of one processor, with their facts for the rules."""

    def __init__(self, model: HazardModel, isa: Isa) -> None:
        self.model = model
        self._isa = isa
        self.places = [(rule.number, name) for rule in model.rules for name in PARTS if rule.hazard.parties(name)]
        self.column = {place: number for number, place in enumerate(self.places)}
        count = len(self.places), len(model.rules)
        self._needed = np.zeros((count[1], count[0]), np.bool_)
        for number, (rule, name) in enumerate(self.places):
            self._needed[rule, number] = name in NEEDED
        self._number = np.full(_OPCODES + 1, -1, np.int32)
        self._number[-1] = 0  # an undecodable word
        self.ticks = [Ticks(1, 0, 0)]
        """The rows of `rows.ticks` as a list."""
        self.rows = _Rows(
            np.array(self.ticks, np.int64),
            np.zeros(1, np.bool_),
            np.zeros((1, count[0]), np.bool_),
            np.zeros((1, count[1]), np.bool_),
        )
        self.single: set[int] = set()
        """Numbers of opcodes whose instructions may differ even with the same operands."""
        self._taking: dict[bytes, Taking] = {}
        self._count = 0
        self._lock = threading.Lock()

    def of(self, opcodes: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the row of each opcode."""
        numbers = self._number[opcodes]
        if (numbers < 0).any():
            with self._lock:
                self._add(sorted(set(opcodes[self._number[opcodes] < 0].tolist())))
            numbers = self._number[opcodes]
        return numbers

    def _add(self, numbers: Sequence[int]) -> None:
        if not numbers:
            return
        opcodes = [self._isa.opcode(number) for number in numbers]
        parts = np.zeros((len(numbers), len(self.places)), np.bool_)
        sure = np.zeros((len(numbers), len(self.model.rules)), np.bool_)
        for row, opcode in enumerate(opcodes):
            parts_of = self.model.parts(opcode)
            parts[row, [self.column[place] for place in parts_of]] = True
            clears = [rule for (rule, name), units in parts_of.items() if name == "cleared_by" and units is ALWAYS]
            sure[row, clears] = True
            of_kernel = not OF_KERNELS.isdisjoint(parts_of.values())
            special = opcode_effects(self._isa, opcode.number).special
            if of_kernel or special == "relative vector" or opcode.pseudo.startswith(IN_A_ROW):
                self.single.add(opcode.number)
        own = [ticks(one, [0]) for one in opcodes]
        new = _Rows(
            np.array(own, np.int64),
            np.array([one.pseudo == "S_NOP" for one in opcodes], np.bool_),
            parts,
            sure,
        )
        first = len(self.rows.nop)
        self.ticks += own
        self.rows = _Rows(*(np.concatenate(pair) for pair in zip(self.rows, new, strict=True)))
        self._number[numbers] = np.arange(first, first + len(numbers))

    def met(self, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return [places] the roles in code with these rows, for rules with all necessary operands."""
        present = self.rows.parts[np.flatnonzero(np.bincount(rows))].any(axis=0)
        lacking: NDArray[np.bool_] = np.any(self._needed & ~present, axis=1)
        complete: NDArray[np.bool_] = present & ~lacking[[rule for rule, _ in self.places]]
        return complete

    def taking(self, bits: bytes) -> Taking:
        """Return the roles for a set of places in the format of `np.packbits`."""
        taking = self._taking.get(bits)
        if taking is None:
            marked = np.unpackbits(np.frombuffer(bits, np.uint8), count=len(self.places))
            taking = Taking(tuple(self.places[number] for number in np.flatnonzero(marked).tolist()))
            self._taking[bits] = taking
        return taking

    def taking_of(self, opcode: int, rules: frozenset[int]) -> Taking:
        """Return the roles of all instructions of an opcode, in some rules."""
        row = self.of(np.array([opcode], np.int32))[0]
        return self.taking(
            np.packbits(self.rows.parts[row] & np.array([rule in rules for rule, _ in self.places], np.bool_)).tobytes()
        )

    def keep(self, taking: Taking, alike: tuple[int, ...], fields: tuple[Any, ...]) -> None:
        """Cache the fields of an instruction."""
        taking.known[alike] = fields
        self._count += 1
        if self._count > MOST_KNOWN:
            self._count = 0
            self._taking = {}


@lru_cache(maxsize=64)
def opcodes_of(model: HazardModel, isa: Isa) -> Opcodes:
    """Return the cached facts about a processor's opcodes."""
    return Opcodes(model, isa)


class Parties:
    """The instructions of a kernel that take part in hazards.

    Rules with an operand that is missing in the kernel, and instructions that are far from all others of their rules,
    are left out, unless `everything` is set because instructions will be inserted.

    Args:
        everything: whether to leave out nothing.
        only: restrict the instructions to this block.
    """

    def __init__(
        self, lifted: LiftedKernel, model: HazardModel, *, everything: bool = False, only: int | None = None
    ) -> None:
        self.opcodes = opcodes_of(model, lifted.isa)
        rows = self.opcodes.of(lifted.code.opcode)
        known = self.opcodes.rows
        self.ticks: NDArray[np.int64] = known.ticks[rows]
        """[n, 3] ticks of each instruction."""
        self.nops: list[int] = np.flatnonzero(known.nop[rows]).tolist()
        """Instructions that only wait."""
        own = dict[int, Ticks]()
        for index in self.nops:
            opcode = lifted.isa.opcode(lifted.columns.opcode[index])
            own[index] = ticks(opcode, lifted.columns.values(index))
            self.ticks[index, 0] = own[index].states
        self.total = sums(self.ticks)
        """[n + 1, 3] sum of ticks before each instruction in the order of addresses."""
        blocks = np.array(lifted.block_of)
        first = np.array([*(block.first for block in lifted.blocks), 0])[blocks]
        reached = blocks >= 0 if only is None else blocks == only
        bits = known.parts[rows].T & reached if everything else self._near(lifted, rows, reached, first, blocks)
        at = np.flatnonzero(bits.any(axis=0))
        self.at: list[int] = at.tolist()
        """Instructions that take part, ascending."""
        packed = np.packbits(bits[:, at], axis=0).T.tobytes()
        size = (len(bits) + 7) // 8
        self.taking = [self.opcodes.taking(packed[begin : begin + size]) for begin in range(0, len(packed), size)]
        """Possible roles of each of them."""
        self.times: list[Ticks] = list(map(Ticks._make, (self.total[at] - self.total[first[at]]).tolist()))
        """Ticks from the beginning of its block to each of them."""
        self.own = [
            own.get(index) or self.opcodes.ticks[row] for index, row in zip(self.at, rows[at].tolist(), strict=True)
        ]
        """Ticks of each of them."""

    def _near(
        self,
        lifted: LiftedKernel,
        rows: NDArray[np.int32],
        reached: NDArray[np.bool_],
        first: NDArray[np.int64],
        blocks: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Return [places, n] the roles that each instruction may have."""
        opcodes, known = self.opcodes, self.opcodes.rows
        bits = np.zeros((len(opcodes.places), len(rows)), np.bool_)
        met: dict[int, list[tuple[str, int]]] = {}
        for column in np.flatnonzero(opcodes.met(rows)).tolist():
            rule, name = opcodes.places[column]
            met.setdefault(rule, []).append((name, column))
        # Assume that s_nop takes no time and clears nothing, so that the instructions around it are checked, too.
        without_nops = self.ticks.copy()
        without_nops[self.nops, 0] = 0
        not_nops = np.ones(len(rows), np.bool_)
        not_nops[self.nops] = False
        last = np.array([*(block.last for block in lifted.blocks), 0])[blocks]
        near = _RoleFilter(first, last, sums(without_nops))
        for number, named in met.items():
            places = {name: known.parts[rows, column] & reached for name, column in named}
            near.only(opcodes.model.rules[number], places, known.sure[rows, number] & not_nops)
            for name, column in named:
                bits[column] = places[name]
        return bits


class _RoleFilter:
    """Removes, for one rule at a time, instructions that cannot matter, without examining their operands.

    Args:
        first: [n] the first instruction of each instruction's block.
        last: [n] the last instruction of each instruction's block.
        total: [n + 1, 3] sum of ticks before each instruction.
    """

    def __init__(self, first: NDArray[np.int64], last: NDArray[np.int64], total: NDArray[np.int64]) -> None:
        self._first, self._last, self._total = first, last, total
        self._index = np.arange(len(first))

    def only(self, rule: Rule, places: dict[str, NDArray[np.bool_]], sure: NDArray[np.bool_]) -> None:
        """Keep producers and consumers that may be too close to each other, and instructions that may clear in between.

        This removes instructions without a partner within the rule's window in the order of addresses that are not so
        close to an end of their block, and those separated from all partners in their block by an instruction that
        certainly clears.

        Args:
            rule: the rule.
            places: field -> instructions with this possible role; modified in place.
            sure: instructions that clear with any operands.
        """
        if "producer" in places and rule.window:
            clock = 1 if rule.hazard.clock == "vector instructions" else 0
            begin, end = self._total[:-1, clock], self._total[1:, clock]
            before = _last_before(np.where(places["producer"], end, -UNLIMITED), -UNLIMITED)
            after = -_last_before(np.where(places["consumer"], -begin, -UNLIMITED)[::-1], -UNLIMITED)[::-1]
            places["consumer"] &= (begin - before < rule.reach) | (begin - begin[self._first] < rule.reach)
            places["producer"] &= (after - end < rule.reach) | (end[self._last] - end < rule.reach)
        if "cleared_by" in places:
            hazard = rule.hazard
            if hazard.middle is None and hazard.clears_all:
                met = _first_behind(places["consumer"], self._index)
                gone = _first_behind(sure, self._index)
                places["producer"] &= (met <= gone) | (gone > self._last)
            # An instruction clears armed producers; one that clears all also clears producers that are not armed yet.
            armed = "middle" in places and not hazard.clears_all
            active = places["middle"] if armed else places["producer"] | places.get("middle", False)
            produced = np.maximum(_last_before(np.where(active, self._index, -1), -1), self._first - 1)
            cleared = _last_before(np.where(sure, self._index, -1), -1)
            relevant = (produced >= cleared) | (cleared < self._first)
            for name in ("cleared_by", "consumer", "disarmed_by"):
                if name in places:
                    places[name] &= relevant


def sums(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return [n + 1, 3] the sum of the rows before each row."""
    return np.concatenate([np.zeros((1, 3), np.int64), np.cumsum(counts, axis=0)])


def _last_before(values: NDArray[np.int64], none: int) -> NDArray[np.int64]:
    """Return for each position the largest value before it."""
    return np.concatenate([[none], np.maximum.accumulate(values)[:-1]])


def _first_behind(places: NDArray[np.bool_], index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each position the first of these places after it."""
    return -_last_before(np.where(places, -index, -UNLIMITED)[::-1], -UNLIMITED)[::-1]
