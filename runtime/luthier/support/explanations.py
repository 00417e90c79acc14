"""Pages of text that explain findings: one markdown file each, whose first line is the summary."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from luthier.errors import LuthierError

SUFFIX = ".md"
_FENCE = re.compile(r"```\w*")
_HEADING = re.compile(r"#+ ")


class Explanation(Struct, frozen=True):
    """A page of text about one finding."""

    summary: str
    """One line, without a full stop."""
    text: str
    """The page without its first line, without marks of headings and of code."""

    @classmethod
    def read(cls, path: Path) -> Explanation:
        """Read a page.

        Raises:
            LuthierError: it cannot be read, or does not begin with ``# `` and a summary.
        """
        try:
            first, _, rest = path.read_text(encoding="utf-8").partition("\n")
        except (OSError, UnicodeDecodeError) as problem:
            raise LuthierError(f"the explanation {path} cannot be read: {problem}") from problem
        summary = first.removeprefix("# ").strip()
        if not first.startswith("# ") or not summary:
            raise LuthierError(f"the explanation {path} must begin with '# ' and a summary, not {first!r}")
        lines: list[str] = []
        is_code = False
        for line in rest.strip("\n").split("\n"):
            if _FENCE.fullmatch(line):
                is_code = not is_code
            else:
                lines.append(f"    {line}".rstrip() if is_code else _HEADING.sub("", line, count=1))
        return cls(summary, "\n".join(lines))


def explanations_in(folder: Path) -> dict[str, Path]:
    """Return the pages of a folder by their names, which are those of the files without the suffix."""
    return {path.stem: path for path in sorted(folder.glob(f"*{SUFFIX}"))}
