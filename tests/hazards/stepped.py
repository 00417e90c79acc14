"""Hazards on the path of a launch, instruction by instruction in Python: the native check must find the same."""

from __future__ import annotations

from collections import deque

from luthier.emulator import layout
from luthier.emulator.inspection.debug import WaveStep as WaveStep
from luthier.hazards.wait_states.model import Ticks, hazard_model, ticks
from luthier.hazards.wait_states.state import EMPTY, HazardMachine, State, TooNear
from luthier.hazards.wait_states.steps import HazardStep, instance_of, step_of
from luthier.isa import registers as r
from luthier.lifting.instructions.effects import Columns, EffectTable


class Stepped:
    """A trace of a launch: pass it as such, then read `found`."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, int | None, str], tuple[int, int, int, str]] = {}
        """By addresses of consumer and producer, and hazard: what is there, work-group, wave, registers."""
        self._waves: dict[tuple[int, int], tuple[State, deque[tuple[int, HazardStep]]]] = {}
        self._steps: dict[int, HazardStep | None] = {}

    def __call__(self, at: WaveStep) -> None:
        """A wave is about to execute an instruction."""
        code = at.code
        self.model = hazard_model(code.isa.target.target, code.isa.wave_size, code.isa.target.xnack is not False)
        if at.record not in self._steps:
            self._steps[at.record] = self._step(at)
        step = self._steps[at.record]
        place = at.workgroup, at.wave
        if step is None:
            self._waves.pop(place, None)
            return
        state, history = self._waves.get(place, (EMPTY, deque(maxlen=layout.LOOK_BACK)))
        met: list[TooNear] = []
        state = HazardMachine(self.model).run(state, [step], step.own, met.append)
        for near in sorted(met, key=lambda lack: lack.distance):
            hazard = self.model.rules[near.rule].hazard
            registers = near.units if hazard.in_registers and near.units != 1 else 0
            producer = self._producer(history, near.rule, near.units) if hazard.producer is not None else None
            key = at.address, producer, hazard.name
            self.found.setdefault(key, (near.distance, at.workgroup, at.wave, str(r.UnitSet(registers))))
        history.append((at.address, step))
        self._waves[place] = state, history

    def _producer(self, history: deque[tuple[int, HazardStep]], rule: int, units: int) -> int | None:
        for address, step in reversed(history):
            for number, made, _ in step.makes:
                if number == rule and (made & units or not self.model.rules[rule].hazard.in_registers):
                    return address
        return None

    def _step(self, at: WaveStep) -> HazardStep | None:
        located = at.code.locate(at.record)
        if located is None or located[0].opcode[located[1]] < 0:
            return None
        columns, isa = Columns(located[0]), at.code.isa
        table = EffectTable(isa, isa.wave_size, r.VECTOR_MASK)
        instance = instance_of(table, table.code(columns), columns, located[1])
        if instance.opcode.pseudo.startswith("S_ENDPGM"):
            return None
        own = ticks(instance.opcode, instance.values)
        return step_of(self.model, instance, at.record, Ticks(0, 0, 0), own)
