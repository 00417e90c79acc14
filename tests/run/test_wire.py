"""The protocol of native libraries and the service, and the rejection of mismatched ones."""

from __future__ import annotations

import enum
import importlib
import itertools
import os
import random
import shutil
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from effort import sample
from kept import ROOT
from luthier import Tool
from luthier.emulator import agreement, layout
from luthier.emulator.running import executor
from luthier.emulator.running.memory import host_bytes
from luthier.errors import DeviceError
from luthier.findings.collector import KernelCode
from luthier.findings.kinds import KINDS, PAIRED, FindingKind
from luthier.findings.text import lines_of
from luthier.run import program, shared_memory, space
from luthier.run.findings.collector import Collector
from luthier.run.instrumentation import Instrumentation
from luthier.run.protocol import LARGEST, receive
from luthier.run.selection import Selection
from luthier.run.service import Service
from luthier.tool import ToolGroup
from luthier.tool.observation import ApiEvent
from luthier.wire import channels, device_header, device_requests, memory, messages, tool_requests, topology
from luthier.wire.device_requests import Hello, Plan
from luthier.wire.messages import CodeCounts, Sighting
from luthier.wire.structures import FieldLayout, ForeignText, Message, ProtocolError, WireStructure, pack, request
from luthier.wire.tool_requests import Instrument, SendObject
from random_messages import random_message

from .conftest import RunUnderTools

LIBRARIES = ["libluthier_kfd.so", "libluthier_tools.so"]
OTHERS = "were built from different sources: build Luthier again (`make setup`), or install it again"
WRONG = "0" * 64
DECLARED = {
    "SPACE_HEAD": memory,
    "LEDGER_HEAD": memory,
    "LEDGER_ROW": memory,
    "CHECK_TALLY": memory,
    "LEDGER_RECORD": memory,
    "EVENT_HEAD": memory,
    "EVENT_RECORD": memory,
    "RING": channels,
    "RANGE": layout,
    "TRANSITION": layout,
}
MESSAGES = agreement.declared_messages()
REQUESTS = [one for one in MESSAGES if one.REQUEST and one not in (Hello, Instrument)]
BuildProgram = Callable[[str], Path]
UnderTools = Callable[..., RunUnderTools]


def current() -> str:
    agreement.digest.cache_clear()
    return agreement.digest()


@pytest.fixture(autouse=True)
def same_again() -> Iterator[None]:
    agreement.digest.cache_clear()
    yield
    agreement.digest.cache_clear()


# What counts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LIBRARIES)
def test_each_library_knows_the_digest(name: str) -> None:
    assert current().encode() in (program.library_folder() / name).read_bytes()


def test_every_structure_is_looked_at() -> None:
    structures = {
        name for module in (memory, layout) for name, one in vars(module).items() if isinstance(one, WireStructure)
    }
    assert structures | {"RING"} == set(DECLARED)


@pytest.mark.parametrize("name", DECLARED)
def test_each_field_counts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    structure: WireStructure = getattr(DECLARED[name], name)
    fields = {one.name: f"{one.kind}{one.width}" + (f"[{one.count}]" if one.count else "") for one in structure.members}
    variants = [dict(reversed(fields.items()))] if len(fields) > 1 else []
    for field in fields:
        variants.append({(f"{one}_" if one == field else one): type for one, type in fields.items()})
        variants.append({**fields, field: "i2[5]"})
    digests = {current()}
    for other in variants:
        monkeypatch.setattr(DECLARED[name], name, WireStructure(**other))
        digests.add(current())
    assert len(digests) == 1 + len(variants)
    monkeypatch.undo()
    assert current() in digests


