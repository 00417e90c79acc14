"""Calls of API functions as rows of a table in the run folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from luthier.tool.observation import ApiEvent


class ApiCalls:
    """Calls that have ended, and calls that have only begun.

    Attributes:
        rows: calls that have ended, in the form of `luthier.run.schema.CALLS`.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._begun: dict[tuple[int, int], dict[str, Any]] = {}

    def add(self, api: str, event: ApiEvent) -> None:
        """Record the begin or end of a call."""
        key = event.pid, event.call
        if not event.is_exit:
            arguments = json.dumps(dict(event.arguments), separators=(",", ":"))
            begun = {"process": event.pid, "thread": event.thread, "name": event.name, "begin_ns": event.time}
            self._begun[key] = {**begun, "end_ns": None, "result": None, "arguments": arguments, "api": api}
        elif (row := self._begun.pop(key, None)) is not None:
            self.rows.append({**row, "end_ns": event.time, "result": event.result})

    def end(self) -> None:
        """Add calls that have only begun, without an end."""
        self.rows += self._begun.values()
        self._begun.clear()

    def take(self) -> list[dict[str, Any]]:
        """Return `rows` and clear them."""
        rows, self.rows = self.rows, []
        return rows


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Convert rows with the same columns to columns."""
    return {name: [row[name] for row in rows] for name in rows[0]}
