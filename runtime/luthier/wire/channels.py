"""Channels in the memory of a device: what `luthier/channel.h` fills in, and what the host reads.

Tools that were built before go on to work while this stays as it is: what changes raises `VERSION`.
"""

from __future__ import annotations

import enum

from luthier.wire.structures import WireStructure

MAGIC = b"luthier.channel\0"
"""Bytes that the contents of a channel begin with."""
VERSION = 1
LARGEST_RECORD = 128
"""Bytes."""
CHANNEL = WireStructure(
    magic="S16",
    version="u4",
    record_size="u4",
    field_count="u4",
    capacity="u4",  # that the author wishes for, in records; 0: whatever the host thinks best
    mode="u4",  # Mode to begin with
    kind="u4",  # Kind
    ring="i8",  # bytes from here to the ring; 0: nobody listens
    shift="u4",  # the ring has 1 << shift records, at least as many as the largest wave has lanes
    more="u4",
    unheard="u8",  # records pushed while nobody listened
)
"""Part that all channels share: the first bytes of the variable."""
FIELD = WireStructure(
    name="S32",  # ends with a zero
    offset="u2",  # bytes
    size="u2",  # bytes of an element
    count="u2",  # elements; 0: not an array
    kind="S1",  # i, u, f, b (bool) or V (bytes), as NumPy calls them
    unused="S1",
)
"""Description of one field of a record; one for each field follows `CHANNEL`."""
RING = WireStructure(
    reserved="u8",  # tickets that waves have taken
    dropped="u8",  # records
    unused="u8[6]",
    read="u8",  # tickets that the host has done with
    mode="u4",  # Mode; the host may change it at any time
    more="u4[13]",
)
"""Beginning of a ring; sequence words and then records follow, each aligned to 64 bytes."""


class Mode(enum.IntEnum):
    """Behaviour of a wave that finds no room."""

    WAIT = 0
    DROP = 1
    CLOSED = 2
    """No room will be made: it gives up, and its records are lost."""


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
"""Words of a slot of `luthier::printf`: the format's address, the number of arguments and four bits for the kind of
each, six arguments; the other arguments, if any, in a second slot that begins with `LINE_MORE`."""
LINE_MORE, LINE_FIRST, LINE_MOST = 1, 6, 13
"""Value that a second slot begins with; number of arguments in the first slot, and in both."""
