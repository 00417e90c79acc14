"""Split barriers: that of the work-group (GFX12), and the named ones and those of clusters (GFX1250).

Sources: pseudo-code of RDNA4's document; LLVM, AMDGPUExecutionSynchronization; AMD's rocjitsu (compute_unit.cpp), cited
where it is the only one. Launches here have no clusters: nothing waits at a cluster's barriers then (rocjitsu).
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
"""The number of a named barrier in M0, and where the number of arrivals that it waits for is."""
_STATE_SIGNALS, _STATE_MEMBERS, _STATE_VALID, _STATE_ALLOCATED = 16, 4, 1, 24
"""Fields of a barrier's state; how many named ones are allocated, in units of four, is GFX1250's (rocjitsu)."""


def _group_field(w: WaveBuilder, name: str) -> Any:
    return w.address(w.pointer(w.wave_field("group")), layout.GROUP[name])


# The work-group's -----------------------------------------------------------------------------------------------------


def _signal(w: WaveBuilder) -> TypedValue:
    """Arrive at the work-group's barrier, and return how many had arrived before."""
    place = _group_field(w, "signals")
    before = w.load(place, "u64")
    tell(w, layout.EVENT_SIGNAL)
    w.store(before + 1, place)
    # The wave waits for the next opening.
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
    """Return how many arrivals open the work-group's barrier, and how many there are."""
    members = w.load(_group_field(w, "live"), "u64").to("u32")
    arrived = w.load(_group_field(w, "signals"), "u64").to("u32")
    return members, w.select(arrived >= members, 0, arrived)  # those who arrived are counted until one goes on


def _write_state(
    w: WaveBuilder, result: OperandSlot, exists: TypedValue, members: TypedValue, signals: TypedValue
) -> None:
    allocated = w.load(_group_field(w, "named"), "u64").to("u32") >> 2
    state = signals << _STATE_SIGNALS | members << _STATE_MEMBERS | allocated << _STATE_ALLOCATED | _STATE_VALID
    result.write_scalar(w.select(exists, state, 0))


def _alone(w: WaveBuilder) -> TypedValue:
    """Return whether the work-group has one wave: it has no barriers then, and goes on (RDNA4, 5.2; rocjitsu)."""
    return w.load(_group_field(w, "wave_count"), "u64") == 1


def _retry_unless(w: WaveBuilder, complete: TypedValue) -> None:
    with w.ir.if_then((~complete).llvm):
        w.uncount()
        w.stop(layout.RETRY)


def _go_on(w: WaveBuilder) -> None:
    """End a wait: in a loop the wave may stop at this same place again, and only this tells that it went on."""
    w.store(w.number(1, "u64"), _group_field(w, "progress"))
    w.next()


def _number(w: WaveBuilder, key: str = "src0") -> int:
    """Return the barrier that an immediate names; those below 0 are the hardware's own."""
    value = w.modifiers.get(key, 0) & 0xFFFF
    return value - ((value & 0x8000) << 1)


@operations.wave("s_barrier_signal", "->", static=("src0",), since=(12,))
def s_barrier_signal(w: WaveBuilder) -> None:
    """Announce arrival at a barrier and go on; at -2, the trap handler's, nothing waits."""
    if _number(w) == _WORKGROUP:
        _signal(w)


@operations.wave("s_barrier_signal_isfirst", "-> scc", static=("src0",), since=(12,))
def s_barrier_signal_isfirst(w: WaveBuilder, scc: OperandSlot) -> None:
    """Announce arrival; SCC = this wave was the first, 1 at a barrier that it cannot use."""
    scc.write_scalar(_signal(w) == 0 if _number(w) == _WORKGROUP else w.number(1) == 1)


@operations.wave("s_get_barrier_state", "-> sdst:u32", static=("src0",), since=(12,))
def state_of_workgroup(w: WaveBuilder, result: OperandSlot) -> None:
    """D = arrivals at the work-group's barrier, how many open it, and that it exists."""
    if _number(w) != _WORKGROUP:  # kernels of GFX12 have no way to allocate another
        unanswered(w, w.number(1) == 1, NO_BARRIER)
    _write_state(w, result, ~_alone(w), *_workgroup_state(w))


@operations.control("s_barrier_wait", "->", static=("simm16",), since=(12,))
def s_barrier_wait(w: WaveBuilder) -> None:
    """Wait until every live wave of the work-group has signalled."""
    if _number(w, "simm16") == _WORKGROUP:
        _wait(w)
    _go_on(w)


# Named ones -----------------------------------------------------------------------------------------------------------


