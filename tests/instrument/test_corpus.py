"""Many kernels at several optimisation levels, with hooks at random points: the kernels' results must not change."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from luthier.errors import PatchError
from luthier.isa import InstructionFlag
from luthier.objects import CodeObject, load_object
from luthier.tool import ExecutionCounts, Tool
from luthier.tool.task import InstrumentationTask, reg
from luthier.verify import verify_kernel
from luthier.verify.launch_plan import LaunchPlan

pytestmark = pytest.mark.rows()

KERNELS = Path(__file__).parents[1] / "emulator" / "kernels"
TARGETS = ["gfx90a", "gfx942", "gfx1100"]
LEAVES = InstructionFlag.TERMINATOR | InstructionFlag.BRANCH | InstructionFlag.CALL


def buffer(kind: str, count: int, fill: str = "random") -> dict[str, object]:
    return {"buffer": kind, "count": count, "fill": fill}


N = 200
PLAIN = {
    "vector_add": (buffer("float32", N), buffer("float32", N), buffer("float32", N, "zero"), N),
    "collatz": (buffer("uint32", N, "arange"), buffer("uint32", N, "zero"), N),
    "call_function": (buffer("int32", N), buffer("int32", N), buffer("int32", N, "zero"), N),
    "stack": (buffer("uint32", N), buffer("uint32", N, "zero"), N),
    "integers": (buffer("int32", N), buffer("int32", N), buffer("uint32", 24 * N, "zero"), N),
    "floats": (buffer("float32", N), buffer("float32", N), buffer("float32", 20 * N, "zero"), N),
    "doubles": (buffer("float64", N), buffer("float64", N), buffer("float64", 12 * N, "zero"), N),
}
GROUPS = {
    "reduction": (buffer("float32", N), buffer("float32", 2, "zero"), N),
    "lanes": (buffer("int32", N), buffer("int32", N, "zero"), N),
    "ids": (buffer("uint32", 2 * 128, "zero"),),
    "variables": (buffer("int32", 128, "zero"),),
}
CASES = [("plain", name) for name in PLAIN] + [("groups", name) for name in GROUPS]

SOURCE = """
__device__ uint64_t seen = 0;
__device__ uint64_t executions = 0;

/// Clobbers SCC and VCC, narrows EXEC, loops, and uses several registers of both files.
LUTHIER_HOOK_ANNOTATE busy(uint32_t scalar, uint32_t vector) {
  uint64_t mix = vector * 2654435761ull + scalar;
  if (vector & 1)
    atomicAdd(reinterpret_cast<unsigned long long *>(&seen), mix);
  else if (mix > scalar)
    atomicAdd(reinterpret_cast<unsigned long long *>(&seen), mix ^ vector);
}

LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&executions, 1); }
"""


class RandomSites(Tool):
    """The busy hook at some points, the counting one at others."""

    def __init__(self, module, seed: int, share: float) -> None:
        super().__init__()
        self.module, self.seed, self.share = module, seed, share
        self.counted: list[int] = []

    def instrument(self, task: InstrumentationTask) -> None:
        randomness = random.Random(self.seed)
        self.counted = []
        for instruction in task.instructions:
            draw = randomness.random()
            if task.lifted.restrictions.get(instruction.index):
                continue
            if draw < self.share:
                task.insert_hook_before(instruction, self.module.busy, reg("s4"), reg("v0"))
            elif draw < 2 * self.share:
                task.insert_hook_before(instruction, self.module.count)
                self.counted.append(instruction.index)
            elif draw < 3 * self.share and not (
                instruction.flags & LEAVES or task.lifted.restrictions.get(instruction.index + 1)
            ):
                task.insert_hook_after(instruction, self.module.busy, reg("exec_lo"), reg("v1"))

    def expected(self, task: InstrumentationTask, counts: ExecutionCounts):
        return {"executions": int(counts.executions[self.counted].sum())}


@pytest.fixture(scope="module")
def module(make_module):
    return make_module(SOURCE)


@pytest.fixture(scope="module")
def objects(compile_object):
    """`objects(file, target, level)`, with the shared header beside the source."""

    def compiled(file: str, target: str, level: str) -> CodeObject:
        flags = (f"-I{KERNELS}", "-ffp-contract=off", level)
        return load_object(compile_object(KERNELS / f"{file}.hip", target, *flags))

    return compiled


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("level", ["-O0", "-O3"])
@pytest.mark.parametrize(("file", "name"), CASES)
def test_hooks_at_random_points_change_nothing(objects, module, file: str, name: str, level: str, target: str) -> None:
    if (name, level) == ("stack", "-O0"):
        level = "-O1"  # its recursion does not fit the default stack without optimisation
    object = objects(file, target, level)
    plan = LaunchPlan(name, (2, 1, 1), (128, 1, 1), (PLAIN | GROUPS)[name])
    for seed, share in ((1, 0.05), (2, 0.33)):
        try:
            verdict = verify_kernel(object, RandomSites(module, seed, share), plan)
        except PatchError as problem:
            if "registers" not in str(problem) or share < 0.3:
                raise
            continue  # refused, not wrong
        assert verdict.problems == ()
        assert verdict.patch is not None
