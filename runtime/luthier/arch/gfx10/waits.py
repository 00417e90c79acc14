"""Wait counters of GFX10, with a separate counter for stores."""

from __future__ import annotations

from luthier.arch.amdgcn.waits import EXPCNT, EXPORTS, LATE_SCC, TO_LDS, UNCOUNTED
from luthier.arch.waits import LimitField, Stream, WaitCounter, Waits, streams, waitcnt

COUNTERS = (WaitCounter("vmcnt", 63), WaitCounter("vscnt", 63), WaitCounter("lgkmcnt", 63), EXPCNT)
SPLIT = {
    "S_WAITCNT_VMCNT": (LimitField("vmcnt", ((0, 6),)),),
    "S_WAITCNT_VSCNT": (LimitField("vscnt", ((0, 6),)),),
    "S_WAITCNT_LGKMCNT": (LimitField("lgkmcnt", ((0, 6),)),),
    "S_WAITCNT_EXPCNT": (LimitField("expcnt", ((0, 3),)),),
}
# The counter decreases in the order of issue; only results of different kinds may be written in another order (LLVM,
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
