"""Wait counters of GFX9."""

from __future__ import annotations

from luthier.arch.amdgcn.waits import EXPCNT, EXPORTS, LATE_SCC, TO_LDS, UNCOUNTED
from luthier.arch.waits import Stream, WaitCounter, Waits, streams, waitcnt

_COUNTERS = (WaitCounter("vmcnt", 63), WaitCounter("lgkmcnt", 15), EXPCNT)

WAITS = Waits(
    counters=_COUNTERS,
    streams=streams(
        _COUNTERS,
        # FLAT may decrement both counters early, so it has no order with other instructions, but its memory accesses
        # return results in order with all others.
        ("vmcnt", Stream("vector", 0, replaces=("vector", "flat"))),
        ("vmcnt", Stream("flat", 0, ordered=False)),
        ("lgkmcnt", Stream("lds", 0, replaces=("lds",))),
        ("lgkmcnt", Stream("flat lds", 0, ordered=False)),
        ("lgkmcnt", Stream("gds", 0)),
        ("lgkmcnt", Stream("scalar", 0, ordered=False)),
        ("lgkmcnt", Stream("message", 0, ordered=False)),
        *(("expcnt", stream) for stream in EXPORTS[:2]),
    ),
    fields={"S_WAITCNT": waitcnt(((0, 4), (14, 2)), 4, (8, 4))},
    halves=False,
    releases={},
    uncounted=UNCOUNTED,
    to_lds=TO_LDS,
    late_scc=LATE_SCC,
)
