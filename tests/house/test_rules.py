"""The rules of the house find what is planted, and nothing in what stands."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
RULES = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "house_rules.py")))
findings: Callable[[str, str], Iterator[str]] = RULES.findings

DECIDES = [
    "if target.major >= 11: pass",
    "if lifted.target.major == 9: pass",
    "wait = {11: 'a', 12: 'b'}[isa.target.target.major]",
    "wait = WAITS.get(target.major)",
    "old = target.major in (9, 10)",
    "def f(target):\n    major = target.major\n    return major < 12",
    "match target.major:\n    case 9: pass",
    "if target.generation == 'GFX11': pass",
    "if target.emulated_major < 11: pass",
    "if target.name == 'gfx942': pass",
    "if target.name in ('gfx90a', 'gfx942'): pass",
    "if target.name.startswith('gfx94'): pass",
    "if target.name.startswith(('gfx101', 'gfx10-1')): pass",
    "count = COUNTS['gfx942']",
    "COUNTS = {'gfx942': 4}",
    "match target.name:\n    case 'gfx942': pass",
    "from luthier.arch.gfx11 import GFX11\nnew = target.generation is GFX11",
]
HARMLESS = [
    "if target.lane_mask_wait is not None: pass",
    "table = operations_of(target.emulated_major)",
    "variant = Variant('luthier_unbound', 64, target.major)",
    "DEFAULT_TARGETS = ('gfx90a', 'gfx942')",
    "isa = Isa.of('gfx942', 64)",
    "text = f'{name} is no gfx942'",
    "field = _bits(0, 32, until=GFX11)",
]
PRINTS = [
    "print(name)",
    "print(f'{name}: wrong', file=sys.stderr)",
    "sys.stdout.write(name)",
    "sys.__stderr__.write(name)",
    "sys.stderr.writelines(names)",
    "write(sys.stdout.buffer)",
    "json.dump(value, sys.stdout, indent=2)",
    "os.write(2, name.encode())",
    "os.write(sys.stderr.fileno(), name)",
    "traceback.print_exc()",
    "traceback.print_exception(problem, file=sys.stderr)",
    "parser = argparse.ArgumentParser()",
]
PRINTS_NOTHING = [
    "say(name)",
    "say_text(text, file=sys.stderr)",
    "sys.stdout.flush()",
    "if sys.stderr.isatty(): pass",
    "json.dump(value, file)",
    "os.write(descriptor, data)",
    "file.write(name)",
    "parser = Parser()",
    "def f(parser: argparse.ArgumentParser): pass",
    "printer.print(name)",
    "blueprint(name)",
]
UNITS = [
    "vcc = 106",
    "registers = range(106, 108)",
    "mask = 3 << 126",
    "place = 124 * 4",
    "if unit < 256: pass",
    "VGPRS = range(256, 512)",
    "values = {'vgpr_bytes': min(256, count)}",
    "f(vgprs=256)",
    "vector = unit - 1280",
    "if unit == 128: pass",
    "while unit >= 256:\n    alignment = 4",
]
NO_UNITS = [
    "ENTRY_ALIGNMENT = 256",
    "values = {'alignment': 256, 'vgpr_bytes': count}",
    "size = min(256, kernel.max_flat_workgroup_size or 256)",
    "CHUNK = 1 << 16",
    "f(align=256, vgprs=count)",
    "if unit < count:\n    alignment = 256",
]


@pytest.mark.parametrize("path", ["runtime/luthier/cli/run.py", "runtime/luthier/arch/target.py"])
@pytest.mark.parametrize("text", ["What it is.", "Whether it is so.", "How many there are.", "From one to the other."])
@pytest.mark.parametrize("code", ['"""{}"""', 'def f():\n    """{}"""', 'class C:\n    """{}\n\n    More."""'])
def test_summaries_without_a_verb_are_found(code: str, text: str, path: str) -> None:
    assert any(": english: " in found for found in findings(path, code.format(text)))
    assert list(findings(path, code.format("Return it. What is it?"))) == []


@pytest.mark.parametrize("name", ["one", "found", "told", "said", "here", "there", "mine", "others"])
@pytest.mark.parametrize(
    "code",
    [
        "{} = 1",
        "for {} in values: pass",
        "def f({}): pass",
        "def f(*, {}=1): pass",
        "key = lambda {}: 1",
        "with open(path) as {}: pass",
        "a, {} = values",
    ],
)
def test_names_that_say_nothing_are_found(code: str, name: str) -> None:
    for check in (findings, RULES.worded):
        assert any(": locals: " in breach for breach in check("tests/run/test_x.py", code.format(name)))
    assert list(findings("runtime/luthier/cli/run.py", f"names = [{name}.name for {name} in values]")) == []


def test_classes_that_share_a_name_are_found() -> None:
    texts = {"runtime/luthier/a.py": "class Step: pass", "luthier_build/b.py": "def f():\n    class Step: pass"}
    (breach,) = RULES.shared_classes(texts)
    assert breach.startswith("runtime/luthier/a.py:1: classes: Step")
    assert "luthier_build/b.py:2" in breach
    assert list(RULES.shared_classes({"a.py": "class Step: pass", "b.py": "class Stop: pass"})) == []


@pytest.mark.parametrize("text", ["control is nobody knows where", "names of strangers' files", "it is no error if so"])
def test_phrases_are_found(text: str) -> None:
    for path in ("docs/running.md", "tests/run/test_x.py"):
        assert any(": english: " in breach for breach in RULES.worded(path, f'"""{text}"""'))


@pytest.mark.parametrize("message", ['f"{count} times"', '"wrong"', 'f"no {name}"'])
def test_messages_that_are_no_sentences_are_found(message: str) -> None:
    code = f"def f():\n    raise LuthierError({message})"
    assert any(": english: " in breach for breach in findings("runtime/luthier/cli/run.py", code))
    good = code.replace(message, '"--times must be at least 1, not 0"')
    assert list(findings("runtime/luthier/cli/run.py", good)) == []


@pytest.mark.parametrize("path", ["runtime/luthier/hazards/wait_states/kinds.py", "runtime/luthier/isa/native.py"])
@pytest.mark.parametrize("code", DECIDES)
def test_comparing_generations_is_found(code: str, path: str) -> None:
    assert any(": facts: " in found for found in findings(path, code))


@pytest.mark.parametrize("code", DECIDES)
@pytest.mark.parametrize("path", ["runtime/luthier/arch/targets.py", "runtime/luthier/emulator/operations/lds.py"])
def test_facts_may_be_compared_where_they_live(code: str, path: str) -> None:
    assert list(findings(path, code)) == []


@pytest.mark.parametrize("code", UNITS)
def test_bare_units_are_found(code: str) -> None:
    assert any(": units: " in found for found in findings("runtime/luthier/patch/registers/copies.py", code))
    assert list(findings("runtime/luthier/isa/registers.py", code)) == []


@pytest.mark.parametrize("path", ["runtime/luthier/cli/run.py", "luthier_build/jobs.py", "runtime/luthier/isa/mc.py"])
@pytest.mark.parametrize("code", PRINTS)
def test_printing_past_the_terminal_module_is_found(code: str, path: str) -> None:
    assert any(": foreign: " in found for found in findings(path, code))
    assert list(findings("runtime/luthier/terminal.py", code)) == []


@pytest.mark.parametrize("code", PRINTS_NOTHING)
def test_what_prints_nothing_is_not_found(code: str) -> None:
    assert list(findings("runtime/luthier/cli/run.py", code)) == []


@pytest.mark.parametrize("code", [*HARMLESS, *NO_UNITS])
def test_what_is_no_breach_is_not_found(code: str) -> None:
    assert list(findings("runtime/luthier/hazards/insertion.py", code)) == []


def test_versions_of_clang_are_no_generations() -> None:
    code = "if toolchain.major < 22: pass\nmajor = int(match[1])\nif major >= 17: pass"
    assert list(findings("luthier_build/toolchain.py", code)) == []
    assert list(findings("luthier_build/toolchain.py", "if identity.target.major > 9: pass"))


@pytest.mark.parametrize(
    "code",
    ["if (isa.major() >= 11) {", "return major_ == 9;", "switch (target->major) {", 'if (cpu.starts_with("gfx94")) {',
     'return name == "gfx942";', "if (9 < plan.major)"],
)  # fmt: skip
def test_comparing_generations_in_c_is_found(code: str) -> None:
    assert list(findings("runtime/native/virtual_device/launch.cpp", code))
    assert list(findings("runtime/native/mc/decode.cpp", code)) == []


def test_harmless_c() -> None:
    for code in ("p.EngineId.ui32.Major = gpu->major;", "// since major >= 11", "uint64_t major, minor, stepping;"):
        assert list(findings("runtime/native/virtual_device/launch.cpp", code)) == []


@pytest.mark.parametrize(
    ("path", "code", "broken"),
    [
        ("runtime/luthier/patch/output/object.py", "from luthier import lift", True),
        ("runtime/luthier/patch/output/object.py", "def f():\n    from luthier import CodeObject", True),
        ("runtime/luthier/emulator/running/launch.py", "from luthier.emulator import EmulatedDevice", True),
        ("runtime/luthier/lifting/effects.py", "from luthier import _mc", False),
        ("runtime/luthier/cli/main.py", "from luthier import __version__", False),
        ("runtime/luthier/lifting/regions.py", "from luthier.isa import registers", False),
        ("runtime/luthier/lifting/__init__.py", "from luthier.lifting.model import Clause", False),
        ("luthier_build/check.py", "from luthier import lift", False),
    ],
)
def test_names_from_the_package_a_module_is_in(path: str, code: str, broken: bool) -> None:
    assert any(": facades: " in found for found in findings(path, code)) == broken


@pytest.mark.parametrize(
    ("name", "exists"),
    [
        ("luthier.errors", True),
        ("luthier.errors.LuthierError", True),
        ("luthier.objects.load_object", True),  # by way of the package
        ("luthier.wire.tool_requests.LaunchRequest.grid_x", True),
        ("luthier._mc.Isa", True),
        ("luthier_build.wrapper.main", True),
        ("luthier.isa/", True),
        ("luthier/errors.py", True),
        ("runtime/native/wire/wire.h", True),
        ("luthier/channel.h", True),
        ("luthier.original", True),  # a symbol
        ("luthier.lifting.semantics.Lanes", False),
        ("luthier.errors.NoSuchError", False),
        ("luthier.wire.tool_requests.LaunchRequest.grid_w", False),
        ("luthier._mc.NoSuch", False),
        ("luthier_build.nowhere", False),
        ("luthier/run/nowhere.py", False),
        ("runtime/native/wire/nowhere.h", False),
    ],
)
@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("runtime/luthier/run/service.py", 'def f():\n    """Do what `{}` does."""'),
        ("runtime/luthier/isa/targets.py", 'X = 1\n"""See {}."""'),
        ("runtime/native/executor/thread_pool.h", "int a;  // {} says why"),
        ("runtime/native/mc/decode.cpp", "// {}."),
    ],
)
def test_names_in_comments_exist(name: str, exists: bool, path: str, form: str) -> None:
    assert any(": names: " in found for found in findings(path, form.format(name))) != exists


@pytest.mark.thorough
def test_the_house_keeps_its_rules() -> None:
    """As `make check` says."""
    done = subprocess.run([sys.executable, ROOT / "scripts" / "house_rules.py"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "the house rules hold\n")


def test_a_breach_is_an_exit_code(tmp_path: Path) -> None:
    file = tmp_path / "runtime" / "luthier" / "tool" / "task.py"
    file.parent.mkdir(parents=True)
    file.write_text("first = 126\n")
    command = [sys.executable, str(ROOT / "scripts" / "house_rules.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.startswith("runtime/luthier/tool/task.py:1: units: 126 ")


# Who imports whom ---------------------------------------------------------------------------------------------------


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of the Python sources with the contracts."""
    python = shutil.ignore_patterns("*.so*", "__pycache__", "*.pyi", "build")
    shutil.copytree(ROOT / "runtime" / "luthier", tmp_path / "luthier", ignore=python)
    shutil.copytree(ROOT / "luthier_build", tmp_path / "luthier_build", ignore=python)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


