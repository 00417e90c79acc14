"""Measured launches of a run, kept in its folder: ``projection.json``, and the code objects that they are of.

A launch with the kernel and the sizes of an earlier one is not measured; it counts as that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from luthier.emulator.running.start import Triple
from luthier.errors import LuthierError
from luthier.lifting import LiftedRepresentation, lift
from luthier.objects import CodeObject
from luthier.objects.names import spellings
from luthier.projection.machine import MachineModel, machine_named
from luthier.projection.model import Projection, project_on_each
from luthier.projection.work import LaunchWork, from_json, to_json
from luthier.support.files import write_atomically

FILE = "projection.json"
_OBJECTS = "objects"
WRITTEN = (FILE, _OBJECTS)
"""What `write_measured` writes to a folder."""
_SCHEMA = 4
_ALIKE = "of launches of a kernel with the same sizes the first was measured: the others count as if they took as long"


class MeasuredLaunches(Struct, frozen=True, kw_only=True):
    """Launches of a kernel with the same sizes, the first of which was measured."""

    object: str
    """Name of the code object."""
    digest: str
    """Of the code object."""
    launches: int
    grid: Triple
    """Work-items."""
    block: Triple
    work: LaunchWork


class MeasuredRun(Struct, frozen=True, kw_only=True):
    """All measured launches of a run."""

    schema: int = _SCHEMA
    launches: tuple[MeasuredLaunches, ...]
    left_out: tuple[str, ...] = ()
    """Why launches are not projected."""
    machines: tuple[MachineModel, ...] = ()
    """On which the run was projected; none: on those that stand for the processors of its code."""
    projections: tuple[Projection, ...] = ()
    """On these."""
    refused: tuple[str, ...] = ()
    """Why launches cannot run on some of these."""


class _Versioned(Struct):
    schema: int


class LiftedKernels(NamedTuple):
    """Kernels of the measured launches of a run."""

    lifted: dict[tuple[str, str], LiftedRepresentation]
    """By digest of the code object and name."""
    refused: list[str]
    """Why others cannot be lifted."""


class ProjectedRun(NamedTuple):
    """Projections of a run."""

    projections: list[Projection]
    refused: list[str]
    """Why launches cannot run on machines."""


def write_measured(folder: Path, run: MeasuredRun, objects: Mapping[str, CodeObject]) -> None:
    """Write a run's measured launches to its folder.

    Args:
        objects: by digest.

    Raises:
        LuthierError: a file cannot be written.
    """
    try:
        (folder / _OBJECTS).mkdir(exist_ok=True)
    except OSError as problem:
        raise LuthierError(f"cannot write {folder / _OBJECTS}: {problem.strerror or problem}") from None
    for digest in sorted({launch.digest for launch in run.launches}):
        write_atomically(folder / _OBJECTS / digest, objects[digest].data)
    write_atomically(folder / FILE, to_json(run))


def read_measured_run(folder: Path) -> MeasuredRun | None:
    """Return a run's measured launches; None if the run measured none.

    Raises:
        LuthierError: the file is damaged, or of another version.
    """
    path = folder / FILE
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise LuthierError(f"cannot read {path}: {problem.strerror or problem}") from None
    try:
        schema = msgspec.json.decode(text, type=_Versioned).schema  # others have other rows
        if schema != _SCHEMA:
            raise LuthierError(
                f"{path} has schema {schema}; this version of Luthier reads {_SCHEMA}: run the program again"
            )
        return from_json(text, MeasuredRun)
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise LuthierError(f"{path} is damaged: {problem}") from None


def kept_run(folder: Path) -> MeasuredRun | None:
    """Return a run's measured launches, as `read_measured_run`; if the file cannot be used, none, with the reason."""
    try:
        return read_measured_run(folder)
    except LuthierError as problem:
        return MeasuredRun(launches=(), left_out=(str(problem),))


