"""Text in, text out (../support/text_cases.py): assembly in, the listing of its lifted form or the error out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from luthier.errors import LiftError
from luthier.lifting import lift
from luthier.lifting.listing import as_text
from luthier.objects import CodeObject
from text_cases import Case, CaseFiles

CASES = CaseFiles(Path(__file__).parent / "cases")


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


@pytest.mark.parametrize(("case", "target"), CASES.parameters())
def test_case(case: Case, target: str, assembled: Callable[..., CodeObject]) -> None:
    CASES.check(case, target, listing(case, target, assembled))
