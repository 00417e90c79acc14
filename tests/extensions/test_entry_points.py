"""Entry points of installed packages are found immediately after installation, and read from disk once."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
from luthier.cache.folder import VARIABLE
from luthier.extensions import entry_points
from luthier.extensions.entry_points import EntryPoint, points_of

LONG_AGO = 1_600_000_000
SETTLED = entry_points._SETTLED


def write(folder: Path, name: str, target: str, kind: str = "{}-1.dist-info", at: int = LONG_AGO) -> Path:
    """Write what an installer writes about a package with one tool, as if it were long ago; its folder."""
    kept = folder / kind.format(name)
    kept.mkdir(parents=True, exist_ok=True)
    (kept / ("PKG-INFO" if "egg" in kind.lower() else "METADATA")).write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
    )
    (kept / "entry_points.txt").write_text(f"[luthier.tools]\n{name} = {target}\n")
    for path in (*kept.iterdir(), kept):
        os.utime(path, (at, at))
    return kept


def names() -> set[str]:
    return {point.name for point in points_of("luthier.tools")}


def test_what_is_installed_later_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = names()
    monkeypatch.syspath_prepend(tmp_path)
    assert names() == before
    write(tmp_path, "first_of_all", "first_of_all:Tool")
    importlib.invalidate_caches()
    assert names() == before | {"first_of_all"}
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(tmp_path)])
    assert names() == before


def test_packages_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names()

    def read() -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(entry_points, "_installed", read)
    assert names() == {point.name for point in metadata.entry_points(group="luthier.tools")}
    assert points_of("no such group") == ()


@pytest.mark.parametrize("value", ["os.path:join", "os:path.join", "os.path : join", "os.path:join [extra]", "os.path"])
def test_an_entry_point_is_loaded(value: str) -> None:
    theirs = metadata.EntryPoint("one", value, "luthier.tools")
    ours = EntryPoint("one", value, "luthier.tools")
    assert ours.load() is theirs.load()
    assert ours.module == theirs.module


# What is kept for the next process ------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder that alone is on the search path, with one package; the cache is empty."""
    folder = tmp_path / "site"
    write(folder, "one", "one:Tool")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(entry_points, "_SETTLED", 0)  # when a file was put there cannot be set
    monkeypatch.setattr(sys, "path", [str(folder)])
    # Other tests may have imported `importlib_metadata`, which takes the usual finder's place.
    find = metadata.MetadataPathFinder.find_distributions
    monkeypatch.setattr(PathFinder, "find_distributions", find, raising=False)
    usual = [one for one in sys.meta_path if one is PathFinder or not hasattr(one, "find_distributions")]
    monkeypatch.setattr(sys, "meta_path", usual)
    return folder


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[tuple[str, str, str]]]]:
    """Yield a function that asks for tools as a new process does: their names, values and packages."""
    real, times = entry_points._installed, list[int]()

    def read() -> tuple[dict[str, tuple[EntryPoint, ...]], bool]:
        times.append(1)
        importlib.invalidate_caches()
        return real()

    def ask() -> list[tuple[str, str, str]]:
        times.clear()
        entry_points._read.cache_clear()
        points = [(point.name, point.value, point.package) for point in points_of("luthier.tools")]
        return [*points, ("read", "", "")] if times else points

    monkeypatch.setattr(entry_points, "_installed", read)
    yield ask
    entry_points._read.cache_clear()


READ = ("read", "", "")
ONE = ("one", "one:Tool", "one")
TWO = ("two", "two:Tool", "two")
Ask = Callable[[], list[tuple[str, str, str]]]


def test_they_are_kept(site: Path, reads: Ask) -> None:
    assert reads() == [ONE, READ]
    assert reads() == [ONE]
    (site / "one.py").write_text("")  # says nothing about packages
    assert reads() == [ONE]


@pytest.mark.parametrize("replaces", [True, False])
def test_an_unpacked_file_of_equal_size_and_time_is_seen(site: Path, reads: Ask, replaces: bool) -> None:
    assert reads() == [ONE, READ]
    time.sleep(0.01)  # more than the resolution of file systems
    if replaces:
        (site / "one-1.dist-info/entry_points.txt").unlink()
    write(site, "one", "two:Tool")
    assert reads() == [("one", "two:Tool", "one"), READ]


