"""Tools from source in a string: what is compiled, when, and which errors are reported."""

from __future__ import annotations

import linecache
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import luthier
import numpy as np
import pytest
from luthier.errors import BuildError, TargetError
from luthier.objects import load_object
from luthier.verify import verify_object

from luthier_build.compile import compile_application
from luthier_build.workspace import MARKER, build_folder

ROOT = Path(__file__).parents[2]
TARGET = "gfx942"
SOURCE = """
/// Stores so far.
__managed__ uint64_t stores = 0;
/// Counts.
LUTHIER_HOOK_ANNOTATE count(uint32_t step) { luthier::sAtomicAdd<uint64_t>(&stores, step); }
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with nothing of this file's in it, and with the compiler plugin of the user's."""
    own = tmp_path / "cache"
    own.mkdir()
    kept = Path(os.environ.get("LUTHIER_CACHE_DIR") or Path.home() / ".cache/luthier")
    for name in ("plugins", "device-library"):
        (kept / name).mkdir(parents=True, exist_ok=True)
        (own / name).symlink_to(kept / name)
    monkeypatch.setenv("LUTHIER_CACHE_DIR", str(own))
    return own / "inline"


def test_hooks_variables_and_what_the_source_says_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    module = luthier.load_inline(SOURCE, name="counting", targets=[TARGET, "gfx1100"])
    assert str(module.count) == "count(uint32_t step)"
    assert module.count.documentation == "Counts."
    assert module.count.location == "counting.hip:5"
    assert [(v.name, v.type, v.documentation) for v in module.variables.values()] == [
        ("stores", "uint64_t", "Stores so far.")
    ]
    assert [str(target) for target in module.targets] == [TARGET, "gfx1100"]
    assert capsys.readouterr().err == f"luthier: [1/1] counting: compiling for {TARGET}\n"

    assert luthier.load_inline(SOURCE, name="counting", targets=[TARGET, "gfx1100"]) is module
    assert capsys.readouterr().err == ""


@pytest.mark.thorough
@pytest.mark.parametrize("target", [TARGET, "gfx1030"])
def test_a_tool_with_it_is_proven_by_the_emulated_device(tmp_path: Path, target: str) -> None:
    """Also on a target that was not named."""
    module = luthier.load_inline(SOURCE)

    class Stores(luthier.Tool):
        def instrument(self, task: luthier.InstrumentationTask) -> None:
            for instruction in task.instructions:
                if instruction.mnemonic.startswith("global_store"):
                    task.insert_hook_before(instruction, module.count, 3)

        def expected(self, task: luthier.InstrumentationTask, counts: luthier.ExecutionCounts) -> dict[str, int]:
            stores = [i.index for i in task.instructions if i.mnemonic.startswith("global_store")]
            return {"stores": 3 * int(counts.executions[stores].sum())}

    app = compile_application(ROOT / "examples/apps/vector_add.hip", target, tmp_path / "vector_add.hsaco")
    (verdict,) = verify_object(load_object(app), Stores())
    assert not verdict.problems
    assert verdict.counters["stores"] > 0


