"""Registers that kernels use and their descriptors do not allocate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from assembly import assembled, function, kernel_text
from luthier.cli.main import main
from luthier.lifting import lift
from luthier.lifting.allocation import unallocated_registers
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
    found = unallocated_registers(lift(kernel(use), "k"))
    assert [finding.register for finding in found] == [*filter(None, [USES[use][2]])]


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
