"""Random bytes and random text: nothing crashes, nothing is lost, and what LLVM reads is read alike."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from effort import EVERY_ISA, FUZZ
from luthier.errors import DecodeError
from luthier.isa import InstructionArray, Isa
from msgspec.structs import replace


def keep(code: InstructionArray, good: np.ndarray) -> InstructionArray:
    """Only the chosen instructions, as the columns an encoder takes."""
    pieces = [slice(code.operand_start[index], code.operand_start[index + 1]) for index in good]
    starts = np.cumsum([0, *(piece.stop - piece.start for piece in pieces)], dtype=np.int32)
    return replace(
        code,
        offset=code.offset[good],
        size=code.size[good],
        opcode=code.opcode[good],
        flags=code.flags[good],
        target=code.target[good],
        operand_start=starts,
        operand_kind=np.concatenate([code.operand_kind[piece] for piece in pieces]),
        operand_value=np.concatenate([code.operand_value[piece] for piece in pieces]),
    )


@pytest.mark.rows(8)
@pytest.mark.parametrize(("target", "wave"), EVERY_ISA)
def test_random_bytes(target: str, wave: int) -> None:
    isa = Isa.of(target, wave)
    data = np.random.default_rng([*target.encode(), wave]).integers(0, 256, 40_000 * FUZZ, dtype=np.uint8).tobytes()
    code = isa.decode(data)
    assert code.offset.tolist() == np.cumsum([0, *code.size[:-1]]).tolist()
    assert int(code.offset[-1] + code.size[-1]) == len(data)
    texts = isa.texts(code)
    assert not any("/*Invalid register" in text for text in texts)
    good = np.flatnonzero(code.opcode >= 0)
    assert len(good) > len(code) / 5
    for index in good:
        assert texts[index].split()[0] == isa.opcode(int(code.opcode[index])).mnemonic

    # What is encoded again decodes to the same instruction, though reserved bits and a choice among encodings are lost.
    # The few exceptions are inline constants that LLVM's encoder can only write as literals.
    chosen = keep(code, good)
    encoded, offsets = isa.encode(chosen)
    again = isa.decode(encoded)
    assert again.offset.tolist() == offsets[:-1].tolist()
    assert np.array_equal(again.opcode >= 0, np.ones(len(again), bool))
    same = sum(one == other for one, other in zip(isa.texts(chosen), isa.texts(again), strict=True))
    assert same > 0.97 * len(again)


@pytest.mark.parametrize(("target", "wave"), EVERY_ISA)
def test_fewer_bytes_and_what_was_decoded_before_make_no_difference(target: str, wave: int) -> None:
    native = Isa.of(target, wave)._native
    rng = np.random.default_rng([1, *target.encode(), wave])
    words = rng.integers(0, 1 << 32, 15_000 * FUZZ, dtype=np.uint32)
    few = rng.choice(words[:60], 5_000).tobytes()
    pieces = [(few[first : first + size], 1 << 30 | first) for first, size in rng.integers(0, 300, (100, 2)).tolist()]
    for data, address in [(words.tobytes(), 0), (few, 0), *pieces]:
        for quick, patient in zip(native.decode(data, address), native.decode(data, address, True), strict=True):
            assert np.array_equal(quick, patient)


_REGISTER_FIELDS = ((0, 8), (9, 8), (17, 8), (16, 7), (8, 8), (32, 8), (40, 8), (41, 8), (48, 8), (50, 8), (56, 8))
"""First bit and size of fields that are numbers of registers in some encodings."""


@pytest.mark.rows(8)
@pytest.mark.parametrize(("target", "wave"), EVERY_ISA)
def test_other_registers(target: str, wave: int) -> None:
    """Instructions of learned forms are those that LLVM decodes, or none, as some numbers are none of registers."""
    native = Isa.of(target, wave)._native
    rng = np.random.default_rng([4, *target.encode(), wave])
    chosen = rng.integers(0, 1 << 63, 400 * FUZZ, dtype=np.uint64)
    # Encodings with few bits of their own: a first or second word that is all in fields, scalar and vector ones.
    chosen[::4] &= np.uint64(0xFFFFFFFFFE03FFFF)
    chosen[1::4] = chosen[1::4] & np.uint64(0xFFFFFFFF_00FFFFFF) | np.uint64(0x80000000)
    chosen[2::4] = chosen[2::4] & np.uint64(0xFFFFFFFF_03FFFFFF) | rng.choice(
        np.array([0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x3A], np.uint64) << np.uint64(26), len(chosen[2::4])
    )
    words = np.repeat(chosen, 8)
    for first, bits in _REGISTER_FIELDS:
        mask = np.uint64(((1 << bits) - 1) << first)
        values = rng.integers(0, 1 << bits, len(words), dtype=np.uint64) << np.uint64(first)
        words = np.where(rng.integers(0, 4, len(words)) == 0, words & ~mask | values, words)
    data = words.tobytes()
    for _ in range(2):
        for quick, patient in zip(native.decode(data, 0), native.decode(data, 0, True), strict=True):
            assert np.array_equal(quick, patient)


@pytest.mark.parametrize("target", ["gfx900", "gfx90a", "gfx942", "gfx1030"])
def test_scalar_results_that_are_no_sgprs(target: str) -> None:
    """Encodings 102 to 105 of a result are FLAT_SCRATCH and XNACK_MASK on GFX9, also in a learned form."""
    isa = Isa.of(target)
    first = int.from_bytes(isa.assemble("v_readfirstlane_b32 s0, v1").instructions.code, "little")
    words = np.array([first | sgpr << 17 for sgpr in (1, 2, 3, *range(96, 108))], "<u4").tobytes()
    for _ in range(2):
        for quick, patient in zip(isa._native.decode(words, 0), isa._native.decode(words, 0, True), strict=True):
            assert np.array_equal(quick, patient)


def test_threads_decode_at_once() -> None:
    """One of them goes by what was decoded before, and keeps what it finds."""
    native = Isa.of("gfx90a")._native
    rng = np.random.default_rng(3)
    texts = [rng.choice(rng.integers(0, 1 << 32, 500, dtype=np.uint32), 20_000).tobytes() for _ in range(8)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda text: native.decode(text, 0), texts))
    for own, text in zip(together, texts, strict=True):
        for quick, patient in zip(own, native.decode(text, 0, True), strict=True):
            assert np.array_equal(quick, patient)


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("target", "wave"),
    [("gfx906", 64), ("gfx90a", 64), ("gfx942", 64), ("gfx1030", 32), ("gfx1151", 64), ("gfx1201", 32)],
)
def test_random_bytes_against_objdump(
    target: str, wave: int, objdump_of_bytes: Callable[[bytes, str, int], dict[int, Any]]
) -> None:
    isa = Isa.of(target, wave)
    rng = np.random.default_rng([2, *target.encode()])
    compared = 0
    for _ in range(6 * FUZZ):
        data = rng.integers(0, 256, 2_000, dtype=np.uint8).tobytes()
        try:
            listing = objdump_of_bytes(data, target, wave)
        except subprocess.CalledProcessError:
            continue  # it crashes on reserved SDWA selections
        code = isa.decode(data)
        for address, text, opcode in zip(code.offset.tolist(), isa.texts(code), code.opcode.tolist(), strict=True):
            line = listing.get(address)
            if line is None or "nvalid" in line.text or text.startswith("s_version"):
                continue  # out of step after an encoding only it accepts; a reserved encoding
            if opcode >= 0 and line.text.startswith(".long"):
                # Fields are set that the hardware ignores: LLVM reads what has them clear.
                at = int(np.flatnonzero(code.offset == address)[0])
                cleared, _ = isa.encode(isa.decode(code.bytes_of(at)))
                assert cleared != code.bytes_of(at)
                assert objdump_of_bytes(cleared, target, wave)[0].text == text
            elif opcode >= 0 or line.text.startswith(".long"):
                assert text == line.text
                compared += 1
    assert compared > 300


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("gfx900", "000003d100fe0100"),  # a VOP3 literal on GFX9: LLVM reports it to a null stream
        ("gfx900", "000003d100fe010000000000"),
        ("gfx942", "f9005900000000d7"),  # SDWA src1_sel 7
        ("gfx942", "f94e007f00dd0000"),  # SDWA dst_unused 3
        ("gfx950", "000054d200000000"),  # a scalar tuple where only vectors are
        ("gfx950", "0000c0d30000ff21"),
        ("gfx950", "0000aed300ec0065"),  # a tuple beyond v255
        ("gfx950", "0000c1d300001500"),  # MFMA of scalars
        ("gfx1201", "000002cd00000000"),  # VINTERP of scalars
        ("gfx1201", "ff4e80bebe000000"),  # a literal barrier
    ],
)
def test_encodings_llvm_itself_trips_over(target: str, code: str) -> None:
    isa = Isa.of(target)
    decoded = isa.decode(bytes.fromhex(code))
    isa.texts(decoded)
    assert decoded.opcode[0] == -1


def test_columns_from_elsewhere_are_checked() -> None:
    isa = Isa.of("gfx942")
    good = isa.decode(bytes.fromhex("0100024a"))  # a vector instruction of three operands
    random_source = random.Random(0)
    refused = 0
    for _ in range(3_000 * FUZZ):
        kinds = np.array([random_source.choice([0, 1, 1, 1, 2, 2, 3, 4, 5, 9]) for _ in good.operand_kind], np.uint8)
        values = np.array(
            [random_source.choice([0, 1, 7, 300, 2**31, -5, 10**6]) for _ in good.operand_value], np.int64
        )
        opcode = np.array([random_source.randrange(-2, 48_000)], np.int32)
        bad = replace(good, operand_kind=kinds, operand_value=values, opcode=opcode)
        for use in (isa.encode, isa.texts):
            try:
                use(bad)
            except DecodeError:
                refused += 1
    assert refused > 2_000
    for bad in (
        replace(good, operand_start=good.operand_start[:-1]),
        replace(good, operand_start=good.operand_start + 1),
        replace(good, operand_kind=good.operand_kind[:-1]),
    ):
        with pytest.raises(DecodeError):
            isa.encode(bad)


def test_random_text() -> None:
    source = random.Random(0)
    words = (  # noqa: SIM905 - a hundred quotes less
        "v0 v[0:1] v[1:0] v[0:400] a0 s0 s[0:1] vcc exec m0 null ttmp0 off 1 -1 0x12345678 1.0 1e400 foo foo@rel32@lo+4"
        " . ( ) [ ] , : - | neg( abs( sext( lit(5) hwreg(HW_REG_MODE) sendmsg(MSG_GS) vmcnt(0) row_shr:1 dst_sel:BYTE_0"
        ' quad_perm:[0,1,2,3] offset:4 glc sc0 op_sel:[0,1] clamp mul:2 " // /* ; # \\ .long .byte .set .if .endif'
        " .macro .endm .rept .section .text .amdhsa_kernel .end_amdhsa_kernel .amdgcn_target .amdgpu_metadata .p2align"
        " .size .cfi_startproc occupancy(1,2) max(1,2) s_mov_b32 s_branch v_add_f32 v_fma_f32 global_load_dword"
        " ds_read_b32 buffer_load_dword s_load_dwordx2 v_cmp_eq_u32"
    ).split()
    assembled = 0
    for number in range(1_500 * FUZZ):
        isa = Isa.of(*EVERY_ISA[number % len(EVERY_ISA)].values)
        text = "\n".join(
            " ".join(source.choices(words, k=source.randrange(1, 7))) for _ in range(source.randrange(1, 4))
        )
        try:
            isa.texts(isa.assemble(text).instructions)
            assembled += 1
        except DecodeError:
            continue
    assert assembled > 10
