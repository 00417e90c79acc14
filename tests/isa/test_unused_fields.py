"""Fields that an instruction does not use, which hardware ignores and LLVM's decoder does not; and how long
instructions are that LLVM does not know."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from luthier.emulator.inspection.coverage import samples
from luthier.isa import InstructionArray, InstructionFlag, Isa

BEHIND = bytes.fromhex("000080bf") * 8
"""s_nop 0, for LLVM to look at."""
TARGETS = ("gfx906", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201", "gfx1250")


def with_bits(code: bytes, first: int, count: int, value: int) -> bytes:
    number = int.from_bytes(code, "little")
    mask = (1 << count) - 1
    return (number & ~(mask << first) | (value & mask) << first).to_bytes(len(code), "little")


def words(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


def reading(isa: Isa, code: bytes) -> tuple[str, int, list[object]] | None:
    """The first instruction: its text, its size and its operands; None where it is none."""
    decoded = isa.decode(code + BEHIND)
    assert decoded.bytes_of(0) == (code + BEHIND)[: int(decoded.size[0])]
    return None if decoded.opcode[0] < 0 else (isa.text(decoded, 0), int(decoded.size[0]), decoded.operands(0))


def encodings(isa: Isa, encoding: int, mask: int) -> list[tuple[InstructionArray, int]]:
    """An example of every opcode whose first word has these bits."""
    examples = samples(isa).values()
    return [(code, at) for code, at in examples if int.from_bytes(code.bytes_of(at)[:4], "little") & mask == encoding]


def names(isa: Isa, code: InstructionArray, at: int) -> set[str]:
    return {operand.name for operand in isa.opcode(int(code.opcode[at])).operands}


def check_field(isa: Isa, examples: Sequence[tuple[InstructionArray, int]], field: tuple[int, int], name: str) -> int:
    """Set a field, and see that it changes nothing where no operand is called `name`; return how many examples that
    is."""
    draw, unused = random.Random(1), 0
    for code, at in examples:
        if name in names(isa, code, at):
            continue
        plain = code.bytes_of(at)
        unused += 1
        for value in (1, (1 << field[1]) - 1, draw.getrandbits(field[1])):
            assert reading(isa, with_bits(plain, *field, value)) == reading(isa, plain)
    return unused


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_vdst_of_lds_instructions_that_return_nothing(target: str) -> None:
    isa = Isa.of(target)
    examples = encodings(isa, 0x36 << 26, 0x3F << 26)
    assert check_field(isa, examples, (56, 8), "vdst") > 40
    for code, at in examples:  # an existing one is unchanged
        if "vdst" in names(isa, code, at):
            plain, other = (reading(isa, with_bits(code.bytes_of(at), 56, 8, number)) for number in (2, 4))
            assert plain != other


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201", "gfx1250"])
def test_second_sources_of_dual_moves(target: str) -> None:
    isa = Isa.of(target, 32)
    examples = encodings(isa, 0x32 << 26, 0x3F << 26)
    assert check_field(isa, examples, (9, 8), "vsrc1X") > 10
    assert check_field(isa, examples, (41, 8), "vsrc1Y") > 10


def test_sources_that_long_dual_instructions_do_not_have() -> None:
    """Of VOPD3; where there is a truth table it is in the last source's place."""
    isa = Isa.of("gfx1250", 32)
    examples = encodings(isa, 0xCF << 24, 0xFF << 24)
    assert check_field(isa, examples, (48, 8), "vsrc1X") > 20
    assert check_field(isa, examples, (56, 8), "vsrc2X") > 200
    assert check_field(isa, examples, (72, 8), "vsrc1Y") > 10
    tables = [(code, at) for code, at in examples if "bitop3" in names(isa, code, at)]
    plain = [(code, at) for code, at in examples if "bitop3" not in names(isa, code, at)]
    assert check_field(isa, plain, (80, 8), "vsrc2Y") > 200
    assert len(tables) > 10
    for code, at in tables:  # with a source that is unused, too, which the bits are looked at for
        first, other = (with_bits(with_bits(code.bytes_of(at), 56, 8, 0x36), 80, 8, table) for table in (0x40, 0x14))
        assert reading(isa, first) != reading(isa, other)
        assert reading(isa, first) is not None


