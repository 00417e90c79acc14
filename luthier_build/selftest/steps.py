"""Steps of the self-test: each runs whatever became of those before, and has an outcome."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from luthier.errors import LuthierError


class Skip(Exception):
    """A step cannot be tried here, for the reason given."""


@dataclass(frozen=True)
class SelftestStep:
    """Something to be tried."""

    where: str
    """The device, or ``machine``."""
    name: str
    run: Callable[[], str]
    """Tries it and says what was found. Raises `Skip` if it cannot be tried here, and anything else if it fails."""


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
    """Traceback of an error that is no `LuthierError`: a bug."""


def check(condition: bool, otherwise: str) -> None:
    """Fail the step unless something is so.

    Raises:
        LuthierError: it is not.
    """
    if not condition:
        raise LuthierError(otherwise)


def run_steps(steps: Iterable[SelftestStep]) -> Iterator[StepOutcome]:
    """Run one after the other; none that fails keeps the next from running."""
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
