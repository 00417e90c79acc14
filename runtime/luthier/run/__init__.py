"""`luthier run`: unmodified programs under the real ROCm, on a virtual device or on the machine's GPUs.

The program's own `libamdhip64` and `libhsa-runtime64` run on Luthier's shim of the kernel driver (its sources are in
``runtime/native/kfd_shim`` and ``runtime/native/virtual_device``), which executes kernels in the program's process.
What it needs to know of a kernel comes from a service in the process of `luthier run`:

| module | does |
| --- | --- |
| `virtual_gpus` | virtual devices: what programs see of them |
| `machine_gpus` | GPUs of the machine |
| `device_choice` | those of a run: asked for, or the program's code |
| `space`, `shared_memory` | memory that service and programs share: machine code, records, plans; rings and counts |
| `planner` | a kernel in a program's memory -> how to start it (`layout.PLAN`), and its bound records |
| `faults` | the state in which a kernel stopped -> words |
| `connections`, `protocol`, `service` | connections; requests and their handlers; answers to the virtual device |
| `instrumentation`, `patching`, `sessions`, `selection` | tools at work on the program's processes |
| `tables`, `schema`, `record`, `folder` | run directories: written, read |
| `topology` | where programs meet the device: the kernel driver's files |
| `preflight`, `rocr` | what would make a run fail, said before |
| `program` | starting the program, its environment, its end |
"""

from __future__ import annotations

from luthier.run.device_choice import Devices as Devices
from luthier.run.device_choice import devices_for as devices_for
from luthier.run.device_choice import virtual_devices_for as virtual_devices_for
from luthier.run.machine_gpus import MachineGpus as MachineGpus
from luthier.run.program import Later as Later
from luthier.run.program import Unfinished as Unfinished
from luthier.run.program import run_program as run_program
from luthier.run.virtual_gpus import VirtualGpu as VirtualGpu
from luthier.run.virtual_gpus import parse_devices as parse_devices

__all__ = [
    "Devices",
    "Later",
    "MachineGpus",
    "Unfinished",
    "VirtualGpu",
    "devices_for",
    "parse_devices",
    "run_program",
    "virtual_devices_for",
]
