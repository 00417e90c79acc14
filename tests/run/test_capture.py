"""Launches of programs, captured, and replayed in other processes: the same bytes and counts."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from commands import run_luthier
from luthier.capture import read_capture, write_capture
from luthier.capture.replay import PreparedLaunch
from luthier.errors import LuthierError
from luthier.replay.reduction import reduce
from luthier.run import parse_devices, run_program
from luthier.run.captures import Captures
from luthier.run.selection import Selection
from luthier.run.service import Service

from .conftest import TARGETS, apart

pytestmark = pytest.mark.rows()
NAMES = ("reduction", "histogram")


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_replays_are_equal(build_program: Callable[[str], Path], temporary: Path, name: str, target: str) -> None:
    made = run_luthier("capture", "--device", f"emu:{target}", "-o", temporary / "kept", "--", build_program(name))
    assert made.returncode == 0, made.stderr
    files = sorted((temporary / "kept").iterdir())
    assert files
    done = run_luthier("replay", "--json", temporary / "kept")
    rows = json.loads(done.stdout)
    assert (done.returncode, {row["what"] for row in rows}, len(rows)) == (0, {"equal"}, len(files))
    capture = read_capture(files[0])
    after, pages = capture.after.copy(), capture.pages.copy()
    pages[int(after["page"][0]), 5] ^= 1
    write_capture(files[0], msgspec.structs.replace(capture, pages=pages))
    assert run_luthier("replay", files[0]).returncode == 1
    whole = files[1 % len(files)].read_bytes()
    choose = random.Random(29)
    for _ in range(60):
        damaged = bytearray(whole)
        damaged[choose.randrange(len(damaged))] ^= 1 << choose.randrange(8)
        files[0].write_bytes(damaged[: choose.choice((len(damaged), choose.randrange(len(damaged))))])
        try:
            read_capture(files[0])
        except LuthierError:
            continue


def test_who_was_replayed_says_so(build_program: Callable[[str], Path], temporary: Path) -> None:
    """Differences in a capture that was not replayed are reported as possible writes of others."""
    program = build_program("histogram")
    files = {}
    for name, more in (("all", ["--all-memory"]), ("replayed", [])):
        made = run_luthier("capture", *more, "-o", temporary / name, "--", program)
        assert made.returncode == 0, made.stderr
        files[name] = sorted((temporary / name).iterdir())
        assert {read_capture(file).manifest.replayed for file in files[name]} == {name == "replayed"}
    for name, captures in files.items():
        capture = read_capture(captures[0])
        pages = capture.pages.copy()
        pages[int(capture.after["page"][-1]), 5] ^= 1
        write_capture(captures[0], msgspec.structs.replace(capture, pages=pages))
        done = run_luthier("replay", captures[0])
        assert (done.returncode, "was not replayed" in done.stdout) == (1, name == "all"), done.stdout
    whole, smaller = (sum(file.stat().st_size for file in files[name][1:]) for name in ("all", "replayed"))
    assert smaller < whole


def test_launches_share_what_takes_long(captured: Callable[[str, str], list[Path]]) -> None:
    """Decoded code is there for the next launch of the object, and checks are not loaded for nothing."""
    first, second = (PreparedLaunch(read_capture(file), "gfx90a") for file in captured("reduction", "gfx90a")[:2])
    assert first.code is second.code
    loaded = "import sys, luthier.capture; sys.exit('luthier.emulator.inspection.checks' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded]).returncode == 0


def in_a_namespace(*command: str | Path) -> list[str | Path]:
    """Return a command that runs in a PID namespace, where the first process is 1."""
    return ["unshare", "--user", "--map-root-user", "--pid", "--fork", *command]


@pytest.fixture(scope="module")
def namespaces() -> None:
    """Skip tests without user namespaces."""
    if (done := subprocess.run(in_a_namespace("true"), capture_output=True, text=True)).returncode:
        pytest.skip(f"no namespaces here: {done.stderr}")


@pytest.mark.usefixtures("namespaces")
def test_the_number_in_a_namespace_is_not_the_systems(build_program: Callable[[str], Path], temporary: Path) -> None:
    """Captured is the program, and not whichever process has its number outside."""
    kept = temporary / "kept"
    command = in_a_namespace(build_program("histogram"))
    made = run_luthier("capture", "-o", kept, "--", *command)
    assert (made.returncode, made.stderr.endswith("; not captured: 0\n")) == (0, True), made.stderr
    done = run_luthier("replay", "--json", kept)
    assert {row["what"] for row in json.loads(done.stdout)} == {"equal"}


@pytest.mark.usefixtures("namespaces")
def test_processes_of_namespaces_have_numbers_of_their_own(
    build_program: Callable[[str], Path], temporary: Path
) -> None:
    report, program = temporary / "told.json", build_program("histogram")
    twice = ["sh", "-c", '"$@" && "$@"', "sh", *in_a_namespace(program)]
    run_luthier("run", "-t", "instr_count", "--device", "emu:gfx90a", "--json", report, "--", *twice)
    first, second = json.loads(report.read_text())["processes"]
    assert first["process"] != second["process"]
    assert min(first["launches"], second["launches"]) > 0
    assert None not in (first["parent"], second["parent"])


def test_a_process_without_a_number_is_refused_by_name(
    build_program: Callable[[str], Path], temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a process in a namespace outside the service's, the kernel reports no number."""
    serve = Service._serve
    monkeypatch.setattr(Service, "_serve", lambda self, connection, pid: serve(self, connection, 0))

    def work() -> tuple[list[Path], list[str]]:
        captures = Captures(temporary, Selection(), 1 << 40)
        assert run_program([str(build_program("histogram"))], parse_devices("emu:gfx90a"), captures=captures) == 0
        return captures.files, captures.refused

    files, refused = apart(work)
    assert files == []
    assert refused
    for folder in refused:
        assert folder.endswith(" in process 0: its process is in a PID namespace that Luthier cannot access")


def test_what_does_not_fit_in_memory_is_replayed_from_files(
    build_program: Callable[[str], Path], temporary: Path
) -> None:
    """The same captures as of those that wait in memory."""
    program = build_program("histogram")
    digests = []
    for most in (1 << 40, 0):
        folder = temporary / f"most-{most}"
        folder.mkdir()

        def work(folder: Path = folder, most: int = most) -> list[tuple[str, bytes, int]]:
            captures = Captures(folder, Selection(), 1 << 40, hold=True, most_held=most)
            assert run_program([str(program)], parse_devices("emu:gfx90a"), captures=captures) == 0
            assert len(captures.held) == (len(captures.files) if most else 0)
            assert not captures._stores  # the program has ended
            kept = [read_capture(path) for path in reduce(captures)]
            assert not captures.refused
            assert not captures.held
            return [(one.manifest.kernel, one.counts.tobytes(), len(one.after)) for one in kept]

        digests.append(apart(work))
    assert digests[0] == digests[1]
    assert digests[0]


def test_kernels_that_wait_for_each_other_end(build_program: Callable[[str], Path], temporary: Path) -> None:
    kept = temporary / "kept"
    made = run_luthier("capture", "--patience", "1", "-o", kept, "--", build_program("handshake"))
    assert (made.returncode, made.stdout) == (0, "released\n"), made.stderr
    assert "wait_for" in made.stderr
    assert "kernels that wait for each other cannot be captured" in made.stderr
    (file,) = kept.iterdir()
    assert read_capture(file).manifest.kernel == "_Z5twicePi"
    assert run_luthier("replay", file).returncode == 0
