"""Origins of the code of patched kernels: the application, by addresses of the original, or a hook. Errors in a patched
kernel are reported by them.

They are in a section of the object that is not loaded, so they are available wherever the object is. A damaged section
is treated as missing.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from luthier.objects.code_object import CodeObject
from luthier.objects.source import in_source

SECTION = ".luthier.origins"
_MOST = 1 << 28
"""Maximum decompressed bytes of a section."""
_CALL_SIZE = 4
"""Bytes of a call of shared code."""
NO_POINT = -1
"""`Inserted.point` of code that belongs to no single instruction."""
NO_LINK = -1
"""`Inserted.links` of code that is not called."""
_Columns = NDArray[np.int64]
ScalarPair = Callable[[int], int]
"""Number of an SGPR -> address in it and the next one."""
Teller = Callable[[int, ScalarPair], str]
"""Describes the origin of the code at an address, given the registers of a wave that is there; "" if nothing is
known."""


class Inserted(Struct, frozen=True, eq=False):
    """Code that is not the application's, one row for each piece, by ascending addresses."""

    starts: _Columns
    ends: _Columns
    points: _Columns
    """Virtual address in the original of the instruction at which it was inserted; `NO_POINT` if several."""
    labels: _Columns
    """Index in `names`."""
    links: _Columns
    """First SGPR of the pair that holds the return address meanwhile; `NO_LINK` if it is not called."""
    names: tuple[str, ...]
    """"": it replaces the application's instruction at its point."""

    @classmethod
    def of(cls, pieces: Iterable[tuple[int, int, int, str, int]]) -> Inserted:
        """Make the columns from pieces (start, end, point, name, link) in any order."""
        rows = sorted(pieces)
        names = {name: number for number, name in enumerate(dict.fromkeys(row[3] for row in rows))}
        columns = np.array([(*row[:3], names[row[3]], row[4]) for row in rows], np.int64).reshape(-1, 5).T
        starts, ends, points, labels, links = columns
        return cls(starts, ends, points, labels, links, tuple(names))

    def piece_at(self, address: int) -> int | None:
        """Return the piece that contains an address; None if there is none."""
        piece = int(np.searchsorted(self.starts, address, "right")) - 1
        return None if piece < 0 or address >= self.ends[piece] else piece


class Origins(Struct, frozen=True, eq=False):
    """The code of one patched kernel."""

    kernel: str
    start: int
    size: int
    """Bytes of the new code, from virtual address `start`."""
    addresses: _Columns
    """[n] New addresses of the application's instructions, ascending."""
    originals: _Columns
    """[n] Their addresses in the original."""
    inserted: Inserted
    functions: tuple[tuple[int, str], ...]
    """Start addresses of functions in the original, ascending, and their names."""

    def holds(self, address: int) -> bool:
        """Return whether a virtual address is in the new code."""
        return self.start <= address < self.start + self.size

    def at(self, base: int) -> Origins:
        """Return the origins with the new code moved up by `base` bytes."""
        inserted = self.inserted
        moved = replace(inserted, starts=inserted.starts + base, ends=inserted.ends + base)
        return replace(self, start=self.start + base, addresses=self.addresses + base, inserted=moved)

    def original(self, address: int) -> int | None:
        """Return the virtual address in the original of the application's instruction at an address in the new code;
        None if the code there is not the application's."""
        at = int(np.searchsorted(self.addresses, address, "right")) - 1
        if at >= 0 and self.addresses[at] == address:
            return int(self.originals[at])
        piece = self.inserted.piece_at(address)
        if piece is None or self.inserted.names[int(self.inserted.labels[piece])]:
            return None
        point = int(self.inserted.points[piece])
        return None if point == NO_POINT else point

    def describe(
        self, address: int, original: CodeObject, scalar_pair: ScalarPair, earlier: Sequence[Origins] = ()
    ) -> str:
        """Describe the code at a virtual address in the new code, with its place in the original and its source.

        Args:
            original: the application's object, or one with its debug information.
            scalar_pair: reads virtual addresses from registers of a wave that is there.
            earlier: kernels of the original that other tools patched before.
        """

        def earlier_pair(index: int) -> int:
            call = self.original(scalar_pair(index) - _CALL_SIZE)
            return -1 if call is None else call + _CALL_SIZE

        def place(address: int) -> str:
            before = _holder(earlier, address)
            if before is None:
                return self._place(address, original)
            description = before.describe(address, original, earlier_pair, _below(earlier, before))
            return description.removeprefix(_OWN) if description.startswith(_OWN) else f"{address:#x} {description}"

        own = self.original(address)
        if own is not None:
            before = _holder(earlier, own)
            if before is not None:
                return before.describe(own, original, earlier_pair, _below(earlier, before))
            return f"{_OWN}{self._place(own, original)}"
        inserted = self.inserted
        piece = inserted.piece_at(address)
        if piece is None:
            return "a jump that Luthier inserted, not the program's own"
        point = int(inserted.points[piece])
        name = inserted.names[int(inserted.labels[piece])]
        if not name:
            return "in code that several calls of the program through pointers share"
        if point != NO_POINT:
            return f"in {name}, inserted at {place(point)}"
        caller = self._caller(piece, scalar_pair)
        return f"in {name}, which several points share{'' if caller is None else f', called at {place(caller)}'}"

    def _caller(self, piece: int, scalar_pair: ScalarPair) -> int | None:
        """Return the point for which a shared piece runs; None if unknown."""
        inserted = self.inserted
        link = int(inserted.links[piece])
        caller = None if link == NO_LINK else inserted.piece_at(scalar_pair(link) - _CALL_SIZE)
        point = NO_POINT if caller is None else int(inserted.points[caller])
        return None if point == NO_POINT else point

    def _place(self, address: int, original: CodeObject) -> str:
        number = bisect_right(self.functions, address, key=lambda function: function[0]) - 1
        inside = ""
        if number >= 0:
            entry, name = self.functions[number]
            inside = f" in {name}+{address - entry:#x}"
        return f"{address:#x}{inside}{in_source(original.source.at(address))}"