def test_the_example_of_the_documentation(
    app: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/building.md, as a reader would type it: its numbers are NumPy's."""
    (block,) = re.findall(r"```python\n(import luthier\n.*?)```", (ROOT / "docs/building.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    shutil.copy(app("vector_add", "gfx90a"), tmp_path / "vector_add.hsaco")
    names: dict[str, object] = {}
    exec(compile(block, "building.md", "exec"), names)
    assert np.array_equal(names["c"], np.arange(1000, dtype=np.float32) + 1)  # type: ignore[arg-type]
    assert names["large"] == 900


@pytest.mark.thorough
def test_settings_headers_and_definitions_make_other_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "include").mkdir()
    header = tmp_path / "include/size.h"
    header.write_text("#define NAME first\n")
    source = '#include "size.h"\n#ifndef OTHER\n#define OTHER NAME\n#endif\nLUTHIER_HOOK_ANNOTATE OTHER() {}\n'

    def hooks(**settings: object) -> list[str]:
        return [*luthier.load_inline(source, targets=TARGET, **settings).hooks]  # type: ignore[arg-type]

    monkeypatch.chdir(tmp_path)
    assert hooks(include_dirs=["include"]) == ["first"]
    assert hooks(include_dirs=["include"], defines=["OTHER=second"]) == ["second"]
    assert hooks(include_dirs=["include"], flags=["-DOTHER=third"]) == ["third"]
    header.write_text("#define NAME fourth\n")
    assert hooks(include_dirs=["include"]) == ["fourth"]
    for name in ("fifth", "sixth"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "size.h").write_text(f"#define NAME {name}\n")
        monkeypatch.setenv("CPATH", str(tmp_path / name))
        assert hooks() == [name]
    monkeypatch.delenv("CPATH")
    monkeypatch.setenv("LUTHIER_INCLUDE_DIRS", str(tmp_path / "include"))
    monkeypatch.setenv("LUTHIER_TARGETS", "gfx90a")
    assert [str(target) for target in luthier.load_inline(source).targets] == ["gfx90a"]


BARRIER = """LUTHIER_HOOK_ANNOTATE good() {}
LUTHIER_HOOK_ANNOTATE waits() { __syncthreads(); }"""

WRONG = """
LUTHIER_HOOK_ANNOTATE wrong() {
  nonsense();
}
"""


def line_of(text: str) -> int:
    return 1 + [line.strip() for line in Path(__file__).read_text().splitlines()].index(text)


def test_errors_name_the_line_of_the_python_file() -> None:
    with pytest.raises(BuildError, match="use of undeclared identifier 'nonsense'") as caught:
        luthier.load_inline(WRONG, targets=TARGET)
    assert str(caught.value).startswith(f"{__file__}:{line_of('nonsense();')}:3: error")
    assert "failed with exit code 1" in str(caught.value).splitlines()[-1]
    with pytest.raises(BuildError, match="hook waits waits at a barrier") as caught:
        luthier.load_inline(BARRIER, targets=TARGET)
    assert str(caught.value).startswith(
        f"{__file__}:{line_of('LUTHIER_HOOK_ANNOTATE waits() { __syncthreads(); }' + chr(34) * 3)}"
    )
    assert [*luthier.load_inline(BARRIER, targets=TARGET, check_hooks=False).hooks] == ["good", "waits"]


@pytest.mark.thorough
def test_errors_in_a_notebook_and_in_text_that_is_no_literal() -> None:
    cell = f'import luthier\n\nluthier.load_inline("""{WRONG}""", targets="{TARGET}")\n'
    linecache.cache["<cell 7>"] = (len(cell), None, cell.splitlines(keepends=True), "<cell 7>")  # as IPython does
    with pytest.raises(BuildError, match=r"^<cell 7>:5:3: error"):
        exec(compile(cell, "<cell 7>", "exec"))
    # Lines of a text with escapes differ from the file's, so messages have the line of the source.
    escaped = "LUTHIER_HOOK_ANNOTATE wrong() {\n  other_nonsense();\n}"
    with pytest.raises(BuildError, match=r"^inline\.hip:2:3: error"):
        luthier.load_inline(escaped, targets=TARGET)


@pytest.mark.parametrize(
    ("source", "settings", "error", "message"),
    [
        (SOURCE, {"targets": "gfx9999"}, TargetError, "targets from argument targets: unknown target 'gfx9999'"),
        (SOURCE, {"targets": []}, BuildError, "targets from argument targets is empty"),
        (SOURCE, {"targets": [7]}, BuildError, "targets from argument targets must be a list of strings"),
        (SOURCE, {"targets": TARGET, "name": "no name"}, BuildError, "must be a Python identifier, not 'no name'"),
        (SOURCE, {"targets": TARGET, "name": "../up"}, BuildError, "must be a Python identifier"),
        ("int x;", {"targets": TARGET}, BuildError, "no hooks in the source"),
        *(
            pytest.param(text, {"targets": TARGET}, BuildError, "no hooks in the source", marks=pytest.mark.thorough)
            for text in ("", "\0")  # compiled, too
        ),
        (b"bytes", {}, BuildError, "must be a string, not bytes"),
        ("\udc80", {"targets": TARGET}, BuildError, "cannot be written as UTF-8"),
        ("#include <nothing.h>", {"targets": TARGET}, BuildError, "'nothing.h' file not found"),
    ],
)
def test_what_is_no_source_or_setting(
    source: str, settings: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        luthier.load_inline(source, **settings)  # type: ignore[arg-type]


def test_no_compiler_and_no_place_to_keep(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        patch.setenv("LUTHIER_ROCM_PATH", "")
        patch.setenv("ROCM_PATH", "")
        with pytest.raises(BuildError, match=r"no clang in .*: install ROCm"):
            luthier.load_inline(SOURCE, targets=TARGET)
    monkeypatch.setenv("LUTHIER_CACHE_DIR", "")
    with pytest.raises(BuildError, match="needs Luthier's cache, which is off"):
        luthier.load_inline(SOURCE, targets=TARGET)


@pytest.mark.thorough
def test_processes_and_threads_at_once_compile_once(cache: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        f"import luthier\nmodule = luthier.load_inline({SOURCE!r}, targets={TARGET!r})\n"
        "print(module.count.parameters[0].name, len(module.contents_for(module.targets[0]).bitcode))\n"
    )
    started = [
        subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = [process.communicate(timeout=100) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], outputs
    assert len({output for output, _ in outputs}) == 1
    assert outputs[0][0].startswith("step ")
    assert sum(error.count("compiling for") for _, error in outputs) == 1

    made = []
    threads = [
        threading.Thread(target=lambda: made.append(luthier.load_inline(SOURCE, targets=TARGET))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [*made[0].hooks] == ["count"]
    assert len(made) == 4


@pytest.mark.thorough
def test_what_was_damaged_or_left_half_made_is_made_again(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def size() -> int:
        module = luthier.load_inline(SOURCE, targets=TARGET)
        return len(module.contents_for(module.targets[0]).bitcode)

    whole = size()
    for pattern in ("**/*.hipfb", "**/*.hsaco", "**/*.hip", "**/*.json", "**/*.record"):
        for path in cache.glob(pattern):
            path.write_bytes(path.read_bytes()[:-9])
        assert size() == whole, pattern


@pytest.mark.thorough
def test_what_nobody_used_for_long_or_is_too_much_is_forgotten(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders in use and folders that are not build folders stay."""

    def folder(name: str, days: float) -> Path:
        with build_folder(cache / name) as made:
            (made / "build").mkdir()
            (made / "build" / "file").write_text("x")
            (made / "inline.hip").write_text("y")
        os.utime(made / MARKER, (time.time() - days * 86400,) * 2)
        return made

    old, recent, older = folder("old", 31), folder("recent", 1), folder("older", 40)
    used = folder("used", 50)
    (cache / "strange").mkdir()
    with build_folder(used):
        os.utime(used / MARKER, (0, 0))
        luthier.load_inline(SOURCE, targets=TARGET)
    (new,) = {path.name for path in cache.iterdir()} - {"old", "recent", "older", "used", "strange"}
    assert (old.exists(), older.exists(), recent.exists(), used.exists()) == (False, False, True, True)
    assert (cache / "strange").is_dir()

    monkeypatch.setattr("luthier_build.inline.MOST", 2)
    os.utime(used / MARKER, (time.time() - 86400 * 2,) * 2)
    luthier.load_inline(SOURCE + "// another", targets=TARGET)
    names = {path.name for path in cache.iterdir()}
    assert names >= {new, "strange"}
    assert not names & {"used", "recent"}


def test_a_folder_that_is_removed_while_a_build_waits_for_it_is_made_again(tmp_path: Path) -> None:
    held, inside = tmp_path / "held", []

    def build() -> None:
        with build_folder(held) as folder:
            inside.append((folder / MARKER).exists())

    with build_folder(held):
        waiting = threading.Thread(target=build)
        waiting.start()
        time.sleep(0.2)
        (held / MARKER).unlink()
        held.rmdir()
    waiting.join(10)
    assert inside == [True]
