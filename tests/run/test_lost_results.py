"""Every command that writes results meets every fault of its surroundings: none ends with 0 where something is lost,
hangs, shows a traceback or leaves something behind, and the next one is right."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet
import pytest
from commands import LUTHIER, end_of_session, run_luthier
from kept import ROOT

from .conftest import PROGRAMS

COMMANDS = {
    "run": ("run", "-t", "instr_count", "-o", "{out}/run", "--", "{program}"),
    "run --json": ("run", "-t", "instr_count", "--json", "{out}/run.json", "--", "{program}"),
    "trace": ("run", "-t", "mem_trace", "-o", "{out}/run", "--", "{program}"),
    "run --capture": ("run", "--capture", "-o", "{out}/run", "--", "{program}"),
    "capture": ("capture", "-o", "{out}/captures", "--", "{program}"),
    "sarif": ("sanitize", "--sarif", "{out}/found.sarif", "--", "{program}"),
    "replay": ("replay", "{captures}", "-t", "instr_count", "-o", "{out}/run"),
    "export": ("export", "--hip", "{capture}", "-o", "{out}/program"),
    "merge": ("merge", "{run}", "{run}", "-o", "{out}/merged"),
    "page": ("report", "{run}", "--format", "html", "-o", "{out}/page.html"),
    "tables": ("report", "{run}", "--format", "csv", "-o", "{out}/tables"),
    "junit": ("report", "{run}", "--format", "junit", "-o", "{out}/found.xml"),
    "time line": ("report", "{run}", "--format", "perfetto", "-o", "{out}/line.json"),
    "patch": ("patch", "{program}", "-t", "instr_count", "-o", "{out}/patched", "--map", "{out}/map.parquet"),
    "extract": ("extract", "{program}", "--target", "gfx90a", "-o", "{out}/objects"),
    "listing": ("lift", "{program}", "--target", "gfx90a", "--instructions"),
    "profile": ("profile", "-o", "{out}/run", "--", "{program}"),
    "run --project": ("run", "--project", "-o", "{out}/run", "--", "{program}"),
    "calibrate": (
        *("project", "{projected}", "--calibrate", "{times}", "--fit", "launch_overhead"),
        *("-o", "{out}/gpu.toml"),
    ),
    "lcov": ("report", "{run}", "--format", "lcov", "-o", "{out}/run.info"),
    "llvm-cov": ("report", "{run}", "--format", "llvm-cov", "-o", "{out}/coverage.json"),
    "folded": ("report", "{run}", "--format", "folded", "-o", "{out}/stacks.txt"),
    "speedscope": ("report", "{run}", "--format", "speedscope", "-o", "{out}/stacks.json"),
    "explain": ("explain", "coalescing"),
    "manual": ("manual",),
    "completion": ("completion", "bash"),
    "projections": ("project", "{captures}", "--to", "mi250x"),
    "minimise": ("minimise", "{racing}", "--check", "races", "-o", "{out}/less.lcap"),
    "debug": ("debug", "-x", "{commands}", "--", "{program}"),
}
PRINTING = ("listing", "debug", "explain", "manual", "completion", "projections")
"""Commands whose results are what they print."""


class Fault(NamedTuple):
    """A fault in the environment of a command."""

    calls: str = ""
    """Calls that fail, as `failing_files.c` names them."""
    error: int = 0
    moment: float = 0
    """How much of such calls succeed before."""
    below: str = "{out}"
    before: tuple[str, ...] = ()
    """Words of a command that runs the command."""
    settings: Mapping[str, str] = {}
    """Variables of the environment."""

    @property
    def is_fatal(self) -> bool:
        """Return whether results are certainly lost."""
        return self.below == "{out}" and bool(self.calls)


NAMES = ("captures", "captures/first", "run", "failing.so", "cache", "racing", "commands", "projected", "times")
MOMENTS = {"first": 0.0, "last": 1.0, "middle": 0.5}
CRASHED = (-signal.SIGSEGV, 128 + signal.SIGSEGV)
SMALL = 'mount -t tmpfs -o size=1m none /dev/shm && exec "$@"'
FAULTS = {
    **{
        f"{errno.errorcode[error]} at the {name} {calls}": Fault(calls, error, moment)
        for calls, errors in {
            "write": (errno.ENOSPC, errno.EDQUOT, errno.EIO),
            "close": (errno.EIO,),
            "rename": (errno.ENOSPC,),
            "open": (errno.EMFILE,),
        }.items()
        for error in errors
        for name, moment in list(MOMENTS.items())[: 3 if calls == "write" else 2]
    },
    **{
        f"no {calls} from the {name} on": Fault(calls, error, moment, below)
        for calls, error, below in (("memory", errno.ENOMEM, "/memfd:"), ("map", errno.ENOMEM, "/memfd:"))
        for name, moment in MOMENTS.items()
    },
    "no locks": Fault("lock", errno.ENOLCK, 0, "/"),
    "full cache": Fault("write", errno.ENOSPC, 0, "{cache}"),
    "broken cache": Fault("write open", errno.EIO, 0.5, "{cache}"),
    "full TMPDIR": Fault("write", errno.ENOSPC, 0, "{tmp}"),
    "TMPDIR is missing": Fault(settings={"TMPDIR": "{out}/../missing"}),
    "TMPDIR is a file": Fault(settings={"TMPDIR": "/etc/hostname"}),
    "HOME is missing": Fault(settings={"HOME": "/nonexistent", "LUTHIER_CACHE_DIR": ""}),
    "the cache cannot be made": Fault(settings={"LUTHIER_CACHE_DIR": "/dev/null/cache"}),
    "few descriptors": Fault(before=("prlimit", "--nofile=32:32")),
    "hardly any descriptors": Fault(before=("prlimit", "--nofile=14:14")),
    "small /dev/shm": Fault(before=("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", SMALL, "sh")),
}


class Made(NamedTuple):
    """Inputs of the commands: a program, its captures, one of a race, a run, debugger commands, a run with projected
    times, measured times; the library that makes calls fail; the cache."""

    program: Path
    captures: Path
    capture: Path
    run: Path
    library: Path
    cache: Path
    racing: Path
    commands: Path
    projected: Path
    times: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, build_program: Callable[..., Path]) -> Made:
    folder, program = tmp_path_factory.mktemp("made"), build_program("graph", "-g")
    made = Made(program, *(folder / name for name in NAMES))
    source = str(PROGRAMS / "failing_files.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", source, "-o", str(made.library), "-ldl"], check=True)
    made.commands.write_text("stepi\nregisters 2\ncontinue\n")
    made.times.write_text("kernel,us\nscale,20\nshift,20\n")
    for command, what in (
        (("capture", "-o", made.captures), program),
        (("capture", "-k", "mix", "-o", made.racing), build_program("defects")),
        (("run", "-t", "block_profile", "-o", made.run), program),
        (("run", "--project", "-o", made.projected), program),
    ):
        done = run_luthier(*command, "--", what)
        assert done.returncode == 0, done
    return made._replace(capture=min(made.captures.iterdir()), racing=min(made.racing.iterdir()))


def start(
    command: str, made: Made, folder: Path, fault: Fault | None = None, after: int = 0, cache: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in a separate folder, optionally with a fault that starts after some calls."""
    places = {"out": folder / "out", "tmp": folder / "tmp", "cache": cache or made.cache}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
    listing = places["out"] / "listing"
    words = [word.format(**(made._asdict() | places)) for word in COMMANDS[command]]
    settings = {"TMPDIR": "{tmp}", "LUTHIER_CACHE_DIR": "{cache}", **(fault.settings if fault else {})}
    if fault and fault.calls:
        (folder / "count").write_bytes(bytes(8))
        failing = {"BELOW": fault.below, "CALLS": fault.calls, "ERROR": fault.error, "AFTER": after}
        settings |= {f"FAILING_{name}": str(value) for name, value in failing.items()}
        settings |= {"FAILING_COUNT": str(folder / "count"), "LD_PRELOAD": str(made.library)}
    env = {**os.environ, **{name: value.format(**places) for name, value in settings.items()}}
    if fault is None:
        done = run_luthier(*words, env=env)
    else:
        words = [*fault.before, LUTHIER, *words]
        pipe = subprocess.PIPE
        with open(listing, "wb") if command in PRINTING else nullcontext(pipe) as out:
            process = subprocess.Popen(words, stdout=out, stderr=pipe, text=True, env=env, start_new_session=True)
        output = end_of_session(process)
        return subprocess.CompletedProcess(words, process.returncode, *output)
    if command in PRINTING:
        listing.write_text(done.stdout)
    return done


