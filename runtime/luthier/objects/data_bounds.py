"""Bounds of a code object's variables: which of its memory belongs to a variable, and which is unused.

Memory between variables is not unused just because no symbol covers it: compilers give strings, jump tables etc. no
symbols. It is unused if all of these hold:

- the object has its symbol table, including local symbols, and sections;
- no symbol is in it: a symbol without a size may be followed by anything;
- the file has zeros, or nothing, there;
- no address in the data points to it, and none that code computes from its program counter and a literal.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.objects import elf as E
from luthier.objects.code_object import ABSOLUTE, CodeObject

_PAGE = 4096
_MARKER = "__hip_cuid_"
"""Prefix of variables that are never read: they distinguish programs for the linker."""
_GETPC_MASK = 0xFF80FFFF
_GETPC = [0xBE801C00, 0xBE801F00, 0xBE804700]
"""Encodings of s_getpc_b64, without the destination: for GFX8 and 9, for GFX7 and 10, from GFX11."""
_REACH = 10
"""Number of following dwords that may contain the distance to an address."""
_MOST_CODE = 64 << 20
"""Maximum bytes of code that are searched; with more, no memory counts as unused."""


class DataBounds(Struct, frozen=True):
    """A variable at its virtual address, in bytes; without a name, unused memory before variables."""

    name: str
    address: int
    size: int
    reserved: int
    """Bytes from its address that belong to nothing else."""


class _Span(Struct, frozen=True):
    begin: int
    end: int
    name: str
    """Name of a variable; "" for anything else."""


def data_bounds(object: CodeObject) -> list[DataBounds]:
    """Return the variables of a code object and unused memory before them, by address."""
    if not any(section.type == E.SHT_SYMTAB for section in object.sections) or not object.segments:
        return []
    spans = _spans(object)
    if not any(span.name for span in spans):
        return []
    end = max(segment.vaddr + segment.memsz for segment in object.segments)
    last = -(-end // _PAGE) * _PAGE
    gaps = [
        (before, after)
        for before, after in zip(spans, [*spans[1:], _Span(last, last, "")], strict=True)
        if before.end < after.begin and (before.name or after.name)
    ]
    is_free = _free(object, [(before.end, after.begin) for before, after in gaps])
    room = {before.end: after.begin - before.end for (before, after), free in zip(gaps, is_free, strict=True) if free}
    bounds = [
        DataBounds(one.name, one.begin, one.end - one.begin, one.end - one.begin + room.get(one.end, 0))
        for one in spans
        if one.name
    ]
    ends = {one.end for one in spans if one.name}
    bounds += [DataBounds("", begin, 0, size) for begin, size in room.items() if begin not in ends]
    return sorted(bounds, key=lambda bound: bound.address)


def _spans(object: CodeObject) -> list[_Span]:
    """Return the known uses of the object's memory, without overlaps."""
    loaded = {one.name: one for one in object.sections if one.flags & E.SHF_ALLOC and one.size}
    starts = sorted({one.address for one in object.symbols if one.section not in ("", ABSOLUTE)})
    descriptors = {one.descriptor_address for one in object.kernels.values()}
    spans, with_symbols = [], set()
    for symbol in object.symbols:
        section = loaded.get(symbol.section)
        if section is None or section.flags & E.SHF_EXECINSTR or symbol.name.startswith(_MARKER):
            continue
        if symbol.size:
            is_variable = symbol.type == "object" and symbol.address not in descriptors
            with_symbols.add(section.name) if is_variable else None
            spans.append(_Span(symbol.address, symbol.address + symbol.size, symbol.name if is_variable else ""))
        else:
            after = bisect.bisect_right(starts, symbol.address)
            end = min([section.address + section.size, *starts[after : after + 1]])
            spans.append(_Span(symbol.address, max(end, symbol.address), ""))
    spans += [_Span(s.address, s.address + s.size, "") for s in loaded.values() if s.name not in with_symbols]
    spans.sort(key=lambda item: (item.begin, -item.end, not item.name))
    merged: list[_Span] = []
    for span in spans:
        if merged and span.begin < merged[-1].end:
            last = merged[-1]
            if span.end > last.end:  # the exact bounds of both are unknown
                merged[-1] = _Span(last.begin, span.end, "")
        else:
            merged.append(span)
    return merged


def _free(object: CodeObject, gaps: list[tuple[int, int]]) -> list[bool]:
    """Return whether parts of memory are unused, by the rules at the beginning of this file."""
    if not gaps or sum(size for _, size in object.text_ranges) > _MOST_CODE:
        return [False] * len(gaps)
    begins, ends = (np.array(one, np.int64) for one in zip(*gaps, strict=True))
    used = np.zeros(len(gaps), np.bool_)
    for addresses in _addresses(object):
        which = np.searchsorted(ends, addresses, "right")
        known = which < len(gaps)
        used[which[known][addresses[known] >= begins[which[known]]]] = True
    return [
        not is_used and not any(_stored(object, begin, end)) for is_used, (begin, end) in zip(used, gaps, strict=True)
    ]


def _addresses(object: CodeObject) -> Iterator[NDArray[np.int64]]:
    """Yield virtual addresses that may be in the object's data, or computed by its code."""
    pointed = [one.points_to for one in object.relocations]
    yield np.array([one for one in pointed if one is not None], np.int64)
    for start, size in object.text_ranges:
        if size < 4:
            continue
        words = np.frombuffer(object.read(start, size & ~3), "<u4")
        takes = np.flatnonzero(np.isin(words & _GETPC_MASK, _GETPC))
        following = np.append(takes[1:], len(words))
        for behind in range(2, _REACH):  # the distance is a literal of one of the next instructions
            before = takes + behind < following
            distances = words[takes[before] + behind].view("<i4").astype(np.int64)
            yield start + 4 * (takes[before] + 1) + distances


def _stored(object: CodeObject, begin: int, end: int) -> Iterator[int]:
    """Yield the bytes of a range that are in the file."""
    for segment in object.segments:
        first, last = max(begin, segment.vaddr), min(end, segment.vaddr + segment.filesz)
        if first < last:
            yield from object.read(first, last - first)
