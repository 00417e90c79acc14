"""What operations on lanes and masks do, written down by hand: the ground that the oracles for liveness stand on.

A unit is a number as in docs/architecture.md; only those named here are compared.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

LANES = (0, 1, 2, 40)
"""Those that are looked at: three in the low half of masks and one in the high half."""
ALL, WORD = (1 << 64) - 1, (1 << 32) - 1
V, A, VCC, SCC, EXEC = 256, 1280, 106, 128, 126
KEPT = V + 7
"""Masks are put into its lanes 0 and 1."""


class Bits(NamedTuple):
    """One lane's bit in each mask."""

    e: int
    """EXEC"""
    v: int = 0
    """VCC"""
    a: int = 0
    """s[8:9]"""
    b: int = 0
    """s[6:7]"""
    kept: int = 0
    """Lane 0 of v7 for lanes of the low half, lane 1 for the others."""
    high: bool = False
    """The lane is one of 32 to 63."""
    launched: bool = True


def anything(bits: Bits, name: str) -> list[Bits]:
    return [bits._replace(**{name: 0}), bits._replace(**{name: 1})]


@dataclass
class Op:
    text: str
    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    lane: Callable[[Bits], Iterable[Bits]] = lambda bits: [bits]
    """What the bits of a lane may be afterwards."""
    across: bool = False
    """Reads any lane."""
    replaces: bool = True
    """Its writes replace the register in the active lanes."""
    every_lane: bool = False
    """Its writes replace the register in every lane."""
    some_lane: bool = False
    """It writes one lane, active or not."""
    run: Callable[[Machine], None] | None = None


class Undefined(Exception):
    """What the program does next depends on garbage."""


@dataclass
class Word:
    """A scalar or a mask, with the bits of it that are garbage."""

    value: int
    garbage: int = 0

    def __and__(self, other: Word) -> Word:
        zero = ~(self.value | self.garbage) | ~(other.value | other.garbage)
        garbage = (self.garbage | other.garbage) & ~zero
        return Word(self.value & other.value & ~garbage, garbage)

    def __invert__(self) -> Word:
        return Word(~self.value & ALL & ~self.garbage, self.garbage)

    def __or__(self, other: Word) -> Word:
        return ~(~self & ~other)

    def __xor__(self, other: Word) -> Word:
        garbage = self.garbage | other.garbage
        return Word((self.value ^ other.value) & ~garbage, garbage)


GARBAGE = Word(0, WORD)
EVERY = Word(ALL)


class Machine:
    """A wave with four observed lanes; masks have all 64 bits. In vector registers None is garbage."""

    def __init__(self, rng: random.Random, launched_registers: int) -> None:
        self.scalar = {unit: Word(rng.getrandbits(32)) for unit in [*range(12), VCC, VCC + 1]}
        self.scalar[SCC] = Word(rng.getrandbits(1))
        self.exec = Word(rng.getrandbits(64) | 1 << rng.choice(LANES))
        self.vector: dict[int, dict[int, int | None]] = {unit: dict.fromkeys(LANES) for unit in [*range(V, V + 8), A]}
        for unit in range(V, V + launched_registers):
            self.each(unit, lambda lane: rng.getrandbits(32))
        self.stored: list[object] = []

    def pair(self, unit: int) -> Word:
        low, high = self.scalar[unit], self.scalar[unit + 1]
        return Word(low.value | high.value << 32, low.garbage | high.garbage << 32)

    def set_pair(self, unit: int, word: Word) -> None:
        self.scalar[unit] = Word(word.value & WORD, word.garbage & WORD)
        self.scalar[unit + 1] = Word(word.value >> 32 & WORD, word.garbage >> 32 & WORD)

    def active(self) -> list[int]:
        return [lane for lane in LANES if self.exec.value >> lane & 1]

    def each(self, unit: int, value: Callable[[int], int | None]) -> None:
        new = {lane: value(lane) for lane in self.active()}
        for lane, result in new.items():
            self.vector[unit][lane] = None if result is None else result & WORD

    def set_exec(self, word: Word) -> None:
        if word.garbage:
            raise Undefined
        self.exec = word


_UNITS = {"e": [], "v": [VCC, VCC + 1], "a": [8, 9], "b": [6, 7]}


