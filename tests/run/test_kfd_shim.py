"""The shim of the kernel driver: its answers, and the choice of ROCr."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from effort import EMULATED
from kept import ROOT, kept
from kept import run as run_command
from luthier.isa.targets import TARGETS as TARGETS_OF_LUTHIER
from luthier.run import rocr

from luthier_build.workspace import digest

from .conftest import PROGRAMS, Outcome

Build = Callable[[str], Path]
Run = Callable[..., Outcome]
SHIM = ROOT / "runtime/native/kfd_shim"
ANSWERS = """\
version 1.17
available: yes
first half: Success
that much less: yes
more than is left: Cannot allocate memory
of the host: Success
free: Success
all back: yes
tiles: yes
export: Success
information: Success
its size and device: yes
import: Success
the same memory: yes
counted once: yes
one handle: yes
metadata: yes
as it was made: yes
mapped again: yes
closed: yes
still there: yes
given back: yes
of another file: Invalid argument
without an address: Success
none, access 4, granularity 9, flags 3
attributes: Success
device, access 2, granularity 4, flags 3
of a part: Success
device, access 4, granularity 4, flags 1
device, access 4, granularity 4, flags 1
device, access 4, granularity 4, flags 1
Bad address
none, access 4, granularity 9, flags 3
device, access 2, granularity 4, flags 3
unaligned: Invalid argument
of no device: Invalid argument
time is over, age 1
complete, age 2
complete, age 2
time is over, age 2
time is over, age 0
copy engine 1: Success
destroyed: Success
copy engine 99: Invalid argument
system events: Success
a mask: yes
none yet: yes
retry of faults: Success
is off: yes
on: Operation not permitted
debugging: No such device
a debugger: No such device
sampling: Inappropriate ioctl for device
a checkpoint: Inappropriate ioctl for device
no arguments: Bad address
arguments nowhere: Bad address
arguments beyond memory: Bad address
apertures nowhere: Bad address
events nowhere: Bad address
more events than there are: Invalid argument
devices nowhere: Bad address
attributes nowhere: Bad address
mailboxes without an address: Invalid argument
a ring nowhere: Bad address
a ring that cannot be read: Bad address
a ring that is half there: Bad address
an index nowhere: Bad address
a render device: 8 of 8
of no device: Invalid argument
"""


@pytest.mark.parametrize("targets", [("gfx90a",), ("gfx906", "gfx1030")])
def test_rocminfo(luthier_run: Run, targets: tuple[str, ...]) -> None:
    """rocminfo queries the kernel module before HSA."""
    outcome = luthier_run(",".join(f"emu:{target}" for target in targets), "rocminfo")
    assert (outcome.code, outcome.err) == (0, ""), outcome
    assert "ROCk module is loaded" in outcome.out
    assert re.findall(r"Marketing Name: +(Luthier.*\S)", outcome.out) == [f"Luthier virtual {name}" for name in targets]
    assert re.findall(r"Name: +(gfx\w+)", outcome.out) == list(targets)


@pytest.fixture(scope="module")
def host_program() -> Callable[..., Path]:
    """``host_program(name, *flags)``: the program of ``programs/<name>.cpp``, without kernels."""

    def build(name: str, *flags: str) -> Path:
        source = PROGRAMS / f"{name}.cpp"
        command = ["g++", "-std=c++17", "-w"]
        key = *command, *flags, digest(source), *map(digest, sorted(SHIM.glob("*.h")))
        return kept(key, lambda output: run_command([*command, str(source), *flags, "-o", str(output)]), name)

    return build


# 5.2.3 asks for less than ROCr 6 does: this asks for it all.
@pytest.mark.rows(2)
@pytest.mark.parametrize("target", ["gfx90a", *(name for name in EMULATED if name != "gfx90a")])
def test_every_request(host_program: Callable[..., Path], luthier_run: Run, target: str) -> None:
    program = host_program("driver_requests", f"-I{SHIM}")
    outcome = luthier_run(f"emu:gfx906,emu:{target}", program)
    # ROCr 5.2.3 does not support all of them, and this program does not use it.
    err = [line for line in outcome.err.splitlines() if not line.startswith("luthier run: warning: ")]
    assert (outcome.code, outcome.out, err) == (0, ANSWERS, [])


def test_device_memory_ends(host_program: Callable[..., Path], luthier_run: Run) -> None:
    program = host_program("memory_limit", "-D__HIP_PLATFORM_AMD__", "-lamdhip64")
    outcome = luthier_run("emu:gfx90a", program)
    assert outcome.code == 0, outcome
    pieces, *rest = outcome.out.splitlines()
    # HIP takes some for itself, so the fourth quarter may not be left.
    assert pieces in [f"{count} pieces, then hipErrorOutOfMemory" for count in (3, 4)]
    assert rest == ["given back and had again", "three at once: hipSuccess"]


# The ROCr ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def link(tmp_path: Path) -> Callable[..., Path]:
    """``link(name, *arguments)``: a library of that name in a separate folder."""

    def make(name: str, *arguments: str) -> Path:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        (folder / "empty.c").write_text("int main(void) { return 0; }\n")
        command = ["cc", str(folder / "empty.c"), "-o", str(folder / name), *arguments]
        subprocess.run(command, check=True)
        return folder / name

    return make


def test_the_runtime_that_a_program_would_load(link: Callable[..., Path]) -> None:
    runtimes = [link("libhsa-runtime64.so.1", "-shared", "-fPIC") for _ in range(2)]
    program = link("program")
    tied = link("tied", f"-Wl,--enable-new-dtags,-rpath,$ORIGIN/../{runtimes[0].parent.name}")
    for runtime in runtimes:
        base = {"LD_LIBRARY_PATH": str(runtime.parent), "PATH": os.environ["PATH"]}
        assert rocr.find_runtime(base, str(program)) == runtime
    path = rocr.find_runtime({"PATH": os.environ["PATH"]}, str(tied))
    assert path is not None
    assert path.samefile(runtimes[0])


def test_every_device_is_known_everywhere() -> None:
    """Exactly the devices that Luthier supports have an entry for the graphics libraries."""
    chips = (SHIM / "chips.h").read_text()
    known = {name for name, target in TARGETS_OF_LUTHIER.items() if target.device_id is not None}
    assert set(re.findall(r'\{"(gfx\w+)", \d+, 0x', chips)) == known >= set(EMULATED)


def test_what_is_no_program(tmp_path: Path) -> None:
    script, library = tmp_path / "script", tmp_path / "libhsa-runtime64.so.1"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    for contents in (b"", b"\x7fELF", b"text"):
        library.write_bytes(contents)
        base = {"LD_LIBRARY_PATH": str(tmp_path), "PATH": str(tmp_path)}
        assert rocr.find_runtime(base, "script") == rocr.find_runtime(base, "no such program") == library


def test_null_in_place_of_a_path(luthier_run: Run) -> None:
    """The kernel answers, as it does alone: hashcat asks so for files that it has not found."""
    calls = "access(None, 0)", "open(None, 0)", "open64(None, 0)", "readlink(None, b' ', 1)", "fopen(None, b'r')"
    code = f"""
import ctypes, errno
c = ctypes.CDLL(None, use_errno=True)
for call in {calls}:
    answer = eval("c." + call)
    print(call, answer, errno.errorcode[ctypes.get_errno()])
"""
    outcome = luthier_run("emu:gfx90a", sys.executable, "-c", code)
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert alone.stdout.count("EFAULT") == len(calls)
    assert (outcome.code, outcome.out, outcome.err) == (0, alone.stdout, "")
