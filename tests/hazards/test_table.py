"""Every row of the table: both sides of its limit, what clears it, and what must come between."""

from __future__ import annotations

import functools
import operator

import pytest
from luthier.hazards.wait_states.model import Rule
from luthier.hazards.wait_states.steps import HazardStep
from sequences import Isa, Sequence_, isa_of, pool_steps, sequence, wave_sizes

NOT_IN_POOL = {
    "image instruction with a long address, buffer instruction with an offset",
    "64-bit shift by the last VGPR",  # only where it is known how many there are: test_checks.py
}


def steps_with(isa: Isa, rule: Rule, field: str) -> list[tuple[str, HazardStep]]:
    """Instructions that are a party of a rule."""
    chosen = {
        "producer": lambda step: any(number == rule.number for number, *_ in step.makes),
        "consumer": lambda step: any(number == rule.number for number, *_ in step.checks),
        "middle": lambda step: any(number == rule.number for number, *_ in step.arms),
        "second": lambda step: any(number == rule.number for number, *_ in step.seconds),
        "cleared_by": lambda step: rule.number in step.clears,
    }[field]
    return [(text, step) for text, step in pool_steps(isa) if chosen(step)]


def meets(line: Sequence_, rule: Rule, steps: list[HazardStep]) -> bool:
    return any(lack.rule == rule.number for lack in line.lacks(steps)[-1])


def may_meet(rule: Rule, steps: list[HazardStep]) -> bool:
    """Whether all share a register, where that is what the rule is about."""
    common = -1
    for step in steps if rule.hazard.in_registers and not rule.hazard.middle_is_event else ():
        took_part = [units for number, units, *_ in (*step.makes, *step.arms, *step.checks) if number == rule.number]
        common &= functools.reduce(operator.or_, took_part, 0)
    return bool(common)


def find(isa: Isa, rule: Rule) -> tuple[list[HazardStep], list[str], int] | None:
    """Producer, middle where there must be one, and consumer that meet by a rule when nothing is between them; and how
    many are needed."""
    if rule.hazard.second is not None:
        return find_with_second(isa, rule)
    line = sequence(isa)
    middles = [[one] for one in steps_with(isa, rule, "middle")] if rule.hazard.middle else [[]]
    producers = [[one] for one in steps_with(isa, rule, "producer")] if rule.hazard.producer else [[]]
    for producer in producers:
        for middle in middles:
            for consumer in steps_with(isa, rule, "consumer"):
                chosen = [*producer, *middle, consumer]
                steps = [step for _, step in chosen]
                if not may_meet(rule, steps):
                    continue
                lacks = [lack for lack in line.lacks(steps)[-1] if lack.rule == rule.number]
                if lacks:
                    return steps, [text for text, _ in chosen], lacks[0].needed
    return None


def find_with_second(isa: Isa, rule: Rule) -> tuple[list[HazardStep], list[str], int] | None:
    """The same where there are two producers, each of another source of the consumer."""
    line = sequence(isa)
    written = {units: made for made in steps_with(isa, rule, "producer") for _, units, _ in made[1].makes}
    middle = steps_with(isa, rule, "middle")[0]
    for consumer in steps_with(isa, rule, "consumer"):
        for check in consumer[1].checks:
            if check.rule != rule.number:
                continue
            producers = [written[units] for units in dict.fromkeys(check.sources) if units in written]
            if len(producers) > 1:
                chosen = [producers[0], middle, producers[1], consumer]
                steps = [step for _, step in chosen]
                lacks = [lack for lack in line.lacks(steps)[-1] if lack.rule == rule.number]
                if lacks:
                    return steps, [text for text, _ in chosen], lacks[0].needed
    return None


@pytest.mark.rows(1)
@pytest.mark.parametrize(("target", "lanes"), wave_sizes())
def test_every_row(target: str, lanes: int) -> None:
    isa = isa_of(target, lanes)
    line = sequence(isa)
    nop, vector = line.steps(["s_nop 0", "v_nop"])
    for rule in line.model.rules:
        example = find(isa, rule)
        if example is None:
            assert rule.hazard.name in NOT_IN_POOL or set(rule.hazard.needed.values()) == {0}, rule.hazard
            continue
        steps, texts, needed = example
        if rule.window and rule.hazard.middle is None:
            filler = nop if rule.hazard.clock == "states" else vector
            cleared = rule.number in filler.clears
            assert meets(line, rule, [steps[0], *[filler] * (needed - 1), steps[1]]) or cleared, texts
            assert not meets(line, rule, [steps[0], *[filler] * needed, steps[1]]), texts
        for text, clear in steps_with(isa, rule, "cleared_by"):
            if rule.hazard.producer is not None and not clear.makes and not clear.arms:
                assert not meets(line, rule, [*steps[:-1], clear, steps[-1]]), (texts, text)
        if rule.hazard.middle is not None:
            assert not meets(line, rule, [steps[0], steps[-1]]) or steps[-1].arms, texts
        if rule.hazard.second is not None:
            first, middle, second, last = steps
            near, far = [vector] * rule.hazard.second_within, [vector] * (rule.hazard.second_within + 1)
            assert meets(line, rule, [first, *near, middle, second, last]), texts
            assert meets(line, rule, [first, middle, *near, second, last]), texts
            assert not meets(line, rule, [first, *far[:1], middle, *far[1:], second, last]), texts
            assert meets(line, rule, [first, middle, second, *[vector] * (needed - 1), last]), texts
            assert not meets(line, rule, [first, middle, second, *[vector] * needed, last]), texts
            assert not meets(line, rule, [first, second, middle, last]), texts
            assert not meets(line, rule, [first, middle, second, first, last]), texts
