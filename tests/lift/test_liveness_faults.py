"""The oracles catch a mistake in each rule of liveness: every test plants one in the reference and shows it by a random
program. `test_liveness.py` holds the native analysis to the reference.

Which program shows it is written beside each. When the programs change, LUTHIER_FUZZ=10 looks through 600 and names
the first that does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
from effort import FUZZ
from lift_oracles import COMPARED, Live, Sample, compare, reference, sample
from lift_reference import Liveness, lane_masks
from lift_reference.lane_flow import LaneFlow, SegmentLanes
from lift_reference.lane_masks import LaneMasks, evaluate
from lift_reference.mask_operations import MaskOperation
from lift_reference.segments import Segment
from lift_reference.written import Filled, Written
from luthier.isa import registers as r
from luthier.lifting.instructions.semantics import Lanes
from luthier.lifting.model import BasicBlock
from luthier.objects import CodeObject

PROGRAMS = 60 * FUZZ if FUZZ > 1 else 0
"""Programs to look through instead of the one that is known to show a fault."""

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]
FAULTS: dict[str, tuple[Plant, int]] = {}


def fault(shown_by: int) -> Callable[[Plant], Plant]:
    """Registers what plants a fault.

    Args:
        shown_by: number of a program that shows it.
    """

    def register(plant: Plant) -> Plant:
        FAULTS[plant.__name__] = plant, shown_by
        return plant

    return register


@fault(17)
def saves_the_new_mask(patch: Patch) -> None:
    patch.setattr(MaskOperation, "_save", MaskOperation._write)


@fault(71)
def learns_the_opposite_of_the_mask(patch: Patch) -> None:
    def wrong(table: int, one: lane_masks.Mask, other: lane_masks.Mask, everything: int) -> object:
        mask, about, other_about = evaluate(table, one, other, everything)
        return mask, [about[1], about[0], about[3], about[2]], other_about

    patch.setattr("lift_reference.mask_operations.evaluate", wrong)


@fault(17)
def takes_a_bitwise_operation_for_exact(patch: Patch) -> None:
    def wrong(table: int, one: lane_masks.Mask, other: lane_masks.Mask, everything: int) -> object:
        mask, *about = evaluate(table, one, other, everything)
        return (mask[1], mask[1]), *about

    patch.setattr("lift_reference.mask_operations.evaluate", wrong)


@fault(17)
def a_compare_finds_all_lanes(patch: Patch) -> None:
    def wrong(self: MaskOperation, state: LaneMasks) -> None:
        state.forget(self.writes)
        state.put(self.target, (state.on, state.on))

    patch.setattr(MaskOperation, "_compare", wrong)


@fault(246)
def a_compare_into_exec_keeps_all_lanes(patch: Patch) -> None:
    patch.setattr(MaskOperation, "_compare_exec", MaskOperation._forget)


@fault(73)
def overwritten_masks_stay_known(patch: Patch) -> None:
    patch.setattr(LaneMasks, "forget", lambda self, writes: None)


@fault(246)
def halves_are_interchangeable(patch: Patch) -> None:
    def wrong(self: LaneMasks, source: int) -> lane_masks.Held | None:
        held = right(self, source)
        return None if held is None else (lane_masks.EITHER, held[1], held[2])

    right = LaneMasks.half
    patch.setattr(LaneMasks, "half", wrong)


@fault(71)
def a_selected_mask_is_the_first(patch: Patch) -> None:
    patch.setattr("lift_reference.mask_operations._either", lambda one, other: one)


@fault(73)
def a_mask_kept_in_a_lane_survives(patch: Patch) -> None:
    forget = LaneMasks.forget
    patch.setattr(LaneMasks, "forget", lambda self, writes: forget(self, writes & r.SCALAR_MASK))


@fault(17)
def half_of_exec_is_nothing(patch: Patch) -> None:
    def wrong(self: MaskOperation, state: LaneMasks) -> object:
        return unknown(self._replace(lanes=Lanes.UNCHANGED), state)

    unknown = MaskOperation._exec_unknown
    patch.setattr(MaskOperation, "_exec_unknown", wrong)


@fault(17)
def a_join_forgets_nothing(patch: Patch) -> None:
    def wrong(self: LaneMasks, other: LaneMasks, vacant: int = 0) -> tuple[list[int], bool]:
        if not self.count:
            return right(self, other, vacant)
        into, _ = right(self.copy(), other, vacant)
        return [min(group, self.count - 1) for group in into], False

    right = LaneMasks.join
    patch.setattr(LaneMasks, "join", wrong)


@fault(17)
def groups_are_taken_together_blindly(patch: Patch) -> None:
    def wrong(self: LaneMasks, most: int) -> list[int]:
        new = [min(group, most - 1) for group in range(self.count)]
        self._renumber(new, most)
        return new

    patch.setattr(lane_masks, "MOST_GROUPS", 3)
    patch.setattr("lift_reference.mask_operations.MOST_GROUPS", 3)
    patch.setattr(LaneMasks, "compact", wrong)


@fault(17)
def no_lane_is_active_on_either_way(patch: Patch) -> None:
    def wrong(self: LaneFlow, block: BasicBlock, kind: str, state: LaneMasks) -> int:
        return state.on if block.exit == "conditional" and state.on != state.everything else 0

    patch.setattr(LaneFlow, "_vacant", wrong)


@fault(320)
def calls_leave_exec_alone(patch: Patch) -> None:
    def wrong(self: LaneFlow, block: BasicBlock, state: LaneMasks) -> object:
        self._keeps_exec = [True] * len(self._keeps_exec)
        return right(self, block, state)

    right = LaneFlow._call
    patch.setattr(LaneFlow, "_call", wrong)


@fault(320)
def calls_leave_scalars_alone(patch: Patch) -> None:
    def wrong(self: LaneFlow, block: BasicBlock, state: LaneMasks) -> object:
        self._changes = [0] * len(self._changes)
        return right(self, block, state)

    right = LaneFlow._call
    patch.setattr(LaneFlow, "_call", wrong)


@fault(320)
def what_one_way_leaves_alone_is_left_alone(patch: Patch) -> None:
    patch.setattr(LaneMasks, "_join_moved", lambda self, moved, other: False)


@fault(479)
def whatever_comes_from_a_lane_was_there_before(patch: Patch) -> None:
    def wrong(self: MaskOperation, state: LaneMasks) -> None:
        right(self, state)
        state.set(self.target, state.held.get(self.target), self.target)

    right = MaskOperation._get_lane
    patch.setattr(MaskOperation, "_get_lane", wrong)


@fault(17)
def the_launch_fills_nothing(patch: Patch) -> None:
    solve = Written._solve
    patch.setattr(Written, "_solve", lambda self, at_launch: solve(self, 0))


@fault(17)
def only_writes_in_the_block_fill(patch: Patch) -> None:
    def wrong(self: Written, at_launch: int) -> list[Filled]:
        return [Filled(at_launch, 0)] * len(self._lifted.blocks)

    patch.setattr(Written, "_solve", wrong)


@fault(71)
def calls_fill_nothing(patch: Patch) -> None:
    patch.setattr(Written, "through_call", lambda self, call: Filled(0, 0))


@fault(73)
def only_launched_lanes_are_ever_active(patch: Patch) -> None:
    patch.setattr(Written, "_launched", lambda self, block, lanes: True)


@fault(73)
def no_lane_is_written_unless_active(patch: Patch) -> None:
    def wrong(lifted: object) -> list[tuple[Segment, ...]]:
        return [tuple(one._replace(writes_anywhere=0) for one in segments) for segments in right(lifted)]

    from lift_reference import liveness

    right = liveness.cut_blocks
    patch.setattr(liveness, "cut_blocks", wrong)


@fault(17)
def inactive_lanes_were_never_launched(patch: Patch) -> None:
    def wrong(self: Written, block: BasicBlock, lanes: SegmentLanes) -> int:
        return ~lanes.on

    patch.setattr(Written, "never", wrong)


@fault(17)
def callees_run_with_all_lanes(patch: Patch) -> None:
    def wrong(self: Written) -> None:
        return None

    patch.setattr(Written, "_look_at_callers", wrong)


@fault(17)
def lanes_stay_where_they_are(patch: Patch) -> None:
    from lift_reference import liveness

    def wrong(behind: list[int], spread: tuple[int, ...]) -> list[int]:
        return [behind[(groups & -groups).bit_length() - 1] for groups in spread]

    patch.setattr(liveness, "_gather", wrong)


@fault(2)
def what_is_stored_unwritten_is_nothing(patch: Patch) -> None:
    patch.setattr(Written, "_stored_unwritten", lambda self: 0)


@pytest.fixture(scope="session")
def prepared(assembled: Callable[..., CodeObject]) -> Callable[[int], tuple[Sample, Live]]:
    """A random program by its number, and what the reference says of it."""

    @functools.cache
    def prepared(seed: int) -> tuple[Sample, Live]:
        program = sample(seed, assembled)
        return program, reference(program, COMPARED)

    return prepared


@pytest.mark.parametrize("name", FAULTS)
def test_is_caught(name: str, prepared: Callable[[int], tuple[Sample, Live]], monkeypatch: Patch) -> None:
    plant, shown_by = FAULTS[name]
    numbers = range(PROGRAMS) if PROGRAMS else (shown_by,)
    for program, expected in map(prepared, numbers):  # is right without the fault
        compare(program, expected, Liveness(program.lifted))
    plant(monkeypatch)
    for number in numbers:
        program, expected = prepared(number)
        try:
            compare(program, expected, Liveness(program.lifted))
        except AssertionError:
            print(f"shown by program {number}")
            return
    pytest.fail(f"not shown by {len(numbers)} programs")
