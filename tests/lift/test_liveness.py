"""Liveness against two independent oracles, on random programs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from effort import EVERYTHING, FUZZ
from lift_machine import EXEC, KEPT, VCC, Bits, Op, V, anything
from lift_oracles import COMPARED, VECTORS, compare, overwrite_the_dead, reference, sample, waits_without_lanes
from lift_programs import Step
from luthier import _mc
from luthier.lifting import BasicBlock, Liveness
from luthier.lifting.liveness import flow_of
from luthier.objects import CodeObject

PROGRAMS = (60 if EVERYTHING else 20) * FUZZ


@pytest.mark.rows(10)
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_agrees_with_reference(seed: int, assembled: Callable[..., CodeObject]) -> None:
    program = sample(seed, assembled)
    expected = reference(program, COMPARED)
    compare(program, expected, program.lifted.liveness)
    if set(program.index_of) == set(expected):
        for step, by_side in expected.items():
            live = program.lifted.liveness.live_before(program.index_of[step])
            assert set(live.active) & COMPARED - VECTORS == by_side[1] - VECTORS


def test_says_little_too_much(assembled: Callable[..., CodeObject]) -> None:
    """What is called live without need, over many programs without calls."""
    needless = total = 0
    for seed in range(100):
        program = sample(seed, assembled, functions=1)
        more, of = compare(program, reference(program, VECTORS), program.lifted.liveness)
        needless, total = needless + more, total + of
    print(f"{needless} of {total}")
    assert total > 10000
    assert needless < 0.03 * total


def fit_together(flow: _mc.Flow, whole: _mc.Flow, block: BasicBlock) -> None:
    """Groups of lanes in a block that is followed in pieces have the segments and edges of the whole block. Which
    groups are taken together where control joins may differ."""
    segments, call, behind, edges = flow.lanes(block.index)
    of_whole = whole.lanes(block.index)
    assert [bool(one[4]) for one in segments] == [bool(one[4]) for one in of_whole[0]]
    assert (bool(call), len(edges)) == (bool(of_whole[1]), len(of_whole[3]))
    for (groups, *_, spread), following in zip(segments, [*segments[1:], behind], strict=True):
        assert len(spread) in (0, groups)
        assert max(spread, default=0) < 1 << following[0]
    for edge, into in zip(block.successors, edges, strict=True):
        lanes = flow.lanes(edge.to)[0][0]
        assert len(into) == behind[0]
        for group, place in enumerate(into):
            assert place < 0 or behind[1] >> group & 1 == lanes[1] >> place & 1


@pytest.mark.parametrize("longest", [1, 2, 3])
def test_long_blocks_are_followed_in_pieces(longest: int, assembled: Callable[..., CodeObject]) -> None:
    """And the same is found as in whole ones."""
    for seed in range(20):
        lifted = sample(seed, assembled).lifted
        flow = flow_of(lifted, longest)
        pieces, reached = Liveness(lifted, flow), np.flatnonzero(lifted.reached)
        for index in reached.tolist():
            assert pieces.live_before(index) == lifted.liveness.live_before(index), (seed, index)
        for block in lifted.blocks:
            assert pieces.live_out(block.index) == lifted.liveness.live_out(block.index), (seed, block)
            fit_together(flow, lifted.flow, block)
        together, whole = pieces.at(reached), lifted.liveness.at(reached)
        assert all(together[number] == whole[number] for number in range(len(reached)))


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_every_question_has_one_answer(seed: int, assembled: Callable[..., CodeObject]) -> None:
    """Many points at once are the points one by one, and what is live after a block holds what is live in one
    that nothing else leads to."""
    program = sample(seed, assembled)
    lifted, expected = program.lifted, reference(program, COMPARED)
    step_of = {index: step for step, index in program.index_of.items()}
    reached = np.flatnonzero(lifted.reached)[::-1].tolist()
    points = lifted.liveness.at(reached)
    assert [points[number] for number in range(len(points))] == [*map(lifted.liveness.live_before, reached)]
    for block in lifted.blocks:
        assert lifted.liveness.live_in(block.index) == lifted.liveness.live_before(block.first)
        for edge in block.successors:
            if len(lifted.blocks[edge.to].predecessors) > 1 or block.exit == "call":
                continue  # there registers may be filled that are not here
            by_side = expected.get(step_of[lifted.blocks[edge.to].first], {0: set(), 1: set()})
            assert set(lifted.liveness.live_out(block.index).all_lanes) & COMPARED >= by_side[0] | by_side[1]


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_overwriting_the_dead_changes_nothing(seed: int, assembled: Callable[..., CodeObject]) -> None:
    program = sample(seed, assembled)
    overwrite_the_dead(program, program.lifted.liveness, seed, 20)


CHANGED = {"e": [EXEC, EXEC + 1], "v": [VCC, VCC + 1], "a": [8, 9], "b": [6, 7], "kept": [KEPT], "": []}
"""Units of each mask of `Bits`."""


def inserted_code(rng: random.Random) -> Op:
    """What is inserted may read some registers and then give others any value."""
    mask = rng.choice([*CHANGED, "e"])

    def lane(bits: Bits) -> list[Bits]:
        return anything(bits, mask) if mask else [bits]

    reads = rng.sample(range(V, V + 6), 2) + rng.sample(range(12), 1)
    return Op("inserted", reads, [*CHANGED[mask], V + rng.randrange(6)], lane, replaces=False)


@pytest.mark.rows(8)
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_inserted_code_takes_part(seed: int, assembled: Callable[..., CodeObject]) -> None:
    """Registers and masks that inserted code reads and changes, against the reference for a program that has it."""
    program = sample(seed, assembled)
    rng = random.Random(f"inserted {seed}")
    lifted = program.lifted
    for _ in range(4):
        place = rng.choice(sorted(program.index_of))
        index, code = program.index_of[place], [inserted_code(rng) for _ in range(rng.randint(1, 2))]
        reads = sum({1 << unit for op in code for unit in op.reads})
        changes = sum({1 << unit for op in code for unit in op.writes})
        liveness = lifted.also_reading({index: reads}).also_changing({index: changes}).liveness
        steps = [replace(step, to=step.to + len(code) * (step.to > place)) for step in program.steps]
        steps[place:place] = [Step(op, function=steps[place].function) for op in code]
        expected = reference(replace(program, steps=steps), COMPARED)
        text = f"{place}: {code}\n" + "\n".join(f"{number}: {one.op.text}" for number, one in enumerate(program.steps))
        for step, by_side in expected.items():
            old = step if step < place else max(place, step - len(code))
            live = liveness.live_before(program.index_of[old])
            if old == place and changes >> EXEC & 1:
                registers = set(live.all_lanes) & COMPARED
                assert registers >= by_side[0] | by_side[1], (step, by_side, registers, text)
            else:
                assert set(live.active) >= by_side[1], (step, by_side[1] - set(live.active), text)
                assert set(live.inactive) >= by_side[0], (step, by_side[0] - set(live.inactive), text)


def test_scalars_live_behind_a_call_that_only_inactive_lanes_return_from(assembled: Callable[..., CodeObject]) -> None:
    program = waits_without_lanes(assembled)
    compare(program, reference(program, COMPARED), program.lifted.liveness)
    assert {10, 11} <= set(program.lifted.liveness.live_before(program.index_of[1]).active)
