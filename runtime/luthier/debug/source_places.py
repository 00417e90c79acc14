"""Places in a captured launch's source, and the addresses at which their code begins."""

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
        addresses: of all instructions, ascending.
    """

    def __init__(self, launch: PreparedLaunch, bodies: Bodies, addresses: Sequence[int]) -> None:
        self._launch, self._bodies, self._addresses = launch, bodies, addresses

    @functools.cached_property
    def _frames_at(self) -> dict[int, tuple[SourceFrame, ...]]:
        """Return the places in the source of all instructions that have some, by address."""
        source = self._launch.object.source
        numbers = source.numbers(self._addresses).tolist() if source.present else []
        return {at: source.locations[one].frames for at, one in zip(self._addresses, numbers, strict=False) if one >= 0}

    def frames(self, address: int) -> tuple[SourceFrame, ...]:
        """Return the places in the source of an instruction, innermost first; empty if they are not known."""
        return self._frames_at.get(address, ())

    def file_of(self, path: str) -> str:
        """Return the source file, as the debug information names it, that a path means.

        That is itself, or the file that has most of the path's last parts: code is often compiled in another folder or
        on another machine.

        Args:
            path: absolute.

        Raises:
            LuthierError: no file has even its name, or several have as much of it.
        """
        source = self._source()
        files = {frame.file for location in source.locations for frame in location.frames}
        if path in files:
            return path
        shared = {file: _common_end(file, path) for file in files}
        most = max(shared.values(), default=0)
        found = [file for file, parts in shared.items() if parts == most]
        if not most:
            raise LuthierError(f"no code is of file {path!r}")
        if len(found) > 1:
            raise LuthierError(f"{path!r} may be {' or '.join(map(repr, sorted(found)))}, where the code was compiled")
        return found[0]

    def lines(self, file: str) -> dict[int, list[int]]:
        """Return the lines of a file that have code, and the addresses at which code of each begins.

        Args:
            file: end of a path, in whole parts.
        """
        chosen = SourceSelection(file)
        found: dict[int, list[int]] = {}
        before: set[int] = set()
        for address in self._addresses:
            now = {one.line for one in self.frames(address) if one.line and chosen.has(one)}
            for line in now - before:
                found.setdefault(line, []).append(address)
            before = now
        return found

    def addresses_of(self, place: str) -> list[int]:
        """Return where the code of a place begins: ``file.hip:12``, a function, ``*0x1b40``, or ``+0x40`` behind the
        kernel's entry.

        Raises:
            LuthierError: there is no code there.
        """
        code, kernel = self._launch.code, self._launch.kernel
        if place[:1] in ("*", "+"):
            try:
                address = int(place[1:], 0) + (kernel.entry if place[0] == "+" else 0)
            except ValueError:
                raise LuthierError(f"{place!r} is no address") from None
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
        found, before = [], False
        for address in self._addresses:  # a function by its name, wherever it is inlined
            now = any(place in (frame.function, frame.name) for frame in self.frames(address))
            if now and not before:
                found.append(address)
            before = now
        if not found:
            raise LuthierError(f"there is no function {place!r} in the code object")
        return found

    def nearest(self, place: str) -> str:
        """Return the line that a breakpoint at ``file.hip:12`` is at, and whose, if that line has no code; else ""."""
        file, colon, line = place.rpartition(":")
        if place[:1] in ("*", "+") or not (colon and line.isdecimal()) or int(line) in (lines := self.lines(file)):
            return ""
        nearest, chosen = min(one for one in lines if one > int(line)), SourceSelection(file)
        frames = [one for address in lines[nearest] for one in self.frames(address)]
        functions = {one.name or one.function for one in frames if one.line == nearest and chosen.has(one)}
        return f"line {nearest} of {' and '.join(sorted(functions))}"

    def _source(self) -> SourceMap:
        source = self._launch.object.source
        if not source.present:
            raise LuthierError("the code object has no source lines: compile with -g")
        source.numbers(self._addresses)  # locations are read as they are asked for
        return source

    def _line(self, file: str, line: int) -> list[int]:
        self._source()
        lines = self.lines(file)
        if not lines:
            raise LuthierError(f"no code is of file {file!r}")
        behind = [one for one in lines if one >= line]
        if not behind:
            raise LuthierError(f"{file}:{line}: no code is of this line or one behind it")
        return lines[min(behind)]


def _common_end(*paths: str) -> int:
    """Return how many of their last parts paths have in common."""
    parts = zip(*(os.path.normpath(one).split("/")[::-1] for one in paths), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda each: len(set(each)) == 1, parts))
