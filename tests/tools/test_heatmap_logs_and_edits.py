"""Heat map, value log and the tools that change the application, against what the device sees and NumPy computes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accesses import take_accesses
from luthier import open_device, patch_object, reported
from luthier.emulator.inspection.debug import WaveStep
from luthier.errors import ToolError
from luthier.verify.launch_plan import read_plans

from .conftest import TARGETS, Bench, rows

ROOT = Path(__file__).parents[2]
PLANS = read_plans(ROOT / "examples/apps/launch.toml")
ADD = ROOT / "examples/apps/vector_add.hip"
KINDS = ("load", "store", "atomic")


@pytest.mark.rows(1)
@pytest.mark.parametrize("page", [4096, 64])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["vector_add", "divergent_loop", "function_call"])
def test_pages_as_the_device_sees_them(bench: Any, shipped: Any, name: str, target: str, page: int) -> None:
    plan = PLANS[name]
    source = ROOT / "examples/apps" / f"{name}.hip"
    kernel = bench(source, name, target, *plan.materialise(), grid=plan.grid[0], block=plan.block[0])
    expected: Counter[tuple[int, str]] = Counter()
    before: list[WaveStep] = []

    def see(step: WaveStep) -> None:
        for access in take_accesses(step.worker):
            if before[0].text.startswith(("global_", "flat_", "buffer_")) and not access.scalar:
                kind = next(kind for kind in KINDS if f"_{kind}" in before[0].text)
                for host in access.places.tolist():
                    expected[host // page * page, kind] += 1
        before[:] = [step]

    kernel.watch(see)
    tables = kernel.under(shipped("address_heatmap", page=page, top=0))
    (table,) = (table for title, table in tables.items() if title.startswith(f"pages of {page} bytes"))
    pages = {(int(row["page"], 16), kind): row[f"{kind}s"] for row in rows(table) for kind in KINDS if row[f"{kind}s"]}
    assert pages == expected


def test_more_pages_than_slots(bench: Any, shipped: Any) -> None:
    """Accesses without a slot are counted separately: nothing is lost silently."""
    source = """
#include <hip/hip_runtime.h>
extern "C" __global__ void fill(unsigned *out) { out[blockIdx.x * blockDim.x + threadIdx.x] = 1; }
"""
    count = 300 * 256
    kernel = bench(source, "fill", "gfx90a", np.zeros(count, np.uint32), grid=300, block=256)
    tables = kernel.under(shipped("address_heatmap", page=4, top=0))
    (pages,) = (table for title, table in tables.items() if title.startswith("pages"))
    counted = sum(row["stores"] for row in rows(pages))
    (lost,) = rows(tables["no room for"])
    assert counted + lost["accesses"] == count
    assert counted <= 1 << 16


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_values_are_what_is_stored(bench: Any, shipped: Any, target: str) -> None:
    a, b = np.random.default_rng(1).random((2, 1000)).astype(np.float32)
    kernel = bench(ADD, "vector_add", target, a, b, np.zeros_like(a), 1000, grid=4, block=256)
    tool = shipped("value_log", at="global_store_*", values="vdata+exec")
    patched = patch_object(kernel.object, tool.instrument, strict=True)
    module, _ = kernel.launch(patched.data)
    records = module.channel("values").records()
    stored = records[records["value"] == 0]
    items = stored["workgroup"].astype(int) * 256 + stored["item"]
    values = np.zeros(1000, np.float32)
    values[items] = np.ascontiguousarray(stored["bits"]).view(np.float32)
    assert sorted(items.tolist()) == list(range(1000))
    assert np.array_equal(values, a + b)
    masks = records[records["value"] == 1]
    assert (masks["lane"] == 255).all()
    assert sum(bin(bits).count("1") for bits in masks["bits"].tolist()) == 1000
    logged, channels = reported(tool, module, patched)
    assert [row["values"] for row in rows(logged)] == [2]
    assert rows(channels)[0]["records"] == len(records)


def run_edited(kernel: Bench, tool: Any) -> np.ndarray:
    patched = patch_object(kernel.object, tool.instrument, strict=True)
    _, buffers = kernel.launch(patched.data)
    return np.frombuffer(buffers[2], np.float32)


@pytest.mark.parametrize("target", TARGETS)
def test_an_addition_becomes_a_subtraction(bench: Any, shipped: Any, target: str) -> None:
    a, b = np.random.default_rng(1).random((2, 1000)).astype(np.float32)
    kernel = bench(ADD, "vector_add", target, a, b, np.zeros_like(a), 1000, grid=4, block=256)
    tool = shipped("instruction_replace", find="v_add_f32_e32", put="v_sub_f32_e32")
    assert np.array_equal(abs(run_edited(kernel, tool)), abs(a - b))
    assert len(tool.replaced) == 1
    assert tool.refused == []


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_the_sign_of_a_result_is_flipped(bench: Any, shipped: Any, target: str) -> None:
    a, b = np.random.default_rng(1).random((2, 1000)).astype(np.float32)
    kernel = bench(ADD, "vector_add", target, a, b, np.zeros_like(a), 1000, grid=4, block=256)
    tool = shipped("register_write", at="v_add_f32*", flip=0x80000000)
    assert np.array_equal(run_edited(kernel, tool), -(a + b))
    tool = shipped("register_write", at="v_add_f32*", keep=0, set=0x3F800000)
    assert np.array_equal(run_edited(kernel, tool), np.ones(1000, np.float32))
    assert len(tool.written) == 1


def test_what_cannot_be_written_is_told(bench: Any, shipped: Any) -> None:
    kernel = bench(ADD, "vector_add", "gfx90a", grid=4, block=256)
    tool = shipped("register_write", at="v_add_f32*", register="v[0:1]")
    device = open_device("emu:gfx90a")
    patched = patch_object(kernel.object, tool.instrument)
    (_, refused) = reported(tool, device.load(patched.data), patched)
    assert "not a 32-bit register" in rows(refused)[0]["reason"]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("value_log", {}),
        ("register_write", {}),
        ("instruction_replace", {}),
        ("address_heatmap", {"page": 100}),
        ("address_heatmap", {"spaces": "lds"}),
    ],
    ids=str,
)
def test_options_that_there_are_not(shipped: Any, name: str, options: Any) -> None:
    with pytest.raises(ToolError, match="option"):
        shipped(name, **options)
