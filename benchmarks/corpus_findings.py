"""Make the table in docs/checking.md: results of the checks of waits and hazards on whole libraries. Not a benchmark.

Usage: python benchmarks/corpus_findings.py [--most N] [--part I/N] [--log FILE] NAME=PATH...

PATH is a file with code objects, a folder of such files, or HIP source, which is compiled for every processor and wave
size at -O0 to -O3; several PATHs of one NAME are one row. Findings and kernels that cannot be lifted are printed
immediately. --most limits the number of random kernels of each PATH; --part takes every Nth of these from the Ith on
(for HIP source, every Nth way to compile it). --log keeps the counts of each kernel, which are then not repeated.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice, product
from pathlib import Path

from luthier.errors import LiftError, ObjectError
from luthier.hazards.wait_counters import check_waits
from luthier.hazards.wait_states import check_hazards
from luthier.isa.targets import TARGETS
from luthier.lifting import lift
from luthier.objects import CodeObject, load_objects

from luthier_build.toolchain import Toolchain

Part = tuple[int, int]
LEVELS = ("-O0", "-O1", "-O2", "-O3")
COLUMNS = ("kernels", "targets", "instructions", "not lifted", "waits", "hazards", "seconds")


def compiled(source: Path, part: Part) -> Iterator[tuple[str, list[CodeObject]]]:
    """Yield code objects of HIP source for every processor."""
    toolchain = Toolchain.find()
    every = [(one, lanes) for one in TARGETS.values() if not one.is_generic for lanes in one.wave_sizes]
    wanted = list(product(every, LEVELS))
    random.Random(source.name).shuffle(wanted)
    for (target, lanes), level in wanted[part[0] :: part[1]]:
        wave = ["-mwavefrontsize64"] if lanes != target.default_wave_size else []
        flags = ["--offload-device-only", "--no-gpu-bundle-output", "-ffp-contract=off", "-w", level, *wave]
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "object"
            command = [toolchain.clang, *toolchain.device_flags(target.name), *flags, source, "-o", output]
            subprocess.run([str(word) for word in command], check=True)
            yield f"{source.name} {lanes} {level}", load_objects(output.read_bytes())


def objects(path: Path) -> Iterator[tuple[str, list[CodeObject]]]:
    """Yield all code objects, in a random order that stays the same."""
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    random.Random(0).shuffle(files)
    for file in files:
        try:
            yield file.name, load_objects(file)
        except ObjectError:
            continue  # a folder has other files, too


def kernels(files: Iterable[tuple[str, list[CodeObject]]]) -> Iterator[tuple[str, CodeObject, str]]:
    """Yield all kernels, in a random order that stays the same, each with a name that does."""
    for name, objects in files:
        named = [
            (f"{name} {number} {object.target} {kernel}", object, kernel)
            for number, object in enumerate(objects)
            for kernel in object.kernels
        ]
        random.Random(0).shuffle(named)
        yield from named


def judged(object: CodeObject, kernel: str) -> dict[str, object]:
    """Return the counts of one kernel; findings are printed."""
    began = time.process_time()
    seen: dict[str, object] = {
        "target": str(object.target),
        "instructions": 0,
        "waits": 0,
        "hazards": 0,
        "not lifted": 0,
    }
    try:
        lifted = lift(object, kernel)
    except LiftError as problem:
        print(f"{object.target}: not lifted: {problem}", flush=True)
        return {**seen, "not lifted": 1, "seconds": time.process_time() - began}
    waits, hazards = check_waits(lifted, unneeded=False), check_hazards(lifted, unneeded=False)
    for finding in (*waits.findings, *hazards.findings):
        print(f"{object.target}: {finding}", flush=True)
    return {
        **seen,
        "instructions": waits.instructions,
        "waits": len(waits.findings),
        "hazards": len(hazards.findings) + hazards.more,
        "seconds": time.process_time() - began,
    }


def table(rows: dict[str, list[dict[str, object]]]) -> str:
    """Return a table with a line for each row, and one for all."""
    lines = [f"| | {' | '.join(COLUMNS)} |", "| --- |" + " --- |" * len(COLUMNS)]
    everything = [one for row in rows.values() for one in row]
    for name, row in [*rows.items(), ("all", everything)]:
        sums: Counter[str] = Counter()
        for cell in row:
            sums.update({key: value for key, value in cell.items() if isinstance(value, int | float)})
        numbers = {**sums, "kernels": len(row), "targets": len({one["target"] for one in row})}
        lines.append(f"| {name} | {' | '.join(f'{round(numbers.get(column, 0)):,}' for column in COLUMNS)} |")
    return "\n".join(lines)


def main() -> int:
    """Check, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", metavar="NAME=PATH")
    parser.add_argument("--most", type=int, default=sys.maxsize)
    parser.add_argument("--part", type=lambda text: tuple(map(int, text.split("/"))), default=(0, 1))
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    known: dict[str, dict[str, object]] = {}
    if options.log and options.log.exists():
        known = {one.pop("name"): one for one in map(json.loads, options.log.read_text().splitlines())}
    rows: dict[str, list[dict[str, object]]] = {}
    for argument in options.rows:
        name, _, path = argument.partition("=")
        row = rows.setdefault(name, [])
        if path.endswith(".hip"):
            chosen = islice(kernels(compiled(Path(path), options.part)), options.most)
        else:
            chosen = islice(kernels(objects(Path(path))), options.part[0], options.most, options.part[1])
        for kernel, object, symbol in chosen:
            if kernel not in known:
                known[kernel] = judged(object, symbol)
                if options.log:
                    with options.log.open("a") as log:
                        log.write(json.dumps({"name": kernel, **known[kernel]}) + "\n")
            row.append(known[kernel])
    print(table(rows))
    return 1 if any(one.get("waits") or one.get("hazards") for row in rows.values() for one in row) else 0


if __name__ == "__main__":
    sys.exit(main())
