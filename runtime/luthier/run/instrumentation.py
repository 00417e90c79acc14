"""Tools in a run: handle the requests of the tool library in the program's processes."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import unquote

from numpy.typing import NDArray

from luthier.errors import DeviceError, LuthierError, ObjectError, ToolError
from luthier.objects import CodeObject
from luthier.objects.arguments import size_of
from luthier.run import events
from luthier.run.channels import Channels
from luthier.run.code_uris import read_uri
from luthier.run.loaded import LoadedCompanion
from luthier.run.patching import Asked, Patched, Patcher, most_group, most_items, most_private
from luthier.run.protocol import Handlers, first, handles
from luthier.run.selection import Selection
from luthier.run.sessions import RECORDS, ROWS, Session, SessionKernel, SessionVariables
from luthier.run.view import ToolView
from luthier.support.files import make_private
from luthier.support.losses import note_loss
from luthier.support.suggestions import did_you_mean
from luthier.support.threads import Worker
from luthier.tool import Tool, ToolGroup
from luthier.tool.observation import ApiEvent, Launch, LiveChannel, LoadedObject, Value
from luthier.tool.tool import failed
from luthier.wire import tool_requests as requests
from luthier.wire.messages import MemoryFile
from luthier.wire.structures import File, ProtocolError

if TYPE_CHECKING:
    from luthier.run.captures import Captures
    from luthier.run.launch_captures import LaunchCaptures

Result = TypeVar("Result")

_RANKS = (b"OMPI_COMM_WORLD_RANK", b"PMI_RANK", b"PMIX_RANK", b"SLURM_PROCID", b"RANK")
"""Environment variables with which launchers set the rank of a process."""

CAPTURES = "captures"
"""Subfolder of the run folder for captured launches."""
_MOST_ARGUMENTS = 1 << 16
"""Maximum number of bytes of arguments read at a launch."""


class Recording(Asked, Protocol):
    """Protocol of a recorder of the events of a running program."""

    @property
    def folder(self) -> Path:
        """Return the run folder."""

    @property
    def apis(self) -> Sequence[str]:
        """Return the APIs of which it records all calls."""

    @property
    def stacks(self) -> bool:
        """Return whether it records the host's stack of each launch."""

    def called(self, api: str, event: ApiEvent) -> None:
        """Record that a call of an API function has begun or ended."""

    def begin(self, sessions: Sequence[Session], tools: Sequence[str]) -> None:
        """Start recording, before the program starts.

        Args:
            sessions: sessions of the program's processes; more will be added.
            tools: names of the tools.
        """


