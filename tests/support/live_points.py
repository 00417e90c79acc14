"""Liveness at points that are in no code."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from luthier.isa.registers import UNIT_LIMIT
from luthier.lifting import Live, LivePoints


def points_of(lives: Iterable[Live]) -> LivePoints:
    """Return liveness given point by point as one `LivePoints`."""
    sets = [[np.frombuffer(bits.to_bytes(UNIT_LIMIT // 8, "little"), "<u8") for bits in live] for live in lives]
    return LivePoints(*(np.stack(lanes, axis=1) for lanes in zip(*sets, strict=True)))
