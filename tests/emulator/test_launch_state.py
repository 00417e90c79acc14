"""The initial state of a kernel, for every code object version and way of passing arguments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from luthier.devices import open_device


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx1030", "gfx1100"])
@pytest.mark.parametrize("version", [4, 5, 6])
def test_code_object_versions(target: str, version: int, build_kernels: Callable[..., Path]) -> None:
    """Version 4 reads sizes from the dispatch packet, later ones from hidden arguments."""
    module = open_device(f"emu:{target}").load(build_kernels("groups", target, f"-mcode-object-version={version}"))
    assert module.object.abi == version
    grid, block = (2, 3, 2), (5, 3, 4)
    shape = tuple(count * size for count, size in zip(grid[::-1], block[::-1], strict=True))
    out = np.zeros(shape, np.uint32)
    module.kernel("ids").launch(out, grid=grid, block=block)
    z, y, x = np.indices(shape)
    assert np.array_equal(out, (x | y << 8 | z << 16 | (grid[2] * 16 + block[1]) << 24).astype(np.uint32))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_arguments_preloaded_into_sgprs(target: str, build_kernels: Callable[..., Path]) -> None:
    path = build_kernels("plain", target, "-mllvm", "-amdgpu-kernarg-preload-count=8")
    module = open_device(f"emu:{target}").load(path)
    kernel = module.kernel("vector_add")
    assert kernel.kernel.descriptor.kernarg_preload_length > 0
    a, b = np.arange(300, dtype=np.float32), np.full(300, 0.5, np.float32)
    c = np.zeros(300, np.float32)
    stats = kernel.launch(a, b, c, 300, grid=5, block=64)
    assert np.array_equal(c, a + b)
    # The loads that stand in front for firmware that cannot preload are skipped.
    assert min(stats.by_address.addresses) >= kernel.kernel.entry + 256


def test_raw_argument_bytes(build_kernels: Callable[..., Path]) -> None:
    device = open_device("emu:gfx942")
    kernel = device.load(build_kernels("plain", "gfx942")).kernel("vector_add")
    buffers = [device.allocate(256) for _ in range(3)]
    buffers[0].write(np.arange(64, dtype=np.float32))
    buffers[1].write(np.full(64, 2, np.float32))
    raw = b"".join(buffer.address.to_bytes(8, "little") for buffer in buffers) + (64).to_bytes(4, "little")
    kernel.launch(raw, grid=1, block=64)
    assert np.array_equal(buffers[2].read(np.float32), np.arange(64) + 2)


def test_many_work_groups_need_no_python_each(build_kernels: Callable[..., Path]) -> None:
    kernel = open_device("emu:gfx942").load(build_kernels("groups", "gfx942")).kernel("dynamic_reverse")
    groups = 20_000
    data = np.arange(groups * 64, dtype=np.uint32)
    out = np.zeros_like(data)
    stats = kernel.launch(data, out, grid=groups, block=64, dynamic_lds=256)
    assert np.array_equal(out, data.reshape(groups, 64)[:, ::-1].ravel())
    assert stats.workgroups == groups
    assert stats.seconds < 10  # about 0.05 s on two idle cores
