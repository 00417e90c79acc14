"""Kernels written with the macros of dialects.s: assembling and running them.

A kernel is called `k`; its one argument is a buffer of eight 32-bit values a lane. A source that does not define it
begins with its body, to which ``begin`` and s_endpgm are added, and which stores with ``put register, number``. ``func
name`` begins a function, which ends at the next one or with the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
from assembly import assembled, kernel_text
from luthier.devices import open_device
from luthier.objects import CodeObject
from numpy.typing import NDArray

VALUES = 8
"""Of a lane, in the buffer."""
_NEW_SECTION = re.compile(r"^(?=func |\.rodata|\.data|\.section|\.text)", re.MULTILINE)


def completed(source: str, prologue: str = "  begin\n") -> str:
    """Return the source with what it leaves out: the kernel around a body, and the end of each function."""
    if not re.search(r"^(func k$|k:)", source, re.MULTILINE):
        body, *rest = _NEW_SECTION.split(source, maxsplit=1)
        source = "".join([f"func k\n{prologue}{body}  s_endpgm\n", *rest])
    parts = []
    for part in _NEW_SECTION.split(source):
        name = re.match(r"func (\w+)", part)
        parts.append(f"{part}endfunc {name[1]}\n" if name and f"endfunc {name[1]}" not in source else part)
    return "".join(parts)


def assemble(
    target: str,
    source: str,
    wave: int | None = None,
    *,
    vgprs: int = 16,
    sgprs: int = 24,
    agprs: int = 0,
    workgroup: int = 64,
    descriptor: str = "",
    prologue: str = "  begin\n",
) -> CodeObject:
    """Return the code object of a kernel.

    Args:
        target: processor.
        source: functions, `k` among them, or the body of `k`.
        wave: lanes, by default the processor's own choice.
        vgprs, sgprs, agprs: registers the kernel declares.
        workgroup: lanes of the largest work-group it may be launched with.
        descriptor: further directives ``name value; …`` of `.amdhsa_kernel`, without their prefix.
        prologue: what comes before a body.
    """
    text = kernel_text(
        completed(source, prologue),
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
    target: str, data: bytes, *, groups: int = 1, lanes: int = 64, variables: Iterable[str] = ()
) -> tuple[NDArray[np.uint32], dict[str, int], int]:
    """Launch `k` on the emulated device.

    Args:
        target: processor.
        data: the code object.
        groups: work-groups. They share the buffer, so they must agree on what they store.
        lanes: of each.
        variables: names of variables to read afterwards.

    Returns:
        The buffer, the variables, and the number of executed wave-instructions.
    """
    device = open_device(f"emu:{target}", threads=1)
    module = device.load(data)
    buffer = np.zeros(VALUES * 64, np.uint32)
    module.kernel("k").launch(buffer, grid=groups, block=lanes)
    values = {name: int.from_bytes(module.variable(name).read(), "little") for name in variables}
    return buffer.reshape(VALUES, 64), values, device.stats.instructions
