"""The tools of docs/porting.md, compiled and run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from luthier import Tool, ToolModule, load_object, open_device, patch_object, reported
from luthier.module.tool_module import loaded_by

from luthier_build.compile import compile_device
from luthier_build.workspace import build_folder

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/porting.md").read_text()
TARGET = "gfx90a"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{re.escape(language)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def _tool(number: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Tool]:
    """The tool of the device and host code that stand at one place of the page."""
    (tmp_path / "device.hip").write_text(blocks("cpp")[number])
    with build_folder(tmp_path / "build") as held:
        built = compile_device([tmp_path / "device.hip"], [TARGET], folder=held, report=lambda line: None)
    module = ToolModule.load(built.bundle)
    names: dict[str, object] = {"__name__": "ported"}
    monkeypatch.setitem(sys.modules, "ported", type(sys)("ported"))
    with loaded_by(lambda package, name: module):
        exec(compile(blocks("python")[number], "docs/porting.md", "exec"), names)
    return names[name]  # type: ignore[return-value]


def test_both_sides_stand_beside_each_other() -> None:
    assert len(blocks("c++")) == len(blocks("cpp")) == len(blocks("python")) == 2


def test_from_nvbit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app) -> None:  # type: ignore[no-untyped-def]
    tool = _tool(0, "Bytes", tmp_path, monkeypatch)()
    patched = patch_object(load_object(app("vector_add", TARGET)), tool.instrument, strict=True)
    module = open_device(f"emu:{TARGET}").load(patched.data)
    a, b, c = np.ones(1000, np.float32), np.ones(1000, np.float32), np.zeros(1000, np.float32)
    module.kernel("vector_add").launch(a, b, c, 1000, grid=4, block=256)
    assert [table.rows for table in reported(tool, module, patched)] == [[(3 * 4 * 1000,)]]


@pytest.mark.rows(1)
@pytest.mark.parametrize("per_wave", [True, False])
def test_from_cpp_luthier(per_wave: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app) -> None:  # type: ignore[no-untyped-def]
    """Per wave, the count is the device's own; per lane, scalar instructions count once, others their lanes."""
    tool = _tool(1, "CountInstructions", tmp_path, monkeypatch)(per_wave=per_wave)
    code = app("vector_add", TARGET)
    device = open_device(f"emu:{TARGET}")
    arrays = [np.ones(1000, np.float32) for _ in range(3)]
    original = device.load(code.read_bytes()).kernel("vector_add")
    original.launch(*arrays, 1000, grid=4, block=256)
    waves, lanes = device.stats.opcodes, device.stats.opcode_lanes
    scalar = {one.mnemonic: one.is_scalar for one in original.lift().instructions}
    expected = sum(waves[name] if per_wave or scalar[name] else lanes[name] for name in waves)

    patched = patch_object(load_object(code), tool.instrument, strict=True)
    module = device.load(patched.data)
    module.kernel("vector_add").launch(*arrays, 1000, grid=4, block=256)
    assert module.variable("Counts::Counter").read(int) == expected
