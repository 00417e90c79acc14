"""Liveness against two independent oracles and the same analysis in Python, on random programs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from effort import EVERYTHING, FUZZ
from lift_machine import EXEC, KEPT, VCC, Bits, Op, V, anything
from lift_oracles import COMPARED, VECTORS, compare, lifted_sample, overwrite_the_dead, reference, sample
from lift_programs import Step, operation, with_control
from lift_reference import Liveness as Reference
from luthier.lifting import LiftedRepresentation, Liveness
from luthier.lifting.liveness import flow_of
from luthier.objects import CodeObject

PROGRAMS = (60 if EVERYTHING else 20) * FUZZ


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


def same(lifted: LiftedRepresentation, masks_of: Reference | None = None) -> Reference:
    """Native liveness is that of the reference at every point.

    Args:
        masks_of: whose lane masks the reference is to take over, as the native one does where only reads are added.
    """
    expected = Reference(lifted, masks_of and masks_of.lane_flow)
    for block in lifted.blocks:
        for index in range(block.first, block.last + 1):
            assert lifted.liveness.live_before(index) == expected.live_before(index), index
        assert lifted.liveness.live_out(block.index) == expected.live_out(block.index)
    reached = [index for index, block in enumerate(lifted.block_of) if block >= 0][::-1]
    points = lifted.liveness.at(reached)
    assert [points[number] for number in range(len(points))] == [*map(expected.live_before, reached)]
    return expected


@pytest.mark.parametrize("longest", [1, 2, 3])
def test_long_blocks_are_followed_in_pieces(longest: int, assembled: Callable[..., CodeObject]) -> None:
    """And the same is found as in whole ones."""
    for seed in range(20):
        lifted = sample(seed, assembled).lifted
        pieces, reached = Liveness(lifted, flow_of(lifted, longest), longest), np.flatnonzero(lifted.reached)
        for index in reached.tolist():
            assert pieces.live_before(index) == lifted.liveness.live_before(index), (seed, index)
        for block in lifted.blocks:
            assert pieces.live_out(block.index) == lifted.liveness.live_out(block.index), (seed, block)
        together, whole = pieces.at(reached), lifted.liveness.at(reached)
        assert all(together[number] == whole[number] for number in range(len(reached)))


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_native_is_the_reference(seed: int, assembled: Callable[..., CodeObject]) -> None:
    """Also with inserted code that reads and writes."""
    lifted = sample(seed, assembled).lifted
    expected = same(lifted)
    choice = random.Random(seed)
    reads = {
        choice.randint(block.first, block.last): 1 << choice.choice([3, 106, 256 + choice.randrange(16)])
        for block in lifted.blocks
    }
    reading = lifted.also_reading(reads)
    same(reading, expected)
    changes = {
        choice.randint(block.first, block.last): 1 << choice.choice([3, 106, EXEC, 256 + choice.randrange(16)])
        for block in lifted.blocks
    }
    same(reading.also_changing({**changes, lifted.blocks[0].first: 1 << 3}))


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
                found = set(live.all_lanes) & COMPARED
                assert found >= by_side[0] | by_side[1], (step, by_side, found, text)
            else:
                assert set(live.active) >= by_side[1], (step, by_side[1] - set(live.active), text)
                assert set(live.inactive) >= by_side[0], (step, by_side[0] - set(live.inactive), text)


def test_scalars_live_behind_a_call_that_only_inactive_lanes_return_from(assembled: Callable[..., CodeObject]) -> None:
    """The callee returns where EXEC is zero, so its summary tells of active lanes that they never come back. The group
    of lanes that were not launched is the active one at the call."""

    def plain(text: str) -> Step:
        return Step(operation(random.Random(0), text))

    kernel = [plain("s_not_b64 exec"), Step(operation(random.Random(0)), "call", to=5), plain("s_mov_b64 exec, -1")]
    kernel += [plain("global_store"), Step(operation(random.Random(0)), "end")]
    callee = [Step(operation(random.Random(0)), kind, function=1) for kind in ("execz", "end", "return")]
    callee[0].to = 7
    program = lifted_sample(with_control([*kernel, *callee]), assembled)
    compare(program, reference(program, COMPARED), program.lifted.liveness)
    assert {10, 11} <= set(program.lifted.liveness.live_before(program.index_of[1]).active)