@pytest.mark.rows(5)
@pytest.mark.parametrize("target", TARGETS)
def test_modifiers_of_a_second_source_that_dpp_instructions_do_not_have(target: str) -> None:
    isa = Isa.of(target)
    # LLVM reads v_nop of four bytes where it cannot read it with DPP.
    examples = [(code, at) for code, at in encodings(isa, 0xFA, 1 << 31 | 0x1FF) if isa.text(code, at)[:5] != "v_nop"]
    assert check_field(isa, examples, (54, 2), "src1") > 50


def test_bits_that_are_used_still_refuse() -> None:
    """Modifiers of integers, an operation that there is not, a modifier that LDS instructions of the target lack."""
    isa = Isa.of("gfx1100")
    plain = isa.assemble("v_not_b32_dpp v1, v2 row_shl:1 row_mask:0xf bank_mask:0xf").instructions.bytes_of(0)
    assert reading(isa, with_bits(plain, 54, 2, 3)) == reading(isa, plain)
    assert reading(isa, with_bits(plain, 52, 1, 1)) is None
    assert reading(isa, with_bits(with_bits(plain, 54, 2, 3), 52, 1, 1)) is None
    plain = isa.assemble("v_and_b32_dpp v1, v2, v3 row_shl:1 row_mask:0xf bank_mask:0xf").instructions.bytes_of(0)
    assert reading(isa, with_bits(plain, 54, 1, 1)) is None
    store = isa.assemble("ds_store_b32 v1, v2").instructions.bytes_of(0)
    assert reading(isa, with_bits(with_bits(store, 56, 8, 9), 18, 8, 0xFE)) is None
    pair = Isa.of("gfx90a").assemble("ds_read_b64 v[2:3], v1").instructions.bytes_of(0)
    assert reading(Isa.of("gfx90a"), with_bits(pair, 56, 8, 3)) is None  # a tuple that begins at an odd register


GFX1250 = [
    ("tensor_load_to_lds s[36:39], s[40:47]", words(0xD0310000, 0, 0x7C7C2824)),
    ("tensor_store_from_lds s[16:19], s[20:27]", words(0xD0314000, 0, 0x7C7C1410)),
    ("tensor_load_to_lds s[0:3], s[4:11], s[12:15], s[16:19]", words(0xD0310000, 0, 0x100C0400)),
    ("tensor_load_to_lds s[36:39], s[40:47] th:TH_LOAD_HT", words(0xD0310000, 0x200000, 0x7C7C2824)),
    ("v_wmma_ld_scale_paired_b32 v200, v196", words(0xCC350000, 0x000389C8)),
    ("v_wmma_ld_scale16_paired_b64 v[200:201], v[196:197]", words(0xCC3A0000, 0x000389C8)),
    (
        "v_wmma_scale_f32_16x16x128_f8f6f4 v[0:7], v[8:23], v[24:39], v[40:47], v1, v2",
        words(0xCC350000, 0x00020501, 0xCC330000, 0x04A23108),
    ),
    ("v_wmma_f32_32x16x128_f4 v[4:19], v[8:23], v[8:15], v[4:19]", words(0xCC880004, 0x1C121108)),
    ("v_wmma_f32_32x16x128_f4 v[4:19], v[8:23], v[8:15], v[4:19]", words(0xCC880004, 0x04121108)),
    (
        "v_wmma_scale_f32_32x16x128_f4 v[4:19], v[8:23], v[8:15], v[4:19], v1, v2",
        words(0xCC350000, 0x00020501, 0xCC880004, 0x1C121108),
    ),
    (
        "v_wmma_scale_f32_32x16x128_f4 v[4:19], v[8:23], v[8:15], v[4:19], v1, v2",
        words(0xCC350000, 0x04020501, 0xCC880004, 0x1C121108),
    ),
]
"""What LLVM writes today, and how assemblers of AMD's have written it."""


@pytest.mark.parametrize(("text", "code"), GFX1250)
def test_older_encodings_of_gfx1250(text: str, code: bytes) -> None:
    isa = Isa.of("gfx1250")
    today = isa.assemble(text).instructions.bytes_of(0)
    assert today != code
    assert reading(isa, code) == reading(isa, today)
    assert len(today) == len(code)
    for other in ("gfx1201", "gfx1100"):
        assert reading(Isa.of(other), code) is None


