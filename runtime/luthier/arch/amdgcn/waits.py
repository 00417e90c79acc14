"""Facts about wait counters on all generations."""

from __future__ import annotations

from luthier.arch.waits import Stream, WaitCounter

UNCOUNTED = (
    *("S_PREFETCH", "S_BUFFER_PREFETCH", "S_ATC_PROBE", "DS_NOP"),
    *("BUFFER_WBINVL1", "BUFFER_GL0_INV", "BUFFER_GL1_INV", "BUFFER_INV", "BUFFER_WBL2", "BUFFER_INVL2"),
)
"""Instructions without a counter. Those of ``buffer_*`` clean caches; LLVM does not rely on their counts either."""
TO_LDS = ("ASYNC", "TENSOR")
"""Only on GFX1250."""
LATE_SCC = frozenset(
    {"S_BARRIER_SIGNAL_ISFIRST_IMM", "S_BARRIER_SIGNAL_ISFIRST_M0", "S_BARRIER_SIGNAL_ISFIRST", "S_BARRIER_LEAVE"}
)
"""Only on GFX12."""

EXPCNT = WaitCounter("expcnt", 7)
EXPORTS = (
    Stream("export sources", 0, ordered=False, locks=True),
    Stream("gds sources", 0, ordered=False, locks=True),
    Stream("lds direct", 0, replaces=("lds direct",)),
)
"""Streams of expcnt; some generations have only some of them."""