@pytest.mark.parametrize("declared", MESSAGES, ids=lambda message: message.__name__)
def test_each_field_of_messages_counts(declared: type[Message], monkeypatch: pytest.MonkeyPatch) -> None:
    fields = list(declared.types().items())
    before = current()
    variants = [[*fields, ("another", int)], fields[::-1], fields[:-1]]
    for at, (name, kind) in sample([*enumerate(fields)], 4):
        changed: tuple[tuple[str, Any], ...] = (f"{name}_", kind), (name, tuple[kind, ...])
        variants += [[*fields[:at], field, *fields[at + 1 :]] for field in changed]
    for other in variants:
        made = msgspec.defstruct(declared.__name__, other, bases=(Message,), frozen=True)
        made.REQUEST, made.REPLY = declared.REQUEST, declared.REPLY
        monkeypatch.setattr(importlib.import_module(declared.__module__), declared.__name__, made)
        assert current() != before or other == fields


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (device_requests.Bind, "REQUEST", 99),
        (device_requests.Share, "REPLY", bool),
        (messages, "SOCKET_VARIABLE", "ANOTHER"),
        (channels, "Mode", enum.IntEnum("Mode", ["WAIT", "CLOSED", "DROP"], start=0)),
        (memory, "NEVER", 7),
        (topology, "FIRST_GPU_ID", 7),
        (topology, "CACHE_KIB", (16, 32)),
        (topology, "PLACES", {}),
        (layout, "HELP", 7),
        (layout, "EVENT", FieldLayout(reason=8, group=8, context=8, key=8, record=8)),
    ],
)
def test_all_else_counts(module: Any, name: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    before = current()
    monkeypatch.setattr(module, name, value)
    assert current() != before


# What is made of it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DECLARED)
def test_places_in_structures_are_numpys(name: str) -> None:
    structure: WireStructure = getattr(DECLARED[name], name)
    places = structure.dtype.fields
    assert places is not None
    assert {one.name: (one.offset, one.size) for one in structure.members} == {
        field: (offset, type.itemsize) for field, (type, offset, *_) in places.items()
    }
    assert structure.size == structure.dtype.itemsize


def test_device_code_has_the_same_channels() -> None:
    """The build writes this header where it changed."""
    assert (ROOT / device_header.PATH).read_text() == device_header.header()


# Who does not agree ---------------------------------------------------------------------------------------------------


def answers(asked: list[tuple[int, bytes]], devices: int = 1) -> tuple[list[str], Instrumentation]:
    """The problems that a service has with requests on one connection."""
    instrumentation = Instrumentation(ToolGroup.of(Tool()), Selection())
    service = Service.__new__(Service)  # no request reaches its other attributes
    service._instrumentation = instrumentation
    service._devices, service._findings = cast(Any, range(devices)), None
    service._counting, service._captures = [], None
    service._planner = cast(Any, SimpleNamespace(let_go=lambda held: None))
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    thread = threading.Thread(target=service._serve, args=(theirs, os.getpid()))
    thread.start()
    replies = []
    with ours:
        for kind, payload in asked:
            ours.sendall(struct.pack("<QQ", kind, len(payload)) + payload)
            header = ours.recv(8, socket.MSG_WAITALL)
            reply = ours.recv(int.from_bytes(header, "little"), socket.MSG_WAITALL)
            replies.append(msgspec.msgpack.decode(reply)[0])
    thread.join()
    return replies, instrumentation


def greeting(kind: type[Hello] | type[Instrument], digest: str) -> tuple[int, bytes]:
    first = Hello(digest) if kind is Hello else Instrument(digest, ForeignText(b"a program"))
    return kind.REQUEST, pack(first)[0]


@pytest.mark.parametrize("kind", [Hello, Instrument])
@pytest.mark.parametrize("digest", ["", WRONG, "x" * 200, None])
def test_who_says_another_digest_is_refused(kind: type[Hello] | type[Instrument], digest: str | None) -> None:
    """None: the message that libraries sent before, of numbers and of texts with their size."""
    old = struct.pack("<QQ9s", 4711, 9, b"a program")
    first = (kind.REQUEST, old) if digest is None else greeting(kind, digest)
    then = Plan if kind is Hello else SendObject
    (problem, after), instrumentation = answers([first, (then.REQUEST, bytes(64))])
    assert after
    part = "libluthier_kfd.so" if kind is Hello else "libluthier_tools.so"
    assert f"({part}) and the Luthier service {OTHERS}" in problem
    assert instrumentation.sessions == []
    if kind is Instrument:
        assert any(OTHERS in fault for fault in instrumentation.faults)


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda message: message.__name__)
def test_nothing_is_answered_before_it(kind: type[Message]) -> None:
    (problem,), instrumentation = answers([(kind.REQUEST, pack(random_message(kind, random.Random(0)))[0])])
    assert "before the first" in problem
    assert instrumentation.sessions == []


