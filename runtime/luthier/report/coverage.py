"""Executions of source lines and functions of device code, for formats of coverage tools."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from luthier.errors import LuthierError
from luthier.objects import CodeObject, find_objects
from luthier.report.charging import COLUMNS, SourceLine, charged
from luthier.report.rows import KernelNumbers, by_kernel
from luthier.run.folder import RunFolder
from luthier.run.patching import digest_of
from luthier.support.wording import counted, enumerated
from luthier.terminal import say

_Functions = dict[tuple[str, str], "CoveredFunction"]
"""Functions by symbol and the file in which they begin: code objects may have different functions of one symbol."""
_STEP = 4
"""Bytes between looked-up addresses of code that did not run; every AMD GPU instruction is at least as long."""


class CoveredFunction(Struct):
    """A kernel, or a function that was not inlined, over all kernels that call it."""

    name: str
    """Symbol."""
    start: SourceLine
    """Line of its first instruction."""
    count: int = 0
    """Executions of its first instruction."""
    lines: dict[SourceLine, int] = field(default_factory=dict)
    """Executions of each of its lines, those of functions inlined into it included."""


class CountedCode(Struct):
    """Executions of device code."""

    unit: str
    """What is counted: ``lanes`` (executions by work-items), or ``waves`` if a kernel's lanes were not counted."""
    notes: list[str]
    """What is missing or not counted."""

    def say(self) -> None:
        """Print the unit and the notes on standard error."""
        for note in (f"counts are executions by {self.unit}", *self.notes):
            say(f"luthier report: {note}", file=sys.stderr)


class DeviceCoverage(CountedCode):
    """Coverage of the code objects from which a run launched kernels."""

    functions: list[CoveredFunction]

    @property
    def files(self) -> dict[str, dict[int, int]]:
        """Executions by file and line, over all functions."""
        files: dict[str, dict[int, int]] = {}
        for function in self.functions:
            for place, count in function.lines.items():
                lines = files.setdefault(place.file, {})
                lines[place.line] = lines.get(place.line, 0) + count
        return {file: dict(sorted(files[file].items())) for file in sorted(files)}


class InstructionExecutions(Struct):
    """Counts of one instruction; None if unknown."""

    executions: int | None
    lanes: int | None


def device_coverage(run: RunFolder) -> DeviceCoverage:
    """Return the coverage of a run.

    A line's count is that of its most executed instruction. Counts of a line in several functions, and of several
    inlined copies in one function, are added; copies that the compiler made otherwise, as by unrolling, are not.

    Raises:
        LuthierError: the run has no counts or no source lines, or is damaged.
    """
    numbers, kernels, counts = counts_by_address(run)
    is_lanes = has_lanes(counts)
    functions: _Functions = {}
    for number, rows in _listings(run, numbers, counts):
        entries = _entries(run, numbers, number)
        _add(functions, rows, counts[number], entries, is_lanes)
    if not any(function.lines for function in functions.values()):
        raise LuthierError(f"{run.path} has no source lines: compile the program with -g or -gline-tables-only")
    notes = uncounted(kernels, counts)
    _add_idle(functions, kernels, notes)
    return DeviceCoverage("lanes" if is_lanes else "waves", notes, list(functions.values()))


def counts_by_address(
    run: RunFolder,
) -> tuple[KernelNumbers, dict[int, dict[str, Any]], dict[int, dict[int, InstructionExecutions]]]:
    """Return the numbers of a run's kernels, their rows, and their counts by address.

    Kernels of which nothing was counted have no counts.

    Raises:
        LuthierError: nothing was counted, or the run is damaged.
    """
    numbers = KernelNumbers()
    kernels = {numbers.of(row["kernel"], row["digest"]): row for row in run.rows("kernels")}
    counts: dict[int, dict[int, InstructionExecutions]] = {}
    for number, rows in by_kernel(run, "counts", ("address", "executions", "active_lanes"), numbers, kernels):
        of = counts.setdefault(number, {})
        for address, executions, lanes in zip(*rows.values(), strict=True):
            known = of.setdefault(address, InstructionExecutions(executions, lanes))
            known.executions = executions if known.executions is None else known.executions
            known.lanes = lanes if known.lanes is None else known.lanes
    counts = {at: of for at, of in counts.items() if any(one.executions is not None for one in of.values())}
    if not counts:
        raise LuthierError(f"{run.path} has no counts of instructions: run the program with -t block_profile")
    return numbers, kernels, counts


def has_lanes(counts: Mapping[int, Mapping[int, InstructionExecutions]]) -> bool:
    """Return whether the active lanes of all counted instructions are known."""
    return all(one.lanes is not None or one.executions is None for of in counts.values() for one in of.values())


