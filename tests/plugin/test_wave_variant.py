"""Device modules of GFX10 and later are compiled for both wave sizes, whatever starts the compiler."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import pytest
from luthier.isa.targets import TARGETS
from luthier.module import ToolModule
from luthier.module.embedded import read_bitcode
from luthier.objects import load_object

from luthier_build.plugin import include_dir, plugin_flags
from luthier_build.wrapper import flags_for

pytestmark = pytest.mark.rows(1)

SOURCE = Path(__file__).with_name("tool.hip")
HEADER = "#include <hip/hip_runtime.h>\n#include <luthier/luthier.h>\nMARK_LUTHIER_DEVICE_MODULE\n"
HOOK = "__device__ int sum;\nLUTHIER_HOOK_ANNOTATE hook() { sum += warpSize; }\n"
WAVE64 = ("-mwavefrontsize64", "-U__AMDGCN_WAVEFRONT_SIZE", "-D__AMDGCN_WAVEFRONT_SIZE=64")


def compiled(release: Any, target: str, source: Path | str, folder: Path, *flags: str) -> tuple[Any, str]:
    """What is in a module's object for a target, and what the compiler said."""
    if target.startswith("gfx12") and release.toolchain.llvm_major < 19:
        pytest.skip("this clang does not know the target")
    if isinstance(source, str):
        (folder / "tool.hip").write_text(source)
        source = folder / "tool.hip"
    toolchain, output = release.toolchain, folder / "tool.hsaco"
    command = [
        *(toolchain.clang, *toolchain.device_flags(target), *plugin_flags(toolchain), f"-I{include_dir()}"),
        *("--cuda-device-only", "--no-gpu-bundle-output", "-O2", "-Wno-pass-failed", *flags),
        *("-c", source, "-o", output),
    ]
    done = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, cwd=folder)
    (contents,) = ToolModule.load(output)._contents
    return contents, done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("target", ["gfx1010", "gfx1030", "gfx1100", "gfx1201"])
def test_both_are_whole(release: Any, target: str, tmp_path: Path) -> None:
    contents, messages = compiled(release, target, SOURCE, tmp_path)
    assert "luthier" not in messages
    assert (contents.wave_size, contents.other.wave_size, contents.wave_sizes) == (32, 64, (32, 64))
    llvm.initialize_all_targets()
    for variant in (contents, contents.other):
        module = llvm.parse_bitcode(variant.bitcode)
        module.verify()
        hook = b" ".join(module.get_function("everything").attributes)
        assert (b"+wavefrontsize64" in hook) == (variant.wave_size == 64)
        assert [hook.symbol for hook in variant.hooks] == [hook.symbol for hook in contents.hooks]
    assert contents.for_waves(64).wave_size == 64
    # What begins the section is as it would be alone.
    alone, _ = compiled(release, target, SOURCE, tmp_path, "-DLUTHIER_ONE_WAVE_SIZE")
    assert alone.other is None
    assert alone.hooks == contents.hooks


@pytest.mark.rows(1)
def test_one_of_gfx9(release: Any, tmp_path: Path) -> None:
    contents, _ = compiled(release, "gfx90a", HEADER + HOOK, tmp_path)
    assert (contents.wave_size, contents.other, contents.one_wave_size) == (64, None, "")


def test_the_other_of_wave64_is_wave32(release22: Any, tmp_path: Path) -> None:
    contents, _ = compiled(release22, "gfx1100", HEADER + HOOK, tmp_path, *WAVE64)
    assert (contents.wave_size, contents.other.wave_size) == (64, 32)
    numbers = [re.findall(r"add.* (32|64)$", str(llvm.parse_bitcode(contents.for_waves(size).bitcode)), re.M)
               for size in (32, 64)]  # fmt: skip
    assert numbers == [["32"], ["64"]]


@pytest.mark.rows(1)
def test_what_is_only_for_one_size_is_told(release: Any, tmp_path: Path) -> None:
    source = HEADER + HOOK + 'static_assert(warpSize == 32, "masks of 32 bits");\n'
    if release.toolchain.llvm_major == 22:  # there warpSize is no constant
        source = source.replace("warpSize ==", "__AMDGCN_WAVEFRONT_SIZE ==")
    contents, messages = compiled(release, "gfx1100", source, tmp_path)
    assert contents.other is None
    assert "tool.hip:6:" in contents.one_wave_size
    assert "masks of 32 bits" in contents.one_wave_size
    assert "no hooks for kernels of 64 lanes" in messages
    assert contents.one_wave_size in messages


def test_a_variable_of_another_size_is_not_shared(release22: Any, tmp_path: Path) -> None:
    source = HEADER + "__device__ int sums[__AMDGCN_WAVEFRONT_SIZE];\nLUTHIER_HOOK_ANNOTATE hook() { sums[0] = 1; }\n"
    contents, _ = compiled(release22, "gfx1100", source, tmp_path)
    assert contents.other is None
    assert "the shared variable sums differs" in contents.one_wave_size


