"""The service of a run: plans and binds kernels for every process of the program, over a private Unix socket."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.constants import inline_bytes
from luthier.emulator.ir.variant import FOLLOWED
from luthier.emulator.native.machine import machine_code
from luthier.emulator.native.store import store
from luthier.emulator.running import start as abi
from luthier.errors import DeviceError, ObjectError
from luthier.findings.floats import has_flow, looked_for
from luthier.findings.kinds import LANES, OBSERVED, FindingKind, follows_unwritten, kinds_of_check
from luthier.objects.descriptor import DESCRIPTOR_SIZE
from luthier.objects.loaded_image import file_of_image
from luthier.run.code_uris import read_uri
from luthier.run.connections import Connections
from luthier.run.executed import Executed
from luthier.run.long_launches import LongLaunch, LongLaunches
from luthier.run.planner import KernelPlan, PlannedCode, Planner
from luthier.run.protocol import Handlers, converse, first, handles
from luthier.run.space import BASE, CODE_SIZE, IMPORTS, SIZE, SharedSpace
from luthier.run.virtual_gpus import VirtualGpu
from luthier.terminal import visible_lines
from luthier.wire import device_requests as requests
from luthier.wire.messages import AllocationHistory, CodeCounts, HostCall, MemoryFile, OriginStore, RecordCounts
from luthier.wire.structures import File, ProtocolError
from luthier.wire.tool_requests import Instrument

if TYPE_CHECKING:  # what few runs need
    from luthier.findings.calls import AllocationSites, HostSite
    from luthier.findings.collector import KernelCode
    from luthier.findings.finding import Origin
    from luthier.run.captures import Captures
    from luthier.run.findings.collector import Collector
    from luthier.run.findings.tally import LaunchTally
    from luthier.run.instrumentation import Instrumentation
    from luthier.run.sampling import LaunchSampler
    from luthier.run.sessions import Session
    from luthier.run.watching import Watching

_Counts = NDArray[np.int64]
Part = TypeVar("Part")
NOWHERE = (1 << 64) - 1
"""Record that stands for no instruction."""


def _read_memory(pid: int, address: int, size: int) -> bytes:
    from luthier.run.process_memory import read_memory  # few runs need it

    return read_memory(pid, address, size)


def _read_file(uri: str, pid: int) -> bytes:
    """Return a code object by its URI; b"" if it cannot be read: then the process sends its memory."""
    with contextlib.suppress(ObjectError):
        return read_uri(uri, pid)
    return b""


def _has(file: int, size: int) -> bool:
    """Return whether a descriptor is a regular file of at least this size."""
    status = os.fstat(file)
    return stat.S_ISREG(status.st_mode) and status.st_size >= size


_PATIENCE = 3.0
"""Seconds to wait for the last messages of ended processes."""

_OF_HOST = FindingKind.DOUBLE_FREE, FindingKind.INVALID_FREE, FindingKind.LEAK
"""Kinds of findings that no kernel causes."""


class Process(Struct, eq=False):
    """A process of the program, with one connection."""

    pid: int
    """Process ID in this namespace; 0 if it has none."""
    is_known: bool = False
    """Whether it has sent `Hello`."""
    session: Session | None = None
    """Session of its tool library, after `Instrument`."""
    imports: int = 0
    """Number of C functions that it has received."""
    shared: set[int] = field(default_factory=set)
    """Names of the memory that it shares."""
    held: set[int] = field(default_factory=set)
    """Numbers of codes that it may execute."""
    counts: requests.Counts | None = None
    """Its last report of executed instructions."""
    time: float = 0
    """Time of that report, by `time.monotonic`."""
    ended: float | None = None
    """Time when its connection was closed."""


class Service:
    """Answers the processes of a program, each connection on its own thread.

    Raises:
        DeviceError: the host lacks what the service needs.
    """

    def __init__(
        self,
        devices: Sequence[VirtualGpu],
        instrumentation: Instrumentation | None = None,
        executed: Executed | None = None,
        captures: Captures | None = None,
        findings: Collector | None = None,
        sampler: LaunchSampler | None = None,
    ) -> None:
        self._devices = devices
        self._instrumentation = instrumentation
        self._executed = executed
        self._captures = captures
        self._findings = findings
        self._sampler = sampler
        self._space = SharedSpace()
        machine_code().load_into(self._space)
        self._wanted = frozenset[str]() if findings is None else findings.kinds
        self._undefined = follows_unwritten(self._wanted)
        lanes = not self._wanted.isdisjoint(LANES)
        self._planner = Planner(
            self._space,
            observed=sampler is not None or not self._wanted.isdisjoint(OBSERVED),
            ordered=sampler is None,
            waits=not self._wanted.isdisjoint(kinds_of_check("waits")),
            hazards=not self._wanted.isdisjoint(kinds_of_check("hazards")),
            floats=looked_for(self._wanted) | FOLLOWED * (FindingKind.NAN_FLOW.label in self._wanted),
            undefined=layout.UNWRITTEN_VALUES * self._undefined | layout.LANE_VALUES * lanes,
            kernels=() if findings is None else findings.selection.kernels,
        )
        self._tally: LaunchTally | None = None
        if findings is not None:
            from luthier.run.findings.tally import LaunchTally  # few runs need it

            self._tally = LaunchTally()
            findings.scope = self._tally.scope
        self._lock = threading.Lock()
        self._shared: dict[int, MemoryFile] = {}
        self._last_shared = 0
        self._long_launches = LongLaunches()
        self._connections = Connections(self._serve)
        self._counting: list[Process] = []
        """Processes that have not reported all their executed instructions."""
        self._launching: list[Process] = []
        """Processes that have not reported all their launches, if these are measured."""

    def serve(self, first: socket.socket, further: Sequence[socket.socket] = ()) -> None:
        """Answer processes until a listener is closed.

        Args:
            first: accepts the first connection of each process.
            further: accept other connections of processes that have one.
        """
        self._connections.serve(first, further)

    def _serve(self, connection: socket.socket, pid: int) -> None:
        """Answer a process until it ends."""
        process = Process(pid)
        try:
            with contextlib.nullcontext() if self._findings is None else self._findings.variables.connected(pid):
                converse(connection, pid, partial(self._answer, process))
        finally:
            self._unshare(process.shared)
            process.ended = time.monotonic()
            if self._captures is not None:
                self._captures.forget(pid)
            if process not in self._counting:  # otherwise its codes are needed at the end
                self._planner.let_go(process.held)
            if self._instrumentation is not None and process.session is not None:
                self._instrumentation.disconnect(process.session)

    def _answer(
        self, process: Process, number: int, payload: bytes, files: Sequence[int]
    ) -> tuple[Sequence[str], object]:
        """Return C functions that the process now needs, and the reply to its request."""
        if number == requests.Hello.REQUEST:
            return (), self._hello(process, payload)
        if number not in _HANDLERS:
            return (), self._answer_tools(process, number, payload, files)
        if not process.is_known:
            raise ProtocolError(f"request {number} was sent before the first request")
        reply = _HANDLERS.answer(self, process, number, payload, files)
        imports = self._space.imports[process.imports :]
        process.imports += len(imports)
        return imports, reply

    def _answer_tools(self, process: Process, number: int, payload: bytes, files: Sequence[int]) -> object:
        """Return the reply to a request of the tool library."""
        if self._instrumentation is None:
            raise DeviceError("this run has no tools")
        if process.session is not None:
            return self._instrumentation.answer(process.session, number, payload, files)
        if number != Instrument.REQUEST:
            raise ProtocolError(f"request {number} was sent before the first request")
        process.session, wishes = self._instrumentation.connect(process.pid, payload, len(self._devices) or None)
        return wishes

    def _hello(self, process: Process, payload: bytes) -> requests.Setup:
        """Describe the devices to a process."""
        first(requests.Hello, payload, "the virtual device (libluthier_kfd.so)")
        store()  # opened now: ROCr waits for this answer, and for its first kernel in a busy loop
        setup = requests.Setup(
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
            in_flight=not self._wanted.isdisjoint(kinds_of_check("in-flight")),
            findings=self._findings is not None,
            projected=self._sampler is not None,
            constants=inline_bytes(),
            gpus=tuple(device.facts for device in self._devices),
            space=File(self._space.fd),
        )
        if self._executed is not None and not process.is_known:
            self._counting.append(process)
        if self._sampler is not None and not process.is_known:
            self._launching.append(process)
        process.is_known = True
        return setup

    @handles(requests.ChooseLaunches)
    def _choose(self, process: Process, wanted: requests.ChooseLaunches) -> requests.CheckedLaunches:
        collector, tally = self._collector(), _asked_for(self._tally, "counts of launches")
        budget = 0 if collector.budget is None else max(1, round(1000 * collector.budget))
        return requests.CheckedLaunches(collector.selection.chosen, budget, tally.file)

    # Answers --------------------------------------------------------------------------------------------------------

    @handles(requests.Bind)
    def _bind(self, process: Process, wanted: requests.Bind) -> None:
        self._planner.bind(wanted.kernel, wanted.key, wanted.record)

    @handles(requests.Share)
    def _share(self, process: Process, wanted: requests.Share) -> int:
        if not wanted.size or not _has(wanted.memory, wanted.size):
            raise ProtocolError("shared memory was sent without its file")
        with self._lock:
            self._last_shared += 1
            self._shared[self._last_shared] = MemoryFile(wanted.size, File(os.dup(wanted.memory)))
            process.shared.add(self._last_shared)
        return self._last_shared

    @handles(requests.Unshare)
    def _unshare_one(self, process: Process, wanted: requests.Unshare) -> None:
        self._unshare(process.shared & {wanted.name})

    @handles(requests.Attach)
    def _attach(self, process: Process, wanted: requests.Attach) -> MemoryFile:
        memory = self._shared.get(wanted.name)
        if memory is None:
            raise DeviceError(f"no process shares memory {wanted.name}")
        return memory

    @handles(requests.CaptureRequest)
    def _capture(self, process: Process, wanted: requests.CaptureRequest) -> bool:
        return _asked_for(self._captures, "captures").begin(process.pid, wanted, self._devices, self._planner)

    @handles(requests.Captured)
    def _captured(self, process: Process, ended: requests.Captured) -> None:
        _asked_for(self._captures, "captures").end(process.pid, ended)

    def _unshare(self, names: set[int]) -> None:
        """Forget memory that its process has freed, or whose process has ended."""
        for name in names:
            with self._lock:
                if (memory := self._shared.pop(name, None)) is not None:
                    os.close(memory.memory)

    def _kernel(self, number: int) -> KernelCode:
        """Return the code of a kernel with a finding, by the number of its plan."""
        from luthier.run.findings.collector import code_of  # few runs need it

        if number not in self._planner.plans:
            raise ProtocolError(f"a finding is in kernel {number}, which was never planned")
        return code_of(self._planner.plans[number])

    def _origin(self, stores: Sequence[OriginStore], *, is_nan: bool = False) -> Origin | None:
        """Return from where an undefined value or NaN comes; None if unknown."""
        if not stores:
            return None
        from luthier.run.findings.origins import origin_of  # few runs need it

        return origin_of(stores, self._kernel, lambda source: _memory(source.memory), is_nan=is_nan)

    def _collector(self) -> Collector:
        return _asked_for(self._findings, "findings")

    @handles(requests.Found)
    def _found(self, process: Process, report: requests.Found) -> None:
        collector, seen = self._collector(), report.sighting
        code = None if seen.kind in _OF_HOST else self._kernel(seen.kernel)
        other = self._kernel(seen.other_kernel) if seen.has_launch else None
        memory, origin = _memory(report.memory), self._origin(report.origins, is_nan=seen.kind == FindingKind.NAN_FLOW)
        collector.add(process.pid, seen, code, other, _sites(report.calls), memory, origin)

    @handles(requests.FoundCopy)
    def _found_copy(self, process: Process, report: requests.FoundCopy) -> None:
        collector, seen = self._collector(), report.sighting
        collector.add_copy(process.pid, seen, self._kernel(seen.kernel), *_call(report))

    @handles(requests.FoundCall)
    def _found_call(self, process: Process, report: requests.FoundCall) -> None:
        memory, origin = _memory(report.memory), self._origin(report.origins)
        self._collector().add_call(process.pid, report.sighting, *_call(report), memory, origin)

    @handles(requests.FoundInFlight)
    def _found_in_flight(self, process: Process, report: requests.FoundInFlight) -> None:
        words = str(report.function), str(report.operation)
        self._collector().add_in_flight(
            process.pid, report.sighting, *words, _sites(report.calls), _sites(report.enqueued), _memory(report.memory)
        )

    def _watching(self, kernel: int) -> Watching:
        """Return the watching of a kernel's waits and hazards, by the number of its plan."""
        plan = self._planner.plans.get(kernel)
        if plan is None or plan.code.watching is None:
            raise ProtocolError(f"waits and hazards of kernel {kernel} are not checked")
        return plan.code.watching

    @handles(requests.Follow)
    def _follow(self, process: Process, wanted: requests.Follow) -> bytes:
        return self._watching(wanted.kernel).follow(wanted.state, wanted.record)

    @handles(requests.Watched)
    def _watched(self, process: Process, launch: requests.Watched) -> None:
        watching, collector = self._watching(launch.kernel), self._collector()
        for seen in watching.sightings(launch.found, launch.met):
            collector.add_pair(process.pid, seen, self._kernel(launch.kernel), launch.launch)

    @handles(requests.Running)
    def _running(self, process: Process, running: requests.Running) -> None:
        if not running.progress.groups:
            self._long_launches.forget(process)
            return
        if running.kernel not in self._planner.plans:
            raise ProtocolError(f"a launch runs kernel {running.kernel}, which was never planned")
        plan = self._planner.plans[running.kernel]
        counts = np.zeros(plan.code.code.count, np.int64)
        for planned, record, executions, _ in self._counted(running.executed):
            if planned is plan.code:
                known = record < len(counts)  # the code may have grown meanwhile
                counts[record[known]] = executions[known]
        self._long_launches.tell(process, process.pid, running, plan, counts)

    @handles(requests.Hot)
    def _hot(self, process: Process, executed: requests.Hot) -> None:
        from luthier.emulator.running import hot  # short programs do not need it

        for planned, record, executions, _ in self._counted(executed.codes):
            counts = np.zeros(planned.code.count, np.uint64)
            known = record < len(counts)
            counts[record[known]] = executions[known]
            hot.heat(planned.code).look(counts)

    def _counted(self, codes: Sequence[CodeCounts]) -> Iterator[tuple[PlannedCode, _Counts, _Counts, _Counts]]:
        """Yield each code with its executed records, their executions and lanes."""
        for counted in codes:
            rows = RecordCounts.read_rows(counted.records)
            planned = self._planner.codes.get(counted.code)
            if planned is None or (len(rows) and rows["record"].max() >= planned.code.count):
                raise ProtocolError(f"counts belong to instructions of code {counted.code} that were never planned")
            record, executions, lanes = (rows[name].astype(np.int64) for name in ("record", "executions", "lanes"))
            yield planned, record, executions, lanes

    @handles(requests.SampleLaunch)
    def _sample(self, process: Process, wanted: requests.SampleLaunch) -> requests.SampledLaunch:
        if wanted.kernel not in self._planner.plans:
            raise ProtocolError(f"a launch of kernel {wanted.kernel} begins, which was never planned")
        return _asked_for(self._sampler, "launches").choose(self._planner.plans[wanted.kernel], wanted)

    @handles(requests.Sampled)
    def _sampled(self, process: Process, launch: requests.Sampled) -> None:
        samples = [(sample, self._counted(sample.executed)) for sample in launch.samples]
        _asked_for(self._sampler, "launches").sampled(launch.number, launch.problem, samples)

    @handles(requests.LaunchesEnded)
    def _launches_ended(self, process: Process, ended: requests.LaunchesEnded) -> None:
        sampler = _asked_for(self._sampler, "launches")
        for alike in ended.alike:
            sampler.ended(alike.number, alike.launches)
        if ended.is_all and process in self._launching:
            self._launching.remove(process)

    @handles(requests.Counts)
    def _count_of(self, process: Process, counts: requests.Counts) -> None:
        """Receive the executed instructions of a process, at its end or so far; the latter count if it is killed."""
        executed = _asked_for(self._executed, "counts")
        if counts.is_all:
            self._count(executed, counts)
            if process in self._counting:
                self._counting.remove(process)
        elif process in self._counting:
            process.counts, process.time = counts, time.monotonic()

    def settle(self) -> list[LongLaunch]:
        """Finish after the program; return the launches that had not ended when their processes last reported.

        Add the last known counts of processes that were killed or still run.
        """
        self._connections.wait_for_ended(_PATIENCE)
        for process in list(self._counting):
            assert self._executed is not None
            state = "is still running" if process.ended is None else "was ended"
            if process.counts is None:
                self._executed.notes.append(f"process {process.pid} {state} and has not reported what it executed")
                continue
            self._count(self._executed, process.counts)
            before = (process.ended or time.monotonic()) - process.time
            self._executed.notes.append(
                f"process {process.pid} {state} and has not reported all that it executed: "
                f"its last counts are from {before:.1f} s earlier"
            )
        self._counting.clear()
        for process in self._launching:
            assert self._sampler is not None
            self._sampler.lose(process.pid)
        self._launching.clear()
        return self._long_launches.unfinished()

    def _count(self, executed: Executed, counts: requests.Counts) -> None:
        for planned, record, executions, lanes in self._counted(counts.codes):
            addresses = planned.code.addresses()[record]
            own = np.ones(len(record), np.bool_)
            for other in planned.other_code.values():
                inside = (record >= other.records.start) & (record < other.records.stop)
                own &= ~inside
                executed.add(other.object, addresses[inside] - other.distance, executions[inside], lanes[inside])
            executed.add(planned.object, addresses[own], executions[own], lanes[own])

    @handles(requests.Plan)
    def _plan(self, process: Process, wanted: requests.Plan) -> requests.PlanAnswer:
        address, load_address, is_file, pid = wanted.kernel, wanted.load_address, wanted.is_file, process.pid
        descriptor, uri, contents = wanted.descriptor, str(wanted.uri), wanted.contents
        if wanted.gpu >= len(self._devices) or len(descriptor) != DESCRIPTOR_SIZE:
            raise ProtocolError("the request for a plan is malformed")
        target = self._devices[wanted.gpu].target
        patched = self._instrumentation and self._instrumentation.companion_at(pid, wanted.gpu, load_address)
        plan: KernelPlan | None
        variables: list[requests.Bounds] = []
        unknown = ""
        is_patched = patched and is_file and patched.kernel.descriptor_address == address
        if is_file and not is_patched:
            contents = contents or _read_file(uri, pid)
        with self._planner.holding(process.held) as hold:
            if patched and is_patched:
                name = f"{patched.object.name}, patched"
                plan = self._planner.plan_code(target, patched.kernel, name, patched.code())
                plan.code.code.origin = patched.origin
                unknown = "the kernel is instrumented"
            elif is_file:
                plan = self._planner.plan_file(target, address, load_address, uri, contents, partial(_read_memory, pid))
                if plan is not None and self._findings is not None:
                    self._findings.arguments.takes(plan.kernel)
                    assert plan.code.object is not None
                    variables = self._findings.variables.of(pid, plan.code.object, load_address)
            else:
                plan = self._planner.plan_memory(target, address, descriptor, load_address, contents)
                if plan.code.object is not None:  # otherwise it is ROCr's own kernel
                    unknown = "its file is gone"
            if self._tally is not None and plan is not None and plan.of_program:
                self._tally.kernels.add(plan.kernel.name)
            if self._findings is not None and unknown and plan is not None:
                self._findings.without_variables(pid, plan, unknown)
            return requests.PlanAnswer(0 if plan is None else hold(plan).address, tuple(variables))

    @handles(requests.Outside)
    def _outside(self, process: Process, wanted: requests.Outside) -> int:
        uri, contents = str(wanted.uri), wanted.contents
        if wanted.gpu >= len(self._devices):
            raise ProtocolError("the request for code of another object is malformed")
        target, place = self._devices[wanted.gpu].target, (wanted.code, wanted.address, wanted.load_address)
        if wanted.is_file:
            contents = contents or _read_file(uri, process.pid)
        else:
            uri, contents = "memory", file_of_image(contents) or contents
        record = self._planner.find_outside(target, wanted.kernel, *place, uri, contents)
        return NOWHERE if record is None else record

    @handles(requests.Explain)
    def _explain(self, process: Process, fault: requests.Explain) -> str:
        from luthier.run.faults import describe  # few runs need it
        from luthier.run.host_places import host_place

        if fault.kernel not in self._planner.plans or len(fault.ranges) % layout.RANGE.size:
            raise ProtocolError("the report of a fault is malformed")
        plan = self._planner.plans[fault.kernel]
        rows = np.frombuffer(fault.ranges, layout.RANGE.dtype)
        bytes_of = fault.context, fault.group, fault.waves
        place = partial(host_place, process.pid)
        error = describe(fault.reason, plan.kernel.name, plan.code.code, *bytes_of, rows, place)
        is_sighted = error.wrong is not None and error.wrong.space == "memory"
        if self._findings is not None and not is_sighted:
            record = None if error.offset is None else plan.code.code.record_at(error.offset)
            self._findings.add_fault(process.pid, error, self._kernel(fault.kernel), record, fault.launch)
        return visible_lines(str(error))


_HANDLERS: Handlers[Service, Process] = Handlers(Service)


def _asked_for(part: Part | None, what: str) -> Part:
    """Return a part of the run that a request needs.

    Raises:
        ProtocolError: the run lacks it.
    """
    if part is None:
        raise ProtocolError(f"{what} were sent that this run did not request")
    return part


def _sites(calls: Sequence[HostCall]) -> list[HostSite]:
    from luthier.findings.calls import HostSite  # few runs need it

    return [HostSite(call.offset, str(call.symbol), str(call.file), call.is_python) for call in calls]


def _memory(memory: AllocationHistory) -> AllocationSites:
    from luthier.findings.calls import AllocationSites  # few runs need it

    return AllocationSites(str(memory.name), _sites(memory.allocated), _sites(memory.freed))


def _call(report: requests.FoundCall | requests.FoundCopy) -> tuple[str, str, str]:
    """Return the called HIP function, and symbol and file of the call."""
    return str(report.function), str(report.symbol), str(report.file)
