"""Replays of captures in separate processes: in parallel, on a cluster, in parts, under tools, with checks.

A capture needs the addresses that the program used, which are free in some processes only. It may also crash the
process that replays it.

| module | contents |
| --- | --- |
| `jobs` | jobs and outcomes as records, and their form between processes |
| `processes` | processes that run jobs: new ones, and forks |
| `server` | a process that forks for each job |
| `worker` | a process that runs one job |
| `launches` | replays, on an emulated device or a GPU, with checks |
| `ranges` | replay of a launch in ranges of work-groups |
| `tools` | replays under tools |
| `verification` | captured launches, original and patched |
| `minimising` | the smallest capture that still fails |
| `cluster` | jobs on the workers of a Dask cluster |
| `reduction` | replay of new captures, which drops what their launches did not access |
"""
