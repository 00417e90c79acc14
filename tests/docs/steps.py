"""The steps of a section of docs/extending.md: which files they make or change, and what is run then."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

STEP = re.compile(r"^\d+\. (.*?)(?=^\d+\. |^\*\d|\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^ {3}```(\w+)\n(.*?)^ {3}```$", re.MULTILINE | re.DOTALL)
PLACE = re.compile(
    r"`(?P<made>[\w./-]+)`:|At the end of `(?P<end>[\w./-]+)`|In `(?P<file>[\w./-]+)`, after `(?P<after>[^`]+)`"
)
"""How a step that has a file begins."""


@dataclass(frozen=True)
class Change:
    """A file that is made, or what is put into one."""

    path: str
    text: str
    is_new: bool = False
    after: str = ""
    """Part of the line behind which it is put; empty: at the end."""

    def apply(self, root: Path) -> None:
        """Do it."""
        path = root / self.path
        if self.is_new:
            assert not path.exists(), path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.text)
            return
        text = path.read_text()
        if not self.after:
            path.write_text(f"{text}\n\n{self.text}")
            return
        (line,) = (line for line in text.splitlines(keepends=True) if self.after in line)
        path.write_text(text.replace(line, line + self.text))


@dataclass(frozen=True)
class Steps:
    """The steps of a section."""

    changes: tuple[Change, ...]
    commands: tuple[str, ...]
    counted: str
    """The section's own statement of their size."""

    @classmethod
    def of(cls, section: str) -> Steps:
        """Read them."""
        below = re.search(r"In the folder `([\w./-]+)`:", section)
        changes, commands = [], []
        for step in STEP.findall(section):
            blocks = [(one[1], re.sub("^ {3}", "", one[2], flags=re.M)) for one in BLOCK.finditer(step)]
            place = PLACE.match(step)
            if place and place["made"] and blocks:
                path = f"{below[1]}/{place['made']}" if below else place["made"]
                changes.append(Change(path, blocks.pop(0)[1], is_new=True))
            elif place and blocks:
                changes.append(Change(place["end"] or place["file"], blocks.pop(0)[1], after=place["after"] or ""))
            assert {language for language, _ in blocks} <= {"sh"}, step
            commands += [line for _, text in blocks for line in text.splitlines()]
        counted = re.search(r"^\*(\d.*)\.\*$", section, re.MULTILINE)
        return cls(tuple(changes), tuple(commands), counted[1] if counted else "")

    def count(self) -> str:
        """Return the size of the changes in the page's words."""
        return "; ".join(self._counts())

    def _counts(self) -> Iterator[str]:
        for is_new, what in ((True, "new"), (False, "changed")):
            texts = {one.path: one.text for one in self.changes if one.is_new == is_new}
            lines = sum(text.count("\n") for text in texts.values())
            if texts:
                yield f"{_number(len(texts), f'{what} file')}, {_number(lines, 'line')}"

    def run(self, folder: Path, environment: Mapping[str, str], but: str = "") -> dict[str, str]:
        """Run the commands; what each printed.

        Args:
            but: the beginning of the one that ends with 1.
        """
        printed = {}
        for command in self.commands:
            done = subprocess.run(
                ["bash", "-c", command], cwd=folder, env=dict(environment), capture_output=True, text=True
            )
            expected = 1 if but and command.startswith(but) else 0
            assert done.returncode == expected, f"{command}\n{done.stdout}\n{done.stderr}"
            printed[command] = done.stdout
        return printed


def _number(count: int, what: str) -> str:
    return f"{count} {what}" + ("s" if count != 1 else "")
