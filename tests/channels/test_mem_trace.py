"""The memory tracer of examples, against what the emulated device itself sees of the original kernel."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accesses import take_accesses
from luthier.devices import open_device
from luthier.emulator import EmulatedDevice
from luthier.emulator.inspection.debug import WaveStep
from luthier.errors import ToolError
from luthier.module import ToolModule
from luthier.module.tool_module import loaded_by
from luthier.objects import load_object
from luthier.patch import patch_object
from luthier.tool import Tool
from luthier.verify.launch_plan import LaunchPlan, read_plans

from .conftest import TARGETS

pytestmark = pytest.mark.rows()

ROOT = Path(__file__).parents[2]
PLANS = read_plans(ROOT / "examples" / "apps" / "launch.toml")
APPS = ("vector_add", "reduction", "divergent_loop", "function_call")
Rows = list[tuple[int, int, int, int, int]]


@pytest.fixture
def tracer(make_module: Callable[..., ToolModule], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Tool]]:
    """``tracer(**options)``: the tool of examples/tools/mem_trace with a module compiled by the tests."""
    source = (ROOT / "examples/tools/mem_trace/luthier_mem_trace/device.hip").read_text()
    body = "\n".join(line for line in source.splitlines() if "hip_runtime" not in line and "MARK_" not in line)
    made = make_module(body, *TARGETS)
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "tools" / "mem_trace"))
    with loaded_by(lambda package, name: made):
        module = importlib.import_module("luthier_mem_trace")
    yield module.MemTrace
    sys.modules.pop("luthier_mem_trace", None)


def accesses(tool: Any, module: Any) -> Any:
    """Return the tool's accesses from the records."""
    channel = module.channel("accesses")
    return tool.unpacked(channel, channel.records())


class Arguments:
    """A plan's, with arrays at places of a device that stay."""

    def __init__(self, device: EmulatedDevice, plan: LaunchPlan) -> None:
        self.values = plan.materialise()
        self.placed: list[Any] = [
            device.allocate(one.nbytes) if isinstance(one, np.ndarray) else one for one in self.values
        ]

    def fresh(self) -> list[Any]:
        """Arrays have their first contents again."""
        for value, placed in zip(self.values, self.placed, strict=True):
            if isinstance(value, np.ndarray):
                placed.write(value)
        return self.placed


def observed(device: EmulatedDevice, object: Any, plan: LaunchPlan, arguments: Arguments) -> Rows:
    """Accesses outside LDS and scratch, as the device sees them: pc, address, size, lane, work-group."""
    rows: Rows = []
    before: list[WaveStep] = []

    def trace(step: WaveStep) -> None:
        for access in take_accesses(step.worker):
            if before and any(before[0].text.startswith(f"{space}_") for space in ("global", "flat", "buffer")):
                pc, group = before[0].address, before[0].workgroup
                pairs = zip(access.places.tolist(), access.lanes.tolist(), strict=True)
                rows.extend((pc, host, access.size, lane, group) for host, lane in pairs)
        before[:] = [step]

    kernel = device.load(object.data).kernel(plan.kernel)
    kernel.launch(*arguments.fresh(), grid=plan.grid, block=plan.block, dynamic_lds=plan.dynamic_lds, trace=trace)
    return sorted(rows)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", APPS)
def test_as_the_device_sees_them(app: Any, tracer: Callable[..., Any], name: str, target: str) -> None:
    object, plan = load_object(app(name, target)), PLANS[name]
    device = open_device(f"emu:{target}")
    assert isinstance(device, EmulatedDevice)
    arguments = Arguments(device, plan)
    expected = observed(device, object, plan, arguments)
    tool = tracer()
    module = device.load(patch_object(object, tool.instrument, [plan.kernel], strict=True).data)
    arguments.fresh()
    module.kernel(plan.kernel).launch(*arguments.placed, grid=plan.grid, block=plan.block, dynamic_lds=plan.dynamic_lds)
    records = accesses(tool, module)
    seen = sorted(zip(*(records[one].tolist() for one in ("pc", "address", "size", "lane", "workgroup")), strict=True))
    assert seen == expected
    assert expected
    assert (records["kernel"] == 0).all()
    assert tool.kernels == [(plan.kernel, len({row[0] for row in expected}), 0)]
    kinds = dict(zip(records["pc"].tolist(), records["kind"].tolist(), strict=True))
    text = {one.address: one.text for one in module_instructions(object, plan.kernel)}
    assert all(("load", "store", "atomic")[kind] in text[pc] for pc, kind in kinds.items())


def module_instructions(object: Any, kernel: str) -> Any:
    """Return the instructions of a kernel."""
    from luthier import InstrumentationTask, lift

    return InstrumentationTask(lift(object, kernel)).instructions


@pytest.mark.rows(3)
@pytest.mark.parametrize(
    ("options", "spaces", "kinds"),
    [
        ({"spaces": "lds"}, {4}, {0, 1}),
        ({"spaces": "lds", "kinds": "store"}, {4}, {1}),
        ({"spaces": "scalar"}, {5}, {0}),
        ({"spaces": "global+lds+scalar", "kinds": "load"}, {0, 4, 5}, {0}),
    ],
    ids=str,
)
def test_options(app: Any, tracer: Callable[..., Any], options: Any, spaces: set[int], kinds: set[int]) -> None:
    object, plan = load_object(app("reduction", "gfx90a")), PLANS["reduction"]
    tool = tracer(**options)
    device = open_device("emu:gfx90a")
    module = device.load(patch_object(object, tool.instrument, [plan.kernel], strict=True).data)
    module.kernel(plan.kernel).launch(*plan.materialise(), grid=plan.grid, block=plan.block)
    records = accesses(tool, module)
    assert set(records["space"].tolist()) == spaces
    assert set(records["kind"].tolist()) == kinds
    assert (records["lane"][records["space"] == 5] == 255).all()
    lds = records["address"][records["space"] == 4]
    assert not len(lds) or lds.max() < object.kernels[plan.kernel].group_segment_fixed_size


@pytest.mark.parametrize("options", [{"spaces": "everywhere"}, {"kinds": ""}], ids=str)
def test_options_that_there_are_not(tracer: Callable[..., Any], options: Any) -> None:
    with pytest.raises(ToolError, match="must be some of"):
        tracer(**options)
