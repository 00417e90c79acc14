"""Calls of API functions in a process, from the records of its tool library to tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from luthier.run.shared_memory import SharedMemory
from luthier.tool import Tool
from luthier.tool.observation import ApiEvent
from luthier.wire.memory import EVENT_HEAD, EVENT_RECORD
from luthier.wire.structures import ProtocolError
from luthier.wire.tool_requests import ApiFunction, ApiValue

RECORDS = 1 << 14
"""Capacity of a process's event buffer; the process waits while it is full."""
MEMORY = "memory"
"""Pseudo API of memory that the program allocates with HIP; its events have no end, unlike calls."""
APIS = ("hsa", "hip", MEMORY)
"""APIs whose calls tools can observe."""
RANGES = ("roctx", "roctx.range", "roctx.mark")
"""The program's ranges that nest on a thread, ranges that do not, and marks, treated like calls."""
_NAMES = [member.name for member in EVENT_RECORD.members]


def patterns(tools: Sequence[Tool], api: str) -> list[str]:
    """Return the patterns of an API's functions whose calls tools observe."""
    wanted = (getattr(tool, f"{api}_events") for tool in tools if wants(tool, api))
    return list(dict.fromkeys(pattern for of_tool in wanted for pattern in of_tool))


def wants(tool: Tool, api: str) -> bool:
    """Return whether a tool handles events of an API."""
    name = f"at_{api}_event"
    return getattr(type(tool), name) is not getattr(Tool, name)


class EventLog:
    """Events of one process. Not thread-safe."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._functions: list[ApiFunction] = []
        self.memory = SharedMemory("luthier-events", EVENT_HEAD.size + RECORDS * EVENT_RECORD.size)
        self._head = self.memory.head(EVENT_HEAD)
        records = self.memory.bytes[EVENT_HEAD.size :][: RECORDS * EVENT_RECORD.size]
        self._records = records.view(EVENT_RECORD.dtype)
        self._begun: dict[int, dict[str, int]] = {}
        """Call -> arguments, which its end does not repeat."""

    def add(self, functions: Sequence[ApiFunction]) -> None:
        """Add functions whose events the process announces.

        Raises:
            ProtocolError: a function belongs to an unknown API.
        """
        for function in functions:
            if function.api not in APIS + RANGES:
                raise ProtocolError(f"unknown API {function.api}: must be one of {', '.join(APIS + RANGES)}")
        self._functions += functions

    def take(self) -> Iterator[tuple[str, ApiEvent]]:
        """Yield the events since the last call, with their API, in order, and free their memory.

        Raises:
            ProtocolError: they are malformed.
        """
        written, read = int(self._head["written"][0]), int(self._head["read"][0])
        if not 0 <= written - read <= RECORDS:
            raise ProtocolError("the counters of the event buffer are malformed")
        records = self._records[np.arange(read, written) % RECORDS].tolist()
        self._head["read"][0] = written
        for values in records:
            record = dict(zip(_NAMES, values, strict=True))
            if record["function"] >= len(self._functions):
                raise ProtocolError("an event belongs to a function that was never announced")
            function = self._functions[record["function"]]
            yield function.api, self._event(function, record)

    def _event(self, function: ApiFunction, record: Mapping[str, Any]) -> ApiEvent:
        is_exit, call = bool(record["is_exit"]), record["call"]
        values = function.outputs if is_exit else function.arguments
        words = record["values"][: record["count"]]
        named = {value.name: value.of(int(word)) for value, word in zip(values, words, strict=False)}
        if not is_exit and function.api != MEMORY:
            self._begun[call] = named
        arguments = self._begun.pop(call, {}) if is_exit else named
        where = is_exit, self._pid, record["thread"], call, record["time"]
        returned = ApiValue(function.result_is_signed, "").of(record["result"]) if record["has_result"] else None
        return ApiEvent(str(function.name), *where, arguments, returned, named if is_exit else {})


def is_for(tool: Tool, api: str, name: str) -> bool:
    """Return whether a tool observes calls of a function."""
    return (
        api in APIS
        and wants(tool, api)
        and any(fnmatchcase(name, pattern) for pattern in getattr(tool, f"{api}_events"))
    )