def _rows(table: Mapping[str, Any]) -> Any:
    return table["rows"] if "value" in table["columns"] else len(table["rows"])


def results(folder: Path) -> dict[str, Any]:
    """Return what is in result files, but for what differs from run to run."""
    by_name: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".parquet":
            by_name[name] = pyarrow.parquet.read_metadata(path).num_rows
        elif path.suffix == ".lcap":
            by_name[name] = zipfile.ZipFile(path).namelist()
        elif path.suffix == ".json":
            contents = json.loads(path.read_text())
            by_name[name] = (
                [_rows(table) for tool in contents.get("tools", ()) for table in tool["tables"]],
                len(contents),
            )
        elif path.suffix == ".html":
            by_name[name] = path.read_text().rstrip().endswith("</html>")
        elif path.is_file():
            by_name[name] = path.read_bytes().count(b"\n")
    return by_name


@pytest.fixture(scope="module")
def whole(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """``whole(command)``: the results where nothing fails."""
    known: dict[str, dict[str, Any]] = {}

    def run(command: str) -> dict[str, Any]:
        if command not in known:
            folder = tmp_path_factory.mktemp("whole")
            done = start(command, made, folder)
            assert done.returncode == 0, done
            known[command] = results(folder / "out")
            assert known[command]
        return known[command]

    return run


@pytest.fixture(scope="module")
def calls_of(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Fault], int]:
    """``calls_of(command, fault)``: the number of calls that could fail, counted in a run without the fault."""
    known: dict[tuple[str, str, str], int] = {}

    def count(command: str, fault: Fault) -> int:
        key = command, fault.calls, fault.below
        if key not in known:
            folder = tmp_path_factory.mktemp("calls")
            start(command, made, folder, fault, 1 << 62)
            known[key] = int.from_bytes((folder / "count").read_bytes(), "little")
        return known[key]

    return count


