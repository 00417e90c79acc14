"""Split barriers: the work-group's (GFX12), named barriers and the cluster's (GFX1250).

Sources: pseudo-code of RDNA4's document; LLVM, AMDGPUExecutionSynchronization; AMD's rocjitsu (compute_unit.cpp), cited
where it is the only one. Emulated launches have no clusters, so nothing waits at a cluster's barriers (rocjitsu).
"""

from __future__ import annotations

from typing import Any

from luthier.emulator import layout
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.memory_code import tell, unanswered
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder
from luthier.emulator.questions import ALONE, NO_BARRIER, NO_MEMBERS

operations = OperationTable()
_NEWEST = (125,)
_WORKGROUP, _CLUSTER = -1, -3
_ID_BITS, _COUNT_SHIFT, _COUNT_BITS = 5, 16, 7
"""Fields of M0: the number of a named barrier, and the number of arrivals that open it."""
_STATE_SIGNALS, _STATE_MEMBERS, _STATE_VALID, _STATE_ALLOCATED = 16, 4, 1, 24
"""Fields of a barrier's state. GFX1250 adds the number of allocated named barriers in units of four (rocjitsu)."""


def _group_field(w: WaveBuilder, name: str) -> Any:
    return w.address(w.pointer(w.wave_field("group")), layout.GROUP[name])


# Work-group barrier ---------------------------------------------------------------------------------------------------


def _signal(w: WaveBuilder) -> TypedValue:
    """Arrive at the work-group's barrier; return the number of earlier arrivals."""
    place = _group_field(w, "signals")
    before = w.load(place, "u64")
    tell(w, layout.EVENT_SIGNAL)
    w.store(before + 1, place)
    # The wave waits for the next phase.
    w.store((w.load(_group_field(w, "phase"), "u64") + 1).to("u32"), w.wave_field("barrier"))
    return before


def _wait(w: WaveBuilder) -> None:
    """Emit the wait until every live wave of the work-group has signalled."""
    phase_place, signals_place = _group_field(w, "phase"), _group_field(w, "signals")
    phase = w.load(phase_place, "u64")
    target = w.load(w.wave_field("barrier"), "u32").to("u64")
    with w.ir.if_then((target > phase).llvm):
        complete = w.load(signals_place, "u64") >= w.load(_group_field(w, "live"), "u64")
        _retry_unless(w, complete)
        w.store(w.number(0, "u64"), signals_place)
        w.store(phase + 1, phase_place)
    tell(w, layout.EVENT_WAIT)


def _workgroup_state(w: WaveBuilder) -> tuple[TypedValue, TypedValue]:
    """Return the number of arrivals that open the work-group's barrier, and of arrivals so far."""
    members = w.load(_group_field(w, "live"), "u64").to("u32")
    arrived = w.load(_group_field(w, "signals"), "u64").to("u32")
    return members, w.select(arrived >= members, 0, arrived)  # `signals` is reset only when a wave continues


def _write_state(
    w: WaveBuilder, result: OperandSlot, exists: TypedValue, members: TypedValue, signals: TypedValue
) -> None:
    allocated = w.load(_group_field(w, "named"), "u64").to("u32") >> 2
    state = signals << _STATE_SIGNALS | members << _STATE_MEMBERS | allocated << _STATE_ALLOCATED | _STATE_VALID
    result.write_scalar(w.select(exists, state, 0))


def _alone(w: WaveBuilder) -> TypedValue:
    """Return whether the work-group has one wave, which never waits at barriers (RDNA4, 5.2; rocjitsu)."""
    return w.load(_group_field(w, "wave_count"), "u64") == 1


def _retry_unless(w: WaveBuilder, complete: TypedValue) -> None:
    with w.ir.if_then((~complete).llvm):
        w.uncount()
        w.stop(layout.RETRY)


def _go_on(w: WaveBuilder) -> None:
    """Continue after a wait. `progress` shows this, as a wave in a loop may stop at the same instruction again."""
    w.store(w.number(1, "u64"), _group_field(w, "progress"))
    w.next()


