"""State of the check of hazards: the producers that are not far enough away at a point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from typing import NamedTuple

from luthier.hazards.wait_states.model import START, HazardModel, Rule, Ticks
from luthier.hazards.wait_states.steps import ConsumerCheck, HazardStep


class ProducerEntry(NamedTuple):
    """Registers of a producer."""

    rule: int
    armed: bool
    """Whether the middle has occurred, or the rule has none."""
    units: int
    tag: int
    """Tag for the comparison with a consumer; in rules with two producers the units of the second, once it occurred."""
    transcendental: int
    """Number of transcendental instructions since the producer."""
    age: int
    """Ticks of the rule's clock since the producer; 0 in rules that forget nothing."""


State = frozenset[ProducerEntry]
"""Entries of all rules. A rule that forgets nothing has one armed and one unarmed entry, with the units of all
producers. Other rules have only the youngest entry for the same units, tag and count of transcendental instructions."""
EMPTY: State = frozenset()


class TooNear(NamedTuple):
    """A consumer that is too close to a producer."""

    at: int
    """The consumer's instruction."""
    rule: int
    units: int
    """Registers by which they meet."""
    distance: int
    """Distance between them."""
    needed: int
    """Required distance; 0: an instruction that clears is required."""
    tag: int
    """The producer's tag."""

    @property
    def key(self) -> tuple[int, int]:
        """Return the key of a finding."""
        return self[:2]

    def joined(self, other: TooNear) -> TooNear:
        """Return the one that lacks more, with the registers of both."""
        worse = other if other.needed - other.distance > self.needed - self.distance else self
        return worse._replace(units=self.units | other.units)


Report = Callable[[TooNear], object]
"""Called for consumers that are too close."""


class Lacking:
    """Maximum over reports of the wait states that a consumer lacks.

    Args:
        forever: whether consumers for which wait states do not help lack one.
    """

    def __init__(self, rules: Sequence[Rule], *, forever: bool) -> None:
        self._rules, self._forever = rules, forever
        self.states = 0

    def __call__(self, met: TooNear) -> None:
        """Add a report."""
        rule = self._rules[met.rule]
        if rule.hazard.clock == "states" and (rule.window or self._forever):
            self.states = max(self.states, met.needed - met.distance, self._forever)


class _Live:
    """An entry inside a block, with the time of its producer instead of its age."""

    __slots__ = ("armed", "birth", "tag", "transcendental", "units")

    def __init__(self, armed: bool, units: int, tag: int, transcendental: int, birth: int) -> None:
        self.armed, self.units, self.tag = armed, units, tag
        self.transcendental, self.birth = transcendental, birth


