"""Documents: their tools are built and used; their commands, links and names exist."""

from __future__ import annotations

import functools
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from luthier.cli.main import every_command, main
from luthier.errors import EmulationError
from luthier.objects import load_object
from luthier.patch import patch_object
from run_folders import kernel, launch, write_run

from luthier_build.compile import compile_application, compile_device
from luthier_build.workspace import build_folder

ROOT = Path(__file__).parents[2]
TARGET = "gfx90a"
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "compiler_plugin/README.md")),
    *sorted((ROOT / "examples/tools").glob("*/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
BIN = Path(sys.executable).parent
FILE = re.compile(r"^(?:runtime|docs|examples|tests|luthier_build|compiler_plugin|scripts)/[\w./-]+$")
NO_MODULES = {
    *("luthier.tools", "luthier.intrinsics", "luthier.commands", "luthier.refreshers", "luthier.compilers"),
    *("luthier.report_formats", "luthier.report_rules", "luthier.checks"),
    *("luthier.NAME", "luthier.manifest", "luthier.so", "luthier.h", "luthier.pc"),
}
"""Dotted names in documents that are none of Python's: entry-point groups, settings, metadata in bitcode, files."""


def name_of(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)


def blocks(document: Path, language: str) -> list[str]:
    """The fenced code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)


def unfenced(document: Path) -> str:
    """The text without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)


def indented_lines(document: Path) -> list[str]:
    """The lines of commands that are set off by indentation, without their comments."""
    lines = re.findall(r"^ {4}(\S.*)$", unfenced(document), re.MULTILINE)
    return [re.split(r" {2,}#", line)[0].strip() for line in lines]


def code_of(document: Path) -> Iterator[str]:
    """Everything set as code: spans, indented lines, shell blocks."""
    text = document.read_text()
    for block in re.findall(r"^```(?:sh|bash|)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield from block.splitlines()
    yield from indented_lines(document)
    yield from re.findall(r"`([^`\n]+)`", unfenced(document))


# The README's tool, built and used as the README says -------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader's folder, with the repository's examples, before the README's tool is made."""
    made: Path = tmp_path_factory.mktemp("reader")
    (made / "examples").symlink_to(ROOT / "examples")
    return made


@pytest.fixture(scope="module")
def environment(folder: Path) -> Mapping[str, str]:
    """A reader's shell: the environment's programs first, packages go into a folder of this test, one target."""
    return {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(folder / "site"),
        "LUTHIER_TARGETS": TARGET,
        "HIP_PLATFORM": "amd",
    }


def shell(command: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Run one command line of a document."""
    argv = shlex.split(command)
    while re.match(r"\w+=", argv[0]):
        name, _, value = argv.pop(0).partition("=")
        environment = {**environment, name: value}
    if argv[:2] == ["pip", "install"]:
        options = ["--disable-pip-version-check", "--no-deps", "--target", str(folder / "site")]
        argv = [sys.executable, "-m", "pip", "install", "-q", *options, *argv[2:]]
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def readme_output(folder: Path, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Run the commands of the README in order; return command line -> output."""
    readme = ROOT / "README.md"
    commands = [line for line in indented_lines(readme) if not line.startswith(("make ", ". "))]
    assert commands[0] == "luthier new store_count"
    if shutil.which("hipcc") is None:
        pytest.skip("no hipcc")
    device = [block for block in blocks(readme, "cpp") if "add_lanes" in block]
    host = [block for block in blocks(readme, "python") if "class StoreCount" in block]
    output = {}
    for command in commands:
        output[command] = shell(command, folder, environment)
        if command.startswith("luthier new"):
            (folder / "store_count/store_count/device.hip").write_text(*device)
            (folder / "store_count/store_count/__init__.py").write_text(*host)
    return output


def test_readme_walk(readme_output: Mapping[str, str]) -> None:
    """Each command does what its comment promises."""
    printed = {tuple(line.split()[:2]): text for line, text in readme_output.items()}
    assert re.search(r"^store_count ", printed["luthier", "tools"], re.MULTILINE)
    assert "variables: stored (8 bytes)" in printed["luthier", "patch"]
    assert "waves per SIMD" in printed["luthier", "cost"]
    assert "outputs equal" in printed["luthier", "verify"]


def test_readme_python(readme_output: Mapping[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch in the README gives the sums, and the tool's counter the number of elements stored."""
    (block,) = (block for block in blocks(ROOT / "README.md", "python") if "open_device" in block)
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), names)
    module, device = names["module"], names["device"]
    assert np.array_equal(names["c"], np.arange(1000, dtype=np.float32) + 1)  # type: ignore[arg-type]
    assert module.variable("stored").read(int) == 1000  # type: ignore[attr-defined]
    assert device.stats.opcodes["global_atomic_add_x2"] > 0  # type: ignore[attr-defined]


def test_emulator_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of docs/emulator.md run one after the other, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    compile_application(ROOT / "examples/apps/vector_add.hip", "gfx942", tmp_path / "vector_add.hsaco")
    names: dict[str, object] = {"print": lambda *values: None}
    document = ROOT / "docs/emulator.md"
    for number, block in enumerate(blocks(document, "python")):
        exec(compile(block, f"{name_of(document)} block {number + 1}", "exec"), names)
    assert np.array_equal(names["c"], np.arange(1000, dtype=np.float32) + 2)  # type: ignore[arg-type]
    assert isinstance(names["fault"], EmulationError)


def test_api_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/api.md opens a run directory by its name."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "RUN", kernels=[kernel("saxpy")], launches=[launch("saxpy", 0, 0, 1, grid_x=64)])
    (block,) = blocks(ROOT / "docs/api.md", "python")
    exec(block, {})
    assert capsys.readouterr().out == "saxpy 64\n"


def test_writing_tools_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool of docs/writing-tools.md, in a real kernel: its counter is what NumPy counts."""
    from luthier import ToolModule, open_device
    from luthier.module.tool_module import loaded_by

    document = ROOT / "docs/writing-tools.md"
    hooks, _ = blocks(document, "cpp")
    host, careful, counting, _ = blocks(document, "python")
    (tmp_path / "device.hip").write_text(hooks)
    with build_folder(tmp_path / "build") as held:
        built = compile_device([tmp_path / "device.hip"], [TARGET], folder=held, report=lambda line: None)
    made = ToolModule.load(built.bundle)
    names: dict[str, object] = {"__name__": "stores"}
    monkeypatch.setitem(sys.modules, "stores", type(sys)("stores"))
    with loaded_by(lambda package, name: made):
        for block in (host, careful, counting):
            exec(compile(block, name_of(document), "exec"), names)
    tool = names["Stores"](minimum=250.0)  # type: ignore[operator]

    app = compile_application(ROOT / "examples/apps/vector_add.hip", TARGET, tmp_path / "vector_add.hsaco")
    patched = patch_object(load_object(app), tool.instrument)
    assert [kernel.sites for kernel in patched.report.kernels] == [1]
    module = open_device(f"emu:{TARGET}").load(patched.data)
    a, b, c = np.arange(1000, dtype=np.float32), np.full(1000, 0.5, np.float32), np.zeros(1000, np.float32)
    module.kernel("vector_add").launch(a, b, c, 1000, grid=4, block=256)
    assert np.array_equal(c, a + b)
    assert module.variable("large").read(int) == np.count_nonzero(c >= 250)

    patched = patch_object(load_object(app), names["Careful"]().instrument, strict=True)  # type: ignore[operator]
    assert len(set(patched.report.kernels[0].waves_per_simd)) == 1

    counts = names["Counts"]()  # type: ignore[operator]
    patched = patch_object(load_object(app), counts.instrument)
    device = open_device(f"emu:{TARGET}")
    original, module = device.load(app.read_bytes()), device.load(patched.data)
    original.kernel("vector_add").launch(a, b, c, 1000, grid=4, block=256)
    executed = dict(device.stats.opcodes)
    module.kernel("vector_add").launch(a, b, c, 1000, grid=4, block=256)
    assert module.variable("stored").read(int) == 1000
    (table,) = counts.tables(patched.counters["vector_add"].read(module))
    assert dict(table.rows) == executed


def test_records_and_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tracing tool of docs/writing-tools.md: a record for each element, and its line."""
    from luthier import ToolModule, open_device
    from luthier.module.tool_module import loaded_by

    document = ROOT / "docs/writing-tools.md"
    _, device = blocks(document, "cpp")
    *_, host = blocks(document, "python")
    (tmp_path / "device.hip").write_text(device)
    with build_folder(tmp_path / "build") as held:
        built = compile_device([tmp_path / "device.hip"], [TARGET], folder=held, report=lambda line: None)
    made = ToolModule.load(built.bundle)
    names: dict[str, object] = {"__name__": "traces"}
    with loaded_by(lambda package, name: made):
        exec(compile(host, name_of(document), "exec"), names)
    tool = names["Trace"]()  # type: ignore[operator]
    app = compile_application(ROOT / "examples/apps/vector_add.hip", TARGET, tmp_path / "vector_add.hsaco")
    module = open_device(f"emu:{TARGET}").load(patch_object(load_object(app), tool.instrument).data)
    a, b, c = np.arange(1000, dtype=np.float32), np.full(1000, 0.5, np.float32), np.zeros(1000, np.float32)
    module.kernel("vector_add").launch(a, b, c, 1000, grid=4, block=256)
    records = module.channel("stores").records()
    records.sort(order="item")
    assert np.array_equal(records["item"], np.arange(1000))
    assert np.array_equal(records["value"], a + b)
    assert np.array_equal(records["lane"], np.arange(1000) % 64)
    assert capsys.readouterr().out == "the first value is 0.5\n"


# What the documents name -----------------------------------------------------------------------------------------


@functools.cache
def help_of(*command: str) -> str:
    """Return the output of `luthier COMMAND --help`."""
    import contextlib
    import io

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    return printed.getvalue()


@pytest.mark.parametrize("command", every_command())
def test_every_command_is_documented_and_has_help(command: str) -> None:
    assert f"usage: luthier {command}" in help_of(command)
    assert f"`luthier {command}" in (ROOT / "docs/commands.md").read_text()
    if command in ("objects", "disasm", "lift", "check", "patch", "cost", "verify", "tools", "build", "doctor"):
        assert "--json" in help_of(command)  # "those that tell about files or tools have `--json`"


@pytest.mark.rows(9)
@every_document
def test_commands_and_options_exist(document: Path) -> None:
    for line in code_of(document):
        for command, rest in re.findall(r"(?:^|&& )luthier ([a-z][\w-]*)((?: [^&]+)?)", line):
            assert command in every_command(), f"{line!r} in {name_of(document)}"
            text = help_of(command)
            actions = re.search(r"\{([\w,]+)\} \.\.\.", text)
            if actions and rest:
                assert rest.split()[0] in actions[1].split(","), f"{line!r} in {name_of(document)}"
                text = help_of(command, rest.split()[0])
            for option in re.findall(r"(?<=\s)--?[a-zA-Z][\w-]*", rest.partition(" -- ")[0]):
                assert re.search(rf"(?<![\w-]){option}(?![\w-])", text), f"{option} of {line!r}"


def test_programs_exist() -> None:
    """Programs of the package that documents speak of, and targets of `make`."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in DOCUMENTS:
        for line in code_of(document):
            for program in re.findall(r"\bluthier-(?:hipcc|cc)\b", line):
                assert (BIN / program).is_file()
            if match := re.match(r"make ([a-z-]+)$", line):
                assert match[1] in targets, f"{line!r} in {name_of(document)}"


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document: its headings in GitHub's spelling, and explicit ones."""
    text = document.read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {*re.findall(r'<a id="([^"]+)"></a>', text)} | {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
    }


@every_document
def test_links_resolve(document: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        place = (document.parent / path).resolve() if path else document
        assert place.exists(), f"{link} in {name_of(document)}"
        assert not anchor or anchor in anchors(place), f"{link} in {name_of(document)}"


@every_document
def test_files_and_variables_exist(document: Path) -> None:
    """Paths of the repository and environment variables are spelled as they are."""
    sources = _sources()
    for line in code_of(document):
        for path in re.findall(
            r"^(?:runtime|docs|examples|tests|luthier_build|compiler_plugin|scripts)/[\w./-]+$", line
        ):
            assert (ROOT / path).exists(), f"{path} in {name_of(document)}"
        for variable in re.findall(r"\bLUTHIER_[A-Z_]+[A-Z]\b", line):
            key = variable.removeprefix("LUTHIER_").lower()
            assert variable in sources or re.search(rf"\b{key}\b", sources), f"{variable} in {name_of(document)}"


@functools.cache
def _sources() -> str:
    folders = (
        "runtime/luthier",
        "luthier_build",
        "compiler_plugin/include",
        "compiler_plugin/src",
        "scripts",
        "tests/support",
        "tests/run",
    )
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    return "\n".join(path.read_text() for path in files if path.suffix in (".py", ".h", ".cpp", ".cmake", ""))


@every_document
def test_blocks_are_well_formed(document: Path) -> None:
    for block in blocks(document, "toml"):
        assert tomllib.loads(block)
    for block in blocks(document, "python"):
        compile(block, name_of(document), "exec")


@every_document
def test_python_names_exist(document: Path) -> None:
    """Dotted names of the packages, set as code, can be imported; `luthier.targets=…` is a setting."""
    for line in code_of(document):
        for name in re.findall(r"(?<![\w.:/-])luthier(?:_build)?(?:\.\w+)+(?![\w=])", line):
            assert name in NO_MODULES or _exists(name), f"{name} in {name_of(document)}"


def _exists(name: str) -> bool:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(value, part):
                return _is_field(value, part)
            value = getattr(value, part)
        return True
    return False


def _is_field(kind: object, name: str) -> bool:
    """Return whether objects of a class have it, though the class has not."""
    return isinstance(kind, type) and any(name in vars(one).get("__annotations__", {}) for one in kind.__mro__)


def test_index_lists_every_document() -> None:
    index = (ROOT / "docs/README.md").read_text()
    for document in (ROOT / "docs").glob("*.md"):
        assert document.name == "README.md" or f"]({document.name})" in index


def package_table() -> list[tuple[str, str]]:
    """Modules and main names of each row of the architecture's table."""
    rows = re.findall(r"^\| (`luthier[^|]*`) \|[^|]*\| ([^|]*)\|$", (ROOT / "docs/architecture.md").read_text(), re.M)
    assert len(rows) > 8
    return rows


def test_architecture_names_exist() -> None:
    """The main names in the table of packages can be imported from there, or are defined in one of its modules."""
    for modules, names in package_table():
        packages = [importlib.import_module(module) for module in re.findall(r"`([\w.]+)`", modules)]
        sources = "\n".join(
            path.read_text() for one in packages for path in Path(one.__file__ or "").parent.rglob("*.py")
        )
        for name in re.findall(r"`(\w+)`", names):
            known = any(hasattr(one, name) for one in packages)
            assert known or re.search(rf"^(class |def )?{name}\b", sources, re.M), f"{name} in {modules}"
