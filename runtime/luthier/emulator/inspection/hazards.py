"""The check of hazards while a kernel runs: ``check="hazards"``.

Every wave has the state that the check of all paths has (`luthier.lifting.hazards`), on the one path that it goes: what
an instruction does to a state is found once and remembered. Nothing goes wrong on the emulated device where wait states
are missing, so there is only what is found.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from luthier.emulator.binding.program import Code
from luthier.emulator.inspection.debug import Step as WaveStep
from luthier.isa import registers as r
from luthier.isa.hazard_model import Rule, Ticks, hazard_model, ticks
from luthier.isa.registers import UnitSet
from luthier.lifting.hazards.findings import lacking
from luthier.lifting.hazards.state import EMPTY, Entry, Machine, State
from luthier.lifting.hazards.steps import Step, instance_of, step_of
from luthier.lifting.instructions.effects import Columns, EffectTable

HAZARDS = "hazards"
LOOK_BACK = 256
"""Instructions of a wave among which the producer is looked for."""


@dataclass(frozen=True)
class LaunchHazard:
    """A wave executed two instructions too near to each other."""

    kernel: str
    hazard: str
    """`luthier.isa.hazards.Hazard.name`."""
    address: int
    """Virtual address of the consumer."""
    text: str
    producer: int | None
    """Virtual address; None: there is none, or it was executed long before."""
    producer_text: str
    registers: UnitSet
    """By which they meet; empty where it is not about registers."""
    there: int
    """What was between them, in `clock`."""
    needed: int | None
    """What must be; None where only certain instructions help."""
    clock: str
    """``states``: wait states; ``vector instructions``."""
    remedy: str
    workgroup: int
    wave: int
    check: str = HAZARDS

    def __str__(self) -> str:
        by = f" by {self.registers}" if self.registers else ""
        behind = "" if self.producer is None else f" behind {self.producer:#x} ({self.producer_text}){by}"
        what = lacking(self.there, self.needed, self.clock, self.remedy)
        return (
            f"hazard in {self.kernel} at {self.address:#x} ({self.text}): work-group {self.workgroup} wave {self.wave}"
            f"{behind}: {self.hazard}; {what}"
        )


class _Hit(NamedTuple):
    rule: Rule
    units: int
    there: int
    needed: int


@dataclass
class _Wave:
    state: int = 0
    """Number of its state."""
    history: deque[int] = field(default_factory=lambda: deque(maxlen=LOOK_BACK))
    """Records that were executed last."""


class HazardChecker:
    """Looks at all steps of a launch.

    Args:
        code: of the kernel.
        kernel: its name, for findings.
    """

    def __init__(self, code: Code, kernel: str) -> None:
        self._code, self._kernel = code, kernel
        target = code.isa.target
        self._model = hazard_model(target.target, code.isa.wave_size, target.xnack is not False)
        self._machine = Machine(self._model)
        self._table = EffectTable(code.isa, code.isa.wave_size, r.VECTOR_MASK)
        self._columns: dict[int, Columns] = {}
        self._steps: dict[int, Step | None] = {}
        self._states: list[State] = [EMPTY]
        self._numbers: dict[State, int] = {EMPTY: 0}
        self._next: dict[tuple[int, int], tuple[int, tuple[_Hit, ...]]] = {}
        self._waves: dict[tuple[int, int], _Wave] = {}
        self._findings: dict[tuple[int, int | None, int], LaunchHazard] = {}

    def findings(self) -> tuple[LaunchHazard, ...]:
        """What was found, of each producer, consumer and hazard once, in the order of first occurrence."""
        return tuple(self._findings.values())

    def observe(self, step: WaveStep) -> None:
        """A wave is about to execute an instruction."""
        place = step.workgroup, step.wave
        wave = self._waves.get(place)
        if wave is None:
            wave = self._waves[place] = _Wave()
        key = wave.state, step.record
        found = self._next.get(key)
        if found is None:
            found = self._next[key] = self._follow(*key)
        wave.state = found[0]
        for hit in found[1]:
            self._report(step, wave, hit)
        wave.history.append(step.record)
        one = self._steps[step.record]
        if one is None:  # it ended, or what it does is not known
            del self._waves[place]

    def _follow(self, number: int, record: int) -> tuple[int, tuple[_Hit, ...]]:
        """The state behind an instruction, and what is found there."""
        step = self._step(record)
        if step is None:
            return 0, ()
        hits: list[_Hit] = []

        def report(_: Step, entry: Entry, units: int, needed: int) -> None:
            hits.append(_Hit(self._model.rules[entry.rule], units, entry.age, needed))

        state = self._machine.run(self._states[number], [step], step.own, report)
        after = self._numbers.get(state)
        if after is None:
            after = self._numbers[state] = len(self._states)
            self._states.append(state)
        return after, tuple(hits)

    def _step(self, record: int) -> Step | None:
        if record in self._steps:
            return self._steps[record]
        made = self._steps[record] = self._make(record)
        return made

    def _make(self, record: int) -> Step | None:
        place = self._code.place_of(record)
        if place is None:
            return None
        number, index = place
        columns = self._columns.get(number)
        if columns is None:
            columns = self._columns[number] = Columns(self._code.parts[number])
        if columns.opcode[index] < 0:
            return None
        instance = instance_of(self._table, self._table.code(columns), columns, index)
        if instance.opcode.pseudo.startswith("S_ENDPGM"):
            return None
        own = ticks(instance.opcode, instance.values)
        return step_of(self._model, instance, record, Ticks(0, 0, 0), own, self._model.parts(instance.opcode))

    def _report(self, step: WaveStep, wave: _Wave, hit: _Hit) -> None:
        code, hazard = self._code, hit.rule.hazard
        producer = self._producer(wave, hit) if hazard.producer is not None else None
        key = step.record, producer, hit.rule.number
        if key in self._findings:
            return
        self._findings[key] = LaunchHazard(
            self._kernel,
            hazard.name,
            step.address,
            step.text,
            None if producer is None else code.address_of(producer),
            "" if producer is None else code.text(producer),
            UnitSet(hit.units if hazard.in_registers and hit.units != 1 else 0),
            hit.there,
            None if hazard.needed is None else hit.needed,
            hazard.clock,
            hazard.remedy,
            step.workgroup,
            step.wave,
        )

    def _producer(self, wave: _Wave, hit: _Hit) -> int | None:
        """The last of these instructions that was executed."""
        for record in reversed(wave.history):
            step = self._steps.get(record)
            for number, units, _ in () if step is None else step.makes:
                if number == hit.rule.number and (units & hit.units or not hit.rule.hazard.in_registers):
                    return record
        return None
