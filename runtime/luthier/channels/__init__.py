"""Channels: transport of records from hooks to the host while kernels run.

A channel is a variable of a tool (`luthier/channel.h`) that describes itself, and a *ring* of memory that device and
host share. Waves take tickets from a counter in the ring and write their records to the slots of their tickets. The
host reads the records in the order of tickets and publishes its position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from luthier.support.lazy import lazy_names

if TYPE_CHECKING:
    from luthier.channels.channel import Channel as Channel
    from luthier.channels.drain import ChannelDrain as ChannelDrain
    from luthier.channels.layout import Description as Description
    from luthier.channels.layout import describe as describe
    from luthier.channels.printing import Printer as Printer
    from luthier.channels.ring import Ring as Ring

__getattr__ = lazy_names(__name__)
