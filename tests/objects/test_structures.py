"""Code objects and containers that are damaged where their structure is: all that reads them works or refuses them,
with little memory and time."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from effort import EVERYTHING
from limited import MB, survives
from luthier.cli.disasm import listing
from luthier.cli.objects import describe, table
from luthier.errors import LuthierError
from luthier.lifting import lift
from luthier.objects import CodeObject, ObjectEditor, load_objects
from structures import WAYS, containers, damaged

SOURCE = """
#include <hip/hip_runtime.h>
__constant__ int offsets[4] = {1, 2, 3, 4};
__device__ int total;
template <typename T> __device__ __forceinline__ T twice(T value) { return value + value; }
__device__ __noinline__ int called(int value) { return twice(value) * 3 + offsets[value & 3]; }
extern "C" __global__ void one(int *out) { out[threadIdx.x] = called(twice(int(threadIdx.x))); }
extern "C" __global__ void two(float *out, int n) { for (int i = 0; i < n; ++i) out[i] = twice(out[i]) + total; }
"""
TARGETS = ("gfx90a", "gfx1100") if EVERYTHING else ("gfx90a",)
COUNT = 400 if EVERYTHING else 12


@pytest.fixture(scope="module")
def objects(compile_object: Callable[..., Path]) -> dict[str, bytes]:
    return {target: compile_object(SOURCE, target, "-g").read_bytes() for target in TARGETS}


def use(data: bytes) -> None:
    """All that is done with an object without running it; edited, it is an object again."""
    for object in load_objects(data, name="damaged"):
        kernels = list(object.kernels.values())
        json.dumps(describe(object, kernels))
        table(object, kernels)
        list(listing(object, lines=True))
        for name in list(object.kernels)[:3]:
            try:
                lift(object, name)
            except LuthierError:
                continue
        editor = ObjectEditor(object)
        address = editor.reserve(32, flags="rw", name=".added")
        editor.define_symbol("added", address, 8)
        editor.add_relocation(address, 13, address)
        editor.set_metadata(copy.deepcopy(object.metadata))
        assert [*CodeObject(editor.finish()).kernels] == [*object.kernels]


@pytest.mark.rows(1)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("target", TARGETS)
def test_damaged_structures(target: str, way: str, objects: dict[str, bytes]) -> None:
    data = objects[target]
    for copy_ in damaged(data, way, COUNT, target):
        survives(lambda copy_=copy_: use(copy_), memory=512 * MB)


def test_functions_larger_than_the_code(objects: dict[str, bytes]) -> None:
    """Whatever size a function's symbol says, it ends with its section."""
    data = bytearray(objects["gfx90a"])
    whole = load_objects(bytes(data), name="whole")[0]
    size = next(one.size for one in whole.symbols if one.name == "two" and one.type == "func")
    place = bytes(data).index(size.to_bytes(8, "little"), 0)
    changed = 0
    while place >= 0:
        data[place : place + 8] = (2**64 - 8).to_bytes(8, "little")
        changed += 1
        place = bytes(data).find(size.to_bytes(8, "little"), place + 8)
    again = load_objects(bytes(data), name="changed")[0]
    assert changed
    assert any(one.size == 2**64 - 8 for one in again.symbols)
    assert len(lift(again, "two").blocks) == len(lift(whole, "two").blocks)


@pytest.mark.parametrize("seed", range(COUNT if EVERYTHING else 3))
def test_damaged_containers(seed: int, objects: dict[str, bytes]) -> None:
    image = objects["gfx90a"]
    rng = random.Random(seed)
    for _, data in containers(image, rng):
        survives(lambda data=data: [describe(one, list(one.kernels.values())) for one in load_objects(data)])


def test_what_is_whole_is_used(objects: dict[str, bytes]) -> None:
    for data in objects.values():
        assert survives(lambda data=data: use(data), memory=512 * MB)