def _masks(
    text: str,
    reads: str,
    writes: str,
    formula: Callable[[Word, Word, Word, Word], Word],
    saved: str = "",
    scc: bool = True,
) -> Op:
    """A bitwise operation.

    Args:
        reads, writes: the letters of what it reads and where the result goes, without EXEC for `reads`.
        formula: the result from EXEC, VCC, s[8:9] and s[6:7].
        saved: where the old EXEC goes.
        scc: whether SCC tells if the result is zero.
    """

    def lane(t: Bits) -> list[Bits]:
        result = formula(Word(t.e), Word(t.v), Word(t.a), Word(t.b)).value & 1
        return [t._replace(**dict.fromkeys(writes, result), **({saved: t.e} if saved else {}))]

    def run(m: Machine) -> None:
        old = m.exec
        word = formula(m.exec, m.pair(VCC), m.pair(8), m.pair(6))
        for letter in writes:
            if letter == "e":
                m.set_exec(word)
            else:
                m.set_pair(_UNITS[letter][0], word)
        if saved:
            m.set_pair(_UNITS[saved][0], old)
        if scc:
            m.scalar[SCC] = Word(0, 1) if word.garbage else Word(int(word.value != 0))

    changed = [unit for letter in {*writes, *saved} for unit in _UNITS[letter]]
    return Op(text, [unit for letter in reads for unit in _UNITS[letter]], [*changed, *[SCC] * scc], lane, run=run)


def _select_mask(m: Machine) -> None:
    if m.scalar[SCC].garbage:
        raise Undefined
    m.set_pair(6, m.pair(8 if m.scalar[SCC].value else VCC))


def _move(to: int, source: int) -> Callable[[Machine], None]:
    return lambda m: m.scalar.update({to: m.scalar[source]})


def _keep(lane: int, source: int) -> Callable[[Machine], None]:
    def run(m: Machine) -> None:
        m.vector[KEPT][lane] = None if m.scalar[source].garbage else m.scalar[source].value

    return run


def _restore(lane: int, to: int) -> Callable[[Machine], None]:
    def run(m: Machine) -> None:
        value = m.vector[KEPT][lane]
        m.scalar[to] = GARBAGE if value is None else Word(value)

    return run


def _half(high: bool, name: str, value: Callable[[Bits], Iterable[int]]) -> Callable[[Bits], Iterable[Bits]]:
    """Changes the bit of lanes in one half only."""
    return lambda bits: [bits._replace(**{name: v}) for v in value(bits)] if bits.high == high else [bits]


def _high_exec(m: Machine) -> None:
    m.set_exec(m.exec & Word(WORD) | m.pair(8) & Word(WORD << 32))


def _keeps(text: str, source: int, lane: Callable[[Bits], Iterable[Bits]], run: Callable[[Machine], None]) -> Op:
    return Op(text, [source], [KEPT], lane, replaces=False, some_lane=True, run=run)


