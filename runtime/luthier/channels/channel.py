"""Channels for programs and tools."""

from __future__ import annotations

from luthier.channels.ring import Ring
from luthier.wire.channels import Mode


class Channel:
    """A channel on one device.

    Args:
        ring: the ring of its records.
    """

    def __init__(self, ring: Ring) -> None:
        self.name = ring.description.name
        """Name in the source."""
        self.dtype = ring.description.dtype
        """Type of a record: a structure; if records are numbers, with one field ``value``."""
        self.ring = ring

    @property
    def taken(self) -> int:
        """Return the number of records taken so far."""
        return self.ring.taken

    @property
    def dropped(self) -> int:
        """Return the number of records dropped because the ring was full."""
        return self.ring.dropped

    @property
    def lost(self) -> int:
        """Return the number of records that were incomplete when their waves were killed."""
        return self.ring.lost

    @property
    def drop(self) -> bool:
        """Return whether records are dropped and counted when the ring is full; otherwise waves wait.

        It may be set at any time.
        """
        return self.ring.mode is not Mode.WAIT

    @drop.setter
    def drop(self, drop: bool) -> None:
        if self.ring.mode is not Mode.CLOSED:
            self.ring.mode = Mode.DROP if drop else Mode.WAIT
