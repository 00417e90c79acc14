"""Archives of device code that lie beside host files (``.kpack``), and the sections of host files that name them.

From ROCm 7.13 on, libraries may have their device code in such archives, one for a processor or a family. The wrappers
that register it have another magic number, and point to the section ``.rocm_kpack_ref``: MessagePack, which has the
name that the library has in the archives, and their paths relative to its own folder.

Source: ROCm's kpack (rocm-systems, shared/kpack: "Multi-Architecture Packaging with Kpack", and its runtime).
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import msgpack
import zstandard

from luthier.objects.bundles import check_claim, inflate
from luthier.objects.metadata import decode_metadata
from luthier.objects.place import Place

ARCHIVE_MAGIC = b"KPAK"
REFERENCE = ".rocm_kpack_ref"
WRAPPER_MAGIC = 0x4B504948
"""HIPK, in the wrappers of host files that name archives."""
_VERSION = 1
_HEADER = struct.Struct("<4xIQ")
"""Version, offset of the table of contents, which goes to the end of the file."""
_BLOBS = 64
"""Offset of the first blob."""
_SIZE = struct.Struct("<I")
_LARGEST_TABLE = 1 << 24
_MOST_BLOBS = 1 << 20
_PROCESSOR = "@GFXARCH@"
"""What stands for a target id in the name of an archive."""
_STORED, _ZSTD = "none", "zstd-per-kernel"
"""Ways of compression."""


def is_archive(path: str) -> bool:
    """Return whether a file is an archive of device code; one that cannot be read, or only once, is not."""
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(ARCHIVE_MAGIC)) == ARCHIVE_MAGIC
    except OSError:
        return False


class Packed(NamedTuple):
    """An image in an archive."""

    binary: str
    """Host file that it is of, with the number of its wrapper: ``lib/libfoo.so#0``."""
    processor: str
    """Target id."""
    ordinal: int
    size: int
    """Bytes of the image."""

    @property
    def id(self) -> str:
        """Return the name of the image in the archive."""
        return f"{self.binary}:{self.processor}"


