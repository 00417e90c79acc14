"""Finding AMD GPU code objects in the containers they come in.

Containers nest (an archive of host objects with fat binaries of compressed bundles), so one recursive walk looks at
the first bytes of each and hands its parts on.

Sources: clang "ClangOffloadBundler" (bundles, CCOB), llvm/Object/OffloadBinary.h, System V ar.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import zstandard

from luthier.errors import ObjectError, TargetError
from luthier.objects import elf as E
from luthier.objects.code_object import CodeObject
from luthier.targets import TargetId

BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"
OFFLOAD_BINARY_MAGIC = b"\x10\xff\x10\xad"
ARCHIVE_MAGIC = b"!<arch>\n"
_FAT_BINARY_MAGICS = (BUNDLE_MAGIC, COMPRESSED_MAGIC, OFFLOAD_BINARY_MAGIC)
THIN_ARCHIVE_MAGIC = b"!<thin>\n"
BITCODE_MAGIC = b"BC\xc0\xde"

FAT_BINARY_SECTIONS = (".hip_fatbin", ".llvm.offloading", ".llvm.rodata.offloading", "__CLANG_OFFLOAD_BUNDLE__")
"""How host sections with device code begin: HIP's, the LLVM offloading drivers', the bundler's own kind of object."""

_DEEPEST = 8
"""Containers within containers; real ones reach four."""
_CHUNK = 1 << 20
_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQQ")
"""Bundle entry: offset, size, length of the id that follows."""
_COMPRESSED_START = struct.Struct("<4xHH")
_COMPRESSED_REST = {1: struct.Struct("<IQ"), 2: struct.Struct("<IIQ"), 3: struct.Struct("<QQQ")}
"""CCOB version -> what follows version and method: (size of the whole,) uncompressed size, hash."""
_DECOMPRESSORS: dict[int, Callable[[], Any]] = {
    0: zlib.decompressobj,
    1: lambda: zstandard.ZstdDecompressor().decompressobj(),
}
"""llvm::compression::Format -> a streaming decoder."""


@dataclass(frozen=True)
class Image:
    """One device image as a container holds it, not yet looked into."""

    name: str
    """Path, with archive member and bundle entry in brackets."""
    id: str
    """What the bundle calls it, e.g. ``hipv4-amdgcn-amd-amdhsa--gfx942:xnack-``; "" where nothing does."""
    data: bytes


class _Place(NamedTuple):
    """A part of the input: from `start` in `data` on, and what to call it. Offsets count from the part's start."""

    data: bytes
    name: str
    depth: int = 0
    start: int = 0

    @property
    def size(self) -> int:
        return len(self.data) - self.start

    def fail(self, message: str, offset: int) -> NoReturn:
        raise ObjectError(message, object=self.name, offset=self.start + offset)

    def begins(self, *magic: bytes) -> bool:
        return self.data.startswith(magic, self.start)

    def at(self, offset: int) -> _Place:
        return self._replace(start=self.start + offset)

    def inner(self, data: bytes, label: str = "") -> _Place:
        return _Place(data, f"{self.name}[{label}]" if label else self.name, self.depth + 1)

    def unpack(self, layout: struct.Struct, offset: int, what: str) -> tuple[int, ...]:
        if offset + layout.size > self.size:
            self.fail(f"{what} reaches past the end", offset)
        return layout.unpack_from(self.data, self.start + offset)

    def cut(self, offset: int, size: int, what: str) -> bytes:
        if offset + size > self.size:
            self.fail(f"{what} of {size:#x} bytes reaches past the end", offset)
        return self.data[self.start + offset : self.start + offset + size]


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
    if place.begins(E.ELF_MAGIC):
        if len(data) >= 20 and data[18] | data[19] << 8 == E.EM_AMDGPU:
            yield Image(place.name, identifier, data)
        else:
            yield from _walk_host(place)
    elif place.begins(*_FAT_BINARY_MAGICS):
        yield from _walk_fat_binary(place)
    elif place.begins(ARCHIVE_MAGIC):
        for member in _archive_members(place):
            if member.begins(E.ELF_MAGIC, *_FAT_BINARY_MAGICS):
                yield from _walk(member, "")
    elif place.begins(THIN_ARCHIVE_MAGIC):
        place.fail("a thin archive holds no code, only names of other files; give those", 0)
    elif place.begins(BITCODE_MAGIC):
        place.fail("LLVM bitcode, not a code object; link it first", 0)
    else:
        place.fail("not a code object, offload bundle, ELF file or archive" if data else "empty", 0)


