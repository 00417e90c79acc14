"""The check of hazards while a kernel runs: ``check="hazards"``.

Every wave has the state of the static check (`luthier.hazards.wait_states`), on the one path that it executes. The
effect of an instruction on a state is computed once for each code: the native executor follows an automaton
(`runtime/native/executor/hazards.h`), which this module extends on request. Missing wait states have no other effect on
the emulated device than these findings.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.binding.program import DecodedCode, Zeros, own_zeros
from luthier.emulator.inspection.decoded import CONTEXT, decoded
from luthier.errors import EmulationError
from luthier.findings.collector import PairSighting
from luthier.findings.kinds import FindingKind
from luthier.hazards.wait_states.findings import lacking
from luthier.hazards.wait_states.model import START, Rule, Ticks, hazard_model, ticks
from luthier.hazards.wait_states.operands import Taking, opcodes_of
from luthier.hazards.wait_states.state import EMPTY, HazardMachine, State, TooNear
from luthier.hazards.wait_states.steps import HazardStep, known_fields
from luthier.isa.registers import UnitSet
from luthier.isa.targets import TargetId

HAZARD = FindingKind.HAZARD.label
MOST = 1 << 14
"""The most findings that are kept of a launch."""
_MOST_HITS = 1 << 20
_FOLLOW = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)
_HIT, _MET = layout.HIT.dtype(), layout.MET.dtype()


class _Hit(NamedTuple):
    rule: Rule
    units: int
    present: int
    needed: int
    only_on: tuple[str, ...]


class _Shared(NamedTuple):
    """Properties that instructions of one opcode share in one code."""

    ends: bool
    """They end waves."""
    own: Ticks | None
    """Their duration; None: it depends on the operands."""
    taking: Taking
    """Roles that they may have in rules that the code may break."""


_NUMBERS = itertools.count(1)


class HazardAutomaton:
    """Automaton over the states of waves and the instructions of a code, computed on demand.

    Args:
        code: code of the kernels. States after instructions that other objects add later are not known.
        zeros: allocates the arrays that native code reads.
        more: number of records that other objects may add.
        target: the object's target, which may be more specific than the device's (XNACK off), or generic.
    """

    def __init__(
        self, code: DecodedCode, zeros: Zeros = own_zeros, more: int = 0, target: TargetId | None = None
    ) -> None:
        self._code, self._zeros = code, zeros
        self._count, self._most = code.count, code.count + 1 + more
        target = target or code.isa.target
        self._model = hazard_model(target.target, code.isa.wave_size, target.xnack is not False)
        self._machine = HazardMachine(self._model)
        self._opcodes = {number for part in code.parts for number in part.opcode.tolist()} - {-1}
        self._rules = self._met()
        self._known = opcodes_of(self._model, code.isa)
        self._shared: dict[int, _Shared] = {}
        """By opcode number."""
        self._decoded = decoded(code)
        self._steps: dict[int, HazardStep | None] = {}
        self._states: list[State] = [EMPTY]
        self._numbers: dict[State, int] = {EMPTY: 0}
        self._next: defaultdict[int, dict[int, int]] = defaultdict(dict)
        """Successors by record and state."""
        self._lock = threading.Lock()
        self.hits: list[_Hit] = []
        self._rows = zeros(_MOST_HITS, _HIT)
        self._makers: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """Records that are a rule's producer, with their units, by rule."""
        self._producers: dict[tuple[int, int], NDArray[np.uint8]] = {}
        """Whether each record may be the producer, by rule and units (0: units do not matter)."""
        self.problem: BaseException | None = None
        """Exception raised while native code asked."""
        self._function = _FOLLOW(self._answer)
        self._number = next(_NUMBERS)
        self._forgotten = np.zeros(0, np.uint32)

    @property
    def fields(self) -> Mapping[str, int]:
        """Return fields of `layout.WATCH` for a new launch."""
        return {
            "follow": ctypes.cast(self._function, ctypes.c_void_p).value or 0,
            "automaton": self._number,
            "forgotten": self._forgotten.ctypes.data,
            "forgotten_count": len(self._forgotten),
            "hits": self._rows.ctypes.data,
        }

    def _answer(self, _: int, number: int, record: int, made: int) -> int:
        """Answer native code with `follow`; runs on its threads, so no exception may leave it."""
        try:
            transitions = self.follow(number, record)
        except BaseException as problem:
            self.problem = self.problem or problem
            transitions = [(record | number << layout.FOLLOW_SHIFT, layout.FOLLOW_ENDS)]
        rows = np.array(transitions, layout.TRANSITION.dtype)
        ctypes.memmove(made, rows.ctypes.data, rows.nbytes)
        return len(transitions)

    def knows(self, number: int) -> bool:
        """Return whether there is a state of this number."""
        return number < len(self._states)

    def follow(self, number: int, record: int) -> list[tuple[int, int]]:
        """Return the answer to `layout.WATCH.follow`, as `layout.TRANSITION`s.

        A request costs about as much as computing one transition, so the answer also has those of the instructions
        after it, up to the first that does not fall through. If another thread already asked for this one, the answer
        has the following ones that are known.
        """
        with self._lock:
            was_known = number in self._next[record]
            made: list[tuple[int, int]] = []
            while len(made) < layout.FOLLOW_MOST:
                known = self._next[record]
                successor = known.get(number)
                if made and (successor is not None) != was_known:
                    break
                if successor is None:
                    successor = known[number] = self._follow(number, record)
                made.append((record | number << layout.FOLLOW_SHIFT, successor))
                if successor & layout.FOLLOW_ENDS or not self._code.goes_on(record):
                    break
                number, record = successor & (1 << layout.FOLLOW_SHIFT) - 1, record + 1
            return made

    def forget(self, records: Iterable[int]) -> None:
        """Forget these records after their instructions were replaced."""
        with self._lock:
            changed = set(records)
            changed |= {record + distance for record in changed for distance in range(1, CONTEXT + 1)}
            places = filter(None, map(self._decoded.place, sorted(changed)))
            new = {place.columns.opcode[place.at] for place in places} - self._opcodes
            self._opcodes |= new
            if new and not self._met() <= self._rules:
                self._rules = self._met()
                self._shared.clear()
                changed = set(range(self._code.count))
            for record in changed:
                self._next.pop(record, None)
                self._steps.pop(record, None)
            for rule, makers in self._makers.items():
                self._makers[rule] = [maker for maker in makers if maker[0] not in changed]
            for possible in self._producers.values():
                possible[[record for record in changed if record < len(possible)]] = 0
            self._forgotten = np.append(self._forgotten, np.array(sorted(changed), np.uint32))

    def _follow(self, number: int, record: int) -> int:
        step = self._step(record)
        if step is None:  # the wave ends, or the effects are not known
            return layout.FOLLOW_ENDS
        hits: list[_Hit] = []

        def report(near: TooNear) -> None:
            rule = self._model.rules[near.rule]
            only_on = self._model.only_on(rule, near.tag, near.distance, near.needed)
            hits.append(_Hit(rule, near.units, near.distance, near.needed, only_on))

        state = self._machine.run(self._states[number], [step], step.own, report)
        hits.sort(key=lambda hit: hit.present)  # only the first hazard of each producer and consumer is reported
        after = self._numbers.get(state)
        if after is None:
            after = self._numbers[state] = len(self._states)
            self._states.append(state)
        return after | self._add(hits) << layout.FOLLOW_SHIFT

    def _add(self, hits: list[_Hit]) -> int:
        """Add hits; return the index of the first row + 1, or 0 if there are none."""
        first = len(self.hits)
        if first + len(hits) > len(self._rows):
            message = f"the code has more than {len(self._rows)} kinds of hazards, which is the most that are kept"
            raise EmulationError(message, target=str(self._code.isa.target))
        for hit in hits:
            row = self._rows[len(self.hits)]
            hazard = hit.rule.hazard
            if hazard.producer is not None:
                row["producers"] = self._possible(hit.rule, hit.units if hazard.in_registers else 0).ctypes.data
            row["rule"] = hit.rule.number
            row["more"] = hit is not hits[-1]
            self.hits.append(hit)
        return first + 1 if hits else 0

    def _possible(self, rule: Rule, units: int) -> NDArray[np.uint8]:
        key = rule.number, units
        producers = self._producers.get(key)
        if producers is None:
            producers = self._producers[key] = self._zeros(self._most, np.uint8)
            for record, made in self._makers[rule.number]:
                producers[record] = bool(made & units) or not units
        return producers

    def _step(self, record: int) -> HazardStep | None:
        if record in self._steps:
            return self._steps[record]
        made = self._steps[record] = self._make(record)
        for number, units, _ in () if made is None else made.makes:
            self._makers[number].append((record, units))
            for (rule, met), possible in self._producers.items():
                if rule == number and (units & met or not met):
                    possible[record] = 1
        return made

    def _make(self, record: int) -> HazardStep | None:
        place = self._decoded.place(record) if record < self._count else None
        if place is None:
            return None
        columns, native, index = place
        number = columns.opcode[index]
        shared = self._shared.get(number)
        if shared is None:
            shared = self._shared[number] = self._share(number)
        if shared.ends:
            return None
        own = shared.own or ticks(self._code.isa.opcode(number), columns.values(index))
        does = known_fields(self._known, self._decoded.table, native, columns, index, shared.taking)
        return HazardStep(record, START, own, *does)

    def _share(self, number: int) -> _Shared:
        opcode = self._code.isa.opcode(number)
        return _Shared(
            opcode.pseudo.startswith("S_ENDPGM"),
            None if opcode.pseudo == "S_NOP" else ticks(opcode, [0]),
            self._known.taking_of(number, self._rules),
        )

    def _met(self) -> frozenset[int]:
        """Return the rules that the code may break."""
        return self._model.met_by(self._code.isa.opcode(number) for number in self._opcodes)


