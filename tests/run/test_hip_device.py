"""`luthier.open_device("hip:0")`, with the real HIP runtime on the virtual device."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import luthier
import pytest
from luthier.errors import DeviceError

from luthier_build.toolchain import Toolchain

from .conftest import Outcome

FOLDER = Path(__file__).parent


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx1030"])
def test_everything_a_hip_device_does(luthier_run: Callable[..., Outcome], target: str, tmp_path: Path) -> None:
    pytest.importorskip("hip", reason="hip-python is not installed (extra hip)")
    toolchain, built = Toolchain.find(), tmp_path / "device_side.hsaco"
    flags = ["--offload-device-only", "--no-gpu-bundle-output", "-O2", "-w", "-mcode-object-version=4"]
    source = FOLDER / "programs" / "device_side.hip"
    command = [toolchain.clang, *toolchain.device_flags(target), *flags, source, "-o", built]
    subprocess.run([str(part) for part in command], check=True)
    outcome = luthier_run(f"emu:{target}", sys.executable, FOLDER / "hip_device.py", built, target)
    assert (outcome.code, outcome.out) == (0, "right\n"), outcome.err


def test_a_machine_without_the_device() -> None:
    with pytest.raises(DeviceError, match="hip:0"):
        luthier.open_device("hip:0")
