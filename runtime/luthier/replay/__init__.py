"""Replays of captures in processes of their own: side by side, on a cluster, in parts, under tools, with checks.

A capture needs the addresses that the program had, which are free in some processes only, and may crash what runs it.

| module | does |
| --- | --- |
| `jobs` | jobs and outcomes as records, and their form between processes |
| `processes` | the processes that do jobs: new ones, and forks |
| `server` | a process that forks for each job |
| `worker` | a process that does one job |
| `launches` | replays, on an emulated device or a GPU, with checks |
| `ranges` | a launch in ranges of work-groups |
| `tools` | replays under tools |
| `verification` | captured launches, original and patched |
| `minimising` | the smallest capture in which a failure remains |
| `cluster` | jobs on the workers of a Dask cluster |
| `reduction` | new captures, replayed and written without what their launches did not access |
"""
