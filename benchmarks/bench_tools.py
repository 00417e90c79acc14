"""Costs of the tools that ship, of patched kernels over the originals: wave-instructions, time, registers, occupancy.

The kernels are those of examples/apps, on the emulated device. `make setup` installs the tools. The tables go into
docs/tools.md, too.
"""

from __future__ import annotations

import re
import tempfile
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from luthier.devices import open_device
from luthier.emulator import EmulatedDevice
from luthier.objects import load_object
from luthier.patch import patch_object
from luthier.tool import find_entry_points, parse_tool
from luthier.verify.launch_plan import LaunchPlan, read_plans
from run import Row

from luthier_build.compile import compile_application

ROOT = Path(__file__).parents[1]
APPS = ROOT / "examples" / "apps"
PAGE = ROOT / "docs" / "tools.md"
MARKS = "<!-- costs: made by make bench -->\n", "<!-- end of costs -->\n"
TIMES = 15
"""Number of launches, of which the fastest counts."""
TARGETS = ("gfx90a", "gfx1201")


def _tools() -> Iterable[tuple[str, str]]:
    """Yield (shown name, command-line form) of each tool, from `[tool.shipped]` of its `pyproject.toml`."""
    for path in sorted((ROOT / "examples" / "tools").glob("*/pyproject.toml")):
        table = tomllib.loads(path.read_text())["tool"]["shipped"]
        if table.get("inserts", True):
            for more, options in table.get("costs", {"": ""}).items():
                yield f"{path.parent.name}{more}", f"{path.parent.name}:{options}"


@dataclass
class Cost:
    """Cost of one tool on one target, over the kernels in which it does something."""

    instructions: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    vgprs: int = 0
    sgprs: int = 0
    occupancy: tuple[int, int] = (0, 0)
    """Waves a SIMD, before and after, of the kernel that loses most."""

    def line(self, shown: str) -> str:
        """Return a row of the page's table."""
        before, after = self.occupancy
        cells = (
            *(shown, str(len(self.instructions)), f"{_mean(self.instructions):.2f}x", f"{max(self.instructions):.1f}x"),
            *(f"{_mean(self.seconds):.1f}x", str(self.vgprs), str(self.sgprs)),
            "same" if before == after else f"{before} → {after}",
        )
        return f"| {' | '.join(cells)} |\n"


def _mean(ratios: list[float]) -> float:
    return float(prod(ratios) ** (1 / len(ratios)))


def _run(device: EmulatedDevice, data: bytes, plan: LaunchPlan) -> tuple[int, float]:
    """Return the number of executed instructions and the CPU seconds of a launch."""
    module = device.load(data)
    for channel in module.channels.values():
        channel.listen(lambda records: None)
    arguments, fastest = plan.materialise(), float("inf")
    for _ in range(TIMES):
        began = time.process_time()
        module.kernel(plan.kernel).launch(*arguments, grid=plan.grid, block=plan.block, dynamic_lds=plan.dynamic_lds)
        fastest = min(fastest, time.process_time() - began)
    return device.stats.instructions, fastest


def measure() -> Iterable[Row]:
    """Yield the rows: geometric means over the kernels in which a tool does something, and what it takes of them."""
    installed, plans = find_entry_points(), read_plans(APPS / "launch.toml")
    tables: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for target in TARGETS:
            device = open_device(f"emu:{target}")
            assert isinstance(device, EmulatedDevice)
            objects = {}
            for name, plan in plans.items():
                path = compile_application(APPS / f"{name}.hip", target, Path(folder) / f"{name}-{target}.hsaco")
                object = load_object(path)
                objects[name] = object, plan, _run(device, object.data, plan)
            for shown, given in _tools():
                if given.partition(":")[0] not in installed:
                    continue
                cost = Cost()
                for object, plan, (before, seconds) in objects.values():
                    patched = patch_object(object, parse_tool(given).instrument, [plan.kernel])
                    report = next((kernel for kernel in patched.report.kernels if kernel.changed), None)
                    if report is None:
                        continue
                    after, took = _run(device, patched.data, plan)
                    cost.instructions.append(after / before)
                    cost.seconds.append(took / seconds)
                    cost.vgprs = max(cost.vgprs, report.vgprs[1] - report.vgprs[0])
                    cost.sgprs = max(cost.sgprs, report.sgprs[1] - report.sgprs[0])
                    cost.occupancy = max(cost.occupancy, report.waves_per_simd, key=lambda pair: pair[0] - pair[1])
                tables.setdefault(target, []).append(cost.line(shown))
                what = f"{shown}, {target}, {len(cost.instructions)} kernels"
                worst = f"{what}, worst {max(cost.instructions):.1f}x"
                yield Row(worst, _mean(cost.instructions), "x instructions")
                yield Row(f"{what}, time", _mean(cost.seconds), "x CPU time, emulated")
                yield Row(f"{what}, VGPRs more, at most", cost.vgprs, "")
    _write(tables)


def _write(tables: dict[str, list[str]]) -> None:
    """Put the tables into the page."""
    head = "| tool | kernels | instructions | worst | time | VGPRs more | SGPRs more | waves a SIMD |\n"
    parts = [f"\n{target}:\n\n{head}|{' --- |' * 8}\n{''.join(lines)}" for target, lines in tables.items()]
    begin, end = (re.escape(mark) for mark in MARKS)
    page = PAGE.read_text()
    fresh = re.sub(f"{begin}.*{end}", lambda _: f"{MARKS[0]}{''.join(parts)}\n{MARKS[1]}", page, flags=re.DOTALL)
    PAGE.write_text(fresh)
