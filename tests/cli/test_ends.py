"""How the command ends where there is no memory, no home folder, or something that no command expects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from assembly import assembled, function, kernel_text
from limited import MB, command
from luthier.cache.folder import cache_root
from luthier.cli import main, objects


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.hsaco"
    path.write_bytes(assembled(kernel_text(function("k", ["s_nop 0", "s_endpgm"]), "gfx90a"), "gfx90a").data)
    return path


@pytest.mark.parametrize(
    ("problem", "code", "text"),
    [
        (MemoryError(), 1, "luthier objects: error: there is not enough memory for this\n"),
        (RecursionError(), 1, "luthier objects: error: something in the input is nested too deeply\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_what_no_command_expects(
    problem: BaseException,
    code: int,
    text: str,
    small: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise problem

    monkeypatch.setattr(objects, "run", fail)
    assert main.main(["objects", str(small)]) == code
    assert capsys.readouterr().err == text


def test_too_little_memory(tmp_path: Path) -> None:
    count = 1 << 20
    text = f".globl k\n.p2align 8\n.type k,@function\nk:\n.fill {count}, 4, 0xbf800000\ns_endpgm\n.size k, .-k\n"
    path = tmp_path / "long.hsaco"
    path.write_bytes(assembled(kernel_text(text, "gfx90a"), "gfx90a").data)
    ended = command(["lift", path, "--instructions"], memory=200 * MB)
    assert (ended.code, ended.error) == (1, "luthier lift: error: there is not enough memory for this\n")


def test_no_home_folder_is_known(small: Path) -> None:
    """A user whom the system does not know, without HOME: everything works, and what is lost is told."""
    script = (
        "import pwd, sys\n"
        "def unknown(uid): raise KeyError(uid)\n"
        "pwd.getpwuid = unknown\n"
        "from luthier.cli.main import main\n"
        "sys.exit(main())"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
    environment.pop("LUTHIER_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", script, "verify", "-t", "opcode_histogram", str(small)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "outputs equal" in done.stdout
    assert done.stderr.count("no home folder is known") == 1


def test_no_home_folder_turns_the_cache_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    assert cache_root({}) is None
    assert cache_root({"LUTHIER_CACHE_DIR": "/a"}) == Path("/a")
    assert cache_root({"XDG_CACHE_HOME": "/b"}) == Path("/b/luthier")
