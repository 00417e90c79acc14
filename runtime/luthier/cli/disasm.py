"""`luthier disasm`: kernels and functions of any container as assembly, for people or as JSON."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from luthier.errors import ObjectError
from luthier.isa.listing import Row, instruction_rows
from luthier.objects import CodeObject, load_objects

_PADDING = {"s_nop", "s_code_end", ".long", ".byte"}
"""What fills the space between functions."""


@dataclass(frozen=True)
class Part:
    """A function, or what lies between functions (`name` None)."""

    name: str | None
    address: int
    size: int
    kernel: bool
    wave_size: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="code object, offload bundle, host executable or library, or archive")
    parser.add_argument("--kernel", metavar="NAME", help="only this kernel")
    parser.add_argument(
        "--target", metavar="ID", help="only code objects for this target, e.g. gfx942 or gfx942:xnack-"
    )
    parser.add_argument("--json", action="store_true", help="the same for programs")


def run(args: argparse.Namespace) -> int:
    objects = load_objects(args.file, target=args.target)
    if args.kernel is not None:
        with_it = [found for found in objects if args.kernel in found.kernels]
        if not with_it:
            known = sorted({name for found in objects for name in found.kernels})
            raise ObjectError(f"no kernel {args.kernel!r}; there are: {', '.join(known) or 'none'}", object=args.file)
        objects = with_it
    if args.json:
        print(json.dumps([describe(found, args.kernel) for found in objects], indent=1))
    else:
        for found in objects:
            for line in listing(found, args.kernel):
                print(line)
    return 0


def parts(found: CodeObject, kernel: str | None = None) -> list[Part]:
    """The executable code of an object, cut at its functions, in address order; only `kernel` where it is given."""
    kernels = {one.entry: one for one in found.kernels.values()}
    default_wave = next((one.wave_size for one in kernels.values()), found.target.target.default_wave_size)
    named = {symbol.address: symbol for symbol in found.symbols if symbol.type == "func" and symbol.defined}
    made: list[Part] = []
    for start, size in found.text_ranges:
        end = start + size
        starts = sorted(address for address in {*named, *kernels} if start <= address < end)
        at = start
        for address, following in itertools.pairwise([*starts, end]):
            if at < address:
                made.append(Part(None, at, address - at, False, default_wave))
            own, symbol = kernels.get(address), named.get(address)
            length = (own.code_size if own else 0) or (symbol.size if symbol else 0) or following - address
            at = min(address + length, following)
            name = own.name if own else symbol.name if symbol else None
            made.append(Part(name, address, at - address, own is not None, own.wave_size if own else default_wave))
        if at < end:
            made.append(Part(None, at, end - at, False, default_wave))
    return [part for part in made if kernel is None or (part.kernel and part.name == kernel)]


def rows(found: CodeObject, part: Part) -> list[Row]:
    """The instructions of one part."""
    return instruction_rows(found.target, part.wave_size, found.read(part.address, part.size), part.address)


def labels(listed: list[tuple[Part, list[Row]]]) -> dict[int, str]:
    """Address -> what the listing calls it: the functions, and every place that is branched to."""
    names = {row.target: f"L_{row.target:x}" for _, every in listed for row in every if row.target is not None}
    return names | {part.address: part.name for part, _ in listed if part.name is not None}


def with_label(row: Row, names: dict[int, str]) -> str:
    """The text with the distance of a branch, which is its last operand, replaced by the label it leads to."""
    if row.target is None:
        return row.text
    return f"{row.text.rpartition(' ')[0]} {names[row.target]}"


def listing(found: CodeObject, kernel: str | None = None) -> Iterator[str]:
    """The lines of one code object."""
    listed = [(part, rows(found, part)) for part in parts(found, kernel)]
    names = labels(listed)
    yield f"{found.name}: {found.target}, code object v{found.abi}"
    for part, every in listed:
        if part.name is None and _is_padding(every):
            continue
        kind = f"kernel, wave{part.wave_size}" if part.kernel else "function" if part.name else "no function"
        yield ""
        yield f"{part.address:016x} <{part.name or '?'}>: // {kind}, {part.size} bytes, {len(every)} instructions"
        for row in every:
            if row.address in names and row.address != part.address:
                yield f"{names[row.address]}:"
            yield f"  {row.address:8x}  {_words(row.encoding):26}  {with_label(row, names)}"
    yield ""


def _words(encoding: bytes) -> str:
    """The encoding as the 32-bit numbers that ISA documents show; bytes that fill no number as they are."""
    pieces = [encoding[at : at + 4] for at in range(0, len(encoding), 4)]
    return " ".join(piece[::-1].hex() if len(piece) == 4 else piece.hex() for piece in pieces)


def _is_padding(every: list[Row]) -> bool:
    return all(row.text.split()[0] in _PADDING for row in every)


def describe(found: CodeObject, kernel: str | None = None) -> dict[str, Any]:
    """What `--json` says of one code object; addresses are numbers, encodings are hexadecimal in memory order."""
    listed = [(part, rows(found, part)) for part in parts(found, kernel)]
    names = labels(listed)
    return {
        "name": found.name,
        "target": str(found.target),
        "functions": [
            {
                "name": part.name,
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
                    }
                    for row in every
                ],
            }
            for part, every in listed
            if part.name is not None or not _is_padding(every)
        ],
    }
