"""Growth of what Luthier does with the size of its input: CPU time over up to three decades of size.

Code is lifted, patched, checked and verified; programs with more and more launches are run, recorded, sanitized and
captured, and their runs reported.

`python benchmarks/bench_growth.py FILE.svg` writes the curves as one page, too. The programs are those of the tests
that count operations (`tests/support/growth_programs.py`). A size that would take more than `MOST_SECONDS`, or is
refused, is left out, which is printed. An exponent of 1 is linear; it is that of the last decade measured. Of commands
the start is left out: what the same command takes for one launch.
"""

from __future__ import annotations

import gc
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench_capture import TARGETS, build, cpu_seconds
from bench_patch import big_kernel_source, compile_kernel, counting_bundle, with_liveness
from first_patch import count_everything
from luthier.errors import LuthierError
from luthier.hazards.wait_counters import check_waits
from luthier.hazards.wait_states import check_hazards
from luthier.lifting import LiftedRepresentation
from luthier.module import ToolModule
from luthier.objects import load_object
from luthier.patch.output.kernel import patch_kernel
from luthier.tool import Tool
from luthier.tool.task import InstrumentationTask
from luthier.verify import verify_object
from run import Row

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from growth_programs import PROGRAMS, TARGET

SIZES = (5, 50, 500, 5000)
MOST_SECONDS, MOST_COMMAND_SECONDS = 3.0, 20.0
LEAST_COMMAND_SECONDS = 0.1
"""What launches take of a command: less than that is lost in the differences between its starts."""
LAUNCHES = (30, 300, 3000, 30000)
STEPS = (3, 30, 300)
VERIFIED, LAUNCHED = "steps of a kernel", "launches"
COLOURS = {
    "lift": "#1f77b4",
    "patch": "#d62728",
    "check": "#2ca02c",
    "verify": "#9467bd",
    "run": "#1f77b4",
    "run -o": "#17becf",
    "sanitize": "#2ca02c",
    "capture": "#d62728",
    "report": "#9467bd",
}
"""Stage -> colour of its curve."""


class Point(NamedTuple):
    """CPU time of a stage for an input of one size."""

    program: str
    stage: str
    size: int
    amount: int
    """Instructions, or launches."""
    seconds: float


def points(program: str, module: ToolModule) -> Iterator[Point]:
    """Measure a program: lifting with liveness, a hook before every instruction, checks of waits and hazards."""

    def patch(lifted: LiftedRepresentation) -> None:
        task = InstrumentationTask(lifted)
        count_everything(task, module)
        patch_kernel(task)

    def check(lifted: LiftedRepresentation) -> None:
        check_waits(lifted)
        check_hazards(lifted)

    stages: dict[str, Callable[[LiftedRepresentation], None]] = {"patch": patch, "check": check}
    last: dict[str, float] = {}
    for size in SIZES:
        if any(10 * seconds > MOST_SECONDS for seconds in last.values()):
            print(f"  {program}: {size:,} and larger are left out, they take more than {MOST_SECONDS:g} s")
            break
        object = load_object(PROGRAMS[program](size).data)
        began = time.process_time()
        kernels = [with_liveness(object, name) for name in object.kernels]
        last["lift"] = time.process_time() - began
        instructions = sum(block.last - block.first + 1 for lifted in kernels for block in lifted.blocks)
        try:
            for stage, run in stages.items():
                began = time.process_time()
                for lifted in kernels:
                    run(lifted)
                last[stage] = time.process_time() - began
        except LuthierError as problem:
            print(f"  {program}: {size:,} and larger are left out: {problem.message}")
            break
        for stage in last:
            yield Point(program, stage, size, instructions, last[stage])


def measured() -> Iterator[list[Point]]:
    """Yield the points of each program. What is loaded once is not counted."""
    gc.set_threshold(100_000)  # as the commands do
    with tempfile.TemporaryDirectory() as name:
        module = ToolModule.load(counting_bundle(Path(name), [TARGET]))
        next(points(next(iter(PROGRAMS)), module))
        for program in PROGRAMS:
            yield list(points(program, module))
        yield list(verified(Path(name), module))
        yield list(launched(Path(name)))


class _Counts(Tool):
    """The hooks of instr_count before every instruction."""

    def __init__(self, module: ToolModule) -> None:
        super().__init__()
        self._module = module

    def instrument(self, task: InstrumentationTask) -> None:
        count_everything(task, self._module)


def verified(folder: Path, module: ToolModule) -> Iterator[Point]:
    """Measure `verify_object` for kernels of more and more steps, each the second time: operations are compiled once
    for a machine."""
    for size in STEPS:
        object = compile_kernel(big_kernel_source(size), folder, TARGET)
        (name,) = object.kernels
        for _ in range(2):
            began = time.process_time()
            verify_object(object, _Counts(module))
            seconds = time.process_time() - began
        yield Point(VERIFIED, "verify", size, len(with_liveness(object, name).code), seconds)


