"""Damage to code objects, their containers and debug information where their structure is: fields, counts, offsets,
references, not bytes anywhere."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import zstandard
from luthier.objects import elf as E

EXTREMES = (0, 1, 7, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


def number(rng: random.Random, bits: int, size: int, before: int) -> int:
    """Return a value for a field: an extreme, a place in the file, near what is there, or anything."""
    what = rng.random()
    if what < 0.3:
        value = rng.choice(EXTREMES)
    elif what < 0.55:
        value = rng.randrange(size + 1)
    elif what < 0.85:
        value = before + rng.choice((-64, -8, -4, -1, 1, 4, 8, 64, 4096))
    else:
        value = rng.getrandbits(bits)
    return value & (1 << bits) - 1


_BITS = {"B": 8, "H": 16, "I": 32, "Q": 64, "q": 64}


def change_record(data: bytearray, layout: struct.Struct, offset: int, rng: random.Random) -> None:
    """Change one field of a record."""
    if not 0 <= offset <= len(data) - layout.size:
        return
    fields = list(layout.unpack_from(data, offset))
    numbers = [at for at, field in enumerate(fields) if isinstance(field, int)]
    letters = [letter for letter in layout.format if letter in _BITS or letter == "s"]
    at = rng.choice(numbers)
    letter = letters[at]
    value = number(rng, _BITS[letter], len(data), fields[at] & (1 << _BITS[letter]) - 1)
    fields[at] = value - (1 << 64) if letter == "q" and value >= 1 << 63 else value
    layout.pack_into(data, offset, *fields)


def _tables(data: bytes) -> tuple[E.FileHeader, list[E.SectionHeader], list[E.SegmentHeader]]:
    elf = E.ElfFile(memoryview(data), "whole")
    return elf.header, elf.sections, elf.segments


Way = Callable[[bytearray, random.Random], None]


def header(data: bytearray, rng: random.Random) -> None:
    """Damage the file header."""
    change_record(data, E.FILE_HEADER.struct, 0, rng)


def section(data: bytearray, rng: random.Random) -> None:
    """Damage one or two section headers; sometimes one is what another is."""
    head, sections, _ = _tables(bytes(data))
    for _ in range(rng.choice((1, 1, 2))):
        at = head.sections_offset + rng.randrange(len(sections)) * E.SECTION_HEADER.size
        if rng.random() < 0.15:
            other = head.sections_offset + rng.randrange(len(sections)) * E.SECTION_HEADER.size
            data[at : at + E.SECTION_HEADER.size] = data[other : other + E.SECTION_HEADER.size]
        else:
            change_record(data, E.SECTION_HEADER.struct, at, rng)


def segment(data: bytearray, rng: random.Random) -> None:
    """Damage a program header."""
    head, _, segments = _tables(bytes(data))
    at = head.segments_offset + rng.randrange(len(segments)) * E.SEGMENT_HEADER.size
    change_record(data, E.SEGMENT_HEADER.struct, at, rng)


def _record(kinds: tuple[int, ...], layout: struct.Struct) -> Way:
    def change(data: bytearray, rng: random.Random) -> None:
        sections = [one for one in _tables(bytes(data))[1] if one.type in kinds and one.size >= layout.size]
        if sections:
            section = rng.choice(sections)
            at = section.offset + rng.randrange(section.size // layout.size) * layout.size
            change_record(data, layout, at, rng)

    return change


symbol = _record((E.SHT_SYMTAB, E.SHT_DYNSYM), E.SYMBOL.struct)
relocation = _record((E.SHT_RELA,), E.RELOCATION.struct)
dynamic = _record((E.SHT_DYNAMIC,), E.DYNAMIC.struct)


def descriptor(data: bytearray, rng: random.Random) -> None:
    """Damage words of a kernel descriptor."""
    _, sections, _ = _tables(bytes(data))
    names = E.ElfFile(memoryview(bytes(data)), "whole").section_names
    rodata = next((one for name, one in zip(names, sections, strict=True) if name == ".rodata"), None)
    if rodata is None or rodata.size < 64:
        return
    start = rodata.offset + rng.randrange(rodata.size // 64) * 64
    for _ in range(rng.choice((1, 1, 3))):
        change_record(data, struct.Struct("<" + rng.choice("BHIQ")), start + 4 * rng.randrange(14), rng)


def _within(names: tuple[str, ...]) -> Way:
    """Return a function that damages numbers in sections.

    They are bytes (LEB128 digits, forms, tags, opcodes), or words (lengths, offsets, references).
    """

    def change(data: bytearray, rng: random.Random) -> None:
        elf = E.ElfFile(memoryview(bytes(data)), "whole")
        sections = [
            one
            for name, one in zip(elf.section_names, elf.sections, strict=True)
            if name in names and one.size > 8 and one.type != E.SHT_NOBITS
        ]
        for _ in range(rng.choice((1, 1, 4, 16)) if sections else 0):
            section = rng.choice(sections)
            layout = struct.Struct("<" + rng.choice("BBBHII"))
            change_record(data, layout, section.offset + rng.randrange(section.size - 8), rng)

    return change


abbreviations = _within((".debug_abbrev",))
entries = _within((".debug_info",))
lines = _within((".debug_line", ".debug_line_str"))
ranges = _within((".debug_rnglists", ".debug_ranges", ".debug_addr", ".debug_str_offsets", ".debug_aranges"))


def references(data: bytearray, rng: random.Random) -> None:
    """Damage references among entries of debug information: to each other, in cycles."""
    elf = E.ElfFile(memoryview(bytes(data)), "whole")
    for name, section in zip(elf.section_names, elf.sections, strict=True):
        if name == ".debug_info" and section.size > 32:
            for _ in range(rng.choice((8, 64))):
                at = section.offset + rng.randrange(section.size - 4)
                target = rng.randrange(min(section.size, rng.choice((64, 256, section.size))))
                struct.pack_into("<I", data, at, target)


def note(data: bytearray, rng: random.Random) -> None:
    """Damage the metadata: keys gone, values of other types and sizes, nested deeply; the size stays."""
    elf = E.ElfFile(memoryview(bytes(data)), "whole")
    for owner, kind, description, _, offset in elf.notes():
        if owner != "AMDGPU" or kind != 32:
            continue
        value = msgpack.unpackb(bytes(description))
        _change_value(value, rng)
        packed = msgpack.packb(value)[: len(description)]
        if rng.random() < 0.1:
            packed = rng.choice((b"\x91", b"\x81", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff")) * len(packed)
        data[offset : offset + len(description)] = packed[: len(description)].ljust(len(description), b"\xc0")
        return


def _change_value(value: object, rng: random.Random) -> None:
    holder: Any = value
    key: Any = None
    while isinstance(holder, dict | list) and holder:
        key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        inner = holder[key]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.15:
            break
        holder = inner
    if key is None or not isinstance(holder, dict | list):
        return
    if rng.random() < 0.3:
        del holder[key]
    else:
        values: tuple[Any, ...] = (None, True, -1, 1 << 40, (1 << 64) - 1, 1.5, "", b"\xff", [], {}, [[[]]], 0, 1, 300)
        holder[key] = rng.choice(values)


WAYS: dict[str, Way] = {
    "header": header,
    "section": section,
    "segment": segment,
    "symbol": symbol,
    "relocation": relocation,
    "dynamic": dynamic,
    "descriptor": descriptor,
    "note": note,
    "abbreviations": abbreviations,
    "entries": entries,
    "references": references,
    "lines": lines,
    "ranges": ranges,
}
"""Kinds of damage to a code object."""


def damaged(data: bytes, way: str, count: int, seed: str) -> Iterator[bytes]:
    """Yield copies of a code object with damage of one kind; every fifth has a further one of any kind."""
    rng = random.Random(f"{way} {seed}")
    for number in range(count):
        copy = bytearray(data)
        if number % 5 == 4:
            try:
                WAYS[rng.choice(list(WAYS))](copy, rng)
                WAYS[way](copy, rng)
            except Exception:  # the first has damaged what the second has to read
                pass
        else:
            WAYS[way](copy, rng)
        yield bytes(copy)


# Containers -----------------------------------------------------------------------------------------------------------

_ID = b"hipv4-amdgcn-amd-amdhsa--gfx90a"


def bundle(images: list[tuple[bytes, bytes]], rng: random.Random | None = None) -> bytes:
    """Return an offload bundle; with `rng`, one number of its table is another one."""
    at = 32 + sum(24 + len(name) for name, _ in images)
    table, body = [], b""
    for name, image in images:
        table.append([at + len(body), len(image), len(name)])
        body += image
    count = len(images)
    if rng is not None:
        which = rng.randrange(-1, len(table))
        if which < 0:
            count = number(rng, 64, at, count)
        else:
            field = rng.randrange(3)
            table[which][field] = number(rng, 64, at + len(body), table[which][field])
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", count)
    rows = b"".join(struct.pack("<QQQ", *row) + name for row, (name, _) in zip(table, images, strict=True))
    return head + rows + body


def compressed(data: bytes, version: int, method: int, rng: random.Random | None = None) -> bytes:
    """Return a compressed bundle; with `rng`, a field of its header is another number, or its stream is damaged."""
    packed = zstandard.ZstdCompressor().compress(data) if method else zlib.compress(data)
    layout = struct.Struct({1: "<HHIQ", 2: "<HHIIQ", 3: "<HHQQQ"}[version])
    whole = 4 + layout.size + len(packed)
    fields = [version, method, *([whole] if version > 1 else []), len(data), 0]
    out = bytearray(b"CCOB" + layout.pack(*fields) + packed)
    if rng is not None and rng.random() < 0.6:
        head = bytearray(out[4 : 4 + layout.size])
        change_record(head, layout, 0, rng)
        out[4 : 4 + layout.size] = head
    elif rng is not None:
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def archive(members: list[tuple[bytes, bytes]], rng: random.Random | None = None) -> bytes:
    """Return a System V archive; with `rng`, a member's name or size is another one."""
    out = b"!<arch>\n"
    changed = rng.randrange(len(members)) if rng is not None else -1
    for at, (name, contents) in enumerate(members):
        size = b"%d" % len(contents)
        if at == changed and rng is not None:
            if rng.random() < 0.5:
                name = rng.choice((b"//", b"/", b"/99999999", b"#1/8", b"#1/99999999", b"", b"\xff" * 16, b"/SYM64/"))
            else:
                sizes = (0, 1, len(contents) - 1, len(contents) + 1, 10**9)
                size = rng.choice((*(b"%d" % one for one in sizes), b"-1", b"x", b""))
        out += b"%-16s%-12d%-6d%-6d%-8o%-10s`\n" % (name[:16], 0, 0, 0, 0o644, size[:10]) + contents
        out += b"\n" * (len(out) % 2)
    return out


def containers(image: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Yield containers of every kind around an image, each damaged in one place, some within others."""
    images = [(b"host-x86_64-unknown-linux--", b""), (_ID, image)]
    yield "bundle", bundle(images, rng)
    for version in (1, 2, 3):
        for method in (0, 1):
            yield f"compressed {version} {method}", compressed(bundle(images), version, method, rng)
            yield f"damaged in compressed {version}", compressed(bundle(images, rng), version, method)
    yield "archive", archive([(b"a.o/", bundle(images)), (b"b.o/", image)], rng)
    yield "damaged in archive", archive([(b"a.o/", bundle(images, rng)), (b"b.o/", image)])
    yield "bundle in bundle", bundle([(_ID, bundle(images, rng))])
