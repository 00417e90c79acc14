"""Text in, text out: assembly in, the listing of its lifted form or the error out.

A file in cases/ holds cases. Each begins with ``=== name``, then settings ``key: value``, then a line ``---`` and the
assembly, then for every target a line ``--- target …`` and what is expected. ``LUTHIER_UPDATE=1`` rewrites the
expectations: read the diff.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from luthier.errors import LiftError
from luthier.lifting import lift
from luthier.lifting.listing import as_text
from luthier.objects import CodeObject

CASES = Path(__file__).parent / "cases"


@dataclass
class Case:
    name: str
    path: Path
    comment: list[str]
    settings: dict[str, str]
    source: str
    expected: dict[str, str] = field(default_factory=dict)


def read(path: Path) -> Iterator[Case]:
    for chunk in re.split(r"^=== ", path.read_text(), flags=re.M)[1:]:
        head, *parts = re.split(r"^---(.*)\n", chunk, flags=re.M)
        name, *lines = head.strip().splitlines()
        settings = dict(line.split(": ", 1) for line in lines if not line.startswith("#"))
        comment = [line for line in lines if line.startswith("#")]
        case = Case(name, path, comment, settings, parts[1])
        for targets, text in zip(parts[2::2], parts[3::2], strict=True):
            case.expected.update(dict.fromkeys(targets.split(), text.strip("\n")))
        yield case


ALL = [case for path in sorted(CASES.glob("*.test")) for case in read(path)]
PARAMETERS = [
    pytest.param(case, target, id=f"{case.path.stem}-{case.name}-{target}")
    for case in ALL
    for target in case.settings["targets"].split()
]


def listing(case: Case, target: str, assembled: Callable[..., CodeObject]) -> str:
    processor, _, wave = target.partition("/")
    code_object = assembled(
        processor,
        case.source,
        vgprs=int(case.settings.get("vgprs", "16")),
        wave=int(wave) if wave else None,
        descriptor=case.settings.get("descriptor", ""),
    )
    show = case.settings.get("show", "registers").split()
    try:
        lifted = lift(code_object, "k")
    except LiftError as problem:
        return f"error: {problem.message} at {problem.offset or 0:#x}"
    return "\n".join(as_text(lifted, instructions="instructions" in show, registers="registers" in show))


@pytest.mark.parametrize(("case", "target"), PARAMETERS)
def test_case(case: Case, target: str, assembled: Callable[..., CodeObject]) -> None:
    found = listing(case, target, assembled)
    if os.environ.get("LUTHIER_UPDATE"):
        case.expected[target] = found
        update(case.path)
    assert found == case.expected.get(target)


def update(path: Path) -> None:
    text = []
    for case in [case for case in ALL if case.path == path]:
        settings = [f"{key}: {value}" for key, value in case.settings.items()]
        text.append("\n".join([f"=== {case.name}", *case.comment, *settings, "---\n"]) + case.source)
        groups: dict[str, list[str]] = {}
        for target, expected in case.expected.items():
            if target in case.settings["targets"].split():
                groups.setdefault(expected, []).append(target)
        text += [f"--- {' '.join(targets)}\n{expected}\n" for expected, targets in groups.items()]
    path.write_text("".join(text))
