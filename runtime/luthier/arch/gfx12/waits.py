"""Wait counters of GFX12: one for each kind of memory access, and an instruction for each counter."""

from __future__ import annotations

from luthier.arch.amdgcn.waits import EXPCNT, EXPORTS, LATE_SCC, TO_LDS, UNCOUNTED
from luthier.arch.waits import Counter, Field, Stream, Waits, streams

COUNTERS = (
    Counter("loadcnt", 63),
    Counter("storecnt", 63),
    Counter("samplecnt", 63),
    Counter("bvhcnt", 7),
    Counter("dscnt", 63),
    Counter("kmcnt", 31),
    EXPCNT,
)
_IDLE = tuple(Field(counter.name, ()) for counter in COUNTERS)
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
        "S_WAIT_LOADCNT": (Field("loadcnt", ((0, 6),)),),
        "S_WAIT_STORECNT": (Field("storecnt", ((0, 6),)),),
        "S_WAIT_SAMPLECNT": (Field("samplecnt", ((0, 6),)),),
        "S_WAIT_BVHCNT": (Field("bvhcnt", ((0, 3),)),),
        "S_WAIT_DSCNT": (Field("dscnt", ((0, 6),)),),
        "S_WAIT_KMCNT": (Field("kmcnt", ((0, 5),)),),
        "S_WAIT_EXPCNT": (Field("expcnt", ((0, 3),)),),
        "S_WAIT_LOADCNT_DSCNT": (Field("loadcnt", ((8, 6),)), Field("dscnt", ((0, 6),))),
        "S_WAIT_STORECNT_DSCNT": (Field("storecnt", ((8, 6),)), Field("dscnt", ((0, 6),))),
        "S_WAIT_IDLE": _IDLE,
    },
    halves=True,
    releases={"S_BARRIER_WAIT": "barrier"},
    uncounted=UNCOUNTED,
    to_lds=TO_LDS,
    late_scc=LATE_SCC,
)
