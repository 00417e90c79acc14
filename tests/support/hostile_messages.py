"""What a hostile program sends to the service of its run; as a program, does all of it and prints what came back."""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import sys
from collections.abc import Callable
from typing import NamedTuple

from luthier.emulator import agreement
from luthier.run.protocol import LARGEST, Writer
from luthier.run.sessions import ROWS
from luthier.wire import memory
from luthier.wire.messages import SOCKET_VARIABLE, Request

CLOSED = "closed"
"""What came back where the service has closed the connection."""
DEVICE_KINDS = [kind for kind in Request if Request.HELLO < kind < Request.INSTRUMENT]
OF_ANY = (Request.LAUNCH_END, Request.FAULT, Request.DRAIN)
"""Messages that are right whatever they contain, or whatever came before."""
TOOL_KINDS = [kind for kind in Request if kind > Request.INSTRUMENT and kind not in OF_ANY]
_FILES = 4
"""Files beside a message that the service takes, at most."""


class Connection:
    """A connection to the service, after its first message.

    Args:
        kind: the first message's.
    """

    def __init__(self, kind: Request = Request.HELLO) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(os.environ[SOCKET_VARIABLE])
        self.socket.settimeout(60)
        more = Writer().text("hostile").number(0, 0, 0, 0) if kind is Request.INSTRUMENT else Writer()
        self.files: list[int] = []
        first = self.ask(kind, bytes(Writer().text(agreement.digest()).data + more.data))
        assert first == "", first

    def ask(self, kind: int, payload: bytes = b"", files: tuple[int, ...] = (), size: int | None = None) -> str:
        """Return the problem that a message has; empty: none.

        Args:
            size: that the message claims to have.
        """
        header = struct.pack("<QQ", kind, len(payload) if size is None else size)
        try:
            sent = socket.send_fds(self.socket, [header + payload], files) if files else 0
            self.socket.sendall((header + payload)[sent:])
            return self.answer()
        except OSError:
            return CLOSED

    def answer(self) -> str:
        """Return the problem that the next reply tells."""
        header, self.files, *_ = socket.recv_fds(self.socket, 8, 8)
        if len(header) < 8:
            return CLOSED
        (size,) = struct.unpack("<Q", header)
        reply = b""
        while len(reply) < size:
            reply += self.socket.recv(size - len(reply))
        status, length = struct.unpack_from("<QQ", reply.ljust(16, b"\0"))
        return reply[16 : 16 + length].decode() if status else ""


