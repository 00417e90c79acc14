"""A kernel for any target, assembled on demand, and its expected result."""

from __future__ import annotations

import functools

import numpy as np
from luthier.errors import LuthierError
from luthier.isa import Isa
from luthier.isa.targets import Target, target_named
from luthier.objects import CodeObject, ObjectEditor
from luthier.objects.descriptor import DESCRIPTOR_SIZE, KernelDescriptor
from luthier.objects.skeleton import empty_object, header_for
from msgspec.structs import replace
from numpy.typing import NDArray

NAME = "luthier_selftest"
GROUPS, ITEMS = 6, 200
"""Work-groups, and work-items in each; the last wave of each work-group is not full."""
TURNS = 40

# out[item] += mixed(item), in every work-group: a loop, divergent lanes, memory, atomic additions.
_SOURCE = """
    {load2} s[4:5], s[0:1], 0x0
    {load1} s6, s[0:1], 0x8
    {wait}
    v_and_b32 v0, 0x3ff, v0
    v_mov_b32 v1, v0
    s_mov_b32 s7, 0
    s_mov_b32 s8, 0x19660d
turn:
    v_mul_lo_u32 v1, v1, s8
    v_xor_b32 v1, 0x3c6ef35f, v1
    s_add_u32 s7, s7, 1
    s_cmp_lt_u32 s7, s6
    s_cbranch_scc1 turn
    v_and_b32 v2, 3, v0
    v_cmp_eq_u32 vcc{low}, 0, v2
    s_and_saveexec_b{lanes} s[10:{saved}], vcc{low}
    s_cbranch_execz meet
    v_xor_b32 v1, 0x5a5a5a5a, v1
meet:
    s_mov_b{lanes} exec{low}, s[10:{saved}]
    v_lshlrev_b32 v2, 2, v0
    global_atomic_add v2, v1, s[4:5]
    s_endpgm
"""
_WAITS = ("s_wait_kmcnt 0x0", "s_waitcnt lgkmcnt(0)")
"""The first that assembles is used. GFX12 also has the encoding of the second, but with other counters."""
_VGPRS, _SGPRS = 8, 32
_CODE_PADDING = 0x100
"""Bytes after the code that hardware may fetch."""


def expected() -> NDArray[np.uint32]:
    """Return the contents of `out`, initially 0, after a launch of `GROUPS` groups of `ITEMS` with `TURNS` turns."""
    items = np.arange(ITEMS, dtype=np.uint32)
    values = items.copy()
    for _ in range(TURNS):
        values = values * np.uint32(0x19660D) ^ np.uint32(0x3C6EF35F)
    values[items & 3 == 0] ^= np.uint32(0x5A5A5A5A)
    return values * np.uint32(GROUPS)


@functools.cache
def code_object(target_name: str) -> CodeObject:
    """Return the code object with the kernel `NAME`.

    Its arguments are a pointer to `ITEMS` 32-bit numbers, and the number of turns.

    Raises:
        LuthierError: the target is unknown, or its assembler rejects the source.
    """
    target = target_named(target_name)
    isa = Isa.of(target_name, target.default_wave_size)
    code = _assemble(isa)
    editor = ObjectEditor(empty_object(header_for(target), NAME))
    text = editor.reserve(len(code) + _CODE_PADDING, flags="rx", name=".text", align=256)
    editor.write(text, code)
    place = editor.reserve(DESCRIPTOR_SIZE, flags="r", name=".rodata", align=64)
    editor.write(
        place, replace(_descriptor(target, isa.wave_size), kernel_code_entry_byte_offset=text - place).encode()
    )
    editor.define_symbol(f"{NAME}.kd", place, DESCRIPTOR_SIZE)
    editor.define_symbol(NAME, text, len(code), type="func")
    editor.set_metadata(
        {
            "amdhsa.kernels": [
                {
                    ".name": NAME,
                    ".symbol": f"{NAME}.kd",
                    ".kernarg_segment_size": 16,
                    ".kernarg_segment_align": 8,
                    ".group_segment_fixed_size": 0,
                    ".private_segment_fixed_size": 0,
                    ".wavefront_size": isa.wave_size,
                    ".sgpr_count": _SGPRS,
                    ".vgpr_count": _VGPRS,
                    ".max_flat_workgroup_size": 256,
                    ".args": [
                        {
                            ".name": "out",
                            ".offset": 0,
                            ".size": 8,
                            ".value_kind": "global_buffer",
                            ".address_space": "global",
                        },
                        {".name": "turns", ".offset": 8, ".size": 4, ".value_kind": "by_value"},
                    ],
                }
            ],
            "amdhsa.target": f"amdgcn-amd-amdhsa--{target.name}",
            "amdhsa.version": [1, 1],
        }
    )
    return CodeObject(editor.finish(), f"{NAME} for {target.name}")


def _assemble(isa: Isa) -> bytes:
    narrow = isa.wave_size == 32
    words = {"lanes": isa.wave_size, "saved": 10 if narrow else 11, "low": "_lo" if narrow else ""}
    problems = []
    for wait in _WAITS:
        source = _SOURCE.format(wait=wait, load1="s_load_dword", load2="s_load_dwordx2", **words)
        try:
            return _with_labels(isa, source)
        except LuthierError as problem:
            problems.append(problem)
    raise problems[0]


def _with_labels(isa: Isa, source: str) -> bytes:
    """Return machine code; replace labels of branches by distances, which the assembler would leave to a linker."""
    assembly = isa.assemble(source)
    starts = [*assembly.instructions.offset.tolist(), len(assembly.instructions.code)]
    lines = [line.strip() for line in source.splitlines() if line.strip() and not line.strip().endswith(":")]
    for number, line in enumerate(lines):
        name, _, label = line.partition(" ")
        if label in assembly.labels:
            distance = starts[assembly.labels[label]] - starts[number + 1]
            lines[number] = f"{name} {distance // 4}"
    return bytes(isa.assemble("\n".join(lines)).instructions.code)


def _descriptor(target: Target, wave_size: int) -> KernelDescriptor:
    granule = target.vgpr_encoding_granule(wave_size)
    return KernelDescriptor(
        target,
        kernarg_size=16,
        granulated_workitem_vgpr_count=-(-_VGPRS // granule) - 1,
        granulated_wavefront_sgpr_count=_SGPRS // target.sgpr_encoding_granule - 1
        if target.sgpr_encoding_granule
        else 0,
        float_denorm_mode_16_64=3,
        user_sgpr_count=2,
        enable_sgpr_workgroup_id_x=1,
        enable_sgpr_kernarg_segment_ptr=1,
        enable_wavefront_size32=int(wave_size == 32),
        accum_offset=_VGPRS // 4 - 1 if target.unified_vgprs else 0,
    )
