"""Memory that a sampled launch accesses in all, what a mean work-group of it executes, and what caches hold of it."""

from __future__ import annotations

from typing import Any

import luthier
import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier.lifting import LiftedRepresentation
from luthier.projection import LaunchWork, machine_named, measure, project
from msgspec.structs import replace

MACHINE = machine_named("w7800")
ITEMS = 64
OWN = """
 s_lshl_b32 s6, s2, 8
 s_load_b64 s[4:5], s[0:1], 0x0
 v_lshlrev_b32 v1, 2, v0
 v_add_nc_u32 v2, s6, v1
 s_waitcnt lgkmcnt(0)
 global_load_b32 v3, v2, s[4:5]
 s_waitcnt vmcnt(0)
"""
"""Each work-group reads 256 bytes of its own."""
TABLE = """
 s_load_b64 s[4:5], s[0:1], 0x0
 v_lshlrev_b32 v1, 2, v0
 s_waitcnt lgkmcnt(0)
 global_load_b32 v3, v1, s[4:5]
 s_waitcnt vmcnt(0)
"""
"""All work-groups read the same 256 bytes."""
SAME_LINES = """
 s_load_b64 s[4:5], s[0:1], 0x0
 v_and_b32 v1, 31, v0
 v_lshlrev_b32 v1, 2, v1
 s_movk_i32 s6, {lines}
 s_waitcnt lgkmcnt(0)
again:
 global_load_b32 v3, v1, s[4:5]
 global_load_b32 v4, v1, s[4:5]
 v_add_nc_u32 v1, 0x80, v1
 s_waitcnt vmcnt(0)
 {barrier}
 s_sub_i32 s6, s6, 1
 s_cmp_lg_u32 s6, 0
 s_cbranch_scc1 again
"""
"""All waves read each line of the same memory twice."""
LAST_ROW = """
 s_cmp_lt_u32 s3, 3
 s_cbranch_scc1 skip
 v_nop
 v_nop
skip:
 v_nop
"""
"""A quarter of the work-groups executes three v_nop, the others one."""


def launch(code: str, grid: Any, size: int = 256, most: int = 16) -> tuple[LaunchWork, LiftedRepresentation]:
    """Return the work of a sampled launch, and its kernel."""
    ids = {"system_sgpr_workgroup_id_x": 1, "system_sgpr_workgroup_id_y": 1}
    text = kernel_text(function("k", [code, "s_endpgm"]), "gfx1100", directives=ids)
    kernel = luthier.open_device("emu:gfx1100").load(assembled(text, "gfx1100")).kernel("k")
    data = np.zeros(size, np.uint8)
    return measure(kernel, data, machine=MACHINE, grid=grid, block=ITEMS, most_groups=most), kernel.lift()


@pytest.mark.parametrize("groups", [100, 1000, 4096])
def test_a_stream_is_as_large_as_its_work_groups(groups: int) -> None:
    work, _ = launch(OWN, groups, 256 * groups)
    *_, region = sorted(work.regions(), key=lambda region: region.end - region.first)
    assert region.end - region.first == pytest.approx(256 * groups, rel=0.03)


def test_a_table_is_as_large_as_one_work_group() -> None:
    work, _ = launch(TABLE, 4096)
    assert max(region.end - region.first for region in work.regions()) == 256


def test_rows_that_read_the_same_bytes_are_held_by_the_cache_of_memory() -> None:
    """64 rows of work-groups read the same 8 MB, which L2 does not hold and the Infinity Cache does.

    As a stream without rows, the same work-groups read 512 MB from memory.
    """
    columns, rows = 1 << 15, 64
    work, lifted = launch(OWN, (columns, rows), 256 * columns)
    units = {unit.name: unit.busy_us for unit in project(work, lifted, MACHINE).units}
    assert units.get("memory", 0.0) == pytest.approx(0.0, abs=1.0)
    rate = MACHINE.value("mall_bandwidth") * 1e3
    assert units["Infinity Cache"] == pytest.approx(256 * columns * rows / rate, rel=0.05)
    small = MACHINE.with_values({"mall_size": 0, "mall_bandwidth": 0}, "test")
    units = {unit.name: unit.busy_us for unit in project(work, lifted, small).units}
    rate = MACHINE.value("memory_bandwidth") * MACHINE.value("memory_efficiency") * 1e3
    assert units["memory"] == pytest.approx(256 * columns * rows / rate, rel=0.05)


@pytest.mark.parametrize("columns", [3, 64, 1000])
def test_neighbours_are_in_a_row(columns: int) -> None:
    """The middle of an even number of rows is between two of them."""
    work, _ = launch(OWN, (columns, 64), 256 * columns)
    (run,) = [sample for sample in work.samples if sample.groups > 1]
    loads = [row for row in run.table.values() if row[-1] - row[-2] > 8]
    assert [row[-1] - row[-2] for row in loads] == [256 * min(columns, run.groups)]


@pytest.mark.parametrize(
    ("lines", "barrier", "requests"),
    [(1024, "", 1.98), (1024, "s_barrier", 1), (4, "", 1)],
    ids=["apart", "together", "few"],
)
def test_waves_without_barriers_share_no_lines(lines: int, barrier: str, requests: float) -> None:
    """Unless the vector cache holds them all; and a wave finds the lines that it has just read."""
    work, lifted = launch(SAME_LINES.format(lines=lines, barrier=barrier), 1, 128 * lines)
    projection = project(work, lifted, MACHINE)
    in_step = project(work, lifted, MACHINE.with_values({"l1_drift": 0}, "test"))
    for projected, expected in ((projection, requests), (in_step, 1)):
        loads = sum(row.l2_bytes for row in projected.instructions if row.text.startswith("global_load"))
        assert loads * ITEMS / work.wave_size == pytest.approx(expected * 128 * lines, rel=0.02)


@pytest.mark.parametrize("most", [4, 8, 12, 16])
def test_parts_count_by_their_share(most: int) -> None:
    """Neighbours in the middle do not count more than others: 1 + 2 / 4 instructions of v_nop in a mean work-group."""
    work, lifted = launch(LAST_ROW, (500, 4), most=most)
    addresses, rows = work.totals()
    nops = sum(
        row[0]
        for address, row in zip(addresses.tolist(), rows.tolist(), strict=True)
        if (index := lifted.index_at(address)) is not None and lifted.instructions[index].mnemonic == "v_nop"
    )
    strata = sum(sample.weight for sample in work.samples)
    assert nops / (ITEMS / work.wave_size) == pytest.approx(1.5, abs=2 / strata)
    assert work.waves_of_mean_group == ITEMS / work.wave_size
    assert project(replace(work, groups=1), lifted, MACHINE).time_us > 0
