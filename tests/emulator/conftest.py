"""Device and host builds of the test kernels."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from compiling import compiled

from luthier_build.toolchain import Toolchain

KERNELS = Path(__file__).parent / "kernels"


@pytest.fixture(scope="session")
def build_kernels() -> Callable[..., Path]:
    """``build_kernels(name, target, *flags)``: compile ``kernels/<name>.hip`` (at -O2)."""
    toolchain = Toolchain.find()

    @functools.cache
    def build(name: str, target: str, *flags: str) -> Path:
        command = [
            *(toolchain.clang, *toolchain.device_flags(target), "-O2", *flags),
            *("--offload-device-only", "--no-gpu-bundle-output", "-ffp-contract=off"),
            KERNELS / f"{name}.hip",
        ]
        return compiled(command, KERNELS.glob("*"), f"{name}-{target}.hsaco")

    return build


@pytest.fixture(scope="session")
def host_kernels() -> ctypes.CDLL:
    """``kernels/plain.hip`` as a host library."""
    command = [Toolchain.find().clang, "-x", "c++", "-O1", "-ffp-contract=off", "-fwrapv", "-fPIC", "-shared"]
    return ctypes.CDLL(str(compiled([*command, KERNELS / "plain.hip"], KERNELS.glob("*"), "plain.so")))
