"""Make a run directory with a trace of `mem_trace` of any size: `make_trace.py FOLDER [BYTES]` (1,000,000,000).

The records are made up, their file is written as `luthier run -t mem_trace -o FOLDER` writes it. Addresses are random,
so that they compress no better than those of a program without any order.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from luthier.run.folder import Claim
from luthier.run.schema import TABLES
from luthier.run.tables import SCHEMA, Column, Schema, TableWriter

ACCESS = np.dtype(
    [
        *(("address", "<u8"), ("pc", "<u8"), ("workgroup", "<u4"), ("kernel", "<u2"), ("size", "<u2")),
        *(("lane", "u1"), ("kind", "u1"), ("space", "u1")),
    ]
)
"""A record of examples/tools/mem_trace."""
BATCH = 1 << 20


def make(folder: Path, size: int) -> int:
    """Write the run directory with a trace of at least `size` bytes on disk, and return the number of records."""
    with Claim(folder) as claim:
        return _make(claim, size)


def _make(claim: Claim, size: int) -> int:
    folder = claim.folder
    choose = np.random.default_rng(1)
    columns = Schema.of_dtype("", "", ACCESS, dict.fromkeys(ACCESS.names or (), "of the tool's record")).columns
    own = Column("process", "int64", "process"), Column("device", "int64", "number of the device")
    trace = Schema("trace-accesses", "records that hooks pushed to the channel accesses", (*own, *columns))
    rows = dict.fromkeys([table.name for table in TABLES], 0)
    for table in TABLES:
        TableWriter(folder, table).close()
    with TableWriter(folder, trace) as writer:
        partial = next(folder.glob("trace-accesses*"))
        batch = np.zeros(BATCH, ACCESS)
        while partial.stat().st_size < size:
            batch["address"] = 0x7F0000000000 + 4 * choose.integers(0, 1 << 29, BATCH)
            batch["pc"] = 0x1900 + 8 * np.repeat(choose.integers(0, 40, BATCH // 64), 64)
            batch["workgroup"] = np.repeat(choose.integers(0, 4096, BATCH // 64), 64)
            batch["kernel"] = batch["pc"] // 8 % 3
            batch["size"] = 4 << (batch["pc"] // 8 % 3)
            batch["lane"] = np.arange(BATCH) % 64
            batch["kind"] = batch["pc"] // 8 % 2
            writer.append(batch, process=1, device=0)
        rows[trace.name] = writer.rows
    summary = {"schema": SCHEMA, "luthier": "0", "command": ["made up"], "exit_code": 0, "tools": [], "processes": []}
    claim.finish(json.dumps({**summary, "faults": [], "devices": [], "tables": rows}))
    return rows[trace.name]


if __name__ == "__main__":
    print(make(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000_000), "records")
