"""Channels in device memory, which `luthier/channel.h` fills and the host reads.

Tools that were built before keep working while this is unchanged; changes increment `VERSION`.
"""

from __future__ import annotations

import enum

from luthier.wire.structures import WireStructure

MAGIC = b"luthier.channel\0"
"""First bytes of a channel."""
VERSION = 1
LARGEST_RECORD = 128
"""In bytes."""
CHANNEL = WireStructure(
    magic="S16",
    version="u4",
    record_size="u4",
    field_count="u4",
    capacity="u4",  # requested records; 0: the host decides
    mode="u4",  # initial Mode
    kind="u4",  # Kind
    ring="i8",  # bytes from here to the ring; 0: no reader
    shift="u4",  # the ring has 1 << shift records, at least as many as the largest wave has lanes
    more="u4",
    unheard="u8",  # records pushed without a reader
)
"""Common part of all channels: the first bytes of the variable."""
FIELD = WireStructure(
    name="S32",  # ends with a zero
    offset="u2",  # bytes
    size="u2",  # bytes of an element
    count="u2",  # elements; 0: not an array
    kind="S1",  # i, u, f, b (bool) or V (bytes), as in NumPy
    unused="S1",
)
"""Description of one field of a record; one for each field follows `CHANNEL`."""
RING = WireStructure(
    reserved="u8",  # tickets taken by waves
    dropped="u8",  # records
    unused="u8[6]",
    read="u8",  # tickets processed by the host
    mode="u4",  # Mode; the host may change it at any time
    more="u4[13]",
)
"""Beginning of a ring, followed by sequence words and records, each aligned to 64 bytes."""


class Mode(enum.IntEnum):
    """Behaviour of a wave if the ring is full."""

    WAIT = 0
    DROP = 1
    CLOSED = 2
    """The ring is not emptied any more: its records are lost."""


class Kind(enum.IntEnum):
    """Meaning of records."""

    RECORDS = 0
    LINES = 1
    """`luthier::printf`."""


class Passed(enum.IntEnum):
    """Kind of an argument of `luthier::printf`."""

    INT = 1
    UNSIGNED = 2
    LONG = 3
    UNSIGNED_LONG = 4
    DOUBLE = 5
    POINTER = 6
    STRING = 7
    OTHER = 8


LINE_WORDS = 8
"""Words of a slot of `luthier::printf`: address of the format, number of arguments with four bits for the kind of each,
six arguments; more arguments are in a second slot that begins with `LINE_MORE`."""
LINE_MORE, LINE_FIRST, LINE_MOST = 1, 6, 13
"""First word of a second slot; number of arguments in the first slot, and in both."""
