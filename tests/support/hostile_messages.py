"""Hostile messages of a program to the service of its run; as a program, sends all of them and prints the answers."""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import sys
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec
from luthier.emulator import agreement
from luthier.run.protocol import LARGEST
from luthier.run.sessions import ROWS
from luthier.wire import device_requests, memory, tool_requests
from luthier.wire.device_requests import Attach, Counts, Hello, Plan, Share, Unshare
from luthier.wire.messages import SOCKET_VARIABLE
from luthier.wire.structures import File, ForeignText, Message, pack
from luthier.wire.tool_requests import Instrument
from random_messages import random_message

CLOSED = "closed"
"""What came back where the service has closed the connection."""
DEVICE_KINDS, TOOL_KINDS = (
    [one for one in vars(module).values() if getattr(one, "REQUEST", 0) and one not in (Hello, Instrument)]
    for module in (device_requests, tool_requests)
)
_FILES = 4
"""Files beside a message that the service takes, at most."""


class Connection:
    """A connection to the service, after its first message.

    Args:
        kind: the first message's.
    """

    def __init__(self, kind: type[Hello] | type[Instrument] = Hello) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(os.environ[SOCKET_VARIABLE])
        self.socket.settimeout(60)
        self.files: list[int] = []
        first = self.ask(greeting(kind))
        assert first == "", first

    def ask(self, request: Message) -> str:
        """Return the problem that a request has; empty: none."""
        data, files = pack(request)
        return self.send(request.REQUEST, data, tuple(files))

    def send(self, kind: int, payload: bytes = b"", files: tuple[int, ...] = (), size: int | None = None) -> str:
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
        problem, _, _ = msgspec.msgpack.decode(reply)
        return str(problem)


def greeting(kind: type[Hello] | type[Instrument]) -> Hello | Instrument:
    """Return the first message of a connection."""
    return Hello(agreement.digest()) if kind is Hello else Instrument(agreement.digest(), ForeignText(b"hostile"))


