"""`luthier disasm`: print kernels and functions of any container as assembly or JSON."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from luthier.cli.common import STANDARD_OUTPUT, add_json_argument, put_json
from luthier.cli.selection import add_object_arguments, is_capture, selected_objects
from luthier.isa.listing import ListingRow, instruction_rows
from luthier.objects import CodeObject
from luthier.objects.parts import TextPart, parts
from luthier.support.wording import counted
from luthier.terminal import say, say_text, visible

if TYPE_CHECKING:
    from luthier.objects import SourceLocation

_PADDING = {"s_nop", "s_code_end", ".long", ".byte"}
"""Mnemonics that fill the space between functions."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_object_arguments(parser)
    parser.add_argument("-l", "--lines", action="store_true", help="also print source lines, if they are known")
    add_json_argument(parser, "the listing")


def run(args: argparse.Namespace) -> int:
    """Print the code."""
    by_name = args.kernel or is_capture(args.file)
    objects = [
        (found, kernels if by_name else None) for found, kernels in selected_objects(args) if kernels or not by_name
    ]
    if args.json:
        put_json(args.json, [describe(found, chosen, lines=args.lines) for found, chosen in objects], indent=1)
    if args.json != STANDARD_OUTPUT:
        for object, chosen in objects:
            for line in listing(object, chosen, lines=args.lines):
                say(line)
            for problem in object.source.problems if args.lines else ():
                say_text(f"{visible(object.name)}: {problem}", file=sys.stderr)
    return 0


_WINDOW = 1 << 16
"""Bytes of code that are listed at a time."""
_LONGEST = 64
"""Upper bound in bytes for an instruction that the end of a window may cut off."""


def rows(object: CodeObject, part: TextPart) -> Iterator[ListingRow]:
    """Yield the instructions of a part, decoding one window at a time."""
    at, end = part.address, part.address + part.size
    while at < end:
        size = min(_WINDOW, end - at)
        every = instruction_rows(object.target, part.wave_size, object.read(at, size), at)
        last = at + size
        for row in every:
            if last < end and row.address >= last - _LONGEST:  # the window may cut it off
                last = row.address
                break
            yield row
        at = last


class Survey(NamedTuple):
    """Facts about a part that its listing needs first."""

    part: TextPart
    length: int
    """Number of instructions."""
    targets: frozenset[int]
    """Branch targets."""
    is_shown: bool
    """Whether it is more than padding between functions."""


def surveyed(object: CodeObject, part: TextPart) -> Survey:
    """Decode a part once and collect the facts that its listing needs."""
    count, targets, shown = 0, set(), part.name is not None
    for row in rows(object, part):
        count += 1
        shown = shown or row.text.split(None, 1)[0] not in _PADDING
        if row.target is not None:
            targets.add(row.target)
    return Survey(part, count, frozenset(targets), shown)


def labels(every: list[Survey]) -> dict[int, str]:
    """Return address -> label, for functions and branch targets."""
    names = {target: f"L_{target:x}" for one in every for target in one.targets}
    return names | {one.part.address: one.part.name for one in every if one.part.name is not None}


def with_label(row: ListingRow, names: dict[int, str]) -> str:
    """Return the text with the last operand of a branch, its distance, replaced by the label of its target."""
    if row.target is None:
        return row.text
    return f"{row.text.rpartition(' ')[0]} {names[row.target]}"


def listing(object: CodeObject, chosen: Collection[str] | None = None, *, lines: bool = False) -> Iterator[str]:
    """Yield the lines of one code object.

    Args:
        lines: also yield the source line where it changes.
    """
    every = [surveyed(object, part) for part in parts(object, chosen)]
    names = labels(every)
    yield f"{object.name}: {object.target}, code object v{object.abi}"
    for part, length, _, is_shown in every:
        if not is_shown:
            continue
        kind = f"kernel, wave{part.wave_size}" if part.kernel else "function" if part.name else "no function"
        yield ""
        holds = f"{part.size} bytes, {counted(length, 'instruction')}"
        if part.aliases:
            holds += f", also of {', '.join(part.aliases)}"
        yield f"{part.address:016x} <{part.name or '?'}>: // {kind}, {holds}"
        before: SourceLocation | None = None
        for row, source in with_sources(object, rows(object, part), lines=lines):
            if row.address in names and row.address != part.address:
                yield f"{names[row.address]}:"
            if source is not None and source != before:
                yield f"; {source}"
            before = source or before
            yield f"  {row.address:8x}  {_words(row.encoding):26}  {with_label(row, names)}"
    yield ""


def _words(encoding: bytes) -> str:
    """Format an encoding as the 32-bit words of the ISA documents; an incomplete word in memory order."""
    pieces = [encoding[at : at + 4] for at in range(0, len(encoding), 4)]
    return " ".join(piece[::-1].hex() if len(piece) == 4 else piece.hex() for piece in pieces)


def with_sources(
    object: CodeObject, every: Iterator[ListingRow], *, lines: bool
) -> Iterator[tuple[ListingRow, SourceLocation | None]]:
    """Yield instructions with their source locations; None if they are unknown or not wanted."""
    while some := list(itertools.islice(every, _WINDOW)):
        if not lines:
            yield from ((row, None) for row in some)
            continue
        source = object.source
        for row, number in zip(some, source.numbers([row.address for row in some]).tolist(), strict=True):
            yield row, None if number < 0 else source.locations[number]


def describe(object: CodeObject, chosen: Collection[str] | None = None, *, lines: bool = False) -> dict[str, Any]:
    """Return the content of `--json` for one code object.

    Encodings are hexadecimal, in memory order.
    """
    every = [surveyed(object, part) for part in parts(object, chosen)]
    names = labels(every)
    return {
        "name": object.name,
        "target": str(object.target),
        "functions": [
            {
                "name": part.name,
                **({"others": [*part.aliases]} if part.aliases else {}),
                "kernel": part.kernel,
                "wave_size": part.wave_size,
                "address": part.address,
                "size": part.size,
                "instructions": [
                    {
                        "address": row.address,
                        "bytes": row.encoding.hex(),
                        "text": row.text,
                        **({"label": names[row.address]} if row.address in names else {}),
                        **({} if row.target is None else {"target": row.target, "target_label": names[row.target]}),
                        **({} if source is None else {"source": source.to_json()}),
                    }
                    for row, source in with_sources(object, rows(object, part), lines=lines)
                ],
            }
            for part, _, _, is_shown in every
            if is_shown
        ],
    }
