"""Channels as programs and tools see them."""

from __future__ import annotations

from luthier.channels.ring import Ring
from luthier.wire.channels import Mode


class Channel:
    """A channel on one device.

    Args:
        ring: where its records go through.
    """

    def __init__(self, ring: Ring) -> None:
        self.name = ring.description.name
        """Name in the source."""
        self.dtype = ring.description.dtype
        """Type of a record: a structure, with one field ``value`` where records are numbers."""
        self.ring = ring

    @property
    def taken(self) -> int:
        """Return the number of records that have come so far."""
        return self.ring.taken

    @property
    def dropped(self) -> int:
        """Return the number of records that found no room where `drop` is set."""
        return self.ring.dropped

    @property
    def lost(self) -> int:
        """Return the number of records that waves had begun when they were killed."""
        return self.ring.lost

    @property
    def drop(self) -> bool:
        """Return whether records that find no room are dropped and counted; otherwise waves wait.

        It may be set at any time.
        """
        return self.ring.mode is not Mode.WAIT

    @drop.setter
    def drop(self, drop: bool) -> None:
        if self.ring.mode is not Mode.CLOSED:
            self.ring.mode = Mode.DROP if drop else Mode.WAIT
