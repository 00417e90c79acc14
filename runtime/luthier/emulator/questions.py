"""Questions that no source answers: a kernel that depends on one is in error (`layout.FAULT_OPEN`)."""

from __future__ import annotations

SCALE = "a block scale that is no power of two: whether the whole number or its exponent counts is not documented"
LANES_OFF = "some lanes are off: what it does then is not documented"
WIDTH = "a group of lanes whose width is no power of two up to the wave's size: what is taken then is not documented"

QUESTIONS = (SCALE, LANES_OFF, WIDTH)
"""In the order of their numbers."""
