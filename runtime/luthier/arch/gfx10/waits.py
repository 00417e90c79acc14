"""Wait counters of GFX10: stores have one of their own."""

from __future__ import annotations

from luthier.arch.amdgcn.waits import EXPCNT, EXPORTS, LATE_SCC, TO_LDS, UNCOUNTED
from luthier.arch.waits import Counter, Field, Stream, Waits, streams, waitcnt

COUNTERS = (Counter("vmcnt", 63), Counter("vscnt", 63), Counter("lgkmcnt", 63), EXPCNT)
SPLIT = {
    "S_WAITCNT_VMCNT": (Field("vmcnt", ((0, 6),)),),
    "S_WAITCNT_VSCNT": (Field("vscnt", ((0, 6),)),),
    "S_WAITCNT_LGKMCNT": (Field("lgkmcnt", ((0, 6),)),),
    "S_WAITCNT_EXPCNT": (Field("expcnt", ((0, 3),)),),
}
# The counter goes down in the order of issue; only results of different kinds may be written in another (LLVM,
# SIInsertWaitcnts, hasOtherPendingVmemTypes).
_KINDS = ("vector", "sample", "bvh")
STREAMS = (
    *(
        ("vmcnt", Stream(kind, 0, replaces=(kind,), beside=tuple(other for other in _KINDS if other != kind)))
        for kind in _KINDS
    ),
    ("vscnt", Stream("store", 0)),
    ("lgkmcnt", Stream("lds", 0, replaces=("lds",))),
    ("lgkmcnt", Stream("gds", 0)),
    ("lgkmcnt", Stream("scalar", 0, ordered=False)),
    ("lgkmcnt", Stream("message", 0, ordered=False)),
)

WAITS = Waits(
    counters=COUNTERS,
    streams=streams(COUNTERS, *STREAMS, *(("expcnt", stream) for stream in EXPORTS[:2])),
    fields={"S_WAITCNT": waitcnt(((0, 4), (14, 2)), 4, (8, 6)), **SPLIT},
    halves=False,
    releases={},
    uncounted=UNCOUNTED,
    to_lds=TO_LDS,
    late_scc=LATE_SCC,
)
