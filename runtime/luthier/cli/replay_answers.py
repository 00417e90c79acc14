"""Answers of the processes that replay captures."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from luthier.errors import LuthierError
from luthier.terminal import say_text

EQUAL, DIFFERENT, IMPOSSIBLE = range(3)
"""Exit statuses."""
AGAIN = "taken"
"""Answer of a process that has something else where the program had its memory."""


def answer(work: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """Do the work of a process that `luthier.cli.replay_process.elsewhere` has started, and print what came of it."""
    say_text(answered(work, json.loads(sys.argv[1])))


def answered(work: Callable[[Mapping[str, Any]], Mapping[str, Any]], task: Mapping[str, Any]) -> str:
    """Return what came of the work as JSON, or `status` and `what` went wrong; or that addresses are taken."""
    from luthier.capture.place import AddressTaken

    try:
        return json.dumps(work(task))
    except AddressTaken:
        return AGAIN
    except LuthierError as problem:
        return json.dumps({"status": IMPOSSIBLE, "what": str(problem)})
