"""Hooks in an unmodified program see what its kernels were launched with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from luthier import InstrumentationTask, Tool, ToolModule

from .conftest import TARGETS, RunUnderTools
from .test_programs import SAYS

HOOK = """
__device__ unsigned long long items, groups, sizes, arguments, packets;
LUTHIER_HOOK_ANNOTATE see(uint32_t n) {
  const auto packet = reinterpret_cast<const uint64_t *>((uint64_t)__builtin_amdgcn_dispatch_ptr());
  atomicAdd(&items, (unsigned long long)(threadIdx.x * threadIdx.x + threadIdx.y + threadIdx.z));
  atomicAdd(&groups, (unsigned long long)(blockIdx.x * blockIdx.x + blockIdx.y + blockIdx.z));
  atomicAdd(&sizes, (unsigned long long)(blockDim.x * blockDim.y * blockDim.z + 1000 * gridDim.x * gridDim.y));
  atomicAdd(&arguments, (unsigned long long)n);
  atomicAdd(&packets, (unsigned long long)(packet[5] == (uint64_t)__builtin_amdgcn_kernarg_segment_ptr()));
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
    """`scan` launches two kernels with 20 work-groups of 256; the last argument of both is 5000."""
    module = make_module(HOOK, *TARGETS)

    class Seeing(Tool):
        name = "seeing"

        def instrument(self, task: InstrumentationTask) -> None:
            explicit = [argument for argument in task.lifted.kernel.arguments if not argument.hidden]
            task.insert_hook_before(next(task.instructions), module.see, task.kernel_argument(len(explicit) - 1))

    ran = under_tools(f"emu:{target}", [Seeing()], build_program("scan"))
    assert (ran.code, ran.out) == (0, SAYS["scan"])
    values = {name: int(value) for _, name, value in ran.variables["seeing"]}
    lanes = 2 * 20 * 256
    assert values == {
        "items": 2 * 20 * sum(item * item for item in range(256)),
        "groups": 2 * 256 * sum(group * group for group in range(20)),
        "sizes": lanes * (256 + 1000 * 20),
        "arguments": lanes * 5000,
        "packets": lanes,
    }
