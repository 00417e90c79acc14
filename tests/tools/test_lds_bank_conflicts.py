"""The bank conflict tool against a model written down lane by lane, for accesses at known strides."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from luthier.errors import ToolError

from .conftest import ALL, TARGETS, rows

LDS = """
#include <hip/hip_runtime.h>
extern "C" __global__ void strided(TYPE *out, unsigned stride, unsigned active) {
  extern __shared__ char room[];
  TYPE *lds = reinterpret_cast<TYPE *>(room);
  if (threadIdx.x < active)
    lds[threadIdx.x * stride % MANY] = TYPE{};
  __syncthreads();
  if (threadIdx.x < active)
    out[threadIdx.x] = lds[threadIdx.x * stride % MANY];
}
"""
WORDS = {"float": 1, "float2": 2, "float4": 4}
READ_128 = [
    *([0, 1, 2, 3, 20, 21, 22, 23], [4, 5, 6, 7, 16, 17, 18, 19]),
    *([8, 9, 10, 11, 28, 29, 30, 31], [12, 13, 14, 15, 24, 25, 26, 27]),
]
"""Lanes that a 128-bit read of CDNA serves together, as AMD's Composable Kernel lists them."""


def cycles(lanes: list[int], words: int, stride: int, many: int, mixed: bool, wave: int) -> tuple[int, int]:
    """Return the cycles that an access needs and takes: in each phase, the different words in the busiest bank."""
    if mixed:
        groups = [[lane + half for lane in group] for half in range(0, wave, 32) for group in READ_128]
    else:
        together = 32 // words
        groups = [list(range(first, first + together)) for first in range(0, wave, together)]
    needed = taken = 0
    for group in groups:
        banks: defaultdict[int, set[int]] = defaultdict(set)
        for lane in set(group) & set(lanes):
            for word in range(words):
                address = lane * stride % many * words + word
                banks[address % 32].add(address)
        needed += 1
        taken += max((len(words) for words in banks.values()), default=1)
    return needed, taken


@pytest.mark.rows(1)
@pytest.mark.parametrize("type", WORDS)
@pytest.mark.parametrize("target", TARGETS)
def test_strides(bench: Any, shipped: Any, target: str, type: str) -> None:
    words, wave = WORDS[type], ALL[target].wave_sizes[0]
    many = 8192 // (4 * words)
    source = LDS.replace("TYPE", type).replace("MANY", str(many))
    for stride, active in ((0, wave), (1, wave), (2, wave), (3, 40), (16, wave), (32, 20), (33, wave), (64, wave)):
        out = np.zeros(wave * words, np.float32)
        kernel = bench(source, "strided", target, out, stride, active, block=wave)
        lanes = list(range(min(active, wave)))
        tables = {}
        tool = shipped("lds_bank_conflicts")
        from luthier import patch_object, reported

        patched = patch_object(kernel.object, tool.instrument, strict=True)
        module, _ = kernel.launch(patched.data, dynamic_lds=8192)
        tables = {table.title: rows(table) for table in reported(tool, module, patched)}
        mixed = ALL[target].lds_reads_128_mixed and words == 4
        for word, how in (("write", False), ("read", mixed)):
            spelled = {"write": ("ds_write", "ds_store"), "read": ("ds_read", "ds_load")}[word]
            row = next(row for row in tables["by instruction"] if row["instruction"].startswith(spelled))
            expected = cycles(lanes, words, stride, many, how, wave)
            what = f"{row['instruction']}, stride {stride}, {len(lanes)} lanes"
            assert (row["accesses"], row["lanes"]) == (1, len(lanes)), what
            assert (row["cycles needed"], row["cycles"]) == expected, what
            assert row["conflicts"] == expected[1] - expected[0]
        (total,) = tables["LDS bank conflicts"]
        assert total["cycles"] == sum(row["cycles"] for row in tables["by instruction"])


def test_stride_of_all_banks_takes_a_cycle_a_lane(bench: Any, shipped: Any) -> None:
    """The textbook's worst case: every lane wants another word of one bank."""
    source = LDS.replace("TYPE", "float").replace("MANY", "2048")
    kernel = bench(source, "strided", "gfx90a", np.zeros(64, np.float32), 32, 64)
    from luthier import patch_object, reported

    tool = shipped("lds_bank_conflicts")
    patched = patch_object(kernel.object, tool.instrument)
    module, _ = kernel.launch(patched.data, dynamic_lds=8192)
    (_, by_instruction) = reported(tool, module, patched)
    assert [(row["cycles needed"], row["cycles"]) for row in rows(by_instruction)] == [(2, 64), (2, 64)]


@pytest.mark.parametrize("banks", [3, 128])
def test_banks_that_there_are_not(shipped: Any, banks: int) -> None:
    with pytest.raises(ToolError, match="banks"):
        shipped("lds_bank_conflicts", banks=banks)
