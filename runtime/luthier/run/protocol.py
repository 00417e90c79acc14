"""Communication with native libraries over a socket. `luthier.wire` declares the requests.

A request is preceded by its number and size, a reply by its size. A reply is a tuple: the reason if the request is
refused, otherwise ""; the C functions that machine code has started to call since the last reply; and the result. File
descriptors are sent with the first byte.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from luthier.emulator import agreement
from luthier.errors import DeviceError, LackError, LuthierError, UnfinishedError
from luthier.support.losses import note_loss
from luthier.support.shortage import shortage
from luthier.terminal import say_text, visible_lines
from luthier.wire.structures import Message, ProtocolError, pack

Peer = TypeVar("Peer")
Owner = TypeVar("Owner")
Asked = TypeVar("Asked", bound=Message)
Handler = TypeVar("Handler", bound=Callable[..., object])

LARGEST = 1 << 32
"""Maximum size of a request in bytes."""


def handles(request: type[Message]) -> Callable[[Handler], Handler]:
    """Return a decorator for a method that handles a request: it takes peer and request, and returns the reply."""

    def decorate(method: Handler) -> Handler:
        method.__dict__["request"] = request
        return method

    return decorate


class Handlers(Generic[Owner, Peer]):
    """Methods of a class that handle requests, by request number."""

    def __init__(self, owner: type[Owner]) -> None:
        handling = {name: method.request for name, method in vars(owner).items() if hasattr(method, "request")}
        self._methods = {request.REQUEST: (request, name) for name, request in handling.items()}

    def __contains__(self, number: int) -> bool:
        return number in self._methods

    def answer(self, owner: Owner, peer: Peer, number: int, payload: bytes, files: Sequence[int]) -> object:
        """Return the reply to a request.

        Args:
            owner: object whose method handles it.
            peer: sender of the request.
            files: file descriptors of the request.

        Raises:
            ProtocolError: the request is unknown or malformed.
        """
        if number not in self._methods:
            raise ProtocolError(f"there is no request of kind {number}")
        request, name = self._methods[number]
        return getattr(owner, name)(peer, request.unpack(payload, files))


def first(request: type[Asked], payload: bytes, part: str) -> Asked:
    """Parse the first request of a connection, which contains the digest of `agreement`.

    Args:
        part: name of the sender.

    Raises:
        DeviceError: the digest differs or is missing, as in libraries of other builds.
    """
    with contextlib.suppress(ProtocolError):
        asked = request.unpack(payload)
        if getattr(asked, "digest", "") == agreement.digest():
            return asked
    raise DeviceError(agreement.differs(part, "the Luthier service"))


Answer = Callable[[int, bytes, Sequence[int]], tuple[Sequence[str], object]]


def converse(connection: socket.socket, pid: int, answer: Answer) -> None:
    """Answer the requests of a process until it ends or sends something that is not a message.

    Args:
        pid: its process ID.
        answer: takes a request's number, contents and file descriptors, and returns imports and reply.
    """
    with connection, contextlib.suppress(OSError, ProtocolError):
        while (message := receive(connection)) is not None:
            number, payload, files = message
            try:
                imports, reply = answer(number, payload, files)
                data, sent = pack(("", imports, reply))
            except Exception as problem:  # reported to the program, whose process continues
                data, sent = pack((_refusal(pid, problem), (), None))
            finally:
                for descriptor in files:
                    os.close(descriptor)
            send(connection, data, sent)


def _refusal(pid: int, problem: Exception) -> str:
    """Return the reason to refuse a request; if the system lacked resources, record a loss."""
    if not isinstance(problem, LuthierError):
        lack = shortage(problem) or (problem.strerror if isinstance(problem, OSError) else None)
        if lack is None:  # a bug in Luthier
            import traceback

            say_text("".join(traceback.format_exception(problem)), file=sys.stderr, end="")
            return f"the Luthier service failed: {problem!r}"
        problem = LackError(lack)
    if isinstance(problem, LackError | UnfinishedError):
        note_loss(f"a request of process {pid}: {problem}")
    return visible_lines(str(problem)) or "refused"


def receive(connection: socket.socket) -> tuple[int, bytes, list[int]] | None:
    """Receive the next request: number, payload, file descriptors; None if the program has ended.

    Raises:
        ProtocolError: the request is too large.
        OSError: the connection broke.
    """
    descriptors = array.array("i")
    message = None
    try:
        header = _receive(connection, 16, descriptors)
        if header is not None:
            kind, size = struct.unpack("<QQ", header)
            if size > LARGEST:
                raise ProtocolError(f"a message of {size} bytes is too large: at most {LARGEST} are allowed")
            payload = _receive(connection, size, descriptors)
            message = None if payload is None else (kind, payload, list(descriptors))
    finally:
        if message is None:  # the caller does not receive them
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
