"""Operations that came with the package, and those that are compiled before anything is launched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import run_luthier
from luthier.emulator.native.processor import LEVELS, levels
from luthier.objects import load_object
from luthier.objects.editor import ObjectEditor
from msgspec.structs import replace

LAUNCH = """
import sys
from pathlib import Path
import numpy as np
import luthier
from luthier.emulator.native import store
from luthier.emulator.native.machine import machine_code
store.SHIPPED = Path(sys.argv[2])
a, b, c = np.arange(100, dtype=np.float32), np.full(100, 2, np.float32), np.zeros(100, np.float32)
module = luthier.open_device("emu:gfx90a", threads=1).load(sys.argv[1])
module.kernel("vector_add").launch(a, b, c, 100, grid=1, block=128)
assert np.array_equal(c, a + b)
print(store.shipped_name(sys.argv[3]), machine_code().compiled, store.shipped_file() is not None)
"""
HIGHEST = levels()[0]


def run(app: Path, cache: Path, shipped: Path, compile_for: str = "", level: str = HIGHEST) -> tuple[str, int, bool]:
    """Return what a shipped file is called, how many operations a new process compiles, and whether it has one."""
    environment = {**os.environ, "LUTHIER_CACHE_DIR": str(cache), "LUTHIER_HOST_LEVEL": compile_for}
    command = [sys.executable, "-c", LAUNCH, str(app), str(shipped), level]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    name, compiled, has_file = done.stdout.split()
    return name, int(compiled), has_file == "True"


@pytest.fixture(scope="module", params=LEVELS)
def shipped(request: pytest.FixtureRequest, app, tmp_path_factory: pytest.TempPathFactory) -> Path:  # type: ignore[no-untyped-def]
    """A folder like a wheel's: what a launch needs, for one level."""
    level = str(request.param)
    if level not in levels():
        pytest.skip("the host has no such level")
    cache, folder = tmp_path_factory.mktemp("cache"), tmp_path_factory.mktemp("shipped")
    name, compiled, has_file = run(app("vector_add", "gfx90a"), cache, folder, level, level)
    assert compiled > 10
    assert not has_file
    (made,) = (cache / "emulator").glob("*.sqlite")
    shutil.copyfile(made, folder / name)
    return folder


@pytest.mark.rows(1)
def test_the_first_launch_compiles_nothing(app, shipped: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (file,) = shipped.iterdir()
    file.chmod(0o444)
    before = file.read_bytes()
    assert run(app("vector_add", "gfx90a"), tmp_path, shipped)[1:] == (0, True)
    assert file.read_bytes() == before
    assert run(app("vector_add", "gfx90a"), tmp_path / "file" / "none", shipped)[1:] == (0, True)


@pytest.mark.rows(1)
@pytest.mark.parametrize("damage", ["bits", "garbage", "cut", "empty", "other sources"])
def test_what_is_unsound_is_not_used(app, shipped: Path, tmp_path: Path, damage: str) -> None:  # type: ignore[no-untyped-def]
    (file,) = shipped.iterdir()
    folder = tmp_path / "shipped"
    folder.mkdir()
    data = bytearray(file.read_bytes())
    if damage == "bits":
        data[4096::64] = bytes(byte ^ 4 for byte in data[4096::64])
    elif damage == "garbage":
        data[:] = np.random.default_rng(0).bytes(len(data))
    elif damage == "cut":
        del data[len(data) // 2 :]
    elif damage == "empty":
        data.clear()
    name = file.name.replace("-v", "-v0") if damage == "other sources" else file.name
    (folder / name).write_bytes(data)
    _, compiled, has_file = run(app("vector_add", "gfx90a"), tmp_path / "cache", folder)
    assert compiled > 3
    assert has_file == (damage != "other sources")


def test_a_level_that_the_host_has_not_is_an_error(app, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    environment = {**os.environ, "LUTHIER_CACHE_DIR": str(tmp_path), "LUTHIER_HOST_LEVEL": "x86-64-v9"}
    done = run_luthier("emulator", "compile", app("vector_add", "gfx90a"), env=environment)
    assert done.returncode == 1
    assert "LUTHIER_HOST_LEVEL is 'x86-64-v9'; this host has the levels" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_compiles_ahead(app, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    environment = {**os.environ, "LUTHIER_CACHE_DIR": str(tmp_path), "LUTHIER_HOST_LEVEL": ""}
    path = app("vector_add", "gfx90a")
    for first in (True, False):
        done = run_luthier("emulator", "compile", path, "--kernel", "vector_*", env=environment)
        assert done.returncode == 0, done.stderr
        assert (done.stdout == "0 operations compiled; the others were already in the cache\n") != first
    assert run(path, tmp_path, tmp_path / "nothing")[1:] == (0, False)
    done = run_luthier("emulator", "compile", path, "--kernel", "another", env=environment)
    assert done.returncode == 1
    assert "no kernel matches 'another'" in done.stderr


def test_objects_that_cannot_be_compiled_are_skipped(app, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """The exit code is 1 only where all are."""
    good = app("vector_add", "gfx90a")
    object = load_object(good)
    (kernel,) = object.kernels.values()
    editor = ObjectEditor(object)
    inside = replace(kernel.descriptor, kernel_code_entry_byte_offset=kernel.entry + 2 - kernel.descriptor_address)
    editor.write(kernel.descriptor_address, inside.encode())
    bad = tmp_path / "bad.hsaco"
    bad.write_bytes(editor.finish())
    environment = {**os.environ, "LUTHIER_CACHE_DIR": str(tmp_path / "cache")}
    for files, code in (((bad,), 1), ((bad, good), 0)):
        done = run_luthier("emulator", "compile", *files, env=environment)
        assert done.returncode == code
        assert "luthier emulator: " in done.stderr
        assert "Traceback" not in done.stderr
