"""Calls of API functions in a process: what its tool library writes down, and what tools are told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np

from luthier.observation import ApiEvent
from luthier.run.protocol import ProtocolError, Reader
from luthier.run.shared_memory import SharedMemory, structure_type
from luthier.tool import Tool

HEAD, RECORD = structure_type("EVENT_HEAD"), structure_type("EVENT_RECORD")
RECORDS = 1 << 14
"""Events of a process that wait to be told; when there are more the process waits."""
APIS = ("hsa", "hip")


class _Value(NamedTuple):
    name: str
    is_signed: bool

    def of(self, word: int) -> int:
        """The integer in 64 bits."""
        return word - (1 << 64) if self.is_signed and word >> 63 else word


@dataclass(frozen=True)
class _Function:
    api: str
    name: str
    arguments: Sequence[_Value]
    outputs: Sequence[_Value]
    result: _Value


def patterns(tools: Sequence[Tool], api: str) -> list[str]:
    """Of which functions of an API tools want to be told."""
    wanted = (getattr(tool, f"{api}_events") for tool in tools if wants(tool, api))
    return list(dict.fromkeys(pattern for of_tool in wanted for pattern in of_tool))


def wants(tool: Tool, api: str) -> bool:
    """Whether a tool has a method of its own for events of an API."""
    name = f"at_{api}_event"
    return getattr(type(tool), name) is not getattr(Tool, name)


class EventLog:
    """The events of one process. Not safe from several threads."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._functions: list[_Function] = []
        self.memory = SharedMemory("luthier-events", HEAD.itemsize + RECORDS * RECORD.itemsize)
        self._head = self.memory.bytes[: HEAD.itemsize].view(HEAD)
        self._records = self.memory.bytes[HEAD.itemsize :][: RECORDS * RECORD.itemsize].view(RECORD)
        self._begun: dict[int, dict[str, int]] = {}
        """By call: the arguments, which are not written down again at its end."""

    def add(self, request: Reader) -> None:
        """The process says of which functions there will be events.

        Raises:
            ProtocolError: of an API that there is not.
        """
        for _ in range(request.number()):
            api, name = request.text(), request.text()
            if api not in APIS:
                raise ProtocolError(f"functions of {api}")
            arguments, outputs = (
                [_Value(request.text(), bool(request.number())) for _ in range(request.number())] for _ in range(2)
            )
            self._functions.append(_Function(api, name, arguments, outputs, _Value("", bool(request.number()))))

    def take(self) -> Iterator[tuple[str, ApiEvent]]:
        """What has come since the last time, with its API, in order. There is room for more at once.

        Raises:
            ProtocolError: malformed.
        """
        written, read = int(self._head["written"][0]), int(self._head["read"][0])
        if not 0 <= written - read <= RECORDS:
            raise ProtocolError("events that cannot be")
        records = self._records[np.arange(read, written) % RECORDS].tolist()
        self._head["read"][0] = written
        for record in records:
            if record[3] >= len(self._functions):
                raise ProtocolError("an event of a function that was never told of")
            function = self._functions[record[3]]
            yield function.api, self._event(function, *record)

    def _event(self, function: _Function, time: int, call: int, thread: int, _: int, *rest: Any) -> ApiEvent:
        is_exit, has_result, count, _, result, words = rest
        values = function.outputs if is_exit else function.arguments
        told = {value.name: value.of(int(word)) for value, word in zip(values, words[:count], strict=False)}
        if not is_exit:
            self._begun[call] = told
        arguments = self._begun.pop(call, {}) if is_exit else told
        where = bool(is_exit), self._pid, thread, call, time
        returned = function.result.of(result) if has_result else None
        return ApiEvent(function.name, *where, arguments, returned, told if is_exit else {})


def is_for(tool: Tool, api: str, name: str) -> bool:
    """Whether a tool wants to be told of a function."""
    return wants(tool, api) and any(fnmatchcase(name, pattern) for pattern in getattr(tool, f"{api}_events"))