MASK_OPERATIONS = [
    # Masks, by what becomes of EXEC, VCC, s[8:9] and s[6:7]
    _masks("s_and_saveexec_b64 s[8:9], vcc", "v", "e", lambda e, v, a, b: e & v, saved="a"),
    _masks("s_and_saveexec_b64 s[6:7], vcc", "v", "e", lambda e, v, a, b: e & v, saved="b"),
    _masks("s_or_saveexec_b64 s[8:9], vcc", "v", "e", lambda e, v, a, b: e | v, saved="a"),
    _masks("s_or_saveexec_b64 s[8:9], s[6:7]", "b", "e", lambda e, v, a, b: e | b, saved="a"),
    _masks("s_andn2_saveexec_b64 s[8:9], s[8:9]", "a", "e", lambda e, v, a, b: a & ~e, saved="a"),
    _masks("s_andn1_saveexec_b64 s[8:9], vcc", "v", "e", lambda e, v, a, b: ~v & e, saved="a"),
    _masks("s_xnor_saveexec_b64 s[8:9], s[6:7]", "b", "e", lambda e, v, a, b: ~(b ^ e), saved="a"),
    _masks("s_xor_saveexec_b64 s[8:9], -1", "", "e", lambda e, v, a, b: ~e, saved="a"),
    _masks("s_or_saveexec_b64 s[8:9], -1", "", "e", lambda e, v, a, b: EVERY, saved="a"),
    _masks("s_andn1_wrexec_b64 s[6:7], s[8:9]", "a", "eb", lambda e, v, a, b: ~a & e),
    _masks("s_or_b64 exec, exec, s[8:9]", "a", "e", lambda e, v, a, b: e | a),
    _masks("s_or_b64 exec, exec, s[6:7]", "b", "e", lambda e, v, a, b: e | b),
    _masks("s_andn2_b64 exec, exec, s[8:9]", "a", "e", lambda e, v, a, b: e & ~a),
    _masks("s_andn2_b64 exec, exec, s[6:7]", "b", "e", lambda e, v, a, b: e & ~b),
    _masks("s_andn2_b64 exec, s[8:9], exec", "a", "e", lambda e, v, a, b: a & ~e),
    _masks("s_xor_b64 exec, exec, s[8:9]", "a", "e", lambda e, v, a, b: e ^ a),
    _masks("s_orn2_b64 exec, s[8:9], s[6:7]", "ab", "e", lambda e, v, a, b: a | ~b),
    _masks("s_not_b64 exec, exec", "", "e", lambda e, v, a, b: ~e),
    _masks("s_mov_b64 exec, s[8:9]", "a", "e", lambda e, v, a, b: a, scc=False),
    _masks("s_mov_b64 exec, s[6:7]", "b", "e", lambda e, v, a, b: b, scc=False),
    _masks("s_mov_b64 exec, -1", "", "e", lambda e, v, a, b: EVERY, scc=False),
    _masks("s_mov_b64 s[8:9], exec", "", "a", lambda e, v, a, b: e, scc=False),
    _masks("s_mov_b64 s[6:7], 0", "", "b", lambda e, v, a, b: Word(0), scc=False),
    _masks("s_mov_b64 s[6:7], s[8:9]", "a", "b", lambda e, v, a, b: a, scc=False),
    _masks("s_xor_b64 s[8:9], exec, s[8:9]", "a", "a", lambda e, v, a, b: e ^ a),
    _masks("s_or_b64 s[6:7], vcc, s[6:7]", "vb", "b", lambda e, v, a, b: v | b),
    _masks("s_nand_b64 s[6:7], s[8:9], s[6:7]", "ab", "b", lambda e, v, a, b: ~(a & b)),
    Op(
        "s_cselect_b64 s[6:7], s[8:9], vcc",
        [8, 9, VCC, VCC + 1, SCC],
        [6, 7],
        lambda t: [t._replace(b=t.a), t._replace(b=t.v)],
        run=_select_mask,
    ),
    Op("s_mov_b64 s[6:7], s[2:3]", [2, 3], [6, 7], lambda t: anything(t, "b"), run=lambda m: m.set_pair(6, m.pair(2))),
    Op("s_mov_b32 s6, s8", [8], [6], _half(False, "b", lambda t: [t.a]), run=_move(6, 8)),
    Op("s_mov_b32 s7, s9", [9], [7], _half(True, "b", lambda t: [t.a]), run=_move(7, 9)),
    Op("s_mov_b32 s6, s9", [9], [6], _half(False, "b", lambda t: [0, 1]), run=_move(6, 9)),
    Op("s_mov_b32 s7, -1", [], [7], _half(True, "b", lambda t: [1]), run=lambda m: m.scalar.update({7: Word(WORD)})),
    Op("s_mov_b32 exec_hi, s9", [9], [], _half(True, "e", lambda t: [t.a]), run=_high_exec),
    _masks("s_mov_b64 s[8:9], s[6:7]", "b", "a", lambda e, v, a, b: b, scc=False),
    Op("v_readlane_b32 s8, v7, 0", [KEPT], [8], _half(False, "a", lambda t: [t.kept]), True, run=_restore(0, 8)),
    Op("v_readlane_b32 s9, v7, 1", [KEPT], [9], _half(True, "a", lambda t: [t.kept]), True, run=_restore(1, 9)),
    _keeps("v_writelane_b32 v7, s8, 0", 8, _half(False, "kept", lambda t: [t.a]), _keep(0, 8)),
    _keeps("v_writelane_b32 v7, s9, 1", 9, _half(True, "kept", lambda t: [t.a]), _keep(1, 9)),
    Op("v_readlane_b32 s6, v7, 0", [KEPT], [6], _half(False, "b", lambda t: [t.kept]), True, run=_restore(0, 6)),
    Op("v_readlane_b32 s7, v7, 1", [KEPT], [7], _half(True, "b", lambda t: [t.kept]), True, run=_restore(1, 7)),
]
