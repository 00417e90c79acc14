"""Finding AMD GPU code objects in the containers they come in.

Containers nest (an archive of host objects with fat binaries of compressed bundles), so one recursive walk looks at
the first bytes of each and hands its parts on.

Sources: clang "ClangOffloadBundler" (bundles, CCOB), llvm/Object/OffloadBinary.h, System V ar.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

import zstandard

from luthier.errors import ObjectError, TargetError
from luthier.objects import elf as E
from luthier.objects.code_object import CodeObject
from luthier.targets import TargetId

BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"
OFFLOAD_BINARY_MAGIC = b"\x10\xff\x10\xad"
ARCHIVE_MAGIC = b"!<arch>\n"
THIN_ARCHIVE_MAGIC = b"!<thin>\n"
BITCODE_MAGIC = b"BC\xc0\xde"

FAT_BINARY_SECTIONS = (".hip_fatbin", ".llvm.offloading", ".llvm.rodata.offloading", "__CLANG_OFFLOAD_BUNDLE__")
"""How host sections with device code begin: HIP's, the LLVM offloading drivers', the bundler's own kind of object."""

_DEEPEST = 8
"""Containers within containers; real ones reach four."""
_CHUNK = 1 << 20
_ENTRY = struct.Struct("<QQQ")
_COMPRESSED_HEADERS = {1: "", 2: "I", 3: "Q"}
"""CCOB version -> its field for the whole size; version 3 also has the uncompressed size as 64 bits."""


@dataclass(frozen=True)
class Image:
    """One device image as a container holds it, not yet looked into."""

    name: str
    """Path, with archive member and bundle entry in brackets."""
    id: str
    """What the bundle calls it, e.g. ``hipv4-amdgcn-amd-amdhsa--gfx942:xnack-``; "" where nothing does."""
    data: bytes


class _Place(NamedTuple):
    """A part of the input: its bytes and what to call it. Offsets in errors count from the part's start."""

    data: bytes
    name: str
    depth: int = 0

    def fail(self, message: str, offset: int) -> NoReturn:
        raise ObjectError(message, object=self.name, offset=offset)

    def inner(self, data: bytes, label: str = "") -> _Place:
        return _Place(data, f"{self.name}[{label}]" if label else self.name, self.depth + 1)

    def unpack(self, layout: struct.Struct, offset: int, what: str) -> tuple[int, ...]:
        if offset + layout.size > len(self.data):
            self.fail(f"{what} reaches past the end ({len(self.data):#x} bytes)", offset)
        return layout.unpack_from(self.data, offset)

    def cut(self, offset: int, size: int, what: str) -> bytes:
        if offset + size > len(self.data):
            self.fail(f"{what} of {size:#x} bytes reaches past the end ({len(self.data):#x} bytes)", offset)
        return self.data[offset : offset + size]


