"""Messages between native libraries and the service: numbers of 64 bits and byte strings with their length, in order.

A request has a kind and a size before it, a reply a size. Every reply begins with a number that is 0, or 1 and a text
that says what is wrong, and the C functions that machine code has come to call since the last reply. File descriptors
go beside the first byte.

The first request of a connection begins with `digest`: what both sides take for granted about messages and about memory
that they share. The build makes wire_layout.h of this file (runtime/native/wire/wire_header.py), by which C++ knows it,
too, and holds its structures to these.
"""

from __future__ import annotations

import array
import enum
import functools
import hashlib
import re
import socket
import struct

from luthier.errors import DeviceError, LuthierError

LARGEST = 1 << 32
"""Bytes of a request."""


class ProtocolError(LuthierError):
    """A message that is malformed."""


class Request(enum.IntEnum):
    """What a program asks; the numbers are those of wire.h."""

    HELLO = 1
    """These are the virtual device's."""
    PLAN = 2
    BIND = 3
    EXPLAIN = 4
    SHARE = 5
    ATTACH = 6
    COUNTS = 7
    INSTRUMENT = 16
    """These are the tool library's. Their replies name no C functions."""
    OBJECT = 17
    KERNEL = 18
    BLOCK = 19
    LOADED = 20
    FAULT = 21
    CODE_OBJECT = 22
    LAUNCH = 23
    LAUNCH_END = 24
    FUNCTIONS = 40
    DRAIN = 41


VERSION = 2
"""Of what is in messages; raised where that changes."""
Structure = tuple[tuple[str, str, int], ...]
"""Fields in order, without gaps: name, NumPy's name of its type, and how many of them there are."""
STRUCTURES: dict[str, Structure] = {
    "LEDGER_HEAD": (("records", "<u8", 1), ("reserved", "<u8", 7)),
    "LEDGER_ROW": (("launches", "<u8", 1), ("instrumented", "<u8", 1), ("waves", "<u8", 2), ("reserved", "<u8", 4)),
    "LEDGER_RECORD": (
        *(("time", "<u8", 1), ("number", "<u8", 1), ("begin", "<u8", 1), ("end", "<u8", 1)),
        *(("kernel", "<u2", 1), ("instrumented", "<u2", 1), ("grid", "<u4", 3)),
        *(("group_segment", "<u4", 1), ("private_segment", "<u4", 1), ("block", "<u2", 3), ("queue", "<u2", 1)),
    ),
    "EVENT_HEAD": (("written", "<u8", 1), ("read", "<u8", 1), ("reserved", "<u8", 6)),
    "EVENT_RECORD": (
        *(("time", "<u8", 1), ("call", "<u8", 1), ("thread", "<u4", 1), ("function", "<u4", 1)),
        *(("is_exit", "<u2", 1), ("has_result", "<u2", 1), ("count", "<u2", 1), ("reserved", "<u2", 1)),
        *(("result", "<u8", 1), ("values", "<u8", 27)),
    ),
}
"""What is in memory that processes share with the service: `Head`, `Row` and `Record` of ledger.h, `Head` and `Record`
of events.cpp."""


def offsets(structure: Structure) -> tuple[dict[str, int], int]:
    """Where the fields of a structure are, in bytes, and its size."""
    places, size = {}, 0
    for name, kind, count in structure:
        places[name] = size
        size += int(kind[2:]) * count
    return places, size


@functools.cache
def digest() -> str:
    """Of all that a native library and the service must agree about: 64 hexadecimal digits."""
    from luthier.emulator import layout  # not before a program asks

    requests = [(request.name, request.value) for request in Request]
    return hashlib.sha256(repr((VERSION, layout.digest(), requests, sorted(STRUCTURES.items()))).encode()).hexdigest()


def header() -> str:
    """The text of wire_layout.h: the digest, and macros that hold a C++ structure, and the requests, to this file."""
    lines = ["// Made from luthier/run/protocol.py by wire_header.py.", "#pragma once", "#include <cstddef>"]
    lines.append(f'namespace luthier::wire {{ inline constexpr char kDigest[] = "{digest()}"; }}')
    for name, structure in STRUCTURES.items():
        places, size = offsets(structure)
        same = [f"offsetof(T, {field}) == {place}" for field, place in places.items()]
        told = f'static_assert({" && ".join([f"sizeof(T) == {size}", *same])}, "not as protocol.py has it")'
        lines.append(f"#define LUTHIER_CHECK_{name}(T) {told}")
    numbers = []
    for request in Request:
        spelt = "k" + re.sub(r"(?:^|_)([A-Z])([A-Z]*)", lambda word: word[1] + word[2].lower(), request.name)
        numbers.append(f"static_cast<uint64_t>(Request::{spelt}) == {request.value}")
    lines.append(f'#define LUTHIER_CHECK_REQUESTS static_assert({" && ".join(numbers)}, "not as protocol.py has it")')
    return "\n".join([*lines, ""])


def agree(request: Reader) -> None:
    """Take the digest that the first request of a connection begins with.

    Raises:
        DeviceError: it is another one, or missing, as in libraries of earlier versions.
    """
    try:
        said = request.string()
    except ProtocolError:
        said = b""
    if said != digest().encode():
        raise DeviceError("the native library was built from other sources: build it again (make setup)")


class Reader:
    """A message, taken apart from its start."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        """The next number."""
        return int(struct.unpack("<Q", self.take(8))[0])

    def string(self) -> bytes:
        """The next byte string."""
        return self.take(self.number())

    def text(self) -> str:
        """The next byte string as text."""
        return self.string().decode(errors="replace")

    def take(self, size: int) -> bytes:
        """The next bytes."""
        if size > len(self._data) - self._at:
            raise ProtocolError("a message is shorter than it says")
        self._at += size
        return self._data[self._at - size : self._at]


class Writer:
    """A message, put together."""

    def __init__(self) -> None:
        self.data = bytearray()

    def number(self, *values: int) -> Writer:
        """Append numbers."""
        self.data += struct.pack(f"<{len(values)}Q", *values)
        return self

    def string(self, data: bytes) -> Writer:
        """Append a byte string."""
        self.number(len(data))
        self.data += data
        return self

    def text(self, text: str) -> Writer:
        """Append a text."""
        return self.string(text.encode())


def receive(connection: socket.socket) -> tuple[int, bytes, list[int]] | None:
    """The next request: kind, payload, file descriptors; None if the program has ended.

    Raises:
        ProtocolError: it is too large.
        OSError: the connection broke.
    """
    descriptors = array.array("i")
    header = _receive(connection, 16, descriptors)
    if header is None:
        return None
    kind, size = struct.unpack("<QQ", header)
    if size > LARGEST:
        raise ProtocolError(f"a message of {size} bytes")
    payload = _receive(connection, size, descriptors)
    return None if payload is None else (kind, payload, list(descriptors))


def _receive(connection: socket.socket, size: int, descriptors: array.array[int]) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        data, ancillary, _, _ = connection.recvmsg(min(size - len(parts), 1 << 20), socket.CMSG_SPACE(16))
        for level, type, contents in ancillary:
            if level == socket.SOL_SOCKET and type == socket.SCM_RIGHTS:
                descriptors.frombytes(contents[: len(contents) - len(contents) % descriptors.itemsize])
        if not data:
            return None
        parts += data
    return bytes(parts)


def send(connection: socket.socket, payload: bytes, descriptors: list[int] | None = None) -> None:
    """Send a reply."""
    data = struct.pack("<Q", len(payload)) + payload
    if descriptors:
        sent = socket.send_fds(connection, [data], descriptors)
        data = data[sent:]
    connection.sendall(data)
