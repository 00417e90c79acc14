"""The devices of a run: those requested, or one that runs the program's code."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from luthier.errors import DeviceError, LuthierError, TargetError
from luthier.isa.targets import TARGETS, TargetId
from luthier.objects import find_images
from luthier.run.machine_gpus import MachineGpus, names_machine_gpus, parse_machine_gpus
from luthier.run.virtual_gpus import VirtualGpu, parse_devices
from luthier.terminal import say

DEFAULT = "emu:gfx90a"

Devices = Sequence[VirtualGpu] | MachineGpus
"""Devices of a run."""


def devices_for(text: str | None, command: Sequence[str]) -> Devices:
    """Return the devices that ``--device`` names, by default a virtual one that runs the code in the program's file.

    Raises:
        DeviceError: as for `parse_devices`, `parse_machine_gpus`.
        TargetError: as for `parse_devices`.
    """
    if text is not None and names_machine_gpus(text):
        return parse_machine_gpus(text)
    return virtual_devices_for(text, command)


def virtual_devices_for(text: str | None, command: Sequence[str]) -> Sequence[VirtualGpu]:
    """Return the virtual devices that ``--device`` names, by default one that runs the code in the program's file.

    Without such code it is `DEFAULT`. If no named device runs the code, a line on standard error names one that does;
    libraries that the program loads may contain other code.

    Raises:
        DeviceError: as for `parse_devices`.
        TargetError: likewise.
    """
    if text is not None and names_machine_gpus(text):
        raise DeviceError(f"this needs a virtual device (--device emu:TARGET): execution on {text} cannot be observed")
    code = targets_of_program(command[0])
    known = (DEFAULT, *(f"emu:{name}" for name in _virtual(code))) if code else ()
    fitting = [name for name in known if _run_any(code, name)]
    devices = parse_devices(text or (fitting or [DEFAULT])[0])
    if code and not any(_accepts(device, code) for device in devices):
        remedy = f"; use --device {fitting[0]}" if fitting else ", which no virtual device runs"
        names = ", ".join(str(one) for one in code)
        say(f"luthier: {command[0]}: its code is for {names}{remedy}", file=sys.stderr)
    return devices


def targets_of_program(program: str) -> list[TargetId]:
    """Return the distinct targets of the device code in a program's file."""
    path = shutil.which(program)
    targets: dict[TargetId, None] = {}
    try:
        for image in find_images(Path(path)) if path else ():
            with contextlib.suppress(TargetError):
                targets[image.target] = None
    except LuthierError:
        pass  # a program without device code, or one that HIP will refuse
    return list(targets)


def _virtual(code: Iterable[TargetId]) -> list[str]:
    """Return the processors of virtual devices, first those of the code."""
    known = [name for name, target in TARGETS.items() if target.device_id is not None]
    named = [one.target.name for one in code if one.target.device_id is not None]
    return [*named, *known]


def _run_any(code: Iterable[TargetId], name: str) -> bool:
    (device,) = parse_devices(name)
    return _accepts(device, code)


def _accepts(device: VirtualGpu, code: Iterable[TargetId]) -> bool:
    """Return whether a device, with XNACK and SRAM ECC off, runs any of a program's code."""
    off = TargetId(device.target.target, False, False)
    return any(off.accepts(one) for one in code)