@pytest.mark.parametrize("devices", [1, 2, 16])
@pytest.mark.parametrize(
    "kind",
    [tool_requests.FindBlock, tool_requests.FindKernel, tool_requests.ObjectLoaded, tool_requests.LaunchRequest],
    ids=lambda declared: declared.__name__,
)
def test_devices_that_the_run_lacks(kind: type[Message], devices: int) -> None:
    """Requests about them are rejected; requests about known devices fail later, without objects or kernels."""
    numbers = [0, devices - 1, devices, devices + 1, 1 << 32, (1 << 64) - 1]
    message = random_message(kind, random.Random(0))
    asked = [(kind.REQUEST, pack(msgspec.structs.replace(message, gpu=one))[0]) for one in numbers]
    (_, *problems), _ = answers([greeting(Instrument, current()), *asked], devices)
    for number, problem in zip(numbers, problems, strict=True):
        assert problem
        assert (f"names device {number}, but there are {devices}" in problem) == (number >= devices), problem


@pytest.mark.parametrize("count", [1, 5, 1 << 20])
def test_counts_of_records_that_code_lacks(count: int) -> None:
    service = Service.__new__(Service)
    service._planner = cast(Any, SimpleNamespace(codes={0: SimpleNamespace(code=SimpleNamespace(count=count))}))
    for record in (0, count - 1, count, count + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1):
        codes = [CodeCounts(0, struct.pack("<6Q", 0, 7, 8, record, 7, 8))]
        if record < count:
            assert [one[1].tolist() for one in service._counted(codes)] == [[0, record]]
        else:
            with pytest.raises(ProtocolError, match="never planned"):
                list(service._counted(codes))


@pytest.mark.parametrize("kind", FindingKind)
def test_findings_with_and_without_another_access(kind: FindingKind) -> None:
    """Each finding is rejected or can be reported."""
    code = KernelCode("kernel", "object", lambda record: (4 * record, "global_load_dword v0, v[0:1], off", (), ""))
    numbers = dict.fromkeys(Sighting.types(), 1) | {"kind": kind}
    for has_other, in_lds in itertools.product((0, 1), repeat=2):
        collector = Collector(KINDS)
        seen = Sighting(**{**numbers, "has_other": has_other, "in_lds": in_lds})
        with suppress(DeviceError):
            collector.add(1, seen, code, code)
        findings = [*collector.findings, *collector.unchecked]
        assert len(findings) == (not has_other or kind.label in PAIRED)
        assert all(list(lines_of(finding)) for finding in collector.findings)


@pytest.mark.parametrize("size", [0, 40, LARGEST + 1])
@pytest.mark.parametrize("sent", [1, 8, 15, 16, 17, 55, 56])
def test_files_of_messages_that_break_off(sent: int, size: int) -> None:
    """Files are closed, except those of a complete message."""
    ours, theirs = socket.socketpair()
    with open(os.devnull) as file, theirs:
        with ours:
            socket.send_fds(ours, [(struct.pack("<QQ", 7, size) + bytes(40))[:sent]], [file.fileno()])
        before = len(os.listdir("/proc/self/fd"))
        message = None
        with suppress(ProtocolError):
            message = receive(theirs)
        is_whole = sent >= 16 + size
        assert (message is not None) == is_whole
        assert len(os.listdir("/proc/self/fd")) == before + is_whole
        for descriptor in message[2] if message else ():
            os.close(descriptor)


