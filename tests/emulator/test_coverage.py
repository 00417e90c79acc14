"""The emulator knows nearly all of what LLVM knows, says so, and can generate code for all of it."""

from __future__ import annotations

import os

import llvmlite.binding as llvm
import pytest
from llvmlite import ir
from luthier.cli.main import main
from luthier.emulator.bind import Binder
from luthier.emulator.builder import FloatMode
from luthier.emulator.coverage import NOT_COMPUTE, coverage, samples
from luthier.emulator.declare import Unsupported
from luthier.emulator.emit import emit
from luthier.emulator.variant import Variant
from luthier.mc import Isa

TARGETS = ("gfx906", "gfx950", "gfx1151", "gfx1201")
if "LUTHIER_FUZZ" in os.environ:
    TARGETS += ("gfx1030", "gfx908", "gfx90a", "gfx942", "gfx1100", "gfx1200")


@pytest.mark.parametrize("target", TARGETS)
def test_at_least_95_percent(target: str) -> None:
    found = coverage(target)
    assert found.share() >= 0.95, sorted(found.refused)
    assert len(found.exact) > 500
    assert len(found.bounded) < len(found.exact) / 10


def test_command_names_what_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emulator", "coverage", "gfx950", "--refused"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("gfx950: 9")
    assert "s_rfe_b64: no operation s_rfe_b64" in text


def test_command_refuses_an_unknown_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emulator", "coverage", "gfx1"]) == 1
    assert "gfx1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mode", "targets"),
    [
        (FloatMode(), ("gfx950",)),
        (FloatMode(round32=3, round16_64=1, denorm32=0, denorm16_64=0, dx10_clamp=False, ieee=False), ("gfx1201",)),
    ],
    ids=["usual", "unusual"],
)
def test_code_is_generated_for_every_operation(mode: FloatMode, targets: tuple[str, ...]) -> None:
    """Valid LLVM for every opcode, under the usual and an unusual MODE."""
    done: set[Variant] = set()
    for target in targets:
        isa = Isa.of(target)
        binder = Binder(isa)
        module = ir.Module(target)
        for number, (code, index) in samples(isa).items():
            if isa.opcode(number).flags & NOT_COMPUTE:
                continue
            try:
                variant = binder.bind(code, index, 0, mode).variant
            except Unsupported:
                continue
            if variant not in done:
                done.add(variant)
                emit(module, variant)
        llvm.parse_assembly(str(module)).verify()
    assert len(done) > 800
