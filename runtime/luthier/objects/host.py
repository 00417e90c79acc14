"""Host executables and shared libraries with replaced device code.

A HIP program registers its device code with wrappers in ``.hipFatBinSegment``: magic number, version, and a pointer to
an offload bundle. New bundles do not fit in the place of the old ones, so they go to a new segment after everything
else, and the pointers of the wrappers, with their relocations, are changed. Nothing that is loaded moves; the old
bundles stay, unused. If wrappers point to a section that names archives, the new segment has such a section, and the
device code goes to an archive of its own.

The new segment also contains the program headers, since there is one more. Old kernels and start-up code expect them at
the first segment's address plus their file offset, so offset and address of the new segment differ by as much as those
of the first segment; the file is filled with zeros up to there, which take no space on disk.

Source: System V ABI; clang's CodeGen/CGCUDANV.cpp (`__CudaFatBinaryWrapper`); psABIs of x86-64, AArch64 and PowerPC for
relocations.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO

from msgspec import Struct

from luthier.errors import LuthierError, ObjectError
from luthier.objects import elf as E
from luthier.objects.bundles import BundleEntry, bundles, make_bundle, opened
from luthier.objects.image import PAGE, round_up
from luthier.objects.kpack import (
    MANIFEST_SUFFIX,
    REFERENCE,
    WRAPPER_MAGIC,
    KernelArchive,
    KpackReference,
    make_archive,
    make_manifest,
)
from luthier.objects.place import FileSlice

WRAPPERS = ".hipFatBinSegment"
FAT_BINARY = ".hip_fatbin"
_WRAPPER = struct.Struct("<IIQQ")
"""Magic number, version, address of the bundle, unused."""
_MAGIC, _VERSION = 0x48495046, 1
_RELATIVE = {62: 8, 183: 1027, 21: 22}
"""ELF machine -> relocation type that adds the load address: x86-64, AArch64, 64-bit PowerPC."""
_SHT_REL, _SHT_RELR = 9, 19
_WINDOW = 1 << 20
_ZEROS = bytes(_WINDOW)
_LARGEST_GAP = 1 << 30
"""Maximum number of zero bytes in a file, for variables that are initially zero."""


def is_host_file(path: str) -> bool:
    """Return whether a file is an executable or a shared library of the host.

    It is not if it cannot be read, or only once, like a pipe.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            start = file.read(E.FILE_HEADER.size)
        header = E.read_header(memoryview(start), path)
    except (OSError, ValueError, LuthierError):
        return False
    return header.machine != E.EM_AMDGPU and header.type in (E.ET_DYN, E.ET_EXEC)


class FatBinary(Struct, frozen=True):
    """A fat binary to which wrappers point."""

    wrappers: tuple[int, ...]
    """Virtual addresses of the pointers; sources compiled with ``-fgpu-rdc`` share a bundle."""
    address: int
    """Address of the bundle, as stored in the wrappers."""
    bundle: FileSlice
    entries: tuple[BundleEntry, ...]
    """Images for AMD GPUs."""
    name: str
    """Name in errors."""

    def with_images(self, images: Mapping[str, bytes]) -> bytes:
        """Return the bundle, uncompressed, with images replaced by ID."""
        if len({entry.id for entry in self.entries}) != len(self.entries):
            raise ObjectError("the bundle has two entries with one ID", object=self.name)
        return make_bundle(opened(self.bundle), images)


class Rewritten:
    """A file with some bytes replaced and others appended. Unchanged parts are not copied to memory.

    Args:
        original: the original file.
        size: size of the new file in bytes.
    """

    def __init__(self, original: memoryview, size: int) -> None:
        self._original = original
        self.size = size
        self._pieces: dict[int, bytes] = {}

    def put(self, offset: int, data: bytes) -> None:
        """Replace bytes; replaced pieces must not overlap partially."""
        self._pieces[offset] = data

    def windows(self) -> Iterator[bytes | memoryview]:
        """Yield the file in windows; zeros are mostly in windows of their own."""
        at = 0
        for offset, data in sorted(self._pieces.items()):
            yield from self._between(at, offset)
            yield data
            at = offset + len(data)
        yield from self._between(at, self.size)

    def _between(self, start: int, end: int) -> Iterator[bytes | memoryview]:
        kept = min(end, len(self._original))
        for at in range(start, kept, _WINDOW):
            yield self._original[at : min(at + _WINDOW, kept)]
        for at in range(max(start, kept), end, _WINDOW):
            yield _ZEROS[: min(_WINDOW, end - at)]

    def write(self, file: IO[bytes]) -> None:
        """Write the file, with holes if possible.

        Raises:
            OSError: writing fails.
        """
        seekable = file.seekable()
        for window in self.windows():
            if seekable and window == _ZEROS[: len(window)]:
                file.seek(len(window), os.SEEK_CUR)
            else:
                file.write(window)
        if seekable:
            file.truncate()

    def __bytes__(self) -> bytes:
        return b"".join(self.windows())


