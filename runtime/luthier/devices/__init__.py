"""Devices that kernels are launched on from Python: the emulated one, and GPUs through HIP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luthier.support.lazy import lazy_names

if TYPE_CHECKING:
    from luthier.devices.in_process import reported as reported
    from luthier.devices.open import open_device as open_device

_MODULE_OF = {
    "open_device": "luthier.devices.open",
    "reported": "luthier.devices.in_process",
}

__all__ = ["open_device", "reported"]

__getattr__ = lazy_names(__name__, _MODULE_OF)
