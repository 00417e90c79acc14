"""Comparison of two states."""

from __future__ import annotations

import isa_numbers as n
import numpy as np
from isa_operands import Expected
from isa_state import State


def differences(expected: Expected, actual: State) -> list[str]:
    """What differs, in words; empty if nothing does."""
    wanted = expected.state
    texts: list[str] = []
    loose: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
    for kind, register, lane, low, width in expected.loose:
        loose.setdefault((kind, register, lane), []).append((low, width))
    for kind, left, right in (("v", wanted.vgprs, actual.vgprs), ("a", wanted.agprs, actual.agprs)):
        for register, lane in np.argwhere(left != right).tolist():
            ranges = loose.get((kind, register, lane), [])
            want, have = int(left[register, lane]), int(right[register, lane])
            below = (int(right[register - 1, lane]), int(left[register - 1, lane])) if register else (0, 0)
            if not same_nan(ranges, want, have, below):
                texts.append(f"{kind}{register} lane {lane}: {have:#010x}, not {want:#010x}")
    for unit in np.flatnonzero(wanted.sgprs != actual.sgprs).tolist():
        ranges = loose.get(("s", unit, 0), [])
        if not same_nan(ranges, int(wanted.sgprs[unit]), int(actual.sgprs[unit]), (0, 0)):
            texts.append(f"s{unit}: {int(actual.sgprs[unit]):#010x}, not {int(wanted.sgprs[unit]):#010x}")
    for name in ("scc", "mode"):
        if getattr(wanted, name) != getattr(actual, name):
            texts.append(f"{name}: {getattr(actual, name):#x}, not {getattr(wanted, name):#x}")
    for name in ("memory", "lds", "scratch"):
        different = np.argwhere(getattr(wanted, name) != getattr(actual, name)).tolist()
        if different:
            place = tuple(different[0])
            have, want = getattr(actual, name)[place], getattr(wanted, name)[place]
            texts.append(f"{name}[{place}]: {have:#04x}, not {want:#04x} ({len(different)} bytes differ)")
    return texts


def same_nan(ranges: list[tuple[int, int]], want: int, have: int, below: tuple[int, int]) -> bool:
    """Whether two dwords are equal but for NaN in the ranges, which must then both be quiet ones."""
    mask = 0xFFFFFFFF
    for low, width in ranges:
        if width == 1:
            return True
        if width == 0:  # the sign of a zero
            mask &= ~(1 << low)
            continue
        if width < 32:
            field = ((1 << width) - 1) << low
            half = (have & field) >> low
            if width == 16 and not (_quiet_nan(n.V(half, "f", 16)) or _quiet_nan(n.V(half, "bf", 16))):
                return False
            if width == 8 and (have >> low & 0x7F) < 0x7D:
                return False
            mask &= ~field
        elif width == 32:
            return _quiet_nan(n.V(have, "f", 32))
        else:  # either half of a 64-bit NaN
            return True
    return want & mask == have & mask


def _quiet_nan(v: n.V) -> bool:
    return n.is_nan(v) and not n.is_signalling(v)