def _number(w: WaveBuilder, key: str = "src0") -> int:
    """Return the barrier that an immediate names; numbers below 0 are hardware barriers."""
    value = w.modifiers.get(key, 0) & 0xFFFF
    return value - ((value & 0x8000) << 1)


@operations.wave("s_barrier_signal", "->", static=("src0",), since=(12,))
def s_barrier_signal(w: WaveBuilder) -> None:
    """Signal arrival at a barrier and continue; nothing waits at -2, the trap handler's."""
    if _number(w) == _WORKGROUP:
        _signal(w)


@operations.wave("s_barrier_signal_isfirst", "-> scc", static=("src0",), since=(12,))
def s_barrier_signal_isfirst(w: WaveBuilder, scc: OperandSlot) -> None:
    """Signal arrival; SCC = this wave is the first, 1 at a barrier that it cannot use."""
    scc.write_scalar(_signal(w) == 0 if _number(w) == _WORKGROUP else w.number(1) == 1)


@operations.wave("s_get_barrier_state", "-> sdst:u32", static=("src0",), since=(12,))
def state_of_workgroup(w: WaveBuilder, result: OperandSlot) -> None:
    """D = number of arrivals at the work-group's barrier, number that opens it, and whether it exists."""
    if _number(w) != _WORKGROUP:  # kernels of GFX12 cannot allocate another
        unanswered(w, w.number(1) == 1, NO_BARRIER)
    _write_state(w, result, ~_alone(w), *_workgroup_state(w))


@operations.control("s_barrier_wait", "->", static=("simm16",), since=(12,))
def s_barrier_wait(w: WaveBuilder) -> None:
    """Wait until every live wave of the work-group has signalled."""
    if _number(w, "simm16") == _WORKGROUP:
        _wait(w)
    _go_on(w)


# Named barriers -------------------------------------------------------------------------------------------------------


class _Named:
    """Code for a named barrier, whose number may be known only at run time."""

    def __init__(self, w: WaveBuilder, number: TypedValue) -> None:
        self.w, self.number = w, number
        unanswered(w, number.to("u64") > w.load(_group_field(w, "named"), "u64"), NO_BARRIER)

    def place(self, name: str) -> Any:
        first = _group_field(self.w, f"named_{name}")
        return self.w.address(first, (self.number.to("u64") << 2).llvm)

    def get(self, name: str) -> TypedValue:
        return self.w.load(self.place(name), "u32")

    def put(self, name: str, value: TypedValue) -> None:
        self.w.store(value, self.place(name))

    def count(self, signals: TypedValue, members: TypedValue) -> None:
        """Set the number of arrivals; open the barrier if it reaches `members`."""
        opens = signals >= members
        self.put("signals", self.w.select(opens, 0, signals))
        self.put("phase", self.get("phase") + opens.to("u32"))


def _chosen(w: WaveBuilder) -> TypedValue:
    """Return the number of a named barrier, from M0 or an immediate."""
    if w.modifiers.get("from_m0"):
        return w.m0 & ((1 << _ID_BITS) - 1)
    return w.number(_number(w))


def _members_given(w: WaveBuilder) -> TypedValue:
    return w.m0 >> _COUNT_SHIFT & ((1 << _COUNT_BITS) - 1)


def _arrive(w: WaveBuilder) -> TypedValue:
    """Arrive at a named barrier that exists and is not 0; return the number of earlier arrivals."""
    barrier = _Named(w, _chosen(w))
    if w.modifiers.get("from_m0"):
        given = _members_given(w)
        barrier.put("members", w.select(given != 0, given, barrier.get("members")))
    members, before = barrier.get("members"), barrier.get("signals")
    unanswered(w, members == 0, NO_MEMBERS)
    barrier.count(before + 1, members)
    return before


def _is_own(w: WaveBuilder) -> bool:
    """Return whether the instruction names a hardware barrier."""
    return not w.modifiers.get("from_m0") and _number(w) < 0


