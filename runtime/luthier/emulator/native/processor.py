"""Host processor that operations are compiled for: this host's, or one of the x86-64 levels."""

from __future__ import annotations

import functools
import os

from msgspec import Struct

from luthier import _mc
from luthier.errors import DeviceError

VARIABLE = "LUTHIER_HOST_LEVEL"
"""Environment variable with the level to compile for, e.g. ``x86-64-v3``, on machines that share a cache folder."""
_V3 = frozenset(("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"))
LEVELS = {
    "x86-64-v4": _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": _V3,
}
"""Features of each level, highest first (x86-64 psABI, "Micro-Architecture Levels")."""


class Processor(Struct, frozen=True):
    """Processor in LLVM's terms."""

    name: str
    features: tuple[str, ...] = ()
    """Features beyond those that the name implies, each with its sign, e.g. ``+avx2``."""

    @property
    def chunk_lanes(self) -> int:
        """Return the number of 32-bit lanes in a vector register; 0 below AVX2."""
        return 16 if self.has_masks else 8 if "avx2" in self._known else 0

    @property
    def has_masks(self) -> bool:
        """Return whether vector instructions take lane masks (AVX-512)."""
        return self._known >= {"avx512f", "avx512bw"}

    @property
    def _known(self) -> frozenset[str]:
        own = (feature[1:] for feature in self.features if feature[0] == "+")
        return LEVELS.get(self.name) or frozenset(own)


@functools.cache
def processor() -> Processor:
    """Return the processor to compile for.

    Raises:
        DeviceError: `VARIABLE` does not name a level that this host has.
    """
    name, features = _mc.host()
    wanted = os.environ.get(VARIABLE, "")
    if not wanted:
        return Processor(name, tuple(features))
    if wanted not in levels():
        raise DeviceError(f"{VARIABLE} is {wanted!r}; this host has the levels {', '.join(levels()) or 'below those'}")
    return Processor(wanted)


@functools.cache
def levels() -> tuple[str, ...]:
    """Return the `LEVELS` that this host has, highest first."""
    features = {feature[1:] for feature in _mc.host()[1] if feature[0] == "+"}
    return tuple(level for level, needed in LEVELS.items() if needed <= features)
