"""A file that several commands are tried on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SOURCE = """
#define KERNEL extern "C" __attribute__((global, visibility("protected")))
__attribute__((device, noinline)) int twice(int *p, int n) { while (n--) p[n] *= 2; return p[n]; }
KERNEL void loop(int *p, int n) { for (int i = 0; i < n; ++i) p[i] = p[i + 1] / (i + 3); }
KERNEL void caller(int *p, int n) { p[0] = twice(p + 1, n); }
"""


@pytest.fixture(scope="session")
def fat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An offload bundle for two processors."""
    path = tmp_path_factory.mktemp("disasm") / "code.hipfb"
    source = path.with_suffix(".hip")
    source.write_text(SOURCE)
    command = [
        "clang-22",
        "-x",
        "hip",
        "--offload-device-only",
        "--offload-arch=gfx942",
        "--offload-arch=gfx1100",
        "-O1",
    ]
    command += ["-nogpuinc", "-nogpulib", str(source), "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path
