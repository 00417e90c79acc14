"""Run the benchmarks in this folder and print their numbers: `make bench`, or `run.py NAME...` for some.

A benchmark is a module ``bench_NAME.py`` with ``measure() -> Iterable[Row]``. Machines are noisy, so a peer is timed in
the same run, and the ratio counts.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Row:
    """One measured number."""

    what: str
    value: float
    unit: str
    peer: str = ""
    """Name of what it is compared with."""
    peer_value: float | None = None
    """Its value in the same unit, from the same run."""

    def line(self) -> str:
        """Return the row as it is printed."""
        text = f"{self.what:58} {self.value:12,.4g} {self.unit:22}"
        if self.peer_value:
            text += f" {self.peer}: {self.peer_value:,.4g} ({self.value / self.peer_value:.2f}x)"
        return text


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all."""
    sys.path.insert(0, str(HERE))
    sys.modules["run"] = sys.modules[__name__]  # benchmarks do `from run import Row`
    present = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    unknown = set(names) - set(present)
    if unknown:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(present)}", file=sys.stderr)
        return 2
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    for name in names or present:
        print(f"\n{name}")
        for row in importlib.import_module(f"bench_{name}").measure():
            print(f"  {row.line()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
