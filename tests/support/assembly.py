"""Kernels in assembly: the descriptor, the metadata, and code objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from compiling import compiled
from kept import kept
from luthier.isa.targets import target_named
from luthier.objects import CodeObject, load_object

from luthier_build.toolchain import Toolchain

DIALECTS = Path(__file__).with_name("dialects.s").read_text()
"""Macros for what generations spell differently."""
TEXT = """
{macros}
.text
{code}
.rodata
.p2align 6
.amdhsa_kernel {name}
 {directives}
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: {name}
    .symbol: {name}.kd
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: {private}
    .wavefront_size: {wave_size}
    .sgpr_count: {sgprs}
    .vgpr_count: {vgprs}
    .agpr_count: {agprs}
    .max_flat_workgroup_size: {workgroup}
    .args:
      - {{.name: out, .size: 8, .offset: 0, .value_kind: global_buffer, .address_space: global}}
...
.end_amdgpu_metadata
"""


def kernel_text(
    code: str,
    target: str,
    *,
    name: str = "k",
    wave_size: int | None = None,
    sgprs: int = 96,
    vgprs: int = 32,
    agprs: int = 0,
    lds: int = 0,
    private: int = 0,
    workgroup: int = 1024,
    directives: Mapping[str, object] | None = None,
) -> str:
    """Return the assembly file of a kernel that takes the address of one buffer, at first in ``s[0:1]``.

    Args:
        code: all of `.text`, which may use the macros of dialects.s; `function` makes a function of instructions.
        target: processor.
        name: name of the kernel.
        wave_size: lanes, by default the processor's own choice.
        sgprs, vgprs, agprs: registers that the kernel declares.
        lds, private: bytes of the kernel's fixed LDS and of each lane's private memory.
        workgroup: lanes of the largest work-group that it may be launched with.
        directives: further ones of `.amdhsa_kernel`, without their prefix; they replace those made here.
    """
    family = target_named(target.partition(":")[0])
    lanes = wave_size or family.default_wave_size
    made: dict[str, object] = {
        "kernarg_size": 8,
        "user_sgpr_kernarg_segment_ptr": 1,
        "group_segment_fixed_size": lds,
        "private_segment_fixed_size": private,
        "next_free_sgpr": sgprs,
        "next_free_vgpr": vgprs,
    }
    if family.unified_vgprs:
        first = -(-vgprs // 4) * 4
        made |= {"accum_offset": first, "next_free_vgpr": first + agprs}
    if family.default_wave_size == 32 and len(family.wave_sizes) > 1:
        made["wavefront_size32"] = int(lanes == 32)
    made |= directives or {}
    return TEXT.format(
        name=name,
        macros=DIALECTS,
        code=code,
        directives="\n ".join(f".amdhsa_{key} {value}" for key, value in made.items()),
        lds=lds,
        private=private,
        wave_size=lanes,
        sgprs=sgprs,
        vgprs=made["next_free_vgpr"],
        agprs=agprs,
        workgroup=workgroup,
    )


def function(name: str, lines: Iterable[str]) -> str:
    """Return instructions and labels as a function that other objects may refer to."""
    body = "\n ".join(lines)
    return f".globl {name}\n.p2align 8\n.type {name},@function\n{name}:\n {body}\n.size {name}, .-{name}\n"


def assembled(text: str, target: str, *, wave_size: int | None = None, version: int = 5) -> CodeObject:
    """Return the code object of an assembly file.

    Args:
        text: contents of the file.
        target: processor, with its features if any: ``gfx90a:xnack+``.
        wave_size: lanes, by default the processor's own choice.
        version: of the code object.
    """
    path = kept(text, lambda path: path.write_text(text), "kernel.s")
    command: list[str | Path] = [Toolchain.find().clang, "--target=amdgcn-amd-amdhsa", f"-mcpu={target}"]
    command += [f"-mcode-object-version={version}", "-x", "assembler"]
    if wave_size and target_named(target.partition(":")[0]).default_wave_size == 32:
        command.append("-mwavefrontsize64" if wave_size == 64 else "-mno-wavefrontsize64")
    return load_object(compiled([*command, path], [path], f"{target.replace(':', '_')}.hsaco"))
