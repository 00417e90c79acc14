"""What native libraries and the service must agree about, and what becomes of those that do not."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from luthier import Tool
from luthier.channels.layout import CONTROL
from luthier.emulator import layout
from luthier.run import program, protocol
from luthier.run.instrumentation import Instrumentation
from luthier.run.protocol import Reader, Request, Writer
from luthier.run.selection import Selection
from luthier.run.service import Service
from luthier.tool import ToolGroup

from .conftest import RunUnderTools

LIBRARIES = ["libhsakmt.so.1", "libluthier_kfd.so", "libluthier_tools.so"]
OTHERS = "built from other sources: build it again"


def current() -> str:
    protocol.digest.cache_clear()
    return protocol.digest()


@pytest.fixture(autouse=True)
def same_again() -> None:
    protocol.digest.cache_clear()


@pytest.mark.parametrize("name", LIBRARIES)
def test_each_library_knows_the_digest(name: str) -> None:
    assert current().encode() in (program.library_folder() / name).read_bytes()


@pytest.mark.parametrize("structure", protocol.STRUCTURES)
def test_each_structure_counts(structure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, fields = current(), protocol.STRUCTURES[structure]
    found = {before}
    for number, (name, kind, count) in enumerate(fields):
        for other in ((f"{name}_", kind, count), (name, "<f8", count), (name, kind, count + 1)):
            changed = (*fields[:number], other, *fields[number + 1 :])
            monkeypatch.setitem(protocol.STRUCTURES, structure, changed)
            found.add(current())
    monkeypatch.setitem(protocol.STRUCTURES, structure, fields[::-1])
    found.add(current())
    assert len(found) == 2 + 3 * len(fields)
    monkeypatch.undo()
    assert current() == before


def test_all_else_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = current()
    monkeypatch.setattr(protocol, "VERSION", protocol.VERSION + 1)
    assert current() != before
    monkeypatch.undo()
    monkeypatch.setattr(layout, "HELP", 7)
    assert current() != before
    monkeypatch.undo()
    fewer = [request for request in Request if request is not Request.DRAIN]
    monkeypatch.setattr(protocol, "Request", fewer)
    assert current() != before


def test_places_in_structures_are_numpys() -> None:
    from luthier.run.shared_memory import structure_type

    for name, structure in protocol.STRUCTURES.items():
        places, size = protocol.offsets(structure)
        type = structure_type(name)
        assert (places, size) == ({field: offset for field, (_, offset, *_) in type.fields.items()}, type.itemsize)
    # rings.cpp has these two by hand.
    assert (CONTROL.fields["mode"][1], CONTROL.itemsize) == (72, 128)


def answers(messages: list[tuple[Request, bytes]]) -> tuple[list[tuple[int, str]], Instrumentation]:
    """What a service says to requests on one connection: a status, and the problem if that is not 0."""
    instrumentation = Instrumentation(ToolGroup.of(Tool()), Selection())
    service = Service.__new__(Service)  # what it has beside, no request gets to
    service._instrumentation = instrumentation
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=service._serve, args=(theirs,))
    thread.start()
    found = []
    with ours:
        for kind, payload in messages:
            ours.sendall(Writer().number(kind, len(payload)).data + payload)
            header = ours.recv(8, socket.MSG_WAITALL)
            reply = Reader(ours.recv(int.from_bytes(header, "little"), socket.MSG_WAITALL))
            status = reply.number()
            found.append((status, reply.text() if status else ""))
    thread.join()
    return found, instrumentation


def said(digest: str, *numbers: int) -> bytes:
    return bytes(Writer().text(digest).number(*numbers).data)


@pytest.mark.parametrize("kind", [Request.HELLO, Request.INSTRUMENT])
@pytest.mark.parametrize("digest", ["", "0" * 64, "x" * 200, None])
def test_who_says_another_digest_is_refused(kind: Request, digest: str | None) -> None:
    """None: nothing, as libraries did before; the process and its command line came first."""
    payload = bytes(Writer().number(4711).text("a program").data) if digest is None else said(digest, 4711)
    plan = (Request.PLAN if kind is Request.HELLO else Request.OBJECT, bytes(64))
    ((status, problem), (after, _)), instrumentation = answers([(kind, payload), plan])
    assert (status, after) == (1, 1)
    assert OTHERS in problem
    assert instrumentation.sessions == []
    if kind is Request.INSTRUMENT:
        assert any(OTHERS in fault for fault in instrumentation.faults)


@pytest.mark.parametrize("kind", [kind for kind in Request if kind not in (Request.HELLO, Request.INSTRUMENT)])
def test_nothing_is_answered_before_it(kind: Request) -> None:
    ((status, problem),), instrumentation = answers([(kind, said(current(), 1, 2, 3))])
    assert status == 1
    assert "before the first" in problem
    assert instrumentation.sessions == []


@pytest.mark.parametrize("name", ["libhsakmt.so.1", "libluthier_tools.so"])
def test_a_library_of_another_build_is_told(
    build_program: Callable[[str], Path],
    under_tools: Callable[..., RunUnderTools],
    counter: type[Tool],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
) -> None:
    folder = tmp_path / "libraries"
    shutil.copytree(program.library_folder(), folder, symlinks=True)
    data = (folder / name).read_bytes()
    assert data.count(current().encode()) == 1
    (folder / name).write_bytes(data.replace(current().encode(), b"0" * 64))
    monkeypatch.setattr(program, "library_folder", lambda: folder)
    ran = under_tools("emu:gfx90a", [counter()], build_program("graph"))
    assert OTHERS in ran.err
    if name == "libluthier_tools.so":
        assert any(OTHERS in fault for fault in ran.summary["faults"])
    else:
        assert ran.code != 0
