"""Forks of GFX9, which run both sides of a branch in turn, the second one from a stack in SGPRs; and VSKIP.

Source: ISA documents, S_CBRANCH_G_FORK, S_CBRANCH_I_FORK, S_CBRANCH_JOIN, S_SETVSKIP. Entry n of the stack is in SGPRs
4 n to 4 n + 3: the lanes, then the address where they continue. MODE.CSP is the number of entries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from luthier.emulator import layout
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.exact import I64
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder
from luthier.emulator.operations.control import code_address, go_to_address, take, write_mode

operations = OperationTable()

_CSP_SHIFT = 29


def _mode(w: WaveBuilder) -> TypedValue:
    return w.load(w.wave_field("mode"), "u32")


def _entry(w: WaveBuilder, number: TypedValue) -> Any:
    """Return the address of an entry of the stack."""
    return w.address(w.wave, w.ir.zext((number << 4).llvm, I64))


def _push(w: WaveBuilder, lanes: TypedValue, address: TypedValue) -> None:
    mode = _mode(w)
    place = _entry(w, mode >> _CSP_SHIFT)
    w.store(lanes, place, align=4)
    w.store(address, w.address(place, 8), align=4)
    w.store(mode + (1 << _CSP_SHIFT), w.wave_field("mode"))


def _fork(w: WaveBuilder, lanes: TypedValue, target: TypedValue, following: TypedValue, go: Callable[[], None]) -> None:
    """Divide the wave, and run the smaller side first. `go` ends the code with a jump to the target."""
    active = w.exec_bits
    passing, failing = lanes & active, ~lanes & active
    with w.ir.if_then((passing == active).llvm):
        go()
    with w.ir.if_then((failing == active).llvm):
        w.next()
    fewer = w.popcount(failing) < w.popcount(passing)
    with w.ir.if_then(fewer.llvm):
        _push(w, passing, target)
        w.write_exec(failing)
        w.next()
    _push(w, failing, following)
    w.write_exec(passing)
    go()


@operations.control("s_cbranch_i_fork", "sdst:u64 #simm16 #target #following #following_high ->", since=(9,))
def s_cbranch_i_fork(
    w: WaveBuilder,
    lanes: OperandSlot,
    distance: OperandSlot,
    target: OperandSlot,
    following: OperandSlot,
    following_high: OperandSlot,
) -> None:
    """Lanes in S0 jump to PC + SIMM16 * 4 + 4; the others continue."""
    after = code_address(w, following, following_high)
    pc = after + w.wrap(w.ir.sext((distance.scalar() << 2).llvm, I64), "u64")
    _fork(w, lanes.scalar(), pc, after, lambda: take(w, target))


@operations.control("s_cbranch_g_fork", "u64 u64 #following #following_high ->", since=(9,))
def s_cbranch_g_fork(
    w: WaveBuilder, lanes: OperandSlot, address: OperandSlot, following: OperandSlot, following_high: OperandSlot
) -> None:
    """Lanes in S0 jump to S1; the others continue."""
    pc = address.scalar()
    _fork(w, lanes.scalar(), pc, code_address(w, following, following_high), lambda: go_to_address(w, pc))


@operations.control("s_cbranch_join", "u32 ->", since=(9,))
def s_cbranch_join(w: WaveBuilder, saved: OperandSlot) -> None:
    """Continue if CSP is S0; otherwise pop the lanes and the address of the stack's top entry."""
    mode = _mode(w)
    with w.ir.if_then(((mode >> _CSP_SHIFT) == saved.scalar()).llvm):
        w.next()
    popped = mode - (1 << _CSP_SHIFT)
    w.store(popped, w.wave_field("mode"))
    place = _entry(w, popped >> _CSP_SHIFT)
    address = w.load(w.address(place, 8), "u64", align=4)
    w.write_exec(w.load(place, "u64", align=4))
    go_to_address(w, address)


@operations.control("s_setvskip", "u32 u32 ->", since=(9,))
def s_setvskip(w: WaveBuilder, bits: OperandSlot, index: OperandSlot) -> None:
    """MODE.VSKIP = S0[S1[4:0]]: while it is set, vector instructions of every kind do nothing."""
    skip = bits.scalar() >> (index.scalar() & 31) & 1
    kept = _mode(w) & (0xFFFFFFFF ^ (1 << layout.SKIP_SHIFT))
    write_mode(w, kept | skip << layout.SKIP_SHIFT)
