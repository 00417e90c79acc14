"""Executables and shared libraries of the host whose device code is instrumented in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from luthier.errors import LuthierError, ObjectError
from luthier.isa.targets import TargetId
from luthier.objects import CodeObject, find_images
from luthier.objects.host import WRAPPERS, ArchiveFile, HostFile, Rewritten
from luthier.objects.kpack import is_archive
from luthier.objects.names import is_selected, select
from luthier.patch.output.object import PatchedObject, patch_object_with
from luthier.tool.options import PatchOptions
from luthier.tool.task import InstrumentationTask


class PatchedFile(Struct, frozen=True):
    """An executable or shared library with instrumented kernels."""

    file: Rewritten
    """Its contents, made as they are written."""
    objects: tuple[tuple[CodeObject, PatchedObject], ...]
    """Each code object with what has taken its place."""
    skipped: tuple[tuple[str, str], ...]
    """Name of each code object that was left as it was, and why."""
    beside: dict[str, bytes] = {}
    """Files that must lie beside it, by name: where its device code is in archives (``.kpack``), a new one of these."""

    @property
    def data(self) -> bytes:
        """Return the whole file, in memory."""
        return bytes(self.file)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON: ``objects`` with a report each, ``skipped`` with reasons."""
        return {
            "objects": [
                {"name": old.name, "target": str(old.target), **patched.report.to_json()}
                for old, patched in self.objects
            ],
            "skipped": [{"name": name, "reason": reason} for name, reason in self.skipped],
            **({"beside": [*self.beside]} if self.beside else {}),
        }


def patch_executable(
    path: str,
    instrument: Callable[[InstrumentationTask], None],
    *,
    target: str | None = None,
    object: str | None = None,
    kernels: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
    strict: bool = False,
    hoist: bool | None = None,
    most_stack: int | None = None,
    output: str | None = None,
) -> PatchedFile:
    """Instrument the kernels of every code object in an executable or a shared library of the host, or in an archive of
    their device code (``.kpack``).

    Each instrumented code object has variables of its own; which of them runs, the device decides.

    Args:
        path: the file.
        instrument: as of `patch_object`.
        target: only code objects for this processor, or target id with features; the others stay as they are.
        object: only the code object of this number or name, as of `find_images`; the others stay as they are.
        kernels: patterns for names (`luthier.objects.names`); none is all.
        progress: called with each kernel's name before it is patched.
        strict: whether whatever cannot be done is an error, a code object that stays as it is included.
        hoist, most_stack: as of `patch_object`.
        output: path that the file will be written to, by default `path`: files beside it are named so.

    Raises:
        LuthierError: the file is no such program, none of its code objects could be instrumented, or one could not with
            `strict`.
    """
    options = PatchOptions(strict=strict, hoist=hoist, most_stack=most_stack)
    return patch_executable_with(
        options, path, instrument, target=target, object=object, kernels=kernels, progress=progress, output=output
    )


def patch_executable_with(
    options: PatchOptions,
    path: str,
    instrument: Callable[[InstrumentationTask], None],
    *,
    target: str | None = None,
    object: str | None = None,
    kernels: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
    output: str | None = None,
) -> PatchedFile:
    """Instrument an executable or a shared library of the host, as `patch_executable`, which see."""
    host = ArchiveFile(path) if is_archive(path) else HostFile(path)
    device = _device_code(host, target, object)
    select([name for code in device.objects.values() for name in code.kernels], kernels, file=path)
    skipped, failures = list(device.skipped), list(device.failures)
    images: dict[int, dict[str, bytes]] = {}
    done: list[tuple[CodeObject, PatchedObject]] = []
    for (bundle, identifier), code in device.objects.items():
        chosen = [name for name in code.kernels if is_selected(name, kernels)]
        if not chosen:
            skipped.append((code.name, "none of its kernels is asked for" if kernels else "it has no kernels"))
            continue
        try:
            patched = patch_object_with(options, code, instrument, chosen, progress)
        except LuthierError as problem:
            if options.strict:
                raise
            failures.append(problem)
            skipped.append((code.name, str(problem)))
            continue
        done.append((code, patched))
        images.setdefault(bundle, {})[identifier] = patched.data
    if failures and not done:
        raise failures[0]
    if not done:
        raise ObjectError("; ".join(f"{name}: {reason}" for name, reason in skipped) or "no device code", object=path)
    beside = host.beside(images, output or path)
    return PatchedFile(host.with_images(images, beside), tuple(done), tuple(skipped), beside)


class _DeviceCode(Struct, frozen=True):
    """The code objects of a program."""

    objects: dict[tuple[int, str], CodeObject]
    """Those that are meant, by the offset of their bundle in the file and their id in it."""
    skipped: list[tuple[str, str]]
    """Name of each of the others, and why it is left as it is."""
    failures: list[LuthierError]
    """Why some cannot be read."""


def _device_code(host: HostFile | ArchiveFile, target: str | None, object: str | None) -> _DeviceCode:
    """Read what a program has for a target, or of a number or name; None: all."""
    code = _DeviceCode({}, [], [])
    replaceable = host.bundles
    chosen = None if object is None else {image.number for image in find_images(host.name, object=object)}
    for image in find_images(host.name):
        try:
            read = CodeObject(bytes(image.data), image.name)
        except LuthierError as problem:
            code.failures.append(problem)
            code.skipped.append((image.name, str(problem)))
            continue
        if chosen is not None and image.number not in chosen:
            code.skipped.append((image.name, f"object {object} is asked for"))
        elif target is not None and not _is_meant(read.target, TargetId.parse(target)):
            code.skipped.append((image.name, f"it is for {read.target}"))
        elif image.bundle_start is None or image.bundle_start not in replaceable:
            why = f"no wrapper in {WRAPPERS} points to it, so nothing tells how the program finds it"
            code.skipped.append((image.name, f"{why}; `luthier extract` writes it out"))
        else:
            code.objects[image.bundle_start, image.id] = read
    return code


def _is_meant(has: TargetId, wanted: TargetId) -> bool:
    return has.target is wanted.target and wanted.covers(has)
