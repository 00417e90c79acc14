"""Messages of a run before it starts, its files, and its end."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from commands import MAIN
from luthier.run import devices_for, preflight
from luthier.support import private_folder, processes

from .conftest import Outcome

Run = Callable[..., Outcome]
RUN = [sys.executable, "-c", MAIN, "run"]


def run(*arguments: str, prefix: str = "", env: dict[str, str] | None = None) -> Outcome:
    """``luthier run`` with arguments, after shell commands that set limits."""
    command = ["sh", "-c", f'{prefix}\nexec "$@"', "sh", *RUN, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **(env or {})})
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("ulimit -v 8000000", "limit of address space (ulimit -v)"),
        ("ulimit -n 24", "(ulimit -n) is 24"),
        ("ulimit -f 64", "limit of file sizes (ulimit -f) is"),
    ],
)
def test_a_limit_is_said_first(limit: str, says: str) -> None:
    outcome = run("--", "echo", "started", prefix=limit)
    assert (outcome.code, outcome.out) == (1, "")
    assert says in outcome.err
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "contents", "says"),
    [
        ("missing", None, "No such file or directory\n"),
        ("beside", "#!/bin/sh\n", "No such file or directory; did you mean ./beside?"),
        ("./beside", "#!/no/interpreter\n", "No such file or directory; its interpreter is missing"),
        ("folder", None, "No such file or directory\n"),
        ("./beside", "\x7fELF", "Exec format error; it is an ELF file for another processor, or damaged"),
        ("./beside", "echo started\n", "Exec format error; a script begins with a line such as #!/bin/sh"),
        ("./script.py", None, "Permission denied; a script needs its interpreter (python3 ./script.py)"),
    ],
)
def test_a_program_that_cannot_start(tmp_path: Path, name: str, contents: str | None, says: str) -> None:
    if contents is not None:
        (tmp_path / "beside").write_text(contents)
        (tmp_path / "beside").chmod(0o700)
    (tmp_path / "folder").mkdir()
    (tmp_path / "script.py").touch(mode=0o600)
    outcome = run("--", name, prefix=f"cd {tmp_path}")
    assert outcome.code == 1
    assert says in outcome.err


def test_a_program_that_loads_no_library(tmp_path: Path) -> None:
    """One that is linked statically, or has 32 bits, is named before; its children count."""
    program = tmp_path / "program"
    source = '#include <unistd.h>\nint main(void) { return execlp("true", "true", NULL); }'
    subprocess.run(["gcc", "-static", "-x", "c", "-", "-o", program], input=source, text=True, check=True)
    assert "program is statically linked" in (preflight.unreachable(program) or "")
    assert f"warning: {program} is statically linked" in run("--", str(program)).err
    program.write_bytes(program.read_bytes()[:4] + b"\1" + program.read_bytes()[5:])
    assert "is a 32-bit program" in (preflight.unreachable(program) or "")
    for path in (sys.executable, "/lib64/ld-linux-x86-64.so.2"):
        assert preflight.unreachable(Path(path)) is None
    assert preflight.unreachable(tmp_path / "missing") is None


def test_limits_that_suffice() -> None:
    outcome = run("--", "echo", "started", prefix="ulimit -n 32; ulimit -v 1200000000")
    assert (outcome.code, outcome.out, outcome.err) == (0, "started\n", "")


def test_a_limit_of_the_program_itself(build_program: Callable[..., Path]) -> None:
    """The error names the limit, and does not say that the addresses are in use."""
    script = 'ulimit -v 8000000; exec "$0"'
    outcome = run("--device", "emu:gfx90a", "--", "sh", "-c", script, str(build_program("graph")))
    assert outcome.code != 0
    assert "no virtual device: the addresses that the virtual device needs cannot be mapped" in outcome.err
    assert "(ulimit -v)" in outcome.err


def test_a_machine_that_tells_of_no_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    devices = devices_for("emu:gfx90a", ["true"])
    preflight.check(["true"], devices, {})
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(preflight, "PROCESSORS", str(tmp_path / "none"))
    preflight.check(["true"], devices, {})
    assert "Mount /sys" in capsys.readouterr().err


def test_a_run_inside_of_another() -> None:
    outcome = run("--", *RUN, "--", "echo", "started")
    assert (outcome.code, outcome.out) == (1, "")
    assert "inside another `luthier run`" in outcome.err


def test_what_is_left_of_another_run_is_no_run(tmp_path: Path) -> None:
    outcome = run("--", "echo", "started", env={"LUTHIER_RUN_SOCKET": str(tmp_path / "gone")})
    assert (outcome.code, outcome.out, outcome.err) == (0, "started\n", "")


@pytest.mark.rows(2)
@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize(("mode", "kind"), [(0o4755, "setuid"), (0o2755, "setgid"), (0o755, None)])
def test_a_program_with_rights_of_its_own(tmp_path: Path, mode: int, kind: str | None) -> None:
    program = tmp_path / "program"
    program.write_bytes(Path("/bin/echo").read_bytes())
    os.chown(program, 65534, 65534)
    program.chmod(mode)
    outcome = run("--", str(program), "started")
    if kind is None:
        assert (outcome.code, outcome.out, outcome.err) == (0, "started\n", "")
    else:
        assert (outcome.code, outcome.out) == (1, "")
        assert f"privileges of its own ({kind})" in outcome.err


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_a_device_that_rocr_does_not_know(tmp_path: Path, target: str) -> None:
    runtime = tmp_path / "libhsa-runtime64.so.1"
    runtime.write_bytes(b"\x7fELF gfx90a gfx1030")
    base = {"LD_LIBRARY_PATH": str(tmp_path)}
    outcome = run(f"--device=emu:gfx90a,emu:{target}", "--", "echo", "started", env=base)
    assert (outcome.code, outcome.out) == (0, "started\n")
    assert outcome.err.startswith(f"luthier run: warning: {runtime} does not support {target}: ")
    runtime.write_bytes(b"\x7fELF gfx90a " + target.encode())
    outcome = run(f"--device=emu:gfx90a,emu:{target}", "--", "echo", "started", env=base)
    assert (outcome.code, outcome.out, outcome.err) == (0, "started\n", "")


# What is left ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def started(temporary: Path) -> Iterator[Callable[[], tuple[subprocess.Popen[bytes], Path]]]:
    """``started()``: a run that goes on, and its folder in `temporary`."""
    runs: list[subprocess.Popen[bytes]] = []

    def start() -> tuple[subprocess.Popen[bytes], Path]:
        before = set(temporary.glob("luthier-run-*/service"))
        runs.append(subprocess.Popen([*RUN, "--", "sleep", "100"], env={**os.environ, "TMPDIR": str(temporary)}))
        while not (new := set(temporary.glob("luthier-run-*/service")) - before) or not children(runs[-1].pid):
            assert runs[-1].poll() is None
            time.sleep(0.02)
        return runs[-1], new.pop().parent

    try:
        yield start
    finally:
        for process in runs:
            for pid in (*children(process.pid), *orphans, process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            process.wait()
        orphans.clear()


children = processes.descendants
orphans: list[int] = []
"""Programs whose run was killed."""


def test_folders_of_killed_runs(temporary: Path, started: Callable[[], tuple[subprocess.Popen[bytes], Path]]) -> None:
    """The next run removes what a killed one has left, and nothing else."""
    _, living = started()
    killed, left = started()
    orphans.extend(children(killed.pid))
    file, unlocked, precious = (
        temporary / "luthier-run-file",
        temporary / "luthier-run-unlocked",
        temporary / "precious",
    )
    file.write_text("")
    unlocked.mkdir()
    precious.mkdir()
    (precious / "lock").write_text("")
    (temporary / "luthier-run-link").symlink_to(precious)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert (left / "service").exists()
    assert run("--", "true", env={"TMPDIR": str(temporary)}).code == 0
    assert not left.exists()
    kept = [living / "service", file, unlocked, precious / "lock", temporary / "luthier-run-link"]
    assert all(path.exists() for path in kept)


def test_a_folder_is_locked_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_folder.tempfile, "tempdir", str(tmp_path))
    with private_folder.private_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert private_folder.remove_left(tmp_path) == []
        with open(folder / "lock", "rb") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert list(tmp_path.iterdir()) == []


# Time -----------------------------------------------------------------------------------------------------------------

STUBBORN = "trap '' TERM; sleep 60 & echo started; wait; sleep 60"


@pytest.mark.rows(1)
@pytest.mark.parametrize("script", ["sleep 60 & echo started; sleep 60", STUBBORN])
def test_a_program_is_ended(script: str) -> None:
    start = time.monotonic()
    process = subprocess.Popen(
        [*RUN, "--time-limit", "2", "--", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    started: list[int] = []
    while not started:
        assert process.poll() is None
        time.sleep(0.05)
        started = [pid for pid in processes.descendants(process.pid) if "sleep" in command_of(pid)]
    out, err = process.communicate(timeout=60)  # no process has the pipe open
    assert (process.returncode, out) == (124, "started\n")
    assert err.rstrip().endswith("luthier run: the program was stopped after 2 seconds (--time-limit)")
    assert time.monotonic() - start < 2 + processes.GRACE + 20
    assert not any("sleep" in command_of(pid) for pid in started)


def command_of(pid: int) -> str:
    """Command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_a_program_that_ends_in_time() -> None:
    assert run("--time-limit", "60", "--", "sh", "-c", "exit 3").code == 3


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon"])
def test_no_time_limit(value: str) -> None:
    outcome = run(f"--time-limit={value}", "--", "true")
    assert outcome.code == 2
    assert "not a number of seconds above 0" in outcome.err


