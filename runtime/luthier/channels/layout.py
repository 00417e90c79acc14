"""What `luthier/channel.h` lays out in memory: a channel's description of itself, and its ring."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from luthier.channels.mark import is_channel
from luthier.errors import ToolError

VERSION = 1

HEAD = np.dtype(
    [
        *(("magic", "S16"), ("version", "<u4"), ("record_size", "<u4"), ("field_count", "<u4"), ("capacity", "<u4")),
        *(("mode", "<u4"), ("kind", "<u4"), ("ring", "<i8"), ("shift", "<u4"), ("more", "<u4"), ("unheard", "<u8")),
    ]
)
"""``luthier::detail::Channel``: the first bytes of the variable."""
FIELD = np.dtype(
    [*(("name", "S32"), ("offset", "<u2"), ("size", "<u2")), *(("count", "<u2"), ("kind", "S1"), ("unused", "S1"))]
)
"""``luthier::detail::Field``: behind it, once for each field of a record."""
CONTROL = np.dtype(
    [
        *(("reserved", "<u8"), ("dropped", "<u8"), ("unused", "<u8", 6)),
        *(("read", "<u8"), ("mode", "<u4"), ("more", "<u4", 13)),
    ]
)
"""``luthier::detail::Ring``: what a ring begins with. Sequence words follow, then records."""
assert (HEAD.itemsize, FIELD.itemsize, CONTROL.itemsize) == (64, 40, 128)

FEWEST = 128
"""Records of the smallest ring: what one wave pushes at once must fit, 64 lanes with up to two records each."""
USUAL_BYTES, MOST_BYTES = 4 << 20, 1 << 30
"""Of a ring whose capacity the author leaves open, and of the largest."""
LARGEST_RECORD = 128


class Mode(enum.IntEnum):
    """What a wave does that finds no room."""

    WAIT = 0
    DROP = 1
    CLOSED = 2
    """Nobody will make room: it gives up, and its records are lost."""


class Kind(enum.IntEnum):
    """What records mean."""

    RECORDS = 0
    LINES = 1
    """`luthier::printf`."""


@dataclass(frozen=True)
class Description:
    """A channel as its variable describes it."""

    name: str
    """Of the variable, as the source names it; of lines ``printf``."""
    dtype: np.dtype[np.void]
    """Of a record."""
    capacity: int
    """Records of its ring, a power of two."""
    mode: Mode
    kind: Kind

    @property
    def shift(self) -> int:
        """Binary logarithm of the capacity."""
        return self.capacity.bit_length() - 1

    @property
    def ring_size(self) -> int:
        """Bytes of its ring."""
        return CONTROL.itemsize + self.capacity * (4 + self.dtype.itemsize)


def describe(name: str, initial: bytes) -> Description | None:
    """The channel that a variable is; None if it is something else.

    Args:
        name: of the variable.
        initial: what it holds.

    Raises:
        ToolError: it says that it is a channel, but of another version, a malformed one, or one that is too large.
    """
    if not is_channel(initial):
        return None
    if len(initial) < HEAD.itemsize:
        raise ToolError("a malformed channel: it is cut short", object=name)
    head = np.frombuffer(initial, HEAD, 1)[0]
    if head["version"] != VERSION:
        raise ToolError(
            f"a channel of version {head['version']}, this Luthier reads {VERSION}: rebuild it", object=name
        )
    size, count = int(head["record_size"]), int(head["field_count"])
    if not 0 < size <= LARGEST_RECORD or HEAD.itemsize + count * FIELD.itemsize > len(initial):
        raise ToolError(f"a malformed channel: {count} fields in records of {size} bytes", object=name)
    try:
        mode, kind = Mode(int(head["mode"])), Kind(int(head["kind"]))
        dtype = _dtype(np.frombuffer(initial, FIELD, count, HEAD.itemsize), size)
    except (ValueError, TypeError) as problem:
        raise ToolError(f"a malformed channel: {problem}", object=name) from None
    wish = int(head["capacity"]) or (USUAL_BYTES // (4 + size) + 1) // 2
    capacity = max(1 << (wish - 1).bit_length(), FEWEST)
    if capacity * (4 + size) > MOST_BYTES:
        raise ToolError(
            f"a channel of {int(head['capacity'])} records of {size} bytes: its ring would take more than "
            f"{MOST_BYTES >> 20} MiB",
            object=name,
        )
    return Description("printf" if kind is Kind.LINES else name, dtype, capacity, mode, kind)


def _dtype(fields: np.ndarray[tuple[int, ...], np.dtype[np.void]], size: int) -> np.dtype[np.void]:
    names, formats, offsets = [], [], []
    for field in fields:
        kind, width, count = field["kind"].decode("ascii"), int(field["size"]), int(field["count"])
        if kind not in ("i", "u", "f", "b", "V"):
            raise ValueError(f"a field of kind {kind!r}")
        if kind == "V":  # bytes that nothing is known of
            kind, width, count = "u", 1, width * max(count, 1)
        one = np.dtype("?" if kind == "b" and width == 1 else f"<{kind}{width}")
        formats.append(np.dtype((one, (count,))) if count else one)
        names.append(field["name"].decode() or "value")
        offsets.append(int(field["offset"]))
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})
