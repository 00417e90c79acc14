"""Decoding compiled code, with llvm-objdump as the oracle."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effort import EVERY_TARGET
from luthier.errors import DecodeError, TargetError
from luthier.isa import NO_TARGET, InstructionFlag, Isa, OperandKind
from luthier.isa.listing import instruction_rows
from luthier.isa.targets import TARGETS, target_named

# One of each encoding family, both wave sizes where there are two; the fuzz tests visit all targets.
FAMILIES = [
    *((name, 64) for name in ("gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950")),
    *((name, wave) for name in ("gfx1010", "gfx1030", "gfx1100", "gfx1151", "gfx1201") for wave in (32, 64)),
]
GetCorpus = Callable[[str, int], Any]


@pytest.mark.rows(3)
@pytest.mark.parametrize(("target", "wave"), FAMILIES)
def test_every_instruction_reads_as_in_objdump(corpus: GetCorpus, target: str, wave: int) -> None:
    it = corpus(target, wave)
    code = it.isa.decode(it.code, it.address)
    texts = it.isa.texts(code)
    assert len(code) > 800
    assert not np.any(code.opcode < 0)
    ours = dict(zip(code.addresses.tolist(), zip(texts, code.size.tolist(), strict=True), strict=True))
    # llvm-objdump leaves out runs of padding at the end ("...").
    assert set(it.listing) <= set(ours)
    assert {address: (line.text, line.size) for address, line in it.listing.items()} == {
        address: ours[address] for address in it.listing
    }


@pytest.mark.parametrize(("target", "wave"), FAMILIES)
def test_branch_targets_and_mnemonics(corpus: GetCorpus, target: str, wave: int) -> None:
    it = corpus(target, wave)
    base = 0x7F00_0000_1000
    code = it.isa.decode(it.code, base)
    branches = 0
    for index, address in enumerate(code.offset.tolist()):
        line = it.listing.get(address)
        if line is None:
            continue
        assert it.isa.opcode(int(code.opcode[index])).mnemonic == line.text.split()[0]
        if line.target is not None and "branch" in line.text:
            assert int(code.target[index]) - base == line.target
            branches += 1
        elif "branch" not in line.text:
            assert code.target[index] == NO_TARGET
    assert branches > 20


@pytest.mark.parametrize(("target", "wave"), FAMILIES)
def test_encoding_gives_the_bytes_back(
    corpus: GetCorpus, target: str, wave: int, record_property: Callable[[str, object], None]
) -> None:
    it = corpus(target, wave)
    code = it.isa.decode(it.code, it.address)
    encoded, offsets = it.isa.encode(code)
    differences = []
    for index in range(len(code)):
        ours = encoded[offsets[index] : offsets[index + 1]]
        if ours == code.bytes_of(index):
            continue
        # A bit that means nothing may be lost, the instruction may not.
        again = it.isa.decode(ours)
        assert len(again) == 1
        assert again.operands(0) == code.operands(index)
        assert again.opcode[0] == code.opcode[index]
        differences.append(f"{it.isa.text(code, index)}: {code.bytes_of(index).hex()} -> {ours.hex()}")
    record_property("don't-care differences", differences)
    assert len(differences) < len(code) / 100, differences


@pytest.mark.parametrize(("target", "wave"), FAMILIES)
def test_operands_are_those_of_the_opcode(corpus: GetCorpus, target: str, wave: int) -> None:
    it = corpus(target, wave)
    code = it.isa.decode(it.code)
    for index in range(len(code)):
        opcode = it.isa.opcode(int(code.opcode[index]))
        operands = code.operands(index)
        assert len(operands) == len(opcode.operands)
        for info, (kind, value) in zip(opcode.operands, operands, strict=True):
            if info.tied_to >= 0:
                assert (kind, value) == operands[info.tied_to]
            if kind is OperandKind.REGISTER and value:
                assert info.register_class is not None
                assert it.isa.register_first_unit[value] >= 0 or "null" in it.isa.register(value).text


def test_bytes_that_are_no_instruction() -> None:
    isa = Isa.of("gfx942")
    assert len(isa.decode(b"")) == 0
    for size in range(1, 12):  # a literal cut short, an odd end
        code = isa.decode(bytes.fromhex("ff0080be 78563412 00008100")[:size])
        assert int(code.offset[-1] + code.size[-1]) == size
    code = isa.decode(bytes.fromhex("ffffffff 000080bf"), 0x100)
    assert code.opcode[0] == -1
    assert isa.texts(code) == [".long 0xffffffff", "s_nop 0"]
    assert isa.text(code, 0) == ".long 0xffffffff"
    assert isa.texts(isa.decode(b"\x01\x02\x03")) == [".byte 0x01, 0x02, 0x03"]
    assert code.addresses.tolist() == [0x100, 0x104]
    with pytest.raises(DecodeError, match="opcode -1"):
        isa.encode(code)


def test_columns_cannot_be_written() -> None:
    code = Isa.of("gfx942").decode(bytes(8))
    for column in (
        code.offset,
        code.size,
        code.opcode,
        code.flags,
        code.target,
        code.operand_start,
        code.operand_value,
    ):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1


def test_flat_offsets_are_numbers() -> None:
    for target in ("gfx900", "gfx942", "gfx1030", "gfx1100", "gfx1201"):
        isa = Isa.of(target)
        made = isa.assemble("global_load_dword v0, v[2:3], off offset:-5").instructions
        decoded = isa.decode(made.code)
        assert decoded.operands(0) == made.operands(0)
        at = isa.opcode(int(decoded.opcode[0])).operand_index["offset"]
        assert decoded.operands(0)[at] == (OperandKind.IMMEDIATE, -5)


def test_a_forced_literal_stays_one() -> None:
    isa = Isa.of("gfx942")
    data = bytes.fromhex("ff000068 01000000")  # v_add_u32 with the literal 1, which fits inline
    code = isa.decode(data)
    assert code.operands(0)[1] == (OperandKind.LITERAL, 1)
    assert isa.text(code, 0) == "v_add_u32_e32 v0, lit(0x1), v0"
    assert isa.encode(code)[0] == data


@pytest.mark.parametrize(
    ("target", "words", "text"),
    [
        ("gfx942", (0x4C0402F1,), "v_add_u16_e32 v2, -0.5, v1"),
        ("gfx942", (0x4C0402FF, 0xB800), "v_add_u16_e32 v2, 0xb800, v1"),
        (
            "gfx906",
            (0x4C0402F9, 0x068606F1),
            "v_add_u16_sdwa v2, -0.5, v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD",
        ),
        ("gfx1030", (0xD7400002, 0x03C9FEF2, 0x3C00), "v_mad_u16 v2, 1.0, 0x3c00, 1.0"),
        ("gfx1201", (0xD6410002, 0x03E1E4FF, 0x3118), "v_mad_u16 v2.l, 0x3118, 1.0, 0.15915494"),
        ("gfx1201", (0xBF51F2FF, 0x3C00), "s_cmp_lt_f16 0x3c00, 1.0"),
    ],
)
def test_floats_of_short_integers(target: str, words: tuple[int, ...], text: str) -> None:
    """LLVM's disassembler takes those that are encoded inline for halves, which its assembler makes literals of."""
    isa, data = Isa.of(target), struct.pack(f"<{len(words)}I", *words)
    code = isa.decode(data)
    assert isa.text(code, 0) == text
    assert isa.encode(code)[0] == isa.assemble(text).instructions.code == data


