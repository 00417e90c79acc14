"""Wait counters of GFX1250: those of GFX12, except for images and exports."""

from __future__ import annotations

from msgspec.structs import replace

from luthier.arch.gfx12.waits import WAITS as PARENT
from luthier.arch.waits import streams

_GONE = ("samplecnt", "bvhcnt", "expcnt")
_COUNTERS = tuple(counter for counter in PARENT.counters if counter.name not in _GONE)

WAITS = replace(
    PARENT,
    counters=_COUNTERS,
    streams=streams(
        _COUNTERS,
        *((name, stream) for stream in PARENT.streams if (name := PARENT.counters[stream.counter].name) not in _GONE),
    ),
    fields={
        name: kept
        for name, fields in PARENT.fields.items()
        if (kept := tuple(field for field in fields if field.counter not in _GONE))
    },
    complete=False,
)
