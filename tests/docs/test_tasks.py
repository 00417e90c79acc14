"""The tasks of docs/extending.md, done by its steps in a copy of the repository."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from assembly import assembled, function, kernel_text
from kept import ROOT
from run_folders import kernel, write_run

from .conftest import Environment
from .steps import Change, Steps

PAGE = (ROOT / "docs" / "extending.md").read_text()
SECTIONS = {section.partition("\n")[0]: section for section in PAGE.split("\n## ")[1:]}
TASKS = {title: Steps.of(section) for title, section in SECTIONS.items() if Steps.of(section).changes}
ROTATES = """
from pathlib import Path

import numpy as np
from luthier import load_inline, load_object, open_device, patch_object
from luthier_build.compile import compile_application

module = load_inline(
    f'#include "{Path("my_intrinsics/include/my/intrinsics.h").resolve()}"\\n'
    "__device__ uint32_t sum;\\n"
    "LUTHIER_HOOK_ANNOTATE turn(uint32_t value) { atomicAdd(&sum, my::rotate<uint32_t>(value, 8)); }",
    targets=["gfx90a"],
)


def instrument(task):
    for one in task.select(lambda one: one.mnemonic == "global_store_dword"):
        task.insert_hook_before(one, module.turn, task.operand(one, "vdata"))


app = compile_application(Path("examples/apps/vector_add.hip"), "gfx90a", Path("app.hsaco"))
loaded = open_device("emu:gfx90a").load(patch_object(load_object(app), instrument, strict=True).data)
a, b, c = np.arange(1000, dtype=np.float32), np.full(1000, 0.5, np.float32), np.zeros(1000, np.float32)
loaded.kernel("vector_add").launch(a, b, c, 1000, grid=4, block=256)
bits = (a + b).view(np.uint32).astype(np.uint64)
assert loaded.variable("sum").read(int) == int(((bits << 8 | bits >> 24) & 0xFFFFFFFF).sum()) & 0xFFFFFFFF
"""


GENERATION = """
from luthier.arch.generation import Generation
from luthier.arch.gfx1250 import GFX1250
from luthier.arch.target import Target

GFX1260 = Generation(parent=GFX1250, generation="GFX1260", lds_bytes=64 << 10)
PROCESSORS = (Target(parent=GFX1260, name="gfx1260", mach=0xE1, llvm_processor="gfx1250"),)
"""
RUNS = """
from luthier.arch.targets import TARGETS
from luthier.emulator.inspection.bench import run_assembly

