"""Descriptions of opcodes: names of operands, flags, implicit registers."""

from __future__ import annotations

import re

import pytest
from luthier import _mc
from luthier.arch.targets import generations
from luthier.errors import DecodeError
from luthier.isa import LLVM_VERSION, InstructionFlag, Isa, Opcode, operand_names

F = InstructionFlag

# Instruction class -> what the names of its opcodes begin with, and nothing else's.
CLASSES = {
    F.SMEM: r"S_(BUFFER_|SCRATCH_)?(LOAD|STORE|ATOMIC|PREFETCH|DCACHE|MEMTIME|MEMREALTIME|GET_WAVEID|GL1|ATC)",
    F.VMEM: r"T?BUFFER_|IMAGE_",
    F.IMAGE: r"IMAGE_",
    F.FLAT: r"(FLAT|GLOBAL|SCRATCH)_",
    F.FLAT_GLOBAL: r"GLOBAL_",
    F.FLAT_SCRATCH: r"SCRATCH_",
    F.DS: r"DS_(?!PARAM_LOAD|DIRECT_LOAD)",
    F.GWS: r"DS_GWS",
    F.EXPORT: r"EXP_",
    F.MATRIX: r"V_(MFMA(?!_LD_SCALE)|SMFMAC|WMMA|SWMMAC|ACCVGPR(?!_MOV))",
    F.SDWA: r".*_sdwa",
    F.DPP: r".*_dpp",
    F.SALU: r"S_(?!(BUFFER_|SCRATCH_)?(LOAD|STORE|ATOMIC|PREFETCH|DCACHE|MEMTIME|MEMREALTIME|GET_WAVEID|GL1|ATC))",
    F.VALU: r"V_(?!ILLEGAL)",
    F.INTERPOLATION: r"V_INTERP_|LDS_|DS_PARAM|DS_DIRECT",
}


@pytest.fixture(scope="module")
def opcodes() -> list[Opcode]:
    """Every opcode that has an encoding on GFX9 to GFX12."""
    isa = Isa.of("gfx942")
    every = [isa.opcode(number) for number in range(len(_mc.opcode_names()))]
    old_or_new = re.compile(r"_(si|ci|gfx6.*|gfx7.*|gfx80|gfx1250.*|gfx13.*)(_|$)|gfx1250")
    return [opcode for opcode in every if opcode.encodable and not old_or_new.search(opcode.name)]


def test_the_right_llvm() -> None:
    assert LLVM_VERSION.startswith("22.")


@pytest.mark.rows(5)
@pytest.mark.parametrize("flag", CLASSES, ids=lambda flag: flag.name)
def test_classes(opcodes: list[Opcode], flag: InstructionFlag) -> None:
    flagged = {opcode.name for opcode in opcodes if flag in opcode.flags}
    assert flagged == {opcode.name for opcode in opcodes if re.match(CLASSES[flag], opcode.name)}
    assert flagged


def test_properties() -> None:
    def flags(target: str, text: str) -> InstructionFlag:
        isa = Isa.of(target)
        return isa.opcode(int(isa.assemble(text).instructions.opcode[0])).flags

    control = F.BRANCH | F.CONDITIONAL | F.INDIRECT | F.CALL | F.RETURN | F.TERMINATOR | F.BARRIER
    memory = F.LOAD | F.STORE | F.ATOMIC
    for target in ("gfx900", "gfx942", "gfx1030", "gfx1100", "gfx1201"):
        for text, expected in {
            "s_branch 0": F.BRANCH | F.TERMINATOR | F.BARRIER,
            "s_cbranch_scc0 0": F.BRANCH | F.CONDITIONAL | F.TERMINATOR,
            "s_cbranch_execz 0": F.BRANCH | F.CONDITIONAL | F.TERMINATOR,
            "s_setpc_b64 s[0:1]": F.BRANCH | F.INDIRECT | F.TERMINATOR | F.BARRIER,
            "s_swappc_b64 s[0:1], s[2:3]": F.CALL | F.INDIRECT,
            "s_call_b64 s[0:1], 0": F.CALL,
            "s_endpgm": F.RETURN | F.TERMINATOR | F.BARRIER,
            "s_nop 0": F(0),
            "s_getpc_b64 s[0:1]": F(0),
            "v_add_f32 v0, v1, v2": F(0),
        }.items():
            assert flags(target, text) & control == expected, (target, text)
        for text, expected in {
            "global_load_dword v0, v[0:1], off": F.LOAD,
            "global_store_dword v[0:1], v0, off": F.STORE,
            "global_atomic_add v[0:1], v0, off": F.LOAD | F.STORE | F.ATOMIC,
            "ds_read_b32 v0, v1": F.LOAD,
            "ds_write_b32 v0, v1": F.STORE,
            "ds_write2_b32 v0, v1, v2": F.STORE,
            "ds_add_u32 v0, v1": F.LOAD | F.STORE | F.ATOMIC,
            "ds_add_rtn_u32 v0, v1, v2": F.LOAD | F.STORE | F.ATOMIC,
            "s_load_dword s0, s[0:1], 0": F.LOAD,
            "v_mov_b32 v0, v1": F(0),
        }.items():
            assert flags(target, text) & memory == expected, (target, text)
        assert F.SIDE_EFFECTS not in flags(target, "v_add_f32 v0, v1, v2")
        assert F.SIDE_EFFECTS in flags(target, "s_sleep 1")
    assert flags("gfx900", "s_cbranch_i_fork s[0:1], 0") & F.BRANCH
    assert F.TRANS in flags("gfx1100", "v_exp_f32 v0, v1")
    assert F.PACKED in flags("gfx942", "v_pk_add_f16 v0, v1, v2")
    assert F.DOT in flags("gfx942", "v_dot2_f32_f16 v0, v1, v2, v3")


