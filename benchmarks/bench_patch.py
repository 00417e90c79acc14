"""Patching. Sites are all instructions of a kernel of 4,000 instructions, and of 70 kernels of a large library for each
target (see `bench_lift`). A kernel of 1,000 instructions is patched first and later in a process, with new and with
cached hooks; and hooks are called. CPU time; for the library without lifting and liveness."""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench_lift import library
from first_patch import additions, count_everything
from luthier import immediate
from luthier.lifting import LiftedRepresentation, lift
from luthier.module import ToolModule
from luthier.objects import CodeObject, load_object, load_objects
from luthier.patch import patch_object
from luthier.patch.output.kernel import patch_kernel
from luthier.payload import ConstantArgument
from luthier.payload.cache import template_for
from luthier.support.processes import run
from luthier.tool.task import InstrumentationTask, reg
from run import Row

from luthier_build.compile import compile_device
from luthier_build.toolchain import Toolchain
from luthier_build.workspace import build_folder

TARGET = "gfx942"
TARGETS = [TARGET, "gfx90a", "gfx1100"]
FIRST_TARGETS = ["gfx90a", "gfx942", "gfx1100", "gfx1201"]
STEPS, FIRST_STEPS, STRAIGHT_STEPS = 310, 48, 1900
"""Steps of a kernel with more than 5,000 instructions, of one with 1,071 to 1,226, and of one with some 10,000."""
PEER = "100,000 additions in Python"
CALLED = """
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>
MARK_LUTHIER_DEVICE_MODULE
__device__ uint64_t sum = 0;
LUTHIER_HOOK_ANNOTATE large(uint32_t site, uint32_t lane, uint32_t scalar) {
  uint64_t x = (uint64_t(lane) << 32 | scalar) * 0x9E3779B97F4A7C15ull + site;
#pragma unroll
  for (int round = 0; round < 9; ++round)
    x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9ull;
  if (x & 1)
    atomicAdd((unsigned long long *)&sum, (unsigned long long)x);
}
"""
DEVICE = Path(__file__).parents[1] / "examples/tools/instr_count/luthier_instr_count/device.hip"


def big_kernel_source(count: int = STEPS) -> str:
    """Return the source of a kernel of about 20 instructions a step: one loop with a branch for each step."""
    steps = "\n".join(
        f"  x = x * {2 * i + 3}u + (x >> {i % 29 + 1}); if (x & {1 << i % 20}) y ^= x + {i}; else y += in[x & 1023];"
        for i in range(count)
    )
    return f"""
#include <hip/hip_runtime.h>
extern "C" __global__ __launch_bounds__(256) void big(const unsigned *in, unsigned *out, unsigned n) {{
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = i, y = 1;
  for (unsigned round = 0; round < n; ++round) {{
{steps}
  }}
  out[i] = x ^ y;
}}
"""


def compile_kernel(source: str, folder: Path, target: str = TARGET) -> CodeObject:
    """Compile HIP device source."""
    toolchain = Toolchain.find()
    path, output = folder / "kernel.hip", folder / "kernel.hsaco"
    path.write_text(source)
    flags = ["--offload-device-only", "--no-gpu-bundle-output", "-O2", "-fno-unroll-loops"]
    run([toolchain.clang, *toolchain.device_flags(target), *flags, path, "-o", output])
    return load_object(output)


def counting_bundle(folder: Path, targets: list[str]) -> Path:
    """Build the device module of examples/tools/instr_count."""
    with build_folder(folder / "tool") as held:
        return Path(compile_device([DEVICE], targets, folder=held, report=lambda line: None).bundle)


def with_liveness(code_object: CodeObject, name: str) -> LiftedRepresentation:
    """Return a lifted kernel with all analysed that patching asks for."""
    lifted = lift(code_object, name)
    for block in lifted.blocks:
        lifted.liveness.live_before(block.first)
    return lifted


def measure_library(path: Path, module: ToolModule) -> Iterator[Row]:
    """Measure, for each target, 70 kernels of one object, patched one after the other as `patch_object` does."""
    objects = [one for one in load_objects(path) if len(one.kernels) >= 70]
    for target in TARGETS:
        object = random.Random(target).choice([each for each in objects if each.target.target.name == target])
        names = random.Random(target).sample(list(object.kernels), 70)
        best = float("inf")
        for _ in range(3):
            spent, sites = 0.0, 0
            for name in names:
                task = InstrumentationTask(with_liveness(object, name))
                began = time.process_time()
                count_everything(task, module)
                sites += patch_kernel(task).report.sites
                spent += time.process_time() - began
            best = min(best, spent / sites)
        yield Row(f"libggml-hip, {target}, 70 kernels, {sites} sites: each", best * 1e6, "µs/site")


