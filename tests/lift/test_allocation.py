"""Registers, LDS and private memory that kernels use and their descriptors do not allocate."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from assembly import assembled, function, kernel_text
from luthier.cli.main import main
from luthier.lifting import lift
from luthier.lifting.allocation import unallocated_memory, unallocated_registers
from luthier.objects import CodeObject

CALL = ["s_getpc_b64 s[4:5]", "s_add_u32 s4, s4, f@rel32@lo+4", "s_addc_u32 s5, s5, f@rel32@hi+12"]
BY_POINTER = ["s_load_dwordx2 s[4:5], s[0:1], 0x0", "s_waitcnt lgkmcnt(0)"]
SWAP = ["s_swappc_b64 s[30:31], s[4:5]", "s_endpgm"]
CALLEE = ".hidden f\n" + function("f", ["v_mov_b32 v77, 0", "s_setpc_b64 s[30:31]"])
POINTED = ".data\n.globl p\np: .quad f\n.text\n"
USES = {
    "first granule": ("gfx942", ["v_mov_b32 v7, 0"], ""),
    "second granule": ("gfx942", ["v_mov_b32 v8, 0"], "v8"),
    "wide": ("gfx90a", ["global_load_dwordx4 v[6:9], v0, s[0:1]"], "v9"),
    "wave32": ("gfx1100", ["v_mov_b32 v13, 0", "v_mov_b32 v3, 0"], "v13"),
    "AGPR behind VGPRs": ("gfx942", ["v_accvgpr_write_b32 a0, v0"], "a0"),
    "SGPR": ("gfx906", ["s_mov_b32 s60, 0"], "s60"),
    "SGPR that all have": ("gfx1100", ["s_mov_b32 s100, 0"], ""),
    "VCC, EXEC, trap temporaries": ("gfx900", ["s_mov_b64 vcc, exec", "s_mov_b32 m0, ttmp4"], ""),
    "upper bits": ("gfx1250", ["s_set_vgpr_msb 0x40", "v_mov_b32 v2, v1", "s_set_vgpr_msb 0"], "v258"),
    "never reached": ("gfx942", ["s_endpgm", "v_mov_b32 v77, 0"], ""),
    "in a function": ("gfx942", [*CALL, *SWAP], "v77"),
    "behind an unknown pointer": ("gfx942", [*BY_POINTER, *SWAP], ""),
}


def kernel(use: str) -> CodeObject:
    target, lines, _ = USES[use]
    code = function("k", [*lines, "s_endpgm"]) + (CALLEE + POINTED if "s_swappc" in str(lines) else "")
    return assembled(kernel_text(code, target, sgprs=32, vgprs=8), target)


@pytest.mark.parametrize("use", USES)
def test_uses(use: str) -> None:
    findings = unallocated_registers(lift(kernel(use), "k"))
    assert [finding.register for finding in findings] == [*filter(None, [USES[use][2]])]


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They tell it, and the kernel is not patched: with more registers it would be another one."""
    path = tmp_path / "k.co"
    path.write_bytes(kernel("wave32").data)
    sentence = "v_mov_b32_e32 v13, 0 at 0x{:x} uses v13; the kernel descriptor allocates 8"
    sentence = sentence.format(lift(CodeObject(path.read_bytes()), "k").kernel.entry)
    for command, status in (("objects", 0), ("lift", 0), ("check", 1)):
        assert main([command, str(path)]) == status
        assert sentence in capsys.readouterr().out
    assert main(["objects", "--json", str(path)]) == 0
    ((row,),) = (one["kernels"] for one in json.loads(capsys.readouterr().out))
    assert [finding["register"] for finding in row["unallocated"]] == ["v13"]
    assert main(["patch", str(path), "-t", "instr_count", "-o", str(tmp_path / "out")]) == 1
    assert "refused, unallocated" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


