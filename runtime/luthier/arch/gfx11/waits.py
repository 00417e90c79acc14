"""Wait counters of GFX11: LDS loads for interpolation are counted, and fields have other positions."""

from __future__ import annotations

from msgspec.structs import replace

from luthier.arch.amdgcn.waits import EXPORTS
from luthier.arch.gfx10.waits import COUNTERS, SPLIT, STREAMS
from luthier.arch.gfx10.waits import WAITS as PARENT
from luthier.arch.waits import streams, waitcnt

WAITS = replace(
    PARENT,
    streams=streams(COUNTERS, *STREAMS, *(("expcnt", stream) for stream in EXPORTS)),
    fields={"S_WAITCNT": waitcnt(((10, 6),), 0, (4, 6)), **SPLIT},
    halves=True,
)
