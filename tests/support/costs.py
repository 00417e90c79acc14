"""Times that the tests take, by which `make test` chooses how many rows of a table it runs.

`tests/costs.json` holds them: mean seconds of a row by test, fixtures included, as measured on a machine with two cores
in a clone where nothing was kept. ``LUTHIER_TEST_COSTS=1 make test`` measures again what it runs and writes the file.
Times that change make `make test` run other rows, so the file changes when somebody decides so, and not with each run.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "costs.json"
BUDGET = 0.5
"""Seconds that the rows of a table may take in `make test`; at least one row runs."""
LEAST = 0.02
"""Seconds of a row below which its table is not in the file: all rows are run, or all that its `covering` wants."""
COSTS: dict[str, float] = json.loads(FILE.read_text())


def affordable(test: str, worth: float = 1) -> int | None:
    """Return how many rows of a table `make test` has time for; None if it has for any number.

    Args:
        test: node id without the row.
        worth: budgets that the table may use.
    """
    cost = COSTS.get(test)
    return None if cost is None else max(1, int(BUDGET * worth / cost))


class Recorder:
    """Plugin of the process that collects the results of all workers; it writes the file when they have ended."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._rows: defaultdict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "[" in report.nodeid:
            test = report.nodeid.partition("[")[0]
            self._seconds[test] += report.duration
            if report.when == "call":  # a row that is skipped has none
                self._rows[test].add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        measured = {test: self._seconds[test] / len(rows) for test, rows in self._rows.items()}
        costs = COSTS | {test: float(f"{seconds:.2g}") for test, seconds in measured.items()}
        kept = {test: seconds for test, seconds in sorted(costs.items()) if seconds >= LEAST}
        FILE.write_text(json.dumps(kept, indent=0) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("LUTHIER_TEST_COSTS") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())
