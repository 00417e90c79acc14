"""Keys of cached results: all sources that made them, found automatically and completely."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest
from luthier.cache import provenance
from luthier.cache.provenance import (
    EMULATOR,
    OBJECTS,
    PACKAGE,
    PATCHES,
    PAYLOADS,
    Provenance,
    package_provenance,
    provenance_of,
)
from luthier.errors import CacheError

from luthier_build.workspace import MAKERS as BUILDERS

PATCHING = (*PATCHES, "luthier.run.patching")
MAKERS = {"patched": PATCHING, "payloads": PAYLOADS, "emulator": EMULATOR}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a modifiable copy of the package."""
    folder = tmp_path / "luthier"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__", "assets"))
    return folder


def named(folder: Path, what: str) -> Provenance:
    """Return the provenance as a new process finds it."""
    return new_provenance(folder.parent, *MAKERS[what])


def new_provenance(root: Path, *makers: str) -> Provenance:
    for kept in (provenance._provenance_of, provenance._files_of, provenance._source):
        kept.cache_clear()
    return provenance_of(*makers, root=root)


@pytest.mark.rows(1)
@pytest.mark.parametrize("what", MAKERS)
def test_it_is_the_same_wherever_the_sources_are(copy: Path, what: str) -> None:
    assert named(copy, what).digest == named(PACKAGE, what).digest


@functools.cache
def imports() -> grimp.ImportGraph:
    """Return who imports whom, also inside functions and for type checkers, without the public names of `luthier`."""
    return grimp.build_graph("luthier", "luthier_build", cache_dir=None)


LISTS = {**MAKERS, "objects": OBJECTS}
LISTS |= {
    f"{what} of builds": (*getattr(provenance, below), *(f"luthier_build.{name}" for name in names))
    for what, (below, names) in BUILDERS.items()
}


@pytest.mark.parametrize("what", LISTS)
def test_what_makers_import_is_declared(what: str) -> None:
    """Otherwise, a result would outlive the code that made it. A public name of `luthier` may come from any module."""
    listed = LISTS[what]
    within = {name for name in imports().modules for maker in listed if f"{name}.".startswith(f"{maker}.")}
    assert within
    undeclared = {
        f"{name} imports {other}"
        for name in within
        for other in imports().find_modules_directly_imported_by(name) - within - {"luthier", "luthier_build"}
    }
    assert not undeclared
    for name in within:
        for details in imports().get_import_details(importer=name, imported="luthier"):
            assert re.search(r"import (_mc|__version__)\b", details["line_contents"]), (name, details)


def native(name: str) -> str:
    (path,) = PACKAGE.glob(f"{name}.*.so")
    return path.name


@pytest.mark.parametrize(
    ("keeper", "makers"), [("luthier.payload.kept", PAYLOADS), ("luthier.emulator.native.store", EMULATOR)]
)
def test_who_keeps_something_is_among_the_makers(keeper: str, makers: tuple[str, ...]) -> None:
    users = imports().find_modules_that_directly_import(keeper)
    outside = {user for user in users if not f"{user}.".startswith(tuple(f"{maker}." for maker in makers))}
    assert outside <= {"luthier.cli.emulator", "luthier.replay.server", "luthier.run.service"}  # they open it, no more


@pytest.mark.parametrize("what", MAKERS)
def test_native_code_and_llvm_count(what: str) -> None:
    assert {"luthier/__init__.py", f"luthier/{native('_mc')}", "libllvmlite.so"} <= named(PACKAGE, what).files.keys()


def test_a_maker_that_does_not_exist_is_refused() -> None:
    with pytest.raises(CacheError, match=r"no module luthier\.no_such is in"):
        provenance_of("luthier.isa", "luthier.no_such")


RUN = """
import sys
from luthier import load_object, open_device
from luthier.run.patching import Patcher
from luthier.tool import ToolGroup
from luthier_instr_count import InstrCount
ran = set()
sys.setprofile(lambda frame, event, _: ran.add(frame.f_code) if event == "call" else None)
if sys.argv[2] == "patched":
    done = Patcher(ToolGroup.of(InstrCount()), hoist=False).patch(load_object(sys.argv[1]), "vector_add")
    assert done.companion is not None, done.reason
else:
    device = open_device("emu:gfx90a", threads=1)
    device.load(sys.argv[1]).kernel("vector_add").launch(*[device.allocate(4)] * 3, 0, grid=1, block=64)
sys.setprofile(None)
print("\\n".join({code.co_filename for code in ran if code.co_name != "<module>"}))
"""


