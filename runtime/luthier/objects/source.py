"""Source lines of a code object's instructions, and inlined calls."""

from __future__ import annotations

import bisect
import fnmatch
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from luthier.errors import ObjectError
from luthier.objects import elf as E
from luthier.objects.names import spellings
from luthier.objects.user_source import user_frame

if TYPE_CHECKING:
    from luthier.objects.dwarf import CompilationUnit, LineRow, Scope

_Map = tuple[NDArray[np.uint64], NDArray[np.int32]]
"""Ascending addresses at which a value changes, and the values."""
_LAST = (1 << 64) - 1
"""The last address; damaged ranges may exceed it."""
_MOST_PAINTED = 1 << 28
"""Maximum number of steps covered by all ranges; only damaged sections exceed it."""
_MOST_DIGITS = 18
"""Maximum digits of a line number."""


class SourceFrame(NamedTuple):
    """A location in the source: of an instruction, or of an inlined call."""

    function: str
    """Symbol of the function, or its name if it has no symbol; "" if unknown."""
    file: str
    """Path recorded by the compiler, including its working folder."""
    line: int
    """0: the compiler assigned no line."""
    column: int
    """0: unknown."""

    @property
    def place(self) -> str:
        """Return ``file:line:column``."""
        return f"{self.file}:{self.line}" + (f":{self.column}" if self.column else "")

    @property
    def name(self) -> str:
        """Return the function's name in the source, without parameters."""
        _, *demangled = spellings(self.function)
        return self.function if not demangled else demangled[0] if "operator" in demangled[0] else demangled[-1]


class SourceLocation(Struct, frozen=True):
    """Source location of an instruction."""

    frames: tuple[SourceFrame, ...]
    """Innermost first: the instruction's own location, then that of the call that inlined it, and so on; never empty.
    The last one's function contains the code."""

    @property
    def file(self) -> str:
        """Return the file of the instruction's own location."""
        return self.frames[0].file

    @property
    def line(self) -> int:
        """Return the line of the instruction's own location."""
        return self.frames[0].line

    @property
    def column(self) -> int:
        """Return the column of the instruction's own location."""
        return self.frames[0].column

    @property
    def user(self) -> SourceFrame:
        """Return the frame to which the instruction is charged: the user's own line, not that of a header."""
        return user_frame(self.frames)

    def __str__(self) -> str:
        return ", inlined at ".join(frame.place for frame in self.frames)

    def to_json(self) -> list[dict[str, str | int]]:
        """Return the frames as plain data, innermost first."""
        return [{**frame._asdict(), "name": frame.name} for frame in self.frames]


def in_source(location: SourceLocation | None) -> str:
    """Return a location as a suffix of an instruction's description, the user's line first; "" if unknown."""
    if location is None:
        return ""
    user = location.user
    return f" [{location}]" if user is location.frames[0] else f" [{user.place}: {location}]"


