"""Code objects to lift: assembled from text, or compiled from HIP with clang."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from assembled_cases import assemble
from compiling import compiled as compiled_path
from luthier.objects import CodeObject, load_object

INPUTS = Path(__file__).parent / "inputs"
sys.path.append(str(Path(__file__).parent))  # the modules lift_*.py, which tests share


@pytest.fixture(scope="session")
def assembled() -> Callable[..., CodeObject]:
    """`assembled(target, source, vgprs=, wave=, …)`: the code object of `assembled_cases.assemble`."""
    return functools.cache(functools.partial(assemble, sgprs=96, prologue=""))


@pytest.fixture(scope="session")
def compiled() -> Callable[..., CodeObject]:
    """`compiled(target, file name in inputs, *clang arguments)` -> the code object."""
    made: dict[tuple[str, ...], CodeObject] = {}

    def compiled(target: str, name: str, *arguments: str) -> CodeObject:
        key = target, name, *arguments
        if key not in made:
            command = ["clang-22", "-x", "hip", "-nogpuinc", "-nogpulib", "-O2", "--offload-device-only"]
            command += ["--no-gpu-bundle-output", f"--offload-arch={target}", *arguments, str(INPUTS / name)]
            made[key] = load_object(compiled_path(command, [INPUTS / name], f"{target}.co"))
        return made[key]

    return compiled
