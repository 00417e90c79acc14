"""The process in which `luthier sanitize` replays one capture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from luthier.capture import read_capture
from luthier.cli.replay_answers import answer
from luthier.cli.replay_process import launch_of, outcome
from luthier.run.findings.captured import replayed
from luthier.run.findings.collector import Collector
from luthier.run.findings.finding import CHECKS


def here(task: Mapping[str, Any]) -> dict[str, Any]:
    """Replay a capture in this process; return what it does wrong."""
    collector = Collector(task["kinds"])
    done = replayed(launch_of(read_capture(task["file"]), task), collector, task["threads"])
    findings = collector.findings
    is_finding = done.fault is not None and any(one.kind in CHECKS["memory"] for one in findings)
    return outcome(done) | {"findings": msgspec.to_builtins(findings), "is_finding": is_finding}


if __name__ == "__main__":
    answer(here)
