"""Random code: lifting returns a consistent representation or raises a `LuthierError`."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from effort import EVERYTHING, FUZZ
from luthier.errors import LiftError, LuthierError
from luthier.isa.registers import SCALAR_MASK
from luthier.lifting import LiftedRepresentation, lift
from luthier.lifting.listing import as_data, as_text
from luthier.objects import CodeObject, load_object

ROUNDS = (40 if EVERYTHING else 16) * FUZZ


def check(lifted: LiftedRepresentation) -> None:
    """What must hold of every representation."""
    ends = [address + size for address, size in zip(lifted.columns.address, lifted.columns.size, strict=True)]
    covered: set[int] = set()
    for block in lifted.blocks:
        assert block.first <= block.last
        filled = SCALAR_MASK
        for index in range(block.first, block.last + 1):
            assert index not in covered
            covered.add(index)
            assert lifted.columns.opcode[index] >= 0
            assert lifted.block_of[index] == block.index
            assert index == block.first or lifted.columns.address[index] == ends[index - 1]
            live = lifted.liveness.live_before(index)
            assert int(lifted.effects(index).reads) & filled & ~live.active == 0
            filled |= lifted.effects(index).writes
        for edge in block.successors:
            assert block.index in lifted.blocks[edge.to].predecessors
    for reference in lifted.pc_references:
        assert lifted.block_of[reference.getpc] >= 0
    list(as_text(lifted, instructions=True, registers=True))
    as_data(lifted)


def attempt(data: bytes) -> int:
    """Lift every kernel of an object; how many could be."""
    good = 0
    try:
        code_object = load_object(data)
    except LuthierError:
        return 0
    for kernel in code_object.kernels:
        try:
            lifted = lift(code_object, kernel)
        except LuthierError as problem:
            if isinstance(problem, LiftError) and problem.offset is None:
                raise
            continue
        check(lifted)
        good += 1
    return good


def text_of(code_object: CodeObject) -> tuple[int, int]:
    section = next(section for section in code_object.sections if section.name == ".text")
    return section.offset, section.size


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1100", "gfx1201"])
def test_flipped_bits_in_the_text(target: str, compiled: Callable[..., CodeObject]) -> None:
    code_object = compiled(target, "calls.hip")
    offset, size = text_of(code_object)
    rng = random.Random(target)
    good = 0
    for _ in range(ROUNDS):
        data = bytearray(code_object.data)
        for _ in range(rng.choice([1, 8, 64])):
            data[offset + rng.randrange(size)] ^= 1 << rng.randrange(8)
        good += attempt(bytes(data))
    assert good


@pytest.mark.parametrize("target", ["gfx90a", "gfx1030", "gfx1100", "gfx1201"])
def test_random_text(target: str, compiled: Callable[..., CodeObject]) -> None:
    code_object = compiled(target, "calls.hip")
    offset, size = text_of(code_object)
    words = [code_object.data[at : at + 4] for at in range(offset, offset + size, 4)]
    rng = random.Random(target)
    for _ in range(ROUNDS // 2):
        data = bytearray(code_object.data)
        if rng.random() < 0.3:
            data[offset : offset + size] = rng.randbytes(size)
        else:  # the instructions of the object in any order: much more of this is code
            data[offset : offset + size] = b"".join(rng.choices(words, k=len(words)))
        attempt(bytes(data))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_flipped_bits_anywhere(target: str, compiled: Callable[..., CodeObject]) -> None:
    code_object = compiled(target, "calls.hip")
    rng = random.Random(target)
    for _ in range(ROUNDS):
        data = bytearray(code_object.data)
        for _ in range(rng.choice([1, 8])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        attempt(bytes(data))


def test_no_such_kernel(compiled: Callable[..., CodeObject]) -> None:
    with pytest.raises(LiftError, match="no kernel 'nothing'; there are: straight, loop"):
        lift(compiled("gfx90a", "calls.hip"), "nothing")
