"""Archives of device code beside host files (``.kpack``), and the sections of host files that name them.

From ROCm 7.13 on, libraries may have their device code in such archives, one for each processor or family. The wrappers
that register it have another magic number, and point to the section ``.rocm_kpack_ref``: MessagePack with the library's
name in the archives, and the archives' paths relative to the library's folder. A path may stand for archives of several
targets, or, until early 2026, name a manifest (``.kpm``) that lists them. Environment variables name other archives,
separated by colons.

Source: ROCm's kpack (rocm-systems, shared/kpack: "Multi-Architecture Packaging with Kpack", and its runtime; rocm-kpack
before its "Drop .kpm manifests").
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import msgpack
import zstandard

from luthier.objects.bundles import check_claim, inflate
from luthier.objects.metadata import decode_metadata
from luthier.objects.place import FileSlice

ARCHIVE_MAGIC = b"KPAK"
REFERENCE = ".rocm_kpack_ref"
MANIFEST_SUFFIX = ".kpm"
INSTEAD, BEFORE, OFF = "ROCM_KPACK_PATH", "ROCM_KPACK_PATH_PREFIX", "ROCM_KPACK_DISABLE"
"""Environment variables: replace the archives that libraries name, search others first, use none."""
WRAPPER_MAGIC = 0x4B504948
"""HIPK, magic number of wrappers in host files that name archives."""
_VERSION = 1
_HEADER = struct.Struct("<4xIQ")
"""Version; offset of the table of contents, which extends to the end of the file."""
_BLOBS = 64
"""Offset of the first blob."""
_SIZE = struct.Struct("<I")
_LARGEST_TABLE = 1 << 24
_LARGEST_MANIFEST = 1 << 20
_MOST_BLOBS = 1 << 20
_PROCESSOR = "@GFXARCH@"
"""Placeholder for a target ID in the name of an archive."""
_STORED, _ZSTD = "none", "zstd-per-kernel"
"""Kinds of compression."""


def is_archive(path: str) -> bool:
    """Return whether a file is an archive of device code; not if it cannot be read, or only once."""
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
    """Its host file with the number of the wrapper: ``lib/libfoo.so#0``."""
    processor: str
    """Target ID."""
    ordinal: int
    size: int
    """Bytes of the image."""

    @property
    def id(self) -> str:
        """Return the name of the image in the archive."""
        return f"{self.binary}:{self.processor}"


def make_archive(images: Mapping[Packed, bytes]) -> bytes:
    """Return an archive of images; sizes and ordinals of `Packed` are ignored."""
    toc: dict[str, dict[str, Any]] = {}
    for ordinal, (image, data) in enumerate(images.items()):
        toc.setdefault(image.binary, {})[image.processor] = {
            "type": "hsaco",
            "ordinal": ordinal,
            "original_size": len(data),
        }
    targets = sorted({image.processor for image in images})
    table = {"format_version": 1, "group_name": "luthier", "gfx_arch_family": "luthier", "gfx_arches": targets}
    table |= {"compression_scheme": _ZSTD, "toc": toc}
    return _archive(table, [_compressed(data) for data in images.values()])


def make_manifest(images: Iterable[Packed], archive: str) -> bytes:
    """Return a manifest that places all images in one archive beside it."""
    files = {image.processor: {"file": archive} for image in images}
    packed: bytes = msgpack.packb({"format_version": 1, "component_name": "luthier", "kpack_files": files})
    return packed


def _compressed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(data)


def _archive(table: dict[str, Any], blobs: Sequence[bytes]) -> bytes:
    if table.get("compression_scheme") == _ZSTD:
        region = _SIZE.pack(len(blobs)) + b"".join(_SIZE.pack(len(blob)) + blob for blob in blobs)
        table |= {"zstd_offset": _BLOBS, "zstd_size": len(region)}
    else:
        region, places = b"".join(blobs), list[dict[str, int]]()
        for blob in blobs:
            places.append({"offset": _BLOBS + sum(place["size"] for place in places), "size": len(blob)})
        table["blobs"] = places
    start = ARCHIVE_MAGIC + _HEADER.pack(_VERSION, _BLOBS + len(region))[4:]
    packed: bytes = msgpack.packb(table)
    return start.ljust(_BLOBS, b"\0") + region + packed


