"""Selection of instrumented launches: generated programs and options compared with a short model."""

from __future__ import annotations

import argparse
import fnmatch
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import run_luthier
from effort import some
from luthier import Tool
from luthier.cli import run as command
from luthier.run.folder import RunFolder

from .conftest import RunUnderTools

NAMES = ("first", "second", "third<int>")
SYMBOLS = ("_Z5firstPi", "_Z6secondPi", "_Z5thirdIiEvPT_")
Launch = tuple[int, int, int, int]
"""Kernel, work-groups, work-items of each, device."""


def model(launches: list[Launch], options: dict[str, str | None]) -> list[bool]:
    """Return whether each launch runs instrumented."""
    text = options.get("--launches") or {"once": "0:1", "sample": "::100"}.get(options.get("--preset") or "", "::")
    numbers = range(1 << 20)
    if ":" in text:
        first, end, step = (*text.split(":"), "")[:3]
        numbers = numbers[int(first) if first else None : int(end) if end else None : int(step) if step else None]
    else:
        numbers = numbers[: int(text)]
    unique = "--unique-grid" in options or options.get("--preset") == "grids"
    devices = options.get("--device-numbers")
    kernel = options.get("--kernel")
    chosen, counted = [], Counter[tuple[int, int]]()
    seen: set[Launch] = set()
    for launch in launches:
        which, *_, device = launch
        number = counted[which, device]
        counted[which, device] += 1
        good = number in numbers and (devices is None or str(device) in devices.split(","))
        if kernel is not None:
            fits = fnmatch.fnmatchcase(NAMES[which], kernel.removeprefix("!"))
            good = good and fits != kernel.startswith("!")
        if good and unique:
            good = launch not in seen
            seen.add(launch)
        chosen.append(good)
    return chosen


def generated(seed: int) -> tuple[list[Launch], dict[str, str | None]]:
    """A program, and options: with the seed's lowest bits each kind of them at least once."""
    choose = random.Random(seed)
    sizes = [(choose.randint(1, 3), choose.choice((64, 65, 128))) for _ in range(3)]
    launches = [(choose.randrange(3), *choose.choice(sizes), choose.randrange(2)) for _ in range(40)]
    options: dict[str, str | None] = {}
    how = seed % 4
    if how == 0:
        first = choose.randrange(4)
        end = choose.choice(("", first + choose.randint(1, 6)))
        options["--launches"] = choose.choice((f"{first}:{end}:{choose.randint(1, 3)}", f"{first}:{end}", "3", "::2"))
    elif how == 1:
        options["--preset"] = choose.choice(("once", "grids", "sample"))
    elif how == 2:
        options["--unique-grid"] = None
        options["--launches"] = choose.choice(("1:", "::2", "2:9:3"))
    else:
        options["--preset"] = "grids"
        options["--launches"] = choose.choice(("4", "1:6"))
    if choose.random() < 0.4:
        options["--kernel"] = choose.choice(("*ir*", "!second", "third<int>", "f*"))
    if choose.random() < 0.4:
        options["--device-numbers"] = choose.choice(("0", "1", "0,1"))
    return launches, options


@pytest.mark.rows(1)
@pytest.mark.parametrize("seed", some(range(8), 2))
def test_generated_selections(
    build_program: Callable[[str], Path],
    under_tools: Callable[..., RunUnderTools],
    counter: type[Tool],
    tmp_path: Path,
    seed: int,
) -> None:
    launches, options = generated(seed)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    given = [part for option in options.items() for part in option if part is not None]
    selection = command.RunOptions.read(parser.parse_args(["-t", "counter", *given, "program"])).selection()
    expected = [":".join(map(str, launch)) for launch in launches]
    ran = under_tools(
        "emu:gfx90a,emu:gfx906",
        [counter()],
        build_program("sequence"),
        *expected,
        selection=selection,
        folder=tmp_path / "run",
    )
    assert (ran.code, ran.out, ran.summary["faults"]) == (0, "sequence\n", []), ran.err
    selected = [
        (
            SYMBOLS.index(row["kernel"]),
            row["grid_x"] // row["block_x"],
            row["block_x"],
            row["device"],
            row["instrumented"],
        )
        for row in RunFolder(tmp_path / "run").rows("launches")
    ]
    wanted = [(*launch, chosen) for launch, chosen in zip(launches, model(launches, options), strict=True)]
    assert selected == wanted, options


@pytest.mark.rows(1)
@pytest.mark.parametrize("seed", some(range(8), 2))
def test_checks_observe_the_same_launches(build_program: Callable[[str], Path], tmp_path: Path, seed: int) -> None:
    """A kernel of several work-groups has a race, which is found if such a launch of it is selected."""
    launches, options = generated(seed)
    options.pop("--device-numbers", None)  # tools have it, checks do not
    given = [part for option in options.items() for part in option if part is not None]
    words = ["--device", "emu:gfx90a,emu:gfx906", "--json", tmp_path / "log", *given, "--", build_program("sequence")]
    done = run_luthier("sanitize", *words, *(":".join(map(str, launch)) for launch in launches))
    report = json.loads((tmp_path / "log").read_text())
    selected = [launch for launch, chosen in zip(launches, model(launches, options), strict=True) if chosen]
    racing = {SYMBOLS[which] for which, groups, _, _ in selected if groups > 1}
    assert {one["kernel"] for one in report["findings"] if one["kind"] == "race"} == racing, done
    checked = report["checked"]
    assert (checked["launches"], checked["observed_launches"]) == (len(launches), len(selected)), (options, done)
    assert checked["kernels"] == len({which for which, *_ in launches})
    left_out = len(launches) - len(selected)
    assert (f"{len(selected)} of {len(launches)} launches; {left_out} left out" in done.stderr) == bool(left_out), done
    assert (done.returncode, done.stdout) == (int(bool(racing)), "sequence\n")