def _walk_host(place: _Place) -> Iterator[Image]:
    """The fat binaries in a host ELF file's sections, or, where it has no section headers, anywhere in it."""
    elf = E.ElfFile(place.data, place.name)
    found = [
        elf.section_bytes(section, f"section {name}")
        for name, section in zip(elf.section_names, elf.sections, strict=True)
        if name.startswith(FAT_BINARY_SECTIONS) and section.type != E.SHT_NOBITS
    ]
    if not elf.sections and BUNDLE_MAGIC in place.data:
        found = [place.data[place.data.index(BUNDLE_MAGIC) :]]
    for number, data in enumerate(found):
        yield from _walk_fat_binary(place.inner(data, f"section {number}" if len(found) > 1 else ""))


def _walk_fat_binary(place: _Place) -> Iterator[Image]:
    """Bundles of any kind, one after the other with padding between, as a linker concatenates them."""
    bundles: list[_Parts] = []
    at = 0
    next_magic = dict.fromkeys(_FAT_BINARY_MAGICS, -1)
    while True:
        for magic, where in next_magic.items():
            if where < at:
                next_magic[magic] = found if (found := place.data.find(magic, at)) >= 0 else place.size
        at = min(next_magic.values())
        if at >= place.size:
            break
        bundle = place.at(at)
        if bundle.begins(BUNDLE_MAGIC):
            parts, size = _bundle_entries(bundle)
        elif bundle.begins(COMPRESSED_MAGIC):
            unpacked, size = _decompress(bundle)
            parts, _ = _bundle_entries(place.inner(unpacked))
        else:
            parts, size = _offload_binary(bundle)
        bundles.append(parts)
        at += max(size, 4)
    uses = Counter(_label(identifier) for parts in bundles for identifier, _ in parts)
    for number, parts in enumerate(bundles):
        for identifier, data in parts:
            label = _label(identifier)
            if not data.startswith(BITCODE_MAGIC):  # relocatable device code; the linked object is elsewhere
                yield from _walk(place.inner(data, label if uses[label] == 1 else f"{number}:{label}"), identifier)


def _label(identifier: str) -> str:
    """The target id in a bundle entry's id."""
    return identifier.partition("amdgcn-amd-amdhsa-")[2].lstrip("-") or identifier


_Parts = list[tuple[str, bytes]]


def _bundle_entries(place: _Place) -> tuple[_Parts, int]:
    """The (id, contents) of the AMD GPU entries of an uncompressed bundle, and the bundle's size in bytes."""
    if not place.begins(BUNDLE_MAGIC):
        place.fail("not an offload bundle", 0)
    at = len(BUNDLE_MAGIC)
    (count,) = place.unpack(_COUNT, at, "bundle header")
    at += _COUNT.size
    if count > (place.size - at) // _ENTRY.size:
        place.fail(f"bundle header announces {count} entries", at - _COUNT.size)
    parts: _Parts = []
    end = at
    for _ in range(count):
        offset, size, id_size = place.unpack(_ENTRY, at, "bundle entry")
        raw_id = place.cut(at + _ENTRY.size, id_size, "bundle entry's id")
        at += _ENTRY.size + id_size
        if not raw_id.isascii():
            place.fail("bundle entry's id is not ASCII", at - id_size)
        identifier = raw_id.decode()
        end = max(end, at, offset + size)
        if end > place.size:
            place.fail(f"bundle entry {identifier!r} of {size:#x} bytes reaches past the end", offset)
        if "amdgcn" in identifier and size:
            parts.append((identifier, place.cut(offset, size, "bundle entry")))
    return parts, end


def _decompress(place: _Place) -> tuple[bytes, int]:
    """The bundle inside a compressed one, and the compressed one's size in bytes."""
    version, method = place.unpack(_COMPRESSED_START, 0, "compressed bundle header")
    if version not in _COMPRESSED_REST:
        place.fail(f"compressed bundle of unknown version {version}", 4)
    rest = _COMPRESSED_REST[version]
    *whole, expected, _ = place.unpack(rest, _COMPRESSED_START.size, "compressed bundle header")
    start = _COMPRESSED_START.size + rest.size
    end = whole[0] if whole else place.size
    if not start <= end <= place.size:
        place.fail(f"compressed bundle of {end:#x} bytes does not fit its container", 8)
    if method not in _DECOMPRESSORS:
        place.fail(f"unknown compression method {method}", 6)
    decoder = _DECOMPRESSORS[method]()
    view = memoryview(place.data)[place.start : place.start + end]
    out = bytearray()
    try:
        while not decoder.eof and start < end and len(out) <= expected:
            chunk = view[start : start + _CHUNK]
            out += decoder.decompress(chunk)  # grows with what is really there: a corrupt size asks for no memory
            start += len(chunk)
    except (zlib.error, zstandard.ZstdError) as problem:
        place.fail(f"compressed bundle does not decompress: {problem}", start)
    if not decoder.eof or len(out) != expected:
        place.fail(f"compressed bundle holds {len(out):#x} bytes instead of {expected:#x}", start)
    return bytes(out), whole[0] if whole else start - len(decoder.unused_data)


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
    while at < place.size:
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
