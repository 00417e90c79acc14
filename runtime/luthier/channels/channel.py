"""What programs and tools see of a channel."""

from __future__ import annotations

from luthier.channels.layout import Mode
from luthier.channels.ring import Ring


class Channel:
    """A channel on one device.

    Args:
        ring: where its records go through.
    """

    def __init__(self, ring: Ring) -> None:
        self.name = ring.description.name
        """As the source names it."""
        self.dtype = ring.description.dtype
        """Of a record: a structure, with one field ``value`` where records are numbers."""
        self.ring = ring

    @property
    def taken(self) -> int:
        """Records that have come so far."""
        return self.ring.taken

    @property
    def dropped(self) -> int:
        """Records that found no room where `drop` is set."""
        return self.ring.dropped

    @property
    def lost(self) -> int:
        """Records that waves had begun when they were killed."""
        return self.ring.lost

    @property
    def drop(self) -> bool:
        """Whether records that find no room are dropped and counted; otherwise waves wait. May be set at any time."""
        return self.ring.mode is not Mode.WAIT

    @drop.setter
    def drop(self, drop: bool) -> None:
        if self.ring.mode is not Mode.CLOSED:
            self.ring.mode = Mode.DROP if drop else Mode.WAIT
