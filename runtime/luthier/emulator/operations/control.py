"""Control flow of waves: branches, calls, barriers, program end; and instructions that affect only timing."""

from __future__ import annotations

from typing import Any

from luthier.emulator import layout
from luthier.emulator.ir.declare import OperationTable, Unsupported
from luthier.emulator.ir.exact import I64
from luthier.emulator.ir.memory_code import fault, tell
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder
from luthier.isa.access_kinds import WAITS_FOR_STORES

operations = OperationTable()


def _spend(w: WaveBuilder, record: Any) -> None:
    """Decrement the wave's quantum. When it is used up, the wave yields, and continues later at `record`."""
    place = w.context_field("budget")
    left = w.load(place, "i64") - 1
    w.store(left, place)
    with w.when(left < 0):
        w.stop(layout.YIELD, record)


def take(w: WaveBuilder, target: OperandSlot) -> None:
    """Jump to a branch target."""
    distance = w.ir.sext(w.slot_value(target.position).llvm, I64)
    record = w.address(w.record, distance)
    if w.modifiers.get("backward"):
        _spend(w, record)
    w.jump(record)


def _branch_if(w: WaveBuilder, condition: TypedValue, target: OperandSlot) -> None:
    w.decide(layout.DECIDES_BRANCH, condition)
    with w.ir.if_then(condition.llvm):
        take(w, target)
    w.next()


def go_to_address(w: WaveBuilder, address: TypedValue) -> None:
    """Jump to a code address known only at run time."""
    w.decide(layout.DECIDES_BRANCH, address)
    base = w.load(w.context_field("code_base"), "u64")
    offset = address - base
    inside = (offset < w.load(w.context_field("code_size"), "u64")) & ((offset & 3) == 0)
    known = w.llvm_function.append_basic_block("known")
    wild = w.llvm_function.append_basic_block("wild")
    w.ir.cbranch(inside.llvm, known, wild)
    w.ir.position_at_end(wild)
    w.store(address, w.context_field("fault_address"))
    w.stop(layout.JUMP)
    w.ir.position_at_end(known)
    index = ~w.load(w.address(w.pointer(w.context_field("code_index")), offset.llvm), "u32")
    with w.when(index == 0xFFFFFFFF):
        w.store(address, w.context_field("fault_address"))
        w.stop(layout.JUMP)
    record = w.address(w.pointer(w.wave_field("table")), (index.to("u64") * layout.RECORD.size).llvm)
    _spend(w, record)
    w.jump(record)


operations.control("s_branch", "#target ->")(take)
operations.control("s_cbranch_scc0", "scc #target ->")(lambda w, scc, target: _branch_if(w, ~scc.scalar(), target))
operations.control("s_cbranch_scc1", "scc #target ->")(lambda w, scc, target: _branch_if(w, scc.scalar(), target))
operations.control("s_cbranch_vccz", "vcc:mask #target ->")(
    lambda w, vcc, target: _branch_if(w, vcc.scalar() == 0, target)
)
operations.control("s_cbranch_vccnz", "vcc:mask #target ->")(
    lambda w, vcc, target: _branch_if(w, vcc.scalar() != 0, target)
)
operations.control("s_cbranch_execz", "#target ->")(lambda w, target: _branch_if(w, w.exec_bits == 0, target))
operations.control("s_cbranch_execnz", "#target ->")(lambda w, target: _branch_if(w, w.exec_bits != 0, target))


@operations.control(
    "s_cbranch_cdbgsys s_cbranch_cdbguser s_cbranch_cdbgsys_or_user s_cbranch_cdbgsys_and_user", "#target ->"
)
def s_cbranch_debug(w: WaveBuilder, target: OperandSlot) -> None:
    """Continue: the branch is taken only under a debugger, which the emulated device does not have."""
    w.next()


operations.control("s_setpc_b64 s_set_pc_i64", "u64 ->")(lambda w, source: go_to_address(w, source.scalar()))


@operations.control("s_add_pc_i64", "u64 #following #following_high ->")
def s_add_pc_i64(w: WaveBuilder, source: OperandSlot, following: OperandSlot, following_high: OperandSlot) -> None:
    """PC = PC of the next instruction + S0 (LLVM, SIInstrInfo, insertIndirectBranch)."""
    go_to_address(w, code_address(w, following, following_high) + source.scalar())


