"""Random instructions of all kinds that have hazards, and what the table finds in sequences of them."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Sequence
from typing import NamedTuple

from luthier.arch.hazards import Hazard
from luthier.errors import DecodeError
from luthier.hazards.wait_states.model import HazardModel, Ticks, hazard_model, ticks
from luthier.hazards.wait_states.state import EMPTY, HazardMachine, TooNear
from luthier.hazards.wait_states.steps import HazardStep, instance_of, step_of
from luthier.isa import Isa
from luthier.isa import registers as r
from luthier.isa.targets import TARGETS
from luthier.lifting.instructions.effects import Columns, EffectTable

TARGETS_OF_TESTS = [
    "gfx906",
    "gfx908",
    "gfx90a",
    "gfx942",
    "gfx950",
    "gfx1010",
    "gfx1030",
    "gfx1100",
    "gfx1200",
    "gfx1250",
]

# {v2}: two VGPRs, {s}: an SGPR, {a4}: four AGPRs; what a processor does not have is left out.
TEMPLATES = """
v_mov_b32 {v}, {v}
v_add_f32 {v}, {v}, {v}
v_mov_b32 {v}, {s}
v_cmp_eq_u32 vcc, {v}, {v}
v_cmp_eq_u32 {s2}, {v}, {v}
v_cmp_eq_u32 vcc_lo, {v}, {v}
v_cmp_eq_u32 {s}, {v}, {v}
v_cndmask_b32 {v}, {v}, {v}, vcc_lo
s_mov_b32 vcc_lo, {s}
v_readfirstlane_b32 {s}, {v}
v_readlane_b32 {s}, {v}, {s}
v_writelane_b32 {v}, 1, {s}
v_cndmask_b32 {v}, {v}, {v}, vcc
v_cndmask_b32 {v}, {v}, {v}, {s2}
v_rcp_f32 {v}, {v}
v_exp_f32 {v}, {v}
v_mov_b32_dpp {v}, {v} quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xf
v_fma_f32 {v}, {v}, {v}, {v}
v_nop
v_cmpx_eq_u32 vcc, {v}, {v}
v_cmpx_eq_u32 {v}, {v}
v_permlane16_b32 {v}, {v}, {s}, {s}
v_permlane16_swap_b32 {v}, {v}
v_div_fmas_f32 {v}, {v}, {v}, {v}
v_add_f32_sdwa {v}, {v}, {v} dst_sel:BYTE_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD
v_fma_f16 {v}, {v}, {v}, {v} op_sel:[0,0,0,1]
v_cvt_sr_fp8_f32 {v}, {v}, {v} op_sel:[0,0,1,0]
v_cvt_scalef32_sr_pk_fp4_f32 {v}, {v2}, {v}, {v}
s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 1
s_setreg_b32 hwreg(HW_REG_MODE, 4, 4), {s}
s_setreg_b32 hwreg(HW_REG_MODE, 28, 1), {s}
s_setreg_b32 hwreg(HW_REG_TRAPSTS, 0, 1), {s}
s_getreg_b32 {s}, hwreg(HW_REG_MODE)
s_setvskip {s}, 1
s_rfe_b64 {s2}
s_mov_b32 m0, {s}
s_mov_b32 {s}, {s}
s_mov_b64 exec, {s2}
s_mov_b64 {s2}, {s2}
s_mov_b64 vcc, {s2}
s_and_b64 {s2}, vcc, {s2}
s_sendmsg sendmsg(MSG_INTERRUPT)
s_movrels_b32 {s}, {s}
s_branch 1
s_branch 63
s_denorm_mode 0
ds_read_addtid_b32 {v}
ds_read_b32 {v}, {v}
ds_load_b32 {v}, {v}
ds_write_b32 {v}, {v}
lds_direct_load {v} wait_vdst:15
ds_direct_load {v} wait_va_vdst:15
global_load_dword {v}, {v2}, off
global_load_dword {v}, {v}, {s2}
global_load_b32 {v}, {v}, {s2}
global_store_dword {v2}, {v}, off
global_store_dwordx4 {v2}, {v4}, off
global_atomic_fmin {v2}, {v}, off
buffer_store_dwordx4 {v4}, off, {s4}, 0
buffer_load_dword {v}, off, {s4}, 0
buffer_load_dword {v}, off, {s4}, 0 offset:4
buffer_load_dword off, {s4}, 0 lds
buffer_store_dwordx4 {v4}, off, {s4}, {s}
buffer_store_lds_dword {s4}, 0 lds
global_load_lds_dword {v2}, off
s_mov_b64 exec, {s2}
v_mov_b32 {v}, exec_lo
v_addc_co_u32 {v}, vcc, {v}, {v}, vcc
v_lshlrev_b64 {v2}, {v}, {v2}
ds_atomic_async_barrier_arrive_b64 {v}
s_getreg_b32 {s}, hwreg(HW_REG_WAVE_STATUS)
s_getreg_b32 {s}, hwreg(HW_REG_WAVE_MODE)
s_setreg_b32 hwreg(HW_REG_WAVE_MODE, 4, 4), {s}
s_setreg_imm32_b32 hwreg(HW_REG_WAVE_MODE, 4, 4), 1
s_set_vgpr_msb 0
ds_direct_load {v} wait_va_vdst:15 wait_vm_vsrc:1
ds_direct_load {v} wait_va_vdst:0 wait_vm_vsrc:1
ds_direct_load {v} wait_va_vdst:15 wait_vm_vsrc:0
lds_direct_load {v} wait_vdst:0
image_sample {v4}, [v0,v2,v4,v6,v1,v3], {s8}, {s4} dmask:0xf dim:SQ_RSRC_IMG_CUBE a16
image_sample_d {v4}, [v0,v2,v4,v6,v1,v3], {s8}, {s4} dmask:0xf dim:SQ_RSRC_IMG_2D
s_load_dwordx2 {s2}, {s2}, 0x0
s_load_dword {s}, {s2}, 0x0
s_load_b64 {s2}, {s2}, 0x0
v_dot2_f32_f16 {v}, {v}, {v}, {v}
v_dot4_i32_i8 {v}, {v}, {v}, {v}
v_fma_f64 {v2}, {v2}, {v2}, {v2}
v_accvgpr_read_b32 {v}, {a}
v_accvgpr_write_b32 {a}, {v}
v_mfma_f32_4x4x1f32 {a4}, {v}, {v}, {a4}
v_mfma_f32_4x4x1f32 {a4}, {a}, {v}, {a4}
v_mfma_f32_16x16x4f32 {a4}, {v}, {v}, {a4}
v_mfma_f32_32x32x2f32 {a16}, {v}, {v}, {a16}
v_mfma_f32_4x4x1f32 {v4}, {v}, {v}, {v4}
v_mfma_f32_16x16x4f32 {v4}, {v}, {v}, {v4}
v_mfma_f32_32x32x2f32 {v16}, {v}, {v}, {v16}
v_mfma_f32_16x16x16f16 {v4}, {v2}, {v2}, {v4}
v_mfma_f64_4x4x4f64 {v2}, {v2}, {v2}, {v2}
v_mfma_f64_16x16x4f64 {v8}, {v2}, {v2}, {v8}
v_mfma_f32_4x4x4_16b_f16 {v4}, {v2}, {v2}, {v4}
v_mfma_f32_16x16x16_f16 {v4}, {v2}, {v2}, {v4}
v_mfma_f32_32x32x8_f16 {v16}, {v2}, {v2}, {v16}
v_mfma_f32_32x32x4_2b_f16 {v32}, {v2}, {v2}, {v32}
v_mfma_f32_16x16x8_xf32 {v4}, {v2}, {v2}, {v4}
v_smfmac_f32_16x16x32_f16 {v4}, {v2}, {v4}, {v}
v_mfma_f32_16x16x32_f16 {v4}, {v4}, {v4}, {v4}
v_mfma_f32_16x16x128_f8f6f4 {v4}, {v8}, {v8}, {v4}
v_mfma_f32_16x16x128_f8f6f4 {v4}, {v4}, {v4}, {v4} cbsz:4 blgp:4
v_mfma_f32_32x32x64_f8f6f4 {v16}, {v8}, {v8}, {v16}
v_wmma_f32_16x16x16_f16 {v8}, {v8}, {v8}, {v8}
v_wmma_f32_16x16x16_f16 {v8}, {v4}, {v4}, {v8}
v_wmma_f32_16x16x16_f16 {v4}, {v8}, {v8}, {v4}
v_wmma_f32_16x16x16_f16 {v4}, {v2}, {v2}, {v4}
v_wmma_f32_16x16x32_f16 {v8}, {v8}, {v8}, {v8}
v_wmma_f32_16x16x64_fp8_fp8 {v8}, {v8}, {v8}, {v8}
v_wmma_i32_16x16x64_iu8 {v8}, {v8}, {v8}, {v8}
v_swmmac_f32_16x16x64_f16 {v8}, {v8}, {v16}, {v}
s_nop 0
s_waitcnt 0
s_waitcnt lgkmcnt(0)
s_waitcnt_lgkmcnt null, 0x0
s_waitcnt_vscnt null, 0x0
s_waitcnt_depctr 0xffe3
s_waitcnt_depctr 0xfff
s_waitcnt_depctr 0xfffe
s_waitcnt_depctr 0xf1ff
s_waitcnt_depctr 0xfffd
s_wait_alu 0x0
s_wait_alu 0xffe3
s_wait_alu 0xfffe
s_wait_alu 0xf1ff
s_wait_alu 0xfffd
v_mov_b32 {v}, src_lds_direct
""".strip().splitlines()

_REACH = {1: 8, 2: 8, 4: 8, 8: 12, 16: 24, 32: 36}
"""Registers of a file that tuples of each size are taken from: few, so that they overlap."""


def filled(template: str, chance: random.Random, alignment: int) -> str:
    """A template with registers."""

    def one(match: re.Match[str]) -> str:
        file, count = match[1][0], int(match[1][1:] or 1)
        step = alignment if file in "va" and count > 1 else min(count, 4) if file == "s" else 1
        first = chance.randrange(0, max(1, _REACH[count] - count) + 1) // step * step
        return f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"

    return re.sub(r"\{([vas]\d*)\}", one, template)


def isa_of(target: str, wave_size: int | None = None) -> Isa:
    return Isa.of(target, wave_size)


@functools.cache
def pool(isa: Isa) -> list[str]:
    """Instructions of a processor, several of each kind, that differ in registers."""
    chance = random.Random(str(isa.target))
    alignment = isa.target.target.tied_vector_alignment
    texts = []
    for template in TEMPLATES:
        for _ in range(16 if "{" in template else 1):
            text = filled(template, chance, alignment)
            try:
                isa.assemble(text)
            except DecodeError:
                continue
            texts.append(text)
    return list(dict.fromkeys(texts))


HARMFUL = (
    *("s_rfe", "s_branch", "s_setreg", "s_setvskip", "s_movrel", "exec", "sendmsg", "s_load"),
    *("ds_", "lds", "image", "buffer", "global", "HW_REG_WAVE_STATUS"),
)
"""What control or memory would not survive, and what the device has not."""


def harmless(isa: Isa) -> list[str]:
    """Those of the pool that any kernel can execute."""
    return [text for text in pool(isa) if not any(word in text for word in HARMFUL)]


class Lack(NamedTuple):
    """A hazard that an instruction of a sequence meets."""

    rule: int
    hazard: Hazard
    there: int
    needed: int


class Sequence_:
    """A sequence as the check sees it, one instruction at a time."""

    def __init__(self, isa: Isa) -> None:
        self.isa = isa
        self.model: HazardModel = hazard_model(isa.target.target, isa.wave_size)
        self.machine = HazardMachine(self.model)
        self._table = EffectTable(isa, isa.wave_size, r.VECTOR_MASK)

    def steps(self, texts: Sequence[str]) -> list[HazardStep]:
        """Each instruction as a step from time 0."""
        code = self.isa.assemble("\n".join(texts)).instructions
        columns = Columns(code)
        native = self._table.code(columns)
        steps = []
        for index in range(len(code)):
            instance = instance_of(self._table, native, columns, index)
            own = ticks(instance.opcode, instance.values)
            steps.append(step_of(self.model, instance, index, Ticks(0, 0, 0), own))
        return steps

    def lacks(self, steps: Sequence[HazardStep], *, mend: bool = False) -> list[list[Lack]]:
        """For each instruction what it meets.

        Args:
            mend: as if wait states that are missing were there.
        """
        state, lacks = EMPTY, []
        for step in steps:
            met: list[Lack] = []

            def report(near: TooNear, met: list[Lack] = met) -> None:
                met.append(Lack(near.rule, self.model.rules[near.rule].hazard, near.distance, near.needed))

            self.machine.run(state, [step], step.own, report)
            if mend:
                state = self.machine.run(state, [], Ticks(missing_states(met), 0, 0))
            state = self.machine.run(state, [step], step.own)
            lacks.append(met)
        return lacks


@functools.cache
def sequence(isa: Isa) -> Sequence_:
    return Sequence_(isa)


@functools.cache
def pool_steps(isa: Isa) -> list[tuple[str, HazardStep]]:
    """The pool with its steps."""
    texts = pool(isa)
    return list(zip(texts, sequence(isa).steps(texts), strict=True))


def missing_states(lacks: Sequence[Lack]) -> int:
    """The most wait states that are missing."""
    return max((one.needed - one.there for one in lacks if one.hazard.clock == "states" and one.needed), default=0)


def wave_sizes() -> list[tuple[str, int]]:
    return [(name, size) for name in TARGETS_OF_TESTS for size in TARGETS[name].wave_sizes]
