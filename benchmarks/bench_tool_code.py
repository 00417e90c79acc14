"""Tools that look at every result and every access, in kernels that do nothing else: wave-instructions over those of
the originals. `make setup` installs the tools."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from luthier import ApiEvent
from luthier.devices import open_device
from luthier.devices.in_process import HereRun
from luthier.emulator import EmulatedDevice
from luthier.module.embedded import plain_name
from luthier.objects import load_object
from luthier.patch import patch_object
from luthier.tool import Tool, parse_tool
from run import Row

from luthier_build.compile import compile_application

TARGETS = ("gfx90a", "gfx1030", "gfx1100", "gfx1201")
ITEMS, GROUPS, BLOCK = 4096, 4, 64
SOURCE = """
#include <hip/hip_runtime.h>
extern "C" __global__ void arithmetic(const float *a, const float *b, float *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = a[i], s = x, t = 1;
  for (int k = 0; k < 100; ++k) {
    s = s * x + 0.5f; t = t * s - x; s = s + t * 0.25f; x = x * 0.999f; t = t - s;
    s = fminf(s, t) * 0.5f; t = fmaxf(t, -x); t = sqrtf(fabsf(t));
  }
  c[i] = s + t;
}
extern "C" __global__ void accesses(const float *a, const float *b, float *c, int n) {
  for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n - 4; k += 256)
    c[k] = a[k] + a[k + 1] + a[k + 2] * b[k] + b[k + 3];
}
"""
Prepare = Callable[[Tool, dict[str, Any], list[Any], tuple[str, str]], None]


def _nothing(tool: Tool, variables: dict[str, Any], places: list[Any], kernel: tuple[str, str]) -> None:
    """Do nothing, because the tool needs no events."""


def _memory(tool: Any, variables: dict[str, Any], places: list[Any], kernel: tuple[str, str]) -> None:
    """Tell the tool memcheck of the allocations, as `luthier run` does."""
    for place in places:
        about = {"address": place.address, "size": 4 * ITEMS, "reserved": 4 * ITEMS}
        tool.at_memory_event(ApiEvent("allocated", False, 1, 1, 1, 0, about))
    assert tool.tell(tool.allocations[1], variables)
    kernarg = struct.pack("<QQQi", *(place.address for place in places), ITEMS)
    variables["held"].write(tool.held(tool.allocations[1], kernel, kernarg, 0))


RUNS: dict[str, tuple[str, Prepare]] = {"arithmetic": ("fp_check", _nothing), "accesses": ("memcheck", _memory)}
"""Kernel -> tool, and its setup."""


def measure() -> Iterable[Row]:
    """Yield a row for each tool and processor."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source.hip"
        source.write_text(SOURCE)
        for target in TARGETS:
            object = load_object(compile_application(source, target, Path(folder) / f"{target}.hsaco"))
            for kernel, (name, prepare) in RUNS.items():
                device = open_device(f"emu:{target}")
                assert isinstance(device, EmulatedDevice)
                places = [device.allocate(4 * ITEMS) for _ in range(3)]
                for place in places:
                    place.write(np.linspace(0.1, 1, ITEMS, dtype=np.float32))
                tool = parse_tool(name)
                patched = patch_object(object, tool.instrument, [kernel], strict=True)
                counts = []
                for data in (object.data, patched.data):
                    module = device.load(data)
                    if data is patched.data:
                        variables = {plain_name(one.name): one for one in HereRun(module, patched).variables()}
                        prepare(tool, variables, places, (object.name, kernel))
                    module.kernel(kernel).launch(*places, ITEMS, grid=GROUPS, block=BLOCK)
                    counts.append(device.stats.instructions)
                yield Row(f"{target}, {name}, {kernel}", counts[1] / counts[0], "x instructions")
