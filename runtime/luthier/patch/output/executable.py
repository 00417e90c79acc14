"""Host executables and shared libraries with device code that is instrumented in place."""

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
    """Its contents, generated while they are written."""
    objects: tuple[tuple[CodeObject, PatchedObject], ...]
    """Each code object with its replacement."""
    skipped: tuple[tuple[str, str], ...]
    """Name of each unchanged code object, and the reason."""
    beside: dict[str, bytes] = {}
    """Name -> contents of files that must be in the same folder: new archives (``.kpack``) of its device code."""

    @property
    def data(self) -> bytes:
        """Return the contents of the whole file."""
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
    """Instrument the kernels of every code object in a host executable or shared library, or in an archive of their
    device code (``.kpack``).

    Each instrumented code object has its own variables; the device determines which of the objects runs.

    Args:
        path: the file.
        instrument: see `patch_object`.
        target: instrument only code objects for this processor, or target id with features.
        object: instrument only the code object with this number or name (`find_images`).
        kernels: patterns for names (`luthier.objects.names`); empty: all.
        progress: called with each kernel's name before it is patched.
        strict: whether any refusal is an error, including a code object that remains unchanged.
        hoist, most_stack: see `patch_object`.
        output: path to which the file will be written, which determines the names of files beside it; default: `path`.

    Raises:
        LuthierError: the file is not such a program, none of its code objects could be instrumented, or with `strict`
            one could not.
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
    """Instrument a host executable or shared library with patch options; see `patch_executable`."""
    try:
        host = ArchiveFile(path) if is_archive(path) else HostFile(path)
    except ObjectError:
        next(find_images(path))  # without device code, that is the error
        raise
    device = _device_code(host, target, object)
    select([name for code in device.objects.values() for name in code.kernels], kernels, file=path)
    skipped, failures = list(device.skipped), list(device.failures)
    images: dict[int, dict[str, bytes]] = {}
    done: list[tuple[CodeObject, PatchedObject]] = []
    for (bundle, identifier), code in device.objects.items():
        chosen = [name for name in code.kernels if is_selected(name, kernels)]
        if not chosen:
            skipped.append((code.name, "no kernel matches" if kernels else "it has no kernels"))
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
    """(offset of the bundle in the file, id in the bundle) -> selected code object."""
    skipped: list[tuple[str, str]]
    """Name of each other code object, and the reason."""
    failures: list[LuthierError]
    """Errors of code objects that cannot be read."""


def _device_code(host: HostFile | ArchiveFile, target: str | None, object: str | None) -> _DeviceCode:
    """Read the code objects of a program for a target, or with a number or name; None: all."""
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
            code.skipped.append((image.name, f"only object {object} is selected"))
        elif target is not None and not _is_meant(read.target, TargetId.parse(target)):
            code.skipped.append((image.name, f"it is for {read.target}"))
        elif image.bundle_start is None or image.bundle_start not in replaceable:
            why = f"no wrapper in {WRAPPERS} points to it, so it is unknown how the program finds it"
            code.skipped.append((image.name, f"{why}; `luthier extract` writes it out"))
        else:
            code.objects[image.bundle_start, image.id] = read
    return code


def _is_meant(has: TargetId, wanted: TargetId) -> bool:
    return has.target is wanted.target and wanted.covers(has)