def test_the_number_that_is_documented() -> None:
    assert (
        f"each of {len(COMMANDS)} commands with each of {len(FAULTS)} faults" in (ROOT / "docs/tested.md").read_text()
    )


@pytest.mark.rows(6)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_surroundings_that_fail(
    command: str,
    fault: str,
    made: Made,
    whole: Callable[[str], dict[str, Any]],
    calls_of: Callable[[str, Fault], int],
    tmp_path: Path,
) -> None:
    """At whatever call: nothing is half-written, and what is lost is an error."""
    wrong, expected = FAULTS[fault], whole(command)
    if "unshare" in wrong.before and subprocess.run([*wrong.before, "true"], capture_output=True).returncode:
        pytest.skip("this system has no namespaces for this user in which file systems can be mounted")
    # After a fault, files on disk may be incomplete; otherwise all runs share the cache.
    cache = made.cache if wrong.is_fatal else tmp_path / "cache"
    after = (
        max(0, min(int(calls_of(command, wrong) * wrong.moment), calls_of(command, wrong) - 1)) if wrong.moment else 0
    )
    done = start(command, made, tmp_path, wrong, after, cache)
    happened = bool(wrong.calls) and int.from_bytes((tmp_path / "count").read_bytes(), "little") > after
    assert "Traceback" not in done.stderr, done
    written = results(tmp_path / "out")
    if done.returncode == 0:
        assert written == expected, done
        assert not (wrong.is_fatal and happened), done
    else:
        # 2 is the program's own, without a device; HIP itself crashes without temporary files.
        assert done.returncode in (1, 2) or ("TMPDIR" in fault and done.returncode in CRASHED), done
        output = done.stderr or done.stdout  # replays that fail are in the table of all replays
        if "TMPDIR" in fault:
            assert "no temporary files can be written" in output, done
        elif done.stderr:
            assert re.search("error: |: not projected: ", output.splitlines()[-1]), done  # a capture of several
        reasons = (os.strerror(wrong.error), *(["not enough memory"] * (wrong.error == errno.ENOMEM)))
        assert any(reason in output for reason in reasons) or not wrong.error, done
        assert happened or not wrong.calls, done
        if wrong.is_fatal and command not in PRINTING:
            assert all(expected[name] == contents for name, contents in written.items()), (written, done)
    left = [path.name for path in (tmp_path / "out").rglob("*") if "partial" in path.name or path.name[0] == "."]
    left += [path.name for path in (tmp_path / "tmp").iterdir() if path.name.startswith("luthier")]
    assert not left
    if not wrong.is_fatal:
        shutil.rmtree(tmp_path / "out")
        again = start(command, made, tmp_path, cache=cache)
        assert again.returncode == 0, again
        assert results(tmp_path / "out") == expected
