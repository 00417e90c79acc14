"""Source places of a captured launch, and the addresses at which their code begins."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Sequence

from luthier.capture.replay import PreparedLaunch
from luthier.debug.bodies import Bodies
from luthier.errors import DeviceError, LuthierError
from luthier.objects.source import SourceFrame, SourceMap, SourceSelection


class SourcePlaces:
    """The places of a launch's code.

    Args:
        addresses: addresses of all instructions, ascending.
    """

    def __init__(self, launch: PreparedLaunch, bodies: Bodies, addresses: Sequence[int]) -> None:
        self._launch, self._bodies, self._addresses = launch, bodies, addresses

    @functools.cached_property
    def _frames_at(self) -> dict[int, tuple[SourceFrame, ...]]:
        """Return the source places of instructions that have some, by address."""
        source = self._launch.object.source
        numbers = source.numbers(self._addresses).tolist() if source.present else []
        places = zip(self._addresses, numbers, strict=False)
        return {address: source.locations[number].frames for address, number in places if number >= 0}

    def frames(self, address: int) -> tuple[SourceFrame, ...]:
        """Return the source places of an instruction, innermost first; empty if they are not known."""
        return self._frames_at.get(address, ())

    def file_of(self, path: str) -> str:
        """Return the name in the debug information of the source file at a path.

        It is the path itself, or the file that shares most of the path's last parts: code is often compiled in another
        folder or on another machine.

        Args:
            path: absolute.

        Raises:
            LuthierError: no file has the same name, or several match equally well.
        """
        source = self._source()
        files = {frame.file for location in source.locations for frame in location.frames}
        if path in files:
            return path
        shared = {file: _common_end(file, path) for file in files}
        most = max(shared.values(), default=0)
        matches = [file for file, parts in shared.items() if parts == most]
        if not most:
            raise LuthierError(f"no code comes from file {path!r}")
        if len(matches) > 1:
            raise LuthierError(f"{path!r} is ambiguous: it may be {' or '.join(map(repr, sorted(matches)))}")
        return matches[0]

    def lines(self, file: str) -> dict[int, list[int]]:
        """Return the lines of a file that have code, with the addresses at which their code begins.

        Args:
            file: end of a path, in whole parts.
        """
        chosen = SourceSelection(file)
        addresses_by_line: dict[int, list[int]] = {}
        before: set[int] = set()
        for address in self._addresses:
            now = {frame.line for frame in self.frames(address) if frame.line and chosen.has(frame)}
            for line in now - before:
                addresses_by_line.setdefault(line, []).append(address)
            before = now
        return addresses_by_line

    def addresses_of(self, place: str) -> list[int]:
        """Return the addresses at which the code of a place begins.

        Args:
            place: ``file.hip:12``, a function, ``*0x1b40``, or ``+0x40`` from the kernel's entry.

        Raises:
            LuthierError: the place has no code.
        """
        code, kernel = self._launch.code, self._launch.kernel
        if place[:1] in ("*", "+"):
            try:
                address = int(place[1:], 0) + (kernel.entry if place[0] == "+" else 0)
            except ValueError:
                raise LuthierError(f"{place!r} is not an address") from None
            if code.record_at(address) is None:
                raise DeviceError(f"no instruction begins at {address:#x}", offset=address)
            return [address]
        file, colon, line = place.rpartition(":")
        if colon and line.isdecimal():
            return self._line(file, int(line))
        entry = next((one for one in self._launch.object.kernels.values() if one.name == place), None)
        symbol = self._launch.object.symbol(place)
        address = entry.entry if entry is not None else symbol.address if symbol is not None and symbol.defined else -1
        if code.record_at(address) is not None:
            body = self._bodies.body(address)
            return [address if body is None else body.start]
        addresses, before = [], False
        for address in self._addresses:  # everywhere a function with this name is inlined
            now = any(place in (frame.function, frame.name) for frame in self.frames(address))
            if now and not before:
                addresses.append(address)
            before = now
        if not addresses:
            raise LuthierError(f"there is no function {place!r} in the code object")
        return addresses

    def nearest(self, place: str) -> str:
        """Return the line, and its function, that a breakpoint at ``file.hip:12`` uses; empty if line 12 has code."""
        file, colon, line = place.rpartition(":")
        if place[:1] in ("*", "+") or not (colon and line.isdecimal()) or int(line) in (lines := self.lines(file)):
            return ""
        nearest, chosen = min(number for number in lines if number > int(line)), SourceSelection(file)
        frames = [frame for address in lines[nearest] for frame in self.frames(address)]
        functions = {frame.name or frame.function for frame in frames if frame.line == nearest and chosen.has(frame)}
        return f"line {nearest} of {' and '.join(sorted(functions))}"

    def _source(self) -> SourceMap:
        source = self._launch.object.source
        if not source.present:
            raise LuthierError("the code object has no source lines: compile with -g")
        source.numbers(self._addresses)  # locations are read on demand
        return source

    def _line(self, file: str, line: int) -> list[int]:
        self._source()
        lines = self.lines(file)
        if not lines:
            raise LuthierError(f"no code comes from file {file!r}")
        following = [number for number in lines if number >= line]
        if not following:
            raise LuthierError(f"{file}:{line}: no code comes from this line or a later one")
        return lines[min(following)]


def _common_end(*paths: str) -> int:
    """Return how many last parts paths have in common."""
    parts = zip(*(os.path.normpath(path).split("/")[::-1] for path in paths), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda each: len(set(each)) == 1, parts))
