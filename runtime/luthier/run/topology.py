"""The files in which the amdgpu kernel driver describes its devices, for ROCm's runtime to read.

They are in a folder of the run; the library that is loaded before all others (``runtime/native/kfd_door``) leads a
program there instead of to ``/sys`` and ``/dev``:

| in the folder | stands for |
| --- | --- |
| ``kfd``, ``dri/renderD128`` … | the devices: empty files, by which opened ones are recognised |
| ``topology`` | ``/sys/devices/virtual/kfd/kfd/topology`` |
| ``amdgpu``, ``modules`` | ``/sys/module/amdgpu``, ``/proc/modules``: that the driver is loaded |
| ``amdgpu.ids`` | ``/usr/share/libdrm/amdgpu.ids``: names of the devices |
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from luthier.run.virtual_gpus import VirtualGpu

FIRST_GPU_ID = 0x4C00
"""Of the driver's numbers of devices, as in driver.h; the host has 0."""
FIRST_MINOR = 128
"""Number of the first render device."""
_DOORBELLS = 2 << 12 | 1 << 3
"""Capabilities: doorbells of 64 bits; sizes of queues are powers of two."""
_FRAME_BUFFER, _SYSTEM = 1, 0
_DATA_CACHE_OF_UNITS = 1 | 8
_PCI_EXPRESS = 2


def write(folder: Path, devices: Sequence[VirtualGpu]) -> None:
    """Write them for the devices of a run."""
    nodes = folder / "topology/nodes"
    count = len(devices) + 1
    _text(folder / "topology/generation_id", "1\n")
    _text(folder / "topology/system_properties", "platform_oem 0\nplatform_id 0\nplatform_rev 0\n")
    for number in range(count):
        node = nodes / str(number)
        device = devices[number - 1] if number else None
        _text(node / "gpu_id", f"{FIRST_GPU_ID + number if device else 0}\n")
        _text(node / "name", "\n")
        _text(node / "properties", gpu(device, number, len(devices)) if device else host(len(devices)))
        bank = f"heap_type {_FRAME_BUFFER if device else _SYSTEM}\nsize_in_bytes {_memory()}\nflags 0\n"
        _text(node / "mem_banks/0/properties", bank + "width 4096\nmem_clk_max 1600\n")
        for place, kib in enumerate((16, 4096) if device else ()):
            _text(node / f"caches/{place}/properties", _cache(place + 1, kib))
        for place, other in enumerate(other for other in range(count) if other != number):
            weight = 40 if number and other else 20
            link = f"type {_PCI_EXPRESS}\nnode_from {number}\nnode_to {other}\nweight {weight}\nflags 1\n"
            _text(node / f"io_links/{place}/properties", link)
        if device:
            _text(folder / f"dri/renderD{FIRST_MINOR + number - 1}", "")
    _text(folder / "kfd", "")
    _text(folder / "amdgpu/initstate", "live\n")
    _text(folder / "amdgpu/version", "1.0\n")
    (folder / "amdgpu/holders").mkdir()
    _text(folder / "modules", "amdgpu 1048576 0 - Live 0x0000000000000000\n")
    _text(folder / "amdgpu.ids", "1.0.0\n" + "".join(_marketing_name(device) for device in devices))


def host(devices: int) -> str:
    """The node of the processors."""
    return f"""\
cpu_cores_count {os.cpu_count() or 1}
simd_count 0
mem_banks_count 1
caches_count 0
io_links_count {devices}
cpu_core_id_base 0
simd_id_base 0
capability 0
max_engine_clk_ccompute 3000
"""


def gpu(device: VirtualGpu, number: int, devices: int) -> str:
    """The node of a device; the same facts as those of the first door (thunk_topology.cpp)."""
    major, minor, stepping, wave, waves, simds, units, lds, device_id, clock, memory = device.numbers
    return f"""\
cpu_cores_count 0
simd_count {units * simds}
mem_banks_count 1
caches_count 2
io_links_count {devices}
p2p_links_count 0
cpu_core_id_base 0
simd_id_base 0
max_waves_per_simd {waves}
lds_size_in_kb {lds >> 10}
gds_size_in_kb 0
num_gws 64
wave_front_size {wave}
array_count 1
simd_arrays_per_engine 1
cu_per_simd_array {units}
simd_per_cu {simds}
max_slots_scratch_cu 32
gfx_target_version {major * 10000 + minor * 100 + stepping}
vendor_id {0x1002}
device_id {device_id}
location_id {number << 8}
domain 0
drm_render_minor {FIRST_MINOR + number - 1}
hive_id 0
num_sdma_engines 2
num_sdma_xgmi_engines 0
num_sdma_queues_per_engine 8
num_cp_queues 24
max_engine_clk_fcompute {clock}
local_mem_size {memory}
fw_version 0
capability {_DOORBELLS}
debug_prop 0
sdma_fw_version 0
unique_id {0x4C75746869657200 + number}
num_xcc 1
max_engine_clk_ccompute 3000
"""


def _marketing_name(device: VirtualGpu) -> str:
    return f"{device.numbers[8]:X},\t0,\tLuthier virtual {device.target.target.name}\n"


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cache(level: int, kib: int) -> str:
    return f"""\
processor_id_low 0
level {level}
size {kib}
cache_line_size 64
cache_lines_per_tag 1
association 16
latency 0
type {_DATA_CACHE_OF_UNITS}
sibling_map 1,
"""


def _text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
