"""The child process in which LLVM runs: what it does, how it ends, and that its end harms nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from luthier.errors import HookError, UnfinishedError
from luthier.isa.targets import TargetId
from luthier.module import ToolModule
from luthier.payload import RegisterArgument
from luthier.payload.codegen import generate
from luthier.payload.isolation import end_lasting_child, in_child, in_lasting_child


@pytest.fixture(autouse=True)
def new_child() -> Iterator[None]:
    """One that knows this module, and leaves none of its state to other tests."""
    end_lasting_child()
    yield
    end_lasting_child()


def refuse(message: str) -> None:
    raise HookError(message)


def say_and_die(words: str) -> None:
    os.write(2, words.encode())
    os.abort()


def pid() -> int:
    return in_lasting_child("hook x", os.getpid)


def test_one_child_does_one_work_after_the_other() -> None:
    first = pid()
    assert first != os.getpid()
    with pytest.raises(HookError, match=r"^not this one$"):
        in_lasting_child("hook x", refuse, "not this one")
    assert in_lasting_child("hook x", bytes, 5_000_000) == bytes(5_000_000)
    assert pid() == first
    assert in_child(os.getpid, "hook x") not in (first, os.getpid())


def test_what_ends_it_is_told_and_the_next_has_another() -> None:
    first = pid()
    with pytest.raises(HookError, match=r"hook x: LLVM cannot compile it: Cannot select: t9$"):
        in_lasting_child("hook x", say_and_die, "LLVM ERROR: Cannot select: t9\n")
    with pytest.raises(HookError, match=r"hook y: LLVM cannot compile it: it crashed \(SIGABRT\)"):
        in_lasting_child("hook y", say_and_die, "")
    with pytest.raises(HookError, match=r"hook z: LLVM cannot compile it: ZeroDivisionError"):
        in_lasting_child("hook z", divmod, 1, 0)
    second = pid()
    assert second not in (first, os.getpid())
    os.kill(second, signal.SIGKILL)  # no fault of the work that comes next
    assert pid() not in (first, second)


def end_by(number: int, seen: str, times: int) -> str:
    """End this process by a signal the first `times` times, which the size of a file counts."""
    with open(seen, "ab") as file:
        file.write(b".")
    if Path(seen).stat().st_size <= times:
        os.kill(os.getpid(), number)
    return "done"


def fail_of_system(problem: Exception) -> None:
    raise problem


def test_what_the_system_ends_is_tried_again(tmp_path: Path) -> None:
    """As the kernel's out-of-memory killer ends it: the work is not to blame."""
    assert in_lasting_child("hook x", end_by, signal.SIGKILL, str(tmp_path / "once"), 1) == "done"
    assert in_child(lambda: end_by(signal.SIGXCPU, str(tmp_path / "own"), 1), "hook x") == "done"
    end_lasting_child()
    with pytest.raises(UnfinishedError, match=r"^hook x: the system ended its compilation: it crashed \(SIGKILL\)$"):
        in_lasting_child("hook x", end_by, signal.SIGKILL, str(tmp_path / "ever"), 9)
    assert (tmp_path / "ever").stat().st_size == 2
    for problem in (MemoryError(), OSError(28, "No space left on device")):
        with pytest.raises(UnfinishedError, match="the system ended its compilation"):
            in_lasting_child("hook x", fail_of_system, problem)
    with pytest.raises(UnfinishedError, match="out of memory"):
        in_lasting_child("hook x", say_and_die, "LLVM ERROR: out of memory\n")
    with pytest.raises(HookError, match="SIGSEGV") as crashed:
        in_lasting_child("hook x", end_by, signal.SIGSEGV, str(tmp_path / "crash"), 9)
    assert not isinstance(crashed.value, UnfinishedError)


def test_what_cannot_be_sent_leaves_it_able_to_go_on() -> None:
    with pytest.raises(Exception, match="pickle"):
        in_lasting_child("hook x", lambda: 1)
    assert pid() != os.getpid()