def test_matrix_operations_with_scales_are_one_instruction() -> None:
    """LLVM would read either half alone, too."""
    isa = Isa.of("gfx1250")
    code = isa.assemble(
        "v_wmma_scale_f32_32x16x128_f4 v[4:19], v[8:23], v[8:15], v[4:19], v1, v2"
    ).instructions.bytes_of(0)
    assert isa.decode(code + BEHIND).size.tolist() == [16, *[4] * 8]
    assert reading(isa, code[:8]) is not None


@pytest.mark.parametrize(
    "code",
    [
        words(0xD0310020, 0, 0x7C7C2824),  # one more bit
        words(0xD0710000, 0, 0x7C7C2824),
        words(0xD0310000, 0x7D000000, 0x7C7C2824),
        words(0xCC350000, 0x001789C8),  # another second source than 0
    ],
)
def test_what_no_source_names_stays_unknown(code: bytes) -> None:
    assert reading(Isa.of("gfx1250"), code) is None


LENGTHS = [
    ("VOP1", 4, words(0x7E01FF00)),
    ("VOP1 with a literal", 8, words(0x7E01FEFF, 1)),
    ("VOP1 with a literal of 64 bits", 12, words(0x7E01FEFE, 1, 1)),
    ("VOP1 with DPP", 8, words(0x7E01FEFA, 0)),
    ("VOP1 with DPP8", 8, words(0x7E01FEE9, 0)),
    ("VOP3", 8, words(0xD7FF0000, 0x105)),
    ("VOP3 with a literal", 12, words(0xD7FF0000, 0xFF, 1)),
    ("VOP3 with DPP", 12, words(0xD7FF0000, 0xFA, 1)),
    ("VOP3P", 8, words(0xCC7F0000, 0x105)),
    ("VOP3P with a literal", 12, words(0xCC7F0000, 0x1FE00, 1)),
    ("VOP3PX2, first half", 8, words(0xCC357000, 0x105)),
    ("VOP3PX2", 16, words(0xCC357000, 0x105, 0xCC330000, 0x105)),
    ("VOPD", 8, words(0xCBFE0000, 0x105)),
    ("VOPD with a literal", 12, words(0xCBFE00FF, 0x105, 1)),
    ("VOPD3", 12, words(0xCFFC0000, 0x105, 0)),
    ("VDS", 8, words(0xD9FC0000, 0x105)),
    ("SMEM", 8, words(0xF4FFE000, 0)),
    ("VEXPORT", 8, words(0xF81F0000, 0)),
    ("VBUFFER", 12, words(0xC43FC000, 0, 0)),
    ("VIMAGE", 12, words(0xD03F0000, 0x100000, 0)),
    ("VSAMPLE", 12, words(0xE5FFC000, 0, 0)),
    ("VFLAT", 12, words(0xEC3FC000, 0, 0)),
    ("VGLOBAL", 12, words(0xEEFFC000, 0, 0)),
]


@pytest.mark.parametrize(("length", "code"), [pytest.param(length, code, id=name) for name, length, code in LENGTHS])
def test_lengths_of_unknown_instructions(length: int, code: bytes) -> None:
    isa = Isa.of("gfx1250")
    decoded = isa.decode(code + BEHIND)
    assert decoded.opcode[0] == -1
    assert int(decoded.size[0]) == length == len(code)
    assert decoded.flags[0] == InstructionFlag.KNOWN_LENGTH
    assert (decoded.opcode[1:] >= 0).all()
    assert isa.text(decoded, 0).startswith(".long ")
    cut = isa.decode(code[:-4] or b"\0")
    assert not cut.flags[0] & InstructionFlag.KNOWN_LENGTH  # not all of it is there
    other = Isa.of("gfx1201").decode(code + BEHIND)
    assert not (other.flags & int(InstructionFlag.KNOWN_LENGTH)).any()


@pytest.mark.parametrize("first", [0xBFFF0000, 0xBD800000, 0xBF500000, 0xC0000000, 0xDC000000, 0xFC000000, 0xCDFF0000])
def test_lengths_that_nothing_tells(first: int) -> None:
    """Scalar instructions, which may branch, and encodings that no document names."""
    decoded = Isa.of("gfx1250").decode(words(first) + BEHIND)
    assert decoded.opcode[0] == -1
    assert int(decoded.size[0]) == 4
    assert decoded.flags[0] == 0
