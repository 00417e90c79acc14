"""The kernels that the self-test runs on GPUs, with their launches."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
from msgspec import Struct

from luthier_build.selftest import kernel

SOURCE = Path(__file__).with_name("kernels.hip")
ELEMENTS = 1 << 12
"""Numbers that `copy` copies."""
_MATRIX = 20
"""Rows and columns of `matrix`; blocks of 16 x 16 do not divide it."""


class LaunchArguments(Protocol):
    """Makes the arguments of a launch."""

    def __call__(self) -> tuple[Any, ...]:
        """Return fresh arguments: arrays, which the kernel may write, and numbers."""


class SelftestLaunch(Struct, frozen=True):
    """A launch of a kernel."""

    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    arguments: LaunchArguments
    is_compiled: bool = True
    """Whether the kernel is in `SOURCE`; otherwise `kernel.code_object` has it."""


def _numbers(count: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    return np.arange(1, count + 1, dtype=np.uint32)


LAUNCHES: dict[str, SelftestLaunch] = {
    kernel.NAME: SelftestLaunch(
        kernel.GROUPS,
        kernel.ITEMS,
        lambda: (np.zeros(kernel.ITEMS, np.uint32), np.uint32(kernel.TURNS)),
        is_compiled=False,
    ),
    "copy": SelftestLaunch(
        ELEMENTS // 256,
        256,
        lambda: (np.arange(ELEMENTS, dtype=float), np.zeros(1), np.zeros(ELEMENTS), ELEMENTS, 1),
    ),
    "one_bank": SelftestLaunch(1, 64, lambda: (np.zeros(1, np.int32), 0)),
    "float_kinds": SelftestLaunch(1, 64, lambda: (np.zeros(64, np.int32),)),
    "global_write": SelftestLaunch(1, 64, lambda: (np.zeros(64, np.int32), 0)),
    "global_read": SelftestLaunch(1, 64, lambda: (np.zeros(64, np.int32), 0)),
    "sum": SelftestLaunch(1, 16, lambda: (np.ones(16, np.float32), np.zeros(1, np.float32))),
    "collatz": SelftestLaunch(3, 192, lambda: (_numbers(576), np.zeros(576, np.uint32))),
    "tree": SelftestLaunch(4, 256, lambda: (_numbers(1024), np.zeros(1, np.uint32))),
    "calls": SelftestLaunch(1, 100, lambda: (np.zeros(100, np.uint32),)),
    "histogram": SelftestLaunch(1, 64, lambda: (_numbers(500) ** 2, np.zeros(32, np.uint32), 500)),
    "matrix": SelftestLaunch(
        (2, 2),
        (16, 16),
        lambda: (*(np.arange(_MATRIX**2, dtype=float) for _ in range(2)), np.zeros(_MATRIX**2), _MATRIX),
    ),
}
"""The launches by the kernel's name."""
