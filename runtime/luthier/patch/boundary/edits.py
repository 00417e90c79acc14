"""Waits and wait states where instructions that a tool adds or changes meet the application's.

An edit waits for what the application has outstanding in registers that it touches, and it is kept as far from the
instructions around it as the table of hazards asks for (`luthier.arch.hazards`). What is among an edit's
own instructions is its author's, and so is what only certain instructions clear, but for SGPRs of GFX12; `luthier
verify` tells of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from luthier.hazards.insertion import wait_states
from luthier.hazards.wait_counters import Outstanding
from luthier.hazards.wait_counters.model import wait_model
from luthier.hazards.wait_states.dataflow import Flow
from luthier.hazards.wait_states.model import Ticks, ticks
from luthier.hazards.wait_states.state import EMPTY, Entry, State
from luthier.hazards.wait_states.steps import Step, Steps, instance_of, step_of
from luthier.lifting import LiftedRepresentation
from luthier.lifting.instructions.effects import Columns
from luthier.lifting.paths import successors
from luthier.patch.boundary.scalar_reads import Endings, Leftovers, scalars_ready
from luthier.tool.edits import Edit, effects_of

MOST_BLOCKS = 64
"""Blocks that are looked at behind an edit; if that does not settle it, it waits as long as any hazard asks for."""
_START = Ticks(0, 0, 0)


def with_waits(lifted: LiftedRepresentation, edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits with the waits that they need, each considered by itself."""
    if not edits:
        return []
    boundaries = _Boundaries(lifted)
    return [boundaries.around(edit) if edit.code else edit for edit in edits]


class _Boundaries:
    def __init__(self, lifted: LiftedRepresentation) -> None:
        self._lifted = lifted
        self._outstanding = Outstanding(lifted)
        self._steps = Steps(lifted, everything=True)
        self._flow = Flow(lifted, self._steps)
        self._states: dict[int, list[State]] = {}
        for block, state in self._flow.states():
            self._states.setdefault(block, []).append(state)
        self._next = successors(lifted)
        self._endings = Endings(lifted, edited=False)

    def around(self, edit: Edit) -> Edit:
        """Return an edit with its waits."""
        lifted = self._lifted
        index = edit.at + (edit.place == "after")
        own, length = self._own(edit.code)
        reads = writes = 0
        for effects in effects_of(lifted, edit.code):
            reads |= effects.reads
            writes |= effects.writes
        left = Leftovers.of(lifted.isa, edit.code, writes)
        before = [*self._waits(edit, index, reads | writes, writes), *scalars_ready(lifted.target, reads)]
        before += wait_states(self._states_before(edit.at, index, own))
        ending = self._endings.at(edit.at + (edit.place != "before"), left) if self._endings.needed else ()
        behind = [*ending, *wait_states(self._states_behind(edit, own, length))]
        code = [lifted.isa.assemble("\n".join(lines)).instructions.code for lines in (before, behind)]
        return replace(edit, code=code[0] + edit.code + code[1])

    def _waits(self, edit: Edit, index: int, touched: int, written: int) -> tuple[str, ...]:
        """Return the waits that are needed before registers can be used."""
        at = min(index, self._lifted.blocks[self._lifted.block_of[edit.at]].last)
        limits = self._outstanding.needed(at, touched, written)
        target = self._lifted.target
        return target.wait_for_everything if limits is None else wait_model(target).text(limits)

    def _own(self, code: bytes) -> tuple[list[Step], Ticks]:
        """Return the steps of an edit, and its length."""
        lifted, model = self._lifted, self._steps.model
        columns = Columns(lifted.isa.decode(code))
        native = lifted.effect_table.code(columns)
        steps, time = [], _START
        for index in range(len(columns.opcode)):
            instance = instance_of(lifted.effect_table, native, columns, index)
            takes = ticks(instance.opcode, instance.values)
            steps.append(step_of(model, instance, index, time, takes))
            time = Ticks(*(sum(both) for both in zip(time, takes, strict=True)))
        return steps, time

    def _states_before(self, at: int, index: int, own: list[Step]) -> int:
        """Wait states between the application before instruction `index`, in the block of `at`, and an edit."""
        block = self._lifted.block_of[at]
        first = self._lifted.blocks[block].first
        until = Ticks(*(self._steps.total[index] - self._steps.total[first]).tolist())
        machine, lacking = self._flow.machine, _Lacking(self._flow)
        for state in self._states.get(block, ()):
            here = machine.run(state, [step for step in self._steps.of(block) if step.at < index], until)
            machine.run(here, own, _START, lacking, only=True)
        return lacking.states

    def _states_behind(self, edit: Edit, own: list[Step], length: Ticks) -> int:
        """Wait states between an edit and the application behind it."""
        machine, lacking = self._flow.machine, _Lacking(self._flow)
        block = self._lifted.block_of[edit.at]
        first = self._lifted.blocks[block].first
        begin = edit.at + (edit.place != "before")
        state = machine.run(EMPTY, own, length)
        start = Ticks(*(self._steps.total[begin] - self._steps.total[first]).tolist())
        steps = [step for step in self._steps.of(block) if step.at >= begin]
        state = machine.run(state, steps, self._steps.length(block), lacking, start=start, only=True)
        waiting = [(one, state) for one in self._next[block]]
        seen: set[tuple[int, State]] = set()
        while waiting:
            at, state = waiting.pop()
            state = frozenset(entry for entry in state if machine.model.rules[entry.rule].window)
            if not state or (at, state) in seen:
                continue
            seen.add((at, state))
            if len(seen) > MOST_BLOCKS:
                return machine.model.longest
            state = machine.run(state, self._steps.of(at), self._steps.length(at), lacking, only=True)
            waiting += [(one, state) for one in self._next[at]]
        return lacking.states


class _Lacking:
    """Adds up what consumers report: the most wait states that one of them lacks."""

    def __init__(self, flow: Flow) -> None:
        self._rules = flow.machine.model.rules
        self.states = 0

    def __call__(self, step: Step, entry: Entry, units: int, needed: int) -> None:
        rule = self._rules[entry.rule]
        if rule.hazard.clock == "states" and rule.window:
            self.states = max(self.states, needed - entry.age)
