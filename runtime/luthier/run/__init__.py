"""`luthier run`: unmodified programs under the real ROCm, on a virtual device or on the machine's GPUs.

The program's own `libamdhip64` and `libhsa-runtime64` run on Luthier's shim of the kernel driver
(``runtime/native/kfd_shim`` and ``runtime/native/virtual_device``), which executes kernels in the program's process. A
service in the process of `luthier run` provides what it needs to know about kernels:

| module | does |
| --- | --- |
| `virtual_gpus` | virtual devices, as programs see them |
| `machine_gpus` | GPUs of the machine |
| `device_choice` | devices of a run, from the options or the program's code |
| `space`, `shared_memory` | memory shared by service and programs: machine code, records, plans; rings and counts |
| `planner` | kernel in a program's memory -> how to start it (`layout.PLAN`), and its bound records |
| `faults` | state in which a kernel stopped -> text |
| `connections`, `protocol`, `service` | connections; requests and handlers; replies to the virtual device |
| `instrumentation`, `patching`, `sessions`, `selection` | tools in the program's processes |
| `tables`, `schema`, `record`, `folder` | run folders: writing and reading |
| `topology` | files of the kernel driver, which describe the devices |
| `preflight`, `rocr` | problems reported before the program starts |
| `program` | start, environment and end of the program |
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
