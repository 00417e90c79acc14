"""Hooks built for one processor in kernels of others that run the same generic code, beside the originals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from device_modules import device_module
from kept import kept
from luthier import ExecutionCounts, InstrumentationTask, Tool
from luthier.errors import LuthierError
from luthier.isa.targets import TargetId
from luthier.module import ToolModule
from luthier.module.demand import best_for
from luthier.objects import load_object
from luthier.payload import ConstantArgument
from luthier.payload.cache import template_for
from luthier.payload.codegen import generate
from luthier.verify import verify_object

from luthier_build.compile import compile_application

HOOK = """
__managed__ uint64_t lanes = 0;
__managed__ double sum = 0;
LUTHIER_HOOK_ANNOTATE step(uint32_t by) {
  luthier::sAtomicAdd<uint64_t>(&lanes, by * __popcll(__builtin_amdgcn_read_exec()));
  if (by > 1) atomicAdd(&sum, sin(double(threadIdx.x)));
}
"""
KERNEL = """
#include <hip/hip_runtime.h>
extern "C" __global__ void collatz(unsigned *steps) {
  unsigned n = threadIdx.x + 1, count = 0;
  while (n != 1) {
    n = n % 2 ? 3 * n + 1 : n / 2;
    count++;
  }
  steps[threadIdx.x] = count;
}
"""
SERVED = [
    *(("gfx1030", f"gfx103{number}") for number in range(1, 7)),
    ("gfx1030", "gfx10-3-generic"),
    ("gfx1010", "gfx1012"),
    ("gfx1100", "gfx1103"),
    ("gfx1100", "gfx1151"),
    ("gfx1151", "gfx1101"),
    ("gfx1100", "gfx11-generic"),
    ("gfx1201", "gfx1200"),
    ("gfx1200", "gfx1201"),
    ("gfx1201", "gfx12-generic"),
    ("gfx906", "gfx90c"),
    ("gfx900", "gfx9-generic"),
    ("gfx942", "gfx950"),
    ("gfx942", "gfx9-4-generic"),
]


class Stepping(Tool):
    """Counts the lanes of every branch."""

    def __init__(self, module: ToolModule) -> None:
        super().__init__()
        self.module = module

    def instrument(self, task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            task.insert_hook_before(instruction, self.module.step, 1)

    def expected(self, task: InstrumentationTask, counts: ExecutionCounts) -> Mapping[str, int]:
        return {"lanes": int(counts.active_lanes.sum())}


@pytest.mark.parametrize(("built", "application"), SERVED)
def test_served(built: str, application: str, tmp_path: Path) -> None:
    module = device_module(HOOK, [built], in_file=True)

    def build(output: Path) -> None:
        (tmp_path / "a.hip").write_text(KERNEL)
        compile_application(tmp_path / "a.hip", application, output)

    object = load_object(kept((KERNEL, application), build, "a.hsaco"))
    assert module.contents_for(object.target).target == TargetId.parse(built)
    (verdict,) = verify_object(object, Stepping(module), hoist=False)
    assert not verdict.problems
    assert verdict.complete
    assert verdict.counters["lanes"] > 0


def test_what_a_relative_does_not_have(tmp_path: Path) -> None:
    """An instruction that a hook asks for by name is refused where there is none."""
    source = "__managed__ int sum; LUTHIER_HOOK_ANNOTATE dot(int a) { sum = __builtin_amdgcn_sdot4(a, a, 1, false); }"
    module = device_module(source, ["gfx906"], in_file=True)
    arguments = (ConstantArgument("7"),)
    template_for(module.dot, arguments, TargetId.parse("gfx906"), 64)
    with pytest.raises(LuthierError, match="hook dot"):
        template_for(module.dot, arguments, TargetId.parse("gfx900"), 64)


def test_functions_behind_a_hook_are_the_applications(tmp_path: Path) -> None:
    """What cannot be inlined has no instructions of the processor that the hook was built for."""
    source = """__managed__ float sum;
    __constant__ float scale[2] = {2, 3};
    __device__ __attribute__((noinline)) float twice(float a, int n) {
      return n <= 0 ? a : twice(a * (scale[0] * scale[1] + scale[0]), n - 1) + twice(a - 1, n - 2);
    }
    LUTHIER_HOOK_ANNOTATE step(float a, int n) { sum = twice(a, n); }"""
    arguments = (ConstantArgument("0x3FF0000000000000"), ConstantArgument("5"))
    texts = {
        name: generate(
            device_module(source, ["gfx1151"], in_file=True).contents_for(target).bitcode,
            *("step", arguments, target, 32, frozenset(["sum"])),
        ).text
        for name, target in {one: TargetId.parse(one) for one in ("gfx1151", "gfx1101")}.items()
    }
    assert {name: "s_fmac_f32" in text for name, text in texts.items()} == {"gfx1151": True, "gfx1101": False}


def test_the_nearest_is_taken() -> None:
    built = ["gfx1150", "gfx1100", "gfx11-generic", "gfx1102", "gfx1200", "gfx942:xnack+"]
    for application, nearest in (
        ("gfx1102", ["gfx1102", "gfx11-generic", "gfx1100", "gfx1150"]),
        ("gfx1151", ["gfx11-generic", "gfx1150", "gfx1100", "gfx1102"]),
        ("gfx1103", ["gfx11-generic", "gfx1100", "gfx1102", "gfx1150"]),
        ("gfx1030", []),
        ("gfx950:xnack-", []),
        ("gfx950:xnack+", ["gfx942:xnack+"]),
    ):
        assert best_for(TargetId.parse(application), built, TargetId.parse) == nearest
