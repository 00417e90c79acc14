"""Work of launches as JSON."""

from __future__ import annotations

import json

import luthier
import msgspec
import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier.projection import LaunchWork, machine_named, measure
from luthier.projection.work import from_json, to_json

CODE = """
 s_load_dwordx2 s[2:3], s[0:1], 0x0
 v_lshlrev_b32 v1, 2, v0
 s_waitcnt lgkmcnt(0)
 global_load_dword v2, v1, s[2:3]
 s_endpgm"""


@pytest.fixture(scope="module")
def work() -> LaunchWork:
    """Return the work of a launch of 40 work-groups, of which 16 run."""
    object = assembled(kernel_text(function("k", [CODE]), "gfx90a"), "gfx90a")
    kernel = luthier.open_device("emu:gfx90a").load(object).kernel("k")
    return measure(kernel, np.zeros(64, np.float32), machine=machine_named("mi250x"), grid=40, block=64)


def test_work_is_the_same_after_json(work: LaunchWork) -> None:
    again = from_json(to_json(work), LaunchWork)
    assert [sample.table for sample in again.samples] == [sample.table for sample in work.samples]
    assert to_json(again) == to_json(work)
    assert all(row[0] == sample.waves for sample in work.samples for row in sample.table.values())


@pytest.mark.parametrize(
    "damage",
    [
        {"rows": [[1, 2], [3]]},
        {"rows": [[1.5] * 13]},
        {"addresses": [8, 4]},
        {"addresses": [1 << 64]},
        {"addresses": []},
        {"addresses": ["4"]},
    ],
    ids=str,
)
def test_damaged_counts(work: LaunchWork, damage: dict[str, object]) -> None:
    data = json.loads(to_json(work))
    data["samples"][0].update(damage)
    with pytest.raises(msgspec.MsgspecError):
        from_json(json.dumps(data).encode(), LaunchWork)
