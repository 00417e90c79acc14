"""Description of a channel in the memory of its variable (`luthier.wire.channels`)."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from luthier.channels.mark import is_channel
from luthier.errors import ToolError
from luthier.wire import channels
from luthier.wire.channels import LARGEST_RECORD, VERSION, Kind, Mode

HEAD, FIELD, RING = channels.CHANNEL.dtype, channels.FIELD.dtype, channels.RING.dtype

FEWEST = 128
"""Records of the smallest ring: one push of a wave must fit, 64 lanes with up to two records each."""
USUAL_BYTES, MOST_BYTES = 4 << 20, 1 << 30
"""Bytes of a ring without a given capacity, and of the largest ring."""


class Description(Struct, frozen=True):
    """Description of a channel by its variable."""

    name: str
    """Name of the variable in the source; ``printf`` for lines."""
    dtype: np.dtype[np.void]
    """Type of a record."""
    capacity: int
    """Records of its ring, a power of two."""
    mode: Mode
    kind: Kind

    @property
    def shift(self) -> int:
        """Return the binary logarithm of the capacity."""
        return self.capacity.bit_length() - 1

    @property
    def ring_size(self) -> int:
        """Return the bytes of its ring."""
        return RING.itemsize + self.capacity * (4 + self.dtype.itemsize)


def describe(name: str, initial: bytes) -> Description | None:
    """Return the description of the channel in a variable; None if it is not a channel.

    Args:
        name: name of the variable.
        initial: initial contents of the variable.

    Raises:
        ToolError: the channel has another version, is malformed, or is too large.
    """
    if not is_channel(initial):
        return None
    if len(initial) < HEAD.itemsize:
        raise ToolError("malformed channel: the variable is too small", object=name)
    head = np.frombuffer(initial, HEAD, 1)[0]
    if head["version"] != VERSION:
        raise ToolError(
            f"the channel has version {head['version']}, this Luthier reads {VERSION}: rebuild the tool", object=name
        )
    size, count = int(head["record_size"]), int(head["field_count"])
    if not 0 < size <= LARGEST_RECORD or HEAD.itemsize + count * FIELD.itemsize > len(initial):
        raise ToolError(f"malformed channel: {count} fields in records of {size} bytes", object=name)
    try:
        mode, kind = Mode(int(head["mode"])), Kind(int(head["kind"]))
        dtype = _dtype(np.frombuffer(initial, FIELD, count, HEAD.itemsize), size)
    except (ValueError, TypeError) as problem:
        raise ToolError(f"malformed channel: {problem}", object=name) from None
    wanted = int(head["capacity"]) or (USUAL_BYTES // (4 + size) + 1) // 2
    capacity = max(1 << (wanted - 1).bit_length(), FEWEST)
    if capacity * (4 + size) > MOST_BYTES:
        raise ToolError(
            f"the channel has {int(head['capacity'])} records of {size} bytes: its ring would take more than "
            f"{MOST_BYTES >> 20} MiB",
            object=name,
        )
    return Description("printf" if kind is Kind.LINES else name, dtype, capacity, mode, kind)


def _dtype(fields: np.ndarray[tuple[int, ...], np.dtype[np.void]], size: int) -> np.dtype[np.void]:
    names, formats, offsets = [], [], []
    for field in fields:
        kind, width, count = field["kind"].decode("ascii"), int(field["size"]), int(field["count"])
        if kind not in ("i", "u", "f", "b", "V"):
            raise ValueError(f"a field has the unknown kind {kind!r}")
        if kind == "V":  # bytes of an unknown type
            kind, width, count = "u", 1, width * max(count, 1)
        scalar = np.dtype("?" if kind == "b" and width == 1 else f"<{kind}{width}")
        formats.append(np.dtype((scalar, (count,))) if count else scalar)
        names.append(field["name"].decode() or "value")
        offsets.append(int(field["offset"]))
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})