def number(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def file_of(size: int) -> int:
    """Return a file of memory of this size in bytes."""
    file = os.memfd_create("hostile")
    os.ftruncate(file, size)
    return file


def _each(kinds: list[type[Message]], first: type[Hello] | type[Instrument], payload: bytes) -> list[str]:
    connection = Connection(first)
    return [connection.send(kind.REQUEST, payload) for kind in kinds]


def _half_messages() -> list[str]:
    for size in (1, 15, 16, 40):
        connection = Connection()
        connection.socket.sendall((number(Plan.REQUEST, 1000) + bytes(100))[:size])
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
    connection.socket.sendall(number(Share.REQUEST, 1000))
    try:
        for _ in range(1000):
            socket.send_fds(connection.socket, [b"x"], [file] * _FILES)
        return [connection.answer()]
    except OSError:
        return [CLOSED]


def _many_connections() -> list[str]:
    """Hold more connections at once than the service usually has; none sends anything."""
    held = [socket.socket(socket.AF_UNIX) for _ in range(200)]
    for connection in held:
        connection.connect(os.environ[SOCKET_VARIABLE])
    answers = [Connection().send(99)]
    for connection in held:
        connection.close()
    return answers


def _wrong_files() -> list[str]:
    """Share what is no memory: a folder, a device, a pipe, a socket."""
    files = [os.open("/", os.O_RDONLY), os.open("/dev/zero", os.O_RDWR), os.pipe()[0], socket.socket().detach()]
    connection = Connection()
    return [connection.ask(Share(4096, File(file))) for file in files]


def _cut_short() -> list[str]:
    """Cut the memory short that the service gives away."""
    errors = []
    for kind in (Hello, Instrument):
        for file in Connection(kind).files:
            for size in (0, 4096):
                try:
                    os.ftruncate(file, size)
                except PermissionError as problem:
                    errors.append(str(problem.strerror))
    return errors


def _overwritten() -> list[str]:
    """Overwrite the process's own ledger of launches: its head, its first kernels and launches."""
    connection = Connection(Instrument)
    (ledger,) = connection.files
    first = memory.LEDGER_HEAD.members[0].size
    for offset in (first, memory.LEDGER_HEAD.size + ROWS * memory.LEDGER_ROW.size):
        if offset < os.fstat(ledger).st_size:
            os.pwrite(ledger, b"\xff" * (1 << 16), offset)
    return [connection.ask(random_message(tool_requests.LaunchRequest, random.Random(0)))]


def _used_again() -> list[str]:
    """Attach to memory that was given back, or to somebody else's name; begin a conversation twice."""
    connection, file = Connection(), file_of(4096)
    assert connection.ask(Share(4096, File(file))) == ""
    names = range(1, 50)
    for name in names:
        connection.ask(Unshare(name))
    tools = Connection(Instrument)
    again = tools.ask(greeting(Instrument))
    return [*(connection.ask(Attach(name)) for name in (*names, 0, (1 << 64) - 1)), again]


def _after_the_end() -> list[str]:
    """Tell of all that was executed twice, and go on when nothing more was to come."""
    connection = Connection()
    last = [connection.ask(Counts(True, ())) for _ in range(2)]
    connection.socket.shutdown(socket.SHUT_WR)
    return [*last, connection.send(Plan.REQUEST)]


def _launch_memory() -> list[str]:
    """Tell of the memory of a launch that there is not."""
    launch = random_message(tool_requests.LaunchMemory, random.Random(0))
    return [Connection(Instrument).ask(launch)]


class Act(NamedTuple):
    """Something hostile."""

    do: Callable[[], list[str]]
    answers: str
    """What each answer is, as a regular expression."""


WITHOUT = "shared memory was sent without its file"
PAYLOADS = {
    "empty": b"",
    "counts": b"\xdd\xff\xff\xff\xff" * 9,
    "ones": b"\xff" * 480,
    "negative": b"\xdc\x00\x0d" + b"\xff" * 13,
    "no UTF-8": b"\x92\xa1\xff\xc4\x00",
    "deep": b"\x91" * 100_000,
}
"""Contents that no request has."""
MALFORMED = (
    r".*(malformed|names device|never|no process|unrequested|not request|are not checked|not running|without its file)"
)
ACTS = {
    "kind": Act(lambda: [Connection().send(kind) for kind in (0, 39, 99, 1 << 63)], "request|there"),
    "size": Act(lambda: [Connection().send(Plan.REQUEST, b"x", size=LARGEST + 1)], CLOSED),
    "half": Act(_half_messages, ""),
    "noise": Act(_noise, ""),
    **{
        f"{name}{of}": Act(partial(_each, kinds, first, payload), MALFORMED)
        for name, payload in PAYLOADS.items()
        for of, kinds, first in (("", DEVICE_KINDS, Hello), (", of tools", TOOL_KINDS, Instrument))
    },
    "no file": Act(lambda: [Connection().send(Share.REQUEST, pack(Share(4096, File(0)))[0])], ".*without its file"),
    "many files": Act(_many_files, f"a message|{CLOSED}"),
    "wrong files": Act(_wrong_files, WITHOUT),
    "small file": Act(lambda: [Connection().ask(Share(1 << 40, File(file_of(4096))))], WITHOUT),
    "many connections": Act(_many_connections, "request|there"),
    "cut short": Act(_cut_short, "Operation not permitted"),
    "overwritten": Act(_overwritten, MALFORMED),
    "used again": Act(_used_again, "."),
    "after the end": Act(_after_the_end, "|closed$"),
    "no launch": Act(_launch_memory, MALFORMED),
}


if __name__ == "__main__":
    with open(sys.argv[1], "w") as file:
        for name, act in ACTS.items():
            json.dump([name, act.do()], file)
            file.write("\n")
            file.flush()