class Instrumentation:
    """The tools of a run, for all processes of the program. Thread-safe.

    Args:
        recorder: records sites and launches while the program runs, and provides the folder for records that tools do
            not handle.
        patching: entered with a kernel's name while it is patched, for which the program waits.
        hoist: whether hooks that only count become counts; None: the default.
        asked: is notified of the requests of tools in kernels, instead of the recorder.
        captures: receives all launches that it selects, besides those that tools request; None: only the latter, in a
            subfolder of the recorder's folder.
    """

    def __init__(
        self,
        tools: ToolGroup,
        selection: Selection,
        recorder: Recording | None = None,
        patching: Callable[[str], AbstractContextManager[object]] = nullcontext,
        *,
        hoist: bool | None = None,
        asked: Asked | None = None,
        captures: Captures | None = None,
    ) -> None:
        self.tools = tools
        self.selection = selection
        self.sessions: list[Session] = []
        self.patcher = Patcher(tools, recorder if asked is None else asked, hoist=hoist)
        self._recorder = recorder
        self._captures = captures
        self._captures_selected = captures is not None
        self._launch_captures: LaunchCaptures | None = None
        self._patching = patching
        self.faults: list[str] = []
        """Errors in the program's processes, where the original kernels ran."""
        self.failures: list[str] = []
        """The faults that are errors in tools' own code."""
        self.channels = Channels(None if recorder is None else recorder.folder, self.lose)
        self._initial: list[dict[str, Value]] = [{} for _ in tools.tools]
        """For each tool, initial values that it has set, by variable."""
        self._initialised: list[set[str]] = [set() for _ in tools.tools]
        """For each tool, those of these variables that exist."""
        self._lock = threading.RLock()
        """Its holder never waits for a thread that delivers records, since tools receive them under this lock."""
        self._has_ended = threading.Event()
        self._objects: dict[tuple[str, bytes], CodeObject] = {}
        """By name and digest."""

    @property
    def watches_launches(self) -> bool:
        """Return whether a tool observes every launch; then launches do not overlap."""
        return self._captures_selected or any(
            tool.reset_each_launch or overrides(tool, "at_kernel_launch") or overrides(tool, "at_kernel_end")
            for tool in self.tools.tools
        )

    @property
    def watches_objects(self) -> bool:
        """Return whether a tool observes the loading of code objects."""
        return any(overrides(tool, "at_code_object") for tool in self.tools.tools)

    @property
    def watches_memory(self) -> bool:
        """Return whether a tool observes memory that the program allocates with HIP."""
        return self.tools.watches_memory

    def begin(self) -> None:
        """Notify the recorder and the tools before the program starts.

        Raises:
            ToolError: a tool fails.
        """
        if self._recorder is not None:
            self._recorder.begin(self.sessions, [tool.name or type(tool).__name__ for tool in self.tools.tools])
        for tool in self.tools.tools:
            try:
                tool.at_init(self.view(tool))
            except LuthierError:
                raise
            except Exception as problem:  # whatever a tool's own code raises
                raise ToolError(f"{tool.label()} failed at the start of the run: {problem!r}") from problem
        if any(map(self._wanted_calls, events.APIS)) or self._wants_ranges:
            Worker(self._tell_events_soon)

    def end(self) -> None:
        """Notify the tools of the end of the program, after all records and events."""
        for session in self.sessions:
            self.channels.retire(session)
        self.channels.close()
        if self._launch_captures is not None:
            self._launch_captures.end()
        self._has_ended.set()
        for session in list(self.sessions):
            self._tell_events(session)
        for number, tool in enumerate(self.tools.tools):
            self._check_initialised(number)
            self._call(tool, tool.at_exit, self.view(tool))

    def view(self, tool: Tool) -> ToolView:
        """Return the run as a tool sees it."""
        folder = None if self._recorder is None else self._recorder.folder
        number = self.tools.tools.index(tool)
        return ToolView(self.sessions, self.patcher.modules_of[number], folder, self._initial[number])

    def _call(self, tool: Tool, function: Callable[..., Result], *arguments: object) -> Result | None:
        """Call a tool's code and return its result; if it raises, report that at the end and return None."""
        try:
            with self._lock:
                return function(*arguments)
        except Exception as problem:
            self.fail(failed(tool, function.__name__, problem))
            return None

    def connect(self, pid: int, payload: bytes, devices: int | None = None) -> tuple[Session, requests.Wishes]:
        """Start a session with a process that has loaded the library.

        Args:
            payload: first request of the process.
            devices: number of its devices; None if unknown.

        Raises:
            DeviceError: the library does not match; this is also reported at the end of the run.
        """
        try:
            asked = first(requests.Instrument, payload, "the tool library (libluthier_tools.so)")
        except DeviceError as problem:
            self.tell(f"a process ran uninstrumented: {problem}")
            raise
        records = 0 if self._recorder is None else RECORDS
        session = Session(pid, str(asked.command), records, about_process(pid), devices)
        with self._lock:
            self.sessions.append(session)
        selection = self.selection
        wishes = requests.Wishes(
            chosen=selection.chosen,
            launches=self.watches_launches,
            code_objects=self.watches_objects,
            ranges=self._wants_ranges,
            stacks=self._recorder is not None and self._recorder.stacks,
            rows=ROWS,
            records=records,
            ledger=File(session.ledger.fd),
            **{api: tuple(self._wanted_calls(api)) for api in events.APIS},
        )
        return session, wishes

    def disconnect(self, session: Session) -> None:
        """End the session of a process that has ended or closed its connection."""
        self.channels.retire(session)
        session.close()

    def _open_channels(self, session: Session, block: SessionVariables) -> None:
        pairs = zip(self.tools.tools, self.patcher.modules_of, strict=True)
        owners = [tool for tool, modules in pairs if id(block.block.module) in modules]
        takers = [tool for tool in owners if overrides(tool, "at_records")]
        for channel in block.channels:

            def hand_over(batch: NDArray[Any], channel: LiveChannel = channel) -> None:
                for tool in takers:
                    self._call(tool, tool.at_records, channel, batch)

            name = owners[0].name if owners else ""
            packs = next((tool for tool in owners if overrides(tool, "unpacked")), None)
            unpack = None if packs is None else partial(self._call, packs, packs.unpacked, channel)
            self.channels.open(session, block.block, channel, name, hand_over if takers else None, unpack)

    def block(self, session: Session, gpu: int, symbol: str) -> SessionVariables:
        """Return memory for the variables that patched kernels reference by a symbol, on a device of a process.

        Raises:
            DeviceError: there are no such variables.
        """
        with self._lock:
            block = next((block for block in session.needed_blocks() if block.symbol == symbol), None)
            if block is None:
                raise DeviceError("the requested variables belong to no tool")
            made, known = session.add_block(gpu, block)
            if not known:
                self._initialise(session, gpu, made)
        if not known:
            self._open_channels(session, made)
        return made

    def _initialise(self, session: Session, gpu: int, block: SessionVariables) -> None:
        """Set the initial values that tools have given for their variables in a new block."""
        for number, tool in enumerate(self.tools.tools):
            if self._initial[number] and id(block.block.module) in self.patcher.modules_of[number]:
                known = self._call(tool, session.initialise, gpu, block, self._initial[number])
                # A failure is reported already.
                self._initialised[number].update(self._initial[number] if known is None else known)

    def _check_initialised(self, number: int) -> None:
        """Report variables that a tool has set and that none of its hooks uses."""
        names = {variable.name for variable in self.view(self.tools.tools[number]).variables()}
        for name in self._initial[number].keys() - self._initialised[number]:
            if names:
                label = self.tools.tools[number].label()
                hint = did_you_mean(name, sorted(names))
                self.fail(f"{label} initialises {name!r}; its hooks use {', '.join(sorted(names))}{hint}")

    @property
    def captures(self) -> Captures | None:
        """Return the captures of launches; None if there are none."""
        return self._captures

    def _capturing(self) -> LaunchCaptures:
        """Return the captures of launches, created at the first call."""
        from luthier.run.captures import MOST, Captures  # few runs need them
        from luthier.run.launch_captures import LaunchCaptures

        with self._lock:
            if self._captures is None:
                folder = Path() if self._recorder is None else self._recorder.folder / CAPTURES
                self._captures = Captures(folder, self.selection, MOST)
            if self._launch_captures is None:
                if self._recorder is not None:
                    make_private(self._captures.folder)
                self._launch_captures = LaunchCaptures(self._captures)
            return self._launch_captures

    def answer(self, session: Session, number: int, payload: bytes, files: Sequence[int] = ()) -> object:
        """Reply to a request of a process, after passing its recorded calls to tools.

        Args:
            files: file descriptors of the request.
        """
        self._tell_events(session)
        return _HANDLERS.answer(self, session, number, payload, files)

    @handles(requests.FindBlock)
    def _find_block(self, session: Session, wanted: requests.FindBlock) -> requests.FindBlockAnswer:
        session.check_device(wanted.gpu)
        made = self.block(session, wanted.gpu, wanted.symbol)
        return requests.FindBlockAnswer(
            made.memory.size, tuple(place.start for place in made.rings), File(made.memory.fd)
        )

    @handles(requests.ObjectLoaded)
    def _loaded_object(self, session: Session, loaded: requests.ObjectLoaded) -> None:
        session.check_device(loaded.gpu)
        object = LoadedObject(_sent(session, loaded.object), session.pid, loaded.gpu)
        for tool in self.tools.tools:
            self._call(tool, tool.at_code_object, object)

    @handles(requests.Functions)
    def _functions(self, session: Session, sent: requests.Functions) -> MemoryFile:
        with self._lock:
            if session.events is None:
                session.events = events.EventLog(session.pid)
            session.events.add(sent.functions)
            return MemoryFile(session.events.memory.size, File(session.events.memory.fd))

    @handles(requests.Drain)
    def _drain(self, session: Session, asked: requests.Drain) -> None:
        """Do nothing, since events are handled before each request."""

    @handles(requests.NewStack)
    def _new_stack(self, session: Session, seen: requests.NewStack) -> None:
        with self._lock:
            session.stacks.add(seen)

    @handles(requests.Fault)
    def _fault(self, session: Session, fault: requests.Fault) -> None:
        self.tell(str(fault.text))

    def fail(self, failure: str) -> None:
        """Record a failure of a tool's own code, which makes the run fail."""
        self.tell(failure)
        with self._lock:
            if failure not in self.failures:
                self.failures.append(failure)

    def lose(self, fault: str) -> None:
        """Record that part of the results was lost."""
        self.tell(fault)
        note_loss(fault)

    def tell(self, fault: str) -> None:
        """Record a fault once."""
        with self._lock:
            if fault not in self.faults:
                self.faults.append(fault)

    def _wanted_calls(self, api: str) -> list[str]:
        """Return the patterns of an API's functions whose calls the recorder or tools observe."""
        everything = ["*"] if self._recorder is not None and api in self._recorder.apis else []
        return [*everything, *events.patterns(self.tools.tools, api)]

    @property
    def _wants_ranges(self) -> bool:
        return self._recorder is not None and not set(events.RANGES).isdisjoint(self._recorder.apis)

    def _tell_events(self, session: Session) -> None:
        """Pass the API calls that a process has recorded to tools."""
        with self._lock:
            if session.events is None:
                return
            try:
                for api, event in session.events.take():
                    if self._recorder is not None:
                        self._recorder.called(api, event)
                    for tool in self.tools.tools:
                        if events.is_for(tool, api, event.name):
                            self._call(tool, getattr(tool, f"at_{api}_event"), event)
            except ProtocolError as problem:
                session.events = None
                self.tell(f"process {session.pid}: {problem}")

    def _tell_events_soon(self) -> None:
        while not self._has_ended.wait(0.05):
            for session in list(self.sessions):
                self._tell_events(session)

    @handles(requests.SendObject)
    def _send_object(self, session: Session, sent: requests.SendObject) -> int:
        uri = str(sent.uri)
        data = sent.contents or read_uri(uri, session.pid)
        name = unquote(uri.partition("#")[0]).removeprefix("file://")
        with self._lock:
            session.objects.append(self._object_of(name, data))
            return len(session.objects) - 1

    def _object_of(self, name: str, data: bytes | memoryview) -> CodeObject:
        """Return a code object, shared by all processes."""
        key = name, hashlib.blake2b(data).digest()
        object = self._objects.get(key)
        if object is None:
            object = self._objects[key] = CodeObject(data, name)
        return object

    @handles(requests.FindKernel)
    def _find_kernel(self, session: Session, wanted: requests.FindKernel) -> requests.FindKernelAnswer:
        gpu = wanted.gpu
        session.check_device(gpu)
        object = _sent(session, wanted.object)
        kernel = next((k for k in object.kernels.values() if k.descriptor_address == wanted.descriptor), None)
        if kernel is None:
            raise ObjectError("the launched kernel is not in its code object", object=object.name)
        skipped = self.selection.skips(kernel.name, gpu)
        if skipped is None:
            with self._patching(kernel.name):
                patched = self.patcher.patch(object, kernel.name)
        else:
            patched = Patched(None, skipped, skipped=True)
        with self._lock:
            row = len(session.kernels)
            counters = None if patched.companion is None else patched.companion.counters
            if row >= ROWS - 1 and counters is not None and (counters.needs_waves or counters.sums):
                reason = f"process {session.pid} launches too many kernels to count their waves"
                patched = Patched(None, reason, patched.report)
            session.kernels.append(SessionKernel(kernel, object, gpu, patched))
        size, companion = size_of(kernel), patched.companion
        return requests.FindKernelAnswer(
            row,
            size if size <= _MOST_ARGUMENTS else 0,
            kernel.name,
            kernel.symbol,
            b"" if companion is None else companion.data,
            () if companion is None else tuple(block.symbol for block in companion.blocks),
            requests.Limits(*(0 if companion is None else most(kernel, patched) for most in _LIMITS)),
        )

    @handles(requests.LaunchRequest)
    def _launch(self, session: Session, asked: requests.LaunchRequest) -> requests.LaunchAnswer:
        session.check_device(asked.gpu)
        if asked.row >= len(session.kernels):
            raise ProtocolError(f"kernel {asked.row} was never launched: there are {len(session.kernels)}")
        kernel = session.kernels[asked.row]
        launch = Launch(
            kernel.kernel,
            kernel.object,
            session.pid,
            asked.gpu,
            asked.number,
            (asked.grid_x, asked.grid_y, asked.grid_z),
            (asked.block_x, asked.block_y, asked.block_z),
            asked.group_segment,
            asked.private_segment,
            asked.chosen,
            asked.arguments,
        )
        self.begin_launch(session, launch)
        if self._captures_selected and not launch.captured:
            launch.captured = self._capturing().selects(launch)
        room = self._capturing().room_for(launch) if launch.captured else 0
        return requests.LaunchAnswer(launch.instrumented, room, kernel.kernel.kernarg_size)

    @handles(requests.LaunchMemory)
    def _launch_memory(self, session: Session, memory: requests.LaunchMemory) -> None:
        self._capturing().take(session, _captured(session, memory.gpu), memory)

    @handles(requests.LaunchUnread)
    def _launch_unread(self, session: Session, unread: requests.LaunchUnread) -> None:
        self._capturing().refuse(session, _captured(session, unread.gpu), unread)

    def begin_launch(self, session: Session, launch: Launch) -> None:
        """Notify the tools before a launch begins."""
        session.running[launch.gpu] = launch
        for tool in self.tools.tools:
            launch.run = self.view(tool)
            if tool.reset_each_launch:
                for variable in launch.variables():
                    variable.reset()
            self._call(tool, tool.at_kernel_launch, launch)

    @handles(requests.LaunchEnd)
    def _launch_end(self, session: Session, launch: requests.LaunchEnd) -> None:
        self.end_launch(session, launch.gpu)

    def end_launch(self, session: Session, gpu: int) -> None:
        """Notify the tools of the end of the launch on a device."""
        launch = session.running.pop(gpu, None)
        if launch is not None:
            self.channels.flush(session, launch.gpu)
            for tool in self.tools.tools:
                launch.run = self.view(tool)
                self._call(tool, tool.at_kernel_end, launch)

    @handles(requests.Loaded)
    def _loaded(self, session: Session, loaded: requests.Loaded) -> None:
        from luthier.patch.payloads.code import ORIGINAL  # imported when it was patched

        if loaded.row >= len(session.kernels):
            raise ProtocolError(f"kernel {loaded.row} was never launched: there are {len(session.kernels)}")
        kernel = session.kernels[loaded.row]
        companion = kernel.patched.companion
        if companion is None or len(loaded.blocks) != len(companion.blocks):
            raise ProtocolError("the loaded kernel was never patched")
        blocks = {block.symbol: address for block, address in zip(companion.blocks, loaded.blocks, strict=True)}
        session.companions[kernel.gpu, loaded.delta] = LoadedCompanion(
            self._object_of(kernel.object.name, companion.data),
            loaded.delta,
            kernel.object,
            loaded.original_delta,
            {ORIGINAL: loaded.original_delta, **blocks},
            goes_back=companion.report.kernels[0].unknown_calls > 0,
        )

    def companion_at(self, pid: int, gpu: int, delta: int) -> LoadedCompanion | None:
        """Return the patched object that a process has loaded with an offset."""
        for session in reversed(self.sessions):
            if session.pid == pid:
                if (gpu, delta) in session.companions:
                    return session.companions[gpu, delta]
                if pid:  # it has executed another program; 0 stands for many processes of other namespaces
                    return None
        return None


