"""Find AMD GPU code objects in their containers.

Containers nest (an archive of host objects with fat binaries of compressed bundles), so a recursive walk examines the
first bytes of each and passes on its parts. Only headers are read, and results are views of the mapped file; only
compressed bundles are copied.

Source: System V ar; for the rest `luthier.objects.bundles`, `luthier.objects.embedded`, `luthier.objects.kpack`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from luthier.errors import ObjectError, TargetError
from luthier.isa.targets import TargetId
from luthier.objects import elf as E
from luthier.objects.bundles import FAT_BINARY_MAGICS, OFFLOAD_BINARY_MAGIC, BundleEntry, bundles, opened
from luthier.objects.code_object import CodeObject, read_target
from luthier.objects.embedded import embedded_images
from luthier.objects.kpack import ARCHIVE_MAGIC as KPACK_MAGIC
from luthier.objects.kpack import REFERENCE, KernelArchive, KpackReference, Packed
from luthier.objects.place import FileSlice
from luthier.support.wording import enumerated

ARCHIVE_MAGIC = b"!<arch>\n"
THIN_ARCHIVE_MAGIC = b"!<thin>\n"
BITCODE_MAGIC = b"BC\xc0\xde"

HIP_FAT_BINARY = ".hip_fatbin"
FAT_BINARY_SECTIONS = (HIP_FAT_BINARY, ".llvm.offloading", ".llvm.rodata.offloading", "__CLANG_OFFLOAD_BUNDLE__")
"""Name prefixes of host sections with device code: of HIP, of LLVM's offloading drivers, and of the bundler's own kind
of object."""

_LARGEST_COPY = 1 << 26
"""Images up to this size in bytes are copied from a file; larger ones stay mapped."""
_DEEPEST = 8
"""Maximum nesting of containers; real ones reach four."""


class DeviceImage(Struct, frozen=True):
    """A device image in a container, not parsed yet."""

    name: str
    """Path, with archive member and bundle entry in brackets."""
    id: str
    """ID in the bundle, e.g. ``hipv4-amdgcn-amd-amdhsa--gfx942:xnack-``; "" if there is none."""
    data: memoryview
    """The ELF file, or SPIR-V, in a mapped file, which must not change while this is in use."""
    number: int = 0
    """Position among the images of its container, from 0."""
    bundle: str = ""
    """Text that identifies its offload bundle in the file; "" if it is in none."""
    bundle_start: int | None = None
    """File offset of the bundle or archive of device code that contains it, or of the section that names its archive;
    None if there is none."""

    @property
    def target(self) -> TargetId:
        """Return the target of its header.

        Raises:
            ObjectError: it is not such an ELF file.
            TargetError: the processor is unknown, or it is SPIR-V.
        """
        return read_target(E.read_header(self.data, self.name), self.name)


Source = bytes | bytearray | memoryview | str | os.PathLike[str]


def find_images(source: Source, name: str | None = None, *, object: str | None = None) -> Iterator[DeviceImage]:
    """Yield every AMD GPU image in `source`, in order, without parsing the images.

    When the next image is requested, the memory of the pages of this one is released.

    Args:
        source: contents of a container, or its path.
        name: name in errors; by default the path, or ``<memory>``.
        object: only the image with this `DeviceImage.number` or name; the file's own name may be omitted.

    Raises:
        ObjectError: it is unreadable, malformed or not a known container, or lacks AMD GPU code or `object`.
    """
    label = _label(source, name)
    if isinstance(source, (bytes, bytearray, memoryview)):
        place = FileSlice.of_bytes(bytes(source), label)
    else:
        place = FileSlice.of_file(source, label)
    rejected: list[str] = []
    matched = False
    for number, member in enumerate(_walk(place)):
        image = DeviceImage(member.place.name, member.id, member.place.view, number, member.bundle, member.bundle_start)
        if object is None or object in (str(number), *_names_of(image.name, label)):
            matched = True
            yield image
        else:
            rejected.append(_choice(image, label))
        member.place.let_go()
    if not matched and rejected:
        raise ObjectError(f"no code object {object!r}; choose from {enumerated(rejected)}", object=label)
    if not matched:
        raise ObjectError("contains no AMD GPU code object", object=label)


def _names_of(image: str, container: str) -> tuple[str, ...]:
    """Return an image's name, and its part after the container's name, with and without brackets."""
    inner = image.removeprefix(container)
    return (image, inner, inner[1:-1]) if inner else (image,)


def find_objects(source: Source, target: str | None = None, name: str | None = None) -> Iterator[CodeObject]:
    """Yield every code object in any container.

    Containers are a code object itself, an offload bundle (also compressed), a host executable or library with fat
    binaries or with archives of device code beside it (``.kpack``), such an archive, and an ``ar`` archive.

    Objects are parsed on demand from the mapped file, which must not change meanwhile; `load_objects` returns copies.
    Images for unknown processors, and SPIR-V, are skipped if others remain (`find_images` lists them).

    Args:
        target: only objects for this processor, or target ID with features.

    Raises:
        ObjectError: it is unreadable or malformed, or without AMD GPU code for `target`.
        TargetError: every image is for an unknown processor, or SPIR-V.
    """
    return (
        CodeObject(image.data, image.name, image.bundle)
        for image in _images_for(source, name, target, _asked_for(target))
    )


def choose_images(
    source: Source,
    name: str | None = None,
    *,
    target: str | None = None,
    object: str | None = None,
    kernels: Sequence[str] = (),
) -> Iterator[DeviceImage]:
    """Yield selected images of a container, as `find_images` does, without those for unknown processors.

    Args:
        target: only images for this processor, or target ID with features.
        object: only the image of this number or name, as for `find_images`.
        kernels: patterns for names (`luthier.objects.names`): only images with a matching kernel.

    Raises:
        ObjectError: it is unreadable or malformed, or nothing remains.
        TargetError: every image is for an unknown processor, or SPIR-V.
    """
    images = _images_for(source, name, target, _asked_for(target), object)
    return _with_kernels(images, kernels, _label(source, name)) if kernels else images


def _with_kernels(images: Iterator[DeviceImage], patterns: Sequence[str], label: str) -> Iterator[DeviceImage]:
    from luthier.objects.names import is_selected, select  # not needed where no kernel is named

    names: list[str] = []
    for image in images:
        known = CodeObject(image.data, image.name).kernels
        names += known
        if any(is_selected(kernel, patterns) for kernel in known):
            yield image
    select(sorted(set(names)), patterns, file=label)


def load_objects(
    source: Source,
    name: str | None = None,
    target: str | None = None,
    *,
    object: str | None = None,
    kernels: Sequence[str] = (),
) -> list[CodeObject]:
    """Return the code objects in any container, independent of the file unless an object is larger than 64 MiB.

    In that case the file must not change. Arguments and errors are as for `choose_images`.
    """
    return [_independent(one) for one in choose_images(source, name, target=target, object=object, kernels=kernels)]


def _independent(image: DeviceImage) -> CodeObject:
    large = len(image.data) > _LARGEST_COPY
    return CodeObject(image.data if large else bytes(image.data), image.name, image.bundle)


def _asked_for(target: str | None) -> Callable[[TargetId], bool]:
    """Return a predicate for targets that match a processor or target ID; None matches all."""
    if not target:
        return lambda has: True
    wanted = TargetId.parse(target)
    return lambda has: has.target is wanted.target and wanted.covers(has)


def _images_for(
    source: Source,
    name: str | None,
    target: str | None,
    fits: Callable[[TargetId], bool],
    object: str | None = None,
) -> Iterator[DeviceImage]:
    unknown: TargetError | None = None
    rejected: list[str] = []
    matched = False
    for image in find_images(source, name, object=object):
        try:
            has = image.target
        except TargetError as problem:
            unknown = unknown or problem
            continue
        if fits(has):
            matched = True
            yield image
        else:
            rejected.append(f"{image.name} ({has})")
    if not matched and not rejected and unknown is not None:
        raise unknown
    if not matched:
        raise ObjectError(
            f"no code object for {target}; choose from {enumerated(rejected)}", object=_label(source, name)
        )


def load_object(
    source: Source,
    target: str | None = None,
    name: str | None = None,
    *,
    object: str | None = None,
    kernels: Sequence[str] = (),
) -> CodeObject:
    """Return the one code object in a container. Arguments are as for `choose_images`.

    Raises:
        ObjectError: none or several match; the message names the choices.
    """
    images = choose_images(source, name, target=target, object=object, kernels=kernels)
    return _independent(only_image(images, _label(source, name)))


def load_object_for(
    source: Source, device: TargetId, name: str | None = None, *, kernels: Sequence[str] = ()
) -> CodeObject:
    """Return the best code object in a container for a device.

    One for the device's processor is preferred to a generic one, and one with feature settings to one without.

    Args:
        kernels: patterns, as for `choose_images`.

    Raises:
        ObjectError: none fits, or several are equally good; the message names the choices.
    """

    def distance(image: DeviceImage) -> tuple[bool, int]:
        return image.target.target.is_generic, (image.target.sramecc, image.target.xnack).count(None)

    fitting: Iterator[DeviceImage] = _images_for(source, name, str(device), device.accepts)
    if kernels:
        fitting = _with_kernels(fitting, kernels, _label(source, name))
    images = list(fitting)
    best = min(map(distance, images))
    return _independent(only_image((one for one in images if distance(one) == best), _label(source, name)))


def only_image(images: Iterable[DeviceImage], container: str, more: str = "") -> DeviceImage:
    """Return the only image.

    Args:
        container: name of the container.
        more: what else the user can do if there are several.

    Raises:
        ObjectError: there are several; the message names them.
    """
    every = list(images)
    if len(every) == 1:
        return every[0]
    choices = enumerated(_choice(image, container) for image in every)
    raise ObjectError(
        f"there are several code objects: choose one by target, kernel (--kernel), or number or name (--object)"
        f"{more}: {choices}",
        object=container,
    )


def _choice(image: DeviceImage, container: str) -> str:
    """Return number, name and target of an image, without the container's name."""
    text = f"{image.number}: {_names_of(image.name, container)[-1]}"
    try:
        return f"{text} ({image.target})"
    except TargetError:
        return text


