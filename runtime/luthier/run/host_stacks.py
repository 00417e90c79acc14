"""Stacks of the host's calls that launched kernels, as rows of tables in the run folder."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from luthier.findings.calls import HostSite
from luthier.objects.source import SourceFrame
from luthier.wire.structures import ProtocolError
from luthier.wire.tool_requests import FrameNumber, NewStack

_MOST_FRAMES = 1 << 22
"""Maximum number of different calls of a process."""


class _Stack(Struct, frozen=True):
    number: int
    sites: tuple[int, ...]
    """Innermost first."""
    ranges: tuple[str, ...]
    is_whole: bool


class HostStacks:
    """Stacks from which one process launched kernels. Not thread-safe."""

    def __init__(self) -> None:
        self._sites: list[HostSite] = []
        self._stacks: list[_Stack] = []

    def add(self, seen: NewStack) -> None:
        """Add a stack.

        Raises:
            ProtocolError: it is malformed.
        """
        self._sites += [HostSite(one.place, str(one.name), str(one.file), one.is_python) for one in seen.frames]
        numbers: list[int] = FrameNumber.read_rows(seen.stack)["number"].tolist()
        if len(self._sites) > _MOST_FRAMES or any(number >= len(self._sites) for number in numbers):
            raise ProtocolError("a stack of launches has frames that were never sent")
        self._stacks.append(_Stack(seen.number, tuple(numbers), tuple(map(str, seen.ranges)), seen.is_whole))

    def rows(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return rows of `luthier.run.schema.FRAMES` and `luthier.run.schema.STACKS`, without the process.

        The source of calls is read now, from the files as they are.
        """
        frames: list[dict[str, Any]] = []
        numbers = [self._frames(site, frames) for site in self._sites]
        stacks = [
            {
                "stack": stack.number,
                "frames": [number for site in reversed(stack.sites) for number in numbers[site]],
                "ranges": list(stack.ranges),
                "whole": stack.is_whole,
            }
            for stack in self._stacks
        ]
        return frames, stacks

    def _frames(self, site: HostSite, rows: list[dict[str, Any]]) -> Sequence[int]:
        """Add the rows of a call, which may be of inlined functions; return their numbers, outermost first."""
        known = site.frames or (SourceFrame("", "", 0, 0),)
        first = len(rows)
        for number, frame in zip(itertools.count(first), reversed(known), strict=False):
            rows.append(
                {
                    "frame": number,
                    "python": site.is_python,
                    "function": _unicode(frame.name),
                    "file": _unicode(frame.file) if frame.line else None,
                    "line": frame.line,
                    "object": None if site.is_python else _unicode(site.file),
                    "offset": None if site.is_python else site.offset,
                }
            )
        return range(first, len(rows))


def _unicode(text: str) -> str:
    """Return a path or symbol, with U+FFFD for bytes that are not UTF-8: tables have only Unicode."""
    return os.fsencode(text).decode(errors="replace")