_OWN = "the program's own, "


def _holder(known: Iterable[Origins], address: int) -> Origins | None:
    """Return the patched kernel that contains a virtual address."""
    return next((one for one in known if one.holds(address)), None)


def _below(known: Iterable[Origins], upper: Origins) -> list[Origins]:
    """Return the kernels that may have been patched before, since new code goes above existing code."""
    return [other for other in known if other.start < upper.start]


def encode(kernels: Sequence[Origins]) -> bytes:
    """Encode the section's contents."""
    head, columns = [], []
    for kernel in kernels:
        inserted = kernel.inserted
        rows = (inserted.starts, inserted.ends, inserted.points, inserted.labels, inserted.links)
        parts = (kernel.addresses, kernel.originals, *rows)
        sizes = len(kernel.addresses), len(inserted.starts)
        head.append([kernel.kernel, kernel.start, kernel.size, *sizes, list(inserted.names), list(kernel.functions)])
        columns += [np.diff(part, prepend=0).astype("<i8").tobytes() for part in parts]
    text = json.dumps(head, separators=(",", ":")).encode()
    return zlib.compress(len(text).to_bytes(8, "little") + text + b"".join(columns), 1)


def decode(data: bytes) -> tuple[Origins, ...]:
    """Decode the section's contents; return () if they are malformed."""
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(data, _MOST)
        if not unpacking.eof:
            return ()
        size = int.from_bytes(plain[:8], "little")
        place, origins = 8 + size, []
        for kernel, start, code_size, count, pieces, names, functions in json.loads(plain[8:place]):
            if min(count, pieces) < 0:
                return ()
            columns = []
            for length in (count, count, *[pieces] * 5):
                columns.append(np.frombuffer(plain, "<i8", length, place).cumsum())
                place += 8 * length
            addresses, originals, *rows = columns
            if pieces and not 0 <= rows[3].min() <= rows[3].max() < len(names):
                return ()
            starts, ends, points, labels, links = rows
            inserted = Inserted(starts, ends, points, labels, links, tuple(map(str, names)))
            named = tuple((int(entry), str(name)) for entry, name in functions)
            origins.append(Origins(str(kernel), int(start), int(code_size), addresses, originals, inserted, named))
    except (zlib.error, ValueError, TypeError, RecursionError):
        return ()
    return tuple(origins)


def teller(object: CodeObject, original: CodeObject | None = None, delta: int = 0, original_delta: int = 0) -> Teller:
    """Return a function that describes the origin of code at addresses of a loaded object.

    Args:
        object: the loaded object, patched or not.
        original: object that was patched, if the program's code is not in `object`.
        delta: offset added to the object's virtual addresses.
        original_delta: offset added to those of the original.
    """
    known: tuple[Origins, ...] | None = None

    def tell(address: int, scalar_pair: ScalarPair) -> str:
        nonlocal known
        if known is None:
            known = origins_of(object)
        virtual = address - delta
        holder = _holder(known, virtual)
        if holder is not None:
            earlier = _below(known, holder) if original is None else origins_of(original)
            return holder.describe(virtual, original or object, lambda index: scalar_pair(index) - delta, earlier)
        if original is not None:
            return tell_original(address, scalar_pair)
        return _unpatched(object, virtual)

    tell_original = tell if original is None else teller(original, delta=original_delta)
    return tell


def origins_of(object: CodeObject) -> tuple[Origins, ...]:
    """Return the origins of the patched kernels of an object."""
    return decode(object.section_data(SECTION) or b"")


def _unpatched(object: CodeObject, address: int) -> str:
    """Describe the location of unchanged code."""
    for symbol in object.symbols:
        if symbol.type == "func" and symbol.defined and symbol.address <= address < symbol.address + symbol.size:
            return f"in {symbol.name}+{address - symbol.address:#x}{in_source(object.source.at(address))}"
    return in_source(object.source.at(address)).strip()