def launched(folder: Path) -> Iterator[Point]:
    """Measure commands on a program with more and more launches of a kernel."""
    program, kept = str(build(folder)), folder / "kept"
    device = ["--device", f"emu:{TARGETS[0]}"]

    def seconds_of(stage: str, launches: int) -> float:
        after = ["--", program, "add", "256", str(launches - 1)]
        if stage == "report":
            return cpu_seconds("report", "--format", "json", "-o", str(folder / "report.json"), str(kept))
        shutil.rmtree(kept, ignore_errors=True)
        output = ["-o", str(kept)] if stage in ("run -o", "capture") else []
        return cpu_seconds(stage.split()[0], *device, *output, *after)

    last: dict[str, float] = {}
    stages = ("run", "sanitize", "capture", "run -o", "report")  # the last one reports what the one before recorded
    started = {stage: seconds_of(stage, 1) for stage in stages}
    for launches in LAUNCHES:
        for stage in stages:
            if 10 * last.get(stage, 0) > MOST_COMMAND_SECONDS and stage != "run -o":
                print(f"  {stage}: {launches:,} launches are left out, they take more than {MOST_COMMAND_SECONDS:g} s")
                continue
            last[stage] = seconds_of(stage, launches) - started[stage]
            if last[stage] > LEAST_COMMAND_SECONDS:
                yield Point(LAUNCHED, stage, launches, launches, last[stage])


def rows(measurements: list[Point]) -> Iterator[Row]:
    """Yield for each curve of a program the rate at its largest size, and its exponent."""
    for stage in dict.fromkeys(point.stage for point in measurements):
        curve = [point for point in measurements if point.stage == stage]
        if len(curve) < 2:  # the machine is too slow for a second size
            continue
        before, last = curve[-2:]
        exponent = math.log(last.seconds / before.seconds) / math.log(last.amount / before.amount)
        unit = "launches" if last.program == LAUNCHED else "instr"
        text = f"{last.program}, {last.size:,}: {stage}"
        yield Row(text, last.amount / last.seconds / 1e3, f"k {unit}/s, exponent {exponent:.2f}")


def measure() -> Iterable[Row]:
    """Yield the rows of this benchmark."""
    for measurements in measured():
        yield from rows(measurements)


WIDTH, HEIGHT, MARGIN = 300, 220, 40


def page(measurements: list[Point]) -> str:
    """Return the curves as SVG: a plot for each program, seconds over size, both logarithmic."""

    def place(point: Point) -> tuple[float, float]:
        across = (math.log10(point.amount) - 1) / 6 * (WIDTH - MARGIN)
        up = (math.log10(max(point.seconds, 1e-4)) + 4) / 6 * (HEIGHT - MARGIN)
        return MARGIN + across, HEIGHT - MARGIN - up

    parts = []
    programs = list(dict.fromkeys(point.program for point in measurements))
    for number, program in enumerate(programs):
        lines = [f'<text x="{MARGIN}" y="14" font-weight="bold">{program}</text>']
        for decade in range(7):
            y = HEIGHT - MARGIN - decade / 6 * (HEIGHT - MARGIN)
            x = MARGIN + decade / 6 * (WIDTH - MARGIN)
            lines += [f'<path d="M{MARGIN} {y:.1f}H{WIDTH}M{x:.1f} 0V{HEIGHT - MARGIN}" stroke="#ddd"/>']
            lines += [f'<text x="2" y="{y + 3:.1f}">1e{decade - 4} s</text>'] if decade else []
            lines += [f'<text x="{x - 8:.1f}" y="{HEIGHT - MARGIN + 14}">1e{decade + 1}</text>'] if decade < 6 else []
        own = [point for point in measurements if point.program == program]
        for stage in dict.fromkeys(point.stage for point in own):
            curve = [place(point) for point in own if point.stage == stage]
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in curve)
            lines.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[stage]}" stroke-width="2"/>')
            lines.append(
                f'<text x="{curve[-1][0] - 14:.1f}" y="{curve[-1][1] - 4:.1f}" fill="{COLOURS[stage]}">{stage}</text>'
            )
        at = f"translate({number % 3 * (WIDTH + 30) + 10} {number // 3 * (HEIGHT + 10) + 24})"
        parts.append(f'<g transform="{at}">{"".join(lines)}</g>')
    size = f'width="{3 * (WIDTH + 30) + 20}" height="{-(-len(programs) // 3) * (HEIGHT + 10) + 30}"'
    title = "CPU seconds over instructions; of programs over launches, without the start"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="10">'
        f'<rect width="100%" height="100%" fill="white"/><text x="10" y="14">{title}</text>{"".join(parts)}</svg>\n'
    )


def main(output: str = "") -> None:
    """Print the rows, and write the page if a file is given."""
    every: list[Point] = []
    for measurements in measured():
        every += measurements
        for row in rows(measurements):
            print(row.line(), flush=True)
    if output:
        Path(output).write_text(page(every))


if __name__ == "__main__":
    main(*sys.argv[1:])
