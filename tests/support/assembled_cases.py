"""Kernels written with the macros of dialects.s: assembling and running them.

A kernel is called `k`; its one argument is a buffer of eight 32-bit values a lane. It starts with ``begin``, ends with
s_endpgm, and stores with ``put register, number``.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from assembly import DIALECTS, assembled, kernel_text
from luthier.devices import open_device
from luthier.objects import CodeObject
from numpy.typing import NDArray

VALUES = 8
"""Of a lane, in the buffer."""


def assemble(
    target: str,
    source: str,
    wave: int,
    *,
    vgprs: int = 16,
    sgprs: int = 24,
    agprs: int = 0,
    workgroup: int = 64,
    descriptor: str = "",
) -> CodeObject:
    """Return the code object of a kernel.

    Args:
        target: processor.
        source: functions, `k` among them.
        wave: lanes.
        vgprs, sgprs, agprs: registers the kernel declares.
        workgroup: lanes of the largest work-group it may be launched with.
        descriptor: further directives ``name value; …`` of `.amdhsa_kernel`, without their prefix.
    """
    text = kernel_text(
        DIALECTS + source,
        target,
        wave_size=wave,
        sgprs=sgprs,
        vgprs=vgprs,
        agprs=agprs,
        workgroup=workgroup,
        directives=dict(setting.split() for setting in filter(None, descriptor.split("; "))),
    )
    return assembled(text, target, wave_size=wave)


def run(
    target: str, data: bytes, *, groups: int, lanes: int, variables: Iterable[str] = ()
) -> tuple[NDArray[np.uint32], dict[str, int]]:
    """Launch `k` on the emulated device.

    Args:
        target: processor.
        data: the code object.
        groups: work-groups. They share the buffer, so they must agree on what they store.
        lanes: of each.
        variables: names of variables to read afterwards.

    Returns:
        The buffer, and the variables.
    """
    module = open_device(f"emu:{target}", threads=1).load(data)
    buffer = np.zeros(VALUES * 64, np.uint32)
    module.kernel("k").launch(buffer, grid=groups, block=lanes)
    return buffer.reshape(VALUES, 64), {
        name: int.from_bytes(module.variable(name).read(), "little") for name in variables
    }
