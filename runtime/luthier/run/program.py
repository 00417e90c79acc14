"""Run a program on virtual devices: its environment, start and end.

The program starts before the service is imported, since the import takes longer than a program needs to ask for it.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luthier.cache.folder import bounded_folder
from luthier.errors import DeviceError, LuthierError
from luthier.run import preflight, topology
from luthier.run.device_choice import Devices
from luthier.run.machine_gpus import MachineGpus
from luthier.support.losses import lacking, note_loss
from luthier.support.private_folder import private_folder
from luthier.support.processes import FORWARDED, LEFT_TO_OTHERS, forwarded_signals, start, wait
from luthier.support.shortage import shortage
from luthier.support.threads import Worker
from luthier.terminal import say, say_text
from luthier.wire.messages import SOCKET_VARIABLE, TOOLS_SOCKET_VARIABLE
from luthier.wire.topology import COMPILATIONS_VARIABLE, FILES_VARIABLE

if TYPE_CHECKING:
    from luthier.run.captures import Captures
    from luthier.run.executed import Executed
    from luthier.run.findings.collector import Collector
    from luthier.run.instrumentation import Instrumentation
    from luthier.run.long_launches import LongLaunch
    from luthier.run.sampling import LaunchSampler
    from luthier.run.service import Service
    from luthier.run.virtual_gpus import VirtualGpu

ENDED = 124
"""Exit code of a program that exceeded its time limit, as for timeout(1)."""
LIBRARY = "libluthier_kfd.so"
TOOL_LIBRARY = "libluthier_tools.so"
SANITIZER_LIBRARY = "libluthier_sanitizer.so"
SYSTEM_CALL_LIBRARY = "libluthier_system_calls.so"
_LIBRARIES, _SERVICE, _TOOLS_SERVICE, _DRIVER = "libraries", "service", "tools", "driver"
"""Names in the private folder of a run."""
_MOST_COMPILED = 256 << 20
"""The most bytes of kept compilations of ROCm's runtimes. An entry of HIP's copy kernels has some megabytes."""
_FROM_OUTSIDE = (*FORWARDED, *LEFT_TO_OTHERS, signal.SIGKILL, signal.SIGXCPU)
"""Signals that stop a program from outside. It raises others, such as that of `abort`, itself."""


def library_folder() -> Path:
    """Return the folder of the native libraries.

    Raises:
        DeviceError: a library is missing.
    """
    folder = Path(__file__).parent / "native"
    for library in (LIBRARY, TOOL_LIBRARY, SANITIZER_LIBRARY, SYSTEM_CALL_LIBRARY):
        if not (folder / library).exists():
            needs = "it needs libhsa-runtime-dev and g++"
            raise DeviceError(f"{folder / library} is missing: build it with `make setup` ({needs})")
    return folder


def environment(
    base: Mapping[str, str],
    folder: Path,
    *,
    virtual: bool = True,
    tools: bool,
    checked: bool = False,
    in_flight: bool = False,
    ranges: bool = False,
    memory: bool = False,
) -> dict[str, str]:
    """Return the program's environment, with preloaded libraries and the sockets of the service.

    Args:
        folder: result of `private_folder`, with a link to the libraries and the kernel driver's files.
        virtual: whether its devices are virtual; otherwise there is no shim.
        tools: whether ROCr loads the tool library.
        checked: whether the program's allocations are reported for checks.
        in_flight: whether the host's accesses of memory in flight are.
        ranges: whether its marks and ranges (roctx) are wanted.
        memory: whether allocations are reported to tools.
    """
    result = dict(base)
    earlier = result.get("LD_PRELOAD")
    first = [
        *([LIBRARY] if virtual else []),
        *([SANITIZER_LIBRARY] if checked or memory else []),
        *([SYSTEM_CALL_LIBRARY] if in_flight else []),
        *([TOOL_LIBRARY] if ranges or memory else []),
    ]
    ours = [str(folder / _LIBRARIES / library) for library in first]
    if ours:
        result["LD_PRELOAD"] = os.pathsep.join([*ours, *([earlier] if earlier else [])])
    if virtual:
        result[FILES_VARIABLE] = str(folder / _DRIVER)
        result[SOCKET_VARIABLE] = str(folder / _SERVICE)
        result[COMPILATIONS_VARIABLE] = str(bounded_folder("compilations", _MOST_COMPILED) or "")
        # Open MPI overwrites `mmap`, even the shim's, with code that calls the kernel.
        result.setdefault("OMPI_MCA_memory", "^patcher")
    if tools:
        result[TOOLS_SOCKET_VARIABLE] = str(folder / (_TOOLS_SERVICE if virtual else _SERVICE))
        earlier = result.get("HSA_TOOLS_LIB")
        # ROCr separates tools by spaces and calls the last one first.
        result["HSA_TOOLS_LIB"] = " ".join([*([earlier] if earlier else []), str(folder / _LIBRARIES / TOOL_LIBRARY)])
        # With rocprofiler-register, ROCr ignores tools in that variable unless this is set.
        result["HSA_TOOLS_ROCPROFILER_V1_TOOLS"] = "1"
    return result


class Later:
    """The tools of a run, created on first use by any thread, since importing the instrumentation takes longer than a
    program needs to ask for it.

    Args:
        watches_memory: value of the same property of the instrumentation.
    """

    def __init__(self, make: Callable[[], Instrumentation], *, watches_memory: bool = False) -> None:
        self._make = make
        self.watches_memory = watches_memory
        self._made: Instrumentation | None = None
        self._lock = threading.Lock()

    def get(self) -> Instrumentation:
        """Return the instrumentation, created at the first call."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made


