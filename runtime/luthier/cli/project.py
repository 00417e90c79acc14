"""``luthier project``: print projected times of captured launches on GPUs, and what bounds them."""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from luthier.cli.captures import add_object_argument, add_scheduler_argument, captures_of, outcomes
from luthier.cli.common import (
    STANDARD_OUTPUT,
    add_json_argument,
    add_mangled_argument,
    put_json,
    say_fitting,
    shown_tables,
)
from luthier.cli.projections import machines_of, print_run
from luthier.cli.run import seconds
from luthier.errors import LuthierError
from luthier.support.files import check_writable, write_atomically
from luthier.support.table import Table
from luthier.support.wording import counted
from luthier.terminal import say_text, visible

if TYPE_CHECKING:
    from luthier.objects import CodeObject
    from luthier.projection import MachineModel
    from luthier.projection.kept import MeasuredRun
    from luthier.replay.projecting import Project


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="captures, folders of them, or a run folder")
    parser.add_argument(
        "--to",
        metavar="GPU,...",
        help="GPUs by product or processor: mi250x,gfx1100 (default: the one that stands for the code's processor; "
        "of a run: those that it named)",
    )
    parser.add_argument(
        "--machine",
        action="append",
        default=[],
        metavar="FILE",
        help="a machine model of your own, in TOML or JSON; repeatable",
    )
    add_object_argument(
        parser, "run the kernel of this code object, bundle or executable instead; --device selects the target"
    )
    parser.add_argument("--device", metavar="DEVICE", help="with --with-object: the device that runs it, as emu:gfx942")
    parser.add_argument(
        "--by", choices=("kernel", "line"), default="kernel", help="rows of the table (default: kernel)"
    )
    parser.add_argument(
        "--explain", metavar="KERNEL", help="explain in words what bounds launches of this kernel: a name or a glob"
    )
    parser.add_argument(
        "--groups",
        type=int,
        metavar="N",
        help="of captured launches with more than 2*N work-groups, run N; 0: run all (default: 16)",
    )
    parser.add_argument(
        "--time-limit", type=seconds, metavar="SECONDS", help="launches that take longer are not projected"
    )
    parser.add_argument(
        "--calibrate",
        action="append",
        default=[],
        metavar="RESULTS",
        help="fit numbers of the GPU to measured times of the launches: CSV or JSON with kernel, us and, where "
        "sizes differ, work_items; or output of rocprofv3 (kernel trace or counters; CSV, JSON, rocpd); repeatable",
    )
    parser.add_argument("--fit", metavar="NUMBER,...", help="with --calibrate: the numbers to fit, at most ten")
    parser.add_argument("-o", "--output", metavar="FILE", help="with --calibrate: the machine's file, in TOML")
    add_scheduler_argument(parser)
    add_mangled_argument(parser)
    add_json_argument(parser, "the projections")