@pytest.mark.parametrize(
    ("what", "makers", "some", "excluded"),
    [
        # The caller decides how tools are run and what a cache is.
        ("patched", "", ("payload/codegen.py", "lifting/liveness.py"), {"cache/provenance.py", "module/inline.py"}),
        ("emulator", "emulator/[ino]|isa|arch", ("emulator/operations/smem.py", "emulator/native/emit.py"), set()),
    ],
)
def test_python_runs_nothing_else(  # type: ignore[no-untyped-def]
    app, what: str, makers: str, some: tuple[str, ...], excluded: set[str]
) -> None:
    """An oracle that reads no sources: whose functions run until a kernel is patched, or operations are compiled."""
    command = [sys.executable, "-c", RUN, app("vector_add", "gfx90a"), what]
    environment = {**os.environ, "LUTHIER_CACHE_DIR": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    ran = {os.path.relpath(path, PACKAGE) for path in done.stdout.splitlines() if path.startswith(f"{PACKAGE}/")}
    held = {name.removeprefix("luthier/") for name in named(PACKAGE, what).files}
    assert ran.issuperset(some)
    rest = {path for path in ran - held if re.match(makers, path)}
    assert rest <= excluded, rest


CHANGES = [
    "tool/hook_budget.py",
    "run/patching.py",
    "lifting/liveness.py",
    "payload/llvm.py",
    "cli/main.py",
    "__init__.py",
]


@pytest.mark.rows(2)
@pytest.mark.parametrize("what", MAKERS)
def test_each_source_counts(copy: Path, what: str) -> None:
    before = named(copy, what)
    for name in CHANGES:
        path = copy / name
        path.write_text(path.read_text() + "\nANOTHER = 1\n")
        after = named(copy, what)
        assert (after.digest != before.digest) == (f"luthier/{name}" in before.files), name
        before = after


@pytest.mark.parametrize("what", MAKERS)
def test_every_file_it_holds_counts(copy: Path, what: str) -> None:
    """The class, not the example: one file after the other, three of them on every run."""
    files = sorted(name for name in named(copy, what).files if name.endswith(".py"))
    chosen = files if os.environ.get("LUTHIER_TEST_ALL") else [files[0], files[len(files) // 2], files[-1]]
    before = named(copy, what).digest
    for name in chosen:
        path = copy.parent / name
        text = path.read_bytes()
        path.write_bytes(text + b"\n0\n")
        assert named(copy, what).digest != before, name
        path.write_bytes(text)
    assert named(copy, what).digest == before


SOURCE = '''"""The module's."""
class Class:
    """The class's."""
    """No docstring: it is the second."""
async def later():
    "Later's."
    def inner(x, y="a default"):
        """The function's."""
        return x + 1  # one more
'''
ALIKE = [
    ('"""The module\'s."""\n', ""),
    ('"""The module\'s."""', '"""Another."""'),
    ('"""The class\'s."""', '"""Another."""'),
    ('"Later\'s."', "'''Another.'''"),
    ('        """The function\'s."""\n', ""),
    ("  # one more", ""),
    ("class", "# A comment.\n\n\nclass"),
    ("x + 1", "(\n            x\n            + 1\n        )"),
    ('"a default"', "'a default'"),
]
OTHERS = [
    ("x + 1", "x + 2"),
    ("x + 1", "x + 1.0"),
    ("x + 1", "x + True"),
    ("x + 1", "1 + x"),
    ("the second", "the other"),
    ('    """The class\'s."""\n', ""),
    ('"a default"', '"another default"'),
    ("async ", ""),
    ("x, y", "x, *, y"),
    ("    return x", "return x"),
    ("class", "from __future__ import annotations\nclass"),
]


@pytest.mark.parametrize(("old", "new", "alike"), [(*one, True) for one in ALIKE] + [(*one, False) for one in OTHERS])
def test_comments_docstrings_and_layout_do_not_count(tmp_path: Path, old: str, new: str, alike: bool) -> None:
    assert old in SOURCE
    before, after = (digest_of(tmp_path, text) for text in (SOURCE, SOURCE.replace(old, new, 1)))
    assert (before == after) == alike


def digest_of(folder: Path, text: str) -> str:
    """Return the digest of what a module of this text makes."""
    package = folder / "luthier"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "made.py").write_text(text)
    return new_provenance(folder, "luthier.made").digest


def test_what_cannot_be_parsed_counts_by_content(tmp_path: Path) -> None:
    texts = ("this is no program", "this is no program # at all", "x = '\0'")
    assert len({digest_of(tmp_path, text) for text in texts}) == 3


@pytest.mark.parametrize("what", MAKERS)
def test_no_maker_looks_at_docstrings_or_lines(what: str) -> None:
    """Else these would have to count."""
    for name in named(PACKAGE, what).files:
        if name.endswith(".py"):
            text = (PACKAGE.parent / name).read_text()
            assert not re.search(r"__doc__|getdoc|getsource|getcomments|f_lineno|co_firstlineno|linecache", text), name


def test_native_code_counts_by_its_build_id(copy: Path) -> None:
    path = copy / native("_mc")
    build_id = provenance._build_id(str(path))
    readelf = subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=True).stdout
    assert f"Build ID: {build_id}" in readelf
    before = {what: named(copy, what).digest for what in MAKERS}
    os.utime(path)
    assert {what: named(copy, what).digest for what in MAKERS} == before
    data = path.read_bytes()
    at = data.index(bytes.fromhex(build_id))
    path.write_bytes(data[:at] + bytes(20) + data[at + 20 :])
    for what in MAKERS:
        assert named(copy, what).digest != before[what]


def test_native_code_without_a_build_id_counts_by_content(tmp_path: Path) -> None:
    path = tmp_path / "library.so"
    digests = set()
    for text in ("", "int f(void) { return 1; }", "int f(void) { return 2; }"):
        command = ["cc", "-shared", "-x", "c", "-", "-nostdlib", "-Wl,--build-id=none", "-o", str(path)]
        subprocess.run(command, input=text, text=True, check=True)
        assert not provenance._build_id(str(path))
        digests.add(provenance._SourceFile.of_native(str(path)).digest)
    assert len(digests) == 3
    for damaged in (b"", b"\x7fELF\2\1", b"\x7fELF\2\1" + b"\xff" * 58, bytes(200)):
        path.write_bytes(damaged)
        assert provenance._build_id(str(path)) == ""


@pytest.mark.parametrize("module", ["llvmlite", "numpy"])
def test_versions_of_code_generators_count(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    before = named(PACKAGE, "patched").digest
    monkeypatch.setattr(f"{module}.__version__", "0.0.1")
    assert named(PACKAGE, "patched").digest != before


def test_the_library_of_llvm_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (real,) = (path for path in provenance._libraries_of("llvmlite") if path.endswith("libllvmlite.so"))
    with open(real, "rb") as file:
        head = file.read(1 << 16)
    build_id = provenance._build_id(real)
    other = tmp_path / "libllvmlite.so"
    other.write_bytes(head.replace(bytes.fromhex(build_id), bytes(20)))
    before = named(PACKAGE, "payloads").digest
    monkeypatch.setattr(provenance, "_libraries_of", lambda top: (str(other),))
    assert named(PACKAGE, "payloads").digest != before


def test_what_was_written_since_the_process_began_is_not_believed(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The previous contents may have been imported."""
    path = copy / "tool/hook_budget.py"
    assert not named(copy, "patched").unchanged()  # just copied
    monkeypatch.setattr(provenance, "_BEGAN", path.stat().st_ctime_ns + 10**9)
    recorded = named(copy, "patched")
    assert not recorded.unchanged() or max(recorded.states[0][3:]) < provenance._BEGAN
    monkeypatch.setattr(provenance, "_BEGAN", max(max(state[3:]) for state in recorded.states) + 1)
    assert recorded.unchanged()
    text, status = path.read_text(), path.stat()
    path.write_text(text.replace("0", "1", 1))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # same size, same time of change
    assert not recorded.unchanged()
    assert provenance_of(*PATCHING).unchanged()


def test_sources_are_parsed_once(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUTHIER_CACHE_DIR", str(tmp_path / "kept"))
    parsed: list[bytes] = []
    real = provenance._program_of

    def noted(text: bytes) -> str:
        parsed.append(text)
        return real(text)

    monkeypatch.setattr(provenance, "_program_of", noted)
    first = named(copy, "payloads")
    assert 0 < len(parsed) <= len(first.files)
    parsed.clear()
    (copy / "payload/llvm.py").write_text((copy / "payload/llvm.py").read_text() + "\nANOTHER = 1\n")
    assert named(copy, "payloads").digest != first.digest
    assert [text.endswith(b"\nANOTHER = 1\n") for text in parsed] == [True]


PACKAGES = {
    "one module": ({"strange_one.py": "import math, luthier.payload\n"}, "strange_one", "strange_one.py"),
    "a package": (
        {"strange_two/__init__.py": "", "strange_two/lower.py": "from . import table\n", "strange_two/table.ll": "x"},
        "strange_two.lower",
        "strange_two/table.ll",
    ),
}


@pytest.mark.parametrize("kind", PACKAGES)
def test_other_packages_count_by_content(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, module, changed = PACKAGES[kind]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    package_provenance.cache_clear()
    before = package_provenance(module)
    assert before is not None
    assert len(before.files) == len(files)
    assert module.partition(".")[0] not in sys.modules
    (tmp_path / changed).write_text(files[changed] + "\n")
    package_provenance.cache_clear()
    after = package_provenance(module)
    assert after is not None
    assert after.digest != before.digest
    assert not before.unchanged()


def test_of_what_other_packages_import_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strange_three.py").write_text("import msgpack\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    package_provenance.cache_clear()
    assert package_provenance("strange_three") is None
    assert package_provenance("there_is_no_such_package") is None