def test_threads_agree(corpus: GetCorpus) -> None:
    it = corpus("gfx942", 64)
    expected = it.isa.decode(it.code).operand_value
    results: list[bool] = []

    def work() -> None:
        for _ in range(20):
            results.append(np.array_equal(it.isa.decode(it.code).operand_value, expected))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 80


def test_isa_of_is_kept_and_checked() -> None:
    assert Isa.of("gfx942") is Isa.of(target_named("gfx942"))
    assert Isa.of("gfx1100") is Isa.of("gfx1100", 32)
    assert Isa.of("gfx1100") is not Isa.of("gfx1100", 64)
    assert str(Isa.of("gfx942:sramecc+:xnack-").target) == "gfx942:sramecc+:xnack-"
    with pytest.raises(TargetError, match="no wave size 32"):
        Isa.of("gfx942", 32)
    with pytest.raises(TargetError, match="unknown target"):
        Isa.of("gfx1")
    for name in TARGETS:
        assert Isa.of(name).decode(bytes.fromhex("000080bf")).flags[0] & InstructionFlag.SALU


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_lds_operations_without_a_gds_bit(target: str) -> None:
    """LLVM's decoder gives the first two a tied operand twice, and the others a register where its tables want a
    pair."""
    source = (
        "ds_read_u8_d16 v1, v2\nds_read_i8_d16_hi v1, v2 offset:7\nds_gws_init v0 gds\nds_gws_barrier v2 offset:4 gds"
    )
    isa = Isa.of(target)
    made = isa.assemble(source).instructions
    decoded = isa.decode(made.code)
    assert isa.texts(decoded) == source.split("\n")
    assert [decoded.operands(index) for index in range(4)] == [made.operands(index) for index in range(4)]
    assert isa.encode(decoded)[0] == made.code


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("first", [4, 5])
def test_tied_operands_of_dual_operations(target: str, first: int) -> None:
    """The lowest bit of the second destination is not in the encoding: it is the opposite of the first one's."""
    isa = Isa.of(target, 32)
    source = f"v_dual_fmac_f32 v{first}, v1, v2 :: v_dual_fmac_f32 v{11 - first}, v3, v8"
    decoded = isa.decode(isa.assemble(source).instructions.code)
    at = isa.opcode(int(decoded.opcode[0])).operand_index
    assert isa.register(decoded.operands(0)[at["src2X"]][1]).text == f"v{first}"
    assert isa.register(decoded.operands(0)[at["src2Y"]][1]).text == f"v{11 - first}"


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_matrix_operations_may_add_to_other_registers(target: str) -> None:
    isa = Isa.of(target)
    sources = "v[8:15], v[16:23]" if target == "gfx1100" else "v[8:11], v[16:19]"
    decoded = isa.decode(isa.assemble(f"v_wmma_f32_16x16x16_f16 v[0:7], {sources}, v[24:31]").instructions.code)
    opcode = isa.opcode(int(decoded.opcode[0]))
    assert opcode.operands[opcode.operand_index["src2"]].tied_to == -1
    assert isa.register(decoded.operands(0)[opcode.operand_index["src2"]][1]).text == "v[24:31]"


