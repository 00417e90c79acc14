"""Messages of the memory tracer about untraced accesses."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier import Tool, patch_object
from luthier.cli.common import check_tools
from luthier.errors import ToolError
from luthier.lifting import lift
from luthier.tool import ToolGroup
from luthier.tool.task import InstrumentationTask

from .conftest import ALL, TARGETS


@pytest.mark.parametrize(
    ("spaces", "reason"),
    [
        ("global", "1 load+store of global: no address is available, first: 'tensor_load_to_lds"),
        ("lds", "there is no load+store of lds"),
    ],
)
def test_it_says_why_nothing_is_traced(shipped: Callable[..., Tool], spaces: str, reason: str) -> None:
    """A kernel that copies whole parts of tensors: descriptors say where they are."""
    lines = ["tensor_load_to_lds s[8:11], s[16:23]", "s_wait_tensorcnt 0x0", "s_endpgm"]
    object = assembled(kernel_text(function("k", lines), "gfx1250"), "gfx1250")
    tool = ToolGroup([shipped("mem_trace", spaces=spaces, kinds="load+store")])
    tool.instrument(InstrumentationTask(lift(object, "k")))
    with pytest.raises(ToolError, match=f"inserted nothing into k: {re.escape(reason)}"):
        check_tools(tool, object, ["k"])


WALK = """
#include <hip/hip_runtime.h>
__device__ __attribute__((noinline)) void put(volatile unsigned *to, unsigned value) { *to = value; }
extern "C" __global__ void walk(const int *at, const int *on, unsigned *out) {
  __shared__ unsigned lds[1024];
  const unsigned i = threadIdx.x;
  if (on[i]) { WRITE }
}
"""
SPACES = {"global": "out[at[i]] = i;", "flat": "put(&out[at[i]], i);", "lds": "lds[at[i]] = i; out[i] = lds[i];"}
ITEMS, PLACES = 192, 1024
ITEM = np.arange(ITEMS)
WALKS = {
    "all at one": ITEM * 0 + 5,
    "side by side": ITEM,
    "three apart": 3 * ITEM,
    "backwards": PLACES - 1 - 5 * ITEM,
    "not in order": np.random.default_rng(7).permutation(PLACES)[:ITEMS],
    "one elsewhere": np.where(ITEM % 32 == 17, 900, ITEM),
}
"""Where each work-item writes."""
LANES = {
    "all": ITEM >= 0,
    "even": ITEM % 2 == 0,
    "every third": ITEM % 3 == 1,
    "every twelfth": ITEM % 12 == 11,
    "the last": ITEM % 32 > 20,
    "one": ITEM % 64 == 63,
    "any": np.random.default_rng(3).random(ITEMS) < 0.4,
}
"""Which work-items write."""


def even(lanes: Any, places: Any) -> bool:
    """Return whether lanes are at equal distances of whole elements."""
    apart, rest = np.divmod(np.diff(places), np.diff(lanes))
    return not rest.any() and len(set(apart.tolist())) <= 1


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("space", SPACES)
def test_what_lanes_have_in_common(bench: Any, shipped: Callable[..., Tool], space: str, target: str) -> None:
    """Each access of each lane is recorded, and lanes at equal distances take one record of the wave."""
    source, width = WALK.replace("WRITE", SPACES[space]), ALL[target].wave_sizes[0]
    tool: Any = shipped("mem_trace", spaces=space, kinds="store")
    zeros = np.zeros(PLACES, np.uint32)
    kernel = bench(source, "walk", target, ITEM.astype(np.int32), ITEM.astype(np.int32), zeros, block=ITEMS)
    patched = patch_object(kernel.object, tool.instrument, strict=True)
    for at, on in itertools.product(WALKS.values(), LANES.values()):
        kernel.arguments = at.astype(np.int32), on.astype(np.int32), zeros
        module, _ = kernel.launch(patched.data)
        channel = module.channel("accesses")
        pushed = channel.records()
        records = tool.unpacked(channel, pushed)
        first = 0 if space == "lds" else kernel.placed[2].address
        accesses = sorted(zip(records["address"].tolist(), records["lane"].tolist(), strict=True))
        assert accesses == sorted(zip((first + 4 * at[on]).tolist(), (ITEM % width)[on].tolist(), strict=True))
        assert set(records["size"].tolist()) == {4}
        waves = [ITEM[on & (ITEM // width == wave)] for wave in range(ITEMS // width)]
        assert len(pushed) == sum(1 if even(ids, at[ids]) else len(ids) for ids in waves if len(ids))