def _label(source: Source, name: str | None) -> str:
    if name is not None:
        return name
    return "<memory>" if isinstance(source, (bytes, bytearray, memoryview)) else os.fspath(source)


class _Member(NamedTuple):
    """Part of a container that is an image."""

    place: FileSlice
    id: str = ""
    """ID in its bundle."""
    bundle: str = ""
    """As in `DeviceImage`, like the next field."""
    bundle_start: int | None = None


_Found = Iterator[_Member]


def _walk(place: FileSlice, identifier: str = "", bundle: str = "", bundle_start: int | None = None) -> _Found:
    if place.depth > _DEEPEST:
        place.fail("containers are nested too deeply", 0)
    if place.begins(E.ELF_MAGIC):
        if int.from_bytes(place.peek(18, 2), "little") == E.EM_AMDGPU:
            used = E.used_size(place.view) if place.size > _LARGEST_COPY else place.size
            yield _Member(place.cut(0, used, "code object"), identifier, bundle, bundle_start)
        else:
            yield from _walk_host(place)
    elif place.begins(*FAT_BINARY_MAGICS):
        yield from _walk_fat_binary(place)
    elif place.begins(ARCHIVE_MAGIC):
        for member in _archive_members(place):
            if member.begins(E.ELF_MAGIC, *FAT_BINARY_MAGICS):
                yield from _walk(member)
    elif place.begins(KPACK_MAGIC):
        archive = KernelArchive(place)
        for packed in archive.images:
            yield from _walk_packed(archive, packed, place.start)
    elif place.begins(THIN_ARCHIVE_MAGIC):
        place.fail("a thin archive contains no code, only names of other files: pass those files", 0)
    elif place.begins(E.SPIRV_MAGIC):
        yield _Member(place, identifier, bundle, bundle_start)
    elif place.begins(BITCODE_MAGIC):
        place.fail("this is LLVM bitcode, not a code object: link it first", 0)
    else:
        place.fail("not a code object, offload bundle, ELF file or archive" if place.size else "empty", 0)


