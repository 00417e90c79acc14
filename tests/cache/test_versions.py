"""Two versions of Luthier with one cache and one version number: neither uses or takes away what the other has made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from luthier.cache.folder import UNUSED_FOR, cache_root
from luthier.cache.provenance import PACKAGE
from luthier.cache.store import Store

ROOT = PACKAGE.parents[1]
MAKERS = {
    "luthier_build/manifest.py": "make_manifest",
    "luthier_build/units.py": "write_bundle",
    "luthier_build/check.py": "check_objects",
    "runtime/luthier/payload/codegen.py": "generate",
    "runtime/luthier/emulator/native/compiler.py": "compile_variants",
}
"""Functions that make what is kept, by their files: in another version they say that they run."""
USE = """
import sys
sys.path[:0] = sys.argv[1:4]
import luthier
from luthier.run.patching import Patcher
from luthier.tool import ToolGroup
from luthier_instr_count import InstrCount
assert luthier.__file__.startswith(sys.argv[1]), luthier.__file__
luthier.load_inline("LUTHIER_HOOK_ANNOTATE nothing(uint32_t step) {}", targets="gfx90a")
code = luthier.load_object(sys.argv[4])
assert Patcher(ToolGroup.of(InstrCount()), hoist=False).patch(code, "vector_add").companion is not None
device = luthier.open_device("emu:gfx90a", threads=1)
device.load(code).kernel("vector_add").launch(*[device.allocate(4)] * 3, 0, grid=1, block=64)
"""


def use(root: Path, cache: Path, code_object: Path) -> str:
    """Use everything that is kept: a hook from source, a kernel with hooks, operations of the emulated device."""
    paths = [str(root / "runtime"), str(root), sysconfig.get_path("purelib")]
    command = [sys.executable, "-S", "-c", USE, *paths, str(code_object)]
    environment = {**os.environ, "LUTHIER_CACHE_DIR": str(cache)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


@pytest.mark.thorough
def test_two_versions(app: Callable[..., Path], tmp_path: Path) -> None:
    """In one cache: each makes its own, finds it again, and leaves the other's where it is."""
    vector_add, cache, other = app("vector_add", "gfx90a"), tmp_path / "cache", tmp_path / "other"
    skipped = shutil.ignore_patterns("__pycache__", "assets")
    for folder in ("runtime/luthier", "luthier_build", "compiler_plugin"):
        shutil.copytree(ROOT / folder, other / folder, ignore=skipped)
    for name, maker in MAKERS.items():
        with (other / name).open("a") as file:
            file.write(f"\n_first_{maker} = {maker}\ndef {maker}(*given, **named):\n")
            file.write(f"    import os; os.write(2, b'made by {maker} of the other version\\n')\n")
            file.write(f"    return _first_{maker}(*given, **named)\n")
    for name in ("plugins", "device-library"):  # those of the user's, which take long to make
        kept = cache_root()
        assert kept is not None
        (kept / name).mkdir(parents=True, exist_ok=True)
        cache.mkdir(exist_ok=True)
        (cache / name).symlink_to(kept / name)
    assert "compiling for" in use(ROOT, cache, vector_add)
    first = contents(cache)
    made = use(other, cache, vector_add)
    assert {maker for maker in MAKERS.values() if f"made by {maker} of" in made} == {*MAKERS.values()}, made
    assert contents(cache).items() >= first.items()
    both = contents(cache)
    for root in (ROOT, other):
        assert use(root, cache, vector_add) == ""
    assert contents(cache) == both


def contents(folder: Path) -> dict[str, bytes]:
    """Files that hold results, without what all versions read sources with."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.suffix in (".sqlite", ".hsaco", ".hipfb", ".json", ".checked") and path.parent.name != "provenance"
    }


def test_what_is_only_read_is_used(tmp_path: Path) -> None:
    """Another version removes files that were unused for long, but not files that are read daily and never extended."""
    old = time.time() - UNUSED_FOR - 100
    for name in ("used", "unused"):
        Store(tmp_path / f"{name}.sqlite").put({b"key": b"value"})
    for name in ("used", "unused"):
        os.utime(tmp_path / f"{name}.sqlite", (old, old))
    assert Store(tmp_path / "used.sqlite").get([b"key"]) == {b"key": b"value"}
    Store(tmp_path / "another.sqlite")
    assert {path.stem for path in tmp_path.glob("*.sqlite")} == {"used", "another"}
