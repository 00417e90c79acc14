"""Checks for problems of a run on this machine, before the program starts.

This module imports nothing slow, since the program starts before the service.
"""

from __future__ import annotations

import mmap
import os
import resource
import shutil
import stat
import struct
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from luthier.errors import DeviceError, LuthierError
from luthier.objects import elf as E
from luthier.objects.place import FileSlice
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
"""Bytes of address space that the service shares with each process of the program."""
_OTHER_BYTES = 8 << 30
"""Bytes of address space that the service needs besides."""
_TEMPORARY_BYTES = 1 << 16
"""Bytes that must fit in temporary files."""
_DESCRIPTORS = 32
"""Open files of the service: a small program under a tool needs 20, and each of its processes some more."""


def check(command: Sequence[str], devices: Devices, base: Mapping[str, str]) -> None:
    """Check for what would make the run fail later with a less clear error, and warn about possible problems.

    Args:
        command: program and its arguments.
        base: its environment.

    Raises:
        DeviceError: a limit is too low, or there is no GPU.
        LuthierError: libraries cannot be preloaded into the program, or the run is inside another one.
    """
    virtual = not isinstance(devices, MachineGpus)
    # To a program, virtual devices of an outer run are GPUs of the machine.
    if any(
        os.path.exists(base.get(one, "")) for one in (TOOLS_SOCKET_VARIABLE, *([SOCKET_VARIABLE] if virtual else []))
    ):
        raise LuthierError(
            "this is inside another `luthier run`, whose devices and tools the program already has: give all tools to"
            " the outer one (-t several times), or start this one outside of it"
        )
    check_limits(has_virtual=virtual)
    if isinstance(devices, MachineGpus):
        check_driver(base)
    if problem := unwritable_temporary(base):
        say(f"luthier run: warning: {problem}", file=sys.stderr)
    path = shutil.which(command[0], path=base.get("PATH"))
    if path is not None:
        check_rights(Path(path))
        if problem := unreachable(Path(path)):
            say(f"luthier run: warning: {problem}", file=sys.stderr)
    if not isinstance(devices, MachineGpus) and (unknown := unknown_targets(command[0], devices, base)):
        say(f"luthier run: warning: {unknown}", file=sys.stderr)
    if not os.path.exists(PROCESSORS):  # then libhsakmt 5.2.3 finds no device, and HIP 5.2 crashes
        say(
            f"luthier run: warning: {PROCESSORS}, from which ROCm reads the processors, is missing: ROCm may find"
            " no device, or crash. Mount /sys",
            file=sys.stderr,
        )


def check_limits(*, has_virtual: bool = True) -> None:
    """Check the limits of this process, which the program inherits.

    Args:
        has_virtual: whether there are virtual devices, whose memory is a file.

    Raises:
        DeviceError: a limit is too low.
    """
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed = SHARED_BYTES + _OTHER_BYTES
    if addresses != resource.RLIM_INFINITY and addresses < needed:
        raise DeviceError(
            f"the limit of address space (ulimit -v) is {addresses >> 10} KiB, but virtual devices share {needed >> 10}"
            " KiB of address space with a program, mostly without pages: use `ulimit -v unlimited`; a control group"
            " (systemd-run -p MemoryMax=…) can limit memory"
        )
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < _DESCRIPTORS:
        raise DeviceError(
            f"the limit of open files (ulimit -n) is {files}, but a run needs {_DESCRIPTORS}: use `ulimit -n 1024`"
        )

    size, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if has_virtual and size != resource.RLIM_INFINITY and size < SHARED_BYTES:
        raise DeviceError(
            f"the limit of file sizes (ulimit -f) is {size >> 10} KiB, but the memory of virtual devices is a file of"
            f" {SHARED_BYTES >> 10} KiB, mostly empty: use `ulimit -f unlimited`"
        )


def unwritable_temporary(base: Mapping[str, str]) -> str | None:
    """Return a sentence if nothing can be written to the folder for temporary files.

    HIP writes code that it compiles to temporary files; some versions crash if that fails.
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
    """Check that this machine has the kernel driver of AMD GPUs, or an outer run provides one.

    Raises:
        DeviceError: there is none, or it must not be opened.
    """
    if os.path.exists(base.get(FILES_VARIABLE, "")):
        return
    if not os.path.exists(DRIVER):
        raise DeviceError(
            f"there is no AMD GPU, or its driver is missing ({DRIVER}): --device emu:TARGET provides a virtual one"
        )
    if not os.access(DRIVER, os.R_OK | os.W_OK):
        raise DeviceError(
            f"no permission to open {DRIVER}: add your user to the groups that own it and /dev/dri/renderD*, usually"
            " `sudo usermod -aG render,video $USER`, and log in again"
        )


def check_rights(program: Path) -> None:
    """Check that a program gets no privileges of its own when it starts.

    The dynamic loader ignores preloaded libraries for such a program (ld.so(8), "Secure-execution mode").

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
                f"{program} runs with privileges of its own ({kind}), so the system ignores preloaded libraries: run a"
                " copy without them, or start `luthier run` as the user whose privileges it needs",
                object=str(program),
            )


def unreachable(program: Path) -> str | None:
    """Return a sentence about a program into which no library can be loaded; it may start others."""
    with suppress(OSError, LuthierError):
        data = FileSlice.of_file(program, str(program)).view
        if data[:5] == E.ELF_MAGIC + b"\1":
            return f"{program} is a 32-bit program, which cannot use ROCm: only programs that it starts are seen"
        segments = E.ElfFile(data, "").segments if data[:4] == E.ELF_MAGIC else []
        if segments and not any(segment.type == E.PT_INTERP or _has_soname(data, segment) for segment in segments):
            return f"{program} is statically linked, so it loads no ROCm library: only programs that it starts are seen"
    return None


def _has_soname(data: memoryview, segment: E.SegmentHeader) -> bool:
    """Return whether a segment names a library. The only one without an interpreter that runs is the dynamic loader."""
    entries = data[segment.offset :][: segment.filesz] if segment.type == E.PT_DYNAMIC else b""
    return any(tag == E.DT_SONAME for tag, _ in struct.iter_unpack("<qQ", entries[: len(entries) & ~15]))


def unknown_targets(program: str, devices: Sequence[VirtualGpu], base: Mapping[str, str]) -> str | None:
    """Return a sentence about devices that the ROCr that the program would load does not list.

    The program may load another ROCr in its own way.
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
    return f"{runtime} does not support {' or '.join(unknown)}: a program that uses this ROCm finds no such device"