def find_images(source: bytes | str | os.PathLike[str], name: str | None = None) -> list[Image]:
    """Every AMD GPU image in `source`, without parsing the images themselves.

    Args:
        source: the bytes of a container, or its path.
        name: how errors call it; by default the path, or ``<memory>``.

    Raises:
        ObjectError: unreadable or malformed, no known container, or one without AMD GPU code.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        data, label = bytes(source), name or "<memory>"
    else:
        label = name or os.fspath(source)
        try:
            data = Path(source).read_bytes()
        except OSError as problem:
            raise ObjectError(f"cannot read: {problem.strerror or problem}", object=label) from problem
    images = list(_walk(_Place(data, label), ""))
    if not images:
        raise ObjectError("holds no AMD GPU code object", object=label)
    return images


def load_objects(source: bytes | str | os.PathLike[str], name: str | None = None) -> list[CodeObject]:
    """Every code object in any container: a code object itself, an offload bundle (also compressed), a host executable
    or library with one or several fat binaries, an archive.

    Images for processors that Luthier does not know are left out when others remain (`find_images` lists them).

    Raises:
        ObjectError: unreadable or malformed, or without AMD GPU code.
        TargetError: every image is for an unknown processor.
    """
    objects: list[CodeObject] = []
    unknown: TargetError | None = None
    for image in find_images(source, name):
        try:
            objects.append(CodeObject(image.data, image.name))
        except TargetError as problem:
            unknown = unknown or problem
    if unknown is not None and not objects:
        raise unknown
    return objects


def load_object(
    source: bytes | str | os.PathLike[str], target: str | None = None, name: str | None = None
) -> CodeObject:
    """The one code object in a container.

    Args:
        target: only objects for this processor, or target id with features, count.

    Raises:
        ObjectError: none or several match; the message names the choices.
    """
    objects = load_objects(source, name)
    wanted = TargetId.parse(target) if target else None
    matching = [found for found in objects if wanted is None or _fits(found.target, wanted)]
    if len(matching) == 1:
        return matching[0]
    choices = ", ".join(f"{found.name} ({found.target})" for found in (matching or objects))
    problem = "several code objects; name a target or take one" if matching else f"no code object for {target}"
    label = name or ("<memory>" if isinstance(source, (bytes, bytearray, memoryview)) else os.fspath(source))
    raise ObjectError(f"{problem}: {choices}", object=label)


def _fits(found: TargetId, wanted: TargetId) -> bool:
    """`found` is for the processor of `wanted`, with the features `wanted` names, as far as it names any."""
    return found.target == wanted.target and all(
        asked is None or has == asked for has, asked in ((found.xnack, wanted.xnack), (found.sramecc, wanted.sramecc))
    )


def _walk(place: _Place, identifier: str) -> Iterator[Image]:
    data = place.data
    if place.depth > _DEEPEST:
        place.fail("containers are nested too deeply", 0)
    if data.startswith(E.ELF_MAGIC):
        if len(data) >= 20 and data[18] | data[19] << 8 == E.EM_AMDGPU:
            yield Image(place.name, identifier, data)
        else:
            yield from _walk_host(place)
    elif data.startswith((BUNDLE_MAGIC, COMPRESSED_MAGIC, OFFLOAD_BINARY_MAGIC)):
        yield from _walk_fat_binary(place)
    elif data.startswith(ARCHIVE_MAGIC):
        for member in _archive_members(place):
            if member.data.startswith((E.ELF_MAGIC, BUNDLE_MAGIC, COMPRESSED_MAGIC, OFFLOAD_BINARY_MAGIC)):
                yield from _walk(member, "")
    elif data.startswith(THIN_ARCHIVE_MAGIC):
        place.fail("a thin archive holds no code, only names of other files; give those", 0)
    elif data.startswith(BITCODE_MAGIC):
        place.fail("LLVM bitcode, not a code object; link it first", 0)
    else:
        place.fail("not a code object, offload bundle, ELF file or archive" if data else "empty", 0)


def _walk_host(place: _Place) -> Iterator[Image]:
    """The fat binaries in a host ELF file's sections, or, where those have no names, anywhere in it."""
    elf = E.ElfFile(place.data, place.name)
    found = [
        elf.section_bytes(section, f"section {name}")
        for name, section in zip(elf.section_names, elf.sections, strict=True)
        if name.startswith(FAT_BINARY_SECTIONS) and section.type != E.SHT_NOBITS and ".rela" not in name
    ]
    if not found and not elf.sections and BUNDLE_MAGIC in place.data:
        found = [place.data[place.data.index(BUNDLE_MAGIC) :]]
    for number, data in enumerate(found):
        if data:
            yield from _walk_fat_binary(place.inner(data, f"section {number}" if len(found) > 1 else ""))


def _walk_fat_binary(place: _Place) -> Iterator[Image]:
    """Bundles of any kind, one after the other with padding between, as a linker concatenates them."""
    bundles: list[_Parts] = []
    at = 0
    while (at := _next_magic(place.data, at)) >= 0:
        rest = _Place(place.data[at:] if at else place.data, place.name, place.depth)
        if rest.data.startswith(BUNDLE_MAGIC):
            parts, size = _bundle_entries(rest)
        elif rest.data.startswith(COMPRESSED_MAGIC):
            unpacked, size = _decompress(rest)
            parts, _ = _bundle_entries(_Place(unpacked, place.name, place.depth + 1))
        else:
            parts, size = _offload_binary(rest)
        bundles.append(parts)
        at += max(size, 4)
    for number, parts in enumerate(bundles):
        for identifier, data in parts:
            label = identifier.partition("amdgcn-amd-amdhsa-")[2].lstrip("-") or identifier
            label = f"{number}:{label}" if len(bundles) > 1 else label
            if data.startswith(BITCODE_MAGIC):  # relocatable device code; the linked object is elsewhere
                continue
            yield from _walk(place.inner(data, label), identifier)


def _next_magic(data: bytes, start: int) -> int:
    """Where the next bundle starts, -1 if there is none."""
    found = [data.find(magic, start) for magic in (BUNDLE_MAGIC, COMPRESSED_MAGIC, OFFLOAD_BINARY_MAGIC)]
    return min((at for at in found if at >= 0), default=-1)


_Parts = list[tuple[str, bytes]]


def _bundle_entries(place: _Place) -> tuple[_Parts, int]:
    """The (id, contents) of the AMD GPU entries of an uncompressed bundle, and the bundle's size in bytes."""
    if not place.data.startswith(BUNDLE_MAGIC):
        place.fail("not an offload bundle", 0)
    at = len(BUNDLE_MAGIC)
    (count,) = place.unpack(struct.Struct("<Q"), at, "bundle header")
    at += 8
    if count > (len(place.data) - at) // _ENTRY.size:
        place.fail(f"bundle header announces {count} entries", at - 8)
    parts: _Parts = []
    end = at
    for _ in range(count):
        offset, size, id_size = place.unpack(_ENTRY, at, "bundle entry")
        raw_id = place.cut(at + _ENTRY.size, id_size, "bundle entry's id")
        at += _ENTRY.size + id_size
        try:
            identifier = raw_id.decode("ascii")
        except UnicodeDecodeError:
            place.fail("bundle entry's id is not ASCII", at - id_size)
        contents = place.cut(offset, size, f"bundle entry {identifier!r}")
        end = max(end, at, offset + size)
        if "amdgcn" in identifier and size:
            parts.append((identifier, contents))
    return parts, end