class SourceMap:
    """The source of one code object, read on demand.

    Args:
        elf: the object.
        text: address and size of each part with code, ascending and disjoint.
        functions: name, address and size of the symbols of functions.

    Attributes:
        locations: every location that was returned; `numbers` are indices in it.
        problems: what could not be read so far, and why.
        present: whether there is a line table, readable or not.
    """

    def __init__(
        self, elf: E.ElfFile, text: Sequence[tuple[int, int]], functions: Iterable[tuple[str, int, int]]
    ) -> None:
        self.locations: list[SourceLocation] = []
        self.problems: list[str] = []
        self._known: dict[SourceLocation, int] = {}
        self._text = text
        named = [one for one in functions if one[2] and _is_code(text, one[1])]
        self._functions = named
        self._bodies: list[int] = []
        """Ascending addresses at which functions have completed their frames, as read so far."""
        self._symbol_map = _paint([(address, address + size, at) for at, (_, address, size) in enumerate(named)])
        self._units: list[CompilationUnit | None] = []
        self._unit_map = _paint([])
        self._split = ""
        self._tables: dict[int, _Map] = {}
        self.present = ".debug_line" in elf.section_names
        if self.present:
            self._find_units(elf)
        else:
            self.problems.append("no debug information; compile with -g or -gline-tables-only")

    def at(self, address: int) -> SourceLocation | None:
        """Return the source location of the instruction at a virtual address; None if unknown."""
        number = int(self.numbers([address])[0])
        return None if number < 0 else self.locations[number]

    def numbers(self, addresses: ArrayLike) -> NDArray[np.int32]:
        """Return for each virtual address the index of its location in `locations`, -1 if unknown."""
        asked = np.asarray(addresses, np.uint64)
        numbers = np.full(asked.shape, -1, np.int32)
        units = _owners(asked, *self._unit_map)
        for unit in np.unique(units[units >= 0]).tolist():
            numbers[units == unit] = _owners(asked[units == unit], *self._table(unit))
        return numbers

    def body(self, address: int) -> range | None:
        """Return the part of a function's code after its frame is set up.

        Args:
            address: address of an instruction in the function.

        Returns:
            Virtual addresses; None if the function is unknown, or the compiler did not record it.
        """
        self.numbers([address])  # reads the unit
        symbol = int(_owners(np.array([address], np.uint64), *self._symbol_map)[0])
        if symbol < 0:
            return None
        _, begin, size = self._functions[symbol]
        at = bisect.bisect_left(self._bodies, begin)
        if at == len(self._bodies) or self._bodies[at] >= begin + size:
            return None
        return range(self._bodies[at], begin + size)

    def _find_units(self, elf: E.ElfFile) -> None:
        from luthier.objects.dwarf import Dwarf, DwarfError  # imports pyelftools

        try:
            dwarf = Dwarf(elf)
            for unit in dwarf.units():
                self._units.append(unit)
        except DwarfError as problem:
            self.problems.append(f"debug information: {problem}")
        if not self._units:
            self.problems.append("no compilation unit refers to the line table")
            return
        self._split = dwarf.split
        if dwarf.split:
            self.problems.append(f"inlined calls are described in {dwarf.split}, which is not read")
        painted = [
            (low, high, number)
            for number, unit in enumerate(self._units)
            if unit is not None
            for low, high in unit.ranges
            if _is_code(self._text, low)
        ]
        self._unit_map = _paint(painted)

    def _table(self, number: int) -> _Map:
        """Return the locations of a unit, by address."""
        if number not in self._tables:
            self._tables[number] = self._read(number)
        return self._tables[number]

    def _read(self, number: int) -> _Map:
        from luthier.objects.dwarf import DwarfError

        unit = self._units[number]
        assert unit is not None
        self._units[number] = None  # pyelftools keeps much memory for it
        rows: list[LineRow] = []
        scopes: list[Scope] = []
        complete = not self._split
        try:
            rows = _code_rows(unit, self._text)
        except DwarfError as problem:
            self.problems.append(str(problem))
        if not rows:
            return np.zeros(0, np.uint64), np.zeros(0, np.int32)
        self._bodies = sorted([*self._bodies, *(row.address for row in rows if row.body)])
        try:
            scopes = unit.scopes()
            painted = _code_scopes(scopes, self._text)
        except (DwarfError, ObjectError) as problem:
            self.problems.append(f"inlined calls: {problem}")
            painted = _paint([])
            complete = False
        starts = _addresses(rows)
        every = np.unique(np.concatenate([starts, painted[0], self._symbol_map[0]]))
        row_of = _owners(every, starts, np.arange(len(rows)))
        scope_of, symbol_of = _owners(every, *painted), _owners(every, *self._symbol_map)
        stacks: dict[int, tuple[SourceFrame, ...]] = {}
        numbers = []
        for row, scope, symbol in zip(row_of.tolist(), scope_of.tolist(), symbol_of.tolist(), strict=True):
            if row < 0 or rows[row].file is None:
                numbers.append(-1)
                continue
            if scope not in stacks:
                stacks[scope] = _callers(scopes[scope]) if scope >= 0 else ()
            function = scopes[scope].function if scope >= 0 else ""
            frames = [SourceFrame(function, *rows[row][1:4]), *stacks[scope]]
            if symbol >= 0 and complete:  # line tables alone have no symbols
                frames[-1] = frames[-1]._replace(function=self._functions[symbol][0])
            numbers.append(self._number_of(SourceLocation(tuple(frames))))
        return every, np.array(numbers, np.int32)

    def _number_of(self, location: SourceLocation) -> int:
        number = self._known.setdefault(location, len(self.locations))
        if number == len(self.locations):
            self.locations.append(location)
        return number


