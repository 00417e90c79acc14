"""The effect of code on registers that are outstanding before it: the same as following each queue position."""

from __future__ import annotations

import functools
import random

import pytest
from luthier.hazards.wait_counters.carried import Carried, CarryMachine, applied, followed_by, joined
from luthier.hazards.wait_counters.model import Limit, WaitModel, wait_model
from luthier.hazards.wait_counters.state import OutstandingState, WaitMachine, merge
from luthier.hazards.wait_counters.steps import WaitStep
from luthier.isa.targets import target_named

EVERY = (1 << 6) - 1


def step(rng: random.Random, model: WaitModel) -> WaitStep:
    """Return a random step over the units of `EVERY`."""
    kind = rng.randrange(5)
    touches = rng.getrandbits(6) if rng.random() < 0.4 else 0
    writes = touches & rng.getrandbits(6)
    if kind == 0:
        counter = rng.randrange(len(model.counters))
        return WaitStep(0, 0, 0, 0, limits=(Limit(counter, rng.choice((0, 1, 2, 3, 60))),))
    if kind == 1:
        return WaitStep(0, 0, touches, writes, released=rng.randrange(len(model.streams)))
    if kind == 2:
        return WaitStep(0, 0, touches, writes)
    stream = rng.randrange(len(model.streams))
    replaced = model.replaced[stream]
    both = writes & rng.getrandbits(6) if replaced else 0
    return WaitStep(0, 0, touches, writes, ((stream, writes),), replaced, both)


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("target", ["gfx906", "gfx942", "gfx1100", "gfx1201"])
def test_every_position_is_followed_at_once(target: str, forgets: bool) -> None:
    model = wait_model(target_named(target))
    real, carrying = WaitMachine(model, forgets=forgets), CarryMachine(model, forgets=forgets)

    def at(position: int) -> OutstandingState:
        limits = (model.counters[stream.counter].most if stream.ordered else 1 for stream in model.streams)
        return real.empty._replace(
            queues=tuple((0,) * position + (EVERY,) if position < limit else () for limit in limits)
        )

    for seed in range(60):
        rng = random.Random(f"{target} {seed}")
        begin, first, second, end = ([step(rng, model) for _ in range(rng.randrange(8))] for _ in range(4))
        ways = [carrying.run(carrying.run(carrying.everything(EVERY), begin), way) for way in (first, second)]
        carried: Carried = carrying.run(functools.reduce(joined, ways), end)
        nested = followed_by(carried, carrying.run(carrying.everything(EVERY), begin))
        for position in (*range(5), 14, 62, 63):
            before = real.run(at(position), begin, only=True)
            states = [real.run(before, way, only=True) for way in (first, second)]
            after = real.run(functools.reduce(merge, states), end, only=True)
            expected = tuple(merge(after, real.empty).queues)
            assert applied(at(position), carried) == expected, (seed, position)
            assert applied(at(position), nested) == real.run(after, begin, only=True).queues, (seed, position)
