"""Assembling: llvm-mc's bytes, labels, fixups, and errors with their line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from luthier.errors import DecodeError
from luthier.isa import NO_TARGET, Fixup, Isa, OperandKind
from msgspec.structs import replace

SOURCE = """
    .text
    .globl kernel
    .p2align 8
kernel:
    s_load_dwordx2 s[0:1], s[4:5], 0x0
    v_mov_b32_e32 v1, 0x40490fdb
.Lloop:
    v_add_f32_e32 v0, v0, v1
    s_sub_u32 s2, s2, 1
    s_cbranch_scc1 .Lloop   // backwards
    s_branch .Lend
    .p2align 6
    s_nop 3
.Lend:
    s_endpgm
end_of_kernel:
"""


@pytest.mark.parametrize("target", ["gfx900", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def test_bytes_are_those_of_llvm_mc(target: str, tmp_path: Path) -> None:
    source = SOURCE.replace("    .p2align 6\n", "")
    assembly = Isa.of(target).assemble(source)
    (tmp_path / "x.s").write_text(source)
    command = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", f"-mcpu={target}", "-filetype=obj", "x.s", "-o", "x.o"]
    subprocess.run(command, check=True, cwd=tmp_path)
    objcopy = ["llvm-objcopy-22", "-O", "binary", "--only-section=.text", "x.o", "x.bin"]
    subprocess.run(objcopy, check=True, cwd=tmp_path)
    expected = bytearray((tmp_path / "x.bin").read_bytes())
    code = assembly.instructions
    for fixup in assembly.fixups:  # their fields hold 0 in ours
        at = int(code.offset[fixup.instruction]) + fixup.byte
        expected[at : at + 2] = bytes(2)
    assert code.code == bytes(expected)
    assert Isa.of(target).encode(code)[0] == code.code


def test_bytes_do_not_depend_on_the_processor_that_came_first() -> None:
    """LLVM makes what a depctr operand does not name once a process; GFX10.1 has less than the others."""
    code = """
import sys
from luthier.isa import Isa
for target in sys.argv[1:]:
    wait = "s_wait_alu" if target.startswith("gfx12") else "s_waitcnt_depctr"
    print(target, Isa.of(target).assemble(f"{wait} depctr_sa_sdst(0)").instructions.code.hex())