assert (TARGETS["gfx1260"].lds_bytes, TARGETS["gfx1250"].lds_bytes) == (64 << 10, 320 << 10)
assert run_assembly("gfx1260", "v_add_nc_u32 v0, v1, v2", {1: 40, 2: 2}).vgpr(0).tolist() == [42] * 32
"""


@pytest.fixture(scope="module")
def environment(reader_environment: Environment, copy: Path) -> dict[str, str]:
    return reader_environment(copy)


@pytest.fixture
def object_file(tmp_path: Path) -> Path:
    """A code object for gfx1201, whose kernel sleeps."""
    path = tmp_path / "code.co"
    path.write_bytes(assembled(kernel_text(function("k", ["s_sleep 1", "s_endpgm"]), "gfx1201"), "gfx1201").data)
    return path


def luthier(environment: Mapping[str, str], *command: str, code: int | None = 0) -> str:
    """Return the output of `luthier`."""
    done = subprocess.run(["luthier", *command], env=dict(environment), capture_output=True, text=True)
    assert code is None or done.returncode == code, done.stderr
    return done.stdout + done.stderr


def apply(title: str, copy: Path) -> Steps:
    """Make and change the files of a task."""
    steps = TASKS[title]
    for change in steps.changes:
        change.apply(copy)
    return steps


def take_out(copy: Path, change: Change) -> None:
    """Take out what a task is to add, since it is there already."""
    path = copy / change.path
    text = path.read_text()
    assert text.count(change.text) == 1
    path.write_text(text.replace(change.text, ""))


def test_which_tasks_have_steps() -> None:
    wanted = {
        "target",
        "hazard",
        "emulated operation",
        "intrinsic",
        "tool that ships",
        "report format",
        "rule of the report",
        "check",
        "option of a run",
    }
    assert {title.partition(" ")[2] for title in TASKS} == wanted


@pytest.mark.parametrize("title", TASKS)
def test_how_much_a_task_is(title: str) -> None:
    """Files and lines, as the section says."""
    assert TASKS[title].counted == TASKS[title].count()


def test_a_target(copy: Path, environment: dict[str, str], object_file: Path) -> None:
    """The processor is unknown before, and its code is read afterwards."""
    (change,) = TASKS["A target"].changes
    take_out(copy, change)
    assert "no known target has EF_AMDGPU_MACH 0x4e" in luthier(environment, "disasm", str(object_file), code=1)
    apply("A target", copy)
    assert "s_sleep 1" in luthier(environment, "disasm", str(object_file))


def test_a_generation(copy: Path, environment: dict[str, str]) -> None:
    """A new file with one fact, and a changed one that names it: the device has the fact, and executes the code."""
    arch = copy / "runtime/luthier/arch"
    (arch / "gfx1260").mkdir()
    (arch / "gfx1260/__init__.py").write_text(GENERATION)
    table = arch / "targets.py"
    names = re.compile(r"(?<=gfx12, )gfx1250(?=\)$)|(?<=gfx950, )gfx1250$", re.MULTILINE)
    named = names.sub("gfx1250, gfx1260", table.read_text())
    assert named.count("gfx1260") == 2
    table.write_text(named)
    done = subprocess.run(["python", "-c", RUNS], cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_hazard(copy: Path, environment: dict[str, str]) -> None:
    """The hazard is not found before, a row of an unknown kind is an error, and then it is found."""
    code = function("k", ["v_cmp_eq_u32 vcc, v1, v2", "v_div_fmas_f32 v0, v1, v2, v3", "s_endpgm"])
    (copy / "FILE").write_bytes(assembled(kernel_text(code, "gfx90a", vgprs=8), "gfx90a").data)
    steps = TASKS["A hazard"]
    (command,) = steps.commands
    for change in steps.changes:
        take_out(copy, change)
    assert "checked: 0 findings" in steps.run(copy, environment)[command]
    row, kind = steps.changes
    row.apply(copy)
    assert "NameError: name 'V_DIV_FMAS' is not defined" in luthier(environment, "check", str(copy / "FILE"), code=None)
    kind.apply(copy)
    assert (
        "VALU writes VCC, v_div_fmas; 0 wait states, it needs 4" in steps.run(copy, environment, but=command)[command]
    )


@pytest.mark.thorough
def test_an_emulated_operation(copy: Path, environment: dict[str, str]) -> None:
    """The operation is refused before, passes its tests afterwards, and a second definition is an error."""
    steps = TASKS["An emulated operation"]
    show, test = steps.commands
    for change in steps.changes:
        take_out(copy, change)
    assert "v_xad_u32" in luthier(environment, *show.split()[1:])
    apply("An emulated operation", copy)
    printed = steps.run(copy, environment)
    assert "v_xad_u32" not in printed[show]
    assert " passed" in printed[test]
    operation = steps.changes[0]
    operation.apply(copy)
    assert "v_xad_u32 is declared twice" in luthier(environment, *show.split()[1:], code=None)
    path = copy / operation.path
    path.write_text(path.read_text().replace(operation.text, "", 1))


@pytest.mark.thorough
def test_a_tool_that_ships(copy: Path, environment: dict[str, str]) -> None:
    """The tool is listed and described, and the tests of all tools run it in programs, against the device's counts."""
    printed = apply("A tool that ships", copy).run(copy, environment)
    page = (copy / "docs/tools.md").read_text()
    assert "| [scalar_share](../examples/tools/scalar_share/README.md) | how much of it is scalar? |" in page
    (listing,) = (text for command, text in printed.items() if command.startswith("luthier tools"))
    assert "percent: bool = False" in listing
    assert "Show shares, too." in listing
    of_tools, in_programs = (text for command, text in printed.items() if "pytest" in command)
    assert re.search(r"^\d+ passed", of_tools, re.M)
    assert re.search(r"^6 passed", in_programs, re.M)


@pytest.mark.thorough
def test_an_intrinsic(copy: Path, environment: dict[str, str]) -> None:
    """A hook calls it, at the store of a kernel."""
    apply("An intrinsic", copy).run(copy, environment)
    done = subprocess.run(["python", "-c", ROTATES], cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_report_format(copy: Path, environment: dict[str, str]) -> None:
    write_run(copy / "RUN", kernels=[kernel("first"), kernel("second")])
    apply("A report format", copy).run(copy, environment)
    page = (copy / "report.md").read_text()
    assert "## kernels\n\n| kernel | launches |" in page
    assert "\n| second | 1 |" in page
    assert "markdown: tables of Markdown" in " ".join(luthier(environment, "report", "--help").split())


@pytest.mark.thorough
def test_a_rule_of_the_report(copy: Path, environment: dict[str, str]) -> None:
    """The rule has its page, and finds what exceeds its threshold."""
    printed = apply("A rule of the report", copy).run(copy, environment)
    assert printed["luthier explain many-launches"].startswith("many-launches: a kernel is launched very often\n")
    run = write_run(copy / "RUN", kernels=[kernel("few", launches=10_000), kernel("many", launches=10_001)])
    output = luthier(environment, "report", str(run))
    assert "many-launches: many: 10001 launches" in output
    assert "few: 10000 launches" not in output


def test_a_check(copy: Path, environment: dict[str, str], object_file: Path) -> None:
    (copy / "FILE").write_bytes(object_file.read_bytes())
    steps = apply("A check", copy)
    output = steps.run(copy, environment, but="luthier check")[steps.commands[-1]]
    assert re.search(r"k: 0x\w+ sleeps$", output, re.M)
    assert "1 kernel of 2 instructions checked: 1 finding" in output


def test_an_option_of_a_run(copy: Path, environment: dict[str, str]) -> None:
    """Two lines in two files: the report shows its value."""
    printed = apply("An option of a run", copy).run(copy, environment)
    assert "--label nightly" in printed["luthier report NIGHTLY"]
    assert "--label TEXT" in luthier(environment, "run", "--help")