def _decompress(place: _Place) -> tuple[bytes, int]:
    """The bundle inside a compressed one, and the compressed one's size in bytes."""
    version, method = place.unpack(struct.Struct("<4xHH"), 0, "compressed bundle header")
    if version not in _COMPRESSED_HEADERS:
        place.fail(f"compressed bundle of unknown version {version}", 4)
    size_field = _COMPRESSED_HEADERS[version]
    header = struct.Struct(f"<8x{size_field}{'Q' if version == 3 else 'I'}Q")  # …, uncompressed size, hash
    values = place.unpack(header, 0, "compressed bundle header")
    expected = values[-2]
    data = place.data[header.size :]
    if size_field:
        if not header.size <= values[0] <= len(place.data):
            place.fail(f"compressed bundle of {values[0]:#x} bytes does not fit its container", 8)
        data = place.data[header.size : values[0]]
    if method not in (0, 1):
        place.fail(f"unknown compression method {method}", 6)
    # Output grows with what is really there, so a corrupt size cannot ask for memory.
    decoder = zlib.decompressobj() if method == 0 else zstandard.ZstdDecompressor().decompressobj()
    out = bytearray()
    try:
        for start in range(0, len(data), _CHUNK):
            out += decoder.decompress(data[start : start + _CHUNK])
            if decoder.eof or len(out) > expected:
                used = min(start + _CHUNK, len(data)) - len(decoder.unused_data)
                break
        else:
            place.fail("compressed bundle is truncated", header.size)
    except (zlib.error, zstandard.ZstdError) as problem:
        place.fail(f"compressed bundle does not decompress: {problem}", header.size)
    if len(out) != expected:
        place.fail(f"compressed bundle holds {len(out):#x} bytes instead of {expected:#x}", header.size)
    return bytes(out), values[0] if size_field else header.size + used


def _offload_binary(place: _Place) -> tuple[_Parts, int]:
    """The image of an LLVM offload binary (OpenMP, the new HIP driver), and the binary's size in bytes."""
    version, size, entry, _ = place.unpack(struct.Struct("<4xIQQQ"), 0, "offload binary header")
    if version != 1:
        place.fail(f"offload binary of unknown version {version}", 4)
    whole = _Place(place.cut(0, size, "offload binary"), place.name, place.depth)
    _, _, _, strings, count, image, image_size = whole.unpack(struct.Struct("<HHIQQQQ"), entry, "offload binary entry")
    if count > len(whole.data) // 16:
        whole.fail(f"offload binary announces {count} strings", entry)
    names = {}
    for index in range(count):
        key, value = whole.unpack(struct.Struct("<QQ"), strings + 16 * index, "offload binary string")
        names[_text(whole, key)] = _text(whole, value)
    if not names.get("triple", "").startswith("amdgcn"):
        return [], size
    return [(f"{names['triple']}-{names.get('arch', '')}", whole.cut(image, image_size, "offload image"))], size


def _text(place: _Place, offset: int) -> str:
    end = place.data.find(b"\0", offset, offset + 4096)
    if end < 0:
        place.fail("unterminated string", offset)
    return place.data[offset:end].decode(errors="replace")


def _archive_members(place: _Place) -> Iterator[_Place]:
    """The members of a System V archive, with GNU and BSD long names; its own tables are left out."""
    at = len(ARCHIVE_MAGIC)
    long_names = b""
    while at < len(place.data):
        header = place.cut(at, 60, "archive member's header")
        digits = header[48:58].strip()
        if header[58:60] != b"`\n" or not digits.isdigit():
            place.fail("malformed archive member's header", at)
        size = int(digits)
        data = place.cut(at + 60, size, "archive member")
        name = header[:16].rstrip()
        at += 60 + size + size % 2
        if name == b"//":
            long_names = data
        elif name in (b"/", b"/SYM64/") or name.startswith(b"__.SYMDEF"):
            continue
        elif name.startswith(b"#1/") and name[3:].isdigit() and int(name[3:]) <= size:
            length = int(name[3:])
            yield place.inner(data[length:], data[:length].rstrip(b"\0").decode(errors="replace"))
        else:
            if name.startswith(b"/") and name[1:].isdigit():
                name = long_names[int(name[1:]) :].partition(b"\n")[0]
            yield place.inner(data, name.removesuffix(b"/").decode(errors="replace"))
