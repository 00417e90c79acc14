"""Files that users name for results: whatever is there keeps its kind; results are there whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from assembly import assembled, function, kernel_text
from commands import MAIN
from luthier.cli.main import main
from luthier.errors import LuthierError
from luthier.support.files import check_writable, write_atomically, writing_atomically
from run_folders import kernel, write_run

from luthier_build.cli import build

OLD = b"what was there before, which is longer than some of what comes"
NOBODY = 65534
Kind = Callable[[Path], Path]


def node(path: Path, major: int, minor: int) -> Path:
    """A device node in a folder of the test, never one of the machine's."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
        os.close(os.open(path, os.O_WRONLY))
    except PermissionError:
        pytest.skip("device nodes cannot be made here")
    return path


def regular(path: Path, mode: int = 0o640) -> Path:
    path.write_bytes(OLD)
    path.chmod(mode)
    return path


def link(path: Path, target: Path) -> Path:
    path.symlink_to(target.relative_to(path.parent))
    return path


def hard_link(path: Path) -> Path:
    os.link(regular(path.with_name("first")), path)
    return path


def listened(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
    return path


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def folder(path: Path) -> Path:
    path.mkdir()
    return path


GOOD: dict[str, Kind] = {
    "new": lambda path: path,
    "regular": regular,
    "executable": lambda path: regular(path, 0o755),
    "link": lambda path: link(path, regular(path.with_name("target"))),
    "links": lambda path: link(path, link(path.with_name("middle"), regular(path.with_name("target")))),
    "link to nothing": lambda path: link(path, path.with_name("target")),
    "hard link": hard_link,
    "null": lambda path: node(path, 1, 3),
    "link to null": lambda path: link(path, node(path.with_name("target"), 1, 3)),
    "fifo": fifo,
    "link to fifo": lambda path: link(path, fifo(path.with_name("target"))),
}
"""What can be written to, made at a path."""
BAD: dict[str, tuple[Kind, str]] = {
    "full": (lambda path: node(path, 1, 7), "No space left on device"),
    "link to full": (lambda path: link(path, node(path.with_name("target"), 1, 7)), "No space left on device"),
    "folder": (folder, "Is a directory"),
    "link to folder": (lambda path: link(path, folder(path.with_name("target"))), "Is a directory"),
    "socket": (listened, "No such device or address"),
    "loop": (lambda path: link(path, path), "Too many levels of symbolic links"),
    "missing folder": (lambda path: path / "out", "No such file or directory"),
    "below a file": (lambda path: regular(path) / "out", "Not a directory"),
}


def state(path: Path) -> dict[str, tuple[object, ...]]:
    """Return the state of everything in a folder, without contents and inodes of regular files."""
    states: dict[str, tuple[object, ...]] = {}
    for file in sorted(path.iterdir()):
        about = file.lstat()
        same = about.st_nlink if stat.S_ISREG(about.st_mode) and about.st_nlink == 1 else about.st_ino
        where = os.readlink(file) if file.is_symlink() else None
        states[file.name] = (oct(about.st_mode), about.st_rdev, about.st_uid, about.st_gid, same, where)
    return states


@contextmanager
def read_from(path: Path) -> Iterator[list[bytes]]:
    """Collect the final contents of a path, or the data that the reader of a FIFO receives."""
    got: list[bytes] = []
    if path.is_fifo():
        reader = threading.Thread(target=lambda: got.append(path.read_bytes()), daemon=True)
        reader.start()
        try:
            yield got
        finally:
            with suppress(OSError):  # a writer that never came
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            reader.join(60)
    else:
        yield got
        if path.is_file():
            got.append(path.read_bytes())


@pytest.mark.rows(21)
@pytest.mark.parametrize("size", [0, 7, 1 << 20, (1 << 24) + 5])
@pytest.mark.parametrize("kind", GOOD)
def test_results_arrive_and_what_is_there_stays_what_it_is(kind: str, size: int, tmp_path: Path) -> None:
    path, data = GOOD[kind](tmp_path / "out"), os.urandom(size)
    before = state(tmp_path)
    check_writable(path)
    with read_from(path) as got:
        write_atomically(path, data)
    assert got == ([] if "null" in kind else [data])
    after = state(tmp_path)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"new": {"out"}, "link to nothing": {"target"}}.get(kind, set())


