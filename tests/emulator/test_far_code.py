"""Code in ranges that lie further apart than 32 bits tell, as a patched kernel and its original may."""

from __future__ import annotations

import numpy as np
import pytest
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.inspection.bench import DEFAULT_MODE, Bench, assemble
from luthier.isa import Isa, TargetId

NEAR = "s_add_u32 s8, s8, 1\ns_setpc_b64 s[6:7]\ns_endpgm"
FAR = """
    s_getpc_b64 s[2:3]
    s_swappc_b64 s[6:7], s[4:5]
    s_mov_b64 s[10:11], s[6:7]
    s_call_b64 s[12:13], 1
    s_endpgm
    s_endpgm
"""


@pytest.mark.parametrize("distance", [0x1000, (1 << 32) - 0x1000, 1 << 32, (1 << 32) + 0x8000_0000])
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx1030", "gfx1100"])
def test_addresses_in_far_code(target: str, distance: int) -> None:
    isa = Isa.of(TargetId.parse(target))
    near, far = isa.assemble(NEAR).instructions.code, isa.assemble(FAR).instructions.code
    bench = Bench(isa, b"")
    bench.code = DecodedCode(isa, [(0, near), (distance, far)])
    sgprs = np.zeros(128, np.uint32)
    sgprs[4:6] = np.array([bench.code_base], np.uint64).view(np.uint32)
    entry = bench.code.record_at(distance)
    assert entry is not None
    state = bench.run(sgprs, np.zeros((512, isa.wave_size), np.uint32), 1, entry=entry)
    assert state.sgpr(8) == 1
    actual = [state.sgpr(number, 2) for number in (2, 10, 12)]
    assert [address - bench.code_base for address in actual] == [distance + 4, distance + 8, distance + 16]


def test_code_that_is_added_between_launches() -> None:
    """Code executed in another MODE before has no room for it."""
    isa = Isa.of("gfx90a")
    bench = Bench(isa, assemble(isa, "v_mov_b32 v0, v1\ns_endpgm\n"))
    state = np.zeros(128, np.uint32), np.zeros((4, isa.wave_size), np.uint32), 1
    for mode in (DEFAULT_MODE, 0x300):
        bench.run(*state, mode=mode)
    bench.code.extend([(0x100000, assemble(isa, "s_nop 0\n" * 50_000))])
    counts = bench.run(*state, mode=DEFAULT_MODE).counts
    assert counts[:2].tolist() == [1, 1]
    assert counts.sum() == 2