class ArchiveFile:
    """An archive of device code beside host files.

    Args:
        path: path of the file.

    Raises:
        ObjectError: it is malformed.
    """

    def __init__(self, path: str) -> None:
        self.name = path
        self._place = FileSlice.of_file(path, path)
        self._archive = KernelArchive(self._place)
        self.bundles = frozenset({self._place.start})
        """`Image.bundle` of the images that `with_images` can replace."""

    def beside(self, images: Mapping[int, Mapping[str, bytes]], output: str) -> dict[str, bytes]:
        """Return no files; see `HostFile.beside`."""
        return {}

    def with_images(self, images: Mapping[int, Mapping[str, bytes]], beside: Iterable[str] = ()) -> Rewritten:
        """Return the file with images replaced, by `Image.bundle` and `Image.id`."""
        data = self._archive.with_images(images.get(self._place.start, {}))
        return Rewritten(memoryview(data), len(data))


class HostFile:
    """An executable or a shared library of the host that registers device code as HIP programs do.

    Args:
        path: path of the file.

    Raises:
        ObjectError: it is not such a file, or its device code cannot be replaced.
    """

    def __init__(self, path: str) -> None:
        self.name = path
        self._place = FileSlice.of_file(path, path)
        self._elf = elf = E.ElfFile(self._place.view, path)
        self._loads = [one for one in elf.segments if one.type == E.PT_LOAD]
        if elf.header.machine not in _RELATIVE or elf.header.type not in (E.ET_DYN, E.ET_EXEC) or not self._loads:
            elf.fail("no AMD GPU code: not an executable or shared library of a host that ROCm supports", 16)
        if not elf.sections:
            elf.fail(f"there are no section headers, so {WRAPPERS} cannot be found")
        self._relocations = self._read_relocations()
        self._has_packed = any(one.type == _SHT_RELR for one in elf.sections)
        """Whether there are packed relocations (RELR), which a bitmap encodes."""
        self._reference: KpackReference | None = None
        """Contents of the section that names archives, if wrappers point to it."""
        self.fat_binaries = self._find()

    @property
    def bundles(self) -> frozenset[int]:
        """Return `Image.bundle` of the images that `with_images` can replace."""
        return frozenset(fat.bundle.start for fat in self.fat_binaries)

    def beside(self, images: Mapping[int, Mapping[str, bytes]], output: str) -> dict[str, bytes]:
        """Return the files, by name, that must be beside the new file when it is written to `output`.

        Raises:
            ObjectError: the archives with its device code cannot be read, or would be overwritten.
        """
        if self._reference is None:
            return {}
        (new,) = images.values()
        packed = {
            image: new[image.id] if image.id in new else archive.read(image).peek(0, image.size)
            for archive, image in self._reference.images(self._place)
        }
        folder, name = os.path.split(os.path.realpath(output))  # ROCm resolves links first
        files = {f"{name}.kpack": make_archive(packed)}
        if any(path.endswith(MANIFEST_SUFFIX) for path in self._reference.paths):  # its ROCm may support nothing else
            files[f"{name}{MANIFEST_SUFFIX}"] = make_manifest(packed, f"{name}.kpack")
        for _, file in self._reference.archives(self._place):
            if os.path.realpath(file) in (os.path.join(folder, one) for one in files):
                self._elf.fail(f"{file}, which contains its device code, would be overwritten: choose another output")
        return files

    def with_images(self, images: Mapping[int, Mapping[str, bytes]], beside: Iterable[str] = ()) -> Rewritten:
        """Return the file with images replaced, by `Image.bundle` and `Image.id`.

        Args:
            beside: names of the files that `beside` returned.

        Raises:
            ObjectError: the file's layout leaves no space for them.
        """
        if self._reference is not None:
            return self.with_fat_binaries({0: self._reference._replace(paths=tuple(beside)).packed})
        return self.with_fat_binaries(
            {at: fat.with_images(images.get(fat.bundle.start, {})) for at, fat in enumerate(self.fat_binaries)}
        )

    def with_fat_binaries(self, replacements: Mapping[int, bytes]) -> Rewritten:
        """Return the file with bundles replaced.

        Args:
            replacements: number in `fat_binaries` -> bundle.

        Raises:
            ObjectError: the file's layout leaves no space for them.
        """
        base, end = self._loads[0], max(one.vaddr + one.memsz for one in self._loads)
        apart = base.vaddr - base.offset
        align = max(PAGE, *(one.align for one in self._loads))
        start = round_up(max(len(self._place.view), end - apart), align)
        if start - len(self._place.view) > _LARGEST_GAP:
            self._elf.fail(f"its variables take {end - apart:#x} bytes, so a segment after them is too far away")
        if apart % align or any(one.vaddr < base.vaddr for one in self._loads):
            self._elf.fail("its segments are not in order of their addresses")
        headers = list(self._elf.segments)
        place = round_up(start + (len(headers) + 1) * E.SEGMENT_HEADER.size, PAGE)
        first = place
        parts: dict[int, tuple[int, bytes]] = {}
        for number, bundle in sorted(replacements.items()):
            parts[number] = place, bundle
            place = round_up(place + len(bundle), PAGE)
        size = place - start
        last = max(at for at, one in enumerate(headers) if one.type == E.PT_LOAD)
        headers.insert(
            last + 1, E.SegmentHeader(E.PT_LOAD, E.PF_R, start, start + apart, start + apart, size, size, align)
        )
        table = len(headers) * E.SEGMENT_HEADER.size
        headers = [
            one._replace(offset=start, vaddr=start + apart, paddr=start + apart, filesz=table, memsz=table)
            if one.type == E.PT_PHDR
            else one
            for one in headers
        ]
        out = Rewritten(self._place.view, start + size)
        out.put(start, E.SEGMENT_HEADER.pack_all(headers))
        header = self._elf.header._replace(segments_offset=start, segment_count=len(headers))
        out.put(0, E.FILE_HEADER.pack(header))
        for number, (at, bundle) in parts.items():
            out.put(at, bundle)
            for wrapper in self.fat_binaries[number].wrappers:
                self._point(out, wrapper, at + apart)
        end = max(
            at + len(bundle) for at, bundle in parts.values()
        )  # exact, since ROCm's tools unpack the whole section
        self._move_section(out, first, end - first, apart)
        return out

    def _find(self) -> tuple[FatBinary, ...]:
        elf = self._elf
        at = [number for number, name in enumerate(elf.section_names) if name == WRAPPERS]
        if not at:
            elf.fail(
                f"there is no section {WRAPPERS}: the program finds its device code by addresses and sizes in its own "
                "code or data, which no table lists, and patched code objects need more space; `luthier extract` "
                "writes the originals to files, `luthier run` patches them when they are loaded"
            )
        pointers: dict[int, list[int]] = {}
        magics = set[int]()
        for number in at:
            section = elf.sections[number]
            data = elf.section_view(section, WRAPPERS)
            if section.size % _WRAPPER.size or not section.size:
                elf.fail(f"section {WRAPPERS} of {section.size} bytes does not contain whole wrappers", section.offset)
            for offset in range(0, section.size, _WRAPPER.size):
                magic, version, held, _ = _WRAPPER.unpack_from(data, offset)
                magics.add(magic)
                if version != _VERSION or magics not in ({_MAGIC}, {WRAPPER_MAGIC}):
                    elf.fail(f"unknown wrapper: magic number {magic:#x}, version {version}", section.offset + offset)
                pointer = section.address + offset + 8
                pointers.setdefault(self._pointed(pointer, held), []).append(pointer)
        if magics == {WRAPPER_MAGIC}:
            return (self._archives(pointers),)
        return tuple(
            self._fat_binary(tuple(every), address, number) for number, (address, every) in enumerate(pointers.items())
        )

    def _pointed(self, wrapper: int, held: int) -> int:
        """Return the loaded value of the pointer at `wrapper`, minus the load address; the file contains `held`."""
        relocation = self._relocations.get(wrapper)
        if relocation is None and self._elf.header.type == E.ET_DYN and not self._has_packed:
            self._elf.fail(f"the pointer at {wrapper:#x} is not relocated")
        return held if relocation is None else relocation[1]

    def _archives(self, pointers: Mapping[int, Sequence[int]]) -> FatBinary:
        """Read the section that names archives, to which all wrappers point."""
        elf = self._elf
        names = [number for number, name in enumerate(elf.section_names) if name == REFERENCE]
        if len(names) != 1 or {*pointers} != {elf.sections[names[0]].address}:
            elf.fail(f"wrappers of archives do not point to one section {REFERENCE}")
        section = elf.sections[names[0]]
        place = self._place.cut(section.offset, section.size, f"section {REFERENCE}")
        self._reference = KpackReference.of(place)
        return FatBinary(tuple(pointers[section.address]), section.address, place, (), f"{self.name}[{REFERENCE}]")

    def _fat_binary(self, wrappers: tuple[int, ...], address: int, number: int) -> FatBinary:
        segment = next((one for one in self._loads if one.vaddr <= address < one.vaddr + one.filesz), None)
        if segment is None:
            self._elf.fail(f"the wrapper at {wrappers[0]:#x} points to {address:#x}, which is not in the file")
        rest = self._place.cut(
            segment.offset + address - segment.vaddr, segment.vaddr + segment.filesz - address, "fat binary"
        )
        bundle, entries = next(bundles(rest), (None, []))
        if bundle is None or bundle.start != rest.start:
            self._elf.fail(f"the wrapper at {wrappers[0]:#x} does not point to an offload bundle", rest.start)
        return FatBinary(wrappers, address, bundle, tuple(entries), f"{self.name}[{number}]")

    def _read_relocations(self) -> dict[int, tuple[int, int]]:
        """Return the relocation for each wrapper address: file offset of the record, and addend.

        Raises:
            ObjectError: a wrapper has another kind of relocation.
        """
        elf = self._elf
        wrappers = [
            range(section.address, section.address + section.size)
            for name, section in zip(elf.section_names, elf.sections, strict=True)
            if name == WRAPPERS
        ]
        relocations: dict[int, tuple[int, int]] = {}
        for section in elf.sections:
            if section.type == _SHT_REL and section.flags & E.SHF_ALLOC:
                elf.fail("the file has relocations without addends", section.offset)
            if section.type != E.SHT_RELA or not section.flags & E.SHF_ALLOC:
                continue
            records = E.RELOCATION.unpack_all(elf.section_view(section, "relocations"))
            for number, record in enumerate(records):
                if not any(record.offset in one for one in wrappers):
                    continue
                if record.type != _RELATIVE[elf.header.machine] or record.offset in relocations:
                    elf.fail(f"a wrapper has relocation {record.type}, which cannot be changed", record.offset)
                relocations[record.offset] = section.offset + number * E.RELOCATION.size, record.addend
        return relocations

    def _point(self, out: Rewritten, wrapper: int, address: int) -> None:
        """Change a pointer and its relocation to another address."""
        relocation = self._relocations.get(wrapper)
        if relocation is not None:
            out.put(relocation[0] + 16, struct.pack("<q", address))
        segment = next((one for one in self._loads if 0 <= wrapper - one.vaddr <= one.filesz - 8), None)
        if segment is None:
            self._elf.fail(f"the wrapper's pointer at {wrapper:#x} is in no segment of the file")
        out.put(segment.offset + wrapper - segment.vaddr, struct.pack("<Q", address))

    def _move_section(self, out: Rewritten, offset: int, size: int, apart: int) -> None:
        """Let the first section of fat binaries or archive names describe the new data, and others nothing."""
        elf = self._elf
        moved = FAT_BINARY if self._reference is None else REFERENCE
        for number, name in enumerate(elf.section_names):
            if name != moved:
                continue
            section = elf.sections[number]._replace(offset=offset, address=offset + apart, size=size)
            at = elf.header.sections_offset + number * E.SECTION_HEADER.size
            out.put(at, E.SECTION_HEADER.pack(section))
            offset, size = offset + size, 0