@operations.control("s_swappc_b64 s_swap_pc_i64", "u64 #following #following_high -> sdst:u64")
def s_swappc_b64(
    w: WaveBuilder, result: OperandSlot, source: OperandSlot, following: OperandSlot, following_high: OperandSlot
) -> None:
    """D = PC of the next instruction; PC = S0."""
    address = source.scalar()
    result.write_scalar(code_address(w, following, following_high))
    go_to_address(w, address)


@operations.control("s_call_b64 s_call_i64", "#target #following #following_high -> sdst:u64")
def s_call_b64(
    w: WaveBuilder, result: OperandSlot, target: OperandSlot, following: OperandSlot, following_high: OperandSlot
) -> None:
    """D = PC of the next instruction; PC = target."""
    result.write_scalar(code_address(w, following, following_high))
    take(w, target)


@operations.wave("s_getpc_b64 s_get_pc_i64", "#following #following_high -> sdst:u64")
def s_getpc_b64(w: WaveBuilder, result: OperandSlot, following: OperandSlot, following_high: OperandSlot) -> None:
    """D = PC of the next instruction."""
    result.write_scalar(code_address(w, following, following_high))


def code_address(w: WaveBuilder, low: OperandSlot, high: OperandSlot) -> TypedValue:
    """Return the host address of a code offset, given its halves.

    The addresses of a patched kernel and its original are independent.
    """
    offset = low.scalar().to("u64") | high.scalar().to("u64") << 32
    return w.load(w.context_field("code_base"), "u64") + offset


@operations.control("s_barrier")
def s_barrier(w: WaveBuilder) -> None:
    """Wait for every other live wave of the work-group."""
    tell(w, layout.EVENT_BARRIER)
    w.stop(layout.BARRIER, w.following())


@operations.control("s_endpgm s_endpgm_saved s_endpgm_ordered_ps_done")
def s_endpgm(w: WaveBuilder) -> None:
    """End the wave."""
    tell(w, layout.EVENT_END)
    w.stop(layout.END)


@operations.control("s_trap", "#simm16 ->")
def s_trap(w: WaveBuilder, number: OperandSlot) -> None:
    """Stop the kernel: the runtime's trap handler aborts it for every trap number."""
    w.store(number.scalar().to("u64"), w.context_field("fault_address"))
    w.stop(layout.TRAP)


operations.control("s_sleep s_sleep_var s_wakeup s_monitor_sleep")(lambda w: w.stop(layout.YIELD, w.following()))


@operations.wave(
    "s_nop s_waitcnt s_waitcnt_vscnt s_waitcnt_vmcnt s_waitcnt_expcnt s_waitcnt_lgkmcnt s_waitcnt_depctr s_wait_idle "
    "s_wait_event s_wait_alu s_wait_loadcnt s_wait_storecnt s_wait_samplecnt s_wait_bvhcnt s_wait_expcnt s_wait_dscnt "
    "s_wait_kmcnt s_wait_xcnt s_wait_asynccnt s_wait_tensorcnt s_wait_loadcnt_dscnt s_wait_storecnt_dscnt "
    "s_setprio s_inst_prefetch s_set_inst_prefetch_distance "
    "s_clause s_delay_alu s_icache_inv s_dcache_inv s_dcache_wb s_dcache_inv_vol s_dcache_wb_vol s_gl1_inv s_code_end "
    "s_atc_probe s_atc_probe_buffer s_dcache_discard s_dcache_discard_x2 "
    "s_incperflevel s_decperflevel s_ttracedata s_ttracedata_imm s_version s_prefetch_inst s_prefetch_inst_pc_rel "
    "s_prefetch_data s_prefetch_data_pc_rel s_buffer_prefetch_data s_round_mode_hint s_sethalt "
    "buffer_wbinvl1 buffer_wbinvl1_vol buffer_wbl2 buffer_inv buffer_invl2 buffer_gl0_inv buffer_gl1_inv "
    "global_inv global_wb global_wbinv s_singleuse_vdst flat_prefetch_b8 global_prefetch_b8 s_setprio_inc_wg",
    "->",
)
def timing_only(w: WaveBuilder) -> None:
    """Continue without an effect on registers or memory.

    The emulated memory is always coherent, and every result is available immediately. Observed code reports parts of
    fences; a wait only if the observer knows of stores that it may complete.
    """
    if not w.variant.observed:
        return
    if not w.variant.operation.startswith(WAITS_FOR_STORES):
        tell(w, layout.EVENT_FENCE)
        return
    with w.when(w.load(w.wave_field("incomplete"), "u32") != 0):
        tell(w, layout.EVENT_FENCE)