def test_implicit_registers() -> None:
    def implicit(target: str, wave: int, text: str) -> tuple[set[str], set[str]]:
        isa = Isa.of(target, wave)
        opcode = isa.opcode(int(isa.assemble(text).instructions.opcode[0]))
        uses, defs = opcode.implicit_uses, opcode.implicit_defs
        return {isa.register(number).name for number in uses}, {isa.register(number).name for number in defs}

    for target, wave, vcc, execute in (
        ("gfx900", 64, "VCC", "EXEC"),
        ("gfx942", 64, "VCC", "EXEC"),
        ("gfx1100", 64, "VCC", "EXEC"),
        ("gfx1100", 32, "VCC_LO", "EXEC_LO"),
        ("gfx1201", 32, "VCC_LO", "EXEC_LO"),
    ):
        size = "b64" if wave == 64 else "b32"
        pair = "s[0:1]" if wave == 64 else "s0"
        written = "vcc" if wave == 64 else "vcc_lo"
        assert implicit(target, wave, "v_add_f32 v0, v1, v2") == ({"MODE", execute}, set())
        assert implicit(target, wave, f"v_cmp_eq_u32_e32 {written}, v0, v1") == ({execute}, {vcc})
        assert implicit(target, wave, f"v_cndmask_b32_e32 v0, v1, v2, {written}") == ({execute, vcc}, set())
        assert implicit(target, wave, f"s_and_saveexec_{size} {pair}, {pair}") == ({execute}, {execute, "SCC"})
        assert implicit(target, wave, "s_add_u32 s0, s1, s2") == (set(), {"SCC"})
        assert implicit(target, wave, "s_addc_u32 s0, s1, s2") == ({"SCC"}, {"SCC"})
        assert implicit(target, wave, "s_cbranch_vccz 0") == ({vcc}, set())
        assert implicit(target, wave, "s_cbranch_scc1 0") == ({"SCC"}, set())
        assert implicit(target, wave, "v_readlane_b32 s0, v0, 1") == (set(), set())
        assert "M0" in implicit(target, wave, "s_movrels_b32 s0, s1")[0]
        assert implicit(target, wave, "s_setreg_b32 hwreg(HW_REG_MODE), s0") == ({"MODE"}, {"MODE"})


def test_every_operand_has_a_name(opcodes: list[Opcode]) -> None:
    anchors = {name: text for one in generations().values() for name, text in one.operand_anchors.items()}
    resolved = operand_names.calibrate(
        anchors, {name: number for number, name in enumerate(_mc.opcode_names())}, _mc.named_operand_positions
    )
    named = {name for text in anchors.values() for name in text.split() if name != "."}
    assert set(resolved) == named
    nameless = {opcode.pseudo for opcode in opcodes if any(not operand.name for operand in opcode.operands)}
    assert all(re.match(r"V_INTERP_(MOV|P1|P2)_F32(_16bank)?$", name) for name in nameless), nameless
    # No opcode has two operands of one name.
    for opcode in opcodes:
        names = [operand.name for operand in opcode.operands if operand.name]
        assert len(names) == len(set(names)), opcode.name


