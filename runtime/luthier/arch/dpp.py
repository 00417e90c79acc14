"""Values of DPP_CTRL by function (ISA documents, "Data Parallel Processing")."""

from __future__ import annotations

QUADS = frozenset(range(0x100))
ROW_SHIFTS = frozenset(kind + amount for kind in (0x100, 0x110, 0x120) for amount in range(1, 16))
MIRRORS = frozenset((0x140, 0x141))
WAVE_SHIFTS_AND_BROADCASTS = frozenset((0x130, 0x134, 0x138, 0x13C, 0x142, 0x143))
ROW_SHARE = frozenset(range(0x150, 0x160))
"""On GFX90A: row_newbcast."""
ROW_XMASK = frozenset(range(0x160, 0x170))
EVERYWHERE = QUADS | ROW_SHIFTS | MIRRORS