@operations.wave("s_barrier_signal", "->", static=("src0",), since=_NEWEST)
def signal_newest(w: WaveBuilder) -> None:
    """Signal arrival at a barrier and continue. M0 may set the number of arrivals that open it. 0 is no barrier."""
    if _is_own(w):
        if _number(w) == _WORKGROUP:
            _signal(w)
        return
    with w.ir.if_then((~(_alone(w) | (_chosen(w) == 0))).llvm):
        _arrive(w)


@operations.wave("s_barrier_signal_isfirst", "-> scc", static=("src0",), since=_NEWEST)
def signal_first_newest(w: WaveBuilder, scc: OperandSlot) -> None:
    """Signal arrival; SCC = this wave is the first."""
    if _is_own(w):
        scc.write_scalar(_signal(w) == 0 if _number(w) == _WORKGROUP else w.number(1) == 1)
        return
    unanswered(w, _alone(w) | (_chosen(w) == 0), ALONE)
    scc.write_scalar(_arrive(w) == 0)


@operations.control("s_barrier_wait", "->", static=("simm16",), since=_NEWEST)
def wait_newest(w: WaveBuilder) -> None:
    """Wait at the work-group's barrier; for numbers from 0, at the named barrier that the wave has joined."""
    number = _number(w, "simm16")
    if number == _WORKGROUP:
        _wait(w)
    if number >= 0:
        joined = w.load(w.wave_field("joined"), "u32")
        with w.ir.if_then((joined != 0).llvm):
            phase = _Named(w, joined).get("phase")
            _retry_unless(w, phase != w.load(w.wave_field("named_seen"), "u32"))
            w.store(phase, w.wave_field("named_seen"))
    _go_on(w)


@operations.wave("s_barrier_init", "->", static=("src0",), since=_NEWEST)
def s_barrier_init(w: WaveBuilder) -> None:
    """Reset the arrivals at a named barrier; set the number that opens it if M0 gives one."""
    with w.ir.if_then((~(_alone(w) | (_chosen(w) == 0))).llvm):
        barrier, given = _Named(w, _chosen(w)), _members_given(w)
        barrier.put("members", w.select(given != 0, given, barrier.get("members")))
        barrier.put("signals", w.number(0))


@operations.wave("s_barrier_join", "->", static=("src0",), since=_NEWEST)
def s_barrier_join(w: WaveBuilder) -> None:
    """Join a named barrier, at which the wave will wait; 0 joins none."""
    with w.ir.if_then((~_alone(w)).llvm):
        barrier = _Named(w, _chosen(w))
        w.store(barrier.number, w.wave_field("joined"))
        w.store(barrier.get("phase"), w.wave_field("named_seen"))


@operations.wave("s_barrier_leave", "-> scc", since=_NEWEST)
def s_barrier_leave(w: WaveBuilder, scc: OperandSlot) -> None:
    """Leave the joined barrier, which then needs one arrival less; SCC = it needs none (rocjitsu)."""
    joined = w.load(w.wave_field("joined"), "u32")
    scc.write_scalar(~_alone(w))  # 1 if the wave has joined none
    with w.ir.if_then((joined != 0).llvm):
        barrier = _Named(w, joined)
        unanswered(w, barrier.get("members") == 0, NO_MEMBERS)
        members = barrier.get("members") - 1
        barrier.put("members", members)
        barrier.count(barrier.get("signals"), members)
        w.store(w.number(0), w.wave_field("joined"))
        scc.write_scalar(members == 0)


@operations.wave("s_get_barrier_state", "-> sdst:u32", static=("src0",), since=_NEWEST)
def s_get_barrier_state(w: WaveBuilder, result: OperandSlot) -> None:
    """D = number of arrivals at a barrier, number that opens it, and 1; 0 if the barrier does not exist (rocjitsu)."""
    alone = _alone(w)
    if _is_own(w):
        exists = ~alone
        members, signals = _workgroup_state(w)
    else:
        number = w.select(alone, 0, _chosen(w))
        exists = number != 0
        barrier = _Named(w, number)
        members, signals = barrier.get("members"), barrier.get("signals")
    _write_state(w, result, exists, members, signals)