class KernelArchive:
    """The table of contents of an archive, and its images.

    Raises:
        ObjectError: it is malformed.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        version, start = place.unpack(_HEADER, 0, "kpack header")
        if version != _VERSION:
            place.fail(f"kpack archive of unknown version {version}", 4)
        if not _HEADER.size <= start <= place.size or place.size - start > _LARGEST_TABLE:
            place.fail(f"the table of contents of a kpack archive cannot be at {start:#x}", 8)
        self._start = start
        self._table: dict[str, Any] = dict(
            decode_metadata(place.peek(start, place.size - start), object=place.name, offset=start)
        )
        self.images = tuple(self._images())
        self._blobs = self._frames() if self._scheme == _ZSTD else self._stored()
        ordinals = [image.ordinal for image in self.images]
        if len(set(ordinals)) != len(ordinals) or max(ordinals, default=-1) >= len(self._blobs):
            place.fail("images of a kpack archive share a blob, or have none", start)

    def read(self, image: Packed) -> Place:
        """Return an image.

        Raises:
            ObjectError: it does not decompress to as many bytes as the table says.
        """
        blob = self._blobs[image.ordinal]
        if self._scheme == _STORED:
            if blob.size != image.size:
                blob.fail(f"{image.id} has {blob.size:#x} bytes instead of {image.size:#x}", 0)
            return blob
        check_claim(blob, image.size, blob.size, image.id)
        data, _ = inflate(blob, zstandard.ZstdDecompressor().decompressobj(), 0, blob.size, image.size, image.id)
        return blob._replace(root=data, start=0, end=len(data), unpacked=True)

    def with_images(self, images: Mapping[str, bytes]) -> bytes:
        """Return the archive with other images in the place of some, by `Packed.id`; it is compressed as it was."""
        new = {image.ordinal: images[image.id] for image in self.images if image.id in images}
        compress = zstandard.ZstdCompressor(level=3).compress if self._scheme == _ZSTD else bytes
        blobs = [
            compress(new[ordinal]) if ordinal in new else blob.peek(0, blob.size)
            for ordinal, blob in enumerate(self._blobs)
        ]
        table = dict(self._table)
        if self._scheme == _ZSTD:
            region = _SIZE.pack(len(blobs)) + b"".join(_SIZE.pack(len(blob)) + blob for blob in blobs)
            table |= {"zstd_offset": _BLOBS, "zstd_size": len(region)}
        else:
            region, places = b"", []
            for blob in blobs:
                places.append({"offset": _BLOBS + len(region), "size": len(blob)})
                region += blob
            table["blobs"] = places
        table["toc"] = {
            binary: {
                processor: row | {"original_size": len(new[row["ordinal"]])} if row["ordinal"] in new else row
                for processor, row in rows.items()
            }
            for binary, rows in self._table["toc"].items()
        }
        start = ARCHIVE_MAGIC + _HEADER.pack(_VERSION, _BLOBS + len(region))[4:]
        packed: bytes = msgpack.packb(table)
        return start.ljust(_BLOBS, b"\0") + region + packed

    @property
    def _scheme(self) -> str:
        scheme = self._table.get("compression_scheme", _STORED)
        if scheme not in (_STORED, _ZSTD):
            self._place.fail(f"kpack archive with unknown compression {scheme!r}", self._start)
        return str(scheme)

    def _images(self) -> Iterator[Packed]:
        for binary, rows in self._map(self._table.get("toc"), "toc").items():
            for processor, row in self._map(rows, binary).items():
                row = self._map(row, processor)
                yield Packed(binary, processor, self._number(row, "ordinal"), self._number(row, "original_size"))

    def _frames(self) -> list[Place]:
        offset, size = (self._number(self._table, name) for name in ("zstd_offset", "zstd_size"))
        region = self._place.cut(offset, size, "blobs of a kpack archive")
        (count,) = region.unpack(_SIZE, 0, "number of blobs")
        frames, at = [], _SIZE.size
        if count > min(size // _SIZE.size, _MOST_BLOBS):
            region.fail(f"kpack archive announces {count} blobs", 0)
        for _ in range(count):
            (length,) = region.unpack(_SIZE, at, "size of a blob")
            frames.append(region.cut(at + _SIZE.size, length, "blob"))
            at += _SIZE.size + length
        return frames

    def _stored(self) -> list[Place]:
        rows = self._table.get("blobs")
        if not isinstance(rows, list):
            self._place.fail("kpack archive without blobs", self._start)
        blobs = []
        for row in rows:
            offset, size = (self._number(self._map(row, "blobs"), name) for name in ("offset", "size"))
            blobs.append(self._place.cut(offset, size, "blob"))
        end = 0
        for blob in sorted(blobs, key=lambda blob: blob.start):
            if blob.size and blob.start < end:  # each containing all others would be a bomb
                self._place.fail("blobs of a kpack archive overlap", blob.start - self._place.start)
            end = blob.end
        return blobs

    def _map(self, value: Any, what: str) -> dict[str, Any]:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            self._place.fail(f"{what!r} in the table of a kpack archive is no map with names", self._start)
        return value

    def _number(self, row: Mapping[str, Any], name: str) -> int:
        value = row.get(name)
        if type(value) is not int or not 0 <= value < 1 << 63:
            self._place.fail(f"{name!r} in the table of a kpack archive is {value!r}, no size", self._start)
        return value


class Reference(NamedTuple):
    """Name and archives of the device code of a host file."""

    binary: str
    """Its name in archives, without the number of a wrapper."""
    paths: tuple[str, ...]
    """Paths of archives, relative to its folder; with ``@GFXARCH@`` for the target."""

    @staticmethod
    def of(section: Place) -> Reference:
        """Read the section `REFERENCE`.

        Raises:
            ObjectError: it is malformed.
        """
        table = decode_metadata(section.peek(0, section.size), object=section.name, offset=section.start)
        binary, paths = table.get("kernel_name"), table.get("kpack_search_paths")
        if not isinstance(binary, str) or not isinstance(paths, list) or not all(isinstance(one, str) for one in paths):
            section.fail(f"{REFERENCE} does not name device code and archives", 0)
        return Reference(binary, tuple(paths))

    def archives(self, host: Place) -> list[tuple[str, str]]:
        """Return the archives that are there: paths as the host file has them, and from here.

        Those that are not there are of processors that were not installed.

        Raises:
            ObjectError: none is there, or a path leaves the folder that the host file's name in archives begins in.
        """
        found: list[tuple[str, str]] = []
        up = len(PurePosixPath(self.binary).parts) - 1
        for path in self.paths:
            normal = os.path.normpath(path)
            outside = normal.split("/").count("..") > up
            if (
                not host.path
                or os.path.isabs(path)
                or "\0" in path
                or outside
                or ".." in PurePosixPath(self.binary).parts
            ):
                why = "which only a file on the disk has" if not host.path else f"outside of what has {self.binary!r}"
                host.fail(f"its device code is in {path!r}, {why}", 0)
            folder, name = os.path.split(os.path.join(os.path.dirname(host.path), path))
            pattern = re.compile(r"[\w:+-]+".join(map(re.escape, name.split(_PROCESSOR))))
            there = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
            inner = os.path.dirname(path)
            found += [(os.path.join(inner, one), os.path.join(folder, one)) for one in there if pattern.fullmatch(one)]
        if not found:
            host.fail(f"its device code is in archives of which none is there: {', '.join(self.paths)}", 0)
        return found