def _calibrate(
    args: argparse.Namespace, machines: Sequence[MachineModel], run: MeasuredRun, objects: Mapping[str, CodeObject]
) -> int:
    """Fit numbers of a machine to measured times of launches, and write the machine.

    Args:
        objects: by digest, those of the launches.
    """
    from luthier.objects.names import spellings
    from luthier.projection import machine_named
    from luthier.projection.calibration import TimedLaunches, calibrate, machine_text
    from luthier.projection.kept import lifted_kernels
    from luthier.projection.machine import UNITS
    from luthier.report.measured import matching, read_times

    where = args.files[0]
    for problem in run.left_out:
        say_fitting(f"luthier project: not projected: {visible(problem)}", file=sys.stderr)
    if not run.launches:
        raise LuthierError("there is no measured launch to calibrate with", object=where)
    chosen = machines or run.machines or (machine_named(run.launches[0].work.target),)
    if len(chosen) > 1:
        raise LuthierError("--calibrate fits one GPU: name the one whose times were measured, with --to")
    lifted = lifted_kernels(run, objects)
    for problem in lifted.refused:
        say_fitting(f"luthier project: not projected: {visible(problem)}", file=sys.stderr)
    launches = [launch for launch in run.launches if (launch.digest, launch.work.kernel) in lifted.lifted]
    kernels = {(launch.digest, launch.work.kernel): set(spellings(launch.work.kernel)) for launch in launches}
    times: dict[int, list[float]] = {}
    unused: dict[str, None] = {}
    files = [read_times(Path(file)) for file in args.calibrate]
    for name, skipped in sum((file.skipped for file in files), Counter()).items():
        unused[f"{name}: {counted(skipped, 'row')} without a time above 0"] = None
    for row in (row for file in files for row in file.launches):
        at = matching(row.kernel, list(kernels.values()))
        fitting = [
            number
            for number, launch in enumerate(launches)
            if at is not None
            and (launch.digest, launch.work.kernel) == list(kernels)[at]
            and row.items in (None, math.prod(launch.grid))
        ]
        if len(fitting) == 1 and row.time_us is not None:
            times.setdefault(fitting[0], []).append(row.time_us)
        elif fitting:
            unused[f"{row.kernel}: there are launches of {len(fitting)} sizes; give work_items"] = None
        else:
            size = "" if row.items is None else f" with {row.items} work-items"
            unused[f"{row.kernel}: there is no measured launch of it{size}"] = None
    for problem in unused:
        say_fitting(f"luthier project: a measured time is not used: {visible(problem)}", file=sys.stderr)
    if not times:
        raise LuthierError("no given time belongs to a launch of the input", object=where)
    timed = [
        TimedLaunches(launch, lifted.lifted[launch.digest, launch.work.kernel], statistics.median(times[number]))
        for number, launch in enumerate(launches)
        if number in times
    ]
    source = f"calibrated with {', '.join(Path(file).name for file in args.calibrate)}"
    names = [name.strip() for name in (args.fit or "").split(",") if name.strip()]
    made = calibrate(chosen[0], timed, source, names)
    write_atomically(args.output, machine_text(made.machine).encode())
    rows = [
        (name, before, after, chosen[0].value(name) and round(after / before, 3), UNITS[name])
        for name, (before, after) in made.fitted.items()
    ]
    table = Table(f"fitted numbers of {chosen[0].name}", ("number", "before", "after", "factor", "unit"), rows)
    for text in shown_tables([table], sys.stdout, mangled=args.mangled):
        say_text(text)
    say_fitting(
        f"mean error over {counted(made.times, 'launch')}: {100 * made.before:.0f} % before, {100 * made.after:.0f} % "
        "after, on the times that it was fitted to"
    )
    say_fitting(f"written: {visible(args.output)}; use it with --machine {visible(args.output)}")
    return 2 if unused or lifted.refused or run.left_out else 0


def _measured_captures(args: argparse.Namespace, job: Project) -> tuple[MeasuredRun, dict[str, CodeObject]]:
    """Return the measured launches of captures, those of one kernel and size once, and their code objects by digest."""
    from luthier.projection.kept import MeasuredLaunches, MeasuredRun
    from luthier.run.patching import digest_of

    launches: dict[tuple[object, ...], MeasuredLaunches] = {}
    objects: dict[str, CodeObject] = {}
    left_out = []
    for row in outcomes(replace(job, keeps_work=True), captures_of(args.files), args.scheduler, args.time_limit):
        if row.work is None or row.status:
            left_out.append(f"{row.file}: {row.what}")
            continue
        if row.work.launched_groups:
            left_out.append(f"{row.file}: a minimised capture has only a part of what was timed")
            continue
        capture = replace(job, file=row.file).capture()
        object = replace(job, file=row.file).launch(capture).object
        grid, block = capture.manifest.grid, capture.manifest.block
        digest = digest_of(object)
        objects[digest] = object
        launches.setdefault(
            (digest, row.work.kernel, grid, block),
            MeasuredLaunches(object=object.name, digest=digest, launches=1, grid=grid, block=block, work=row.work),
        )
    return MeasuredRun(launches=tuple(launches.values()), left_out=tuple(left_out)), objects


