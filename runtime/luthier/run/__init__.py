"""`luthier run`: unmodified programs on a virtual device under the real ROCm.

The program's own `libamdhip64` and `libhsa-runtime64` run on Luthier's `libhsakmt.so.1` (its sources are in
``runtime/native/virtual_device``), which executes kernels in the program's process. What it needs to know of a kernel
comes from a service in the process of `luthier run`:

| module | does |
| --- | --- |
| `virtual_gpus` | the devices: what programs are told of them |
| `space`, `shared_memory` | memory that service and programs share: machine code, records, plans; rings and counts |
| `planner` | a kernel in a program's memory -> how to start it (`layout.PLAN`), and its bound records |
| `faults` | the state in which a kernel stopped -> words |
| `protocol`, `service` | messages, connections |
| `instrumentation`, `patching`, `sessions`, `selection` | tools at work on the program's processes |
| `tables`, `schema`, `record`, `folder`, `export` | run directories: written, read, in other formats |
| `door`, `topology` | where programs meet the device: at libhsakmt, or at the kernel driver and its files |
| `program` | starting the program, its environment, its end |
"""

from __future__ import annotations

from luthier.run.program import Later as Later
from luthier.run.program import run_program as run_program
from luthier.run.virtual_gpus import VirtualGpu as VirtualGpu
from luthier.run.virtual_gpus import parse_devices as parse_devices

__all__ = ["Later", "VirtualGpu", "parse_devices", "run_program"]
