"""Hooks with private memory in an unmodified program: ROCr allocates it for kernels that had none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from luthier import InstrumentationTask, Tool, ToolModule
from luthier.isa.targets import target_named
from luthier.objects import load_object
from luthier.payload.lds import LdsLayout

from .conftest import TARGETS, RunUnderTools
from .test_programs import SAYS

HOOK = """
__device__ unsigned long long total;
__device__ uint32_t fibonacci(uint32_t n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
LUTHIER_HOOK_ANNOTATE deep() {
  volatile uint32_t array[4] = {3, 4, 5, 6};
  atomicAdd(&total, (unsigned long long)fibonacci(array[threadIdx.x & 3]));
}
__device__ unsigned long long more;
LUTHIER_HOOK_ANNOTATE kept() {
  volatile uint32_t array[4] = {3, 4, 5, 6};
  atomicAdd(&more, (unsigned long long)array[threadIdx.x & 3]);
}
"""
LDS_HOOK = """
static __shared__ volatile unsigned place[64];
__device__ unsigned long long total;
LUTHIER_HOOK_ANNOTATE count() {
  place[threadIdx.x] = 1;
  atomicAdd(&total, (unsigned long long)place[threadIdx.x]);
}
"""


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_of_a_program(
    make_module: Callable[..., ToolModule],
    build_program: Callable[[str], Path],
    under_tools: Callable[..., RunUnderTools],
    target: str,
) -> None:
    """`scan` launches two kernels with 20 work-groups of 256."""
    module = make_module(HOOK, *TARGETS)

    class Deep(Tool):
        name = "deep"

        def instrument(self, task: InstrumentationTask) -> None:
            task.insert_hook_before(next(task.instructions), module.deep)

    ran = under_tools(f"emu:{target}", [Deep()], build_program("scan"))
    assert (ran.code, ran.out) == (0, SAYS["scan"])
    assert ("total", 2 * 20 * 64 * (2 + 3 + 5 + 8)) in [(name, int(value)) for _, name, value in ran.variables["deep"]]


def expected(values: list[int], count: int) -> int:
    own = [count, count * 3, values[0], values[count & 3]]
    return own[2] if count == 0 else own[count & 3] + expected(values, count - 1) * 5


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_above_a_stack_whose_size_is_not_known(
    make_module: Callable[..., ToolModule],
    raw_program: Callable[..., list[Path]],
    under_tools: Callable[..., RunUnderTools],
    target: str,
) -> None:
    """Hooks at every instruction of a recursive kernel; a launch whose stack would reach the hooks' memory runs
    unmodified, which is reported."""
    module = make_module(HOOK, *TARGETS)

    class Deep(Tool):
        name = "deep"

        def instrument(self, task: InstrumentationTask) -> None:
            task.insert_hook_at_kernel_entry(module.deep)
            for instruction in task.instructions:
                task.insert_hook_before(instruction, module.kept)

    command = raw_program(target, "raw_stack", 5)
    assert load_object(command[1]).kernels["recursive"].uses_dynamic_stack
    ran = under_tools(f"emu:{target}", [Deep()], *command, "0", "4096", "4112", "1024")
    total = 0
    for i in range(64):
        total = total * 31 + expected([i, i * i, 7, i ^ 5], i & 7) & 0xFFFFFFFF
    assert (ran.code, ran.out) == (0, f"{total}\n" * 4)
    assert ("total", 3 * 16 * (2 + 3 + 5 + 8)) in [(name, int(value)) for _, name, value in ran.variables["deep"]]
    assert "bytes of private memory a lane run uninstrumented" in ran.err + str(ran.summary)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_launches_that_leave_hooks_no_lds_run_as_they_are(
    make_module: Callable[..., ToolModule],
    raw_program: Callable[..., list[Path]],
    under_tools: Callable[..., RunUnderTools],
    target: str,
) -> None:
    """The LDS of a launch leaves exactly as much as hooks need, or less."""
    module = make_module(LDS_HOOK, *TARGETS)

    class Shared(Tool):
        name = "shared"

        def instrument(self, task: InstrumentationTask) -> None:
            task.insert_hook_at_kernel_entry(module.count)

    command = raw_program(target, "raw_stack", 5)
    object = load_object(command[1])
    most = target_named(target).lds_bytes - LdsLayout.of(module.contents_for(object.target).lds).reserved
    more = most - object.kernels["recursive"].group_segment_fixed_size
    ran = under_tools(f"emu:{target}", [Shared()], *command, "0", f"0:{more}", f"0:{more + 4}", "0:1024")
    assert ran.code == 0
    assert len(set(ran.out.split())) == 1
    assert ("total", 3 * 64) in [(name, int(value)) for _, name, value in ran.variables["shared"]]
    assert f"launches with more than {most} bytes of LDS a work-group run uninstrumented" in ran.err + str(ran.summary)