def _measured_run(args: argparse.Namespace) -> tuple[Path, MeasuredRun]:
    """Return the run folder of the command line with its measured launches.

    Raises:
        LuthierError: there are other files, it measured none, or an option is of captures only.
    """
    from luthier.projection.kept import read_measured_run

    if len(args.files) > 1:
        raise LuthierError("a run folder is projected alone: name no other file", object=args.files[0])
    if args.with_object or args.device or args.time_limit or args.scheduler or args.groups is not None:
        raise LuthierError(
            "a run folder has measured launches, which do not run again: --with-object, --device, --time-limit, "
            "--scheduler and --groups work with captures",
            object=args.files[0],
        )
    folder = Path(args.files[0])
    run = read_measured_run(folder)
    if run is None:
        raise LuthierError(
            "the run measured no launches: run the program again with `luthier run --project -o RUN -- PROGRAM`",
            object=str(folder),
        )
    return folder, run


def _project_run_folder(args: argparse.Namespace, machines: Sequence[MachineModel]) -> int:
    """Project the launches that a run has measured."""
    from luthier.projection.kept import lifted_kernels, objects_of, project_run, projections_json

    folder, run = _measured_run(args)
    shows_places = bool(args.json or args.explain or args.by == "line")
    projected = project_run(run, lifted_kernels(run, objects_of(folder, run)), machines, places=shows_places)
    if args.json:
        made = replace(run, projections=tuple(projected.projections), refused=tuple(projected.refused))
        put_json(args.json, projections_json(made))
    if args.json != STANDARD_OUTPUT:
        print_run(
            "project", projected, run.left_out, args.by, sys.stdout, mangled=args.mangled, explain=args.explain or ""
        )
    return 2 if projected.refused or run.left_out or not projected.projections else 0


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    from luthier.projection.kept import ProjectedRun, objects_of  # these import NumPy
    from luthier.replay.jobs import is_gpu
    from luthier.replay.projecting import MOST_GROUPS, Project, ProjectedOutcome

    if args.explain and (args.json or args.by != "kernel"):
        raise LuthierError("--explain prints text about kernels: leave out --json and --by line")
    if args.json and args.by != "kernel":
        raise LuthierError("--json writes lines and kernels: leave out --by line")
    if args.groups is not None and args.groups < 0:
        raise LuthierError(f"--groups must be at least 0, not {args.groups}")
    machines = machines_of(args.to, args.machine)
    is_run = any((Path(file) / "summary.json").is_file() for file in args.files)
    if args.calibrate:
        if not args.output:
            raise LuthierError("--calibrate writes a machine: name its file with -o, such as -o mine.toml")
        if args.json or args.explain or args.by != "kernel":
            raise LuthierError("--calibrate prints what it fitted: leave out --json, --explain and --by line")
        check_writable(args.output)
        if is_run:
            folder, run = _measured_run(args)
            return _calibrate(args, machines, run, objects_of(folder, run))
    elif args.output or args.fit:
        raise LuthierError("-o and --fit need --calibrate")
    if is_run:
        return _project_run_folder(args, machines)
    if is_gpu(args.device):
        raise LuthierError(f"--device must be an emulated device, such as emu:gfx942, not {args.device}")
    job = Project(
        machines=tuple(machines),
        most_groups=MOST_GROUPS if args.groups is None else args.groups,
        object=args.with_object,
        device=args.device,
    )
    if args.calibrate:
        return _calibrate(args, machines, *_measured_captures(args, job))
    rows: list[ProjectedOutcome] = []
    for row in outcomes(job, captures_of(args.files), args.scheduler, args.time_limit):
        rows.append(row)
        if row.status:
            say_fitting(f"luthier project: not projected: {visible(row.file)}: {row.what}", file=sys.stderr)
    status = max(row.status for row in rows)
    if args.json:
        put_json(args.json, [row.to_json() for row in rows])
    if args.json == STANDARD_OUTPUT:
        return status
    projected = ProjectedRun([projection for row in rows for projection in row.projections], [])
    if projected.projections:
        print_run("project", projected, (), args.by, sys.stdout, mangled=args.mangled, explain=args.explain or "")
    return status