HIDDEN = "      - {.size: 4, .offset: 8, .value_kind: hidden_block_count_x}\n"
DYNAMIC = HIDDEN + "      - {.size: 4, .offset: 128, .value_kind: hidden_dynamic_lds_size}\n"
LIMITS = {"lds": 1024}
PRIVATE = {"private": 64, "directives": {"enable_private_segment": 1}}
SAVED = ["s_mov_b64 s[6:7], exec", "s_and_b64 exec, exec, vcc"]
MEMORY = {
    "LDS at its end": ("gfx942", ["v_mov_b32 v0, 0", "ds_write_b32 v0, v1 offset:1020"], HIDDEN, LIMITS, []),
    "LDS behind it": ("gfx942", ["v_mov_b32 v0, 4", "ds_write_b32 v0, v1 offset:1020"], HIDDEN, LIMITS, [1027]),
    "part of it": ("gfx1100", ["v_mov_b32 v0, 0", "ds_load_b64 v[2:3], v0 offset:1020"], HIDDEN, LIMITS, [1027]),
    "two offsets": ("gfx1201", ["v_mov_b32 v0, 0", "ds_store_2addr_b32 v0, v1, v2 offset1:255"], HIDDEN, LIMITS, []),
    "in steps": ("gfx90a", ["v_mov_b32 v0, 0", "ds_read2st64_b32 v[2:3], v0 offset0:4"], HIDDEN, LIMITS, [1027]),
    "dynamic LDS": ("gfx942", ["v_mov_b32 v0, 4", "ds_write_b32 v0, v1 offset:1020"], DYNAMIC, LIMITS, ["LDS"]),
    "no hidden arguments": ("gfx942", ["v_mov_b32 v0, 4", "ds_write_b32 v0, v1 offset:1020"], "", LIMITS, ["LDS"]),
    "all LDS": ("gfx942", ["v_mov_b32 v0, 0x10000", "ds_write_b32 v0, v1"], "", LIMITS, [65539]),
    "more LDS": ("gfx950", ["v_mov_b32 v0, 0x10000", "ds_write_b32 v0, v1"], "", LIMITS, ["LDS"]),
    "unknown": ("gfx942", ["ds_write_b32 v0, v1 offset:1024"], HIDDEN, LIMITS, []),
    "wrapped": ("gfx942", ["v_mov_b32 v0, -4", "ds_write_b32 v0, v1 offset:1024"], HIDDEN, LIMITS, []),
    "by a scalar": (
        "gfx1030",
        ["s_movk_i32 s4, 0x400", "v_mov_b32 v0, s4", "ds_read_b32 v1, v0"],
        HIDDEN,
        LIMITS,
        [1027],
    ),
    "dual": (
        "gfx1100",
        ["v_dual_mov_b32 v2, 0 :: v_dual_mov_b32 v1, 0x400", "ds_load_b32 v1, v1"],
        HIDDEN,
        LIMITS,
        [1027],
    ),
    "other way": (
        "gfx942",
        ["v_mov_b32 v0, 0", "s_cbranch_scc0 0f", "v_mov_b32 v0, 0x400", "0: ds_read_b32 v1, v0"],
        *(HIDDEN, LIMITS, []),
    ),
    "some lanes": (
        "gfx942",
        [*SAVED, "v_mov_b32 v0, -1", "s_mov_b64 exec, s[6:7]", "ds_read_b32 v1, v0"],
        HIDDEN,
        LIMITS,
        [],
    ),
    "fewer lanes": ("gfx942", ["v_mov_b32 v0, -1", *SAVED, "ds_read_b32 v1, v0"], HIDDEN, LIMITS, [4294967298]),
    "no private memory": ("gfx942", ["scratch_store_dword v0, v1, off"], "", {}, [None]),
    "private memory": ("gfx1100", ["scratch_store_b32 off, v1, off offset:60"], "", PRIVATE, []),
    "behind private memory": (
        "gfx1100",
        ["s_mov_b32 s4, 4", "scratch_store_b32 off, v1, s4 offset:60"],
        "",
        PRIVATE,
        [67],
    ),
    "a dynamic stack": (
        "gfx1100",
        ["scratch_store_b32 off, v1, off offset:64"],
        *("", {**PRIVATE, "directives": {"enable_private_segment": 1, "uses_dynamic_stack": 1}}, []),
    ),
}


def memory_kernel(case: str) -> CodeObject:
    target, lines, arguments, limits, _ = MEMORY[case]
    text = kernel_text(function("k", [*lines, "s_endpgm"]), target, **limits)
    return assembled(text.replace("...\n", arguments + "...\n"), target, version=6)


@pytest.mark.parametrize("case", MEMORY)
def test_memory(case: str) -> None:
    """Only constant addresses are judged; LDS that a launch may give is a possible finding."""
    findings = list(unallocated_memory(lift(memory_kernel(case), "k")))
    bytes_of = [re.search(r"accesses byte (\d+)", one.shortage) for one in findings if one.only_if is None]
    possible = ["LDS" for one in findings if one.only_if]
    assert [byte and int(byte[1]) for byte in bytes_of] + possible == MEMORY[case][4]


@pytest.mark.parametrize("case", ["LDS behind it", "no private memory"])
def test_memory_in_commands(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.co"
    path.write_bytes(memory_kernel(case).data)
    (finding,) = unallocated_memory(lift(memory_kernel(case), "k"))
    for command, status in (("objects", 0), ("lift", 0), ("check", 1)):
        assert main([command, str(path)]) == status
        assert finding.sentence in capsys.readouterr().out
    assert main(["patch", str(path), "-t", "instr_count", "-o", str(tmp_path / "out")]) == 1
    assert "refused, unallocated" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
