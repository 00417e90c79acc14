"""Calls of API functions as rows of a run directory's table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from luthier.tool.observation import ApiEvent


class ApiCalls:
    """Calls that have ended, and those that have only begun.

    Attributes:
        rows: those that have ended, as of `luthier.run.schema.CALLS`.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._begun: dict[tuple[int, int], dict[str, Any]] = {}

    def add(self, api: str, event: ApiEvent) -> None:
        """Take in that a call of an API's function has begun or ended."""
        key = event.pid, event.call
        if not event.is_exit:
            arguments = json.dumps(dict(event.arguments), separators=(",", ":"))
            begun = {"process": event.pid, "thread": event.thread, "name": event.name, "begin_ns": event.time}
            self._begun[key] = {**begun, "end_ns": None, "result": None, "arguments": arguments, "api": api}
        elif (row := self._begun.pop(key, None)) is not None:
            self.rows.append({**row, "end_ns": event.time, "result": event.result})

    def end(self) -> None:
        """Take those that have only begun for calls whose end nobody knows."""
        self.rows += self._begun.values()
        self._begun.clear()

    def take(self) -> list[dict[str, Any]]:
        """Return `rows`, which are empty then."""
        rows, self.rows = self.rows, []
        return rows


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return rows that have the same columns as columns."""
    return {name: [row[name] for row in rows] for name in rows[0]}
