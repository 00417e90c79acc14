"""Ownership of caches: contents that another user could have written are reported and not used, and work continues."""

from __future__ import annotations

import itertools
import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from luthier.cache import folder as cache
from luthier.cache.folder import cache_folder, find_folder, is_own, make_folder, require_own
from luthier.cache.store import Store
from luthier.errors import BuildError, CacheError

from luthier_build.cache import cache_dir, drop_foreign, keep_own

OTHER = 54321
"""Another user; nobody has this number."""
is_root = os.geteuid() == 0
as_root = pytest.mark.skipif(not is_root, reason="only root can give files away")


@pytest.fixture(autouse=True)
def nothing_told() -> Iterator[None]:
    cache._reported.clear()
    yield
    cache._reported.clear()


def refused(path: Path) -> bool:
    try:
        require_own(path)
    except CacheError:
        return True
    return False


MODES = (0o700, 0o755, 0o775, 0o757, 0o777, 0o1777, 0o1775)
OWNERS = (0, OTHER) if is_root else (os.geteuid(),)


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("level", range(4))
def test_every_folder_on_the_way_decides(tmp_path: Path, level: int, mode: int, owner: int) -> None:
    """Three folders and a file, one of them in any state, compared with a second statement of the rules."""
    paths = [tmp_path / "a", tmp_path / "a/b", tmp_path / "a/b/c", tmp_path / "a/b/c/file"]
    for folder in paths[:3]:
        folder.mkdir(mode=0o700)
    paths[3].write_text("")
    os.chown(paths[level], owner, -1)
    paths[level].chmod(mode)
    others_write = bool(mode & 0o022)
    exchangeable = others_write and not mode & stat.S_ISVTX
    foreign = owner not in (0, os.geteuid())
    for asked, path in enumerate(paths):
        wrong = foreign or (exchangeable if asked > level else others_write)
        assert refused(path) == (asked >= level and wrong), path
    assert is_own(paths[level]) == (not foreign and not others_write)


@as_root
@pytest.mark.parametrize("other_links", [False, True])
@pytest.mark.parametrize("target_mode", [0o700, 0o777])
@pytest.mark.parametrize("absolute", [False, True])
def test_links_are_followed_and_looked_at(tmp_path: Path, absolute: bool, target_mode: int, other_links: bool) -> None:
    (tmp_path / "real/inner").mkdir(parents=True)
    (tmp_path / "real").chmod(target_mode)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real" if absolute else "../" + tmp_path.name + "/real")
    if other_links:
        os.lchown(link, OTHER, -1)
    assert refused(link / "inner") == (other_links or target_mode == 0o777)
    assert refused(link / "not there/nor this") == (other_links or target_mode == 0o777)


def test_circles_of_links_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert refused(tmp_path / "a/c")
    with pytest.raises(OSError, match=r"."):
        require_own(tmp_path / ("x" * 300))


