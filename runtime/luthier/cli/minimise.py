"""``luthier minimise``: the smallest part of a captured launch in which something still goes wrong."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from luthier.cli.replay import checks_of
from luthier.cli.replay_answers import IMPOSSIBLE, answer
from luthier.cli.replay_process import elsewhere, prepared, target_of
from luthier.cli.run import seconds
from luthier.errors import LuthierError
from luthier.support.files import check_writable
from luthier.terminal import say, say_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("file", metavar="FILE", help="a capture whose replay fails")
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="the smaller capture")
    parser.add_argument("--object", metavar="FILE", help="as of `luthier replay`: it differs from the recorded code")
    parser.add_argument("--device", metavar="DEVICE", help="as of `luthier replay`")
    parser.add_argument(
        "--check",
        action="append",
        default=[],
        metavar="CHECK[,CHECK...]",
        help="as of `luthier replay`: the first finding is what must remain",
    )
    parser.add_argument(
        "--time-limit",
        type=seconds,
        default=600,
        metavar="SECONDS",
        help="write the smallest capture that was found in so long (default: 600)",
    )


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit status."""
    if not Path(args.file).is_file():
        raise LuthierError("no such file", object=args.file)
    check_writable(args.output)
    task = {name: getattr(args, name) for name in ("file", "output", "object", "device", "time_limit")}
    told = elsewhere("luthier.cli.minimise", {**task, "checks": checks_of(args.check)})
    if told["status"] == IMPOSSIBLE:
        raise LuthierError(told["what"])
    say_text(f"{told['kind']}: {told['what']}")
    for what, (before, after) in told["sizes"].items():
        say(f"{what}: {before} -> {after}")
    say(f"{told['tries']} launches were tried")
    return 0


def _here(task: Mapping[str, Any]) -> dict[str, Any]:
    """Minimise in this process; return what came of it."""
    from luthier.capture import read_capture, write_capture
    from luthier.capture.form import PAGE
    from luthier.capture.minimise import Minimiser, group_count

    capture = read_capture(task["file"])
    target = target_of(task["device"])
    launch = prepared(capture, target, task["object"])
    recorded = prepared(capture, None, None) if task["object"] and not task["checks"] else None
    search = Minimiser(launch, recorded, task["checks"], task["time_limit"])
    smaller = search.run()
    write_capture(task["output"], smaller)
    assert search.failure is not None  # else `run` is an error
    sizes = [
        {
            "work-groups": group_count(one.manifest),
            "bytes of memory": len(one.pages) * PAGE,
            "bytes of the file": Path(path).stat().st_size,
        }
        for path, one in ((task["file"], capture), (task["output"], smaller))
    ]
    told = {"kind": search.failure.kind, "what": search.failure.text, "tries": search.tries}
    return {"status": 0, **told, "sizes": {what: [sizes[0][what], sizes[1][what]] for what in sizes[0]}}


if __name__ == "__main__":
    answer(_here)
