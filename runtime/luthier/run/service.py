"""The service of a run: plans and binds kernels for every process of the program, over a private Unix socket."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.constants import inline_bytes
from luthier.emulator.native.machine import machine_code
from luthier.emulator.running import start as abi
from luthier.errors import DeviceError, LackError, LuthierError, ObjectError, UnfinishedError
from luthier.findings.floats import has_flow, looked_for
from luthier.findings.kinds import FLOAT_KINDS, OBSERVED, UNDEFINED, FindingKind, kinds_of_check
from luthier.objects.descriptor import DESCRIPTOR_SIZE
from luthier.objects.loaded_image import file_of_image
from luthier.run import protocol
from luthier.run.code_uris import read_uri
from luthier.run.executed import Executed
from luthier.run.long_launches import LongLaunch, LongLaunches
from luthier.run.planner import Plan, PlannedCode, Planner
from luthier.run.protocol import Reader, Writer
from luthier.run.space import BASE, CODE_SIZE, IMPORTS, SIZE, SharedSpace
from luthier.run.virtual_gpus import VirtualGpu
from luthier.support.losses import note_loss
from luthier.support.shortage import shortage
from luthier.support.threads import Worker
from luthier.terminal import say, say_text, visible_lines
from luthier.wire import messages
from luthier.wire.messages import Request

if TYPE_CHECKING:  # what few runs need
    from luthier.findings.collector import KernelCode
    from luthier.run.captures import Captures
    from luthier.run.findings.collector import Collector
    from luthier.run.instrumentation import Instrumentation
    from luthier.run.sessions import Session
    from luthier.run.watching import Watching

_CROWDED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""Errors of accept(2) after which there may be room again."""
_PAUSE = 0.05
"""Seconds until the next try."""
_FILES_OF_A_PROCESS = 6
"""Open files that a process of the program takes here: two connections, and memory shared with it."""
_Counts = NDArray[np.int64]
_COUNTS = np.dtype([(name, "<u8") for name in messages.RecordCounts.field_names()])


def _read_memory(pid: int, address: int, size: int) -> bytes:
    from luthier.run.process_memory import read_memory  # few runs need it

    return read_memory(pid, address, size)


def _read_file(uri: str, pid: int) -> bytes:
    """Return a code object by its URI; nothing where it cannot be read: then the process asks again with its memory."""
    with contextlib.suppress(ObjectError):
        return read_uri(uri, pid)
    return b""


def _refusal(pid: int, problem: LuthierError) -> Writer:
    """Return the reply to a request that is refused; where the system lacked something, what was asked for is lost."""
    if isinstance(problem, LackError):
        note_loss(f"what process {pid} asked for: {problem}")
    return Writer().number(1).text(visible_lines(str(problem)))


def _limit() -> int:
    """Return how many files this process may have open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def _has(file: int, size: int) -> bool:
    """Return whether a descriptor is of a file of so many bytes."""
    status = os.fstat(file)
    return stat.S_ISREG(status.st_mode) and status.st_size >= size


class _Shared:
    """Memory that one process shares with others: its file, and its size."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size


_PATIENCE = 3.0
"""Seconds for what processes have told that are gone."""


class _Counting(Struct):
    """Counts that a process has told before its end."""

    pid: int
    told: bytes = b""
    """The last message; empty: none came."""
    time: float = 0
    ended: float | None = None
    """When its connection was closed."""