def test_constants_of_both_are_kept_apart(release22: Any, tmp_path: Path) -> None:
    source = HEADER + (
        "static __device__ const int table[] = {__AMDGCN_WAVEFRONT_SIZE, 2, 3};\n"
        '__device__ const char *names[] = {"a", "b"};\n__device__ int at;\n'
        "LUTHIER_HOOK_ANNOTATE hook() { at += table[at] + names[at][1]; }\n"
    )
    contents, _ = compiled(release22, "gfx1100", source, tmp_path)
    assert contents.other is not None
    variables = ToolModule([contents], "tool").variables
    tables = {name: one.storage.initial[0] for name, one in variables.items() if "table" in name}
    assert sorted(tables.values()) == [32, 64]


def test_preprocessed_source_is_told(release22: Any, tmp_path: Path) -> None:
    contents, messages = compiled(release22, "gfx1100", HEADER + HOOK, tmp_path, "-save-temps")
    assert contents.other is None
    assert "no longer HIP" in contents.one_wave_size
    assert "no hooks for kernels of 64 lanes" in messages


@pytest.mark.rows(1)
def test_in_a_program(release: Any, tmp_path: Path) -> None:
    """As compiler wrappers do it: device and host code at once, dependencies, several targets."""
    (tmp_path / "tool.hip").write_text(HEADER + HOOK)
    toolchain = release.toolchain
    targets = [flag for flag in toolchain.device_flags("gfx90a") if "__AMDGCN" not in flag]
    sizes = {"host": 64, "gfx90a": 64, "gfx1100": 32}
    macro = [word for one, size in sizes.items() for word in (f"-Xarch_{one}", f"-D__AMDGCN_WAVEFRONT_SIZE={size}")]
    command = [
        *(toolchain.clang, *targets, "--offload-arch=gfx1100", *(macro if release.toolchain.llvm_major >= 22 else [])),
        *flags_for(str(release.plugin), str(include_dir())),
        *("-O2", "-MD", "-MF", "tool.d", "-fPIC", "-c", "tool.hip", "-o", "tool.o"),
    ]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([str(word) for word in command], check=True, cwd=tmp_path, env=environment)
    left = {path.name for path in tmp_path.iterdir() if not path.name.startswith("tool-")}  # clang 15 leaves folders
    assert left == {"tool.d", "tool.hip", "tool.o"}
    module = ToolModule.load(tmp_path / "tool.o")
    assert {str(target): sizes for target, sizes in module.wave_sizes.items()} == {"gfx90a": (64,), "gfx1100": (32, 64)}
    assert "wave64_on" not in (tmp_path / "tool.d").read_text()


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_every_target_says_its_size(release22: Any, target: str, tmp_path: Path) -> None:
    """The plugin's rule of names against what is known of targets."""
    features = {size: f"+wavefrontsize{size}" for size in (32, 64)}
    for size in TARGETS[target].wave_sizes:
        text = (
            'target triple = "amdgcn-amd-amdhsa"\n'
            "@__luthier_reserved.managed = addrspace(1) externally_initialized global i8 0\n"
            "@__luthier_reserved = addrspace(1) externally_initialized global ptr addrspace(1) null\n"
            'define void @f() #0 { ret void }\nattributes #0 = { "target-cpu"="' + target + '" '
            '"target-features"="' + features[size] + '" }\n'
        )
        done = subprocess.run(
            [
                *(shutil.which("opt", path=str(release22.bin)), f"-load-pass-plugin={release22.plugin}", "-S"),
                *("-passes=luthier-embed", "-amdgpu-internalize-symbols", "-o", "-"),
            ],
            input=text,
            check=True,
            capture_output=True,
            text=True,
        )
        assert f"\\22wave_size\\22:{size}," in done.stdout
        assert ("no hooks for kernels of" in done.stderr) == (len(TARGETS[target].wave_sizes) > 1)


def test_damage_is_noticed(release22: Any, tmp_path: Path) -> None:
    from luthier.errors import ToolError

    compiled(release22, "gfx1100", HEADER + HOOK, tmp_path)
    section = load_object(tmp_path / "tool.hsaco").section_data(".llvmbc")
    assert section is not None
    assert read_bitcode(section, "whole").other is not None
    follows = int(re.search(rb'"follows":(\d+)', section)[1])  # type: ignore[index]
    for place in range(0, len(section), 97):
        damaged = bytearray(section)
        damaged[place] ^= 0x11
        with pytest.raises(ToolError):
            read_bitcode(bytes(damaged), "damaged")
    for cut in (1, follows, follows + 1, len(section) - 50):
        with pytest.raises(ToolError):
            read_bitcode(section[:-cut], "cut")
