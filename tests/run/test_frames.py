"""Hooks with private memory in an unmodified program: ROCr gives it to kernels that had none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from luthier import InstrumentationTask, Tool, ToolModule

from .conftest import TARGETS, RunUnderTools
from .test_programs import SAYS

HOOK = """
__device__ unsigned long long total;
__device__ uint32_t fibonacci(uint32_t n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
LUTHIER_HOOK_ANNOTATE deep() {
  volatile uint32_t array[4] = {3, 4, 5, 6};
  atomicAdd(&total, (unsigned long long)fibonacci(array[threadIdx.x & 3]));
}
"""


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
    ((_, name, value),) = ran.variables["deep"]
    assert (name, int(value)) == ("total", 2 * 20 * 64 * (2 + 3 + 5 + 8))