class HazardWatch:
    """Watches the hazards of one launch."""

    def __init__(self, automaton: HazardAutomaton) -> None:
        self._automaton = automaton
        self._met = own_zeros(MOST, _MET)
        self.fields = {**automaton.fields, "met": self._met.ctypes.data, "met_capacity": MOST}
        """Fields of `layout.WATCH`."""

    def sightings(self, read: Callable[[str], int]) -> list[PairSighting]:
        """Return the hazards that were met, as `met_hazards` does.

        Args:
            read: returns a field of `layout.WATCH`.
        """
        if self._automaton.problem is not None:
            problem, self._automaton.problem = self._automaton.problem, None
            raise problem
        return met_hazards(self._met[: min(read("met_count"), MOST)], self._automaton)


def met_hazards(rows: NDArray[np.void], automaton: HazardAutomaton) -> list[PairSighting]:
    """Return the hazards in `layout.MET`s, by instruction.

    Each producer, consumer and hazard comes once, from the first work-group that met it.
    """
    known: dict[tuple[int, int, int], PairSighting] = {}
    for row in rows[np.argsort(rows["group"], kind="stable")]:
        hit = automaton.hits[int(row["hit"])]
        key = int(row["consumer"]), int(row["producer"]), hit.rule.number
        if key not in known:
            known[key] = _sighting(hit, row)
    return [known[key] for key in sorted(known)]


def _sighting(hit: _Hit, row: np.void) -> PairSighting:
    consumer, producer, hazard = int(row["consumer"]), int(row["producer"]), hit.rule.hazard
    registers = UnitSet(hit.units if hazard.in_registers and hit.units != 1 else 0)
    needed = None if hazard.needed is None else hit.needed
    lacks = lacking(hit.present, needed, hazard.clock, hazard.remedy, hit.only_on)
    return PairSighting(
        HAZARD,
        consumer,
        None if producer == layout.ABSENT else producer,
        hazard.name,
        f"{hazard.name}{f' by {registers}' if registers else ''}; {lacks}",
        -1,
        int(row["wave"]),
        int(row["group"]),
    )


def hazard_watch(code: DecodedCode) -> HazardWatch:
    """Return the watch of a launch of a kernel in this code."""
    automaton = code.hazards
    if not isinstance(automaton, HazardAutomaton):
        automaton = code.hazards = HazardAutomaton(code, target=code.target)
    return HazardWatch(automaton)
