"""What the tools that ship cost: wave-instructions of patched kernels over those of the originals, and registers.

The kernels are those of examples/apps, on the emulated device. `make setup` installs the tools.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from math import prod
from pathlib import Path

from luthier.devices import open_device
from luthier.emulator import EmulatedDevice
from luthier.launch_plan import LaunchPlan, read_plans
from luthier.objects import load_object
from luthier.patch import patch_object
from luthier.tool import find_entry_points, parse_tool
from run import Row

from luthier_build.compile import compile_application

APPS = Path(__file__).parents[1] / "examples" / "apps"
TARGETS = ("gfx90a", "gfx1201")
TOOLS = {
    "address_heatmap": "address_heatmap",
    "block_profile": "block_profile",
    "coalescing": "coalescing",
    "divergence": "divergence",
    "divergence, blocks alone": "divergence:histogram=false,branches=false",
    "instr_count": "instr_count",
    "instruction_mix": "instruction_mix",
    "launch_log": "launch_log",
    "lds_bank_conflicts": "lds_bank_conflicts",
    "mem_trace": "mem_trace",
    "opcode_histogram": "opcode_histogram",
    "value_log of stores": "value_log:at=global_store_*",
}
"""As shown, and as given on the command line."""


def _executed(device: EmulatedDevice, data: bytes, plan: LaunchPlan) -> int:
    module = device.load(data)
    for channel in module.channels.values():
        channel.listen(lambda records: None)
    arguments = plan.materialise()
    module.kernel(plan.kernel).launch(*arguments, grid=plan.grid, block=plan.block, dynamic_lds=plan.dynamic_lds)
    return device.stats.instructions


def measure() -> Iterable[Row]:
    """Yield the rows: geometric means over the kernels in which a tool does something, and their VGPRs."""
    installed, plans = find_entry_points(), read_plans(APPS / "launch.toml")
    with tempfile.TemporaryDirectory() as folder:
        for target in TARGETS:
            device = open_device(f"emu:{target}")
            assert isinstance(device, EmulatedDevice)
            objects = {}
            for name, plan in plans.items():
                path = compile_application(APPS / f"{name}.hip", target, Path(folder) / f"{name}-{target}.hsaco")
                objects[name] = load_object(path), plan
            for shown, given in TOOLS.items():
                if given.partition(":")[0] not in installed:
                    continue
                ratios, registers = [], 0
                for object, plan in objects.values():
                    patched = patch_object(object, parse_tool(given).instrument, [plan.kernel])
                    report = next((kernel for kernel in patched.report.kernels if kernel.changed), None)
                    if report is None:
                        continue
                    before = _executed(device, object.data, plan)
                    ratios.append(_executed(device, patched.data, plan) / before)
                    registers = max(registers, report.vgprs[1] - report.vgprs[0])
                mean = prod(ratios) ** (1 / len(ratios))
                yield Row(f"{shown}, {target}, {len(ratios)} kernels, worst {max(ratios):.1f}x", mean, "x instructions")
                yield Row(f"{shown}, {target}, VGPRs more, at most", registers, "")