@pytest.mark.parametrize("pid", [0, 7])
@pytest.mark.parametrize("loaded", list(itertools.product((None, "a", "b"), repeat=3)))
def test_patched_objects_are_of_what_runs_now(pid: int, loaded: tuple[str | None, ...]) -> None:
    """A process may have executed other programs before: only the last one's are there."""
    instrumentation = Instrumentation(ToolGroup.of(Tool()), Selection())
    for loaded_object in loaded:
        companions = {} if loaded_object is None else {(0, 4096): loaded_object}
        instrumentation.sessions.append(cast(Any, SimpleNamespace(pid=pid, companions=companions)))
    known = [one for one in loaded if one is not None] if pid == 0 else loaded
    assert instrumentation.companion_at(pid, 0, 4096) == (known[-1] if known else None)
    assert instrumentation.companion_at(pid + 1, 0, 4096) is None


def of_another_build(path: Path) -> None:
    """Replace the digest in a library."""
    data = path.read_bytes()
    assert current().encode() in data  # compilers may keep it a second time, as numbers
    path.write_bytes(data.replace(current().encode(), WRONG.encode()))


@pytest.mark.rows
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_of_another_build_is_told(
    build_program: BuildProgram,
    under_tools: UnderTools,
    counter: type[Tool],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
) -> None:
    folder = tmp_path / "libraries"
    shutil.copytree(program.library_folder(), folder, symlinks=True)
    of_another_build(folder / name)
    monkeypatch.setattr(program, "library_folder", lambda: folder)
    ran = under_tools("emu:gfx90a", [counter()], build_program("graph"))
    assert f"and the Luthier service {OTHERS}" in ran.err
    if name == "libluthier_tools.so":
        assert any(OTHERS in fault for fault in ran.summary["faults"])
    else:
        assert ran.code != 0


def test_an_executor_of_another_build_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / executor._LIBRARY.name
    shutil.copy(executor._LIBRARY, path)
    of_another_build(path)
    monkeypatch.setattr(executor, "_LIBRARY", path)
    with pytest.raises(DeviceError) as raised:
        executor._library.__wrapped__()
    assert f"{path}) and Luthier's Python modules {OTHERS}" in str(raised.value)


def test_a_device_finds_another_digest_in_memory(
    build_program: BuildProgram,
    under_tools: UnderTools,
    counter: type[Tool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = space.SharedSpace.__init__

    def plant(self: space.SharedSpace) -> None:
        real(self)
        host_bytes(space.BASE + space.CODE_SIZE, 64)[:] = ord("0")

    monkeypatch.setattr(space.SharedSpace, "__init__", plant)
    ran = under_tools("emu:gfx90a", [counter()], build_program("graph"))
    assert "libluthier_kfd.so" in ran.err
    assert f"the Luthier service that made the memory with kernels {OTHERS}" in ran.err
    assert ran.code != 0


class Listener(Tool):
    """A tool that listens to a function of HSA."""

    name = "listener"
    hsa_events = ("hsa_queue_create",)

    def at_hsa_event(self, event: ApiEvent) -> None:
        """Do nothing."""


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("head", "what"), [(memory.LEDGER_HEAD, "the ledger of launches"), (memory.EVENT_HEAD, "the ring of API events")]
)
def test_a_tool_library_finds_another_digest_in_memory(
    build_program: BuildProgram,
    under_tools: UnderTools,
    monkeypatch: pytest.MonkeyPatch,
    head: WireStructure,
    what: str,
) -> None:
    """The program runs, and the summary says what is missing."""
    real = shared_memory.SharedMemory.head

    def plant(self: shared_memory.SharedMemory, structure: WireStructure) -> Any:
        made = real(self, structure)
        if structure is head:
            made["digest"] = WRONG
        return made

    monkeypatch.setattr(shared_memory.SharedMemory, "head", plant)
    ran = under_tools("emu:gfx90a", [Listener()], build_program("graph"))
    (fault,) = ran.summary["faults"]
    message = f"the tool library (libluthier_tools.so) and the Luthier service that made {what} {OTHERS}"
    assert fault == message
    assert ran.code == 0
    if head is memory.LEDGER_HEAD:
        assert f"nothing is instrumented: {message}" in ran.err


def test_numbers_of_requests() -> None:
    with pytest.raises(ValueError, match=r"Second has the number 1, which luthier\.wire\.device_requests\.\w+ has"):

        @request(1)
        class Second(Message, frozen=True):
            pass
