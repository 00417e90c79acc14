"""Fat binaries: clang's offload bundles, plain and compressed, and LLVM's offload binaries.

Sources: clang "ClangOffloadBundler" (bundles, CCOB), llvm/Object/OffloadBinary.h.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import zstandard

from luthier.errors import ObjectError
from luthier.objects.place import FileSlice

BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"
OFFLOAD_BINARY_MAGIC = b"\x10\xff\x10\xad"
_FOR_AMD = re.compile("(?:^|-)(?:amdgcn-|spirv64-amd-)")
FAT_BINARY_MAGICS = (BUNDLE_MAGIC, COMPRESSED_MAGIC, OFFLOAD_BINARY_MAGIC)

_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQQ")
"""Bundle entry: offset, size, length of the id that follows."""
_COMPRESSED_START = struct.Struct("<4xHH")
_COMPRESSED_REST = {1: struct.Struct("<IQ"), 2: struct.Struct("<IIQ"), 3: struct.Struct("<QQQ")}
"""CCOB version -> fields after version and method: (total size,) uncompressed size, hash."""
_DECOMPRESSORS: dict[int, Callable[[], Any]] = {
    0: zlib.decompressobj,
    1: lambda: zstandard.ZstdDecompressor().decompressobj(),
}
"""llvm::compression::Format -> streaming decoder."""
_ALIGNMENT = 4096
"""Alignment of images in written bundles, as requested by clang from its bundler."""
_CHUNK = 1 << 12
"""Bytes decompressed at a time, to at most 128 MiB."""
_MOST_TABLES = 1 << 16
"""Decompressed bytes that contain the table of entries, unless it has hundreds."""
_HARMLESS = 64 << 20
_LARGEST_RATIO = 50
"""A compressed bundle that claims to hold more than this times its size, and more than `_HARMLESS`, is considered a
bomb. Device code shrinks to a twentieth at best."""
_BINARY = struct.Struct("<4xIQQQ")
_BINARY_ENTRY = struct.Struct("<HHIQQQQ")
_BINARY_STRING = struct.Struct("<QQ")


class BundleEntry(NamedTuple):
    """Image of a bundle for AMD GPUs, or that HIP compiles for them: `size` bytes from `offset`."""

    id: str
    """E.g. ``hipv4-amdgcn-amd-amdhsa--gfx942:xnack-``."""
    offset: int
    size: int

    @property
    def label(self) -> str:
        """Return the target ID in `id`."""
        return self.id.partition("-amd-amdhsa-")[2].lstrip("-") or self.id


def bundles(place: FileSlice, *, among_others: bool = False) -> Iterator[tuple[FileSlice, list[BundleEntry]]]:
    """Yield bundles of any kind and their entries.

    They follow each other, with padding between them from the linker.

    Args:
        among_others: whether other data may be between them that happens to begin like a bundle.
    """
    at = 0
    while (magic := place.find(FAT_BINARY_MAGICS, at)) >= 0:
        rest = place.cut(magic, place.size - magic, "bundle")
        if among_others and not _has_header(rest):
            at = magic + 4
            continue
        if rest.begins(BUNDLE_MAGIC):
            entries, size = _entries(rest, rest.size)
        elif rest.begins(COMPRESSED_MAGIC):
            entries, size = _compressed_entries(rest)
        else:
            entries, size = _offload_binary(rest)
        yield rest.cut(0, size, "bundle"), entries
        at = magic + max(size, 4)


def _has_header(place: FileSlice) -> bool:
    """Return whether a header follows a magic number; the longest magic number needs no check."""
    try:
        if place.begins(COMPRESSED_MAGIC):
            _CompressedHeader.of(place)
        elif place.begins(OFFLOAD_BINARY_MAGIC):
            _offload_binary(place)
    except ObjectError:
        return False
    return True


def opened(bundle: FileSlice) -> FileSlice:
    """Return the data to which offsets of a bundle's entries refer: the bundle, decompressed if necessary."""
    if not bundle.begins(COMPRESSED_MAGIC):
        return bundle
    data, _ = _decompress(bundle)
    return bundle._replace(root=data, start=0, end=len(data), unpacked=True)