def objects_of(folder: Path, run: MeasuredRun) -> dict[str, CodeObject]:
    """Return the code objects of a run's measured launches by digest.

    Raises:
        LuthierError: a file is missing or damaged.
    """
    objects: dict[str, CodeObject] = {}
    for launch in run.launches:
        path = folder / _OBJECTS / launch.digest
        if launch.digest in objects:
            continue
        if not launch.digest.isalnum():
            raise LuthierError(f"{folder / FILE} is damaged: {launch.digest!r} is not the digest of an object")
        try:
            objects[launch.digest] = CodeObject(path.read_bytes(), launch.object)
        except OSError as problem:
            raise LuthierError(f"cannot read {path}: {problem.strerror or problem}") from None
    return objects


def merge_measured(folders: Sequence[Path], folder: Path) -> None:
    """Write the measured launches of several run folders to one; nothing if no run measured any.

    Runs without them, or with damaged ones, are named among what is not projected.

    Raises:
        LuthierError: a file cannot be written.
    """
    runs: list[MeasuredRun] = []
    objects: dict[str, CodeObject] = {}
    is_measured = False
    for path in folders:
        run = kept_run(path)
        is_measured |= run is not None
        if run is None:
            run = MeasuredRun(launches=(), left_out=(f"{path}: the run measured no launches",))
        try:
            objects |= objects_of(path, run)
        except LuthierError as problem:
            run = MeasuredRun(launches=(), left_out=(str(problem),))
        runs.append(run)
    if not is_measured:
        return
    whole = MeasuredRun(
        launches=tuple(launch for run in runs for launch in run.launches),
        left_out=tuple(dict.fromkeys(reason for run in runs for reason in run.left_out)),
        machines=tuple({machine.name: machine for run in runs for machine in run.machines}.values()),
        projections=tuple(projection for run in runs for projection in run.projections),
        refused=tuple(dict.fromkeys(reason for run in runs for reason in run.refused)),
    )
    write_measured(folder, whole, objects)


def projections_json(run: MeasuredRun) -> dict[str, Any]:
    """Return a run's projections, and what is not projected, as plain data."""
    return {"projections": msgspec.to_builtins(run.projections), "not_projected": [*run.left_out, *run.refused]}


def lifted_kernels(run: MeasuredRun, objects: Mapping[str, CodeObject]) -> LiftedKernels:
    """Lift the kernels of a run's measured launches, each once.

    Args:
        objects: by digest.
    """
    result = LiftedKernels({}, [])
    for digest, kernel in dict.fromkeys((launch.digest, launch.work.kernel) for launch in run.launches):
        try:
            result.lifted[digest, kernel] = lift(objects[digest], kernel)
        except LuthierError as problem:
            result.refused.append(f"{spellings(kernel)[-1]}: {problem}")
    return result


def project_run(
    run: MeasuredRun,
    kernels: LiftedKernels,
    machines: Sequence[MachineModel] = (),
    *,
    places: bool = True,
) -> ProjectedRun:
    """Return the projections of a run's launches, each on every machine.

    Args:
        kernels: from `lifted_kernels`; launches of those that cannot be lifted are refused.
        machines: none: those on which the run was projected.
        places: as for `luthier.projection.model.project`.
    """
    result = ProjectedRun([], list(kernels.refused))
    for launch in run.launches:
        lifted = kernels.lifted.get((launch.digest, launch.work.kernel))
        if lifted is None:
            continue
        chosen = machines or run.machines or (machine_named(launch.work.target),)
        projections, refused = project_on_each(launch.work, lifted, chosen, places=places)
        alike = (_ALIKE,) if launch.launches > 1 else ()
        result.projections.extend(
            replace(projection, launches=launch.launches, digest=launch.digest, notes=(*projection.notes, *alike))
            for projection in projections
        )
        problems = (f"{spellings(launch.work.kernel)[-1]}: {problem}" for problem in refused)
        result.refused.extend(problem for problem in problems if problem not in result.refused)
    return result
