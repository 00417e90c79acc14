"""Ask several processes for what one has no room for: `on_workers.py RUN [WORKERS] [MEMORY]` (4 workers of 2GB).

How often is each cache line touched? There are tens of millions of lines, so a table of all of them, and the addresses
it is made of, may be more than one process has room for. Dask reads the run directory's Parquet file as it stands,
deals the lines out to workers by their number, and each counts its own. On a cluster, give
`Client` the address of its scheduler. Needs dask[dataframe,distributed].
"""

from __future__ import annotations

import sys
from pathlib import Path

LINE = 64
"""Bytes."""


def reuse(run: Path, workers: int, memory: str) -> dict[int, int]:
    """Number of accesses of a line -> lines that have so many."""
    import dask
    import dask.dataframe as dd
    import pandas as pd
    from dask.distributed import Client, LocalCluster

    dask.config.set({"dataframe.convert-string": False, "distributed.worker.memory.pause": 0.9})
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=memory, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        trace = dd.read_parquet(run / "trace-accesses.parquet", columns=["address"], split_row_groups=16)
        lines = (trace["address"] // LINE).to_frame(name="line")
        touched = lines.groupby("line", sort=False).size(split_out=8 * workers)
        counts = touched.map_partitions(pd.Series.value_counts, meta=("lines", "int64")).compute()
    return {int(times): int(many) for times, many in counts.groupby(level=0).sum().items()}


if __name__ == "__main__":
    number, limit = (sys.argv[2:] + ["4", "2GB"][len(sys.argv) - 2 :])[:2]
    for times, many in reuse(Path(sys.argv[1]), int(number), limit).items():
        print(f"{many} lines were touched {times} times")
