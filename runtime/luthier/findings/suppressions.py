"""Suppressions: known findings that are not reported.

A line of the file is a glob for the kind, one for the kernel and one for the source line, separated by spaces. A glob
that is missing matches everything; ``#`` begins a comment:

    out-of-bounds  reduce*  */old/sum.hip:*
    leak
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from luthier.errors import LuthierError
from luthier.findings.finding import Finding, source_of
from luthier.findings.kinds import KINDS
from luthier.objects.names import matches


class Suppression(Struct, frozen=True):
    """One line of the file."""

    kind: str
    kernel: str = "*"
    source: str = "*"
    """Matches ``file:line`` of any frame."""

    def fits(self, finding: Finding) -> bool:
        """Return whether it matches a finding."""
        places = [f"{frame.file}:{frame.line}" for frame in finding.frames] or [""]
        return (
            fnmatchcase(finding.kind, self.kind)
            and (self.kernel == "*" or matches(finding.kernel, self.kernel))
            and any(fnmatchcase(place, self.source) for place in places)
        )


def parse(text: str, name: str) -> list[Suppression]:
    """Parse the text of a file.

    Raises:
        LuthierError: a line has too many words, or matches no kind of finding.
    """
    suppressions = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) > 3:
            raise LuthierError(
                f"{name}, line {number}: a suppression has up to three words (kind, kernel, source), not {len(words)}"
            )
        if not any(fnmatchcase(kind, words[0]) for kind in KINDS):
            raise LuthierError(f"{name}, line {number}: no kind of finding matches {words[0]!r}: {', '.join(KINDS)}")
        suppressions.append(Suppression(*words))
    return suppressions


def read(path: str) -> list[Suppression]:
    """Read the suppressions of a file.

    Raises:
        LuthierError: the file cannot be read, or a line is malformed.
    """
    try:
        return parse(Path(path).read_text(), path)
    except (OSError, UnicodeDecodeError) as problem:
        raise LuthierError(f"cannot read suppressions {path}: {problem}") from problem


def generate(findings: Iterable[Finding]) -> str:
    """Return the text of a file that suppresses these findings."""
    lines: dict[str, None] = {}
    for finding in findings:
        frame = source_of(finding.frames)
        source = f"*{frame.file.replace(' ', '?')}:{frame.line}" if frame else ""
        kernel = finding.kernel or ("*" if source else "")
        lines[" ".join(part for part in (finding.kind, kernel, source) if part)] = None
    return "".join(f"{line}\n" for line in lines)