def run_program(
    command: Sequence[str],
    devices: Devices,
    tools: Instrumentation | Later | None = None,
    executed: Executed | None = None,
    captures: Captures | None = None,
    findings: Collector | None = None,
    sampler: LaunchSampler | None = None,
    *,
    seconds: float | None = None,
    ranges: bool = False,
    debugger: bool = False,
    unfinished: Unfinished | None = None,
) -> int:
    """Run a program and return its exit code, or minus the number of the signal that killed it.

    The program has the standard input and output of this process.

    Args:
        tools: tools to run it under; they contain the results afterwards.
        executed: receives the counts of virtual devices; GPUs do not count.
        captures: receives launches with the memory that they may access.
        findings: receives findings of checks, which virtual devices then perform.
        sampler: chooses launches that virtual devices measure, and receives their work.
        seconds: time limit, after which the program is stopped and the exit code is `ENDED`.
        ranges: whether the recorder wants the program's ranges (roctx), for itself or for stacks of launches.
        debugger: whether ROCm's debugger may attach to the program; its devices must be virtual.
        unfinished: receives what was stopped, if anything was.

    Raises:
        DeviceError: the native library was not built, or a limit is too low.
        LuthierError: the program cannot be started.
    """
    libraries = library_folder()
    preflight.check(command, devices, os.environ)
    virtual = [] if isinstance(devices, MachineGpus) else devices
    seen = devices.environment(os.environ) if isinstance(devices, MachineGpus) else {}
    unfinished = unfinished or Unfinished()
    with private_folder() as folder, _listening(folder) as listeners, forwarded_signals() as (forward_to, received):
        with lacking(f"cannot write the files of a run to {folder.parent}"):
            # The link's path fits in lists of environment variables, wherever Luthier is installed.
            (folder / _LIBRARIES).symlink_to(libraries.absolute())
            if virtual:
                topology.write(folder / _DRIVER, virtual, debugger=debugger)
        child = start(
            command,
            env=environment(
                {**os.environ, **seen},
                folder,
                virtual=bool(virtual),
                tools=tools is not None,
                checked=findings is not None,
                in_flight=findings is not None and _watches_copies(findings),
                ranges=ranges,
                memory=tools is not None and tools.watches_memory,
            ),
        )
        forward_to(child.send_signal)
        _allow_files()
        imported = threading.Event()
        services: list[Service] = []
        arguments = listeners, virtual, tools, executed, captures, findings, sampler, imported, services
        Worker(_serve, *arguments)
        code = wait(child, seconds)
        if tools is not None:  # using the tools imports NumPy, which two threads must not do concurrently
            imported.wait()
        if code is None:
            say(f"luthier run: the program was stopped after {seconds:g} seconds (--time-limit)", file=sys.stderr)
        launches = [launch for service in services for launch in service.settle()]
        was_ended = code is None or -code in _FROM_OUTSIDE
        if was_ended or received:
            unfinished.take(launches, is_program=was_ended)
        return ENDED if code is None else code


