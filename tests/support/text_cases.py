"""Text in, text out: files of cases with what is expected of each target, which can be rewritten on purpose.

A file may begin with a text that all its cases share. A case begins with ``=== name``, then comments ``# …`` and
settings ``key: value``; then a line ``---`` and the source; then further inputs, each behind a line ``--- : title``;
then for every group of targets a line ``--- target …`` and what is expected. ``LUTHIER_UPDATE=1`` rewrites the
expectations: read the diff.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass
class Case:
    """One case.

    Attributes:
        shared: the text before the first case of its file.
        inputs: further inputs by title.
        expected: by target, as the case spells it.
    """

    name: str
    path: Path
    shared: str
    comment: list[str]
    settings: dict[str, str]
    source: str
    inputs: dict[str, str] = field(default_factory=dict)
    expected: dict[str, str] = field(default_factory=dict)

    @property
    def targets(self) -> list[str]:
        return self.settings["targets"].split()


class CaseFiles:
    """All cases of a folder."""

    def __init__(self, folder: Path) -> None:
        self.cases = [case for path in sorted(folder.glob("*.test")) for case in _read(path)]

    def parameters(self) -> list[object]:
        """Return every case with every one of its targets, for `pytest.mark.parametrize`."""
        return [
            pytest.param(case, target, id=f"{case.path.stem}-{case.name}-{target}")
            for case in self.cases
            for target in case.targets
        ]

    def check(self, case: Case, target: str, found: str) -> None:
        """Compare with what is expected, or make it so."""
        if os.environ.get("LUTHIER_UPDATE"):
            case.expected[target] = found
            self._update(case.path)
        assert found == case.expected.get(target)

    def _update(self, path: Path) -> None:
        cases = [case for case in self.cases if case.path == path]
        text = [cases[0].shared]
        for case in cases:
            settings = [f"{key}: {value}" for key, value in case.settings.items()]
            text.append("\n".join([f"=== {case.name}", *case.comment, *settings, "---\n"]) + case.source)
            text += [f"--- : {title}\n{body}" for title, body in case.inputs.items()]
            groups: dict[str, list[str]] = {}
            for target in case.targets:
                if target in case.expected:
                    groups.setdefault(case.expected[target], []).append(target)
            text += [f"--- {' '.join(targets)}\n{expected}\n" for expected, targets in groups.items()]
        path.write_text("".join(text))


def _read(path: Path) -> list[Case]:
    shared, *chunks = re.split(r"^=== ", path.read_text(), flags=re.M)
    cases = []
    for chunk in chunks:
        head, *parts = re.split(r"^---(.*)\n", chunk, flags=re.M)
        name, *lines = head.strip().splitlines()
        settings = dict(line.split(": ", 1) for line in lines if not line.startswith("#"))
        comment = [line for line in lines if line.startswith("#")]
        case = Case(name, path, shared, comment, settings, parts[1])
        for title, text in zip(parts[2::2], parts[3::2], strict=True):
            if title.startswith(" : "):
                case.inputs[title.removeprefix(" : ")] = text
            else:
                case.expected.update(dict.fromkeys(title.split(), text.strip("\n")))
        cases.append(case)
    return cases