@pytest.mark.parametrize("kind", ["{}-1.dist-info", "{}.egg-info", "EGG-INFO"])
def test_what_changes_is_seen(site: Path, reads: Ask, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "EGG-INFO":  # is looked for in eggs alone
        site = site.rename(site.with_name("site.egg"))
        monkeypatch.setattr(sys, "path", [str(site)])
    reads()
    other = write(site, "two", "two:Tool", kind)
    assert sorted(reads()) == [ONE, READ, TWO]
    assert sorted(reads()) == [ONE, TWO]
    write(site, "two", "elsewhere:Tool", kind, LONG_AGO + 1)  # in place, as of packages in their sources
    assert sorted(reads()) == [ONE, READ, ("two", "elsewhere:Tool", "two")]
    shutil.rmtree(other)
    assert reads() == [ONE, READ]
    assert reads() == [ONE]


def test_each_search_path_has_its_own(site: Path, reads: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads()
    write(tmp_path / "second", "two", "two:Tool")
    monkeypatch.setattr(sys, "path", [str(site), str(tmp_path / "second")])
    assert reads() == [ONE, TWO, READ]
    monkeypatch.setattr(sys, "path", [str(site)])
    assert reads() == [ONE]
    monkeypatch.chdir(site)
    monkeypatch.setattr(sys, "path", [""])
    assert reads() == [ONE, READ]
    monkeypatch.chdir(tmp_path / "second")
    assert reads() == [TWO, READ]


@pytest.mark.parametrize("at", [LONG_AGO, None])
def test_what_was_just_written_is_not_kept(
    site: Path, reads: Ask, monkeypatch: pytest.MonkeyPatch, at: int | None
) -> None:
    """It may be written again with the same time stamp."""
    monkeypatch.setattr(entry_points, "_SETTLED", SETTLED)
    os.utime(site / "one-1.dist-info", at and (at, at))
    assert reads() == [ONE, READ]
    assert reads() == [ONE, READ]


DAMAGED = {
    "bytes": b"[luthier.tools]\ntwo = two:Tool\nx = \xff\xfe\n",
    "no value": b"[luthier.tools]\ntwo\n",
    "no group": b"two = two:Tool\n",
}


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("says_name", [True, False])
def test_a_damaged_package_is_left_out(
    site: Path, reads: Ask, damage: str, says_name: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tools of other packages are found, and packages that are left out are reported."""
    reads()
    other = write(site, "two", "two:Tool")
    (other / "entry_points.txt").write_bytes(DAMAGED[damage])
    if not says_name:
        (other / "METADATA").write_bytes(b"Name: tw\xf6\n")
    points = reads()
    assert points in ([ONE, READ], [ONE, ("two", "", "two" if says_name else ""), READ])  # as this Python reads it
    stderr = capsys.readouterr().err
    where = "two" if says_name else f"a package in {site}"
    assert stderr == "" or f"warning: ignoring the entry points of {where}, which cannot be read: " in stderr
    assert stderr or damage != "bytes"


def test_a_folder_that_was_removed(site: Path, reads: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(sys, "path", ["", str(site)])
    assert reads() == [ONE, READ]


def test_nothing_is_kept_of_other_finders(site: Path, reads: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder(metadata.DistributionFinder):
        def find_distributions(self, context: object = None) -> list[metadata.Distribution]:
            return [metadata.PathDistribution(write(site.parent / "hidden", "two", "two:Tool"))]

    reads()
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert reads() == [ONE, TWO, READ]
    assert reads() == [ONE, TWO, READ]


@pytest.mark.parametrize("damage", ["empty", "text", "other", "shared", "off"])
def test_what_cannot_be_used_is_read_again(
    site: Path, reads: Ask, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads()
    (kept,) = (tmp_path / "cache/entry-points").iterdir()
    if damage == "shared":
        kept.chmod(0o666)
    elif damage == "off":
        monkeypatch.setenv(VARIABLE, "")
    else:
        kept.write_text({"empty": "", "text": "{", "other": '{"state": 3}'}[damage])
    assert reads() == [ONE, READ]


def test_a_command_reads_no_metadata(tmp_path: Path) -> None:
    """Once the tools are cached, neither `importlib.metadata` nor its dependencies are imported."""
    code = (
        "import sys; from luthier.tool import find_entry_points; find_entry_points()\n"
        "print('importlib.metadata' in sys.modules, *find_entry_points())"
    )
    environment = {**os.environ, VARIABLE: str(tmp_path)}
    first, second = (
        subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    )
    assert first[1:] == second[1:]
    assert (first[0], second[0]) == ("True", "False")
