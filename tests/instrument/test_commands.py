"""The command line with good and bad input: exit codes, messages, and no file left half-written."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from luthier.cli.main import main
from luthier.objects import load_object

HOOKS = """
__managed__ uint64_t counter = 0;
LUTHIER_HOOK_ANNOTATE count(uint32_t step) { luthier::sAtomicAdd<uint64_t>(&counter, step); }
"""

TOOL = """\
from dataclasses import dataclass
from pathlib import Path

from luthier import Tool, ToolModule


class Steps(Tool):
    @dataclass(frozen=True)
    class Options:
        step: int = 1
        wrong: str = ""
        module: str = "{module}"

    def instrument(self, task):
        module = ToolModule.load(self.options.module)
        arguments = {{"": (self.options.step,), "count": (), "type": (0.5,), "range": (1 << 40,)}}[self.options.wrong]
        for instruction in task.instructions:
            task.insert_hook_before(instruction, module.count, *arguments)

    def expected(self, task, counts):
        return {{"counter": self.options.step * int(counts.executions.sum())}}


class Idle(Tool):
    def instrument(self, task):
        pass
"""


@pytest.fixture
def tools(make_module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs the tools `steps`, `idle`, `broken` and `no_tool` for one test."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "steps_tool.py").write_text(TOOL.format(module=make_module(HOOKS).name))
    (folder / "broken_tool.py").write_text("raise RuntimeError('at import')\n")
    metadata = folder / "steps_tool-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: steps-tool\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[luthier.tools]\nsteps = steps_tool:Steps\nidle = steps_tool:Idle\nbroken = broken_tool:X\n"
        "no_tool = json:dumps\n"
    )
    monkeypatch.syspath_prepend(str(folder))


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def luthier(tools: None, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_patch_writes_a_self_contained_object(luthier: Run, app, tmp_path: Path) -> None:
    source, output = app("vector_add", "gfx942"), tmp_path / "out.hsaco"
    code, printed, _ = luthier("patch", source, "-t", "steps:step=3", "-o", output, "--json")
    assert code == 0
    report = json.loads(printed)
    patched, original = load_object(output), load_object(source)
    assert report["kernels"][0]["kernel"] == "vector_add"
    assert report["kernels"][0]["sites"] == report["kernels"][0]["instructions"] > 10
    variable = patched.symbol("counter")
    assert variable is not None
    assert variable.defined
    assert variable.dynamic
    assert variable.size == 8
    assert patched.read(variable.address, 8) == bytes(8)
    assert patched.kernels["vector_add"].entry != original.kernels["vector_add"].entry
    for section in original.sections:  # what was there stays where it was
        if section.name == ".text":
            assert patched.read(section.address, section.size) == original.read(section.address, section.size)


def test_cost_writes_nothing(luthier: Run, app, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, printed, _ = luthier("cost", app("reduction", "gfx90a"), "-t", "steps", "--json")
    assert code == 0
    row = json.loads(printed)["kernels"][0]
    assert row["added_instructions"] > row["instructions"]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("absent", "no tool 'absent' is installed; there are .*steps"),
        ("broken", "cannot be imported: RuntimeError"),
        ("no_tool", "not a subclass"),
        ("idle", "inserted nothing"),
        ("steps:pace=1", "no option 'pace'; it has step, wrong"),
        ("steps:step=fast", "is a int, not 'fast'"),
        ("steps:step=1,step=2", "given twice"),
        ("steps:wrong=count", "takes 1 arguments, 0 given"),
        ("steps:wrong=type", "0.5 does not fit i32"),
        ("steps:wrong=range", "outside .* of i32"),
        ("steps:module=/dev/null", "/dev/null"),
        ("steps:module={app}", "no code object with a .llvmbc section"),
    ],
)
def test_a_bad_tool_leaves_no_file(luthier: Run, app, tmp_path: Path, tool: str, message: str) -> None:
    source, output = app("vector_add", "gfx942"), tmp_path / "out.hsaco"
    code, _, error = luthier("patch", source, "-t", tool.format(app=source), "-o", output)
    assert code == 1
    assert error.startswith("luthier patch: error: ")
    assert re.search(message, error), error
    assert not output.exists()


def elf_of_machine(machine: int) -> bytes:
    """The smallest ELF header of another machine."""
    return (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, 0, 0, 64, 56, 0, 64, 0, 0)
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda data: b"", "empty|no code object|not"),
        (lambda data: data[: len(data) // 2], "past|truncated|end|outside|reach"),
        (lambda data: elf_of_machine(62), "no AMD GPU code|not AMDGPU|no code object"),
        (lambda data: b"#!/bin/sh\n", "no|not"),
    ],
)
@pytest.mark.parametrize("command", ["patch", "objects", "lift", "cost", "verify", "disasm"])
def test_bad_files(luthier: Run, app, tmp_path: Path, command: str, make, message: str) -> None:
    bad, output = tmp_path / "bad.hsaco", tmp_path / "out.hsaco"
    data = load_object(app("vector_add", "gfx942")).data
    bad.write_bytes(make(data))
    options = {
        "patch": ("-t", "steps", "-o", output),
        "cost": ("-t", "steps"),
        "verify": ("-t", "steps"),
        "lift": ("--kernel", "vector_add"),
    }
    code, _, error = luthier(command, bad, *options.get(command, ()))
    assert code == 1
    assert "Traceback" not in error
    assert "bad.hsaco" in error
    assert re.search(message, error), error
    assert not output.exists()


def test_a_missing_file_and_kernel(luthier: Run, app, tmp_path: Path) -> None:
    code, _, error = luthier("patch", tmp_path / "absent", "-t", "steps", "-o", tmp_path / "out")
    assert code == 1
    assert "absent" in error
    code, _, error = luthier(
        "patch", app("vector_add", "gfx942"), "-t", "steps", "--kernel", "nothing*", "-o", tmp_path / "out"
    )
    assert code == 1
    assert "there are vector_add" in error


def test_an_output_that_cannot_be_written(luthier: Run, app, tmp_path: Path) -> None:
    code, _, error = luthier("patch", app("vector_add", "gfx942"), "-t", "steps", "-o", tmp_path / "no" / "out")
    assert code == 1
    assert "cannot write" in error


def test_an_unknown_target(luthier: Run, app, tmp_path: Path) -> None:
    source, output = app("vector_add", "gfx942"), tmp_path / "out.hsaco"
    data = bytearray(load_object(source).data)
    data[48] = 0x7E  # EF_AMDGPU_MACH
    bad = tmp_path / "unknown.hsaco"
    bad.write_bytes(bytes(data))
    code, _, error = luthier("patch", bad, "-t", "steps", "-o", output)
    assert code == 1
    assert "EF_AMDGPU_MACH 0x7e" in error
    code, _, error = luthier("patch", source, "-t", "steps", "--target", "gfx1100", "-o", output)
    assert code == 1
    assert "gfx942" in error
    assert not output.exists()


@pytest.mark.parametrize("command", ["objects", "disasm", "lift", "patch", "cost", "verify", "tools", "new", "doctor"])
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    assert f"usage: luthier {command}" in capsys.readouterr().out
