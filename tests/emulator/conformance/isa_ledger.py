"""The opcodes that are checked against the documents' pseudo-code, and where the others are checked."""

from __future__ import annotations

import re

from isa_documents import base_name, text_of
from luthier.isa import Isa, Opcode
from luthier.isa.instructions import InstructionFlag

NOTHING: list[tuple[str, str]] = [
    (r"[sv]_nop|ds_nop|v_pipeflush|s_code_end", "does nothing by definition"),
    (
        r"s_sleep(_var)?|s_setprio(_inc_wg)?|s_sethalt|s_wakeup|s_setkill|s_monitor_sleep",
        "scheduling only; no state to see",
    ),
    (r"s_wait.*|s_clause|s_delay_alu|s_set_inst_prefetch_distance|s_inst_prefetch", "timing; results are always there"),
    (r"s_(incperflevel|decperflevel|ttracedata|ttracedata_imm|version)", "tools' instruments, not modelled state"),
    (r"s_(dcache|icache|gl1)_.*|buffer_(wbinvl1|wbl2|inv|invl2|gl0_inv|gl1_inv).*|s_atc_probe.*", "caches"),
    (
        r"(global|flat)_(inv|wb|wbinv|prefetch_b8)|s_(buffer_)?prefetch_.*|s_dcache_discard.*|s_gl1_inv|v_clrexcp",
        "caches, prefetch, exceptions",
    ),
    (r"s_mem(real)?time|s_get_shader_cycles_u64|s_getpc_b64_time", "a clock; what it says is not modelled"),
    (r"s_endpgm.*|s_sendmsg(halt)?|s_icache_inv", "ends the wave, or asks for what is not there"),
]
"""Base mnemonics (patterns) with nothing to compare, and why."""

ELSEWHERE: list[tuple[str, str, str]] = [
    (r"v_(mfma|smfmac|wmma|swmmac)_.*", "matrix/test_matrix.py", "the text is prose; a reference of sums is there"),
    (r"ds_(append|consume|swizzle_b32)", "test_memory_operations.py", "the text is prose or no pseudo-code"),
    (r"t?buffer_(load|store)(_d16)?(_hi)?_format.*", "test_typed_buffers.py", "ConvertFromFormat is not in the text"),
    (r"s_(getreg|setreg)(_imm32)?_b32", "test_mode.py", "hardware registers are not state of this model"),
    (r"s_(setvskip|cbranch_[gi]_fork|cbranch_join)", "test_rare_operations.py", "control flow over several steps"),
    (r"s_(get_pc|set_pc|swap_pc|call|add_pc)_i64|s_set_vgpr_msb", "test_gfx1250.py", "jumps; state of the wave"),
    (
        r"v_(permlane_\w+|perm_pk16_\w+|sat_pk4_\w+|tanh_f\d+|(pk_)?add_(min|max)_[iu]\d+|pk_(min|max)3_\w+)_?\w*"
        r"|v_(rcp|rsq|sqrt|exp|log|sin|cos|tanh)_bf16|v_pk_\w+_bf16|v_fma_mix\w*_bf16"
        r"|v_cvt_(pk_)?f16_(fp8|bf8)|v_cvt_pk_(fp8|bf8)_f16|v_cvt_scale(f32)?_pk(8|16)_\w+",
        "operations/test_operations_newest.py",
        "of GFX1250, for which there is no text",
    ),
    (
        r"(global|cluster)_(load|store)_async_\w+|cluster_load_\w+|(flat|global)_load_monitor_\w+"
        r"|ds_atomic_(async_)?barrier_arrive_\w+",
        "test_asynchronous.py",
        "of GFX1250, for which there is no text",
    ),
    (r"tensor_(load_to|store_from)_lds", "test_tensor.py", "of GFX1250, for which there is no text"),
    (r"s_(denorm|round)_mode", "test_rare_operations.py", "no pseudo-code"),
    (r"ds_\w+_src2_[bfiu]\d+", "test_rare_operations.py", "not in the documents"),
    (r"(global|scratch)_(load|store)_block", "test_rare_operations.py", "M0 masks over rows"),
    (r"ds_read_b\d+_tr_b\d+", "test_memory_operations.py", "no pseudo-code"),
    (r"(global_load|ds_load)_tr.*", "test_rare_operations.py", "no pseudo-code"),
    (r"(global|scratch)_load_lds_.*|buffer_.*_lds.*", "test_rare_operations.py", "LDS addresses are not in the text"),
    (r"(global|buffer)_(load|store)(_dword)?_addtid(_b32)?", "test_rare_operations.py", "no base address in the text"),
    (r"s_scratch_(load|store)_.*", "test_rare_operations.py", "addresses scaled by 64 bytes: not in the pseudo-code"),
    (r"s_trap", "test_faults.py", "a fault here"),
    (r"s_barrier(_signal.*|_wait.*)?", "test_kernels.py", "of several waves"),
    (r"v_permlane(16|32)_swap_b32", "operations/test_operations_lane.py", "what EXEC does is open"),
    (r"s_get_barrier_state|s_barrier_(init|join|leave)", "test_named_barriers.py", "of several waves"),
    (r"ds_gws_.*", "test_cooperative.py", "of several work-groups"),
    (
        r"v_cvt_sr_.*|v_cvt_scalef32_sr_.*",
        "operations/test_operations_small_floats.py",
        "which random bits: not told; bounds and means are checked",
    ),
]
"""Base mnemonics (patterns), the test module that exercises them, and why not here."""

OF_GFX12: list[tuple[str, str, str]] = [
    (r"v_pk_(add|mul|fma)_f32", "test_gfx1250.py", "of GFX1250: one SGPR is read for both elements"),
]
"""The same, of what GFX9 has under the same name."""

OPEN: list[tuple[str, str]] = [
    (r"ds_bvh_stack.*", "the address format is not in the text"),
    (r"ds_(add|sub)_gs_reg_rtn|ds_ordered_count", "registers of graphics"),
    (r"s_sendmsg_rtn_b\d+", "answers of the host"),
    (r"s_cbranch_cdbg.*|s_rfe.*", "debugger's state"),
]
"""Base mnemonics (patterns) that nothing compares with an oracle yet, and why; a list to be shortened."""


def not_here(opcode: Opcode) -> str | None:
    """Why an opcode is not compared here; None if it is."""
    name = base_name(opcode.mnemonic)
    if re.search(r"_LDS_", opcode.name) and opcode.flags & (InstructionFlag.VMEM | InstructionFlag.FLAT):
        return "elsewhere: test_rare_operations.py"
    if re.search(r"(?i)_movrel\w+_dpp", opcode.name):  # the text names registers, which DPP does not permute there
        return "elsewhere: operations/test_operations_newest.py"
    for pattern, reason in NOTHING:
        if re.fullmatch(pattern, name):
            return f"nothing to check: {reason}"
    for pattern, module, _ in (*ELSEWHERE, *(OF_GFX12 if "gfx12" in opcode.name else ())):
        if re.fullmatch(pattern, name):
            return f"elsewhere: {module}"
    for pattern, reason in OPEN:
        if re.fullmatch(pattern, name):
            return f"open: {reason}"
    return None


def texts(isa: Isa, opcode: Opcode) -> str | None:
    """The pseudo-code an opcode is compared with."""
    if opcode.name.startswith("V_DUAL_"):
        return ""
    return text_of(base_name(opcode.mnemonic), isa.target.target.major)
