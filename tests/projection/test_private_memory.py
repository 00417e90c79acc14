"""Private memory in projections: the bytes of scratch instructions, and the share of them that a cache holds."""

from __future__ import annotations

import luthier
import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier.projection import machine_named, measure, project
from luthier.projection.caches import held_share
from msgspec.structs import replace

LOADS, PRIVATE, GROUPS = 50, 4096, 4096


@pytest.mark.parametrize(("footprint", "share"), [(0, 1), (500, 1), (1000, 1), (1125, 0.5), (1250, 0), (9000, 0)])
def test_a_cyclic_stream_fits_or_misses(footprint: float, share: float) -> None:
    assert held_share(1000, footprint) == pytest.approx(share)
    assert held_share(0, footprint) == 0


def test_scratch_instructions_are_bound_by_memory() -> None:
    """Resident waves use 70 CUs × 32 waves × 32 lanes × 4 KiB, four times the Infinity Cache: all bytes are far."""
    machine = machine_named("w7800")
    code = "\n".join(f"scratch_load_b32 v1, off, off offset:{4 * number}" for number in range(LOADS))
    text = kernel_text(function("k", [code, "s_waitcnt vmcnt(0)", "s_endpgm"]), "gfx1100", private=PRIVATE)
    kernel = luthier.open_device("emu:gfx1100").load(assembled(text, "gfx1100")).kernel("k")
    work = measure(kernel, np.zeros(64, np.uint8), machine=machine, grid=GROUPS, block=256, most_groups=4)
    (memory,) = [unit for unit in project(work, kernel.lift(), machine).units if unit.name == "memory"]
    size = GROUPS * 256 * LOADS * 4
    rate = machine.value("memory_bandwidth") * machine.value("memory_efficiency") * 1e3
    assert memory.busy_us == pytest.approx(size / rate, rel=0.01)
    small = replace(work, scratch=256)  # 18 MB, in the Infinity Cache
    assert "memory" not in [unit.name for unit in project(small, kernel.lift(), machine).units]
