"""``luthier selftest``: test Luthier on this machine from end to end."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import platform
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import luthier
from luthier.cli.common import STANDARD_OUTPUT, add_json_argument, put_json
from luthier.cli.progress import awaited
from luthier.errors import LuthierError
from luthier.isa.targets import TargetId
from luthier.support.files import check_writable, write_atomically
from luthier.terminal import say, say_text

from luthier_build.cli import doctor

if TYPE_CHECKING:
    from luthier_build.selftest.steps import SelftestStep, StepOutcome

SCHEMA = 1
"""Schema version of the file; increased when something changes its meaning or is removed."""
_DEFAULT = ("emu:gfx90a", "hip")
_PACKAGES = ("numpy", "llvmlite", "msgpack", "hip-python")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--device",
        action="append",
        metavar="DEVICE",
        help="emu:<target> (in this process and under the real ROCm), hip:<number> (a GPU) or hip (all GPUs); "
        f"repeatable (default: {' and '.join(_DEFAULT)}, if there are any)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write a JSON file to attach to a bug report")
    add_json_argument(parser, "the report")


def run(args: argparse.Namespace) -> int:
    """Return 1 if a step failed, otherwise 0."""
    from luthier_build.selftest.steps import run_steps  # slow to import

    if args.output:
        check_writable(args.output)
    outcomes = []
    for outcome in awaited("testing", run_steps(steps(args.device))):
        outcomes.append(outcome)
        if args.json != STANDARD_OUTPUT:
            say(f"{outcome.status:8} {outcome.where:18} {outcome.name:23} {_last_line(outcome.detail)}", flush=True)
    report = {"schema": SCHEMA, "machine": machine(), "steps": [dataclasses.asdict(outcome) for outcome in outcomes]}
    if args.json:
        put_json(args.json, report)
    if args.json != STANDARD_OUTPUT:
        say_text(_summary(outcomes))
    if args.output:
        write_atomically(args.output, (json.dumps(report, indent=2) + "\n").encode())
    return int(any(outcome.status == "failed" for outcome in outcomes))


def steps(names: list[str] | None) -> Iterator[SelftestStep]:
    """Return the steps for the named devices or, without names, for the default devices.

    Raises:
        LuthierError: a name is not the name of a device.
    """
    from luthier_build.selftest import devices, gpus, programs  # slow to import
    from luthier_build.selftest.steps import SelftestStep

    chosen: list[Iterable[SelftestStep]] = [[SelftestStep("machine", "environment", environment)]]
    for name in names or _DEFAULT:
        kind, _, rest = name.partition(":")
        if kind == "emu" and rest:
            TargetId.parse(rest)
            chosen += [devices.emulated(name), programs.under_rocm(name)]
        elif name == gpus.ALL or (kind == gpus.ALL and rest.isdecimal()):
            chosen.append(gpus.steps_on(name, is_optional=names is None))
        else:
            raise LuthierError(
                f"no device {name!r}: use emu:<target> for an emulated device, hip:<number> for a GPU, hip for all GPUs"
            )
    return itertools.chain.from_iterable(chosen)


def environment() -> str:
    """Return the versions of Luthier and Python, and the platform."""
    return f"luthier {luthier.__version__}, Python {platform.python_version()}, {platform.platform()}"


def machine() -> dict[str, Any]:
    """Return facts about the machine that explain the outcomes of steps."""
    return {
        "luthier": luthier.__version__,
        "python": sys.version,
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "doctor": [dataclasses.asdict(finding) for finding in doctor.examine()],
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _last_line(text: str) -> str:
    """Return the last line of another program's output, usually the error; the file contains all lines."""
    return text.strip().splitlines()[-1] if text.strip() else ""


def _summary(outcomes: list[StepOutcome]) -> str:
    counts = {status: sum(outcome.status == status for outcome in outcomes) for status in ("ok", "failed", "skipped")}
    return ", ".join(f"{count} {status}" for status, count in counts.items() if count)
