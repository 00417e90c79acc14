"""The files with which the amdgpu kernel driver describes its devices to ROCm's runtime.

They are in a folder of the run. A preloaded library (``runtime/native/kfd_shim``) redirects a program from ``/sys`` and
``/dev`` to this folder, as declared in `luthier.wire.topology.PLACES`. Devices are empty files, which identify opened
devices.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from luthier.emulator.running.memory import host_memory
from luthier.run.virtual_gpus import VirtualGpu
from luthier.wire import topology as facts

_FRAME_BUFFER, _SYSTEM = 1, 0
_DATA_CACHE_OF_UNITS = 1 | 8
_PCI_EXPRESS = 2
_LINK_MB_PER_SECOND = 31500
"""Bandwidth of a PCI Express 4.0 link with 16 lanes, by which programs choose their paths."""

_DEBUGGER_FIRMWARE, _WAVES_STOP, _DISPATCH_INFO = 1 << 29, 1 << 15 | 1 << 16 | 1 << 17, 1 << 10
"""Capabilities of devices for debuggers: their firmware lets debuggers attach; their waves stop at traps, and when they
are launched. A property for debuggers: trap temporaries always name the dispatch. Source: Linux,
include/uapi/linux/kfd_sysfs.h."""
DEBUGGED = ("gfx90a", "gfx942")
"""Processors whose waves ROCm's debugger sees: those of `SaveFormat` in runtime/native/virtual_device/save_area.h."""


def write(folder: Path, devices: Sequence[VirtualGpu], *, debugger: bool = False) -> None:
    """Write the files for the devices of a run.

    Args:
        debugger: whether ROCm's debugger may attach to programs.
    """
    folders: set[str] = set()
    for name, text in _files(devices, debugger):
        path = f"{folder}/{name}"
        parent = path.rpartition("/")[0]
        if parent not in folders:
            os.makedirs(parent, exist_ok=True)
            folders.add(parent)
        with open(path, "w") as file:
            file.write(text)
    for name in (f"{facts.MODULE}/holders", facts.METADATA):
        os.mkdir(f"{folder}/{name}")


def _files(devices: Sequence[VirtualGpu], debugger: bool) -> Iterator[tuple[str, str]]:
    """Yield path in the folder and contents of each file."""
    count = len(devices) + 1
    yield f"{facts.NODES}/generation_id", "1\n"
    yield f"{facts.NODES}/system_properties", "platform_oem 0\nplatform_id 0\nplatform_rev 0\n"
    for number in range(count):
        node = f"{facts.NODES}/nodes/{number}"
        device = devices[number - 1] if number else None
        yield f"{node}/gpu_id", f"{facts.FIRST_GPU_ID + number if device else 0}\n"
        yield f"{node}/name", "\n"
        yield f"{node}/properties", (gpu(device, number, len(devices), debugger) if device else host(len(devices)))
        bank = f"heap_type {_FRAME_BUFFER if device else _SYSTEM}\nsize_in_bytes {host_memory()}\nflags 0\n"
        bank += f"width {facts.MEMORY_WIDTH}\nmem_clk_max {facts.MEMORY_CLOCK_MHZ}\n"
        yield f"{node}/mem_banks/0/properties", bank
        for place, kib in enumerate(facts.CACHE_KIB if device else ()):
            yield f"{node}/caches/{place}/properties", _cache(place + 1, kib)
        for place, other in enumerate(other for other in range(count) if other != number):
            weight = facts.LINK_BETWEEN_DEVICES if number and other else facts.LINK_TO_HOST
            yield f"{node}/io_links/{place}/properties", _link(number, other, weight)
        if device:
            minor = facts.FIRST_MINOR + number - 1
            yield f"{facts.RENDER}/renderD{minor}", ""
            drm = f"{facts.CHARACTER_DEVICES}{minor}/device/drm"
            yield f"{drm}/card{number - 1}/dev", f"{facts.DRM_MAJOR}:{number - 1}\n"
            yield f"{drm}/renderD{minor}/dev", f"{facts.DRM_MAJOR}:{minor}\n"
    yield facts.DEVICE, ""
    yield f"{facts.MODULE}/initstate", "live\n"
    yield f"{facts.MODULE}/version", "1.0\n"
    yield facts.MODULES, "amdgpu 1048576 0 - Live 0x0000000000000000\n"
    yield facts.NAMES, "1.0.0\n" + "".join(_marketing_name(device) for device in devices)


def host(devices: int) -> str:
    """Return the node of the processors."""
    return f"""\
cpu_cores_count {os.cpu_count() or 1}
simd_count 0
mem_banks_count 1
caches_count 0
io_links_count {devices}
cpu_core_id_base 0
simd_id_base 0
capability 0
max_engine_clk_ccompute {facts.HOST_CLOCK_MHZ}
"""


def gpu(device: VirtualGpu, number: int, devices: int, debugger: bool = False) -> str:
    """Return the node of a device."""
    shown = device.facts
    for_debuggers = _DEBUGGER_FIRMWARE | _WAVES_STOP if debugger else 0
    version = shown.engine_major * 10000 + shown.engine_minor * 100 + shown.engine_stepping
    return f"""\
cpu_cores_count 0
simd_count {shown.units * shown.simds_per_unit}
mem_banks_count 1
caches_count {len(facts.CACHE_KIB)}
io_links_count {devices}
p2p_links_count 0
cpu_core_id_base 0
simd_id_base 0
max_waves_per_simd {shown.waves_per_simd}
lds_size_in_kb {shown.lds_bytes >> 10}
gds_size_in_kb 0
num_gws {facts.GLOBAL_WAVE_SYNC}
wave_front_size {shown.wave_size}
array_count 1
simd_arrays_per_engine 1
cu_per_simd_array {shown.units}
simd_per_cu {shown.simds_per_unit}
max_slots_scratch_cu {facts.SCRATCH_SLOTS}
gfx_target_version {version}
vendor_id {facts.VENDOR_ID}
device_id {shown.device_id}
location_id {number << 8}
domain 0
drm_render_minor {facts.FIRST_MINOR + number - 1}
hive_id 0
num_sdma_engines {facts.COPY_ENGINES}
num_sdma_xgmi_engines 0
num_sdma_queues_per_engine {facts.QUEUES_OF_COPY_ENGINE}
num_cp_queues {facts.COMPUTE_QUEUES}
max_engine_clk_fcompute {shown.clock_mhz}
local_mem_size {shown.memory_bytes}
fw_version 0
capability {facts.CAPABILITIES | for_debuggers}
debug_prop {_DISPATCH_INFO if debugger else 0}
sdma_fw_version 0
unique_id {facts.UNIQUE_ID + number}
num_xcc 1
max_engine_clk_ccompute {facts.HOST_CLOCK_MHZ}
"""


def _link(begin: int, end: int, weight: int) -> str:
    return f"""\
type {_PCI_EXPRESS}
version_major 0
version_minor 0
node_from {begin}
node_to {end}
weight {weight}
min_latency 0
max_latency 0
min_bandwidth {_LINK_MB_PER_SECOND}
max_bandwidth {_LINK_MB_PER_SECOND}
recommended_transfer_size 0
flags 1
"""


def _marketing_name(device: VirtualGpu) -> str:
    return f"{device.facts.device_id:X},\t0,\tLuthier virtual {device.target.target.name}\n"


def _cache(level: int, kib: int) -> str:
    return f"""\
processor_id_low 0
level {level}
size {kib}
cache_line_size {facts.CACHE_LINE}
cache_lines_per_tag 1
association 16
latency 0
type {_DATA_CACHE_OF_UNITS}
sibling_map 1,
"""
