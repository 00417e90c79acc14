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
from luthier.lifting import lift
from luthier.objects import CodeObject
from luthier.objects.names import spellings
from luthier.projection.machine import MachineModel, machine_named
from luthier.projection.model import Projection, project_on_each
from luthier.projection.work import LaunchWork
from luthier.support.files import write_atomically

FILE = "projection.json"
_OBJECTS = "objects"
_SCHEMA = 1


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
    write_atomically(folder / FILE, msgspec.json.encode(run))


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
        run = msgspec.json.decode(text, type=MeasuredRun)
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise LuthierError(f"{path} is damaged: {problem}") from None
    if run.schema != _SCHEMA:
        raise LuthierError(f"{path} has schema {run.schema}; this version of Luthier reads {_SCHEMA}")
    return run


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

    Raises:
        LuthierError: one is damaged, or a file cannot be written.
    """
    runs = [(path, run) for path in folders if (run := read_measured_run(path)) is not None]
    if not runs:
        return
    whole = MeasuredRun(
        launches=tuple(launch for _, run in runs for launch in run.launches),
        left_out=tuple(dict.fromkeys(reason for _, run in runs for reason in run.left_out)),
        machines=tuple({machine.name: machine for _, run in runs for machine in run.machines}.values()),
        projections=tuple(projection for _, run in runs for projection in run.projections),
        refused=tuple(dict.fromkeys(reason for _, run in runs for reason in run.refused)),
    )
    objects = {digest: object for path, run in runs for digest, object in objects_of(path, run).items()}
    write_measured(folder, whole, objects)


def projections_json(run: MeasuredRun) -> dict[str, Any]:
    """Return a run's projections, and what is not projected, as plain data."""
    return {"projections": msgspec.to_builtins(run.projections), "not_projected": [*run.left_out, *run.refused]}


def project_run(
    run: MeasuredRun,
    objects: Mapping[str, CodeObject],
    machines: Sequence[MachineModel] = (),
    *,
    places: bool = True,
) -> ProjectedRun:
    """Return the projections of a run's launches, each on every machine.

    Args:
        objects: by digest.
        machines: none: those on which the run was projected.
        places: as for `luthier.projection.model.project`.

    Raises:
        LuthierError: a code object is not the one that was measured.
    """
    result = ProjectedRun([], [])
    for launch in run.launches:
        lifted = lift(objects[launch.digest], launch.work.kernel)
        chosen = machines or run.machines or (machine_named(launch.work.target),)
        projections, refused = project_on_each(launch.work, lifted, chosen, places=places)
        result.projections.extend(
            replace(projection, launches=launch.launches, digest=launch.digest) for projection in projections
        )
        problems = (f"{spellings(launch.work.kernel)[-1]}: {problem}" for problem in refused)
        result.refused.extend(problem for problem in problems if problem not in result.refused)
    return result
