"""The virtual device in the kernel driver's place: Debian's own libhsakmt, ROCr and HIP above it."""

from __future__ import annotations

import os
import re
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from effort import EMULATED
from kept import ROOT, kept
from kept import run as run_command
from luthier import Tool
from luthier.isa.targets import TARGETS as TARGETS_OF_LUTHIER
from luthier.run import door
from luthier.run.program import LIBRARY, library_folder

from luthier_build.workspace import digest

from .conftest import PROGRAMS, TARGETS, Outcome, RunUnderTools
from .test_programs import SAYS, in_order

Build = Callable[[str], Path]
Run = Callable[..., Outcome]
UnderTools = Callable[..., RunUnderTools]
KFD = {door.DOOR: "kfd"}
THUNK = library_folder() / LIBRARY


@pytest.mark.parametrize("targets", [("gfx90a",), ("gfx906", "gfx1030")])
def test_rocminfo(luthier_run: Run, targets: tuple[str, ...]) -> None:
    """It asks for the kernel module before it asks HSA."""
    outcome = luthier_run(",".join(f"emu:{target}" for target in targets), "rocminfo", env=KFD)
    assert (outcome.code, outcome.err) == (0, ""), outcome
    assert "ROCk module is loaded" in outcome.out
    assert re.findall(r"Marketing Name: +(Luthier.*\S)", outcome.out) == [f"Luthier virtual {name}" for name in targets]
    assert re.findall(r"Name: +(gfx\w+)", outcome.out) == list(targets)


@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel(build_program: Build, luthier_run: Run, target: str) -> None:
    outcome = luthier_run(f"emu:{target}", build_program("saxpy"), env=KFD)
    assert (outcome.code, outcome.err) == (0, ""), outcome
    assert outcome.out.startswith(target)


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", SAYS)
def test_a_program_is_right(build_program: Build, luthier_run: Run, name: str) -> None:
    target = TARGETS[zlib.crc32(name.encode()) % len(TARGETS)]
    outcome = luthier_run(f"emu:{target}", build_program(name), env=KFD)
    err = [line for line in outcome.err.splitlines() if not line.startswith("Warning: (!g_use_interrupt_wait")]
    assert (outcome.code, in_order(name, outcome.out), err) == (0, SAYS[name], [])


def test_several_devices(build_program: Build, luthier_run: Run) -> None:
    outcome = luthier_run("emu:gfx906,emu:gfx1030", build_program("devices"), env=KFD)
    assert (outcome.code, outcome.err) == (0, ""), outcome
    for number, (line, target) in enumerate(zip(outcome.out.splitlines(), ("gfx906", "gfx1030"), strict=True)):
        assert line.startswith(f"device {number}: {target}")


def test_many_queues(raw_program: Callable[[str, str], list[Path]], luthier_run: Run) -> None:
    outcome = luthier_run("emu:gfx90a", *raw_program("gfx90a", "raw_queues"), "500", env=KFD)
    assert (outcome.code, outcome.out) == (0, "500 queues\n"), outcome


def test_copies_without_copy_engines(build_program: Build, luthier_run: Run) -> None:
    outcome = luthier_run("emu:gfx90a", build_program("reduction"), env={**KFD, "HSA_ENABLE_SDMA": "0"})
    assert (outcome.code, outcome.out, outcome.err) == (0, SAYS["reduction"], "")


@pytest.mark.parametrize("name", ["reduction", "graph"])
def test_the_same_is_counted(
    build_program: Build, under_tools: UnderTools, counter: type[Tool], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    first = under_tools("emu:gfx90a", [counter()], build_program(name))
    monkeypatch.setenv(door.DOOR, "kfd")
    second = under_tools("emu:gfx90a", [counter()], build_program(name))
    assert (second.code, second.out, second.summary["faults"]) == (0, SAYS[name], [])
    assert second.variables == first.variables


def test_a_fault_is_told(build_program: Build, luthier_run: Run) -> None:
    outcome = luthier_run("emu:gfx90a", build_program("faults"), "null", env=KFD)
    assert outcome.code != 0
    assert "a null pointer" in outcome.err
    assert "Memory access fault by GPU" in outcome.err


@pytest.fixture(scope="module")
def host_program() -> Callable[..., Path]:
    """``host_program(name, *flags)``: the program of ``programs/<name>.cpp``, without kernels."""

    def build(name: str, *flags: str) -> Path:
        source = PROGRAMS / f"{name}.cpp"
        command = ["g++", "-std=c++17", "-w", str(source), *flags]
        return kept((*command, digest(source)), lambda output: run_command([*command, "-o", str(output)]), name)

    return build


# 5.2.3 asks for less than ROCr 6 does: this asks for it all.
@pytest.mark.parametrize("target", ["gfx90a", *(name for name in EMULATED if name not in TARGETS)])
def test_requests_of_newer_runtimes(host_program: Callable[..., Path], luthier_run: Run, target: str) -> None:
    outcome = luthier_run(
        f"emu:{target}", host_program("driver_requests", f"-I{ROOT}/runtime/native/kfd_door"), env=KFD
    )
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        "version 1.11",
        "available yes",
        "first half: Success",
        "that much less: yes",
        "more than is left: Cannot allocate memory",
        "of the host: Success",
        "free: Success",
        "all back: yes",
        "tiles: known",
        "of no device: Invalid argument",
    ]