HERE = """import sys
from importlinter.cli import lint_imports_command
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in getattr(finder, "__module__", "")]
sys.path[0] = sys.argv.pop()
lint_imports_command(["--no-cache"])
"""
"""import-linter on the sources in a folder, not on those that are installed."""


def lint(house: Path) -> str:
    """Return the output of import-linter; empty if all contracts are kept."""
    done = subprocess.run([sys.executable, "-c", HERE, house], cwd=house, capture_output=True, text=True)
    assert "Contracts: " in done.stdout, done.stdout + done.stderr
    return done.stdout if done.returncode else ""


def test_contracts_are_kept(house: Path) -> None:
    assert lint(house) == ""


PLANTED = [
    ("module/packages.py", "from luthier_build.editable import refresh", "never the other way"),
    ("errors.py", "def f():\n    import luthier_build.package", "never the other way"),
    ("objects/elf.py", "def f():\n    from luthier.patch import patch_object", "in the table"),
    ("arch/generation.py", "if TYPE_CHECKING:\n    from luthier.isa.opcodes import Opcode", "in the table"),
    ("lifting/addresses/operations.py", "def f():\n    import luthier.lifting.addresses.analysis", "no circle"),
    ("isa/registers.py", "if TYPE_CHECKING:\n    from luthier.isa.mc import Isa", "no circle"),
    ("patch/registers/binding.py", "from luthier.patch.layout.slots import lay_out", "rooms of what patches"),
    ("tool/points.py", "def f():\n    from luthier.tool.task import reg", "tool author"),
    ("hazards/wait_states/check.py", "def f():\n    from luthier.hazards.insertion import wait_states", "hazards"),
    ("emulator/binding/shapes.py", "from luthier.emulator.running.launch import KernelLaunch", "subpackages"),
]


