"""Numbers as bits, for the models that tests compare with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def signed(value: int, bits: int = 32) -> int:
    """Return the low bits of a number as a signed integer."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def flushed(values: NDArray[Any]) -> NDArray[Any]:
    """Return floats with zeros of the same sign in place of denormals."""
    tiny = np.finfo(values.dtype).tiny
    return np.where(np.abs(values) < tiny, np.copysign(values.dtype.type(0), values), values)