def _walk_host(place: FileSlice) -> _Found:
    """Yield the device code in a host ELF file.

    It is in sections with fat binaries or, without section headers, from the first bundle on; and in images that are
    directly in the file's data.
    """
    elf = E.ElfFile(place.view, place.name)
    fat = [
        place.cut(section.offset, section.size, f"section {name}")
        for name, section in zip(elf.section_names, elf.sections, strict=True)
        if name.startswith(FAT_BINARY_SECTIONS) and section.type != E.SHT_NOBITS
    ]
    if not elf.sections and (first := next(bundles(place, among_others=True), None)):
        fat = [place.cut(first[0].start - place.start, place.end - first[0].start, "fat binary")]
    stale = HIP_FAT_BINARY if REFERENCE in elf.section_names else None  # zeros, and a rest of a page of the old one
    replaced = {
        place.start + section.offset
        for name, section in zip(elf.section_names, elf.sections, strict=True)
        if name == stale
    }
    end = 0
    for part in sorted(fat, key=lambda part: part.start):
        if part.start < end:  # nested sections would be a bomb
            place.fail("sections with fat binaries overlap", part.start - place.start)
        end = part.end
    for number, part in enumerate(fat):
        if part.start in replaced:
            continue
        label = f"section {number}" if len(fat) > 1 else ""
        yield from _walk_fat_binary(part.inner(label), among_others=not elf.sections)
    for image in embedded_images(place, elf, fat):
        yield _Member(image)
    for name, section in zip(elf.section_names, elf.sections, strict=True):
        if name == REFERENCE:
            reference = KpackReference.of(place.cut(section.offset, section.size, f"section {name}"))
            for archive, packed in reference.images(place):
                yield from _walk_packed(archive, packed, place.start + section.offset)


