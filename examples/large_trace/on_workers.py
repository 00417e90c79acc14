"""Count accesses per cache line on several processes: `on_workers.py RUN [WORKERS] [MEMORY]` (4 workers of 500MB).

How often is each cache line touched? There are tens of millions of lines, so a table of all of them, and the addresses
it is made of, may be more than one process has room for. The lines are dealt out by their number, and each task counts
its own: it streams through the addresses in the run directory's Parquet file and keeps one in `PARTS`. So nothing is
shuffled between workers, which takes buffers larger than what is counted here; the price is that each task decompresses
the column. On a cluster, give `Client` the address of its scheduler. Needs dask[dataframe,distributed].
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

LINE = 64
"""Bytes."""
PARTS = 20
"""A part of the accesses of 1 GB is 8 million, 63 MB, and twice that while it is combined."""


def touched(part: int, run: Path) -> pd.Series:
    """Return the number of lines of this part by number of accesses."""
    from luthier.run.folder import RunFolder

    kept = []
    with RunFolder(run).table("trace-accesses") as reader:
        for batch in reader.batches(["address"]):
            lines = batch.column("address").to_numpy() // LINE
            kept.append(lines[lines % PARTS == part])
    lines = np.concatenate([np.empty(0, np.uint64), *kept])
    kept.clear()
    lines.sort()
    ends = np.append(np.flatnonzero(lines[1:] != lines[:-1]) + 1, len(lines))[: len(lines)]
    times, many = np.unique(np.diff(ends, prepend=0), return_counts=True)
    return pd.Series(many, index=times, name="lines")


def reuse(run: Path, workers: int, memory: str) -> tuple[dict[int, int], int]:
    """Return the number of lines by number of accesses, and the largest memory of a worker in bytes."""
    import dask.dataframe as dd
    from dask.distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=memory, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        counts = dd.from_map(touched, range(PARTS), run=run, meta=pd.Series(dtype="int64", name="lines")).compute()
        most = max(client.run(_peak).values())
    return {int(times): int(many) for times, many in counts.groupby(level=0).sum().items()}, most


def _peak() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


if __name__ == "__main__":
    number, limit = (sys.argv[2:] + ["4", "500MB"][len(sys.argv) - 2 :])[:2]
    answer, most = reuse(Path(sys.argv[1]), int(number), limit)
    for times, many in answer.items():
        print(f"{many} lines were touched {times} times")
    print(f"a worker had {most / 1e6:.0f} MB at most", file=sys.stderr)