def test_interrupting_the_process_interrupts_no_work_of_the_next() -> None:
    first = pid()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        os.kill(first, signal.SIGINT)  # as the terminal does to all
        assert pid() == first
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            in_lasting_child("hook x", time.sleep, 60)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert pid() != first
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def test_it_holds_no_file_of_the_process() -> None:
    reading, writing = os.pipe()
    pid()
    os.close(writing)
    assert os.read(reading, 1) == b""  # else this waits
    os.close(reading)
    opened = in_lasting_child("hook x", os.listdir, "/proc/self/fd")
    assert {"0", "1", "2", "3"} <= set(opened)
    assert len(opened) == 5  # and the folder's


def test_a_fork_of_the_process_has_its_own() -> None:
    first = pid()
    fork = os.fork()
    if fork == 0:
        os._exit(0 if pid() not in (first, os.getpid(), os.getppid()) else 1)
    assert os.waitpid(fork, 0)[1] == 0
    assert pid() == first


def test_it_ends_with_the_process(tmp_path: Path) -> None:
    """However that ends; and whoever reads what the process says need not wait for the child."""
    code = (
        "import os; from luthier.payload.isolation import in_lasting_child as run\n"
        "print(run('x', os.getpid), flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL
    end = time.monotonic() + 30
    while Path(f"/proc/{int(done.stdout)}").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not Path(f"/proc/{int(done.stdout)}").exists()


def test_a_process_that_only_asks_loads_no_llvm() -> None:
    code = (
        "import sys; from luthier.payload.machine import parse_bitcode\n"
        "from luthier.payload.isolation import in_lasting_child\n"
        "from luthier.errors import HookError\n"
        "try: in_lasting_child('hook x', parse_bitcode, b'no bitcode', None)\n"
        "except HookError as problem: print(problem)\n"
        "assert 'llvmlite.binding' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "cannot read the tool's bitcode with LLVM" in done.stdout


def test_code_does_not_depend_on_the_processor_that_came_first(make_module: Callable[..., ToolModule]) -> None:
    """LLVM makes what a wait for depctr counters does not name once a process; GFX10.1 has less than the others."""
    tool = make_module(
        """
__device__ uint32_t table[64];
LUTHIER_HOOK_ANNOTATE note(uint32_t value) {
  if (value > 5) table[value & 63] += luthier::readReg<uint32_t>(luthier::SGPR4);
}
""",
        "gfx1010",
        "gfx1201",
    )

    def code(*processors: str) -> list[str]:
        end_lasting_child()
        texts = []
        for target in map(TargetId.parse, processors):
            contents = tool.contents_for(target).for_waves(32)
            symbol = tool.hook("note").symbol
            texts.append(generate(contents.bitcode, symbol, [RegisterArgument(uniform=False)], target, 32).text)
        return texts

    old, new = code("gfx1010", "gfx1201")
    assert "s_waitcnt_depctr" in old
    assert "s_wait_alu" in new
    assert "hold_cnt" not in old + new
    assert [new, old] == code("gfx1201", "gfx1010")


def test_it_closes_what_is_open_and_tries_no_other_number(tmp_path: Path) -> None:
    """As before Linux 5.9, which has no close_range(2): a child that closes hundreds of numbers aborts."""
    source, library = tmp_path / "old.c", tmp_path / "old.so"
    source.write_text(
        "#include <errno.h>\n#include <stdlib.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n"
        "static int closed;\n"
        "int close_range(unsigned first, unsigned last, int flags) { errno = ENOSYS; return -1; }\n"
        "int close(int file) { if (++closed > 500) abort(); return syscall(SYS_close, file); }\n"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
    code = (
        "import os\nfrom luthier.payload.isolation import in_child\n"
        "os.dup2(2, 900)\nprint(in_child(lambda: sorted(map(int, os.listdir('/proc/self/fd'))), 'hook'))"
    )
    command = ["prlimit", "--nofile=1024", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LD_PRELOAD": str(library)})
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 1, 2, 3, 4]\n", "")