_INTERRUPT = 1


@operations.control("s_sendmsg s_sendmsghalt", "#simm16 ->")
def s_sendmsg(w: WaveBuilder, message: OperandSlot) -> None:
    """Report an interrupt to the host; other messages (release of registers) have no effect."""
    with w.when((message.scalar() & 15) == _INTERRUPT):
        w.stop(layout.MESSAGE, w.following())
    w.next()


# Stop at an instruction that is not bound yet, because only indirect jumps reach it.
operations.control("luthier_unbound", counted=False)(lambda w: w.stop(layout.UNBOUND))
# Stop at an instruction that the emulator cannot execute.
operations.control("luthier_unsupported", counted=False)(lambda w: w.stop(layout.UNIMPLEMENTED))


@operations.control("luthier_begin", "#target ->", counted=False)
def begin(w: WaveBuilder, target: OperandSlot) -> None:
    """Start a stepped wave: it stops before its first instruction."""
    w.stop(layout.STEP, w.address(w.record, w.ir.sext(w.slot_value(target.position).llvm, I64)))


def write_mode(w: WaveBuilder, mode: TypedValue) -> None:
    """Set MODE, and continue in the record table of its new value. This ends the code."""
    w.store(mode, w.wave_field("mode"))
    indexed = (mode & layout.GPR_INDEX_ENABLE) != 0
    key = (mode & layout.MODE_MASK) | w.select(indexed, (w.m0 >> 12 & 15) << 10, 0)
    key = key | (mode >> layout.FP16_OVERFLOW_SHIFT & 1) << layout.OVERFLOW_KEY_SHIFT
    if w.major == 9:
        key = key | mode >> layout.SKIP_SHIFT - layout.SKIPPING.bit_length() + 1 & layout.SKIPPING
    if w.major >= 12:
        key = key | w.load(w.wave_field("bank_key"), "u32")
    key = key | w.load(w.wave_field("stepping"), "u32")
    tables = w.pointer(w.wave_field("tables"))
    table = w.pointer(w.address(tables, (key.to("u64") << 3).llvm))
    number = w.wrap(w.ir.ptrtoint(table, I64), "u64")
    with w.when(number == 0):
        w.stop(layout.MODE, w.following())
    following = w.wrap(w.ir.ptrtoint(w.following(), I64), "u64")
    current = w.load(w.wave_field("table"), "u64")
    w.store(number, w.wave_field("table"))
    w.jump(w.ir.inttoptr((following - current + number).llvm, w.record.type))


_HW_MODE, _HW_STATUS, _HW_FLAT_LOW, _HW_FLAT_HIGH = 1, 2, 20, 21
_HW_SCHEDULING, _HW_CYCLES, _HW_CYCLES_HIGH = 26, 29, 30
_PLACEMENT = {9: (4, 20), 10: (23, 24), 11: (23, 24), 12: (23, 24), 125: (23, 24)}
"""HW_ID and XCC_ID, HW_ID1 and HW_ID2."""
_SH_MEM_BASES = 15
_DX10_CLAMP = 1 << 8


def _bits(*positions: int) -> int:
    return layout.MODE_MASK | 1 << layout.FP16_OVERFLOW_SHIFT | sum(1 << position for position in positions)


_MODELLED = {
    9: _bits(10, 24, 25, 26, 27, 28, 29, 30, 31),
    **dict.fromkeys((10, 11), _bits(10, 27)),
    **dict.fromkeys((12, 125), _bits(24, 27)),
}
"""By generation: bits of MODE that are modelled, or have no effect here (level-of-detail clamping, pixel order,
performance counters, scalar prefetch)."""