def _listings(
    run: RunFolder, numbers: KernelNumbers, wanted: dict[int, dict[int, InstructionExecutions]]
) -> Iterator[tuple[int, dict[str, list[Any]]]]:
    """Yield the listing of each kernel, with the columns for source lines that the run has."""
    with run.table("listings") as reader:
        columns = ["address", "block", *(name for name in COLUMNS if name in reader.columns)]
    listings: dict[int, dict[str, list[Any]]] = {}
    for number, rows in by_kernel(run, "listings", columns, numbers, wanted):
        for name, values in rows.items():
            listings.setdefault(number, {}).setdefault(name, []).extend(values)
    yield from listings.items()


def _entries(run: RunFolder, numbers: KernelNumbers, number: int) -> dict[int, str]:
    """Return the function of each block of a kernel."""
    return {
        block: function
        for _, rows in by_kernel(run, "blocks", ("block", "function"), numbers, {number})
        for block, function in zip(*rows.values(), strict=True)
    }


def _add(
    functions: _Functions,
    rows: dict[str, list[Any]],
    counts: dict[int, InstructionExecutions],
    function_of: dict[int, str],
    is_lanes: bool,
) -> None:
    """Add the counts of a kernel to its functions."""
    copies: dict[tuple[str, SourceLine, str], int] = {}
    entered: dict[str, tuple[int, SourceLine]] = {}
    inlined = rows.get("inlined") or [None] * len(rows["address"])
    each = zip(rows["address"], rows["block"], charged(rows), inlined, strict=True)
    for address, block, place, calls in each:
        known = counts.get(address)
        count = None if known is None else known.lanes if is_lanes else known.executions
        if count is None or place is None or block not in function_of:
            continue
        name = function_of[block]
        entered.setdefault(name, (count, place))
        _, _, callers = (calls or "").partition(f"{place.file}:{place.line}:")
        key = name, place, callers.partition(", ")[2] if callers else calls or ""
        copies[key] = max(copies.get(key, 0), count)
    own: dict[str, CoveredFunction] = {}
    for name, (count, place) in entered.items():
        own[name] = functions.setdefault((name, place.file), CoveredFunction(name, place))
        own[name].count += count
    for (name, place, _), count in copies.items():
        lines = own[name].lines
        lines[place] = lines.get(place, 0) + count


def uncounted(kernels: dict[int, Any], counts: dict[int, Any]) -> list[str]:
    """Return notes about launches that were not counted."""
    notes = []
    for number, kernel in kernels.items():
        launches, name = kernel["launches"], kernel["name"] or kernel["kernel"]
        if number not in counts:
            notes.append(f"{name}: not counted ({kernel['reason'] or 'no tool counts it'}); it is left out")
        elif kernel["instrumented"] < launches:
            notes.append(f"{name}: {kernel['instrumented']} of {counted(launches, 'launch')} are counted")
    return notes


def _add_idle(functions: _Functions, kernels: dict[int, Any], notes: list[str]) -> None:
    """Add code of the same code objects that did not run, with count 0."""
    objects = {(row["object"], row["digest"]) for row in kernels.values()}
    unread = sorted({name for name, digest in objects if not _add_object(functions, name, digest)})
    if unread:
        names = enumerated(unread)
        notes.append(f"code that did not run is left out: not found, or not the files that ran: {names}")


def _add_object(functions: _Functions, name: str, digest: str) -> bool:
    """Add the code of a code object that did not run; return whether its file was found."""
    try:
        object = object_that_ran(name, digest)
        if object is None:
            return False
        for symbol in object.symbols:
            if symbol.type == "func" and symbol.defined:
                addresses = range(symbol.address, symbol.address + symbol.size, _STEP)
                _add_function(functions, object, symbol.name, addresses)
    except (LuthierError, OSError):
        return False
    return True


def object_that_ran(name: str, digest: str) -> CodeObject | None:
    """Return a code object of a run; None if its file is not there, or is another one.

    Raises:
        LuthierError: the file cannot be read.
    """
    if not Path(name).is_file():
        return None
    return next((one for one in find_objects(name) if digest_of(one) == digest), None)


def _add_function(functions: _Functions, object: CodeObject, symbol: str, addresses: range) -> None:
    """Add the lines of a function that are not known, with count 0."""
    source = object.source
    numbers = dict.fromkeys(number for number in source.numbers(addresses).tolist() if number >= 0)
    users = [source.locations[number].user for number in numbers]
    places = [SourceLine(one.file, one.line) for one in users if one.file and one.line]
    if places:
        known = next((place.file for place in places if (symbol, place.file) in functions), places[0].file)
        lines = functions.setdefault((symbol, known), CoveredFunction(symbol, places[0])).lines
        for place in places:
            lines.setdefault(place, 0)