@pytest.mark.parametrize("kind", GOOD)
def test_work_that_fails_leaves_what_was_there(kind: str, tmp_path: Path) -> None:
    path = GOOD[kind](tmp_path / "out")
    before, content = state(tmp_path), path.read_bytes() if path.is_file() else None

    def fail() -> None:
        with writing_atomically(path) as file:
            file.write(bytes(100_000))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert state(tmp_path) == before
    assert content is None or path.read_bytes() == content


def test_whoever_is_killed_while_writing_leaves_nothing(tmp_path: Path) -> None:
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_WRONLY))
    except OSError as problem:
        pytest.skip(f"this file system has no files without names: {problem}")
    code = (
        "import os, sys; from luthier.support.files import writing_atomically\n"
        "with writing_atomically(sys.argv[1]) as file: file.write(bytes(99_999)), file.flush(), os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path / "out"]).returncode == -9
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("kind", GOOD)
def test_systems_without_nameless_files(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)  # Linux before 3.11 sees this part of it alone
    test_results_arrive_and_what_is_there_stays_what_it_is(kind, 7, tmp_path)


@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_be_written_is_told_and_stays(kind: str, tmp_path: Path) -> None:
    make, reason = BAD[kind]
    path = make(tmp_path / "out")
    before = state(tmp_path)
    with pytest.raises(LuthierError, match=reason) as raised:
        write_atomically(path, b"something")
    assert str(path) in str(raised.value)
    assert state(tmp_path) == before
    if "full" not in kind and kind != "socket":  # only writing reveals these
        with pytest.raises(LuthierError, match=reason):
            check_writable(path)


@pytest.mark.parametrize("name", ["", "new/", "there/"])
def test_names_that_are_no_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    regular(tmp_path / "there")
    for write in (check_writable, lambda path: write_atomically(path, b"x")):
        with pytest.raises(LuthierError, match="cannot write"):
            write(name)
    assert [one.name for one in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize("old", [None, 0o600, 0o644, 0o755, 0o4755])
@pytest.mark.parametrize("mode", [None, 0o755, 0o4711])
def test_permissions(old: int | None, mode: int | None, tmp_path: Path) -> None:
    """Permissions of an existing file stay, except for special rights of its old contents; programs are executable."""
    path = tmp_path / "out"
    if old is not None:
        regular(path, old)
    before = os.umask(0o027)
    try:
        write_atomically(path, b"new", mode)
    finally:
        os.umask(before)
    asked = (0o666 if mode is None else mode) & 0o750
    wanted = asked if old is None else old & 0o777 | ((mode or 0) & 0o110)
    assert oct(path.stat().st_mode & 0o7777) == oct(wanted)


def as_nobody(work: Callable[[], None]) -> str:
    """Return the exception of `work` in a process of another user; empty if it succeeds."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setegid(NOBODY)
            os.seteuid(NOBODY)
            work()
            os._exit(0)
        except BaseException as problem:
            os.write(writing, f"{type(problem).__name__}: {problem}".encode())
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.rows(4)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("folder_mode", [0o777, 0o755, 0o1777])
@pytest.mark.parametrize("file_mode", [None, 0o666, 0o644])
def test_files_of_other_users(file_mode: int | None, folder_mode: int, tmp_path: Path) -> None:
    """They are written if permissions allow it, and keep their owners."""
    for above in (tmp_path, *tmp_path.parents):
        if above != Path("/") and not above.stat().st_mode & 0o001:
            above.chmod(0o711)
    inside = tmp_path / "inside"
    inside.mkdir()
    inside.chmod(folder_mode)
    path = inside / "out"
    if file_mode is not None:
        regular(path, file_mode)
    before = state(inside)
    problem = as_nobody(lambda: write_atomically(path, b"new"))
    checked = as_nobody(lambda: check_writable(path))
    allowed = file_mode == 0o666 if file_mode is not None else folder_mode != 0o755
    if allowed:
        assert problem == checked == ""
        assert path.read_bytes() == b"new"
        assert path.stat().st_uid == (NOBODY if file_mode is None else 0)
        assert file_mode is None or state(inside) == before
    else:
        assert problem == checked == f"LuthierError: cannot write {path}: Permission denied"
        assert state(inside) == before
        assert file_mode is None or path.read_bytes() == OLD


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_leaves_files_to_their_owners(tmp_path: Path) -> None:
    path = regular(tmp_path / "out")
    os.chown(path, NOBODY, NOBODY)
    write_atomically(path, b"new")
    assert (path.stat().st_uid, path.stat().st_gid, path.read_bytes()) == (NOBODY, NOBODY, b"new")


def test_a_single_file_that_is_mounted(tmp_path: Path) -> None:
    """As containers have it: it cannot be replaced, but written."""
    outer, inner = regular(tmp_path / "outer"), regular(tmp_path / "inner")
    code = "import sys; from luthier.support.files import write_atomically; write_atomically(sys.argv[2], b'new')"
    script = 'mount --bind "$1" "$2" && exec "$0" -c "$3" "$1" "$2"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    done = subprocess.run([*command, sys.executable, outer, inner, code], capture_output=True, text=True)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mounts here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert (outer.read_bytes(), inner.read_bytes()) == (b"new", OLD)
    assert len([*tmp_path.iterdir()]) == 2


@pytest.mark.rows(10)
@pytest.mark.parametrize("name", ["/dev/fd/1", "/proc/self/fd/1", "/proc/thread-self/fd/1", "link", "links"])
@pytest.mark.parametrize("where", ["file", "pipe", "appended"])
def test_the_processs_own_output(name: str, where: str, tmp_path: Path) -> None:
    """Output is appended after existing output, and the caller may continue after it."""
    if name.startswith("link"):  # as /dev/stdout is one: never the machine's own, which a defect would replace
        os.symlink("/proc/self/fd/1", tmp_path / "link")
        os.symlink("link", tmp_path / "links")
        name = str(tmp_path / name)
    code = (
        "import sys; from luthier.support.files import write_atomically\n"
        f"print('one'); write_atomically({name!r}, b'two\\n'); print('three')"
    )
    out = tmp_path / "out"
    out.write_text("zero\n")
    if where == "pipe":
        output = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout.decode()
    else:
        with out.open("a" if where == "appended" else "w") as file:
            subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
        output = out.read_text()
    assert output == ("zero\n" if where == "appended" else "") + "one\ntwo\nthree\n"


# The commands ---------------------------------------------------------------------------------------------------------

TOOL = """
from luthier import Tool

class Counts(Tool):
    def instrument(self, task):
        task.count(task.instructions)
"""


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs the tool `counts`."""
    site = tmp_path / "site"
    (site / "counts_tool-1.0.dist-info").mkdir(parents=True)
    (site / "counts_tool.py").write_text(TOOL)
    (site / "counts_tool-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: counts-tool\nVersion: 1.0\n"
    )
    (site / "counts_tool-1.0.dist-info" / "entry_points.txt").write_text(
        "[luthier.tools]\ncounts = counts_tool:Counts\n"
    )
    monkeypatch.syspath_prepend(str(site))


COMMANDS: dict[str, list[str]] = {
    "patch": ["patch", "APP", "-t", "counts", "-o", "OUT"],
    "patch --map": ["patch", "APP", "-t", "counts", "-o", "PATCHED", "--map", "OUT"],
    "patch --map parquet": ["patch", "APP", "-t", "counts", "-o", "PATCHED", "--map", "OUT.parquet"],
    **{
        f"report {format}": ["report", "RUN", "--format", format, "-o", "OUT"]
        for format in ("text", "json", "html", "perfetto")
    },
    "report csv": ["report", "RUN", "--format", "csv", "--table", "kernels", "-o", "OUT"],
    "report --against": ["report", "RUN", "--against", "RUN", "--format", "html", "-o", "OUT"],
    "report --trace": ["report", "RUN", "--trace", "kernels", "-o", "OUT"],
    "objects --json": ["objects", "APP", "--json=OUT"],
    "cache --json": ["cache", "--json=OUT"],
}
"""Every command that writes a file, but for those below."""


@pytest.mark.rows(15)
@pytest.mark.parametrize("kind", ["regular", "link", "fifo", "null", "full", "link to full", "folder"])
@pytest.mark.parametrize("command", COMMANDS)
def test_commands(
    command: str, kind: str, fat: Path, counts: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", kernels=[kernel("k")])
    inside = tmp_path / "inside"
    inside.mkdir()
    name = "out.parquet" if command.endswith("parquet") else "out"
    path = (GOOD.get(kind) or BAD[kind][0])(inside / name)
    before = state(inside)
    words = {
        "APP": str(fat),
        "RUN": str(run),
        "OUT": str(path),
        "OUT.parquet": str(path),
        "--json=OUT": f"--json={path}",
    }
    words["PATCHED"] = str(tmp_path / "patched")
    more = ["--target", "gfx942"] if command.startswith("patch") else []
    with read_from(path) as got, pytest.MonkeyPatch.context() as patch:
        if command.startswith("cache"):  # the user's own may have very many files
            patch.setenv("LUTHIER_CACHE_DIR", str(tmp_path))
        code = main([words.get(word, word) for word in COMMANDS[command]] + more)
    output = capfd.readouterr().err
    assert state(inside) == before
    if kind in GOOD:
        assert (code, output) == (0, "")
        assert kind == "null" or len(got[0]) > 30
        assert kind == "null" or got[0] != OLD
    else:
        assert code == 1
        assert f"cannot write {path}: {BAD[kind][1]}" in output


@pytest.mark.parametrize(
    "words",
    [
        ["objects", "APP"],
        ["disasm", "--target", "gfx942", "APP"],
        ["lift", "--target", "gfx942", "APP"],
        ["check", "--target", "gfx942", "APP"],
        ["cost", "--target", "gfx942", "-t", "counts", "APP"],
        ["emulator", "coverage", "gfx942"],
        ["tools"],
    ],
    ids=lambda words: words[0],
)
def test_json_in_place_of_text_or_beside_it(
    words: list[str], fat: Path, counts: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """``--json`` prints JSON; ``--json FILE.json`` prints the text, and writes the same JSON to the file."""
    command, out = [str(fat) if word == "APP" else word for word in words], tmp_path / "out.json"
    shown = []
    for more in ([], ["--json"], ["--json", str(out)]):
        code = main([*command[:-1], *more, *command[-1:]] if len(command) > 1 else [*command, *more])
        shown.append((code, capfd.readouterr().out))
    (code, text), (_, printed), beside = shown
    assert beside == (code, text) != (code, printed)
    assert json.loads(printed) == json.loads(out.read_text())


@pytest.mark.rows(1)
@pytest.mark.parametrize("kind", ["new", "link", "fifo", "full", "folder", "missing folder"])
def test_run_json(kind: str, tmp_path: Path) -> None:
    """Outputs that cannot be written are reported before the program starts."""
    inside = tmp_path / "inside"
    inside.mkdir()
    path = (GOOD.get(kind) or BAD[kind][0])(inside / "out")
    before = state(inside)
    with read_from(path) as got:
        command = [sys.executable, "-c", MAIN, "run", "--json", str(path), "--", "echo", "program"]
        done = subprocess.run(command, capture_output=True, text=True)
    if kind in GOOD:
        assert (done.returncode, done.stdout, done.stderr) == (0, "program\n", "")
        assert json.loads(got[0])["command"] == ["echo", "program"]
    else:
        assert (done.returncode, done.stdout) == (1, "program\n" if kind == "full" else "")
        assert f"luthier run: error: cannot write {path}: {BAD[kind][1]}" in done.stderr
    if kind != "new":
        assert state(inside) == before


@pytest.mark.parametrize("command", [["run", "-o", "OUT", "--", "true"], ["merge", "RUN", "RUN", "-o", "OUT"]])
@pytest.mark.parametrize("kind", ["regular", "link", "link to nothing", "fifo", "null", "socket"])
def test_folders_that_are_none(
    command: list[str], kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", kernels=[kernel("k")])
    inside = tmp_path / "inside"
    inside.mkdir()
    path = (GOOD.get(kind) or BAD[kind][0])(inside / "out")
    before = state(inside)
    assert main([{"OUT": str(path), "RUN": str(run)}.get(word, word) for word in command]) == 1
    assert f"cannot write {path}: " in capfd.readouterr().err
    assert state(inside) == before


@pytest.mark.parametrize("kind", ["null", "link to full"])
def test_what_builds_write(kind: str, tmp_path: Path) -> None:
    """The file of dependencies is the only one whose name users choose."""
    source = Path(build.__file__).read_text()
    assert "write_atomically(args.depfile" in source
    path = (GOOD.get(kind) or BAD[kind][0])(tmp_path / "out")
    before = state(tmp_path)
    with suppress(LuthierError):
        write_atomically(path, b"x: y\n")
    assert state(tmp_path) == before


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    """In a separate folder on a full file system."""
    full = tmp_path / "full"
    full.mkdir()
    code = """
import os, sys
from pathlib import Path
from luthier.errors import LuthierError
from luthier.support.files import write_atomically
os.chdir(sys.argv[1])
Path("out").write_bytes(b"old")
try:
    write_atomically("out", bytes(1 << 20))
except LuthierError as problem:
    print(problem)
print(Path("out").read_bytes(), os.listdir())
"""
    script = 'mount -t tmpfs -o size=64k none "$1" && exec "$0" -c "$2" "$1"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    done = subprocess.run([*command, sys.executable, full, code], capture_output=True, text=True)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mounts here: {done.stderr}")
    assert done.stdout == f"cannot write out: {os.strerror(errno.ENOSPC)}\nb'old' ['out']\n", done.stderr


def small(path: Path) -> Path:
    code = function("k", ["v_mov_b32 v0, 0", "s_endpgm"])
    path.write_bytes(assembled(kernel_text(code, "gfx90a"), "gfx90a").data)
    return path


@pytest.mark.parametrize("kind", ["new", "regular", "link", "link to nothing", "hard link", "null"])
def test_patched_object_and_map_are_two_files(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The map was written over the object. Devices keep nothing, so they may be both."""
    object, out = small(tmp_path / "object"), GOOD[kind](tmp_path / "out")
    before = state(tmp_path)
    command = ["patch", "-t", "opcode_histogram", "-o", str(out), "--map"]
    for other in (str(out), f"{tmp_path}/./out"):
        assert main([*command, other, str(object)]) == int(kind != "null")
        assert ("--output and --map name the same file" in capsys.readouterr().err) == (kind != "null")
    assert state(tmp_path) == before
    assert main([*command, str(tmp_path / "map"), str(object)]) == 0
    capsys.readouterr()


def test_patching_what_comes_by_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe can be read only once."""
    object, pipe = small(tmp_path / "object"), fifo(tmp_path / "pipe")
    writer = threading.Thread(target=pipe.write_bytes, args=[object.read_bytes()], daemon=True)
    writer.start()
    command = ["patch", "-t", "opcode_histogram", "-o"]
    assert main([*command, str(tmp_path / "from pipe"), str(pipe)]) == 0
    writer.join()
    assert main([*command, str(tmp_path / "from file"), str(object)]) == 0
    assert (tmp_path / "from pipe").read_bytes() == (tmp_path / "from file").read_bytes()
    capsys.readouterr()