def _field(modifiers: dict[str, int]) -> tuple[int, int, int]:
    """Return the register, first bit and number of bits of a hwreg immediate."""
    code = modifiers.get("simm16", 0) & 0xFFFF
    return code & 63, code >> 6 & 31, (code >> 11) + 1


@operations.wave("s_getreg_b32", "-> sdst:u32", static=("simm16",), generations=True)
def s_getreg_b32(w: WaveBuilder, result: OperandSlot) -> None:
    """D = a field of a hardware register; registers that describe the placement on the chip read as 0."""
    register, low, count = _field(w.modifiers)
    value = w.number(0) if w.modifiers.get("cluster") else _hardware_register(w, register)
    mask = (1 << count) - 1
    result.write_scalar((value >> low) & mask if count < 32 else value >> low)


def _hardware_register(w: WaveBuilder, register: int) -> TypedValue:
    if register == _HW_MODE:
        return w.load(w.wave_field("mode"), "u32")
    if register == _HW_STATUS and w.major < 12:
        vcc = w.load(w.address(w.wave, layout.VCC), f"u{w.wave_size}")
        empty = (w.exec_bits == 0).to("u32") << 9 | (vcc == 0).to("u32") << 10
        return w.load(w.wave_field("scc"), "u32") | empty
    if register == _SH_MEM_BASES and w.major < 12:
        private, shared = (w.load(w.wave_field(name), "u64") >> 48 for name in ("private_base", "shared_base"))
        return private.to("u32") | (shared.to("u32") << 16)
    if register in (_HW_FLAT_LOW, _HW_FLAT_HIGH) and w.major >= 10:
        return w.load(w.address(w.wave_field("flat_scratch"), 4 * (register - _HW_FLAT_LOW)), "u32")
    if register == _HW_CYCLES and w.major >= 10:
        cycles = _tick(w).to("u32")
        return cycles if w.major >= 12 else cycles & 0xFFFFF
    if register == _HW_CYCLES_HIGH and w.major >= 12:
        return (_tick(w) >> 32).to("u32")
    if register in _PLACEMENT[w.major]:
        return w.number(0)
    raise Unsupported(f"hardware register {register} is not modelled")


def _set_field(w: WaveBuilder, source: TypedValue) -> None:
    register, low, count = _field(w.modifiers)
    if w.modifiers.get("banks") and register == _HW_MODE:
        bits = w.load(w.wave_field("bank_bits"), "u32")
        with w.when(((source >> 12) & 0xFF) != ((bits << 2 | bits >> 6) & 0xFF)):
            fault(w, bits, w.number(0), 0, layout.FAULT_BANK_MODE)
    if w.modifiers.get("replay_mode"):  # affects only replay after page faults, which do not happen here
        w.next()
        return
    mask = ((1 << count) - 1) << low & 0xFFFFFFFF
    if register == _HW_MODE:
        old = w.load(w.wave_field("mode"), "u32")
        new = (old & (0xFFFFFFFF ^ mask)) | ((source << low) & mask)
        with w.when((new & (0xFFFFFFFF ^ _MODELLED[w.major])) != 0):
            fault(w, new, w.number(0), 0, layout.FAULT_MODE)
        write_mode(w, new | _DX10_CLAMP if w.major >= 12 else new)
        return
    if register in (_HW_FLAT_LOW, _HW_FLAT_HIGH) and w.major >= 10:
        place = w.address(w.wave_field("flat_scratch"), 4 * (register - _HW_FLAT_LOW))
        old = w.load(place, "u32")
        w.store((old & (0xFFFFFFFF ^ mask)) | ((source << low) & mask), place)
    elif register != _HW_SCHEDULING:
        raise Unsupported(f"hardware register {register} is not modelled")
    w.next()


@operations.control("s_setreg_b32", "sdst:u32 ->", static=("simm16",), generations=True)
def s_setreg_b32(w: WaveBuilder, source: OperandSlot) -> None:
    """A field of a hardware register = S0."""
    _set_field(w, source.scalar())