def _walk_packed(archive: KernelArchive, packed: Packed, start: int) -> _Found:
    """Yield the objects of an image in an archive.

    Args:
        start: `DeviceImage.bundle_start`.
    """
    image = archive.read(packed).inner(packed.id)
    if image.begins(E.ELF_MAGIC, *FAT_BINARY_MAGICS):
        yield from _walk(image, packed.id, f"{archive.place.name} {packed.binary}", start)


def _walk_fat_binary(place: FileSlice, *, among_others: bool = False) -> _Found:
    every = list(bundles(place, among_others=among_others))
    place.let_go()
    uses = Counter(entry.label for _, entries in every for entry in entries)

    def label(number: int, entry: BundleEntry) -> str:
        return entry.label if uses[entry.label] == 1 else f"{number}:{entry.label}"

    for number, (bundle, entries) in enumerate(every):
        whole = opened(bundle)
        # Each of LLVM's offload binaries contains one image.
        its_name = "" if bundle.begins(OFFLOAD_BINARY_MAGIC) else f"{bundle.name} at {bundle.start:#x}"
        for entry in entries:
            image = whole.cut(entry.offset, entry.size, "bundle entry")
            if not image.begins(BITCODE_MAGIC):  # relocatable device code; the linked object is elsewhere
                start = None if bundle.unpacked else bundle.start
                yield from _walk(image.inner(label(number, entry)), entry.id, its_name, start)


def _archive_members(place: FileSlice) -> Iterator[FileSlice]:
    """Yield the members of a System V archive, with GNU and BSD long names; without its own tables."""
    at = len(ARCHIVE_MAGIC)
    long_names = b""
    while at < place.size:
        header = place.read(at, 60, "archive member's header")
        digits = header[48:58].strip()
        if header[58:60] != b"`\n" or not digits.isdigit():
            place.fail("malformed archive member's header", at)
        size = int(digits)
        member = place.cut(at + 60, size, "archive member")
        name = header[:16].rstrip()
        at += 60 + size + size % 2
        if name == b"//":
            long_names = member.peek(0, size)
        elif name in (b"/", b"/SYM64/") or name.startswith(b"__.SYMDEF"):
            continue
        elif name.startswith(b"#1/") and name[3:].isdigit() and int(name[3:]) <= size:
            length = int(name[3:])
            label = member.peek(0, length).rstrip(b"\0").decode(errors="replace")
            yield member.cut(length, size - length, "archive member").inner(label)
        else:
            if name.startswith(b"/") and name[1:].isdigit():
                start = int(name[1:])
                name = long_names[start : start + 4096].partition(b"\n")[0]
            yield member.inner(name.removesuffix(b"/").decode(errors="replace"))