@pytest.mark.parametrize(
    ("target", "text", "expected"),
    [
        (
            "gfx942",
            "v_fma_f32 v0, -v1, s2, |v3| clamp mul:2",
            {
                "vdst": "v0",
                "src0": "v1",
                "src1": "s2",
                "src2": "v3",
                "src0_modifiers": 1,
                "src1_modifiers": 0,
                "src2_modifiers": 2,
                "clamp": 1,
                "omod": 1,
            },
        ),
        (
            "gfx942",
            "global_load_dwordx2 v[2:3], v4, s[6:7] offset:16 nt",
            {"vdst": "v[2:3]", "vaddr": "v4", "saddr": "s[6:7]", "offset": 16, "cpol": 2},
        ),
        (
            "gfx900",
            "buffer_store_dword v1, v2, s[4:7], s8 offen offset:4 slc",
            {"vdata": "v1", "vaddr": "v2", "srsrc": "s[4:7]", "soffset": "s8", "offset": 4, "cpol": 2, "swz": 0},
        ),
        (
            "gfx1100",
            "ds_store_2addr_b32 v1, v2, v3 offset0:4 offset1:5",
            {"addr": "v1", "data0": "v2", "data1": "v3", "offset0": 4, "offset1": 5, "gds": 0},
        ),
        (
            "gfx90a",
            "v_mfma_f32_32x32x1f32 a[0:31], v1, v2, a[0:31] cbsz:1 abid:2 blgp:3",
            {"vdst": "a[0:31]", "src0": "v1", "src1": "v2", "src2": "a[0:31]", "cbsz": 1, "abid": 2, "blgp": 3},
        ),
        (
            "gfx900",
            "v_add_f32_sdwa v0, v1, v2 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 src1_sel:BYTE_3",
            {"vdst": "v0", "dst_sel": 1, "dst_unused": 2, "src0_sel": 5, "src1_sel": 3},
        ),
        (
            "gfx1030",
            "v_add_f32_dpp v0, v1, v2 row_shr:3 row_mask:0xe bank_mask:0xd bound_ctrl:1 fi:1",
            {"vdst": "v0", "dpp_ctrl": 0x113, "row_mask": 14, "bank_mask": 13, "bound_ctrl": 1, "fi": 1},
        ),
        (
            "gfx1100",
            "v_dual_fmac_f32 v0, v1, v2 :: v_dual_add_f32 v3, v4, v5",
            {"vdstX": "v0", "src0X": "v1", "vsrc1X": "v2", "vdstY": "v3", "src0Y": "v4", "vsrc1Y": "v5"},
        ),
        (
            "gfx942",
            "s_load_dwordx4 s[0:3], s[4:5], 0x10",
            {"sdst": "s[0:3]", "sbase": "s[4:5]", "offset": 16, "cpol": 0},
        ),
        ("gfx942", "s_cmpk_eq_i32 s3, 0x7", {"simm16": 7}),
        (
            "gfx942",
            "v_pk_fma_f16 v0, v1, v2, v3 op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_lo:[0,1,0]",
            {"op_sel": 1, "op_sel_hi": 6, "neg_lo": 2, "neg_hi": 0},
        ),
        (
            "gfx1201",
            "buffer_load_b32 v0, v1, s[4:7], s8 offen offset:8",
            {"vdata": "v0", "vaddr": "v1", "srsrc": "s[4:7]", "soffset": "s8", "offset": 8},
        ),
    ],
)
def test_operand_names_mean_what_the_text_says(target: str, text: str, expected: dict[str, str | int]) -> None:
    isa = Isa.of(target)
    code = isa.decode(isa.assemble(text).instructions.code)
    opcode = isa.opcode(int(code.opcode[0]))
    values = {
        name: isa.register(value).text if kind == 1 else value
        for name, position in opcode.operand_index.items()
        for kind, value in [code.operands(0)[position]]
    }
    assert {name: values[name] for name in expected} == expected


def test_generic_names() -> None:
    for target, text, name, pseudo in (
        ("gfx942", "v_add_f32 v0, v1, v2", "V_ADD_F32_e32_vi", "V_ADD_F32_e32"),
        ("gfx1100", "v_add_f32 v0, v1, v2", "V_ADD_F32_e32_gfx11", "V_ADD_F32_e32"),
        ("gfx942", "s_endpgm", "S_ENDPGM_vi", "S_ENDPGM"),
        ("gfx1201", "s_endpgm", "S_ENDPGM_gfx12", "S_ENDPGM"),
        ("gfx942", "global_load_dword v0, v[2:3], off", "GLOBAL_LOAD_DWORD_vi", "GLOBAL_LOAD_DWORD"),
        ("gfx1100", "global_load_b32 v0, v[2:3], off", "GLOBAL_LOAD_DWORD_gfx11", "GLOBAL_LOAD_DWORD"),
        (
            "gfx1100",
            "image_load v0, v0, s[0:7] dmask:0x1 dim:SQ_RSRC_IMG_1D",
            "IMAGE_LOAD_V1_V1_gfx11",
            "IMAGE_LOAD_V1_V1",
        ),
    ):
        isa = Isa.of(target)
        opcode = isa.opcode(int(isa.assemble(text).instructions.opcode[0]))
        assert (opcode.name, opcode.pseudo) == (name, pseudo)
        if name != "IMAGE_LOAD_V1_V1_gfx11":
            assert isa.opcode(opcode.pseudo_number).name == pseudo


def test_unknown_opcodes() -> None:
    isa = Isa.of("gfx942")
    for number in (-1, 10**6):
        with pytest.raises(DecodeError, match="no opcode has the number"):
            isa.opcode(number)
