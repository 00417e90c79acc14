"""The table against LLVM's hazard recognizer: wait states in random straight code, number by number."""

from __future__ import annotations

import datetime
import random

import pytest
from llvm import through_llvm
from luthier.isa.targets import TARGETS
from sequences import isa_of, missing_states, pool, sequence, wave_sizes

COUNT = 150
"""Sequences of a test."""
NO_WAIT_STATES = ("s_delay_alu", "s_clause", "s_nop")
NOT_ALONE = ("s_branch", "s_rfe", "s_setpc", "lds_direct", "ds_direct", "v_wmma", "s_movrel", "v_fma_f16")
"""LLVM wants more of them than a line."""
STRICTER = ("v_cmpx", "v_dot", "old", "one clause")
"""LLVM keeps apart what no document asks for: vector memory and v_cmpx, what packed instructions give, what DPP keeps,
stores behind loads in one clause."""


def bodies(target: str, lanes: int) -> list[list[str]]:
    chance = random.Random(f"{target} {lanes} {datetime.date.today()}")
    texts = [text for text in pool(isa_of(target, lanes)) if not text.startswith(NOT_ALONE)]
    return [chance.sample(texts, chance.randrange(2, 6)) for _ in range(COUNT)]


@pytest.mark.rotating(3)
@pytest.mark.parametrize(("target", "lanes"), wave_sizes())
def test_what_llvm_keeps_apart_is_apart(target: str, lanes: int) -> None:
    """Nothing is found in what went through LLVM, but what it looks at function by function."""
    isa = isa_of(target, lanes)
    line = sequence(isa)
    mended = 0
    for given, made in zip(bodies(target, lanes), through_llvm(isa, ["\n".join(one) for one in bodies(target, lanes)]), strict=True):
        lacks = [one for here in line.lacks(line.steps(made)) for one in here]
        assert lacks == [], (given, made)
        mended += any(line.lacks(line.steps(given)))
    assert mended or not line.model.rules
    assert len(TARGETS[target].wave_sizes) == 1 or line.isa.wave_size == lanes
    assert missing_states([]) == 0