@operations.control("s_setreg_imm32_b32", "imm:u32 ->", static=("simm16",), generations=True)
def s_setreg_imm32_b32(w: WaveBuilder, source: OperandSlot) -> None:
    """A field of a hardware register = literal."""
    _set_field(w, source.scalar())


@operations.control("s_round_mode", "#simm16 ->")
def s_round_mode(w: WaveBuilder, value: OperandSlot) -> None:
    """MODE.FP_ROUND = immediate."""
    old = w.load(w.wave_field("mode"), "u32")
    write_mode(w, (old & 0xFFFFFFF0) | (value.scalar() & 15))


@operations.control("s_denorm_mode", "#simm16 ->")
def s_denorm_mode(w: WaveBuilder, value: OperandSlot) -> None:
    """MODE.FP_DENORM = immediate."""
    old = w.load(w.wave_field("mode"), "u32")
    write_mode(w, (old & 0xFFFFFF0F) | ((value.scalar() & 15) << 4))


# VGPR indexing (GFX9) -----------------------------------------------------------------------------------------------


def _set_index(w: WaveBuilder, value: TypedValue, mask: int) -> None:
    """Replace the bits `mask` of M0."""
    w.store((w.m0 & (0xFFFFFFFF ^ mask)) | (value & mask), w.address(w.wave, layout.M0))


@operations.control("s_set_gpr_idx_on", "src0:u32 #src1 ->", since=(9,))
def s_set_gpr_idx_on(w: WaveBuilder, index: OperandSlot, enables: OperandSlot) -> None:
    """MODE.gpr_idx_en = 1; M0[7:0] = S0[7:0]; M0[15:12] = S1[3:0]."""
    _set_index(w, (index.scalar() & 0xFF) | ((enables.scalar() & 15) << 12), 0xF0FF)
    write_mode(w, w.load(w.wave_field("mode"), "u32") | layout.GPR_INDEX_ENABLE)


@operations.control("s_set_gpr_idx_off", since=(9,))
def s_set_gpr_idx_off(w: WaveBuilder) -> None:
    """MODE.gpr_idx_en = 0."""
    write_mode(w, w.load(w.wave_field("mode"), "u32") & (0xFFFFFFFF ^ layout.GPR_INDEX_ENABLE))


@operations.control("s_set_gpr_idx_mode", "#simm16 ->", since=(9,))
def s_set_gpr_idx_mode(w: WaveBuilder, enables: OperandSlot) -> None:
    """M0[15:12] = immediate."""
    _set_index(w, (enables.scalar() & 15) << 12, 0xF000)
    write_mode(w, w.load(w.wave_field("mode"), "u32"))


# M0[7:0] = S0[7:0].
operations.wave("s_set_gpr_idx_idx", "src0:u32 ->", since=(9,))(lambda w, index: _set_index(w, index.scalar(), 0xFF))


@operations.wave("s_sendmsg_rtn_b32", "-> sdst:u32", static=("src0",), since=(11,))
def s_sendmsg_rtn_b32(w: WaveBuilder, result: OperandSlot) -> None:
    """D = the host's answer: the time for GET_REALTIME, 0 for services that do not exist here."""
    result.write_scalar(_answer(w).to("u32"))


@operations.wave("s_sendmsg_rtn_b64", "-> sdst:u64", static=("src0",), since=(11,))
def s_sendmsg_rtn_b64(w: WaveBuilder, result: OperandSlot) -> None:
    """Like s_sendmsg_rtn_b32, with 64 bits."""
    result.write_scalar(_answer(w))


_GET_REALTIME = 131


def _tick(w: WaveBuilder) -> TypedValue:
    """Return the clock; every read advances it."""
    place = w.context_field("clock")
    now = w.load(place, "u64") + 100
    w.store(now, place)
    return now


def _answer(w: WaveBuilder) -> TypedValue:
    if w.modifiers.get("src0", 0) & 0xFF != _GET_REALTIME:
        return w.number(0, "u64")
    return _tick(w)


@operations.wave("s_memtime s_memrealtime s_get_shader_cycles_u64", "-> sdst:u64")
def s_memtime(w: WaveBuilder, result: OperandSlot) -> None:
    """D = a counter that every read advances by the same amount in every run."""
    result.write_scalar(_tick(w))
