"""Projected times of launches on GPUs: what they executed, a machine's numbers, and a model (docs/projection.md).

`measure` or `measure_capture` runs a launch, or some of its work-groups, on the emulated device and returns its
`LaunchWork`; `project` returns the `Projection` on a `MachineModel`:

    machine = machine_named("mi250x")
    kernel = luthier.open_device("emu:gfx90a").load("vcopy.hsaco").kernel("vcopy")
    work = measure(kernel, a, b, machine=machine, grid=4096, block=256, most_groups=16)
    project(work, kernel.lift(), machine).time_us
"""

from __future__ import annotations

from luthier.projection.machine import MachineModel as MachineModel
from luthier.projection.machine import Quantity as Quantity
from luthier.projection.machine import machine_named as machine_named
from luthier.projection.machine import machine_names as machine_names
from luthier.projection.machine import read_machine as read_machine
from luthier.projection.model import Projection as Projection
from luthier.projection.model import project as project
from luthier.projection.model import project_on_each as project_on_each
from luthier.projection.work import LaunchWork as LaunchWork
from luthier.projection.work import measure as measure
from luthier.projection.work import measure_capture as measure_capture
from luthier.projection.work import measure_launch as measure_launch
