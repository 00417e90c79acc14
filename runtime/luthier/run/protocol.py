"""Conversations with native libraries, on a socket: `luthier.wire` declares what they ask.

A request has its number and its size before it, a reply its size. A reply is a tuple: why the request is refused, else
nothing; the C functions that machine code has come to call since the last reply; the answer. File descriptors go beside
the first byte.
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
"""Bytes of a request."""


def handles(request: type[Message]) -> Callable[[Handler], Handler]:
    """Return a decorator of a method that handles requests: it gets who asks and the request, and returns the reply."""

    def decorate(method: Handler) -> Handler:
        method.__dict__["request"] = request
        return method

    return decorate


class Handlers(Generic[Owner, Peer]):
    """Methods of a class that handle requests, by the number of the request."""

    def __init__(self, owner: type[Owner]) -> None:
        handling = {name: method.request for name, method in vars(owner).items() if hasattr(method, "request")}
        self._methods = {request.REQUEST: (request, name) for name, request in handling.items()}

    def __contains__(self, number: int) -> bool:
        return number in self._methods

    def answer(self, owner: Owner, peer: Peer, number: int, payload: bytes, files: Sequence[int]) -> object:
        """Return the reply to a request.

        Args:
            owner: object whose method handles it.
            peer: who asks.
            files: descriptors that came with it.

        Raises:
            ProtocolError: it is unknown or malformed.
        """
        if number not in self._methods:
            raise ProtocolError(f"there is no request of kind {number}")
        request, name = self._methods[number]
        return getattr(owner, name)(peer, request.unpack(payload, files))


def first(request: type[Asked], payload: bytes, part: str) -> Asked:
    """Return the first request of a connection, which begins with the digest of `agreement`.

    Args:
        part: who asks.

    Raises:
        DeviceError: the digest is another one, or missing, as in libraries of other builds.
    """
    with contextlib.suppress(ProtocolError):
        asked = request.unpack(payload)
        if getattr(asked, "digest", "") == agreement.digest():
            return asked
    raise DeviceError(agreement.differs(part, "the Luthier service"))


Answer = Callable[[int, bytes, Sequence[int]], tuple[Sequence[str], object]]


def converse(connection: socket.socket, pid: int, answer: Answer) -> None:
    """Answer the requests of a process until it ends or sends what is no message.

    Args:
        pid: its number.
        answer: is given a request's number, contents and descriptors of files, and returns imports and the reply.
    """
    with connection, contextlib.suppress(OSError, ProtocolError):
        while (message := receive(connection)) is not None:
            number, payload, files = message
            try:
                imports, reply = answer(number, payload, files)
                data, sent = pack(("", imports, reply))
            except Exception as problem:  # it is reported to the program, and its process goes on
                data, sent = pack((_refusal(pid, problem), (), None))
            finally:
                for descriptor in files:
                    os.close(descriptor)
            send(connection, data, sent)


def _refusal(pid: int, problem: Exception) -> str:
    """Return why a request is refused; where the system lacked something, what was asked for is lost."""
    if not isinstance(problem, LuthierError):
        lack = shortage(problem) or (problem.strerror if isinstance(problem, OSError) else None)
        if lack is None:  # a bug of ours
            import traceback

            say_text("".join(traceback.format_exception(problem)), file=sys.stderr, end="")
            return f"the Luthier service failed: {problem!r}"
        problem = LackError(lack)
    if isinstance(problem, LackError | UnfinishedError):
        note_loss(f"what process {pid} asked for: {problem}")
    return visible_lines(str(problem)) or "refused"


def receive(connection: socket.socket) -> tuple[int, bytes, list[int]] | None:
    """Receive the next request: number, payload, file descriptors; None if the program has ended.

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
                raise ProtocolError(f"a message of {size} bytes is too large: at most {LARGEST} are allowed")
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