@pytest.mark.parametrize("door_name", ["thunk", "kfd"])
def test_device_memory_ends(host_program: Callable[..., Path], luthier_run: Run, door_name: str) -> None:
    program = host_program("memory_limit", "-D__HIP_PLATFORM_AMD__", "-lamdhip64")
    outcome = luthier_run("emu:gfx90a", program, env={door.DOOR: door_name})
    assert outcome.code == 0, outcome
    pieces, *rest = outcome.out.splitlines()
    # HIP takes some for itself, so the fourth quarter may not be left.
    assert pieces in [f"{count} pieces, then hipErrorOutOfMemory" for count in (3, 4)]
    assert rest == ["given back and had again", "three at once: hipSuccess"]


# The choice ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def link(tmp_path: Path) -> Callable[..., Path]:
    """``link(name, *arguments)``: a library of that name in a folder of its own."""

    def make(name: str, *arguments: str) -> Path:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        (folder / "empty.c").write_text("int main(void) { return 0; }\n")
        command = ["cc", str(folder / "empty.c"), "-o", str(folder / name), *arguments]
        subprocess.run(command, check=True)
        return folder / name

    return make


def test_the_door_is_chosen_by_the_runtime(link: Callable[..., Path]) -> None:
    thunk = link("libhsakmt.so.1", "-shared", "-fPIC", "-Wl,-soname,libhsakmt.so.1")
    older = link("libhsa-runtime64.so.1", "-shared", "-fPIC", "-Wl,--no-as-needed", str(thunk))
    newer = link("libhsa-runtime64.so.1", "-shared", "-fPIC", "-Wl,--no-as-needed", "-lm")
    program = link("program")
    tied = link("tied", f"-Wl,--enable-new-dtags,-rpath,$ORIGIN/../{newer.parent.name}")
    for runtime, is_driver in ((older, False), (newer, True)):
        base = {"LD_LIBRARY_PATH": str(runtime.parent), "PATH": os.environ["PATH"]}
        assert door.find_runtime(base, str(program)) == runtime
        assert door.is_driver(base, str(program), THUNK) is is_driver
        assert door.is_driver({**base, door.DOOR: "thunk"}, str(program), THUNK) is False
        assert door.is_driver({**base, door.DOOR: "kfd"}, str(program), THUNK) is True
    assert door.is_driver({"PATH": os.environ["PATH"]}, str(tied), THUNK) is True


@pytest.mark.parametrize(
    ("functions", "missing"),
    [
        (["hsaKmtOpenKFD", "hsaKmtAllocMemory"], []),
        (["hsaKmtOpenKFD", "hsaKmtAvailableMemory", "hsaKmtExportDMABufHandle"], ["hsaKmtAvailableMemory"]),
    ],
)
def test_a_runtime_that_wants_more_functions(
    link: Callable[..., Path], tmp_path: Path, functions: list[str], missing: list[str]
) -> None:
    """As ROCr 6.1 does, which Debian has apart from libhsakmt: then the real one is above the driver's place."""
    calls, empty = tmp_path / "calls.c", link("libhsakmt.so.1", "-shared", "-fPIC", "-Wl,-soname,libhsakmt.so.1")
    calls.write_text("".join(f"int {name}(); int (*const at_{name})() = {name};\n" for name in functions))
    needs = ("-Wl,--no-as-needed", str(empty), "-Wl,--unresolved-symbols=ignore-all")
    runtime = link("libhsa-runtime64.so.1", "-shared", "-fPIC", str(calls), *needs)
    assert not door.has_thunk_inside(runtime)
    assert [name for name in door.missing_functions(runtime, THUNK) if name in missing] == missing
    assert door.is_driver({"LD_LIBRARY_PATH": str(runtime.parent)}, "no such program", THUNK) is bool(missing)


def test_every_device_is_known_everywhere() -> None:
    """Those that can be had have an entry for the graphics libraries, and nobody else has one."""
    chips = (ROOT / "runtime/native/kfd_door/chips.h").read_text()
    known = {name for name, target in TARGETS_OF_LUTHIER.items() if target.device_id is not None}
    assert set(re.findall(r'\{"(gfx\w+)", \d+, 0x', chips)) == known == set(EMULATED)


def test_what_is_no_program(tmp_path: Path) -> None:
    script, library = tmp_path / "script", tmp_path / "libhsa-runtime64.so.1"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    for contents in (b"", b"\x7fELF", b"text"):
        library.write_bytes(contents)
        base = {"LD_LIBRARY_PATH": str(tmp_path), "PATH": str(tmp_path)}
        assert door.find_runtime(base, "script") == door.find_runtime(base, "no such program") == library
        assert door.is_driver(base, "script", THUNK) is False
