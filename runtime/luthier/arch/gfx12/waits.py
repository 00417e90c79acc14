"""Wait counters of GFX12: a counter for each kind of memory access, and an instruction for each counter."""

from __future__ import annotations

from luthier.arch.amdgcn.waits import EXPCNT, EXPORTS, LATE_SCC, TO_LDS, UNCOUNTED
from luthier.arch.waits import LimitField, Stream, WaitCounter, Waits, streams

COUNTERS = (
    WaitCounter("loadcnt", 63),
    WaitCounter("storecnt", 63),
    WaitCounter("samplecnt", 63),
    WaitCounter("bvhcnt", 7),
    WaitCounter("dscnt", 63),
    WaitCounter("kmcnt", 31),
    EXPCNT,
)
_IDLE = tuple(LimitField(counter.name, ()) for counter in COUNTERS)
WAITS = Waits(
    counters=COUNTERS,
    streams=streams(
        COUNTERS,
        # Loads are counted in order, but may write their registers out of order (LLVM, vmem-write-vgpr-in-order).
        ("loadcnt", Stream("vector", 0)),
        ("storecnt", Stream("store", 0)),
        ("samplecnt", Stream("sample", 0)),
        ("bvhcnt", Stream("bvh", 0)),
        ("dscnt", Stream("lds", 0, replaces=("lds",))),
        ("kmcnt", Stream("scalar", 0, ordered=False)),
        ("kmcnt", Stream("message", 0, ordered=False)),
        ("kmcnt", Stream("barrier", 0, ordered=False)),
        *(("expcnt", stream) for stream in (EXPORTS[0], EXPORTS[2])),
    ),
    fields={
        "S_WAIT_LOADCNT": (LimitField("loadcnt", ((0, 6),)),),
        "S_WAIT_STORECNT": (LimitField("storecnt", ((0, 6),)),),
        "S_WAIT_SAMPLECNT": (LimitField("samplecnt", ((0, 6),)),),
        "S_WAIT_BVHCNT": (LimitField("bvhcnt", ((0, 3),)),),
        "S_WAIT_DSCNT": (LimitField("dscnt", ((0, 6),)),),
        "S_WAIT_KMCNT": (LimitField("kmcnt", ((0, 5),)),),
        "S_WAIT_EXPCNT": (LimitField("expcnt", ((0, 3),)),),
        "S_WAIT_LOADCNT_DSCNT": (LimitField("loadcnt", ((8, 6),)), LimitField("dscnt", ((0, 6),))),
        "S_WAIT_STORECNT_DSCNT": (LimitField("storecnt", ((8, 6),)), LimitField("dscnt", ((0, 6),))),
        "S_WAIT_IDLE": _IDLE,
    },
    halves=True,
    releases={"S_BARRIER_WAIT": "barrier"},
    uncounted=UNCOUNTED,
    to_lds=TO_LDS,
    late_scc=LATE_SCC,
)
