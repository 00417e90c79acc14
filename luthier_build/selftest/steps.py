"""Steps of the self-test: every step runs, even after failures, and has an outcome."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from luthier.errors import LuthierError


class Skip(Exception):
    """A step cannot run on this machine, for the given reason."""


@dataclass(frozen=True)
class SelftestStep:
    """One test of the self-test."""

    where: str
    """The device, or ``machine``."""
    name: str
    run: Callable[[], str]
    """Runs the test and returns a description of the result. Raises `Skip` if it cannot run here, any other exception
    if it fails."""


@dataclass(frozen=True)
class StepOutcome:
    """Result of a step."""

    where: str
    name: str
    status: str
    """``ok``, ``failed``, ``skipped``."""
    detail: str
    seconds: float
    trace: str = ""
    """Traceback of an error that is not a `LuthierError` (a bug)."""


def check(condition: bool, otherwise: str) -> None:
    """Fail the step with the text `otherwise` unless `condition` is true.

    Raises:
        LuthierError: `condition` is false.
    """
    if not condition:
        raise LuthierError(otherwise)


def run_steps(steps: Iterable[SelftestStep]) -> Iterator[StepOutcome]:
    """Run the steps in order; continue after failures."""
    for step in steps:
        began, trace = time.monotonic(), ""
        try:
            status, detail = "ok", step.run()
        except Skip as reason:
            status, detail = "skipped", str(reason)
        except Exception as problem:
            status, detail = "failed", str(problem) or repr(problem)
            if not isinstance(problem, LuthierError):
                trace = traceback.format_exc()
        yield StepOutcome(step.where, step.name, status, detail, round(time.monotonic() - began, 3), trace)
