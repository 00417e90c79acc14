"""Devices on which Python launches kernels: the emulated one, and GPUs through HIP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luthier.support.lazy import lazy_names

if TYPE_CHECKING:
    from luthier.devices.in_process import reported as reported
    from luthier.devices.open import open_device as open_device

__getattr__ = lazy_names(__name__)