@pytest.mark.parametrize(
    ("target", "source"),
    [
        ("gfx950", "v_cvt_scalef32_sr_pk_fp4_f16 v5, v1, v2, v3"),
        ("gfx1100", "v_fma_mixlo_f16_e64_dpp v5, v1, v2, v3 op_sel:[1,0,1] row_ror:1 row_mask:0x3 bank_mask:0xf"),
        ("gfx1201", "v_fma_mixhi_f16_e64_dpp v5, v1, v2, v3 dpp8:[1,0,3,2,5,4,7,6]"),
        ("gfx1201", "v_cvt_sr_fp8_f32_e64_dpp v5, v1, v2 row_ror:1 row_mask:0x3 bank_mask:0xf"),
    ],
)
def test_results_that_keep_a_part_of_the_destination(target: str, source: str) -> None:
    """LLVM's decoder leaves the operand for that part out, or puts a 0 there."""
    isa = Isa.of(target)
    made = isa.assemble(source).instructions
    decoded = isa.decode(made.code)
    assert isa.texts(decoded) == isa.texts(made)
    assert isa.encode(decoded)[0] == made.code
    at = isa.opcode(int(decoded.opcode[0])).operand_index
    assert decoded.operands(0)[at["vdst_in"]] == decoded.operands(0)[at["vdst"]]


@pytest.mark.rows(5)
@pytest.mark.parametrize("target", EVERY_TARGET)
def test_rows_of_text_are_what_the_columns_say(target: str) -> None:
    isa = Isa.of(target)
    data = random.Random(target).randbytes(40_000) + b"\x01\x02"
    code = isa.decode(data, 0x1000)
    rows = instruction_rows(isa.target, isa.wave_size, data, 0x1000)
    assert (code.opcode < 0).any()
    assert (code.target != NO_TARGET).any()
    assert [row.address for row in rows] == code.addresses.tolist()
    assert [row.encoding for row in rows] == [code.bytes_of(index) for index in range(len(code))]
    assert [row.text for row in rows] == isa.texts(code)
    assert [NO_TARGET if row.target is None else row.target for row in rows] == code.target.tolist()


@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx1030", "gfx1100", "gfx1201"])
def test_scalar_operations_that_read_what_they_write(target: str) -> None:
    isa = Isa.of(target)
    lines = ["s_bitset1_b32 s4, 31", "s_bitset0_b32 s4, s7", "s_bitset1_b64 s[4:5], s9", "s_bitset0_b64 s[4:5], 3"]
    code = isa.assemble("\n".join(lines)).instructions
    for given in (code, isa.decode(code.code)):
        assert bytes(isa.encode(given)[0]) == bytes(code.code)
        for first in given.operand_start[:-1].tolist():
            assert given.operand_kind[first + 2] == given.operand_kind[first]
            assert given.operand_value[first + 2] == given.operand_value[first]