class SourceSelection:
    """Lines that a user selects: ``file.hip``, ``file.hip:12``, ``file.hip:12-20``, ``file.hip:12-20,31``, ``:12``.

    A file is given by the end of its path, in whole parts (``src/file.hip``, ``file.hip``), or by a glob. A line
    selects an instruction if it is the instruction's own, or that of a call that inlined it.

    Raises:
        ObjectError: the text is malformed.
    """

    def __init__(self, text: str) -> None:
        match = re.fullmatch(r"(.*?)(?::(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*))?", text, re.S)
        if not text or match is None:
            raise ObjectError(f"{text!r} is not a selection of source lines: use FILE, FILE:LINE or FILE:FIRST-LAST")
        self.text, self._file = text, match[1]
        self._lines = []
        for part in (match[2] or "").split(",") if match[2] else ():
            first, _, last = part.partition("-")
            if max(len(first), len(last)) > _MOST_DIGITS:
                raise ObjectError(f"{text[:80]!r}… is not a selection of source lines: a number is too long")
            self._lines.append(range(int(first), int(last or first) + 1))
            if not self._lines[-1]:
                raise ObjectError(f"{text!r} is not a selection of source lines: {part} is empty")

    def takes(self, location: SourceLocation | None) -> bool:
        """Return whether a location is selected."""
        return location is not None and any(self.has(frame) for frame in location.frames)

    def has(self, frame: SourceFrame) -> bool:
        """Return whether a frame is selected."""
        if self._lines and not any(frame.line in lines for lines in self._lines):
            return False
        if not self._file or frame.file == self._file or frame.file.endswith("/" + self._file.removeprefix("./")):
            return True
        return fnmatch.fnmatchcase(frame.file, self._file) or fnmatch.fnmatchcase(frame.file, "*/" + self._file)


def select_lines(map: SourceMap, addresses: Sequence[int], wanted: Iterable[str], *, object: str) -> list[bool]:
    """Return which addresses belong to lines that a user selects.

    Args:
        map: source map of their object.
        wanted: texts for `SourceSelection`, one of which must match.
        object: name of the object in errors.

    Raises:
        ObjectError: the lines of all addresses are unknown.
    """
    selections = [SourceSelection(text) for text in wanted]
    numbers = map.numbers(addresses).tolist()
    if all(number < 0 for number in numbers):
        reason = "; ".join(map.problems) or "no line table covers the code"
        raise ObjectError(f"source lines are unknown: {reason}", object=object)
    present = set(numbers) - {-1}
    taken = {number for number in present if any(one.takes(map.locations[number]) for one in selections)}
    return [number in taken for number in numbers]


class ProfilePlace(NamedTuple):
    """A location as sample profiles of LLVM have it."""

    copy: int
    """Number of the function's copy: itself, or an inlined call of it."""
    function: str
    """Symbol."""
    offset: int
    """Lines below the function's declaration."""
    discriminator: int
    """Base discriminator of LLVM."""
    duplicates: int
    """Number of copies that the compiler made of the instruction, as by unrolling."""


def profile_places(
    elf: E.ElfFile, text: Sequence[tuple[int, int]], addresses: Sequence[int]
) -> dict[int, ProfilePlace]:
    """Return the places of virtual addresses; those of unknown functions or without lines are left out.

    Args:
        elf: the object.
        text: address and size of each part with code, ascending and disjoint.
        addresses: of instructions.

    Raises:
        ObjectError: the debug information cannot be read.
    """
    from luthier.objects.dwarf import Dwarf, DwarfError  # imports pyelftools

    places: dict[int, ProfilePlace] = {}
    asked = np.array(sorted(addresses), np.uint64)
    copies = 0
    try:
        for unit in Dwarf(elf).units():
            scopes = unit.scopes()
            rows = _code_rows(unit, text)
            scope_of = _owners(asked, *_code_scopes(scopes, text))
            row_of = _owners(asked, _addresses(rows), np.arange(len(rows)))
            for position in np.flatnonzero((scope_of >= 0) & (row_of >= 0)).tolist():
                at, row = int(scope_of[position]), rows[row_of[position]]
                if row.file and row.line and scopes[at].declared:
                    base, duplicates = _discriminated(row.discriminator)
                    offset = (row.line - scopes[at].declared) & 0xFFFF  # as LLVM keeps it (FunctionSamples::getOffset)
                    places[int(asked[position])] = ProfilePlace(
                        copies + at, scopes[at].function, offset, base, duplicates
                    )
            copies += len(scopes)
    except DwarfError as problem:
        raise ObjectError(f"debug information: {problem}") from None
    return places


