"""What hooks compute, on one target of each generation, is what the same C++ computes on the host.

All bodies of `hook_bodies` run with LUTHIER_TEST_ALL=1; otherwise each target runs another sample of them.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import numpy as np
import pytest
from hook_bodies import BODIES, Body, device_source, host_source
from luthier.devices import open_device
from luthier.module import ToolModule
from luthier.objects import load_object
from luthier.patch import patch_object
from luthier.support.processes import run
from luthier.tool.task import InstrumentationTask, RegisterRange

from luthier_build.compile import compile_device
from luthier_build.settings import Settings
from luthier_build.toolchain import Toolchain
from luthier_build.workspace import build_folder

TARGETS = ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]
EVERYTHING = os.environ.get("LUTHIER_TEST_ALL") == "1"
ALWAYS = {"atomic_add_divergent", "constant_table", "calls_noinline", "half_pair"}
"""Once wrong or refused: inputs taken at a loop, tables behind a GOT, a labelled first block, halves of registers."""
LANES = 96
"""One work-group: a whole wave of 64 and half of one, or three waves of 32."""

MEMORY = {
    "cells": (np.uint32, 16),
    "wide_cells": (np.uint64, 4),
    "real_cell": (np.float32, 1),
    "ring": (np.uint32, 256),
    "bytes": (np.uint8, 1024),
}
"""Variables that bodies write: type and number of elements."""

KERNEL = """
#include <hip/hip_runtime.h>
struct alignas(16) Pair { unsigned long long a, b; };
extern "C" __global__ void copy(const Pair *in, Pair *out) { out[threadIdx.x] = in[threadIdx.x]; }
"""


def chosen(target: str) -> list[Body]:
    share = TARGETS.index(target)
    return [body for number, body in enumerate(BODIES) if EVERYTHING or number % 14 == share or body.name in ALWAYS]


def test_there_are_enough_bodies() -> None:
    names = [body.name for body in BODIES]
    assert len(names) == len(set(names)) >= 60
    assert set(names) >= ALWAYS


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("host")
    source, library = folder / "bodies.cpp", folder / "bodies.so"
    source.write_text(host_source(BODIES))
    flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-w"]
    flags += ["-Xclang", "-ffloat16-excess-precision=none"]
    run([Toolchain.find().clang, "-x", "c++", *flags, source, "-o", library, "-lm"])
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory):
    made: dict[str, ToolModule] = {}

    def module(target: str) -> ToolModule:
        if target not in made:
            folder = tmp_path_factory.mktemp("bodies")
            path: Path = folder / "device.hip"
            prefix = "#include <hip/hip_runtime.h>\n#include <luthier/luthier.h>\nMARK_LUTHIER_DEVICE_MODULE\n"
            path.write_text(prefix + device_source(chosen(target)))
            settings = Settings(flags=("-ffp-contract=off", "-w"))
            with build_folder(folder / "build") as held:
                built = compile_device([path], [target], settings, folder=held, report=lambda line: None)
            made[target] = ToolModule.load(built.bundle)
        return made[target]

    return module


def inputs() -> np.ndarray:
    """[lanes, 2] 64-bit values: limits, then anything."""
    generator = np.random.default_rng(7)
    values = generator.integers(0, 2**64, (LANES, 2), np.uint64)
    edges = np.array([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    values[: len(edges), 0] = edges
    values[4 : 4 + len(edges), 1] = edges[::-1]
    small = generator.random(LANES) < 0.3
    values[small] &= np.uint64(0xFFFF)
    return values


def floats_for(body: Body, values: np.ndarray) -> np.ndarray:
    """Parameters that are floating-point numbers get numbers, not any bits: sums of two NaNs have no one result."""
    if body.types[0] == "float":
        return (values.view(np.int64) / 2.0**40).astype(np.float32).view(np.uint32).astype(np.uint64)
    if body.types[0] == "double":
        return (values.view(np.int64) / 2.0**40).view(np.uint64)
    if body.types[0] == "half_t":
        numbers = values & np.uint64(0xFFFF)
        numbers[:, 0] = (values[:, 0].view(np.int64) / 2.0**56).astype(np.float16).view(np.uint16)
        return numbers
    return values


@pytest.mark.rows(4)
@pytest.mark.parametrize(
    ("target", "body"),
    [pytest.param(target, body, id=f"{target}-{body.name}") for target in TARGETS for body in chosen(target)],
)
def test_a_hook_computes_what_the_host_does(compile_object, modules, host, target: str, body: Body) -> None:
    hook = modules(target).hook(body.name)
    object = load_object(compile_object(KERNEL, target))

    def insert(task: InstrumentationTask) -> None:
        (store,) = [i for i in task.instructions if i.mnemonic.startswith("global_store")]
        data, offset = task.operand(store, "vdata"), task.operand(store, "vaddr")
        assert data.count == 4
        width = [2 if kind in ("uint64_t", "double", "uint2_t") else 1 for kind in body.types]
        a, b = RegisterRange(data.first, width[0]), RegisterRange(data.first + 2, width[1])
        task.insert_hook_before(store, hook, offset, a, b)

    values = np.ascontiguousarray(floats_for(body, inputs()))
    output = np.zeros_like(values)
    loaded = open_device(f"emu:{target}").load(patch_object(object, insert).data)
    loaded.kernel("copy").launch(values, output, grid=(1, 1, 1), block=(LANES, 1, 1))
    np.testing.assert_array_equal(output, values)  # the kernel itself

    expected = np.zeros(LANES, np.uint64)
    a, b = np.ascontiguousarray(values[:, 0]), np.ascontiguousarray(values[:, 1])
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (a, b, expected)]
    getattr(host, body.name)(ctypes.c_uint64(LANES), *pointers)
    of_host_memory = _take_memory(host)
    assert_same(body, loaded.variable("results").read(np.uint64)[:LANES], expected)
    for name, (kind, _) in MEMORY.items() if body.name.startswith(("atomic", "byte_memory")) else ():
        of_device = loaded.variable(name).read(kind)
        ordered = np.sort if name == "ring" else np.asarray  # no order of lanes is defined
        np.testing.assert_array_equal(ordered(of_device), ordered(of_host_memory[name]), name)


def _take_memory(host: ctypes.CDLL) -> dict[str, np.ndarray]:
    """What the host's variables hold; they are zero afterwards."""
    taken = {}
    for name, (kind, count) in MEMORY.items():
        storage = np.frombuffer((ctypes.c_uint8 * (np.dtype(kind).itemsize * count)).in_dll(host, name), kind)
        taken[name] = storage.copy()
        storage[:] = 0
    return taken


def assert_same(body: Body, got: np.ndarray, expected: np.ndarray) -> None:
    if body.result == "bits":
        np.testing.assert_array_equal(got, expected)
        return
    kind = np.float32 if body.result == "float" else np.float64
    integer = np.uint32 if body.result == "float" else np.uint64
    device, host = (array.astype(integer).view(kind) for array in (got, expected))
    assert np.isfinite(host).mean() > 0.9
    same = (device == host) | (np.isnan(device) & np.isnan(host))
    close = np.abs(device.astype(np.longdouble) - host) <= body.ulps * np.spacing(np.abs(host)).astype(np.longdouble)
    wrong = np.flatnonzero(~(same | close))
    assert not wrong.size, [(int(lane), float(device[lane]), float(host[lane])) for lane in wrong[:5]]
