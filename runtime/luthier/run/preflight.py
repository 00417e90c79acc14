"""Checks of what a run cannot do on this machine, reported by name before the program starts.

Nothing heavy is imported here: the program starts before the service does.
"""

from __future__ import annotations

import mmap
import os
import resource
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from luthier.errors import DeviceError, LuthierError
from luthier.run.device_choice import Devices
from luthier.run.machine_gpus import MachineGpus
from luthier.run.rocr import find_runtime
from luthier.run.virtual_gpus import VirtualGpu
from luthier.terminal import say
from luthier.wire.messages import SOCKET_VARIABLE, TOOLS_SOCKET_VARIABLE
from luthier.wire.topology import FILES_VARIABLE

DRIVER = "/dev/kfd"
PROCESSORS = "/sys/devices/system/cpu"
SHARED_BYTES = 1 << 40
"""Bytes of addresses that the service shares with each process of the program."""
_OTHER_BYTES = 8 << 30
"""Bytes of addresses that the service has beside."""
_TEMPORARY_BYTES = 1 << 16
"""Bytes that must fit into temporary files."""
_DESCRIPTORS = 32
"""Open files of the service: a small program under a tool needs 20, and each of its processes that run some more."""


def check(command: Sequence[str], devices: Devices, base: Mapping[str, str]) -> None:
    """Look for what would make the run fail later, and less clearly; warn of what may.

    Args:
        command: the program and its arguments.
        base: its environment.

    Raises:
        DeviceError: a limit is too low, or there is no GPU.
        LuthierError: the program is one that no library can stand before, or the run is inside of another one.
    """
    virtual = not isinstance(devices, MachineGpus)
    # A program finds the virtual devices of an outer run as it finds the GPUs of a machine.
    if any(
        os.path.exists(base.get(one, "")) for one in (TOOLS_SOCKET_VARIABLE, *([SOCKET_VARIABLE] if virtual else []))
    ):
        raise LuthierError(
            "this is inside of another `luthier run`, whose devices and tools the program has already: give the outer"
            " one all tools (-t several times), or start this one outside of it"
        )
    check_limits(has_virtual=virtual)
    if isinstance(devices, MachineGpus):
        check_driver(base)
    if problem := unwritable_temporary(base):
        say(f"luthier run: warning: {problem}", file=sys.stderr)
    path = shutil.which(command[0], path=base.get("PATH"))
    if path is not None:
        check_rights(Path(path))
    if not isinstance(devices, MachineGpus) and (unknown := unknown_targets(command[0], devices, base)):
        say(f"luthier run: warning: {unknown}", file=sys.stderr)
    if not os.path.exists(PROCESSORS):  # libhsakmt 5.2.3 then finds no device, and HIP 5.2 crashes without any
        say(
            f"luthier run: warning: there is no {PROCESSORS} here, from which ROCm reads what processors there are: it"
            " may find no device, or crash. Mount /sys",
            file=sys.stderr,
        )


def check_limits(*, has_virtual: bool = True) -> None:
    """Look at the limits of this process, which the program inherits.

    Args:
        has_virtual: whether there are virtual devices, whose memory is in a file.

    Raises:
        DeviceError: one is too low.
    """
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed = SHARED_BYTES + _OTHER_BYTES
    if addresses != resource.RLIM_INFINITY and addresses < needed:
        raise DeviceError(
            f"the limit of addresses (ulimit -v) is {addresses >> 10} KiB, and virtual devices share {needed >> 10} KiB"
            " of addresses with a program, most of them without memory: `ulimit -v unlimited`; memory itself can be"
            " limited by a control group (systemd-run -p MemoryMax=…)"
        )
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < _DESCRIPTORS:
        raise DeviceError(
            f"the limit of open files (ulimit -n) is {files}, and a run needs {_DESCRIPTORS} or more: `ulimit -n 1024`"
        )

    size, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if has_virtual and size != resource.RLIM_INFINITY and size < SHARED_BYTES:
        raise DeviceError(
            f"the limit of the size of files (ulimit -f) is {size >> 10} KiB, and the memory of virtual devices is a"
            f" file of {SHARED_BYTES >> 10} KiB, most of it empty: `ulimit -f unlimited`"
        )


def unwritable_temporary(base: Mapping[str, str]) -> str | None:
    """Return a sentence about the folder for temporary files if nothing can be written there.

    HIP writes code that it compiles to temporary files, and some of its versions crash where it cannot.
    """
    folder = base.get("TMPDIR") or "/tmp"
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_TEMPORARY_BYTES))
            file.flush()
    except OSError as problem:
        why = problem.strerror or problem
        return f"no temporary files can be written to {folder}: {why}. HIP may crash: set TMPDIR to another folder"
    return None


def check_driver(base: Mapping[str, str]) -> None:
    """Look whether this machine has the kernel driver of AMD GPUs, or a run around this one.

    Raises:
        DeviceError: it has not.
    """
    if not os.path.exists(DRIVER) and not os.path.exists(base.get(FILES_VARIABLE, "")):
        raise DeviceError(
            f"there is no AMD GPU here, or no driver of it ({DRIVER}): --device emu:TARGET makes a virtual one"
        )


def check_rights(program: Path) -> None:
    """Look whether a program gets rights of its own when it starts.

    The dynamic loader ignores requests for libraries for such a program (ld.so(8), "Secure-execution mode").

    Raises:
        LuthierError: it does.
    """
    with suppress(OSError):
        status = program.stat()
        is_nosuid = bool(os.statvfs(program).f_flag & os.ST_NOSUID)
        user = status.st_mode & stat.S_ISUID and status.st_uid != os.getuid()
        group = status.st_mode & stat.S_ISGID and status.st_mode & stat.S_IXGRP and status.st_gid != os.getgid()
        capabilities = os.getuid() != 0 and "security.capability" in os.listxattr(program)
        kind = "setuid" if user else "setgid" if group else "file capabilities" if capabilities else None
        if kind is not None and not is_nosuid:
            raise LuthierError(
                f"{program} runs with rights of its own ({kind}), and the system lets nobody choose the libraries of"
                " such a program: run a copy without them, or `luthier run` as the user whose rights it is to have",
                object=str(program),
            )


def unknown_targets(program: str, devices: Sequence[VirtualGpu], base: Mapping[str, str]) -> str | None:
    """Return a sentence about devices whose names the ROCr that the program would load does not have in its table.

    The program may load another one, in a way of its own.
    """
    runtime = find_runtime(base, program)
    names = {device.target.target.name for device in devices}
    if runtime is None or not names:
        return None
    with open(runtime, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as contents:
            unknown = sorted(name for name in names if contents.find(name.encode()) < 0)
    if not unknown:
        return None
    return f"{runtime} does not know {' or '.join(unknown)}: a program that uses this ROCm finds no such device"