@pytest.mark.rows(1)
@pytest.mark.parametrize(("file", "code", "contract"), PLANTED)
def test_planted_imports_are_found(house: Path, file: str, code: str, contract: str) -> None:
    path = house / "luthier" / file
    path.write_text(f"{path.read_text()}\nfrom typing import TYPE_CHECKING\n{code}\n")
    output = lint(house)
    assert re.search(f"{contract}.* BROKEN", output), output


def test_circles_on_the_build_side_are_found(house: Path) -> None:
    path = house / "luthier_build" / "settings.py"
    path.write_text(path.read_text() + "\ndef late():\n    from luthier_build.package import build\n")
    assert re.search("no circle.* BROKEN", lint(house))


def test_layers_are_those_of_the_architecture() -> None:
    """The order that import-linter keeps is the table's, packages that no row names aside."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (one["layers"] for one in contracts if one.get("containers") == ["luthier"])
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = [re.findall(r"`luthier\.(\w+)`", row.split("|")[1]) for row in re.findall(r"^\| `luthier\..*", text, re.M)]
    place = {name: number for number, row in enumerate(rows) for name in row}
    assert place.keys() == set(layers)
    assert [place[layer] for layer in layers] == sorted((place[layer] for layer in layers), reverse=True)


@pytest.mark.thorough
def test_the_drawing_is_of_the_sources(house: Path) -> None:
    """As `make check` says. Who imports whom, in docs/packages.svg: another import is another drawing."""
    (house / "scripts").mkdir()
    (house / "runtime").mkdir()
    (house / "docs").mkdir()
    shutil.copy(ROOT / "scripts" / "draw_packages.py", house / "scripts")
    shutil.copy(ROOT / "docs" / "packages.svg", house / "docs")
    shutil.move(house / "luthier", house / "runtime" / "luthier")
    command = [sys.executable, str(house / "scripts" / "draw_packages.py"), "--check"]
    assert subprocess.run(command).returncode == 0
    path = house / "runtime" / "luthier" / "channels" / "ring.py"
    path.write_text(path.read_text() + "\nimport luthier.objects\n")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "run scripts/draw_packages.py" in done.stderr
