"""The LDS race check: random programs of known accesses and barriers, and algorithms with a barrier taken out."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from luthier import patch_object, reported
from luthier.errors import ToolError

from .conftest import ALL, TARGETS, rows

ROOT = Path(__file__).parents[2]
BLOCK, CELLS = 192, 256
TYPES = {"unsigned char": 1, "unsigned short": 2, "unsigned": 4, "unsigned long long": 8}
PROGRAM = """
#include <hip/hip_runtime.h>
extern "C" __global__ void program(unsigned *out) {
  __shared__ volatile TYPE lds[256];
  unsigned item = threadIdx.x, sum = 0;
  BODY
  out[blockIdx.x * blockDim.x + item] = sum;
}
"""
Op = tuple[str, int, int]
"""What it does, and the two numbers that say where each work-item does it."""


def cell(op: Op, item: int) -> int:
    return (item * op[1] + op[2]) % CELLS


def text(op: Op, type: str) -> str:
    at = f"(item * {op[1]}u + {op[2]}u) % 256u"
    scope = "__ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP"
    return {
        "barrier": "__syncthreads();",
        "write": f"lds[{at}] = (TYPE)item;",
        "read": f"sum += lds[{at}];",
        "atomic": f"__hip_atomic_fetch_add((unsigned *)&lds[{at}], 1u, {scope});",
    }[op[0]].replace("TYPE", type)


def racing(ops: list[Op], wave: int) -> set[frozenset[int]]:
    """Pairs of accesses, by their numbers, that no barrier orders and that two waves do to one element."""
    number, interval, placed = 0, 0, []
    for op in ops:
        if op[0] == "barrier":
            interval += 1
            continue
        touched: dict[int, set[int]] = {}
        for item in range(BLOCK):
            touched.setdefault(cell(op, item), set()).add(item // wave)
        placed.append((number, interval, op[0], touched))
        number += 1
    pairs = set()
    for first, other in combinations([*placed, *placed], 2):
        kinds = {first[2], other[2]}
        if first[1] != other[1] or kinds in ({"read"}, {"atomic"}):
            continue
        for at in first[3].keys() & other[3].keys():
            if len(first[3][at] | other[3][at]) > 1:
                pairs.add(frozenset((first[0], other[0])))
    return pairs


def under(kernel: Any, tool: Any) -> dict[str, list[dict[str, Any]]]:
    patched = patch_object(kernel.object, tool.instrument, [kernel.kernel], strict=True)
    _, before = kernel.launch(kernel.object.data)
    module, after = kernel.launch(patched.data)
    assert kernel.racy or before == after
    return {table.title.partition(":")[0]: rows(table) for table in reported(tool, module, patched)}


def program(seed: int, type: str) -> list[Op]:
    choose = random.Random(seed)
    kinds = ["write", "read"] + ["atomic"] * (type == "unsigned")
    ops: list[Op] = []
    for _ in range(choose.randint(2, 7)):
        ops.append((choose.choice(kinds), choose.choice((0, 1, 1, 1, 2, 3, 5)), choose.choice((0, 0, 1, 32, 64, 100))))
        if choose.random() < 0.6:
            ops.append(("barrier", 0, 0))
    return ops


@pytest.mark.rows(1)
@pytest.mark.parametrize("seed", range(24))
def test_random_programs(bench: Any, shipped: Any, seed: int) -> None:
    """Findings are exactly the races."""
    target, type = TARGETS[seed % len(TARGETS)], list(TYPES)[seed // len(TARGETS) % len(TYPES)]
    ops = program(seed, type)
    body = "\n  ".join(text(op, type) for op in ops)
    source = PROGRAM.replace("TYPE", type).replace("BODY", body)
    kernel = bench(source, "program", target, np.zeros(2 * BLOCK, np.uint32), grid=2, block=BLOCK)
    expected = racing(ops, ALL[target].wave_sizes[0])
    kernel.racy = bool(expected)
    tool = shipped("lds_race", top=0)
    tables = under(kernel, tool)
    assert not tables["not checked"]
    assert "not measured" not in tables
    accesses = [op for op in ops if op[0] != "barrier"]
    addresses = sorted({site.address for site in tool.watched.sites})
    assert len(addresses) == len(accesses), "one instruction an access"
    races = {
        frozenset((addresses.index(int(row["earlier"], 16)), addresses.index(int(row["later"], 16))))
        for row in tables["races"]
    }
    assert races <= expected
    assert bool(races) == bool(expected)


TRANSPOSE = """
#include <hip/hip_runtime.h>
extern "C" __global__ void transpose(float *out, const float *in, unsigned width) {
  __shared__ float tile[16][17];
  for (unsigned turn = 0; turn < 2; ++turn) {
    const unsigned x = blockIdx.x * 16 + threadIdx.x, y = (2 * blockIdx.y + turn) * 16 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[y * width + x];
    __syncthreads();
    out[(blockIdx.x * 16 + threadIdx.y) * width + (2 * blockIdx.y + turn) * 16 + threadIdx.x] =
        tile[threadIdx.x][threadIdx.y];
    __syncthreads();
  }
}
"""
REDUCTION = (ROOT / "examples/apps/reduction.hip").read_text()


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["transpose", "reduction"])
def test_each_barrier_is_needed(bench: Any, shipped: Any, name: str, target: str) -> None:
    """Two public algorithms: no race as they are, races without any of their barriers, between an access before it and
    one behind."""
    source = {"transpose": TRANSPOSE, "reduction": REDUCTION}[name]
    values = np.arange(64 * 64, dtype=np.float32)
    pieces = source.split("__syncthreads();")
    assert len(pieces) == 3
    for without in (None, 1, 2):
        text = "".join(("" if at in (0, without) else "__syncthreads();") + one for at, one in enumerate(pieces))
        if name == "transpose":
            kernel = bench(text, name, target, np.zeros_like(values), values, 64, block=(16, 16, 1), grid=(4, 2, 1))
        else:
            kernel = bench(text, name, target, values, np.zeros(8, np.float32), 2000, block=256, grid=8)
        kernel.racy = without is not None
        tables = under(kernel, shipped("lds_race"))
        numbers = {row["what"]: row["count"] for row in tables["watched"]}
        assert numbers["waves watched"] == 8 * 256 // ALL[target].wave_sizes[0]
        assert numbers.keys() == {"waves watched", "barriers that waves reached"}
        if without is None:
            assert tables["races"] == []
        else:
            assert tables["races"]
            assert all(row["kernel"] == name and "write" in row["kind"] for row in tables["races"])


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_generic_pointers_and_the_window(bench: Any, shipped: Any, target: str) -> None:
    """Flat instructions count only if they access LDS; of 40 work-groups, 32 are watched, and the others are listed."""
    source = """
    #include <hip/hip_runtime.h>
    __device__ __attribute__((noinline)) void put(volatile unsigned *to, unsigned value) { *to = value; }
    extern "C" __global__ void generic(unsigned *out, unsigned barrier, unsigned group) {
      __shared__ unsigned lds[4];
      if (blockIdx.x == group)
        put(&lds[1], threadIdx.x);
      put(&out[1], 7);
      if (barrier) __syncthreads();
      if (blockIdx.x == group)
        out[2 + threadIdx.x] = *(volatile unsigned *)&lds[1];
    }
    """
    for group, first in ((3, 0), (39, 0), (39, 8)):
        kernel = bench(source, "generic", target, np.zeros(300, np.uint32), 1, group, block=128, grid=40)
        kernel.racy = True
        tables = under(kernel, shipped("lds_race", first=first))
        numbers = {row["what"]: row["count"] for row in tables["watched"]}
        waves = 128 // ALL[target].wave_sizes[0]
        assert numbers["waves of work-groups that were not watched"] == 8 * waves
        seen = bool(tables["races"])
        assert seen == (first <= group < first + 32)
        if seen:
            (row,) = tables["races"]
            assert (row["kind"], row["LDS"], row["work-group"]) == ("write, write", "0x4", group)
            assert row["earlier"] == row["later"]


@pytest.mark.rows(1)
@pytest.mark.parametrize("lanes", [False, True])
def test_lanes_of_one_wave(bench: Any, shipped: Any, lanes: bool) -> None:
    """They run in lockstep, so they are reported only on request."""
    ops = [("write", 1, 0), ("read", 1, 1)]
    body = "\n".join(text(op, "unsigned") for op in ops)
    source = PROGRAM.replace("TYPE", "unsigned").replace("BODY", body)
    kernel = bench(source, "program", "gfx90a", np.zeros(64, np.uint32), block=64)
    kernel.racy = False
    assert bool(under(kernel, shipped("lds_race", lanes=lanes))["races"]) == lanes


def test_launches_do_not_meet(bench: Any, shipped: Any) -> None:
    """Shadow memory of one launch does not affect the next one."""
    source = PROGRAM.replace("TYPE", "unsigned").replace("BODY", text(("write", 1, 0), "unsigned"))
    source = source.replace("item =", "which = out[0], item =").replace("item * 1u", "(item + 64 * which) * 1u")
    kernel = bench(source, "program", "gfx90a", np.zeros(64, np.uint32), block=64)
    tool = shipped("lds_race")
    patched = patch_object(kernel.object, tool.instrument, strict=True)
    module = kernel.device.load(patched.data)
    for block in (192, 64, 128):
        out = np.zeros(192, np.uint32)
        module.kernel("program").launch(out, grid=1, block=block)
    title, watched, *_ = reported(tool, module, patched)
    assert title.title == "races"
    assert rows(watched)[0]["count"] == 6


def test_an_option_that_means_nothing(shipped: Any) -> None:
    with pytest.raises(ToolError, match="first"):
        shipped("lds_race", first=-1)
