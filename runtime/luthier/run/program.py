"""Running a program on virtual devices: its environment, its start, its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from luthier.errors import DeviceError
from luthier.processes import start
from luthier.run.service import SOCKET, Service
from luthier.run.virtual_gpus import VirtualGpu

LIBRARY = "libhsakmt.so.1"
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_LEFT_TO_PROGRAM = (signal.SIGINT, signal.SIGQUIT)
"""The terminal sends these to the program, too: what they mean is its business."""


def library_folder() -> Path:
    """Where the native library is.

    Raises:
        DeviceError: it was not built.
    """
    folder = Path(__file__).parent / "native"
    if not (folder / LIBRARY).exists():
        raise DeviceError(f"{folder / LIBRARY} is missing: build it with `make setup` (it needs libhsakmt-dev and g++)")
    return folder


def environment(base: Mapping[str, str], service: Service) -> dict[str, str]:
    """The program's environment: Luthier's library before all others, and where the service is."""
    result = dict(base)
    others = result.get("LD_LIBRARY_PATH")
    result["LD_LIBRARY_PATH"] = os.pathsep.join([str(library_folder()), *([others] if others else [])])
    result[SOCKET] = service.path
    return result


def run_program(command: Sequence[str], devices: Sequence[VirtualGpu]) -> int:
    """Run a program to its end; its exit code, or of one that a signal killed minus the signal's number.

    Standard input and output are the program's own.

    Raises:
        DeviceError: there can be no virtual devices here.
        LuthierError: the program cannot be started.
    """
    library_folder()
    with Service(devices) as service:
        child = start(command, env=environment(os.environ, service))
        before = {number: signal.signal(number, signal.SIG_IGN) for number in _LEFT_TO_PROGRAM}
        before |= {number: signal.signal(number, lambda sent, _: child.send_signal(sent)) for number in _FORWARDED}
        try:
            return child.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
