"""Random machine code and descriptors, in a separate process, give a result or a `LuthierError`.

The emulator makes native code of what it is given, so one register or address that is not checked is an access to the
user's memory. `make test-all` runs every target, LUTHIER_FUZZ=n each n times as long; LUTHIER_SEED begins elsewhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from effort import EVERYTHING, FUZZ

SECONDS = 2 * FUZZ
SEED = os.environ.get("LUTHIER_SEED", "1")
WAVE64 = ("-mwavefrontsize64", "-U__AMDGCN_WAVEFRONT_SIZE", "-D__AMDGCN_WAVEFRONT_SIZE=64")
TARGETS = ["gfx90a", "gfx1030", "gfx1151", "gfx1200 wave64"]
if EVERYTHING:
    TARGETS += ["gfx906", "gfx908", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1100 wave64"]


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_random_code(target: str, build_kernels: Callable[..., Path], tmp_path: Path) -> None:
    processor, _, wave = target.partition(" ")
    object = build_kernels("room", processor, *(WAVE64 if wave else ()))
    last = tmp_path / "last.hsaco"
    command = [sys.executable, "-X", "faulthandler", Path(__file__).parent / "crash_fuzz.py"]
    # Coverage of the opcodes and compilation come before the first launch and within it.
    done = subprocess.run(
        [str(part) for part in (*command, object, processor, SEED, SECONDS, last)],
        capture_output=True,
        text=True,
        timeout=20 * SECONDS + 120,
    )
    assert done.returncode == 0, f"{done.stderr[-3000:]}\nthe object is {last}"
    assert "'ended'" in done.stdout
    assert "access to" in done.stdout
