"""Damaged objects through the whole patcher: an object or a `LuthierError`, nothing else."""

from __future__ import annotations

import random

import pytest
from effort import EVERYTHING, FUZZ
from luthier.errors import LuthierError
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object

ROUNDS = (1000 if EVERYTHING else 250) * FUZZ


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("name", "target"), [("reduction", "gfx90a"), ("function_call", "gfx942"), ("divergent_loop", "gfx1100")]
)
def test_flipped_bits(app, counter, name: str, target: str) -> None:
    data = load_object(app(name, target)).data
    text = next(s for s in load_object(app(name, target)).sections if s.name == ".text")
    tool = counter()
    randomness = random.Random(name)
    patched = 0
    for round_ in range(ROUNDS):
        damaged = bytearray(data)
        for _ in range(randomness.choice((1, 1, 2, 8))):
            low, high = (text.offset, text.offset + text.size) if round_ % 2 else (0, len(data))
            damaged[randomness.randrange(low, high)] ^= 1 << randomness.randrange(8)
        try:
            result = patch_object(CodeObject(bytes(damaged)), tool.instrument)
        except LuthierError:
            continue
        patched += 1
        CodeObject(result.data)
    assert 0 < patched < ROUNDS