class _Named:
    """Code for the named barrier with a number that may be known only when it runs."""

    def __init__(self, w: WaveBuilder, number: TypedValue) -> None:
        self.w, self.number = w, number
        unanswered(w, number.to("u64") > w.load(_group_field(w, "named"), "u64"), NO_BARRIER)

    def place(self, name: str) -> Any:
        """Return where a field of it is."""
        first = _group_field(self.w, f"named_{name}")
        return self.w.address(first, (self.number.to("u64") << 2).llvm)

    def get(self, name: str) -> TypedValue:
        """Return a field of it."""
        return self.w.load(self.place(name), "u32")

    def put(self, name: str, value: TypedValue) -> None:
        """Set a field of it."""
        self.w.store(value, self.place(name))

    def count(self, signals: TypedValue, members: TypedValue) -> None:
        """Set how many have arrived; enough open it."""
        opens = signals >= members
        self.put("signals", self.w.select(opens, 0, signals))
        self.put("phase", self.get("phase") + opens.to("u32"))


def _chosen(w: WaveBuilder) -> TypedValue:
    """Return the number of a named barrier that the instruction gives, in M0 or as an immediate."""
    if w.modifiers.get("from_m0"):
        return w.m0 & ((1 << _ID_BITS) - 1)
    return w.number(_number(w))


def _members_given(w: WaveBuilder) -> TypedValue:
    return w.m0 >> _COUNT_SHIFT & ((1 << _COUNT_BITS) - 1)


def _arrive(w: WaveBuilder) -> TypedValue:
    """Arrive at a named barrier that exists and is not 0, and return how many had arrived before."""
    barrier = _Named(w, _chosen(w))
    if w.modifiers.get("from_m0"):
        given = _members_given(w)
        barrier.put("members", w.select(given != 0, given, barrier.get("members")))
    members, before = barrier.get("members"), barrier.get("signals")
    unanswered(w, members == 0, NO_MEMBERS)
    barrier.count(before + 1, members)
    return before


def _is_own(w: WaveBuilder) -> bool:
    """Return whether the instruction names one of the hardware's own barriers."""
    return not w.modifiers.get("from_m0") and _number(w) < 0


@operations.wave("s_barrier_signal", "->", static=("src0",), since=_NEWEST)
def signal_newest(w: WaveBuilder) -> None:
    """Announce arrival at a barrier and go on; M0 may say how many arrivals open it. Barrier 0 is none."""
    if _is_own(w):
        if _number(w) == _WORKGROUP:
            _signal(w)
        return
    with w.ir.if_then((~(_alone(w) | (_chosen(w) == 0))).llvm):
        _arrive(w)


@operations.wave("s_barrier_signal_isfirst", "-> scc", static=("src0",), since=_NEWEST)
def signal_first_newest(w: WaveBuilder, scc: OperandSlot) -> None:
    """Announce arrival; SCC = this wave was the first."""
    if _is_own(w):
        scc.write_scalar(_signal(w) == 0 if _number(w) == _WORKGROUP else w.number(1) == 1)
        return
    unanswered(w, _alone(w) | (_chosen(w) == 0), ALONE)
    scc.write_scalar(_arrive(w) == 0)


@operations.control("s_barrier_wait", "->", static=("simm16",), since=_NEWEST)
def wait_newest(w: WaveBuilder) -> None:
    """Wait for the work-group's barrier; of any number from 0 on for the named one that the wave has joined."""
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
    """Set how many arrivals open a named barrier, if M0 says it; nobody has arrived."""
    with w.ir.if_then((~(_alone(w) | (_chosen(w) == 0))).llvm):
        barrier, given = _Named(w, _chosen(w)), _members_given(w)
        barrier.put("members", w.select(given != 0, given, barrier.get("members")))
        barrier.put("signals", w.number(0))


@operations.wave("s_barrier_join", "->", static=("src0",), since=_NEWEST)
def s_barrier_join(w: WaveBuilder) -> None:
    """Let the wave wait at a named barrier from now on; at none if it is 0."""
    with w.ir.if_then((~_alone(w)).llvm):
        barrier = _Named(w, _chosen(w))
        w.store(barrier.number, w.wave_field("joined"))
        w.store(barrier.get("phase"), w.wave_field("named_seen"))


@operations.wave("s_barrier_leave", "-> scc", since=_NEWEST)
def s_barrier_leave(w: WaveBuilder, scc: OperandSlot) -> None:
    """Let the barrier that the wave has joined wait for an arrival less; SCC = it waits for none (rocjitsu)."""
    joined = w.load(w.wave_field("joined"), "u32")
    scc.write_scalar(~_alone(w))  # 1 where it has joined none
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
    """D = arrivals at a barrier, how many open it, and that it exists; 0 of one that does not (rocjitsu)."""
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
