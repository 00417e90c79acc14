"""``luthier project``: print projected times of captured launches on GPUs, and what bounds them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from luthier.cli.captures import add_object_argument, add_scheduler_argument, captures_of, outcomes
from luthier.cli.common import add_mangled_argument, print_json, say_fitting, shown_tables
from luthier.cli.run import seconds
from luthier.errors import LuthierError
from luthier.terminal import say_text, visible


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="captures, or folders of them")
    parser.add_argument(
        "--to",
        metavar="GPU,...",
        help="GPUs by product or processor: mi250x,gfx1100 (default: the one that stands for the code's processor)",
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
        default=16,
        metavar="N",
        help="sample N work-groups of launches that have more; 0: run all (default: 16)",
    )
    parser.add_argument(
        "--time-limit", type=seconds, metavar="SECONDS", help="launches that take longer are not projected"
    )
    add_scheduler_argument(parser)
    add_mangled_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the projections as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    from luthier.objects.names import matches, spellings  # these import NumPy
    from luthier.projection import Projection, machine_named, machine_names, read_machine
    from luthier.projection.text import explained, kernel_table, line_table
    from luthier.replay.jobs import is_gpu
    from luthier.replay.projecting import Project, ProjectedOutcome

    if args.explain and (args.json or args.by != "kernel"):
        raise LuthierError("--explain prints text about kernels: it works without --json and --by line")
    if args.json and args.by != "kernel":
        raise LuthierError("--json writes lines and kernels: it works without --by line")
    if args.groups < 0:
        raise LuthierError(f"--groups must be at least 0, not {args.groups}")
    for file in args.files:
        if (Path(file) / "summary.json").is_file():
            raise LuthierError(
                "is a run folder, which has neither addresses nor memory: write the program's launches with "
                "`luthier capture`, and project those",
                object=file,
            )
    machines = [machine_named(name.strip()) for name in (args.to or "").split(",") if name.strip()]
    if args.to is not None and not machines:
        raise LuthierError(f"--to names no GPU; there are {', '.join(machine_names())}")
    machines += [read_machine(file) for file in args.machine]
    machines = [machine for at, machine in enumerate(machines) if machine not in machines[:at]]
    if len({machine.name for machine in machines}) < len(machines):
        raise LuthierError("two machines have one name: give the file of --machine a name of its own")
    rows: list[ProjectedOutcome] = []
    if is_gpu(args.device):
        raise LuthierError(f"--device must be an emulated device, such as emu:gfx942, not {args.device}")
    job = Project(machines=tuple(machines), most_groups=args.groups, object=args.with_object, device=args.device)
    for row in outcomes(job, captures_of(args.files), args.scheduler, args.time_limit):
        rows.append(row)
        if row.status:
            say_fitting(f"luthier project: not projected: {visible(row.file)}: {row.what}", file=sys.stderr)
    status = max(row.status for row in rows)
    if args.json:
        print_json([row.to_json() for row in rows])
        return status
    projections: list[Projection] = [projection for row in rows for projection in row.projections]
    if args.explain:
        chosen = [projection for projection in projections if matches(projection.kernel, args.explain)]
        if projections and not chosen:
            names = ", ".join(sorted({spellings(projection.kernel)[-1] for projection in projections}))
            raise LuthierError(f"no launch of a kernel {args.explain!r}; there are launches of {names}")
        for projection in chosen:
            for line in explained(projection):
                say_fitting(line)
    elif projections:
        table = line_table(projections) if args.by == "line" else kernel_table(projections)
        for text in shown_tables([table], sys.stdout, mangled=args.mangled):
            say_text(text)
        for note in dict.fromkeys(note for projection in projections for note in projection.notes):
            say_fitting(f"note: {note}")
    return status
