"""Waits and wait states between edits of a tool and the application's instructions.

An edit waits for the application's outstanding operations on registers that it accesses, and keeps the distance from
neighbouring instructions that the table of hazards requires (`luthier.arch.hazards`). Its author is responsible for
hazards among its own instructions, and for those that only certain instructions clear, except for SGPRs of GFX12;
`luthier verify` reports them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from luthier.hazards.insertion import wait_states
from luthier.hazards.paths import Onward
from luthier.hazards.wait_counters import Outstanding
from luthier.hazards.wait_counters.model import wait_model
from luthier.hazards.wait_states.dataflow import HazardPaths
from luthier.hazards.wait_states.model import START, Ticks, ticks
from luthier.hazards.wait_states.state import EMPTY, Lacking, State
from luthier.hazards.wait_states.steps import HazardStep, HazardSteps, instance_of, step_of
from luthier.lifting import LiftedRepresentation
from luthier.lifting.instructions.effects import Columns
from luthier.lifting.paths import Paths, successors
from luthier.patch.boundary.scalar_reads import Endings, Leftovers, scalars_ready
from luthier.tool.edits import Edit, effects_of


def with_waits(lifted: LiftedRepresentation, edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits with the waits that each needs."""
    if not edits:
        return []
    boundaries = _Boundaries(lifted)
    return [boundaries.around(edit) if edit.code else edit for edit in edits]


class _Boundaries:
    def __init__(self, lifted: LiftedRepresentation) -> None:
        self._lifted = lifted
        self._outstanding = Outstanding(lifted)
        self._paths = HazardPaths(lifted, HazardSteps(lifted, everything=True))
        self._states: dict[int, list[State]] = {}
        for block, state in Paths(self._paths).states():
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
        """Return the waits before registers can be used."""
        at = min(index, self._lifted.blocks[self._lifted.block_of[edit.at]].last)
        limits = self._outstanding.needed(at, touched, written)
        target = self._lifted.target
        return target.wait_for_everything if limits is None else wait_model(target).text(limits)

    def _own(self, code: bytes) -> tuple[list[HazardStep], Ticks]:
        """Return the steps of an edit, and its length."""
        lifted, model = self._lifted, self._paths.machine.model
        columns = Columns(lifted.isa.decode(code))
        native = lifted.effect_table.code(columns)
        steps, time = [], START
        for index in range(len(columns.opcode)):
            instance = instance_of(lifted.effect_table, native, columns, index)
            takes = ticks(instance.opcode, instance.values)
            steps.append(step_of(model, instance, index, time, takes))
            time = Ticks(*(sum(both) for both in zip(time, takes, strict=True)))
        return steps, time

    def _states_before(self, at: int, index: int, own: list[HazardStep]) -> int:
        """Return the wait states between an edit and the application before instruction `index` in `at`'s block."""
        block, machine = self._lifted.block_of[at], self._paths.machine
        lacking = Lacking(machine.model.rules, forever=False)
        for entered in self._states.get(block, ()):
            (state,) = self._paths.before(block, [index], entered)
            machine.run(state, own, START, lacking, only=True)
        return lacking.states

    def _states_behind(self, edit: Edit, own: list[HazardStep], length: Ticks) -> int:
        """Return the wait states between an edit and the application after it."""
        paths, machine = self._paths, self._paths.machine
        lacking = Lacking(machine.model.rules, forever=False)
        block, last = self._lifted.block_of[edit.at], edit.at - (edit.place == "before")
        onward: Onward[State] = Onward(self._next)

        def leave(block: int, state: State) -> None:
            onward.leave(block, frozenset(entry for entry in state if machine.model.rules[entry.rule].window))

        leave(block, paths.follow(block, machine.run(EMPTY, own, length), lacking, behind=last, only=True))
        for at, state in onward:
            leave(at, paths.follow(at, state, lacking, only=True))
        return machine.model.longest if onward.gave_up else lacking.states