def make_bundle(place: FileSlice, images: Mapping[str, bytes]) -> bytes:
    """Return an uncompressed bundle with the entries of another one, in order, with some images replaced.

    Args:
        place: an uncompressed bundle.
        images: new images by the ID of the entry.

    Raises:
        ObjectError: the bundle is malformed.
    """
    every, _ = _all_entries(place, place.size)
    at = len(BUNDLE_MAGIC) + _COUNT.size + sum(_ENTRY.size + len(entry.id) for entry in every)
    table, contents = [BUNDLE_MAGIC, _COUNT.pack(len(every))], bytearray()
    start = at
    for entry in every:
        data = images.get(entry.id)
        if data is None:
            data = place.read(entry.offset, entry.size, "bundle entry")
        contents += bytes(-(start + len(contents)) % _ALIGNMENT) if data else b""
        table += [_ENTRY.pack(start + len(contents), len(data), len(entry.id)), entry.id.encode()]
        contents += data
    return b"".join([*table, contents])


def _entries(place: FileSlice, whole: int) -> tuple[list[BundleEntry], int]:
    """Return the AMD GPU entries of an uncompressed bundle of at most `whole` bytes, and its size in bytes."""
    every, end = _all_entries(place, whole)
    return [entry for entry in every if _FOR_AMD.search(entry.id) and entry.size], end


def _all_entries(place: FileSlice, whole: int) -> tuple[list[BundleEntry], int]:
    """Return all entries of an uncompressed bundle, including host and empty ones, and its size in bytes."""
    if not place.begins(BUNDLE_MAGIC):
        place.fail("not an offload bundle", 0)
    at = len(BUNDLE_MAGIC)
    (count,) = place.unpack(_COUNT, at, "bundle header")
    at += _COUNT.size
    if count > (whole - at) // _ENTRY.size:
        place.fail(f"bundle header announces {count} entries", at - _COUNT.size)
    every: list[BundleEntry] = []
    for _ in range(count):
        offset, size, id_size = place.unpack(_ENTRY, at, "bundle entry")
        raw_id = place.read(at + _ENTRY.size, id_size, "bundle entry's id")
        at += _ENTRY.size + id_size
        if not raw_id.isascii():
            place.fail("bundle entry's id is not ASCII", at - id_size)
        identifier = raw_id.decode()
        if offset + size > whole:
            place.fail(f"bundle entry {identifier!r} of {size:#x} bytes reaches past the end", offset)
        every.append(BundleEntry(identifier, offset, size))
    end = at
    for entry in sorted(every, key=lambda entry: entry.offset):
        if entry.size and entry.offset < end:  # nested entries would be a bomb
            place.fail(f"bundle entry {entry.id!r} overlaps the one before it", entry.offset)
        end = max(end, entry.offset + entry.size)
    return every, end


def _compressed_entries(place: FileSlice) -> tuple[list[BundleEntry], int]:
    """Return the AMD GPU entries of a compressed bundle, and the size of the compressed data."""
    if place.unpacked:
        place.fail("a compressed bundle is inside another one", 0)
    header = _CompressedHeader.of(place)
    if header.size is None:  # its end is known after decompression
        data, size = _decompress(place)
    else:
        place = place.cut(0, header.size, "compressed bundle")
        data, size = _decompress(place, _MOST_TABLES)[0], header.size
    try:
        return _entries(FileSlice.of_bytes(data, place.name), header.unpacked_size)[0], size
    except ObjectError:
        if len(data) == header.unpacked_size:
            raise
    data, _ = _decompress(place)
    return _entries(FileSlice.of_bytes(data, place.name), len(data))[0], size