def _watches_copies(findings: Collector) -> bool:
    """Return whether the check `in-flight` is wanted."""
    from luthier.findings.kinds import kinds_of_check  # runs without checks do without it

    return not findings.kinds.isdisjoint(kinds_of_check("in-flight"))


@dataclass
class Unfinished:
    """Launches, or a whole program, that a time limit or a signal stopped."""

    program: bool = False
    launches: Sequence[LongLaunch] = ()

    def take(self, launches: Sequence[LongLaunch], *, is_program: bool) -> None:
        """Record what was stopped, and print what the launches were doing."""
        self.program, self.launches = is_program, launches
        for launch in launches:
            from luthier.run.long_launches import say_lines  # few runs need it

            begin = f"luthier run: kernel {launch.kernel} of process {launch.process}"
            say(f"{begin} had not ended after {launch.seconds} s", file=sys.stderr)
            say_lines(launch)

    @property
    def what(self) -> str:
        """Return what was stopped, for a sentence; "" if nothing was."""
        names = list(dict.fromkeys(f"kernel {launch.kernel}" for launch in self.launches))
        return " and ".join(names) or ("the program" if self.program else "")

    def to_json(self) -> list[dict[str, Any]]:
        """Return the launches as plain data."""
        return [launch.to_json() for launch in self.launches]


def _allow_files() -> None:
    """Raise this process's limit of open files to its maximum, since each process of the program needs some.

    The program keeps its original limit.
    """
    with suppress(OSError, ValueError):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _close(listeners: Sequence[socket.socket]) -> None:
    for listener in listeners:
        listener.close()


@contextmanager
def _listening(folder: Path) -> Iterator[list[socket.socket]]:
    """Open the service's sockets: for the first connection of each process, and for those of tools."""
    with ExitStack() as opened:
        listeners = []
        for name in (_SERVICE, _TOOLS_SERVICE):
            listener = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(str(folder / name))
            listener.listen(128)
            listener.setblocking(False)
            listeners.append(listener)
        yield listeners
        for listener in listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def _serve(
    listeners: Sequence[socket.socket],
    devices: Sequence[VirtualGpu],
    tools: Instrumentation | Later | None,
    executed: Executed | None,
    captures: Captures | None,
    findings: Collector | None,
    sampler: LaunchSampler | None,
    imported: threading.Event,
    services: list[Service],
) -> None:
    """Run the service. If that fails, programs notice a closed socket, and the user a message.

    Args:
        imported: set when service and tools are imported, or cannot be.
        services: receives the service.
    """
    try:
        try:
            from luthier.run.service import Service

            made = tools.get() if isinstance(tools, Later) else tools
        finally:
            imported.set()
        if made is not None:
            # Before a launch needs them. What patches is imported for the first kernel that is not in the cache.
            import luthier.lifting.lifter
            import luthier.patch.output.companion
            import luthier.tool.task  # noqa: F401
        services.append(Service(devices, made, executed, captures, findings, sampler))
        services[0].serve(listeners[0], listeners[1:])
    except LuthierError as problem:
        say_text(f"luthier run: error: {problem}", file=sys.stderr)
        note_loss(f"the program's work on devices: {problem}")
        _close(listeners)
    except BaseException as problem:  # programs must not wait for replies
        text = shortage(problem)
        if text is not None:  # recorded before the program can end
            note_loss(f"the results of the program's processes: {text}")
        _close(listeners)
        if text is None:
            raise  # a bug in Luthier