class KernelArchive:
    """The table of contents of an archive, and its images.

    Raises:
        ObjectError: it is malformed.
    """

    def __init__(self, place: FileSlice) -> None:
        self.place = place
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

    def read(self, image: Packed) -> FileSlice:
        """Return an image.

        Raises:
            ObjectError: its decompressed size differs from the table of contents.
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
        """Return the archive with images replaced by `Packed.id`, with its kind of compression."""
        new = {image.ordinal: images[image.id] for image in self.images if image.id in images}
        compress = _compressed if self._scheme == _ZSTD else bytes
        blobs = [
            compress(new[ordinal]) if ordinal in new else blob.peek(0, blob.size)
            for ordinal, blob in enumerate(self._blobs)
        ]
        table = dict(self._table)
        table["toc"] = {
            binary: {
                processor: row | {"original_size": len(new[row["ordinal"]])} if row["ordinal"] in new else row
                for processor, row in rows.items()
            }
            for binary, rows in self._table["toc"].items()
        }
        return _archive(table, blobs)

    @property
    def _scheme(self) -> str:
        scheme = self._table.get("compression_scheme", _STORED)
        if scheme not in (_STORED, _ZSTD):
            self.place.fail(f"kpack archive with unknown compression {scheme!r}", self._start)
        return str(scheme)

    def _images(self) -> Iterator[Packed]:
        for binary, rows in self._map(self._table.get("toc"), "toc").items():
            for processor, row in self._map(rows, binary).items():
                row = self._map(row, processor)
                yield Packed(binary, processor, self._number(row, "ordinal"), self._number(row, "original_size"))

    def _frames(self) -> list[FileSlice]:
        offset, size = (self._number(self._table, name) for name in ("zstd_offset", "zstd_size"))
        region = self.place.cut(offset, size, "blobs of a kpack archive")
        (count,) = region.unpack(_SIZE, 0, "number of blobs")
        frames, at = [], _SIZE.size
        if count > min(size // _SIZE.size, _MOST_BLOBS):
            region.fail(f"kpack archive announces {count} blobs", 0)
        for _ in range(count):
            (length,) = region.unpack(_SIZE, at, "size of a blob")
            frames.append(region.cut(at + _SIZE.size, length, "blob"))
            at += _SIZE.size + length
        return frames

    def _stored(self) -> list[FileSlice]:
        rows = self._table.get("blobs")
        if not isinstance(rows, list):
            self.place.fail("kpack archive without blobs", self._start)
        blobs = []
        for row in rows:
            offset, size = (self._number(self._map(row, "blobs"), name) for name in ("offset", "size"))
            blobs.append(self.place.cut(offset, size, "blob"))
        end = 0
        for blob in sorted(blobs, key=lambda blob: blob.start):
            if blob.size and blob.start < end:  # nested blobs would be a bomb
                self.place.fail("blobs of a kpack archive overlap", blob.start - self.place.start)
            end = blob.end
        return blobs

    def _map(self, value: Any, what: str) -> dict[str, Any]:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            self.place.fail(f"{what!r} in the table of a kpack archive is not a map with string keys", self._start)
        return value

    def _number(self, row: Mapping[str, Any], name: str) -> int:
        value = row.get(name)
        if type(value) is not int or not 0 <= value < 1 << 63:
            self.place.fail(f"{name!r} in the table of a kpack archive is {value!r}, which is not a size", self._start)
        return value


class KpackReference(NamedTuple):
    """Name and archives of the device code of a host file."""

    binary: str
    """Its name in archives, without the number of the wrapper."""
    paths: tuple[str, ...]
    """Paths of archives and manifests, relative to its folder, with ``@GFXARCH@`` for the target."""

    @staticmethod
    def of(section: FileSlice) -> KpackReference:
        """Read the section `REFERENCE`.

        Raises:
            ObjectError: it is malformed.
        """
        table = decode_metadata(section.peek(0, section.size), object=section.name, offset=section.start)
        binary, paths = table.get("kernel_name"), table.get("kpack_search_paths")
        if not isinstance(binary, str) or not isinstance(paths, list) or not all(isinstance(one, str) for one in paths):
            section.fail(f"{REFERENCE} does not name device code and archives", 0)
        return KpackReference(binary, tuple(paths))

    @property
    def packed(self) -> bytes:
        """Return the contents of the section."""
        data: bytes = msgpack.packb({"kernel_name": self.binary, "kpack_search_paths": list(self.paths)})
        return data

    def images(self, host: FileSlice) -> Iterator[tuple[KernelArchive, Packed]]:
        """Yield the images of the host file with their archives.

        Of two images for one target, only the one in the earlier archive is included, which ROCm loads.

        Raises:
            ObjectError: as for `archives`, or an archive is malformed.
        """
        seen = set[str]()
        for path, file in self.archives(host):
            archive = KernelArchive(FileSlice.of_file(file, f"{host.name}[{path}]")._replace(depth=host.depth + 1))
            for image in archive.images:
                if self.binary in (image.binary, image.binary.rpartition("#")[0]) and image.id not in seen:
                    seen.add(image.id)
                    yield archive, image

    def archives(self, host: FileSlice) -> list[tuple[str, str]]:
        """Return the existing archives: paths in the host file or environment, and paths from here.

        Missing ones are for processors that are not installed.

        Raises:
            ObjectError: there is none, the environment disables them, or a path leaves the folder in which the host
                file's name in archives begins.
        """
        if os.environ.get(OFF, "")[:1] not in ("", "0"):
            host.fail(f"its device code is in archives, which {OFF}={os.environ[OFF]} disables", 0)
        instead, before = ([one for one in os.environ.get(name, "").split(":") if one] for name in (INSTEAD, BEFORE))
        named = [(path, path) for path in instead or before]
        if not instead:
            named += [pair for path in self.paths for pair in self._named(host, path)]
        archives: dict[str, tuple[str, str]] = {}
        for path, file in named:
            if os.path.isfile(file):
                archives.setdefault(os.path.realpath(file), (path, file))
        if not archives:
            where = f"{INSTEAD} names {', '.join(instead)}" if instead else ", ".join([*before, *self.paths])
            host.fail(f"its device code is in archives, but there are none: {where}", 0)
        return list(archives.values())

    def _named(self, host: FileSlice, path: str) -> Iterator[tuple[str, str]]:
        """Yield the archives that a path of the host file stands for, as `archives` does."""
        up = len(PurePosixPath(self.binary).parts) - 1
        outside = os.path.normpath(path).split("/").count("..") > up or ".." in PurePosixPath(self.binary).parts
        if not host.path or os.path.isabs(path) or "\0" in path or outside:
            why = "which needs a file on disk" if not host.path else f"outside of the folders of {self.binary!r}"
            host.fail(f"its device code is in {path!r}, {why}", 0)
        before, mark, behind = path.partition(_PROCESSOR)  # in the name of a file or folder
        folder, start = os.path.split(before)
        end, _, rest = behind.partition("/")
        pattern = re.compile(f"{re.escape(start)}[\\w:+-]+{re.escape(end)}" if mark else re.escape(start))
        own = os.path.dirname(host.path)
        searched = os.path.join(own, folder)
        for name in sorted(os.listdir(searched)) if os.path.isdir(searched) else []:
            if pattern.fullmatch(name):
                full = os.path.join(folder, name, rest) if rest else os.path.join(folder, name)
                if full.endswith(MANIFEST_SUFFIX):
                    yield from ((one, os.path.join(own, one)) for one in _listed(own, full))
                else:
                    yield full, os.path.join(own, full)


def _listed(folder: str, path: str) -> Iterator[str]:
    """Yield the paths of the archives that a manifest lists.

    Raises:
        ObjectError: it is malformed.
    """
    place = FileSlice.of_file(os.path.join(folder, path), path)
    if place.size > _LARGEST_MANIFEST:
        place.fail(f"a manifest of {place.size} bytes is too large", 0)
    rows = decode_metadata(place.peek(0, place.size), object=place.name, offset=0).get("kpack_files")
    for row in rows.values() if isinstance(rows, dict) else [None]:
        name = row.get("file") if isinstance(row, dict) else None
        if not isinstance(name, str) or os.path.basename(name) != name or name in ("", ".", "..") or "\0" in name:
            place.fail(f"the manifest lists {name!r}, which is not an archive beside it", 0)
        yield os.path.join(os.path.dirname(path), name)
