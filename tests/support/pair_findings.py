"""Parts of findings about two instructions, missing waits and hazards, extracted from their sentences."""

from __future__ import annotations

import re
from typing import NamedTuple

from luthier.emulator import Finding


class WaitUse(NamedTuple):
    """A use of a register before a wait."""

    access: str
    register: str
    counter: str
    enough: int


def wait_use(finding: Finding) -> WaitUse:
    """Return what a missing wait is about."""
    parts = re.fullmatch(
        r"(reads|overwrites|overwrites a source of) (\S+); (\w+)\((\d+)\) before it is enough", finding.detail
    )
    assert parts is not None, finding.detail
    assert finding.rule == f"{parts[1]} {parts[2]}"
    return WaitUse(parts[1], parts[2], parts[3], int(parts[4]))


def lacks(finding: Finding) -> str:
    """Return the sentence about the distance of a hazard's instructions."""
    return finding.detail.rpartition("; ")[2]


def distance(finding: Finding) -> tuple[int, int | None]:
    """Return the distance of a hazard's instructions, and the one that is needed; None: another remedy is."""
    parts = re.match(r"(\d+) .*, it needs (\d+)", lacks(finding))
    return (0, None) if parts is None else (int(parts[1]), int(parts[2]))


def registers(finding: Finding) -> str:
    """Return the registers by which a hazard's instructions meet."""
    return finding.detail.rpartition("; ")[0].removeprefix(finding.rule).removeprefix(" by ")
