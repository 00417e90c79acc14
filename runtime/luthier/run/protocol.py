"""Messages between native libraries and the service, on a socket: `luthier.wire.messages` declares what is in them.

A request has a kind and a size before it, a reply a size. Every reply begins with a number that is 0, or 1 and a text
that says what is wrong, and the C functions that machine code has come to call since the last reply. File descriptors
go beside the first byte.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from typing import TypeVar

from luthier.emulator import agreement
from luthier.errors import DeviceError, LuthierError
from luthier.wire.structures import Message

Numbers = TypeVar("Numbers", bound=Message)

LARGEST = 1 << 32
"""Bytes of a request."""


class ProtocolError(LuthierError):
    """A message that is malformed."""


def agree(request: Reader, part: str) -> None:
    """Take the digest that the first request of a connection begins with.

    Args:
        part: who says it.

    Raises:
        DeviceError: it is another one, or missing, as in libraries of earlier versions.
    """
    try:
        said = request.string()
    except ProtocolError:
        said = b""
    if said != agreement.digest().encode():
        raise DeviceError(agreement.differs(part, "the Luthier service"))


class Reader:
    """A message, taken apart from its start."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        """Read the next number."""
        return int(struct.unpack("<Q", self.take(8))[0])

    def numbers(self, kind: type[Numbers]) -> Numbers:
        """The next numbers, of a message."""
        return kind.unpack(self.take(kind.byte_size()))

    def string(self) -> bytes:
        """Read the next byte string."""
        return self.take(self.number())

    def text(self) -> str:
        """Read the next byte string as text."""
        return self.string().decode(errors="replace")

    def take(self, size: int) -> bytes:
        """Read the next bytes."""
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

    def numbers(self, message: Message) -> Writer:
        """Append numbers of a message."""
        self.data += message.pack()
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
    """Receive the next request: kind, payload, file descriptors; None if the program has ended.

    Raises:
        ProtocolError: it is too large.
        OSError: the connection broke.
    """
    descriptors = array.array("i")
    message = None
    try:
        header = _receive(connection, 16, descriptors)
        if header is not None:
            kind, size = struct.unpack("<QQ", header)
            if size > LARGEST:
                raise ProtocolError(f"a message of {size} bytes")
            payload = _receive(connection, size, descriptors)
            message = None if payload is None else (kind, payload, list(descriptors))
    finally:
        if message is None:  # nobody else knows them
            for descriptor in descriptors:
                os.close(descriptor)
    return message


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