def number(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def file_of(size: int) -> int:
    """Return a file of memory of so many bytes."""
    file = os.memfd_create("hostile")
    os.ftruncate(file, size)
    return file


def _each(kinds: list[Request], first: Request, payload: bytes) -> list[str]:
    connection = Connection(first)
    return [connection.ask(kind, payload) for kind in kinds]


def _half_messages() -> list[str]:
    for size in (1, 15, 16, 40):
        connection = Connection()
        connection.socket.sendall((number(Request.PLAN, 1000) + bytes(100))[:size])
        connection.socket.close()
    return []


def _noise() -> list[str]:
    chance = random.Random(1)
    for _ in range(100):
        with socket.socket(socket.AF_UNIX) as plain:
            plain.connect(os.environ[SOCKET_VARIABLE])
            plain.sendall(chance.randbytes(chance.randrange(200)))
    return []


def _many_files() -> list[str]:
    connection, file = Connection(), os.open(os.devnull, os.O_RDONLY)
    connection.socket.sendall(number(Request.SHARE, 1000))
    try:
        for _ in range(1000):
            socket.send_fds(connection.socket, [b"x"], [file] * _FILES)
        return [connection.answer()]
    except OSError:
        return [CLOSED]


def _many_connections() -> list[str]:
    """Hold more connections at once than the service usually has; none sends anything."""
    held = [socket.socket(socket.AF_UNIX) for _ in range(200)]
    for one in held:
        one.connect(os.environ[SOCKET_VARIABLE])
    found = [Connection().ask(99)]
    for one in held:
        one.close()
    return found


def _wrong_files() -> list[str]:
    """Share what is no memory: a folder, a device, a pipe, a socket."""
    files = [os.open("/", os.O_RDONLY), os.open("/dev/zero", os.O_RDWR), os.pipe()[0], socket.socket().detach()]
    connection = Connection()
    return [connection.ask(Request.SHARE, number(4096), (file,)) for file in files]


def _cut_short() -> list[str]:
    """Cut the memory short that the service gives away."""
    found = []
    for kind in (Request.HELLO, Request.INSTRUMENT):
        for file in Connection(kind).files:
            for size in (0, 4096):
                try:
                    os.ftruncate(file, size)
                except PermissionError as problem:
                    found.append(str(problem.strerror))
    return found


def _overwritten() -> list[str]:
    """Overwrite the ledger of launches, of which a process has its own: its head, its first kernels and launches."""
    connection = Connection(Request.INSTRUMENT)
    (ledger,) = connection.files
    first = memory.LEDGER_HEAD.members[0].size
    for offset in (first, memory.LEDGER_HEAD.size + ROWS * memory.LEDGER_ROW.size):
        if offset < os.fstat(ledger).st_size:
            os.pwrite(ledger, b"\xff" * (1 << 16), offset)
    return [connection.ask(Request.LAUNCH, number(*[0] * 20))]


def _used_again() -> list[str]:
    """Attach to memory that was given back, or to somebody else's name; begin a conversation twice."""
    connection, file = Connection(), file_of(4096)
    assert connection.ask(Request.SHARE, number(4096), (file,)) == ""
    names = range(1, 50)
    for name in names:
        connection.ask(Request.SHARE, number(0, name))
    tools = Connection(Request.INSTRUMENT)
    again = tools.ask(Request.INSTRUMENT, bytes(Writer().text(agreement.digest()).data))
    return [*(connection.ask(Request.ATTACH, number(name)) for name in (*names, 0, (1 << 64) - 1)), again]


def _after_the_end() -> list[str]:
    """Tell of all that was executed twice, and go on when nothing more was to come."""
    connection = Connection()
    last = [connection.ask(Request.COUNTS, number(1, 0)) for _ in range(2)]
    connection.socket.shutdown(socket.SHUT_WR)
    return [*last, connection.ask(Request.PLAN)]


def _launch_memory(rows: bytes, *files: int) -> list[str]:
    """Tell of a launch's memory that is not where it is said to be."""
    connection = Connection(Request.INSTRUMENT)
    payload = number(*[0] * 24) + rows
    return [connection.ask(Request.LAUNCH_MEMORY, payload, files)]


class Act(NamedTuple):
    """Something hostile."""

    do: Callable[[], list[str]]
    answers: str
    """What each answer is, as a regular expression."""


WITHOUT = "shared memory without its file"
MALFORMED = r".*(shorter|of kind|about device|never|nobody|are not checked|without its file)"
ACTS = {
    "kind": Act(lambda: [Connection().ask(kind) for kind in (0, 39, 99, 1 << 63)], "a message of kind|no tools|before"),
    "size": Act(lambda: [Connection().ask(Request.PLAN, b"x", size=LARGEST + 1)], CLOSED),
    "half": Act(_half_messages, ""),
    "noise": Act(_noise, ""),
    "empty": Act(lambda: _each(DEVICE_KINDS, Request.HELLO, b""), MALFORMED),
    "counts": Act(lambda: _each(DEVICE_KINDS, Request.HELLO, number(*[1 << 63] * 40)), MALFORMED),
    "ones": Act(lambda: _each(DEVICE_KINDS, Request.HELLO, b"\xff" * 8 * 60), MALFORMED),
    "empty, of tools": Act(lambda: _each(TOOL_KINDS, Request.INSTRUMENT, b""), MALFORMED),
    "counts, of tools": Act(lambda: _each(TOOL_KINDS, Request.INSTRUMENT, number(*[1 << 63] * 40)), MALFORMED),
    "ones, of tools": Act(lambda: _each(TOOL_KINDS, Request.INSTRUMENT, b"\xff" * 8 * 60), MALFORMED),
    "no file": Act(lambda: [Connection().ask(Request.SHARE, number(4096))], WITHOUT),
    "many files": Act(_many_files, f"{WITHOUT}|{CLOSED}"),
    "wrong files": Act(_wrong_files, WITHOUT),
    "small file": Act(lambda: [Connection().ask(Request.SHARE, number(1 << 40), (file_of(4096),))], WITHOUT),
    "many connections": Act(_many_connections, "a message of kind"),
    "cut short": Act(_cut_short, "Operation not permitted"),
    "overwritten": Act(_overwritten, MALFORMED),
    "used again": Act(_used_again, "."),
    "after the end": Act(_after_the_end, "|closed$"),
    "no launch": Act(lambda: _launch_memory(b"", file_of(4096)), MALFORMED),
}


if __name__ == "__main__":
    with open(sys.argv[1], "w") as file:
        for name, act in ACTS.items():
            json.dump([name, act.do()], file)
            file.write("\n")
            file.flush()