_HANDLERS: Handlers[Instrumentation, Session] = Handlers(Instrumentation)
_LIMITS = (most_private, most_group, most_items)
"""Functions that return the limits of a launch of a patched kernel."""


def _sent(session: Session, number: int) -> CodeObject:
    """Return a code object that a process has sent.

    Raises:
        ProtocolError: the object was never sent.
    """
    if number >= len(session.objects):
        raise ProtocolError(f"code object {number} was never sent: there are {len(session.objects)}")
    return session.objects[number]


def _captured(session: Session, gpu: int) -> Launch:
    """Return the captured launch on a device.

    Raises:
        ProtocolError: there is none.
    """
    launch = session.running.get(gpu)
    if launch is None or not launch.captured:
        raise ProtocolError(f"unrequested memory of a launch on device {gpu} was sent")
    return launch


def about_process(pid: int) -> dict[str, int | None]:
    """Return the parent of a process and its rank under MPI or Slurm; None if unknown."""
    facts: dict[str, int | None] = {"parent": None, "rank": None}
    with suppress(OSError, ValueError):
        # After the command name in parentheses, which may contain anything: state, parent.
        facts["parent"] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = variable.partition(b"=")
            if name in _RANKS:
                facts["rank"] = int(value)
                break
    return facts


def overrides(tool: Tool, name: str) -> bool:
    """Return whether a tool's class overrides a method."""
    return getattr(type(tool), name) is not getattr(Tool, name)