def first_kernels(folder: Path) -> Iterator[Row]:
    """Measure the cost of the first kernel of a process, each the best of some processes."""
    module = counting_bundle(folder, FIRST_TARGETS)
    for target in FIRST_TARGETS:
        object = compile_kernel(big_kernel_source(FIRST_STEPS), folder, target).data
        (folder / "first.hsaco").write_bytes(object)
        times: dict[str, list[dict[str, float]]] = {"new": [], "kept": []}
        for number in range(3):
            cache = folder / f"cache-{target}-{number}"
            for hooks in times:
                script = Path(__file__).with_name("first_patch.py")
                command = [sys.executable, script, module, folder / "first.hsaco", hooks]
                times[hooks].append(json.loads(run(command, env={**os.environ, "LUTHIER_CACHE_DIR": str(cache)})))
        every = [one for hooks in times.values() for one in hooks]
        peer = PEER, min(one["additions"] for one in every)
        for hooks, label in (("new", "two new hooks"), ("kept", "the hooks kept")):
            best = min(one["first"] for one in times[hooks])
            yield Row(f"first patched kernel of a process, {target}, {label}", best, "ms", *peer)
        yield Row(f"a later one, {target}, the same hooks", min(one["second"] for one in every), "ms", *peer)
        for hooks, label in (("new", "one hook new"), ("kept", "one hook kept, not used before")):
            best = min(one["other"] for one in times[hooks])
            yield Row(f"a later one, {target}, {label}", best, "ms", *peer)
    yield Row("imports before that", min(one["imports"] for one in every), "ms", *peer)


def called(folder: Path) -> Iterator[Row]:
    """Measure a large hook before every instruction of straight code, each with a number of its point's own."""
    steps = "\n".join(f"x = x * {2 * i + 3}u + (x >> {i % 29 + 1}); y ^= x + {i};" for i in range(STRAIGHT_STEPS))
    source = f"""
#include <hip/hip_runtime.h>
extern "C" __global__ void straight(unsigned *out) {{
  unsigned x = threadIdx.x, y = blockIdx.x;
  {steps}
  out[threadIdx.x] = x ^ y;
}}
"""
    (folder / "called.hip").write_text(CALLED)
    with build_folder(folder / "called") as held:
        bundle = compile_device([folder / "called.hip"], FIRST_TARGETS, folder=held, report=lambda line: None).bundle
    hook = ToolModule.load(bundle).large

    def instrument(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            task.insert_hook_before(instruction, hook, immediate(instruction.index), reg("v0"), reg("s2"))

    for target in FIRST_TARGETS:
        data = compile_kernel(source, folder, target).data
        best, hooks, calls = float("inf"), 0, 0
        for _ in range(4):
            object = load_object(data)
            began = time.process_time()
            report = patch_object(object, instrument).report.kernels[0]
            best = min(best, time.process_time() - began)
            hooks, calls = report.insertions, report.calls
        peer = "100 additions in Python", additions()  # of 100,000 in ms
        yield Row(f"large hooks, {target}, {hooks} of which {calls} call: each", best / hooks * 1e6, "µs", *peer)
    patched = load_object(patch_object(compile_kernel(big_kernel_source(), folder), instrument).data)
    (name,) = patched.kernels
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        lifted = lift(load_object(patched.data), name)
        best = min(best, time.process_time() - began)
    yield Row(f"{len(lifted.code)} instructions with large hooks called all over them: lifted", best, "s")


def measure() -> Iterable[Row]:
    """Time lifting, the first payload, and patching."""
    with tempfile.TemporaryDirectory() as name:
        yield from first_kernels(Path(name))
        yield from called(Path(name))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        object = compile_kernel(big_kernel_source(), folder)
        module = ToolModule.load(counting_bundle(folder, TARGETS))

        def instrument(task: InstrumentationTask) -> None:
            count_everything(task, module)

        began = time.process_time()
        first = patch_object(object, instrument)
        cold = time.process_time() - began
        times = []
        for _ in range(5):
            again = load_object(object.data)
            began = time.process_time()
            patch_object(again, instrument)
            times.append(time.process_time() - began)
        report = first.report.kernels[0]
        template_for.cache_clear()
        began = time.process_time()
        template_for(module.count_vector, (ConstantArgument("false"),), object.target, 64)
        compile_time = time.process_time() - began
    yield Row(f"sites (all instructions; {report.code_bytes} → {report.patched_bytes} bytes)", report.sites, "")
    yield Row("patch, first time in the process", cold, "s")
    yield Row("patch, payloads compiled", min(times), "s")
    yield Row("patch per site", min(times) / report.sites * 1e6, "µs/site")
    yield Row("one payload, hook bitcode to template", compile_time * 1e3, "ms")
    yield Row("the same at every site, without templates (computed)", compile_time * report.sites, "s")
    with tempfile.TemporaryDirectory() as name:
        path = library(Path(name))
        if path is not None:
            yield from measure_library(path, module)
