"""Helpers of the tests of `luthier sanitize`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from commands import run_luthier

from .conftest import PROGRAMS


def marked_line(program: str, mark: str) -> int:
    """Return the line of a source in `programs` that ends with the comment ``line: MARK``."""
    lines = (PROGRAMS / program).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"// line: {mark}"))


def findings_of(
    command: Sequence[str | Path],
    log: Path,
    *options: str,
    target: str,
    before: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Return the findings of `luthier sanitize` in a program that prints "done"."""
    words = ["sanitize", *options, "--device", f"emu:{target}", "--json", log, "--", *command]
    done = run_luthier(*words, before=before, env=env)
    report: dict[str, Any] = json.loads(log.read_text())
    assert (done.stdout, report["exit_code"]) == ("done\n", 0), done
    assert done.returncode == bool(report["findings"]), done
    findings: list[dict[str, Any]] = report["findings"]
    return findings
