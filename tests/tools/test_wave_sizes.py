"""One module in kernels of both wave sizes: the tools that ship, and hooks that ask for what a wave is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from luthier import InstrumentationTask, Tool, ToolModule, lift, patch_object
from luthier.emulator.inspection.debug import WaveStep
from luthier.verify import verify_kernel
from luthier.verify.launch_plan import read_plans
from shipped import NAMES, tool_of
from shipped_tools import shipped_tools

from .conftest import ALL, PROCESSORS, TARGETS

ROOT = Path(__file__).parents[2]
PLANS = read_plans(ROOT / "examples/apps/launch.toml")
TWICE = [name for name in TARGETS if len(ALL[name.split()[0]].wave_sizes) > 1]
TOOLS = shipped_tools()
LOOPS_AND_SPILLS = {"lds_race"}
"""Tools with hooks so large that LLVM's own code in them has hazards on GFX12 in waves of 64 (docs/limits.md)."""
LANES = """
__device__ unsigned long long seen[8];

static __device__ unsigned long long activeLanes() {
#if __AMDGCN_WAVEFRONT_SIZE == 64
  return luthier::readReg<unsigned long long>(luthier::EXEC);
#else
  return luthier::readReg<unsigned>(luthier::EXEC);
#endif
}

LUTHIER_HOOK_ANNOTATE watch() {
  const unsigned long long mask = __ballot(1);
  if (__lane_id() == __ffsll(mask) - 1) {
    atomicAdd(&seen[0], 1ull);
    atomicAdd(&seen[1], (unsigned long long)__popcll(mask));
    atomicAdd(&seen[2], (unsigned long long)__popcll(activeLanes()));
    atomicAdd(&seen[3], (unsigned long long)warpSize);
    atomicAdd(&seen[4], mask);
  }
  atomicAdd(&seen[5], (unsigned long long)__lane_id());
  atomicAdd(&seen[6], __ballot(__lane_id() & 1));
  atomicAdd(&seen[7], (unsigned long long)__builtin_amdgcn_readfirstlane((int)__lane_id() * 3));
}
"""


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", [name for name in TARGETS if "wave64" in name])
@pytest.mark.parametrize("name", NAMES)
def test_shipped_tools(
    bench: Any, make_module: Callable[..., ToolModule], tmp_path: Path, name: str, target: str
) -> None:
    """Outputs as without them, counters as the device counts; no hazard and no missing wait that was not there, but for
    those that are known."""
    options = {"to": str(tmp_path)} if name == "lift_dump" else TOOLS[name].trial
    tool = tool_of(make_module, name, PROCESSORS, **options)
    for application in ("vector_add", "reduction", "divergent_loop"):
        kernel = bench(ROOT / "examples/apps" / f"{application}.hip", application, target)
        verdict = verify_kernel(kernel.object, tool, PLANS[application], strict=True)
        known = name in LOOPS_AND_SPILLS and target.startswith("gfx12")
        assert not [one for one in verdict.problems if not (known and "overwrites it" in one)]


def expected(kernel: Any, wave_size: int) -> Counter[int]:
    """Return the expected sums of hooks before every vector instruction, from the device's masks."""
    sizes: Counter[int] = Counter()
    vectors = set(points(kernel))

    def see(step: WaveStep) -> None:
        exec = step.registers.exec
        if step.address in vectors and exec:
            lanes = [lane for lane in range(wave_size) if exec >> lane & 1]
            odd = sum(1 << lane for lane in lanes if lane & 1)
            sizes.update({0: 1, 1: len(lanes), 2: len(lanes), 3: wave_size, 4: exec})
            sizes.update({5: sum(lanes), 6: odd * len(lanes), 7: 3 * lanes[0] * len(lanes)})

    kernel.watch(see)
    return sizes


def points(kernel: Any) -> list[int]:
    task = InstrumentationTask(lift(kernel.object, kernel.kernel))
    return [one.address for one in task.instructions if one.is_vector]


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TWICE)
@pytest.mark.parametrize("name", ["reduction", "divergent_loop"])
def test_what_a_wave_is(bench: Any, make_module: Callable[..., ToolModule], name: str, target: str) -> None:
    """Lane ids, ballots, EXEC, warpSize and the first lane's value."""
    module = make_module(LANES, *PROCESSORS, both_wave_sizes=True)

    class Watch(Tool):
        def instrument(self, task: InstrumentationTask) -> None:
            for instruction in task.instructions:
                if instruction.is_vector:
                    task.insert_hook_before(instruction, module.watch)

    plan = PLANS[name]
    source = ROOT / "examples/apps" / f"{name}.hip"
    kernel = bench(source, name, target, *plan.materialise(), grid=plan.grid[0], block=plan.block[0])
    sizes = expected(kernel, ALL[target].wave_sizes[0])
    assert sizes[0] > 100
    loaded, _ = kernel.launch(patch_object(kernel.object, Watch().instrument, strict=True).data)
    values = np.frombuffer(loaded.variable("seen").read(), np.uint64)
    assert values.tolist() == [sizes[index] % 2**64 for index in range(8)]
