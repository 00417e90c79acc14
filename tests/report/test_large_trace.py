"""The example of a large trace, at a small size: several processes give the answer that NumPy gives."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from luthier.run.folder import RunFolder

EXAMPLE = Path(__file__).parents[2] / "examples/large_trace"


@pytest.mark.thorough  # a cluster of processes for the example of one document
def test_workers_and_numpy_agree(tmp_path: Path) -> None:
    run = tmp_path / "run"
    made = subprocess.run(
        [sys.executable, EXAMPLE / "make_trace.py", run, "1000"], capture_output=True, text=True, check=True
    )
    records = int(made.stdout.split()[0])
    folder = RunFolder(run)
    with folder.table("trace-accesses") as reader:
        addresses = np.concatenate([batch.column("address").to_numpy() for batch in reader.batches(["address"])])
    assert len(addresses) == records == folder.summary.tables["trace-accesses"]
    _, touched = np.unique(addresses // 64, return_counts=True)
    asked = subprocess.run(
        [sys.executable, EXAMPLE / "on_workers.py", run, "2", "500MB"], capture_output=True, text=True, check=True
    )
    expected = [f"{many} lines were touched {times} times" for times, many in sorted(Counter(touched.tolist()).items())]
    assert asked.stdout.splitlines() == expected
