"""The published records themselves, where `LUTHIER_HARDWARE_RECORDS` has checkouts of them (docs/hardware.md)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[2] / "benchmarks/hardware"
RECORDS = Path(os.environ.get("LUTHIER_HARDWARE_RECORDS", "/nowhere"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "checkout", "sums"),
    [
        ("counters.py", "rocm-systems", ["7658", "7608"]),
        ("thread_traces.py", "tinygrad", ["80", "80", "5956", "92", "6184", "6184", "56", "56"]),
    ],
)
def test_records_agree(program: str, checkout: str, sums: list[str]) -> None:
    if not (RECORDS / checkout).is_dir():
        pytest.skip(f"LUTHIER_HARDWARE_RECORDS has no checkout {checkout}")
    done = subprocess.run(
        [sys.executable, PROGRAMS / program, RECORDS / checkout], capture_output=True, text=True, check=True
    )
    (row,) = (line.split() for line in done.stdout.splitlines() if line.split()[:1] == ["all"])
    assert row[-len(sums) :] == sums
