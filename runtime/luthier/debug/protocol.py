"""Messages of the Debug Adapter Protocol on two streams: JSON after a header with its length."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import IO, Any

from luthier.errors import LuthierError

_LARGEST = 1 << 24
_MOST_HEADERS = 16


class ProtocolChannel:
    """Reads requests, and writes numbered responses and events; any thread may write."""

    def __init__(self, reading: IO[bytes], writing: IO[bytes]) -> None:
        self._reading, self._writing = reading, writing
        self._lock = threading.Lock()
        self._sent = 0

    def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end of the stream.

        Raises:
            LuthierError: it is malformed.
        """
        length = None
        for _ in range(_MOST_HEADERS):
            line = self._reading.readline(1 << 12)
            if not line:
                return None
            if line in (b"\r\n", b"\n"):
                break
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length" and value.strip().isdigit():
                length = int(value)
        if length is None or length > _LARGEST:
            raise LuthierError(f"Content-Length of a debug adapter message must be 0 to {_LARGEST}, not {length}")
        data = self._reading.read(length)
        if len(data) < length:
            return None
        try:
            message = json.loads(data)
        except (ValueError, RecursionError) as problem:
            raise LuthierError(f"a debug adapter message is not JSON: {problem}") from None
        if not isinstance(message, dict):
            raise LuthierError("a debug adapter message is not a JSON object")
        return message

    def respond(self, request: Mapping[str, Any], body: Mapping[str, Any] | None = None) -> None:
        """Answer a request."""
        self._send({"type": "response", **_about(request), "success": True, **({"body": body} if body else {})})

    def refuse(self, request: Mapping[str, Any], why: str) -> None:
        """Answer a request that failed."""
        body = {"error": {"id": 1, "format": why}}
        self._send({"type": "response", **_about(request), "success": False, "message": why, "body": body})

    def tell(self, event: str, **body: Any) -> None:
        """Send an event."""
        self._send({"type": "event", "event": event, "body": body})

    def _send(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._sent += 1
            data = json.dumps({"seq": self._sent, **message}).encode()
            self._writing.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
            self._writing.flush()


def _about(request: Mapping[str, Any]) -> dict[str, Any]:
    return {"request_seq": request.get("seq", 0), "command": request.get("command", "")}
