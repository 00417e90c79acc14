"""The emulator implements nearly all opcodes of LLVM, reports the coverage, and can generate code for all of them."""

from __future__ import annotations

import json
import re
from collections import Counter

import llvmlite.binding as llvm
import pytest
from effort import EMULATED, EVERYTHING, sample
from llvmlite import ir
from luthier.cli.main import main
from luthier.emulator.binding.bind import Binder
from luthier.emulator.inspection.coverage import NOT_COMPUTE, coverage
from luthier.emulator.inspection.samples import samples
from luthier.emulator.ir.declare import Unsupported
from luthier.emulator.ir.variant import FloatMode, Variant
from luthier.emulator.native.emit import emit
from luthier.isa import Isa

FORMS = 3 if EVERYTHING else 1
"""Of an operation, that code is generated for."""
SHARE = 4
"""`make test` generates code for one operation in this number."""
TARGETS = EMULATED if EVERYTHING else ("gfx906", "gfx950", "gfx1151", "gfx1201")


@pytest.mark.parametrize("target", TARGETS)
def test_at_least_99_percent(target: str) -> None:
    covered = coverage(target)
    assert covered.share() >= 0.99, sorted(covered.refused)
    assert len(covered.exact) > 500
    assert len(covered.bounded) < len(covered.exact) / 8


def test_most_of_gfx1250() -> None:
    covered = coverage("gfx1250")
    assert covered.share() >= 0.99, sorted(covered.refused)


def test_what_only_wave32_has_is_refused_in_wave64() -> None:
    assert "global_load_tr_b64" in coverage("gfx1201").exact
    assert "wave64" in coverage("gfx1201", 64).reasons["global_load_tr_b64"]


@pytest.mark.parametrize(
    ("target", "opcode"),
    [
        ("gfx942", "V_PK_FMAC_F16_dpp_gfx9"),
        ("gfx942", "V_PK_FMAC_F16_sdwa_gfx9"),
        ("gfx1030", "V_PK_FMAC_F16_dpp_gfx10"),
        ("gfx1030", "V_PK_FMAC_F16_dpp8_gfx10"),
        ("gfx1201", "S_ALLOC_VGPR_gfx12"),
    ],
)
def test_what_no_document_explains_is_refused(target: str, opcode: str) -> None:
    covered = coverage(target)
    name = next(name for name, opcodes in covered.refused.items() if opcode in opcodes)
    assert re.search("no document describes|dynamic VGPR mode", covered.reasons[name])
    assert not any(opcode in opcodes for table in (covered.exact, covered.bounded) for opcodes in table.values())


def test_command_names_what_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emulator", "coverage", "gfx950", "--refused"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("gfx950: 9")
    assert "s_rfe_b64: it ends a trap handler" in text


def test_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emulator", "coverage", "gfx942", "gfx1201", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [entry["target"] for entry in report] == ["gfx942", "gfx1201"]
    for entry in report:
        assert entry["share"] == (entry["exact"] + entry["bounded"]) / (
            entry["exact"] + entry["bounded"] + entry["refused"]
        )
        refused = {row["mnemonic"]: row for row in entry["refused_mnemonics"]}
        assert "trap handler" in refused["s_rfe_b64"]["reason"]
        assert sum(len(row["opcodes"]) for row in refused.values()) == entry["refused"]
        assert "v_rcp_f32_e32" in entry["bounded_mnemonics"]


def test_every_instruction_of_the_assembler_is_among_the_samples() -> None:
    """Instructions of every encoding, as printed by llvm-mc after decoding."""
    source = """
        v_add_f32 v0, v1, v2 quad_perm:[0,0,0,0] row_mask:0xf bank_mask:0xf
        v_add_f32_e64 v0, v1, v2 clamp
        v_add_f32_sdwa v0, v1, v2 dst_sel:BYTE_0 src0_sel:WORD_1 src1_sel:DWORD
        flat_atomic_add_f64 v[0:1], v[2:3], v[4:5] sc0
        global_load_dword v0, v1, s[0:1]
        scratch_store_dword v0, v1, off
        scratch_store_dword off, v1, s0
        buffer_load_dword v0, v[2:3], s[0:3], 0 idxen offen
        s_load_dword s0, s[2:3], s4 offset:16
        ds_read2_b32 v[0:1], v2
        v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]
        v_accvgpr_read_b32 v0, a1
    """
    isa = Isa.of("gfx942")
    assert set(isa.assemble(source).instructions.opcode.tolist()) <= set(samples(isa))


def test_command_refuses_an_unknown_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emulator", "coverage", "gfx1"]) == 1
    assert "gfx1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mode", "targets"),
    [
        (FloatMode(), ("gfx950",)),
        pytest.param(
            FloatMode(round32=3, round16_64=1, denorm32=0, denorm16_64=0, dx10_clamp=False, ieee=False),
            ("gfx1201",),
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["usual", "unusual"],
)
def test_code_is_generated_for_every_operation(mode: FloatMode, targets: tuple[str, ...]) -> None:
    """Valid LLVM for every operation that is tried in up to `FORMS` forms, under the usual and an unusual MODE."""
    done: set[Variant] = set()
    forms: Counter[str] = Counter()
    for target in targets:
        isa = Isa.of(target)
        binder = Binder(isa)
        module = ir.Module(target)
        computing = [number for number in samples(isa) if not isa.opcode(number).flags & NOT_COMPUTE]
        for number in sample(computing, SHARE):
            code, index = samples(isa)[number]
            try:
                variant = binder.bind(code, index, 0, mode).variant
            except Unsupported:
                continue
            if variant not in done and forms[variant.operation] < FORMS:
                done.add(variant)
                forms[variant.operation] += 1
                emit(module, variant)
        llvm.parse_assembly(str(module)).verify()
    assert len(done) > (800 if EVERYTHING else 800 // SHARE)
