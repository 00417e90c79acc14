"""Suppressions: findings that are known and not to be told.

A file has one a line: a glob for the kind, one for the kernel, one for the source line, between spaces. What is not
there fits everything; ``#`` begins a comment:

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
    """One line of a file."""

    kind: str
    kernel: str = "*"
    source: str = "*"
    """Fits any frame's ``file:line``."""

    def fits(self, finding: Finding) -> bool:
        """Return whether a finding is meant."""
        places = [f"{frame.file}:{frame.line}" for frame in finding.frames] or [""]
        return (
            fnmatchcase(finding.kind, self.kind)
            and (self.kernel == "*" or matches(finding.kernel, self.kernel))
            and any(fnmatchcase(place, self.source) for place in places)
        )


def parse(text: str, name: str) -> list[Suppression]:
    """Return the suppressions of a file's text.

    Raises:
        LuthierError: a line has too many words, or a kind that no finding can have.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) > 3:
            raise LuthierError(
                f"{name}, line {number}: a suppression is a kind, a kernel and a source, not {len(words)} words"
            )
        if not any(fnmatchcase(kind, words[0]) for kind in KINDS):
            raise LuthierError(f"{name}, line {number}: no finding is of the kind {words[0]!r}: {', '.join(KINDS)}")
        found.append(Suppression(*words))
    return found


def read(path: str) -> list[Suppression]:
    """Return the suppressions of a file.

    Raises:
        LuthierError: it cannot be read, or has a line that is none.
    """
    try:
        return parse(Path(path).read_text(), path)
    except (OSError, UnicodeDecodeError) as problem:
        raise LuthierError(f"cannot read the suppressions {path}: {problem}") from problem


def generate(findings: Iterable[Finding]) -> str:
    """Return a file's text by which none of these would be told."""
    lines: dict[str, None] = {}
    for one in findings:
        frame = source_of(one.frames)
        source = f"*{frame.file.replace(' ', '?')}:{frame.line}" if frame else ""
        kernel = one.kernel or ("*" if source else "")
        lines[" ".join(part for part in (one.kind, kernel, source) if part)] = None
    return "".join(f"{line}\n" for line in lines)
