"""Functions that run as often as their calls: no counter repeats the count."""

from __future__ import annotations

import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier.devices import open_device
from luthier.lifting import lift
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.patch.counters.counted_edges import find_edges
from luthier.tool.task import InstrumentationTask

TARGETS = ("gfx906", "gfx90a", "gfx1030", "gfx1100", "gfx1201")
GROUPS, WAVES = 5, 2
RECURSION = """
#include <hip/hip_runtime.h>
__device__ __attribute__((noinline)) unsigned fibonacci(unsigned n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
extern "C" __global__ void recursive(unsigned *out) {
  unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
  for (unsigned k = 0; k < 1 + item % 3; ++k) out[item] += fibonacci(item % 5 + k);
}
"""


def label(name: str) -> str:
    return f".p2align 8\n.type {name},@function\n{name}:"


def twice(target: str) -> list[str]:
    """Two functions, each called from a loop and from elsewhere."""
    inner = [label("inner"), "s_add_u32 s22, s22, 1", "s_setpc_b64 s[30:31]"]
    outer = [label("outer"), "s_mov_b64 s[26:27], s[30:31]", "call 28, 29, inner", "call 28, 29, inner"]
    outer += ["s_setpc_b64 s[26:27]"]
    main = ["s_mov_b32 s20, 3", "again:", "call 28, 29, outer", "s_sub_u32 s20, s20, 1", "s_cmp_lg_u32 s20, 0"]
    main += ["s_cbranch_scc1 again", "call 28, 29, inner", "call 28, 29, outer", "s_endpgm"]
    return [*main, *outer, *inner]


def shared(target: str) -> list[str]:
    """Two functions with the same end, in which a third is called."""
    first = [label("first"), "s_mov_b64 s[26:27], s[30:31]", "s_branch common"]
    second = [label("second"), "s_mov_b64 s[26:27], s[30:31]", "common:", "call 28, 29, leaf", "s_setpc_b64 s[26:27]"]
    leaf = [label("leaf"), "s_add_u32 s22, s22, 1", "s_setpc_b64 s[30:31]"]
    main = ["call 28, 29, first", "call 28, 29, second", "call 28, 29, first", "s_endpgm"]
    return [*main, *first, *second, *leaf]


def endless(target: str) -> list[str]:
    """A function that calls itself until the wave ends in it: its calls may say nothing of how often it is entered."""
    main = ["s_mov_b32 s20, 10", "call 28, 29, down", "s_endpgm"]
    down = [label("down"), "s_sub_u32 s20, s20, 1", "s_cmp_eq_u32 s20, 0", "s_cbranch_scc1 leave"]
    return [*main, *down, "call 28, 29, down", "s_endpgm", "leave:", "s_nop 0", "s_endpgm"]


@pytest.mark.rows(8)
@pytest.mark.parametrize("per", ["wave", "lane"])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize(("make", "follow"), [(twice, {2}), (shared, {1}), (endless, {0, 1})])
@pytest.mark.parametrize("target", TARGETS)
def test_counts_are_the_truth(target: str, make, follow: set[int], given: bool, per) -> None:
    object = assembled(kernel_text(function("k", make(target)), target, sgprs=64, vgprs=8), target)
    lanes = WAVES * object.kernels["k"].wave_size
    assert check(object, "k", [0], lanes, given=given, per=per) - (given and per == "wave") in follow


@pytest.mark.rows(1)
@pytest.mark.parametrize("per", ["wave", "lane"])
@pytest.mark.parametrize("target", TARGETS)
def test_recursion(compile_object, target: str, per) -> None:
    object = load_object(compile_object(RECURSION, target, "-O1"))
    assert check(object, "recursive", [np.zeros(GROUPS * 128, np.uint32)], 128, given=False, per=per) == 1


def check(object: CodeObject, kernel: str, arguments: list, lanes: int, *, given: bool, per) -> int:
    """How many numbers need not be counted; with all counts as the device says."""
    lifted = lift(object, kernel)

    def everything(task: InstrumentationTask) -> None:
        task.waves_given = given
        task.count(list(task.instructions), per=per)

    patched = patch_object(object, everything, [kernel])
    device = open_device(f"emu:{object.target.target.name}")
    loaded = [device.load(data) for data in (object.data, patched.data)]
    loaded[0].kernel(kernel).launch(*arguments, grid=(GROUPS, 1, 1), block=(lanes, 1, 1))
    truth = device.stats.by_address
    loaded[1].kernel(kernel).launch(*arguments, grid=(GROUPS, 1, 1), block=(lanes, 1, 1))
    counters = patched.counters[kernel]
    counts = counters.read(loaded[1])
    actual, expected = counts.active_lanes, truth.active_lanes
    if per == "wave":
        actual, expected = counts.executions, truth.executions
    at = np.searchsorted(lifted.code.addresses, truth.addresses)
    assert actual[at].tolist() == expected.tolist()
    assert actual.sum() == expected.sum()

    flows = counters.waves if per == "wave" else counters.lanes
    reached = [index for index, block in enumerate(lifted.block_of) if block >= 0]
    chords = sum(len(one.chords) for one in find_edges(lifted, reached, lanes=per == "lane"))
    return chords - len({cell for flow in flows for one in flow.chords.values() for cell in one.amounts})