def compiled_for(folder: Path, *targets: str) -> Path:
    """A program with one kernel for these targets, which prints its results."""
    (folder / "own.hip").write_text(
        """
        #include <hip/hip_runtime.h>
        #include <cstdio>
        __global__ void number(int *out) { *out = 42; }
        int main() {
          int *out;
          if (hipMallocManaged(&out, 4) != hipSuccess) return 3;
          number<<<1, 1>>>(out);
          if (hipDeviceSynchronize() != hipSuccess || hipGetLastError() != hipSuccess) return 4;
          hipDeviceProp_t facts;
          (void)hipGetDeviceProperties(&facts, 0);
          std::printf("%d on %s\\n", *out, facts.gcnArchName);
        }
        """
    )
    program = folder / "own"
    flags = [f"--offload-arch={target}" for target in targets]
    processes.run(["env", "HIP_PLATFORM=amd", "hipcc", *flags, "-w", str(folder / "own.hip"), "-o", str(program)])
    return program


@pytest.mark.thorough
def test_the_device_is_one_that_the_program_has_code_for(tmp_path: Path) -> None:
    program = compiled_for(tmp_path, "gfx906", "gfx1030")
    for arguments in ((), ("--device", "emu:gfx1030")):
        outcome = run(*arguments, "--", str(program))
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out.startswith("42 on gfx1030")
    outcome = run("-o", str(tmp_path / "run"), "--", str(program))
    assert outcome.code == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["devices"] == ["emu:gfx1030"]
    outcome = run("--device", "emu:gfx90a", "--", str(program))
    assert outcome.code != 0
    assert outcome.err.startswith(f"luthier: {program}: its code is for gfx1030, gfx906; use --device emu:gfx1030\n")


def test_programs_for_the_usual_device_or_without_code(tmp_path: Path) -> None:
    outcome = run("--", str(compiled_for(tmp_path, "gfx1030", "gfx90a")))
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("42 on gfx90a")
    text = tmp_path / "script"
    text.write_text("#!/bin/sh\necho started\n")
    text.chmod(0o755)
    outcome = run("--", str(text))
    assert (outcome.code, outcome.out, outcome.err) == (0, "started\n", "")