class Service:
    """Answers the processes of a program, each connection on a thread of its own.

    Raises:
        DeviceError: the host does not allow what it needs.
    """

    def __init__(
        self,
        devices: Sequence[VirtualGpu],
        instrumentation: Instrumentation | None = None,
        executed: Executed | None = None,
        captures: Captures | None = None,
        findings: Collector | None = None,
    ) -> None:
        self._devices = devices
        self._instrumentation = instrumentation
        self._executed = executed
        self._captures = captures
        self._findings = findings
        self._space = SharedSpace()
        machine_code().load_into(self._space)
        self._wanted = frozenset[str]() if findings is None else findings.kinds
        # What `init` fills memory with is not told as exceptional.
        is_filled = "uninitialised-read" in self._wanted and not self._wanted.isdisjoint(FLOAT_KINDS)
        self._undefined = is_filled or not self._wanted.isdisjoint(UNDEFINED)
        self._planner = Planner(
            self._space,
            observed=not self._wanted.isdisjoint(OBSERVED),
            waits=not self._wanted.isdisjoint(kinds_of_check("waits")),
            hazards=not self._wanted.isdisjoint(kinds_of_check("hazards")),
            floats=looked_for(self._wanted),
            undefined=self._undefined,
        )
        self._lock = threading.Lock()
        self._shared: dict[int, _Shared] = {}
        self._last_shared = 0
        self._is_crowded = False
        self._long_launches = LongLaunches()
        self._conversations: list[tuple[int, Worker]] = []
        """Threads that answer processes; those that have ended go when another one begins."""
        self._counting: dict[socket.socket, _Counting] = {}
        """By connection: the processes that have not told of all that they executed."""

    # Connections ----------------------------------------------------------------------------------------------------

    def serve(self, first: socket.socket, further: Sequence[socket.socket] = ()) -> None:
        """Take connections until a listener is closed; wait where the system lacks what one more needs.

        Args:
            first: takes the first connection of each process. While there may be too few files for one more process,
                none is taken: else all processes would have one connection, and none what it needs beside that.
            further: take others of processes that have one.
        """
        own = len(os.listdir("/proc/self/fd"))
        processes: list[Worker] = []
        while True:
            processes = [process for process in processes if process.is_alive()]
            has_room = not processes or own + _FILES_OF_A_PROCESS * (len(processes) + 1) <= _limit()
            if not has_room:
                self._say_crowded(f"ulimit -n {_limit()}")
            waiting = select.poll()  # select(2) takes no descriptor from 1,024 on
            try:
                for listener in (*further, *([first] if has_room else ())):
                    waiting.register(listener, select.POLLIN)
            except ValueError:  # it is closed
                return
            ready = {descriptor for descriptor, _ in waiting.poll(None if has_room else _PAUSE * 1000)}
            for listener in (*further, first):
                if listener.fileno() not in ready:
                    continue
                try:
                    connection, _ = listener.accept()
                except OSError as problem:
                    if problem.errno in (errno.ECONNABORTED, errno.EAGAIN):  # its process has gone already
                        continue
                    if problem.errno not in _CROWDED:
                        return
                    self._say_crowded(f"{problem.strerror} (ulimit -n {_limit()})")
                    time.sleep(_PAUSE)
                    continue
                thread = self._take(connection)
                if thread is not None and listener is first:
                    processes.append(thread)

    def _take(self, connection: socket.socket) -> Worker | None:
        """Begin to answer a process; return the thread. None: it is another user's, or has lost its service."""
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, user, _ = struct.unpack("3i", credentials)
        if user != os.geteuid():
            connection.close()
            return None
        while (thread := self._begin(connection, pid)) is None:
            time.sleep(_PAUSE)
        if thread:
            self._conversations.append((pid, thread))
        return thread or None

    def _begin(self, connection: socket.socket, pid: int) -> Worker | Literal[False] | None:
        """Return a thread that answers a process; None: there may be room for it when others have ended; False: there
        is none, and the process has lost its service."""
        self._conversations = [one for one in self._conversations if one[1].is_alive()]
        try:
            return Worker(self._serve, connection, pid)
        except UnfinishedError as problem:
            if self._conversations:
                self._say_crowded(str(problem))
                return None
            connection.close()
            note_loss(f"what process {pid} was to tell: {problem}")
            return False

    def _say_crowded(self, why: str) -> None:
        """Say once that processes must wait until others have ended."""
        if not self._is_crowded:
            self._is_crowded = True
            say(f"luthier run: warning: processes wait until others have ended: {why}", file=sys.stderr)

    def _serve(self, connection: socket.socket, pid: int) -> None:
        """Answer a process; `pid` is its number here, whatever it is in a namespace of its own, or 0: it has none."""
        sessions: list[Session] = []
        shared, held = set[int](), set[int]()
        counting: list[_Counting] = []
        try:
            self._converse(connection, pid, sessions, shared, held, counting)
        finally:
            self._unshare(shared)
            for counts in counting:
                counts.ended = time.monotonic()
            if connection not in self._counting:  # else its codes are wanted at the end
                self._planner.let_go(held)
            for session in sessions:
                if self._instrumentation is not None:
                    self._instrumentation.disconnect(session)

    def _converse(
        self,
        connection: socket.socket,
        pid: int,
        sessions: list[Session],
        shared: set[int],
        held: set[int],
        counting: list[_Counting],
    ) -> None:
        told, is_known = 0, False
        with connection, contextlib.suppress(OSError):
            while True:
                try:
                    message = protocol.receive(connection)
                    if message is None:
                        return
                    kind, payload, descriptors = message
                except LuthierError:
                    return
                reply, sent = Writer(), list[int]()
                try:
                    reply.number(0)
                    if kind < Request.INSTRUMENT:
                        if kind == Request.HELLO:
                            body = self._hello(Reader(payload))
                            sent, is_known = [self._space.fd], True
                            if self._executed is not None:
                                self._counting[connection] = _Counting(pid)
                                counting.append(self._counting[connection])
                        elif not is_known:
                            raise protocol.ProtocolError(f"a message of kind {kind} before the first")
                        elif kind in (Request.CAPTURE, Request.CAPTURED) and self._captures is not None:
                            body = self._captures.answer(kind, pid, Reader(payload), self._devices, self._planner)
                        elif kind == Request.FOUND:
                            body = self._found(pid, Reader(payload))
                        elif kind == Request.FOUND_COPY:
                            body = self._found_copy(pid, Reader(payload))
                        elif kind == Request.FOUND_CALL:
                            body = self._found_call(pid, Reader(payload))
                        elif kind == Request.FOLLOW:
                            body = self._follow(Reader(payload))
                        elif kind == Request.WATCHED:
                            body = self._watched(pid, Reader(payload))
                        elif kind == Request.RUNNING:
                            body = self._running(connection, pid, Reader(payload))
                        elif kind == Request.COUNTS:
                            body = self._count_of(connection, payload)
                        elif kind == Request.HOT:
                            body = self._hot(pid, Reader(payload))
                        elif kind == Request.PLAN:
                            body = self._plan(pid, Reader(payload), held)
                        else:
                            body, sent = self._answer(kind, pid, Reader(payload), descriptors, shared)
                        imports = [] if kind == Request.HELLO else self._space.imports[told:]
                        told += len(imports)
                        reply.number(len(imports))
                        for name in imports:
                            reply.text(name)
                    elif self._instrumentation is None:
                        raise DeviceError("no tools in this run")
                    elif not sessions and kind != Request.INSTRUMENT:
                        raise protocol.ProtocolError(f"a message of kind {kind} before the first")
                    elif not sessions:
                        session, body, sent = self._instrumentation.connect(
                            pid, Reader(payload), len(self._devices) or None
                        )
                        sessions.append(session)
                    else:
                        body, sent = self._instrumentation.answer(sessions[0], kind, Reader(payload), descriptors)
                    reply.data += body.data
                except LuthierError as problem:
                    reply = _refusal(pid, problem)
                except Exception as problem:  # it is reported to the program, and its process goes on
                    lack = shortage(problem) or (problem.strerror if isinstance(problem, OSError) else None)
                    if lack is not None:
                        reply = _refusal(pid, LackError(lack))
                    else:  # a bug of ours
                        import traceback

                        say_text(traceback.format_exc(), file=sys.stderr, end="")
                        reply = Writer().number(1).text(f"the Luthier service failed: {problem!r}")
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)
                protocol.send(connection, bytes(reply.data), sent)

    # Answers --------------------------------------------------------------------------------------------------------

    def _answer(
        self, kind: int, pid: int, request: Reader, descriptors: list[int], shared: set[int]
    ) -> tuple[Writer, list[int]]:
        if kind == Request.BIND:
            wanted = request.numbers(messages.Bind)
            self._planner.bind(wanted.kernel, wanted.key, wanted.record)
            return Writer(), []
        if kind == Request.OUTSIDE:
            return self._outside(pid, request), []
        if kind == Request.EXPLAIN:
            return Writer().text(visible_lines(self._explain(pid, request))), []
        if kind == Request.SHARE:
            size = request.number()
            if size == 0:
                self._unshare(shared & {request.number()})
                return Writer(), []
            if len(descriptors) != 1 or not _has(descriptors[0], size):
                raise protocol.ProtocolError("shared memory without its file")
            with self._lock:
                self._last_shared += 1
                self._shared[self._last_shared] = _Shared(os.dup(descriptors[0]), size)
                shared.add(self._last_shared)
            return Writer().number(self._last_shared), []
        if kind == Request.ATTACH:
            memory = self._shared.get(request.number())
            if memory is None:
                raise DeviceError("a handle of memory that nobody shares")
            return Writer().number(memory.size), [memory.fd]
        raise protocol.ProtocolError(f"a message of kind {kind}")

    def _unshare(self, names: set[int]) -> None:
        """Forget memory that its process has given back, or whose process has ended."""
        for name in names:
            with self._lock:
                if (memory := self._shared.pop(name, None)) is not None:
                    os.close(memory.fd)

    def _kernel(self, number: int) -> KernelCode:
        """Return the code of a kernel that something was found in, by the number of its plan."""
        from luthier.run.findings.collector import code_of  # few runs need it

        if number not in self._planner.plans:
            raise protocol.ProtocolError("a finding in a kernel that was never planned")
        return code_of(self._planner.plans[number])

    def _found(self, pid: int, request: Reader) -> Writer:
        if self._findings is None:
            raise protocol.ProtocolError("findings that nobody asked for")
        seen = request.numbers(messages.Sighting)
        of_host = (FindingKind.DOUBLE_FREE, FindingKind.INVALID_FREE, FindingKind.LEAK)
        code = None if seen.kind in of_host else self._kernel(seen.kernel)
        other = self._kernel(seen.other_kernel) if seen.has_launch else None
        self._findings.add(pid, seen, code, other, [_sites(request) for _ in range(3)])
        return Writer()

    def _found_copy(self, pid: int, request: Reader) -> Writer:
        if self._findings is None:
            raise protocol.ProtocolError("findings that nobody asked for")
        seen = request.numbers(messages.Sighting)
        function, symbol, file = (os.fsdecode(request.string()) for _ in range(3))
        self._findings.add_copy(pid, seen, self._kernel(seen.kernel), function, symbol, file)
        return Writer()

    def _found_call(self, pid: int, request: Reader) -> Writer:
        if self._findings is None:
            raise protocol.ProtocolError("findings that nobody asked for")
        seen = request.numbers(messages.CallSighting)
        function, symbol, file = (os.fsdecode(request.string()) for _ in range(3))
        self._findings.add_call(pid, seen, function, symbol, file, [_sites(request) for _ in range(2)])
        return Writer()

    def _watching(self, kernel: int) -> Watching:
        """Return what checks the waits and hazards of a kernel, by the number of its plan."""
        plan = self._planner.plans.get(kernel)
        if plan is None or plan.code.watching is None:
            raise protocol.ProtocolError("waits and hazards of a kernel that are not checked")
        return plan.code.watching

    def _follow(self, request: Reader) -> Writer:
        wanted = request.numbers(messages.Follow)
        return Writer().string(self._watching(wanted.kernel).follow(wanted.state, wanted.record))

    def _watched(self, pid: int, request: Reader) -> Writer:
        launch = request.numbers(messages.Watched)
        watching = self._watching(launch.kernel)
        if self._findings is None:
            raise protocol.ProtocolError("findings that nobody asked for")
        for seen in watching.sightings(request.string(), request.string()):
            self._findings.add_pair(pid, seen, self._kernel(launch.kernel), launch.launch)
        return Writer()

    def _running(self, connection: socket.socket, pid: int, request: Reader) -> Writer:
        running = request.numbers(messages.Running)
        if not running.groups:
            self._long_launches.forget(connection)
            return Writer()
        if running.kernel not in self._planner.plans:
            raise protocol.ProtocolError("a launch of a kernel that was never planned")
        places = [request.numbers(messages.RunningPlace) for _ in range(running.places)]
        plan = self._planner.plans[running.kernel]
        counts = np.zeros(plan.code.code.count, np.int64)
        for planned, record, executions, _ in self._counted(request):
            if planned is plan.code:
                known = record < len(counts)  # the code may have become longer meanwhile
                counts[record[known]] = executions[known]
        self._long_launches.tell(connection, pid, running, places, plan, counts)
        return Writer()

    def _hot(self, pid: int, request: Reader) -> Writer:
        from luthier.emulator.running import hot  # short programs have no use for it

        for planned, record, executions, _ in self._counted(request):
            counts = np.zeros(planned.code.count, np.uint64)
            known = record < len(counts)
            counts[record[known]] = executions[known]
            hot.heat(planned.code).look(counts)
        return Writer()

    def _counted(self, request: Reader) -> Iterator[tuple[PlannedCode, _Counts, _Counts, _Counts]]:
        """Yield each code with its records that were executed, how often, and the lanes."""
        for _ in range(request.number()):
            counted = request.numbers(messages.CodeCounts)
            rows = np.frombuffer(request.take(counted.records * _COUNTS.itemsize), _COUNTS)
            if counted.code not in self._planner.codes:
                raise protocol.ProtocolError("counts of code that was never planned")
            planned = self._planner.codes[counted.code]
            if len(rows) and rows["record"].max() >= planned.code.count:
                raise protocol.ProtocolError("counts of code that was never planned")
            record, executions, lanes = (rows[name].astype(np.int64) for name in ("record", "executions", "lanes"))
            yield planned, record, executions, lanes

    def _count_of(self, connection: socket.socket, payload: bytes) -> Writer:
        """Take what a process has executed: at its end, or so far, which counts if it is killed before."""
        if self._executed is None:
            raise protocol.ProtocolError("counts that nobody asked for")
        request = Reader(payload)
        if request.number():
            self._count(self._executed, request)
            self._counting.pop(connection, None)
        elif counting := self._counting.get(connection):
            counting.told, counting.time = payload, time.monotonic()
        return Writer()

    def settle(self) -> list[LongLaunch]:
        """Return the launches that had not ended when their processes told last, now that the program has ended.

        What is known of the executed instructions of processes that did not come to their end is added.
        """
        patient_until = time.monotonic() + _PATIENCE
        for pid, thread in self._conversations:
            if not os.path.exists(f"/proc/{pid}"):  # what it has told is to be heard
                thread.join(max(0.0, patient_until - time.monotonic()))
        for counting in list(self._counting.values()):
            assert self._executed is not None
            state = "is still running" if counting.ended is None else "was ended"
            if not counting.told:
                self._executed.notes.append(f"process {counting.pid} {state} and has not told what it executed")
                continue
            request = Reader(counting.told)
            request.number()
            self._count(self._executed, request)
            before = (counting.ended or time.monotonic()) - counting.time
            self._executed.notes.append(
                f"process {counting.pid} {state} and has not told all that it executed: "
                f"counted is what it had {before:.1f} s before"
            )
        self._counting.clear()
        return self._long_launches.unfinished()

    def _count(self, executed: Executed, request: Reader) -> None:
        for planned, record, executions, lanes in self._counted(request):
            addresses = planned.code.addresses()[record]
            own = np.ones(len(record), np.bool_)
            for other in planned.others.values():
                there = (record >= other.records.start) & (record < other.records.stop)
                own &= ~there
                executed.add(other.object, addresses[there] - other.distance, executions[there], lanes[there])
            executed.add(planned.object, addresses[own], executions[own], lanes[own])

    def _hello(self, request: Reader) -> Writer:
        """Return the reply that describes the devices to a process."""
        protocol.agree(request, "the virtual device (libluthier_kfd.so)")
        setup = messages.Setup(
            base=BASE,
            size=SIZE,
            code_size=CODE_SIZE,
            imports=IMPORTS,
            shared_base=abi.SHARED_BASE,
            private_base=abi.PRIVATE_BASE,
            counts_wanted=self._executed is not None,
            capture_patience=0 if self._captures is None else round(1000 * self._captures.patience),
            races="race" in self._wanted,
            uninitialised="uninitialised-read" in self._wanted,
            barriers=not self._wanted.isdisjoint(kinds_of_check("barrier") | kinds_of_check("early-exit")),
            floats_flow=has_flow(self._wanted),
            undefined=self._undefined,
            findings=self._findings is not None,
            gpus=len(self._devices),
        )
        reply = Writer().numbers(setup).string(inline_bytes())
        for device in self._devices:
            reply.text(device.target.target.name).numbers(device.facts)
        return reply

    def _plan(self, pid: int, request: Reader, held: set[int]) -> Writer:
        wanted = request.numbers(messages.Plan)
        address, load_address, is_file = wanted.kernel, wanted.load_address, wanted.is_file
        descriptor, uri, contents = request.string(), request.text(), request.string()
        if wanted.gpu >= len(self._devices) or len(descriptor) != DESCRIPTOR_SIZE:
            raise protocol.ProtocolError("a malformed request for a plan")
        target = self._devices[wanted.gpu].target
        patched = self._instrumentation and self._instrumentation.companion_at(pid, wanted.gpu, load_address)
        plan: Plan | None
        variables: list[messages.Bounds] = []
        unknown = ""
        is_patched = patched and is_file and patched.kernel.descriptor_address == address
        if is_file and not is_patched:
            contents = contents or _read_file(uri, pid)
        with self._planner.holding(held) as hold:
            if patched and is_patched:
                name = f"{patched.object.name}, patched"
                plan = self._planner.plan_code(target, patched.kernel, name, patched.code())
                plan.code.code.origin = patched.origin
                unknown = "tools have changed the kernel"
            elif is_file:
                plan = self._planner.plan_file(target, address, load_address, uri, contents, partial(_read_memory, pid))
                if plan is not None and self._findings is not None:
                    self._findings.arguments.takes(plan.kernel)
                    assert plan.code.object is not None
                    variables = self._findings.variables.of(pid, plan.code.object, load_address)
            else:
                plan = self._planner.plan_memory(target, address, descriptor, load_address, contents)
                if plan.code.object is not None:  # else a kernel that ROCr itself brings
                    unknown = "its file is gone"
            if self._findings is not None and unknown and plan is not None:
                self._findings.without_variables(pid, plan, unknown)
            reply = Writer().number(0 if plan is None else hold(plan).address, len(variables))
            for variable in variables:
                reply.numbers(variable)
            return reply

    def _outside(self, pid: int, request: Reader) -> Writer:
        wanted = request.numbers(messages.Outside)
        uri, contents = request.text(), request.string()
        if wanted.gpu >= len(self._devices):
            raise protocol.ProtocolError("a malformed request for code of another object")
        target, place = self._devices[wanted.gpu].target, (wanted.code, wanted.address, wanted.load_address)
        if wanted.is_file:
            contents = contents or _read_file(uri, pid)
        else:
            uri, contents = "memory", file_of_image(contents) or contents
        record = self._planner.find_outside(target, wanted.kernel, *place, uri, contents)
        return Writer().number((1 << 64) - 1 if record is None else record)

    def _explain(self, pid: int, request: Reader) -> str:
        from luthier.run.faults import describe  # few runs need it
        from luthier.run.host_places import host_place

        fault = request.numbers(messages.Explain)
        context, group, waves, ranges = (request.string() for _ in range(4))
        if fault.kernel not in self._planner.plans or len(ranges) % layout.RANGE.size:
            raise protocol.ProtocolError("a malformed report of a fault")
        plan = self._planner.plans[fault.kernel]
        rows = np.frombuffer(ranges, layout.RANGE.dtype)
        place = partial(host_place, pid)
        error = describe(fault.reason, plan.kernel.name, plan.code.code, context, group, waves, rows, place)
        is_sighted = error.wrong is not None and error.wrong.space == "memory"
        if self._findings is not None and not is_sighted:
            record = None if error.offset is None else plan.code.code.record_at(error.offset)
            self._findings.add_fault(pid, error, self._kernel(fault.kernel), record, fault.launch)
        return str(error)


def _sites(request: Reader) -> list[tuple[int, str, str]]:
    """Return some places in files: offset, symbol and path."""

    def text() -> str:
        return os.fsdecode(request.string())

    return [(request.number(), text(), text()) for _ in range(request.number())]