def test_parents_of_a_path_are_the_real_ones(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir(mode=0o700)
    (tmp_path / "bad").mkdir(mode=0o700)
    (tmp_path / "bad").chmod(0o777)
    (tmp_path / "bad/inner").mkdir(mode=0o700)
    (tmp_path / "good/link").symlink_to(tmp_path / "bad/inner")
    assert refused(tmp_path / "good/link/../x")  # it is bad/x
    assert not refused(tmp_path / "good/../good/y")


@as_root
def test_a_user_trusts_what_is_roots_and_his_own(tmp_path: Path) -> None:
    for folder in tmp_path.parents:
        if folder.stat().st_mode & 0o077 == 0 and folder != tmp_path:
            folder.chmod(0o711)
    tmp_path.chmod(0o755)
    for name, owner in (("roots", 0), ("own", OTHER), ("strangers", OTHER + 1)):
        (tmp_path / name).mkdir(mode=0o755)
        os.chown(tmp_path / name, owner, -1)
    child = os.fork()
    if child == 0:
        os.setresuid(OTHER, OTHER, OTHER)
        # pytest's own folders may belong to root.
        good = [refused(tmp_path / name) for name in ("roots", "own", "strangers")] == [False, False, True]
        made = make_folder(tmp_path / "own/a/b")
        good = good and stat.S_IMODE(made.stat().st_mode) == 0o700 and made.stat().st_uid == OTHER
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_folders_are_made_for_this_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_folder(tmp_path / "a/b/c")
        Store(tmp_path / "d/e/f.sqlite").put({b"a": b"1"})
    finally:
        os.umask(before)
    for path in (*tmp_path.rglob("*"),):
        assert path.stat().st_mode & (0o022 if path.is_file() else 0o077) == 0, path


SPOILT: dict[str, Callable[[Path], None]] = {
    "a folder above": lambda path: path.parents[2].chmod(0o777),
    "the cache": lambda path: path.parents[1].chmod(0o770),
    "its part": lambda path: path.parent.chmod(0o1777),
    "the file": lambda path: path.chmod(0o666),
    "the journal": lambda path: (path.with_name(f"{path.name}-journal").touch(), _spoil_journal(path)),  # type: ignore
}
GIVEN = {"the cache": 1, "its part": 0, "the file": None}


def _spoil_journal(path: Path) -> None:
    path.with_name(f"{path.name}-journal").chmod(0o666)


@pytest.mark.parametrize("what", SPOILT)
def test_a_store_that_others_may_write_is_not_used(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "above/cache/part/b.sqlite"
    Store(path).put({b"a": b"1"})
    SPOILT[what](path)
    for _ in range(2):
        store = Store(path)
        store.put({b"b": b"2"})
        assert store.get([b"a", b"b"]) == {}
    stderr = capsys.readouterr().err
    assert stderr.count("luthier: warning: the cache is not used: ") == 1
    assert "can be written by others" in stderr


@as_root
@pytest.mark.parametrize("what", GIVEN)
def test_a_store_of_another_user_is_not_used(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "above/cache/part/b.sqlite"
    Store(path).put({b"a": b"1"})
    level = GIVEN[what]
    os.chown(path if level is None else path.parents[level], OTHER, -1)
    assert Store(path).get([b"a"]) == {}
    assert f"belongs to another user ({OTHER})" in capsys.readouterr().err


LAUNCH = """
import numpy as np
from luthier.emulator.inspection.bench import run_assembly
from luthier.emulator.native.machine import machine_code
state = run_assembly("gfx942", "s_mul_i32 s4, s2, 7", {0: np.arange(64, dtype=np.uint32)}, {2: 6})
print(machine_code().compiled, state.sgpr(4))
"""


def launched(folder: Path, umask: int = -1) -> tuple[bool, str]:
    """Return whether a separate process compiled anything, and its standard error."""
    command = [sys.executable, "-c", LAUNCH]
    environment = {**os.environ, "LUTHIER_CACHE_DIR": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, umask=umask)
    compiled, result = done.stdout.split()
    assert result == "42"
    return int(compiled) > 0, done.stderr


def test_machine_code_that_others_may_write_is_not_executed(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert launched(folder, umask=0) == (True, "")
    assert launched(folder) == (False, "")
    folder.chmod(0o777)  # as made earlier under such a umask
    compiled, stderr = launched(folder)
    assert compiled
    assert stderr == f"luthier: warning: the cache is not used: {folder} can be written by others (mode 777)\n"
    folder.chmod(0o700)
    if is_root:
        (database,) = (folder / "emulator").glob("*.sqlite")
        os.chown(database, OTHER, -1)
        compiled, stderr = launched(folder)
        assert compiled
        assert stderr == f"luthier: warning: the cache is not used: {database} belongs to another user ({OTHER})\n"


@as_root
@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME", "LUTHIER_CACHE_DIR"])
def test_under_sudo_the_users_cache_is_not_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str
) -> None:
    """Unless the variable names Luthier's own folder, the cache in root's home is used."""
    theirs, own = tmp_path / "theirs", tmp_path / "root"
    own.mkdir()
    theirs.mkdir()
    os.chown(theirs, OTHER, -1)
    entry = list(pwd.getpwuid(os.geteuid()))
    entry[5] = str(own)
    monkeypatch.setattr(pwd, "getpwuid", lambda user: pwd.struct_passwd(entry) if user == os.geteuid() else {}[user])
    for name in ("HOME", "XDG_CACHE_HOME", "LUTHIER_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(theirs))
    folder = cache_folder("part")
    stderr = capsys.readouterr().err
    if variable == "LUTHIER_CACHE_DIR":
        assert folder is None
        assert f"{theirs} belongs to another user" in stderr
        with pytest.raises(CacheError):
            find_folder("part")
        with pytest.raises(BuildError, match="set LUTHIER_CACHE_DIR to a writable folder"):
            cache_dir("part")
    else:
        assert folder == own / ".cache/luthier/part"
        assert stderr == ""
        assert cache_dir("part") == folder
    assert not list(theirs.iterdir())


def test_what_others_could_have_put_into_a_build_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("build/good.o", "build/loose.o", ".lock", "deep/inside/a.o"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o644)
    (tmp_path / "build/loose.o").chmod(0o664)
    (tmp_path / ".lock").chmod(0o666)
    (tmp_path / "deep").chmod(0o777)
    (tmp_path / "link").symlink_to("/nowhere")
    if is_root:
        (tmp_path / "build/theirs.o").write_text("")
        os.chown(tmp_path / "build/theirs.o", OTHER, -1)
        os.symlink("/nowhere", tmp_path / "their link")
        os.lchown(tmp_path / "their link", OTHER, -1)
    drop_foreign(tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert left == {"build", "build/good.o", ".lock", "link"}
    assert capsys.readouterr().err.count("others could have written it") == (4 if is_root else 2)


@pytest.mark.parametrize("modes", list(itertools.product((0o644, 0o666, 0o755, 0o775), (0o755, 0o777))))
def test_what_was_just_made_is_taken_from_others(tmp_path: Path, modes: tuple[int, int]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_text("")
    (tmp_path / "folder/link").symlink_to("/etc/passwd")
    (tmp_path / "folder/file").chmod(modes[0])
    (tmp_path / "folder").chmod(modes[1])
    keep_own(tmp_path / "folder")
    assert stat.S_IMODE((tmp_path / "folder/file").stat().st_mode) == modes[0] & ~0o022
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o755
