"""Device and host builds of the test kernels."""

from __future__ import annotations

import ctypes
import functools
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from luthier_build.toolchain import Toolchain

KERNELS = Path(__file__).parent / "kernels"
CORPUS_TARGETS = ("gfx90a", "gfx942", "gfx1100")


@pytest.fixture(scope="session")
def build_kernels(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``build_kernels(name, target, *flags)``: compile ``kernels/<name>.hip`` (at -O2), once a session."""
    folder = tmp_path_factory.mktemp("kernels")
    toolchain = Toolchain.find()

    @functools.cache
    def build(name: str, target: str, *flags: str) -> Path:
        output = folder / f"{name}-{target}{''.join(flags)}.hsaco".replace("/", "_")
        command = [
            *(toolchain.clang, *toolchain.device_flags(target), "-O2", *flags),
            *("--offload-device-only", "--no-gpu-bundle-output", "-ffp-contract=off"),
            *(KERNELS / f"{name}.hip", "-o", output),
        ]
        subprocess.run([str(part) for part in command], check=True)
        return output

    return build


@pytest.fixture(scope="session")
def host_kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """``kernels/plain.hip`` as a host library."""
    output = tmp_path_factory.mktemp("host") / "plain.so"
    command = [Toolchain.find().clang, "-x", "c++", "-O1", "-ffp-contract=off", "-fwrapv", "-fPIC", "-shared"]
    subprocess.run([str(part) for part in [*command, KERNELS / "plain.hip", "-o", output]], check=True)
    return ctypes.CDLL(str(output))
