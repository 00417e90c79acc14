"""Check the number of lines of tracked files against the budget of each part in scripts/size_budget.toml.

Every file belongs to the part with the longest matching folder, or to the part without folders. Pictures do not count.

Use: python scripts/size_budget.py [--lower] [ROOT]    (exit code 1: a part is over its budget, or far below it)

--lower writes the current number of lines of each part that is below its budget.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from pathlib import Path, PurePosixPath

from luthier.support.processes import run

BUDGET = "scripts/size_budget.toml"
SLACK = 0.01
"""Fraction of a budget that may be unused, so that a part that has shrunk stays small."""
PICTURES = {".png"}


def tracked(root: Path) -> list[str]:
    """Return the tracked files of a clone that exist, without pictures."""
    names = run(["git", "-C", root, "ls-files", "-z"]).split("\0")
    return [name for name in names if name and PurePosixPath(name).suffix not in PICTURES and (root / name).is_file()]


def part_of(name: str, folders: dict[str, list[str]]) -> str:
    """Return the part of a file."""
    inside = [
        (len(path), part) for part, paths in folders.items() for path in paths if f"{name}/".startswith(f"{path}/")
    ]
    return max(inside)[1] if inside else next(part for part, paths in folders.items() if not paths)


def lines_by_part(root: Path, folders: dict[str, list[str]]) -> Counter[str]:
    """Return the number of lines of each part."""
    lines = Counter(dict.fromkeys(folders, 0))
    for name in tracked(root):
        lines[part_of(name, folders)] += (root / name).read_bytes().count(b"\n")
    return lines


def lowered(text: str, part: str, lines: int) -> str:
    """Return the text of the budget file with a new number of lines for a part."""
    return re.sub(rf"(?m)^(\[{re.escape(part)}\]\nlines = )\d+", rf"\g<1>{lines}", text)


def main(arguments: list[str]) -> int:
    """Compare, print a table and return the exit code."""
    lower = "--lower" in arguments
    (root,) = [Path(word) for word in arguments if word != "--lower"] or [Path(__file__).parents[1]]
    text = (root / BUDGET).read_text()
    budget = tomllib.loads(text)
    lines = lines_by_part(root, {part: values["folders"] for part, values in budget.items()})
    wrong = []
    for part, values in budget.items():
        has, most = lines[part], values["lines"]
        print(f"{part:12} {has:8,} of {most:8,} lines")
        if has > most:
            wrong.append(f"{part}: {has - most} lines over its budget: remove lines, or raise it and give the reason")
        elif has < most and lower:
            text = lowered(text, part, has)
        elif has < most * (1 - SLACK):
            wrong.append(f"{part}: {most - has} lines below its budget: run `scripts/size_budget.py --lower`")
    print(f"{'all':12} {lines.total():8,} of {sum(values['lines'] for values in budget.values()):8,} lines")
    if lower:
        (root / BUDGET).write_text(text)
    for message in wrong:
        print(message, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
