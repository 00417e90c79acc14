"""Facts of a virtual device that the shim of the kernel driver reports, in replies and in files that the service
writes."""

from __future__ import annotations

FILES_VARIABLE = "LUTHIER_RUN_KFD"
"""Environment variable with the folder of the kernel driver shim's files."""
COMPILATIONS_VARIABLE = "LUTHIER_RUN_COMPILATIONS"
"""Environment variable with the folder of kept compilations of ROCm's runtimes."""
DEVICE, RENDER, NODES, MODULE, MODULES, NAMES = "kfd", "dri", "topology", "amdgpu", "modules", "amdgpu.ids"
CHARACTER_DEVICES = "char/"
"""The driver's files in the folder of a run."""
METADATA = "metadata"
"""Folder with metadata of exported memory, for processes that import it."""
DRM_MAJOR = 226
"""Major number of render devices, by which libdrm finds them in sysfs."""
PLACES = {
    "/dev/kfd": DEVICE,
    "/dev/dri": RENDER,
    "/sys/devices/virtual/kfd/kfd/topology": NODES,
    "/sys/class/kfd/kfd/topology": NODES,
    "/sys/module/amdgpu": MODULE,
    "/proc/modules": MODULES,
    f"/sys/dev/char/{DRM_MAJOR}:": CHARACTER_DEVICES,
    "/usr/share/libdrm/amdgpu.ids": NAMES,
}
"""Path -> replacement in the folder; longer paths continue below it, or after its colon."""
FIRST_GPU_ID = 0x4C00
"""First of the driver's device numbers; the host has 0."""
FIRST_MINOR = 128
"""Number of the first render device."""
MOST_DEVICES = 32
UNIQUE_ID = 0x4C75746869657200
"""Unique ID of node 0."""
VENDOR_ID = 0x1002
HOST_CLOCK_MHZ = 3000
COMPUTE_UNITS = 8
"""Few, since programs size their grids by them."""
CAPABILITIES = 2 << 12 | 1 << 3 | 1 << 27
"""64-bit doorbells; queue sizes are powers of two; shared virtual memory. Not: firmware for debuggers."""
SCRATCH_SLOTS = 32
"""Waves of a compute unit with scratch."""
GLOBAL_WAVE_SYNC = 64
"""Grid-wide barriers."""
COPY_ENGINES, QUEUES_OF_COPY_ENGINE, COMPUTE_QUEUES = 2, 8, 24
MEMORY_WIDTH, MEMORY_CLOCK_MHZ = 4096, 1600
CACHE_KIB = (16, 4096)
"""Cache sizes of a node, first level first."""
CACHE_LINE = 64
LINK_TO_HOST, LINK_BETWEEN_DEVICES = 20, 40
"""Weights of links."""
