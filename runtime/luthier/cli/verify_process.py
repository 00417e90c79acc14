"""The process in which `luthier verify` verifies one capture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luthier.capture import read_capture
from luthier.cli.common import refusal_lines
from luthier.cli.replay_answers import DIFFERENT, EQUAL, answer
from luthier.cli.replay_process import target_of
from luthier.cli.verify import verdict_lines
from luthier.patch import PatchReport
from luthier.tool import parse_tools
from luthier.verify.captured import verify_capture


def here(task: Mapping[str, Any]) -> dict[str, Any]:
    """Verify a capture in this process; return what came of it."""
    verdict = verify_capture(
        read_capture(task["file"]),
        parse_tools(task["tool"]),
        target=target_of(task["device"]),
        strict=task["strict"],
        hoist=task["hoist"],
        threads=task["threads"],
    )
    refusals = () if verdict.patch is None else refusal_lines(PatchReport((verdict.patch,), {}, ()))
    return {
        "status": EQUAL if verdict.equal else DIFFERENT,
        "what": "equal" if verdict.equal else verdict.problems[0],
        "lines": list(verdict_lines(verdict)),
        "refusals": list(refusals),
        **verdict.to_json(),
    }


if __name__ == "__main__":
    answer(here)