class HazardMachine:
    """Applies steps to states."""

    def __init__(self, model: HazardModel) -> None:
        self.model = model
        self._clocks = [1 if rule.hazard.clock == "vector instructions" else 0 for rule in model.rules]
        self._lonely = frozenset(rule.number for rule in model.rules if rule.hazard.producer is None)
        """Rules without a producer, whose consumers alone are defects."""

    def run(
        self,
        state: State,
        steps: Iterable[HazardStep],
        length: Ticks,
        report: Report | None = None,
        *,
        start: Ticks = START,
        only: bool = False,
    ) -> State:
        """Return the state after a block.

        Args:
            steps: the steps of the block from `start` on.
            length: ticks of the block.
            report: called for consumers that are too close.
            start: ticks from the beginning of the block to the point of `state`.
            only: follow only the producers in `state`.
        """
        if not state and not steps:
            return state
        live: dict[int, list[_Live]] = {}
        for entry in state:
            birth = start[self._clocks[entry.rule]] - entry.age
            row = _Live(entry.armed, entry.units, entry.tag, start.transcendental - entry.transcendental, birth)
            live.setdefault(entry.rule, []).append(row)
        for step in steps:
            if live:
                self._meet(live, step, report)
            if report is not None and self._lonely:
                for check in step.checks:
                    if check.rule in self._lonely:
                        report(TooNear(step.at, check.rule, 0, 0, 0, 0))
            if not only:
                self._produce(live, step)
        return self._state(live, length)

    def _meet(self, live: dict[int, list[_Live]], step: HazardStep, report: Report | None) -> None:
        """Apply a step to the producers before it."""
        rules = self.model.rules
        for check in step.checks:
            if check.rule in live:
                self._check(live, rules[check.rule], step, check, report)
        for number in step.clears:
            if number in live:
                keep = [] if rules[number].hazard.clears_all else [one for one in live[number] if not one.armed]
                _put(live, number, keep)
        for number, units in step.disarms:
            _lose(live, number, units, armed=True)
        for number, units in step.arms:
            if number in live:
                _arm(live, rules[number], units)
        for number, units in step.forgets:
            _lose(live, number, units, armed=False)
        for number, units in step.seconds:
            if number in live:
                self._pair(live, rules[number], units, step)

    def _produce(self, live: dict[int, list[_Live]], step: HazardStep) -> None:
        for number, units, tag in step.makes:
            rule = self.model.rules[number]
            armed = rule.hazard.middle is None
            clock = self._clocks[number]
            rows = live.setdefault(number, [])
            if not rule.window:
                _join(rows, armed, units)
                continue
            birth = step.time[clock] + step.own[clock]
            since = step.time.transcendental + step.own.transcendental
            rows[:] = [one for one in rows if (one.armed, one.units, one.tag) != (armed, units, tag)]
            rows.append(_Live(armed, units, tag, since, birth))

    def _check(
        self,
        live: dict[int, list[_Live]],
        rule: Rule,
        step: HazardStep,
        consumer: ConsumerCheck,
        report: Report | None,
    ) -> None:
        """Report a consumer that is too close to producers.

        Remove the registers by which they meet, so that one defect is reported once.
        """
        units = consumer.units
        hazard = rule.hazard
        clock = self._clocks[rule.number]
        keep = []
        for entry in live[rule.number]:
            common = entry.units & units if hazard.in_registers else entry.units
            needed = min(rule.needed(entry.tag), consumer.at_most)
            age = step.time[clock] - entry.birth if rule.window else 0
            since = step.time.transcendental - entry.transcendental
            if (
                not common
                or not entry.armed
                or (rule.window and age >= needed)
                or (hazard.relation != "overlap" and (entry.units == units) != (hazard.relation == "same"))
                or (hazard.tags != "any" and (entry.tag == consumer.tag) != (hazard.tags == "same"))
                or (hazard.second is not None and not _meets_both(entry, consumer.sources))
                or (hazard.transcendental is not None and since >= hazard.transcendental)
            ):
                keep.append(entry)
                continue
            if report is not None:
                report(TooNear(step.at, rule.number, common, age, needed, entry.tag))
            rest = entry.units & ~common if hazard.relation == "overlap" else 0
            if rest:
                keep.append(_Live(entry.armed, rest, entry.tag, entry.transcendental, entry.birth))
        _put(live, rule.number, keep)

    def _pair(self, live: dict[int, list[_Live]], rule: Rule, units: int, step: HazardStep) -> None:
        """Pair a second producer with each first one that is close and armed.

        For the registers that it overwrites, it replaces the others.
        """
        clock = self._clocks[rule.number]
        rows = live[rule.number]
        behind = step.time[clock] + step.own[clock]
        firsts = {
            entry.units & ~units
            for entry in rows
            if entry.armed and not entry.tag and step.time[clock] - entry.birth <= rule.hazard.second_within
        }
        keep = []
        for entry in rows:
            paired = bool(entry.tag)
            entry.units &= ~units
            entry.tag &= ~units
            if entry.units and paired == bool(entry.tag):
                keep.append(entry)
        since = step.time.transcendental + step.own.transcendental
        keep += [_Live(True, first, units, since, behind) for first in sorted(firsts) if first]
        _put(live, rule.number, keep)

    def _state(self, live: dict[int, list[_Live]], length: Ticks) -> State:
        ages: dict[tuple[int, bool, int, int, int], int] = {}
        for number, rows in live.items():
            rule = self.model.rules[number]
            window, counted, now = rule.window, rule.hazard.transcendental, length[self._clocks[number]]
            for entry in rows:
                age = now - entry.birth if window else 0
                if window and age >= window:
                    continue
                since = length.transcendental - entry.transcendental if counted is not None else 0
                if counted is not None and since >= counted:
                    continue
                key = number, entry.armed, entry.units, entry.tag, since
                if age < ages.get(key, age + 1):
                    ages[key] = age
        return frozenset([ProducerEntry(*key, age) for key, age in ages.items()])

    def merge(self, first: State, second: State) -> State:
        """Return the union of two states: `first` itself if `second` adds nothing."""
        if second <= first:
            return first
        youngest: dict[ProducerEntry, int] = {}
        permanent: dict[tuple[int, bool], int] = {}
        for entry in (*first, *second):
            if self.model.rules[entry.rule].window:
                _youngest(youngest, entry)
            else:
                key = entry.rule, entry.armed
                permanent[key] = permanent.get(key, 0) | entry.units
        joined = frozenset(
            [
                *(key._replace(age=age) for key, age in youngest.items()),
                *(ProducerEntry(rule, armed, units, 0, 0, 0) for (rule, armed), units in permanent.items()),
            ]
        )
        return first if joined == first else joined


def _meets_both(entry: _Live, sources: tuple[int, ...]) -> bool:
    """Return whether different sources are registers of two producers."""
    return any(
        entry.units & first and entry.tag & second for first, second in permutations(sources, 2) if first != second
    )


def _youngest(ages: dict[ProducerEntry, int], entry: ProducerEntry) -> None:
    key = entry._replace(age=0)
    ages[key] = min(ages.get(key, entry.age), entry.age)


def _put(live: dict[int, list[_Live]], number: int, rows: list[_Live]) -> None:
    if rows:
        live[number] = rows
    else:
        del live[number]


def _lose(live: dict[int, list[_Live]], number: int, units: int, *, armed: bool) -> None:
    if number in live:
        for entry in live[number]:
            if entry.armed == armed:
                entry.units &= ~units
        _put(live, number, [entry for entry in live[number] if entry.units])


def _join(rows: list[_Live], armed: bool, units: int) -> None:
    for entry in rows:
        if entry.armed == armed:
            entry.units |= units
            return
    rows.append(_Live(armed, units, 0, 0, 0))


def _arm(live: dict[int, list[_Live]], rule: Rule, units: int) -> None:
    """Arm producers after the middle: all of them if it is an event, otherwise those that share its registers."""
    rows = live[rule.number]
    for entry in list(rows):
        if entry.armed:
            continue
        common = entry.units if rule.hazard.middle_is_event else entry.units & units
        if not common:
            continue
        if rule.window:
            entry.armed = True
        else:
            _join(rows, True, common)
