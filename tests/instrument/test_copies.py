"""Copies between registers, several at once, executed line by line."""

from __future__ import annotations

import random
import re

import pytest
from luthier.errors import PatchError
from luthier.isa import Isa
from luthier.patch.registers.copies import needs_spare, parallel_copy, unit_text

V, A, SCC, SPARE = 256, 1280, 128, 90
SCALARS = [*range(8), 106, 107, 124, 126, 127]
VECTORS = list(range(V, V + 8))


def random_copies(random_: random.Random) -> dict[int, int]:
    destinations = random_.sample([*SCALARS, *VECTORS, SCC, *range(A, A + 3)], random_.randrange(1, 20))
    return {to: random_.choice(SCALARS if to < V else VECTORS) for to in destinations}


def execute(lines: list[str]) -> dict[str, str]:
    """What each register holds that was written, by the name of the register that held it before."""
    held: dict[str, str] = {}
    for line in lines:
        name, *operands = re.split(r",? ", line)
        if name == "v_swap_b32":
            left, right = operands
            held[left], held[right] = held.get(right, right), held.get(left, left)
        elif name == "s_cmp_lg_u32":
            held["scc"] = held.get(operands[0], operands[0])
        else:
            assert name in ("s_mov_b32", "v_mov_b32_e32", "v_accvgpr_write_b32")
            held[operands[0]] = held.get(operands[1], operands[1])
    return held


@pytest.mark.parametrize("seed", range(300))
def test_every_destination_gets_what_its_source_held(seed: int) -> None:
    copies = random_copies(random.Random(seed))
    lines = parallel_copy(copies, SPARE if needs_spare(copies) else None)
    held = execute(lines)
    for to, from_ in copies.items():
        name = "scc" if to == SCC else unit_text(to)
        assert held.get(name, name) == unit_text(from_), (copies, lines)
    untouched = set(held) - {"scc" if to == SCC else unit_text(to) for to in copies}
    assert all(held[name] == name or name == unit_text(SPARE) for name in untouched)
    vectors = [place for place, line in enumerate(lines) if line.startswith("v_")]
    assert vectors == list(range(len(vectors)))  # in the lanes of the EXEC before
    Isa.of("gfx908").assemble("\n".join(lines))


def test_a_circle_of_scalars_needs_a_spare_register() -> None:
    assert not needs_spare({0: 1, 1: 2, 2: 2, V: V + 1, V + 1: V})
    assert needs_spare({5: 6, 0: 1, 1: 2, 2: 0})
    with pytest.raises(PatchError, match="no spare register to save"):
        parallel_copy({0: 1, 1: 0})
