"""Code objects to lift: assembled from text with llvm-mc and lld, or compiled from HIP with clang."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from compiling import compiled as compiled_path
from luthier.objects import CodeObject, load_object

INPUTS = Path(__file__).parent / "inputs"
sys.path.append(str(Path(__file__).parent))  # the modules lift_*.py, which tests share

PREAMBLE = """
.amdgcn_target "amdgcn-amd-amdhsa--{target}"
.macro func name
  .globl \\name
  .protected \\name
  .p2align 8
  .type \\name,@function
\\name:
.endm
.macro fill
  # Something in every register, then a block of its own.
  .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
  v_mov_b32_e32 v\\number, 0
  .endr
  s_branch .Lfilled
.Lfilled:
.endm
.macro endfunc name
  .size \\name, .-\\name
.endm
.text
"""

DESCRIPTOR = """
.rodata
.p2align 6
.amdhsa_kernel {kernel}
  .amdhsa_next_free_vgpr {vgprs}
  .amdhsa_next_free_sgpr 96
  {extra}
.end_amdhsa_kernel
"""


def assemble(
    folder: Path,
    target: str,
    source: str,
    *,
    kernel: str = "k",
    vgprs: int = 16,
    wave: int | None = None,
    descriptor: str = "",
) -> Path:
    """Assemble and link `source`, which defines the function `kernel`; the path of the code object."""
    extra = descriptor.split("; ")
    if target in ("gfx90a", "gfx942"):
        extra.append(f".amdhsa_accum_offset {min(16, -(-vgprs // 4) * 4)}")
    if wave is not None:
        extra.append(f".amdhsa_wavefront_size32 {int(wave == 32)}")
    text = PREAMBLE.format(target=target) + source
    text += DESCRIPTOR.format(kernel=kernel, vgprs=vgprs, extra="\n  ".join(extra))
    number = len(list(folder.iterdir()))
    assembly, relocatable, linked = (folder / f"{number}.{ending}" for ending in ("s", "o", "co"))
    assembly.write_text(text)
    features = [f"-mattr=+wavefrontsize{wave}"] if wave is not None else []
    for command in (
        [
            "llvm-mc-22",
            "-triple=amdgcn-amd-amdhsa",
            f"-mcpu={target}",
            *features,
            "-filetype=obj",
            "-o",
            relocatable,
            assembly,
        ],
        ["ld.lld-22", "-shared", "-o", linked, relocatable],
    ):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return linked


@pytest.fixture(scope="session")
def assembled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., CodeObject]:
    """`assembled(target, source, kernel=, vgprs=, wave=)` -> the code object."""
    folder = tmp_path_factory.mktemp("assembled")
    made: dict[tuple[object, ...], CodeObject] = {}

    def assembled(target: str, source: str, **settings: object) -> CodeObject:
        key = target, source, *sorted(settings.items())
        if key not in made:
            made[key] = load_object(assemble(folder, target, source, **settings))  # type: ignore[arg-type]
        return made[key]

    return assembled


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
