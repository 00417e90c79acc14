"""The virtual device in the kernel driver's place: Debian's own libhsakmt, ROCr and HIP above it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from effort import is_todays
from luthier import Tool
from luthier.run import door

from .conftest import TARGETS, Outcome, RunUnderTools
from .test_programs import SAYS, in_order

Build = Callable[[str], Path]
Run = Callable[..., Outcome]
UnderTools = Callable[..., RunUnderTools]
KFD = {door.DOOR: "kfd"}


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


@pytest.mark.rotating(10)
@pytest.mark.parametrize("name", SAYS)
def test_a_program_is_right(build_program: Build, luthier_run: Run, name: str) -> None:
    target = next((target for target in TARGETS if is_todays(f"{name} {target}", len(TARGETS))), TARGETS[0])
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
        assert door.is_driver(base, str(program)) is is_driver
        assert door.is_driver({**base, door.DOOR: "thunk"}, str(program)) is False
        assert door.is_driver({**base, door.DOOR: "kfd"}, str(program)) is True
    assert door.is_driver({"PATH": os.environ["PATH"]}, str(tied)) is True


def test_what_is_no_program(tmp_path: Path) -> None:
    script, library = tmp_path / "script", tmp_path / "libhsa-runtime64.so.1"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    for contents in (b"", b"\x7fELF", b"text"):
        library.write_bytes(contents)
        base = {"LD_LIBRARY_PATH": str(tmp_path), "PATH": str(tmp_path)}
        assert door.find_runtime(base, "script") == door.find_runtime(base, "no such program") == library
        assert door.is_driver(base, "script") is False
