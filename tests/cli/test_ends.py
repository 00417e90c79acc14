"""Ends of the command without memory, without a home folder, and after an unexpected exception."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import pytest
from assembly import assembled, function, kernel_text
from limited import MB, command
from luthier.cache.folder import cache_root
from luthier.cli import main, objects
from luthier.terminal import say_text


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.hsaco"
    path.write_bytes(assembled(kernel_text(function("k", ["s_nop 0", "s_endpgm"]), "gfx90a"), "gfx90a").data)
    return path


@pytest.mark.parametrize(
    ("problem", "code", "text"),
    [
        (MemoryError(), 1, "luthier objects: error: there is not enough memory for this\n"),
        (RecursionError(), 1, "luthier objects: error: the input is nested too deeply\n"),
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


def in_fork(change: Callable[[], None], arguments: list[str]) -> tuple[int, list[bool]]:
    """Return the exit status of a command in a fork with other standard streams, and which of them programs inherit.

    As when Python ends, nothing may be left in a stream that it cannot take.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 99
        with suppress(BaseException):
            change()
            status = main.main(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
            os.write(writer, bytes(os.get_inheritable(number) for number in range(3)))
        os._exit(status)
    os.close(writer)
    with open(reader, "rb") as stream:
        inherited = stream.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), [*map(bool, inherited)]


@pytest.mark.parametrize("closed", [some for count in range(4) for some in combinations(range(3), count)])
def test_closed_streams(closed: tuple[int, ...], small: Path) -> None:
    """Closed streams are opened on /dev/null, for the command and for programs that it runs."""

    def close() -> None:
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            if number in closed:
                os.close(number)
            setattr(sys, name, None)  # as Python starts with closed streams

    assert in_fork(close, ["objects", str(small)]) == (0, [True] * 3)
    assert in_fork(close, ["objects", f"{small}.none"]) == (1, [True] * 3)


def broken() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


@pytest.mark.parametrize("status", [0, 3])
@pytest.mark.parametrize("size", [1, 1 << 17])
@pytest.mark.parametrize("name", ["disasm", "report", "run", "replay"])
def test_streams_that_take_nothing(name: str, size: int, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures to write standard error are ignored. Failures to write standard output are errors, unless the command
    only prints and its reader has closed the pipe."""

    def run(_: object) -> int:
        for stream in (sys.stderr, sys.stdout):
            say_text("x" * size, file=stream)
        return status

    module = SimpleNamespace(add_arguments=lambda parser: None, run=run)
    monkeypatch.setitem(sys.modules, "a_command", module)
    monkeypatch.setitem(main.COMMANDS, name, ("a_command", ""))

    def ended(number: int, made: Callable[[], int]) -> int:
        def change() -> None:
            nothing = os.open(os.devnull, os.O_WRONLY)
            for descriptor, stream in ((1, "stdout"), (2, "stderr")):
                os.dup2(made() if descriptor == number else nothing, descriptor)
                setattr(sys, stream, os.fdopen(descriptor, "w", buffering=1 if descriptor == 2 else -1, closefd=False))

        return in_fork(change, [name])[0]

    assert [ended(2, made) for made in (broken, full)] == [status] * 2
    assert ended(1, full) == 1
    if size > 1:
        status = 0 if name in main.PRINTING else 1  # it is not known yet
    assert ended(1, broken) == status


def test_too_little_memory(tmp_path: Path) -> None:
    count = 1 << 20
    text = f".globl k\n.p2align 8\n.type k,@function\nk:\n.fill {count}, 4, 0xbf800000\ns_endpgm\n.size k, .-k\n"
    path = tmp_path / "long.hsaco"
    path.write_bytes(assembled(kernel_text(text, "gfx90a"), "gfx90a").data)
    ended = command(["lift", path, "--instructions"], memory=200 * MB)
    message = "luthier lift: error: there is not enough memory for this: ulimit -v 204800\n"
    assert (ended.code, ended.error) == (1, message)


def test_no_home_folder_is_known(small: Path) -> None:
    """For a user without a passwd entry and without HOME, everything works, and limitations are reported."""
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
