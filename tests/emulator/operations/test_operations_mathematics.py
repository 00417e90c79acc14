"""The device library's functions, long chains of operations, against the host's to a few units in the last place."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from luthier.devices import open_device

from luthier_build.toolchain import Toolchain

SOURCE = Path(__file__).parents[1] / "kernels" / "mathematics.hip"
ITEMS, WIDTH = 512, 40
ULPS = 4
"""What the device library promises of these functions, and a little less than any wrong digit makes."""


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    folder = tmp_path_factory.mktemp("host")
    unit, output = folder / "unit.cpp", folder / "mathematics.so"
    unit.write_text(
        f'extern "C" thread_local unsigned current_item = 0;\n#include "{SOURCE}"\n'
        'extern "C" void set_item(unsigned i) { current_item = i; }\n'
    )
    command = [Toolchain.find().clang, "-x", "c++", "-std=c++17", "-fPIC", "-shared", unit, "-lm", "-o", output]
    subprocess.run([str(part) for part in command], check=True)
    return ctypes.CDLL(str(output))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1100"])
def test_functions(host, tmp_path, target):
    toolchain = Toolchain.find()
    output = tmp_path / "mathematics.hsaco"
    command = [
        *(toolchain.clang, *toolchain.device_flags(target), "-O2", "-std=c++17"),
        *("--offload-device-only", "--no-gpu-bundle-output", SOURCE, "-o", output),
    ]
    subprocess.run([str(part) for part in command], check=True)
    module = open_device(f"emu:{target}").load(output)
    random = np.random.default_rng(0)
    for name, kind in (("single_precision", np.float32), ("double_precision", np.float64)):
        a = random.uniform(-20, 20, ITEMS).astype(kind)
        b = random.uniform(-8, 8, ITEMS).astype(kind)
        a[:4] = 0.5, 1, 2, -0.0
        got = np.zeros((ITEMS, WIDTH), kind)
        wanted = np.zeros_like(got)
        module.kernel(name).launch(a, b, got, grid=(ITEMS // 64, 1, 1), block=(64, 1, 1))
        for item in range(ITEMS):
            host.set_item(item)
            getattr(host, name)(*(ctypes.c_void_p(array.ctypes.data) for array in (a, b, wanted)))
        with np.errstate(all="ignore"):
            error = np.abs(got.astype(np.longdouble) - wanted) / np.spacing(np.abs(wanted))
        error[(got == wanted) | (np.isnan(got) & np.isnan(wanted))] = 0
        worst = np.argwhere(~(error <= ULPS))
        assert not worst.size, [
            (column, a[row], b[row], got[row, column], wanted[row, column]) for row, column in worst[:5]
        ]
