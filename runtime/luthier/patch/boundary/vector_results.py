"""Results of the application's vector instructions that a comparison before a payload must not read immediately: those
of transcendental operations on GFX11.0, of matrix products on GFX1250, and those written on both sides of a change of
EXEC.

Payloads begin with a wait for these (`luthier.hazards.insertion`). Comparisons of guards precede it, and have this wait
only if they need it.
"""

from __future__ import annotations

import functools

from luthier import _mc
from luthier.hazards.wait_states.model import Rule, hazard_model, ticks
from luthier.hazards.wait_states.steps import instance_of
from luthier.isa.registers import VGPR_MASK
from luthier.lifting import LiftedRepresentation
from luthier.patch.boundary.neighbours import entered_blocks


class VectorResults:
    """Vector registers of one kernel that are not ready yet at a point.

    Args:
        changed: whether the application's instructions change, so that their results are unknown.
    """

    def __init__(self, lifted: LiftedRepresentation, *, changed: bool) -> None:
        self._lifted, self._changed = lifted, changed
        self._model = hazard_model(lifted.target, lifted.wave_size)

    @functools.cached_property
    def _rules(self) -> list[Rule]:
        return [
            rule
            for rule in self._model.rules
            if rule.hazard.clock == "vector instructions"
            and "VALU" in rule.hazard.consumer.kind.classes
            and rule.hazard.consumer.role.access != "writes"
        ]

    @functools.cached_property
    def _entered(self) -> set[int]:
        return entered_blocks(self._lifted)

    @functools.cached_property
    def _native(self) -> _mc.Code:
        return self._lifted.effect_table.code(self._lifted.columns)

    def are_awaited(self, point: int, index: int, read: int) -> bool:
        """Return whether a vector instruction at a point must wait before it reads some registers.

        Args:
            point: the instruction before which it would be inserted.
            index: an instruction in its block: `point`, or the one before it.
            read: bit set of the registers' units.
        """
        vectors = read & VGPR_MASK
        return bool(vectors) and any(
            self._changed or self._is_near(rule, point, index, vectors)
            for rule in self._rules
            if rule.hazard.second is None or vectors & (vectors - 1)
        )

    def _is_near(self, rule: Rule, point: int, index: int, read: int) -> bool:
        """Return whether a producer of some registers, or any producer of a rule with a middle, is close to a point."""
        blocks, part = self._lifted.blocks, "producer" if rule.hazard.middle is None else "middle"
        waiting = [(point, blocks[self._lifted.block_of[index]], rule.reach)]
        longest: dict[int, int] = {}
        while waiting:
            end, block, left = waiting.pop()
            for at in range(end - 1, block.first - 1, -1):
                units, vectors = self._part_of(at, rule.number, part)
                if units & read or (units and part == "middle"):
                    return True
                left -= vectors
                if left <= 0:
                    break
            else:
                if block.index in self._entered:
                    return True
                for before in block.predecessors:
                    if left > longest.get(before, 0):
                        longest[before] = left
                        waiting.append((blocks[before].last + 1, blocks[before], left))
        return False

    def _part_of(self, at: int, rule: int, part: str) -> tuple[int, int]:
        """Return the units of an instruction as a party of a rule, and 1 if it is a vector instruction."""
        lifted, number = self._lifted, self._lifted.columns.opcode[at]
        if number < 0:
            return -1, 0
        opcode = lifted.isa.opcode(number)
        vectors = ticks(opcode, lifted.columns.values(at)).vector
        units_of = self._model.parts(opcode).get((rule, part))
        if units_of is None:
            return 0, vectors
        instance = instance_of(lifted.effect_table, self._native, lifted.columns, at)
        return units_of(instance), vectors
