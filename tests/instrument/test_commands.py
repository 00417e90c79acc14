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
from luthier.tool.task import reg


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


class Second(Tool):
    def instrument(self, task):
        module = ToolModule.load("{second}")
        for instruction in task.instructions:
            task.insert_hook_before(instruction, module.also)

    def expected(self, task, counts):
        return {{"second": int(counts.executions.sum())}}


class Refused(Tool):
    @dataclass(frozen=True)
    class Options:
        only: bool = False

    def instrument(self, task):
        module = ToolModule.load("{second}")
        for number, instruction in enumerate(task.instructions):
            if number in (1, 3, 5):
                task.insert_hook_before(instruction, module.uses, reg("v200"))
            if not self.options.only:
                task.insert_hook_before(instruction, module.also)


class Clash(Steps):
    @dataclass(frozen=True)
    class Options:
        step: int = 1
        wrong: str = ""
        module: str = "{clash}"


class Idle(Tool):
    def instrument(self, task):
        pass
"""


@pytest.fixture
def tools(make_module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs the tools `steps`, `idle`, `broken` and `no_tool` for one test."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "steps_tool.py").write_text(
        TOOL.format(
            module=make_module(HOOKS, in_file=True).name,
            second=make_module(SECOND_HOOKS, in_file=True).name,
            clash=make_module("// of another tool" + HOOKS, in_file=True).name,
        )
    )
    (folder / "failing_tool.py").write_text("raise RuntimeError('at import')\n")
    metadata = folder / "steps_tool-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: steps-tool\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[luthier.tools]\nsteps = steps_tool:Steps\nidle = steps_tool:Idle\nsecond = steps_tool:Second\n"
        "refused = steps_tool:Refused\n"
        "clash = steps_tool:Clash\nbroken = failing_tool:X\n"
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


def test_a_patched_object_is_disassembled(luthier: Run, app, tmp_path: Path) -> None:
    """Its only kernel has moved: no function is left in the old section."""
    source, output = app("vector_add", "gfx942"), tmp_path / "out.hsaco"
    assert luthier("patch", source, "-t", "steps", "-o", output)[0] == 0
    code, printed, error = luthier("disasm", output)
    assert (code, error) == (0, "")
    assert "<vector_add>: // kernel" in printed
    assert "// no function" in printed


SECOND_HOOKS = """
__managed__ uint64_t second = 0;
LUTHIER_HOOK_ANNOTATE also() { luthier::sAtomicAdd<uint64_t>(&second, 1); }
LUTHIER_HOOK_ANNOTATE uses(uint32_t x) { atomicAdd(reinterpret_cast<unsigned long long *>(&second), x); }
"""


def test_several_tools_work_in_one_object(luthier: Run, app, tmp_path: Path) -> None:
    source, output = app("vector_add", "gfx942"), tmp_path / "out.hsaco"
    both = ("-t", "steps:step=3", "-t", "second")
    code, printed, error = luthier("patch", source, *both, "-o", output, "--json")
    assert (code, error) == (0, "")
    report = json.loads(printed)
    (row,) = report["kernels"]
    assert row["insertions"] == 2 * row["sites"] == 2 * row["instructions"]
    assert report["variables"] == {"counter": 8, "second": 8}
    code, printed, _ = luthier("cost", source, *both, "--json")
    assert code == 0
    assert json.loads(printed)["kernels"] == report["kernels"]
    code, printed, _ = luthier("verify", source, *both, "--json")
    assert code == 0
    (verdict,) = json.loads(printed)
    assert verdict["expected"] == verdict["counters"]
    assert verdict["counters"]["counter"] == 3 * verdict["counters"]["second"] == 3 * verdict["instructions"][0]


@pytest.mark.parametrize("command", ["patch", "cost", "verify"])
@pytest.mark.parametrize(
    ("named", "message"),
    [
        (("steps", "steps:step=2"), "tool steps is given 2 times"),
        (("steps", "clash"), "two tools define the variable counter"),
        (("steps", "idle"), "tool idle inserted nothing into vector_add"),
        (("idle",), "tool idle inserted nothing into vector_add"),
    ],
)
def test_tools_that_cannot_work_together(
    luthier: Run, app, tmp_path: Path, command: str, named: tuple[str, ...], message: str
) -> None:
    output = tmp_path / "out.hsaco"
    options = [option for tool in named for option in ("-t", tool)] + (["-o", output] if command == "patch" else [])
    code, _, error = luthier(command, app("vector_add", "gfx942"), *options)
    assert code == 1
    assert message in error
    assert not output.exists()


def test_an_application_with_a_symbol_of_the_tool(
    luthier: Run, compile_object: Callable[..., Path], tmp_path: Path
) -> None:
    source = '#include <hip/hip_runtime.h>\n__device__ int counter;\nextern "C" __global__ void k() { ++counter; }'
    code, _, error = luthier("patch", compile_object(source, "gfx942"), "-t", "steps", "-o", tmp_path / "out.hsaco")
    assert code == 1
    assert "defines the symbol counter, and so does the tool: rename its variable, or use `luthier run`" in error


def test_refusals_are_said_and_listed(luthier: Run, app, tmp_path: Path) -> None:
    source, output = app("vector_add", "gfx942"), tmp_path / "out.hsaco"
    code, printed, error = luthier("patch", source, "-t", "refused", "-o", output, "--json")
    assert code == 0
    assert output.exists()
    (row,) = json.loads(printed)["kernels"]
    assert f"vector_add: {row['sites']} of {row['sites']} sites ({row['sites']} of {row['sites'] + 3} hooks)" in error
    assert "3 refused, no such register, first at 0x" in error
    assert [one["kind"] for one in row["refusals"]] == ["no such register"] * 3
    assert all(one["hook"] and one["address"] and one["place"] == "before" for one in row["refusals"])
    output.unlink()
    code, printed, error = luthier("patch", source, "-t", "refused", "-o", output, "--strict")
    assert (code, printed) == (1, "")
    assert "uses v200" in error
    assert not output.exists()
    code, printed, error = luthier("patch", source, "-t", "refused:only=yes", "-o", output, "--json")
    assert code == 1
    assert "nothing could be instrumented" in error
    assert len(json.loads(printed)["kernels"][0]["refusals"]) == 3
    assert not output.exists()
    code, printed, error = luthier("verify", source, "-t", "refused")
    assert code == 0
    assert "3 refused, no such register" in error
    assert "NOT COUNTED" in printed


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
        ("absent", "no tool 'absent' is installed; installed are .*steps"),
        ("broken", "cannot be imported: RuntimeError"),
        ("no_tool", "not a subclass"),
        ("idle", "inserted nothing"),
        ("steps:pace=1", "no option 'pace'; it has step, wrong"),
        ("steps:step=fast", "must be a whole number, not 'fast'"),
        ("steps:step=1,step=2", "given twice"),
        ("steps:wrong=count", "takes 1 arguments, not 0"),
        ("steps:wrong=type", "0.5 does not fit i32"),
        ("steps:wrong=range", "outside .* of i32"),
        ("steps:module=/dev/null", "/dev/null"),
        ("steps:module={app}", "no code object has a .llvmbc section"),
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
    assert "choose from vector_add" in error


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