class _CompressedHeader(NamedTuple):
    """Header of a compressed bundle."""

    method: int
    unpacked_size: int
    size: int | None
    """Bytes of header and compressed data; None in version 1."""
    length: int
    """Size of the header in bytes."""

    @staticmethod
    def of(place: FileSlice) -> _CompressedHeader:
        version, method = place.unpack(_COMPRESSED_START, 0, "compressed bundle header")
        if version not in _COMPRESSED_REST:
            place.fail(f"compressed bundle of unknown version {version}", 4)
        if method not in _DECOMPRESSORS:
            place.fail(f"unknown compression method {method}", 6)
        rest = _COMPRESSED_REST[version]
        *whole, unpacked_size, _ = place.unpack(rest, _COMPRESSED_START.size, "compressed bundle header")
        length = _COMPRESSED_START.size + rest.size
        size = whole[0] if whole else None
        if size is not None and not length <= size <= place.size:
            place.fail(f"compressed bundle of {size:#x} bytes does not fit its container", 8)
        check_claim(place, unpacked_size, size or place.size, "compressed bundle")
        return _CompressedHeader(method, unpacked_size, size, length)


def _decompress(place: FileSlice, most: int | None = None) -> tuple[bytearray, int]:
    """Decompress a bundle, or about its first `most` bytes; return it and the end of the compressed data."""
    header = _CompressedHeader.of(place)
    decoder = _DECOMPRESSORS[header.method]()
    end = header.size or place.size
    out, read = inflate(place, decoder, header.length, end, header.unpacked_size, "compressed bundle", most)
    return out, header.size or read


def check_claim(place: FileSlice, size: int, compressed: int, what: str) -> None:
    """Check the claimed size of compressed data before it is decompressed.

    Raises:
        ObjectError: it is a bomb.
    """
    if size > max(_HARMLESS, _LARGEST_RATIO * compressed):
        place.fail(f"{what} claims to hold {size:#x} bytes", 8)


def inflate(
    place: FileSlice, decoder: Any, start: int, end: int, size: int, what: str, most: int | None = None
) -> tuple[bytearray, int]:
    """Decompress data between two offsets, or about its first `most` bytes; return it and the end of the data.

    Args:
        decoder: of `_DECOMPRESSORS`.
        size: expected bytes.
        what: name of the data in errors.

    Raises:
        ObjectError: it does not decompress, or has another size.
    """
    wanted = size if most is None else min(most, size)
    at, out = start, bytearray()
    try:
        while not decoder.eof and at < end and (len(out) < wanted or most is None) and len(out) <= wanted:
            chunk = place.peek(at, min(_CHUNK, end - at))
            out += decoder.decompress(chunk)  # grows with the actual data: a corrupt size allocates nothing
            at += len(chunk)
    except (zlib.error, zstandard.ZstdError) as problem:
        place.fail(f"{what} does not decompress: {problem}", at)
    if most is None and (not decoder.eof or len(out) != wanted):
        place.fail(f"{what} contains {len(out):#x} bytes instead of {wanted:#x}", at)
    return out, at - len(decoder.unused_data)


def _offload_binary(place: FileSlice) -> tuple[list[BundleEntry], int]:
    """Return the image of an LLVM offload binary (OpenMP, the new HIP driver), and the binary's size in bytes."""
    version, size, start, _ = place.unpack(_BINARY, 0, "offload binary header")
    if version != 1:
        place.fail(f"offload binary of unknown version {version}", 4)
    whole = place.cut(0, size, "offload binary")
    _, _, _, strings, count, image, image_size = whole.unpack(_BINARY_ENTRY, start, "offload binary entry")
    if count > size // _BINARY_STRING.size:
        whole.fail(f"offload binary announces {count} strings", start)
    names = {}
    for index in range(count):
        key, value = whole.unpack(_BINARY_STRING, strings + 16 * index, "offload binary string")
        names[_text(whole, key)] = _text(whole, value)
    if not _FOR_AMD.match(names.get("triple", "")):
        return [], size
    whole.cut(image, image_size, "offload image")
    return [BundleEntry(f"{names['triple']}-{names.get('arch', '')}", image, image_size)], size


def _text(place: FileSlice, offset: int) -> str:
    text, zero, _ = place.peek(offset, 4096).partition(b"\0") if offset < place.size else (b"", b"", b"")
    if not zero:
        place.fail("unterminated string", offset)
    return text.decode(errors="replace")
