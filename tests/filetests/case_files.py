"""Files of cases: assembly in, text out for every target. A case is a line (`Line`), or has sections.

A file of cases with sections may begin with a text that all its cases share. A case begins with ``=== name``, comments
``# …`` and settings ``key: value``. Three sections follow: ``---`` is the source, ``--- as if`` a source that does the
same without hooks, and ``--- expect`` the expected text. A line of the expected text holds for all targets of the case,
or for those after its ``@``: ``gfx1100/64`` is a processor with a wave size, ``gfx11`` all processors of a generation.

../support/assembled_cases.py describes sources. They use the macros of ../support/dialects.s.

``pytest -n0 tests/filetests --bless`` writes the expected texts. Review the diff.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

_TAGS = " @ "
_SPELLINGS = [
    (r"exec_lo", "exec"),
    (r"_e(32|64)\b", ""),
    (r"_dword\b", "_b32"),
    (r"_dwordx(\d)", lambda match: f"_b{32 * int(match[1])}"),
    (r"_atomic_add_x2", "_atomic_add_u64"),
    (r"_add_(?:co_ci|c)_u32", "_addc_u32"),
    (r"_add_(?:co|nc)_u32", "_add_u32"),
    (r"s_wait(?:cnt_depctr|_alu) (?:depctr_\w+\(0\) ?){7}$", "s_wait_alu 0"),
    (r"s_waitcnt_depctr", "s_wait_alu"),
    (r"s_waitcnt lgkmcnt\(0\)", "s_wait_kmcnt 0x0"),
    (r"s_waitcnt vmcnt\((\d+)\)$", r"s_wait_loadcnt 0x\1"),
    (r"s_waitcnt_vscnt null,", "s_wait_storecnt"),
    (r", null$", ", 0x0"),
]
"""Patterns and replacements that give all generations one spelling."""


def one_spelling(text: str) -> str:
    """Return disassembly in the spelling of expected texts."""
    for pattern, spelling in _SPELLINGS:
        text = re.sub(pattern, spelling, text, flags=re.MULTILINE)
    return text


@dataclass
class Case:
    """One case.

    Attributes:
        shared: the text before the first case of its file.
        as_if: a source that does without hooks what this one does with them.
        expected: lines by target.
    """

    name: str
    path: Path
    shared: str
    comment: list[str]
    settings: dict[str, str]
    source: str
    as_if: str = ""
    expected: dict[str, list[str]] = field(default_factory=dict)

    @property
    def targets(self) -> list[str]:
        return self.settings["targets"].split()

    def __str__(self) -> str:
        settings = [f"{key}: {value}" for key, value in self.settings.items()]
        text = "\n".join([f"=== {self.name}", *self.comment, *settings, "---\n"]) + self.source
        text += f"--- as if\n{self.as_if}" if self.as_if else ""
        first = {target: lines[:1] for target, lines in self.expected.items()}
        rest = {target: lines[1:] for target, lines in self.expected.items()}
        merged = _merged(first, self.targets) + _merged(rest, self.targets)
        lines = [_tagged(line, targets, self.targets) for line, targets in merged]
        return "\n".join([f"{text}--- expect", *lines, ""]) if lines else text


class CaseFiles:
    """All cases of a folder."""

    def __init__(self, folder: str) -> None:
        paths = sorted((Path(__file__).parent / folder).glob("*.test"))
        self.cases = [case for path in paths for case in _read(path)]

    def parameters(self) -> list[object]:
        """Return every case with every one of its targets, for `pytest.mark.parametrize`."""
        return [
            pytest.param(case, target, id=f"{case.path.stem}-{case.name}-{target}")
            for case in self.cases
            for target in case.targets
        ]

    def check(self, case: Case, target: str, text: str, *, bless: bool) -> None:
        """Compare a text with the expected one, or make it the expected one."""
        lines = one_spelling(text).split("\n")
        if bless and lines != case.expected.get(target):
            case.expected[target] = lines
            cases = [other for other in self.cases if other.path == case.path]
            case.path.write_text(case.shared + "".join(map(str, cases)))
        assert lines == case.expected.get(target)


class Line(NamedTuple):
    """A case of one line: ``targets setting=number …: instruction; … => expected``.

    Attributes:
        number: the first line of the file is 1.
        body: instructions; functions follow ``func name``.
    """

    path: Path
    number: int
    target: str
    settings: dict[str, int]
    body: str
    expected: str

    def check(self, text: str, *, bless: bool) -> None:
        """Compare a text with the expected one, or make it the expected one of all targets of the line."""
        if bless and text != self.expected:
            lines = self.path.read_text().splitlines()
            lines[self.number - 1] = lines[self.number - 1].partition(" => ")[0] + (f" => {text}" if text else "")
            self.path.write_text("\n".join(lines) + "\n")
            return
        assert text == self.expected


def line_cases(folder: str, name: str = "*") -> list[Any]:
    """Return the lines of files, each with every one of its targets, for `pytest.mark.parametrize`."""
    cases = []
    for path in sorted((Path(__file__).parent / folder).glob(f"{name}.test")):
        for number, text in enumerate(path.read_text().splitlines(), 1):
            head, _, rest = text.partition(": ")
            body, _, expected = rest.partition(" => ")
            settings = dict(word.split("=") for word in head.split() if "=" in word)
            numbers = {key: int(value) for key, value in settings.items()}
            for target in head.split() if not text.startswith("#") else ():
                if "=" not in target:
                    line = Line(path, number, target, numbers, body, expected)
                    cases.append(pytest.param(line, id=f"{path.stem}-{number}-{target}"))
    return cases


def _read(path: Path) -> list[Case]:
    shared, *chunks = re.split(r"^=== ", path.read_text(), flags=re.MULTILINE)
    cases = []
    for chunk in chunks:
        head, *parts = re.split(r"^---(.*)\n", chunk, flags=re.MULTILINE)
        sections = dict(zip(parts[::2], parts[1::2], strict=True))
        name, *lines = head.strip().splitlines()
        settings = dict(line.split(": ", 1) for line in lines if not line.startswith("#"))
        comment = [line for line in lines if line.startswith("#")]
        case = Case(name, path, shared, comment, settings, sections[""], sections.get(" as if", ""))
        listing = [_parted(line) for line in sections.get(" expect", "").splitlines()]
        for target in case.targets:
            case.expected[target] = [line for line, tags in listing if _holds(target, tags)]
        cases.append(case)
    return cases


def _parted(line: str) -> tuple[str, list[str]]:
    text, _, tags = line.partition(_TAGS)
    return (text.rstrip() if tags else line), tags.split()


def _holds(target: str, tags: list[str]) -> bool:
    return not tags or target in tags or _generation(target) in tags


def _generation(target: str) -> str:
    """Return the processor's name without its last two characters, which are the minor version and the stepping."""
    return target.partition("/")[0][:-2]


def _merged(expected: dict[str, list[str]], targets: list[str]) -> list[tuple[str, set[str]]]:
    """Return the lines of all targets in an order that keeps that of each, with the targets that have them."""
    merged: list[tuple[str, set[str]]] = []
    for target in targets:
        lines = expected.get(target, [])
        matcher = difflib.SequenceMatcher(None, [line for line, _ in merged], lines, autojunk=False)
        result: list[tuple[str, set[str]]] = []
        for kind, first, last, start, end in matcher.get_opcodes():
            if kind == "equal":
                result += [(line, having | {target}) for line, having in merged[first:last]]
            else:
                result += merged[first:last] + [(line, {target}) for line in lines[start:end]]
        merged = result
    return merged


def _tagged(line: str, having: Iterable[str], targets: list[str]) -> str:
    """Return a line with the shortest tags of the targets that have it."""
    tags: list[str] = []
    for target in sorted(having, key=targets.index):
        family = {other for other in targets if _generation(other) == _generation(target)}
        tag = _generation(target) if len(family) > 1 and family <= set(having) else target
        tags += [tag] * (tag not in tags)
    return line if set(having) == set(targets) else f"{line:<55}{_TAGS}{' '.join(tags)}"