def _discriminated(value: int) -> tuple[int, int]:
    """Return base discriminator and duplication factor (LLVM's DILocation::decodeDiscriminator)."""

    def component(rest: int) -> tuple[int, int]:
        if rest & 1:
            return 0, rest >> 1
        number = (rest >> 1) & 0x1F
        return (number, rest >> 7) if not rest & 0x40 else (number | (rest >> 2) & 0xFE0, rest >> 14)

    base, rest = component(value)
    return base, component(rest)[0] or 1


def _is_code(text: Sequence[tuple[int, int]], address: int) -> bool:
    """Return whether an address is in the text. Code that the linker dropped has addresses outside."""
    at = bisect.bisect_right(text, address, key=lambda part: part[0])
    return at > 0 and address < sum(text[at - 1])


def _code_rows(unit: CompilationUnit, text: Sequence[tuple[int, int]]) -> list[LineRow]:
    """Return the line table of a unit's code in the text, by ascending addresses."""
    rows: list[LineRow] = []
    for sequence in sorted(unit.sequences(), key=lambda rows_of: rows_of[0].address):
        if _is_code(text, sequence[0].address) and (not rows or rows[-1].address <= sequence[0].address):
            rows += sequence
    return rows


def _code_scopes(scopes: Sequence[Scope], text: Sequence[tuple[int, int]]) -> _Map:
    """Return which of a unit's scopes has each address of the text."""
    return _paint(
        [(low, high, at) for at, scope in enumerate(scopes) for low, high in scope.ranges if _is_code(text, low)]
    )


def _addresses(rows: Sequence[LineRow]) -> NDArray[np.uint64]:
    return np.array([row.address for row in rows], np.uint64)


def _callers(scope: Scope) -> tuple[SourceFrame, ...]:
    """Return the call locations of an inlined scope, innermost first."""
    frames = []
    while scope.parent is not None:
        file, line, column = scope.call
        frames.append(SourceFrame(scope.parent.function, file, line, column))
        scope = scope.parent
    return tuple(frames)


def _owners(asked: NDArray[np.uint64], bounds: NDArray[np.uint64], owners: NDArray[Any]) -> NDArray[np.int32]:
    """Return for each address the owner of the last bound that is not above it; -1 below all bounds."""
    return np.append(owners, -1)[np.searchsorted(bounds, asked, "right") - 1].astype(np.int32)


def _paint(ranges: Sequence[tuple[int, int, int]]) -> _Map:
    """Return the owners of addresses from ranges; later ranges cover earlier ones.

    Args:
        ranges: (begin, end, owner).

    Raises:
        ObjectError: too many of them overlap.
    """
    if not ranges:
        return np.zeros(0, np.uint64), np.zeros(0, np.int32)
    ranges = [(min(low, _LAST), min(high, _LAST), owner) for low, high, owner in ranges]
    bounds = np.unique(np.array([edge for low, high, _ in ranges for edge in (low, high)], np.uint64))
    owners = np.full(len(bounds), -1, np.int32)
    lows = np.searchsorted(bounds, np.array([one[0] for one in ranges], np.uint64))
    highs = np.searchsorted(bounds, np.array([one[1] for one in ranges], np.uint64))
    if int((highs - lows).sum()) > _MOST_PAINTED:
        raise ObjectError("too many address ranges overlap")
    for low, high, (_, _, owner) in zip(lows.tolist(), highs.tolist(), ranges, strict=True):
        owners[low:high] = owner
    return bounds, owners
