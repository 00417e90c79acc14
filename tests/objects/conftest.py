"""Code objects to look at, made by clang and compiled on the spot."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Protocol

import pytest
from compiling import compiled

INPUTS = Path(__file__).parent / "inputs"
TARGETS = ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]


class Compile(Protocol):
    def __call__(self, *arguments: str) -> Path: ...


@pytest.fixture(scope="session")
def compile_hip() -> Compile:
    """`compile_hip(*clang arguments)` -> path of what clang makes of inputs/kernels.hip."""

    def compile_hip(*arguments: str) -> Path:
        source = INPUTS / "kernels.hip"
        command = ["clang-22", "-x", "hip", "-nogpuinc", "-nogpulib", "-O2", *arguments, source]
        return compiled(command, [source], "kernels.out")

    return compile_hip


class CompileObject(Protocol):
    def __call__(self, target: str, abi: int = 6, *arguments: str) -> Path: ...


@pytest.fixture(scope="session")
def code_object(compile_hip: Compile) -> CompileObject:
    """`code_object(target, abi)` -> path of one code object."""

    def code_object(target: str, abi: int = 6, *arguments: str) -> Path:
        device = ["--offload-device-only", "--no-gpu-bundle-output", f"--offload-arch={target}"]
        return compile_hip(*device, f"-mcode-object-version={abi}", *arguments)

    return code_object


class Tool(Protocol):
    def __call__(self, *command: str | Path) -> str: ...


@pytest.fixture(scope="session")
def tool() -> Tool:
    """Run a program that must succeed without a word on standard error; its standard output."""

    def tool(*command: str | Path) -> str:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stderr == "", done.stderr
        return done.stdout

    return tool