"""
    targets = ["gfx1010", "gfx1030", "gfx1100", "gfx1201"]
    outputs = []
    for order in (targets, targets[::-1]):
        done = subprocess.run([sys.executable, "-c", code, *order], check=True, capture_output=True, text=True)
        outputs.append(sorted(done.stdout.splitlines()))
    assert outputs[0] == outputs[1]
    assert all(line.split()[1].startswith("9eff") for line in outputs[0])  # nothing but SA_SDST is waited for


def test_labels_and_branch_fixups() -> None:
    isa = Isa.of("gfx942")
    assembly = isa.assemble(SOURCE)
    code = assembly.instructions
    texts = isa.texts(code)
    # Alignment is padding, no code.
    assert [text.split()[0] for text in texts] == [
        "s_load_dwordx2",
        "v_mov_b32_e32",
        "v_add_f32_e32",
        "s_sub_u32",
        "s_cbranch_scc1",
        "s_branch",
        "s_nop",
        "s_endpgm",
    ]
    assert assembly.labels == {"kernel": 0, ".Lloop": 2, ".Lend": 7, "end_of_kernel": 8}
    assert assembly.fixups == (Fixup(4, 0, "sopp_branch", ".Lloop"), Fixup(5, 0, "sopp_branch", ".Lend"))
    assert code.operands(4) == [(OperandKind.EXPRESSION, 0)]
    assert code.operands(5) == [(OperandKind.EXPRESSION, 1)]
    assert set(code.target.tolist()) == {NO_TARGET}


def test_a_numeric_branch_is_a_target() -> None:
    code = Isa.of("gfx1100").assemble("s_nop 0\ns_branch -2").instructions
    assert code.target.tolist() == [NO_TARGET, 0]


@pytest.mark.parametrize(
    ("operand", "expected"),
    [
        ("sym@rel32@lo+4", {"symbol": "sym", "addend": 4, "modifier": "rel32@lo"}),
        ("sym@rel32@hi+12", {"symbol": "sym", "addend": 12, "modifier": "rel32@hi"}),
        ("sym@gotpcrel32@lo+4", {"symbol": "sym", "addend": 4, "modifier": "gotpcrel32@lo"}),
        ("sym@abs32@lo", {"symbol": "sym", "modifier": "abs32@lo"}),
        ("sym@abs32@hi", {"symbol": "sym", "modifier": "abs32@hi"}),
        ("sym", {"symbol": "sym"}),
        ("sym-other-8", {"symbol": "sym", "subtrahend": "other", "addend": -8}),
        ("(sym-other)&4294967295", {"symbol": "sym", "subtrahend": "other", "modifier": "lo32"}),
        ("(sym-other)>>32", {"symbol": "sym", "subtrahend": "other", "modifier": "hi32"}),
    ],
)
def test_literal_fixups(operand: str, expected: dict[str, Any]) -> None:
    assembly = Isa.of("gfx942").assemble(f"s_nop 0\ns_add_u32 s0, s0, {operand}")
    assert assembly.fixups == (Fixup(1, 4, "literal32", **expected),)
    assert assembly.instructions.operands(1)[2] == (OperandKind.EXPRESSION, 0)
    assert assembly.instructions.code[8:] == bytes(4)


def test_absolute_expressions_need_no_fixup() -> None:
    isa = Isa.of("gfx942")
    assembly = isa.assemble(".set n, 3\ns_mov_b32 s0, n*16+1\ns_mov_b32 s1, lit(5)\ns_nop n")
    assert assembly.fixups == ()
    assert isa.texts(assembly.instructions) == ["s_mov_b32 s0, 49", "s_mov_b32 s1, lit(0x5)", "s_nop 3"]


def test_data_in_text_is_decoded_and_other_sections_are_left_out() -> None:
    isa = Isa.of("gfx942")
    source = ".long 0xbf800001\n.byte 1,0,0x80\n.byte 0xbf\nhere:\n.rodata\n.long 7\nthere:\n.text\ns_endpgm\n"
    assembly = isa.assemble(source)
    assert isa.texts(assembly.instructions) == ["s_nop 1", "s_nop 1", "s_endpgm"]
    assert assembly.labels == {"here": 2}
    with pytest.raises(DecodeError, match=r"line 1: .*must be a constant"):
        isa.assemble(".long somewhere")


def test_compiler_output_with_all_its_directives(tmp_path: Path) -> None:
    source = tmp_path / "k.c"
    source.write_text(
        "__attribute__((amdgpu_kernel)) void k(int *p) { for (int i = 0; i < p[1]; ++i) p[0] += p[i]; }"
        "int f(int *p); __attribute__((amdgpu_kernel)) void g(int *p) { p[0] = f(p); }"
    )
    for target in ("gfx900", "gfx942", "gfx1100", "gfx1201"):
        command = [
            "clang-22",
            "--target=amdgcn-amd-amdhsa",
            f"-mcpu={target}",
            "-nogpulib",
            "-O1",
            "-g",
            "-S",
            "-o",
            "-",
        ]
        text = subprocess.run([*command, str(source)], check=True, capture_output=True, text=True).stdout
        assembly = Isa.of(target).assemble(text)
        assert assembly.labels["k"] == 0
        assert assembly.labels["g"] > 10
        assert {fixup.modifier for fixup in assembly.fixups if fixup.symbol == "f"} <= {
            "rel32@lo", "rel32@hi", "gotpcrel32@lo", "gotpcrel32@hi", "abs32@lo", "abs32@hi", "rel64"
        }  # fmt: skip
        assert any(fixup.symbol == "f" for fixup in assembly.fixups)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("s_nop 0\nv_bogus v0", "line 2: invalid instruction"),
        ("s_nop 0\n\ns_mov_b32 s0, s1, s2", "line 3: invalid operand for instruction"),
        ("v_add_f32 v0, v[0:1], v0", "line 1: .*operand"),
        (".if 1\ns_nop 0", "line 2: unmatched .ifs"),
        ("s_mov_b32 s0, foo*3", "cannot express 'foo.3'"),
        ("v_mov_b32 v0, v1 row_shr:x", "line 1: expected absolute expression"),
        ('.amdgcn_target "amdgcn-amd-amdhsa--gfx900"', "line 1: .*does not match"),
        ('s_nop 0\n.ascii "never closed\n', "line 2: unterminated string"),
        ("s_nop 0 /* never closed", "line 1: unterminated comment"),
        ("s_nop 0\nv_mov_b32 v0, occupancy(1,2)", "line 2: occupancy takes 7 arguments"),
        (".set a, 1 + extrasgprs ((1,2,3), 1)", "line 1: extrasgprs takes 3 arguments"),
        ("s_mov_b32 s0, totalnumvgprs(1)", "line 1: totalnumvgprs takes 2 arguments"),
        ("s_mov_b32 s0, alignto(1", "line 1: alignto takes 2 arguments"),
        ("s_mov_b32 s0, " + "(" * 100_000, "line 1: expression is too long"),
        (".macro again\nagain\n.endm\nagain", "macros cannot be nested more than"),
        (".set a, b\n.set b, a\ns_mov_b32 s0, a", "line 3"),
    ],
)
def test_errors_say_where_and_what(source: str, message: str) -> None:
    with pytest.raises(DecodeError, match=message) as caught:
        Isa.of("gfx942").assemble(source)
    assert caught.value.target == "gfx942"
    assert Isa.of("gfx942").assemble("s_nop 0").instructions.code == bytes.fromhex("000080bf")


def test_a_crash_of_llvm_is_an_error() -> None:
    """In a process of its own: what LLVM reads here beyond an array depends on what the process did before.

    Very rarely it damages the process, which then ends by a signal.
    """
    source = ".macro use f\nv_mov_b32 v0, \\f(1,2)\n.endm\nuse occupancy"
    code = f"from luthier.isa import Isa; Isa.of('gfx942').assemble({source!r})"
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        if done.returncode >= 0:
            break
    assert done.returncode == 1
    assert "LLVM's assembler crashed" in done.stderr


def test_a_literal_that_the_encoder_would_drop_is_an_error() -> None:
    """Of two literals LLVM encodes the first."""
    isa = Isa.of("gfx1201")
    both = isa.assemble("s_cmp_lg_f16 1.0, 0xd4a5").instructions
    assert isa.encode(both)[0] == isa.encode(isa.decode(both.code))[0] == both.code
    same = isa.assemble("s_cmp_lg_f16 0x3c00, 0x3c00").instructions
    assert isa.encode(same)[0] == same.code
    with pytest.raises(DecodeError, match=r"instruction 0: .* one literal where two are needed"):
        isa.encode(replace(same, operand_value=np.array([0x3C00, 0xD4A5], np.int64)))


def test_functions_of_expressions() -> None:
    source = "s_mov_b32 s0, alignto(5, 4) ; alignto(1)\n.set my_alignto, 1\ns_mov_b32 s1, max(totalnumvgprs(3, 2), 9)"
    assert len(Isa.of("gfx942").assemble(source).instructions) == 2


def test_quotes_in_comments_are_no_strings() -> None:
    source = 's_nop 0 ; say "\ns_nop 1 // "quoted\n/* " \n */ s_nop 2\n.section .note,"",@note\n.ascii "a\\"b"\n'
    assert len(Isa.of("gfx942").assemble(source).instructions) == 3
