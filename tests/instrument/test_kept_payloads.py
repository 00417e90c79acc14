"""Payloads in the disk cache: equal to LLVM's, whatever process wrote them and whatever the state of the file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from luthier.isa.targets import TargetId
from luthier.module import ToolModule
from luthier.payload import Argument, ConstantArgument, RegisterArgument
from luthier.payload import cache as module
from luthier.payload.cache import template_for
from luthier.payload.template import Template
from msgspec.structs import asdict

SOURCE = """
__device__ uint64_t total = 0;
__device__ uint32_t places[64];
LUTHIER_HOOK_ANNOTATE count(uint64_t weight) { luthier::sAtomicAdd<uint64_t>(&total, weight); }
LUTHIER_HOOK_ANNOTATE note(uint32_t place, uint32_t value) { places[place & 63] += value; }
LUTHIER_HOOK_ANNOTATE give() {
  luthier::writeReg<uint32_t>(luthier::VGPR2, luthier::readReg<uint32_t>(luthier::VGPR3));
}
LUTHIER_HOOK_ANNOTATE fence() { __threadfence(); }
"""
TARGETS = ("gfx90a", "gfx1100")
CASES: list[tuple[str, tuple[Argument, ...]]] = [
    ("count", (ConstantArgument("1"),)),
    ("count", (ConstantArgument("2"),)),
    ("note", (RegisterArgument(False), RegisterArgument(True))),
    ("note", (RegisterArgument(True), RegisterArgument(False))),
    ("note", (RegisterArgument(True), ConstantArgument("5"))),
    ("give", ()),
    ("fence", ()),
]


def described(template: Template) -> tuple[object, ...]:
    """All that a template is, but for its own identity."""
    fields = {name: value for name, value in asdict(template).items() if name != "code"}
    return template.code.code, repr(sorted(fields.items()))


def all_of(tool: ToolModule) -> list[tuple[object, ...]]:
    """Every case for every target, generated or read from the cache."""
    made = []
    for target in map(TargetId.parse, TARGETS):
        for name, arguments in CASES:
            hook = tool.hook(name)
            template = template_for.__wrapped__(hook, arguments, target, target.target.default_wave_size)
            made.append(described(template))
    return made


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hooks that LLVM compiles meanwhile."""
    names: list[str] = []
    generate = module.generate

    def noted(*arguments: object) -> object:
        names.append(str(arguments[1]))
        return generate(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "generate", noted)
    return names


@pytest.fixture
def tool(make_module: Callable[..., ToolModule]) -> ToolModule:
    return make_module(SOURCE, *TARGETS)


def test_what_is_kept_is_what_llvm_makes(
    tool: ToolModule, compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUTHIER_CACHE_DIR", "")
    wanted = all_of(tool)
    count = len(CASES) * len(TARGETS)
    assert len(set(wanted)) == len(compiled) == count
    monkeypatch.setenv("LUTHIER_CACHE_DIR", str(tmp_path))
    assert all_of(tool) == wanted
    assert len(compiled) == 2 * count
    assert all_of(tool) == wanted
    assert len(compiled) == 2 * count


def test_damage_is_made_good(
    tool: ToolModule, compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    randomness = np.random.default_rng(1)
    monkeypatch.setenv("LUTHIER_CACHE_DIR", str(tmp_path / "clean"))
    wanted = all_of(tool)
    ((_, data),) = [(path, path.read_bytes()) for path in (tmp_path / "clean/payloads").rglob("*.sqlite")]
    for number, damage in enumerate(("cut", "noise")):
        folder = tmp_path / str(number)
        monkeypatch.setenv("LUTHIER_CACHE_DIR", str(folder))
        path = folder / "payloads" / next((tmp_path / "clean/payloads").rglob("*.sqlite")).name
        path.parent.mkdir(parents=True)
        spoilt = bytearray(data)
        for at in randomness.integers(4096, len(data), 300):
            spoilt[at] ^= 0xFF
        path.write_bytes(data[: len(data) // 2] if damage == "cut" else spoilt)
        compiled.clear()
        assert all_of(tool) == wanted
        assert compiled
        compiled.clear()
        assert all_of(tool) == wanted
        assert len(compiled) < len(wanted)


def test_many_processes_at_once(tool: ToolModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUTHIER_CACHE_DIR", "")
    wanted = all_of(tool)
    monkeypatch.setenv("LUTHIER_CACHE_DIR", str(tmp_path))
    children = []
    for _ in range(6):
        child = os.fork()
        if child == 0:
            good = False
            try:
                good = all_of(tool) == wanted
            finally:
                os._exit(0 if good else 1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
