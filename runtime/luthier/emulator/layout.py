"""Layout of the memory that compiled code and Python share.

Each structure is one table of fields; compiled code and NumPy use the same offsets.
"""

from __future__ import annotations

from luthier.isa import registers as r
from luthier.wire.floats import FLOAT_DENORMAL as FLOAT_DENORMAL
from luthier.wire.floats import FLOAT_INFINITY as FLOAT_INFINITY
from luthier.wire.floats import FLOAT_NAN as FLOAT_NAN
from luthier.wire.floats import FLOAT_ZERO as FLOAT_ZERO
from luthier.wire.structures import FieldLayout, WireStructure

RECORD_SLOTS = 10
RECORD = FieldLayout(function=8, count=8, lanes=8, slots=4 * RECORD_SLOTS)
"""One decoded instruction of one thread's copy of a program."""

RUN_MOST = 64
"""Records of a run, at most, whose work one function does (`emulator.running.hot`)."""

CONSTANTS = 1024
"""Offset in a wave of the inline constants, one 64-bit entry each (see `constants.py`)."""
VECTORS = 2048
"""Offset in a wave of VGPR 0: rows of 4 bytes per lane, the VGPRs, then the AGPRs (touched only where the target has
them)."""
FLAT_SCRATCH_BIT, FLAT_LANE_SHIFT = 58, 52
"""Where scratch has global addresses: the bit that tells them from memory's, and where the lane's number begins (the
code that LLVM makes for ``addrspacecast`` and ``is.private`` on GFX1250: ``lane << 52`` plus SRC_FLAT_SCRATCH_BASE, and
bits 63:58 those of the base)."""
VECTOR_ROWS = 256
"""VGPRs that instructions can name, and as many AGPRs."""
VECTOR_UNIT, AGPR_UNIT, UNITS = r.VGPR_FIRST, r.AGPR_FIRST, r.UNIT_LIMIT
"""The first unit of each vector file, and one above the last."""
SCALARS = 4 * r.SCC
"""Bytes of a wave before what is no numbered register: SGPRs, VCC, trap temporaries, M0 and EXEC, by unit."""


def agprs(wave_size: int) -> int:
    """Return the offset in a wave of AGPR 0."""
    return VECTORS + VECTOR_ROWS * 4 * wave_size


def sink_row(wave_size: int) -> int:
    """Return the offset in a wave of the row that takes writes to registers that do not exist."""
    return VECTORS + rows(wave_size) * 4 * wave_size


def rows(wave_size: int) -> int:
    """Return the rows of a wave: VGPRs and AGPRs; in waves of 32 lanes, where there are no AGPRs, VGPRs alone, as many
    as ``s_set_vgpr_msb`` can name."""
    return (4 if wave_size == 32 else 2) * VECTOR_ROWS


def wave_stride(wave_size: int) -> int:
    """Return the bytes from one wave to the next.

    They are an odd number of rows, so that their registers fall into different cache sets.
    """
    return sink_row(wave_size) + 4 * wave_size + (4 * wave_size if wave_size == 32 else 0)


WAVE = FieldLayout(
    SCALARS,
    scc=4,
    mode=4,
    flat_scratch=8,
    sink=64,  # what is written to SGPR_NULL
    zero=8,
    shared_base=8,  # apertures, read by name as 64-bit scalars
    shared_limit=8,
    private_base=8,
    private_limit=8,
    pops_exiting_wave_id=8,
    pc=8,  # record to continue at
    context=8,
    group=8,
    tables=8,  # array of TABLES record tables by table_key, 0 where not made yet
    table=8,  # the one in use
    lds=8,  # host address of the work-group's LDS
    lds_size=8,
    scratch=8,  # host address of lane 0's scratch
    scratch_size=8,  # bytes a lane
    stepping=4,  # STEPPING, or OBSERVED, WATCHED_VALUES
    status=4,
    index=4,  # of the wave in its work-group
    barrier=4,
    pending=4,
    banks=16,  # bytes that the upper bits of VGPR numbers stand for: of src0, src1, src2 and the result, four each
    bank_bits=4,  # these bits, as s_set_vgpr_msb has them
    bank_key=4,  # what they add to a table key: a bit for each place where they are not 0
    unseen=4,  # stepped: it is to go on at an instruction that has not been shown yet
    told=4,  # observed: not only its barriers are told, but also its accesses
    joined=4,  # named barrier at which it waits; 0 for none
    named_seen=4,  # how often that one had opened when the wave joined it, or last passed it
)
"""One wave: SGPRs and VCC, TTMPs, M0, EXEC by unit number in the first 512 bytes, then these, inline constants, VGPRs,
AGPRs."""

UNIT_OFFSETS = {
    r.SCC: WAVE["scc"],
    r.MODE: WAVE["mode"],
    r.FLAT_SCRATCH_LO: WAVE["flat_scratch"],
    r.FLAT_SCRATCH_HI: WAVE["flat_scratch"] + 4,
}
"""Units that are not at four times their number."""
VCC = r.VCC_LO * 4
M0 = r.M0 * 4
EXEC = r.EXEC_LO * 4

ACCESS = FieldLayout(mask=8, size=4, kind=4, addresses=64 * 8)
"""One checked memory access of a stepped instruction: lanes, bytes a lane, kind, addresses (of a scalar access one)."""
ACCESS_LANES, ACCESS_SCALAR, ACCESS_OUTSIDE, ACCESS_ROW = range(4)
"""Kinds: by lanes and by the wave at host addresses; by lanes at offsets outside LDS; by lanes at host addresses each
of which is behind the bytes of the lane before, where only that of lane 0 is given."""
ACCESSES = 32
"""Entries of a context's log, more than an instruction makes."""

ALIAS = FieldLayout(address=8, size=8, host=8)
"""Memory that kernels see at another address than the host."""


FLOATS = FieldLayout(
    nan=8,  # lanes with such a result of operands that are not …
    infinity=8,
    denormal=8,
    nan_flow=8,  # … and of such as are
    infinity_flow=8,
    denormal_flow=8,
    operand_nan=8,  # lanes with such an operand
    operand_infinity=8,
    operand_denormal=8,
    operand_zero=8,
)
"""Exceptional floats of one instruction, as bits of lanes."""

DECIDED = FieldLayout(lanes=8, kind=4, scalar=4)
"""An undefined value that decides something: bits of lanes, what it decides, whether it is one of the whole wave."""
DECIDES_BRANCH, DECIDES_ADDRESS, DECIDES_MASK = range(3)
"""Kinds: where the wave goes on, which memory is accessed, which lanes are active."""
UNDEFINED_MASK = (1 << 44) - 1
"""Bits of a host address by which the shadow of memory is ordered."""
UNDEFINED_COPY = UNDEFINED_MASK + 1
"""Distance in bytes from the shadow to what memory held when it became undefined: what holds something else now was
written since."""

CONTEXT = FieldLayout(
    budget=8,  # taken backward branches left before the wave yields
    launch=8,
    ranges=8,  # host address of the allocation table
    range_count=8,
    aliases=8,  # host address of the ALIASes, looked at where the allocation table has nothing
    alias_count=8,
    code_base=8,  # host address of the program's first code byte
    code_size=8,
    code_index=8,  # u32 per code word: record number, or 0xFFFFFFFF, every bit of it inverted
    clock=8,  # advances with every reading
    fault_address=8,
    fault_lane=4,
    fault_size=4,
    fault_kind=4,
    translate=8,  # host address of the helper for addresses that the fast check does not know
    current=8,  # wave that returned
    resume=8,  # wave index to continue with
    addresses=64 * 8,  # lane addresses under translation
    accesses=8,  # entries in the log, filled by stepped code only
    access_log=ACCESSES * ACCESS.size,
    observe=8,  # function that observed code calls: of a wave, its record, ACCESS, FLOATS or 0, and an EVENT
    floats=FLOATS.size,
    undefined=8,  # host address of the shadow of memory: which bits are undefined
    decided=DECIDED.size,
)
"""One thread."""

NAMED_BARRIERS = 32
"""As many as numbers of 5 bits name; kernels have up to 28 (LLVM, COMPUTE_PGM_RSRC3_GFX125_NAMED_BAR_CNT)."""

GROUP = FieldLayout(
    waves=8,  # host address of the first wave
    wave_stride=8,
    wave_count=8,
    live=8,  # waves that have not ended
    waiting=8,  # of them, at the barrier
    active=8,  # 0: a new work-group is to be started
    progress=8,
    number=8,  # of the work-group in the grid
    signals=8,  # arrivals at the split barrier since it last opened
    phase=8,  # how often it opened
    steps=8,  # turns, and backward branches taken in them
    slice_begin=8,  # of these, when the work-group's slice began
    lds=8,
    lds_size=8,
    watched=8,  # of the host's checks; 0: nothing is known of it yet
    named=8,  # named barriers that the kernel has allocated; none in work-groups of one wave
    named_members=4 * NAMED_BARRIERS,  # arrivals that open each of them; 0: not known yet
    named_signals=4 * NAMED_BARRIERS,  # since it last opened
    named_phase=4 * NAMED_BARRIERS,  # how often it opened
)
"""One work-group."""

GRID_BARRIERS = 64
"""Barriers of the whole grid (global wave sync resources)."""

LAUNCH = FieldLayout(
    next_group=8,
    group_count=8,
    abort=4,
    quantum=4,
    step_limit=8,
    grid_x=4,
    grid_y=4,
    grid_z=4,
    first_x=4,  # id of the first work-group: a launch may be a part of a larger grid
    first_y=4,
    first_z=4,
    sgpr_image=8,  # 128 initial SGPRs, the same for every work-group
    vgpr_bytes=8,  # to clear, from VGPR 0
    agpr_bytes=8,  # to clear, from AGPR 0
    agprs=8,  # offset of AGPR 0 in a wave
    lane_images=8,  # a wave: EXEC, then its initial VGPR rows
    lane_image_stride=8,
    lane_image_size=8,
    group_id_x=4,  # offsets in a wave where the ids go; the sink if nowhere
    group_id_y=4,
    group_id_z=4,
    group_info=4,
    scratch_offset=4,  # where the wave's scratch offset goes
    wave_id=4,  # where the wave's index in its work-group goes
    wave_id_shift=4,
    packed_yz=4,  # not 0: y and z share the place of y, 16 bits each, of which these are given
    mode=4,
    stepping=4,
    cooperative=4,  # every work-group is resident: one whose waves all wait may go on later
    slice=8,  # steps of a work-group after which the scheduler returns; 0: after each round of its waves
    grid_arrived=8 * GRID_BARRIERS,  # waves at each barrier of the grid
    grid_phase=8 * GRID_BARRIERS,  # how often it opened
    scc=4,  # initial SCC
    lds_image=8,  # initial contents of LDS, 0 for zeros
    architected_scratch=4,  # FLAT_SCRATCH starts as the wave's own scratch; 2: and has FLAT_SCRATCH_BIT
    scratch_base=8,
    entry=8,  # byte offset of the first record in a table
    told=4,  # WAVE.told at the beginning
    named=4,  # GROUP.named of work-groups of more than one wave
    undefined=8,  # CONTEXT.undefined; 0: undefined values are not followed
    shadow=8,  # bytes from a wave to the shadow of its registers
    lane_scratch=8,  # bytes of a lane's scratch
    wave_size=4,
    given_sgprs=4,  # from s0 on: SGPRs that have a value
    backward=4,  # the last work-group comes first, and of each its last wave
)
"""One launch, shared by its threads."""

YIELD, BARRIER, END, FAULT, UNIMPLEMENTED, UNBOUND, MODE, JUMP = range(8)
TRAP, STOP, DEADLOCK, RUNAWAY, DONE, STEP, RETRY, SWITCH, MESSAGE = range(8, 17)
"""Reasons why compiled code came back. RETRY: the wave waits for others, at the same instruction; SWITCH: it is another
work-group's turn; MESSAGE: the wave has sent an interrupt, whose event is in M0, and goes on."""

MODE_MASK = 1023
"""Bits of MODE that code depends on: rounding, denormals, DX10_CLAMP, IEEE."""
GPR_INDEX_ENABLE = 1 << 27
"""MODE bit of GFX9: vector operands are relative to M0, those that M0[15:12] names."""
RELATIVE_KEY_SHIFT = 10
"""Position in a table key of four bits for places of vector operands: those relative to M0, or those whose VGPR numbers
have upper bits (`WAVE`, ``bank_key``)."""
FP16_OVERFLOW_SHIFT = 23
"""Position in MODE of FP16_OVFL: what is too large for 16- and 8-bit floats becomes the largest number."""
OVERFLOW_KEY_SHIFT = 14
"""Position of the same in a table key."""
STEPPING = 1 << 15
"""Bit of a table key: code that returns after every instruction."""
SKIP_SHIFT = 28
"""Position in MODE of GFX9's VSKIP: vector instructions do nothing."""
SKIPPING = 1 << 16
"""Bit of vector skip mode in a table key."""
OBSERVED = 1 << 17
"""Bit of a table key: code that says what it accesses, and where it waits."""
WATCHED_VALUES = 1 << 18
"""Bit of a table key: code that tells of its values: exceptional floats, undefined ones that decide something."""
TABLES = 1 << 19
"""Record tables: by MODE & MODE_MASK, above these bits M0[15:12] while GPR_INDEX_ENABLE is set, or places with upper
bits of VGPR numbers, FP16_OVFL, STEPPING, SKIPPING, OBSERVED and
WATCHED_VALUES."""


def mode_key(mode: int) -> int:
    """Return the part of MODE that is in a table key (M0's bits are not)."""
    return (
        mode & MODE_MASK
        | (mode >> FP16_OVERFLOW_SHIFT & 1) << OVERFLOW_KEY_SHIFT
        | (SKIPPING if mode >> SKIP_SHIFT & 1 else 0)
    )


RANGE = WireStructure(address="u8", size="u8")
"""An entry of the allocation table, which is sorted by address."""

READY, WAITING, ENDED = range(3)
"""States of a wave."""

FAULT_MEMORY, FAULT_LDS, FAULT_SCRATCH, FAULT_ALIGNMENT, FAULT_BUFFER = range(1, 6)
FAULT_ELEMENT, FAULT_FORMAT, FAULT_SCALED, FAULT_SELECT, FAULT_NARROWED = range(7, 12)
"""Faults of typed buffers: a misaligned element; for the others the address is the format's number."""
FAULT_LANES, FAULT_MODE, FAULT_BANK, FAULT_BANK_MODE, FAULT_SWIZZLED, FAULT_STRIDED, FAULT_OPEN = range(12, 19)
"""A transposing load with lanes off (the address is EXEC); MODE bits that are not modelled (the address is MODE); upper
bits of VGPR numbers (the address) beyond what the kernel has, or that a write of MODE may or may not change; accesses
to a swizzled buffer (the address is the offset in it), and scalar ones to one with a stride (the address), whose bounds
are not known; what no source answers (the address is the place in `questions.QUESTIONS`)."""

# What the native executor is told ------------------------------------------------------------------------------------

MASTER = FieldLayout(records=8, version=8, runs=8)
"""One master table of records: its address, 0 where there is none, how often it has changed, and the address of a
function by record that does the work of a run of them, 0 where there is none."""
CHECK = FieldLayout(offset=8, size=8)
"""A stretch of code that must be as it was when the plan was made: bytes from the code's base."""
ABSENT = 0xFFFFFFFF
"""In place of an SGPR's offset: the kernel does not ask for it."""
PLAN = FieldLayout(
    code=8,  # number of the decoded code, for further requests
    kernel=8,  # number of the kernel, for reports
    code_delta=8,  # from the kernel descriptor to the code's first byte
    code_size=8,
    code_index=8,
    code_copy=8,  # the code as it was decoded
    checks=8,  # CHECKs
    check_count=8,
    masters=8,  # MASTERs, one for each table key
    record_count=8,  # of a table
    entry=8,  # byte offset of the first record in a table
    beyond=8,  # u32 records whose execution is a fault: they name registers that the kernel does not have
    beyond_count=8,
    uses=8,  # u16 by record, USEs of memory; of an observed kernel
    watch=8,  # WATCH that launches begin with a copy of; 0 where neither waits nor hazards are checked
    name=8,  # address of the kernel's name, which ends with a zero
    key=4,
    mode=4,
    stepping=4,  # STEPPING, then the entry is a record that leads to the kernel's; or OBSERVED, WATCHED_VALUES
    wave_size=4,
    vgpr_bytes=4,
    agpr_bytes=4,
    work_item_ids=4,  # how many of x, y, z arrive
    packed_ids=4,
    lds_limit=4,
    scratch_limit=4,  # bytes a lane
    scratch_extra=4,  # bytes a lane beyond what the packet asks for
    architected_scratch=4,
    simd_waves=4,  # waves of the kernel that fit a SIMD
    processors=4,  # of the device, with four SIMDs each
    processor_lds=4,  # bytes
    group_id_x=4,
    group_id_y=4,
    group_id_z=4,
    group_info=4,
    scratch_offset=4,
    wave_id=4,
    wave_id_shift=4,
    packed_yz=4,
    named=4,  # LAUNCH.named
    private_segment_buffer=4,  # offsets of user SGPRs in a wave, or ABSENT
    dispatch_ptr=4,
    queue_ptr=4,
    kernarg_segment_ptr=4,
    dispatch_id=4,
    flat_scratch_init=4,
    private_segment_size=4,
    kernarg_preload=4,
    kernarg_preload_offset=4,  # bytes
    kernarg_preload_size=4,  # bytes
    given_sgprs=4,  # LAUNCH.given_sgprs
    undefined=4,  # undefined values are followed
)
"""Plan of a kernel's start: all that does not depend on the dispatch packet."""

USE_READS, USE_WRITES, USE_COHERENT, USE_RETURNS, USE_PLAIN, USE_GUARDS, USE_NARROW = 1, 2, 4, 8, 16, 32, 64
"""An instruction reads memory, writes it, both if it is an atomic; it does so past caches that others do not see, as
atomic loads and stores; it is an atomic that gives the old value; no atomic load is like it; it is a load that only
decides on an atomic at the same place; it is an atomic that other work-groups need not see."""
USE_LDS_SHIFT = 8
"""Where the same bits begin for addresses in LDS: loads to LDS read memory and write LDS."""
EVENT_ACCESS, EVENT_BARRIER, EVENT_SIGNAL, EVENT_WAIT, EVENT_GRID_SIGNAL, EVENT_GRID_WAIT, EVENT_END = range(7)
EVENT_FLOATS, EVENT_BEYOND_LDS, EVENT_UNDEFINED = 7, 8, 9
"""What observed code tells: it is about to access memory; a wave has come to a barrier, has signalled that it is there,
has passed it; the same of a barrier of the whole grid; it has ended; results are exceptional floats; an undefined value
decides something (`DECIDED`); and all code: it is about to access what is beyond the end of LDS."""

FACT_SPANS = 26
FACT = FieldLayout(
    reads=1,  # spans of registers, one kind after the other: read …
    both=1,  # … read and written, where results may be overwritten, but not these …
    writes=1,  # … written …
    results=1,  # … outstanding behind it …
    locked=1,  # … read late
    streams=2,  # up to two that it adds to: index + 1, 0 for none
    flags=1,  # FACT_ENDS, FACT_ANY_LANE
    released=1,  # stream that is done behind it: index + 1
    limits=8,  # by counter: the limit to wait for + 1, 0 for none
    replaced=4,  # bit set of streams whose results it may overwrite
    spans=4 * FACT_SPANS,  # SPANs
)
"""Facts about an instruction for the check of waits (`isa.waits`)."""
SPAN = FieldLayout(first=2, count=1, half=1)
"""Register units; half: HALF_LOW or HALF_HIGH of each is meant, 0 for all."""
HALF_LOW, HALF_HIGH = 1, 2
FACT_ENDS, FACT_ANY_LANE = 1, 2
"""The wave ends; registers of lanes that are not active count, too."""
STREAM = FieldLayout(counter=1, most=1, ordered=1, locks=1, beside=4)
FOUND = FieldLayout(consumer=4, producer=4, unit=2, stream=1, position=1, writes=1, wave=4, lane=4, group=8)
"""A use of an outstanding register: records of both instructions. FOUND.lane of a scalar register: ABSENT."""
HIT = FieldLayout(producers=8, rule=4, more=4)
"""A hazard that a step of the automaton of hazards meets: a byte for each record, not 0 where it may be the producer;
whether the next HIT is of the same step, too."""
MET = FieldLayout(consumer=4, producer=4, hit=4, wave=4, group=8)
"""A hazard that a wave met: records, the producer's or ABSENT; the index of the HIT."""
FOLLOW_ENDS = 1 << 63
FOLLOW_SHIFT = 32
TRANSITION = WireStructure(key="u8", next="u8")
"""A step of the automaton of hazards. key: a record, above it (FOLLOW_SHIFT) the state before. next: the state behind
it, above that the index of the first HIT + 1 or 0 for none; FOLLOW_ENDS: nothing is known behind it."""
FOLLOW_MOST = 64
"""TRANSITIONs that WATCH.follow fills in at most: one for a state and a record, and those of the records behind it that
are executed next, as far as they are new. It gives how many."""
LOOK_BACK = 256
"""Instructions of a wave among which the producer of a hazard is looked for."""
WATCH = FieldLayout(
    facts=8,  # FACTs by record; 0 where waits are not checked
    streams=8,  # STREAMs
    stream_count=4,
    poison=4,  # what outstanding registers hold
    found=8,  # FOUNDs
    capacity=8,
    count=8,  # of FOUNDs, more than the capacity where some are lost
    follow=8,  # function of the WATCH, a state, a record and the place for TRANSITIONs; 0: hazards are not checked
    automaton=8,  # its number: others have other states
    forgotten=8,  # 32-bit records, in the order in which their transitions became other ones
    forgotten_count=8,
    hits=8,  # HITs
    met=8,  # METs
    met_capacity=8,
    met_count=8,  # as count
)
"""State of the watch of a launch."""

ENGINE = FieldLayout(
    constants=8,  # host address of the inline constants
    constants_size=8,
    shared_base=8,
    private_base=8,
    threads=8,
)
"""Parameters of an executor of this process."""
DISPATCH = FieldLayout(
    plan=8,
    packet=8,  # addresses that the kernel is given
    queue=8,
    id=8,
    kernarg=8,
    code=8,  # host address of the code's first byte
    grid_x=4,  # work-groups
    grid_y=4,
    grid_z=4,
    block_x=4,
    block_y=4,
    block_z=4,
    first_x=4,  # id of the first work-group
    first_y=4,
    first_z=4,
    lds_size=4,
    cooperative=4,  # all work-groups run at once
    resident=4,  # work-groups that may run at once; there is scratch for so many
    stepped=4,  # on the thread that asks what is next, no more than one worker at a time
    scc=4,
    observe=4,  # OBSERVE_RACES and the others; the plan's code is observed then
    whole_x=4,  # work-groups of the launch, of which these are a part
    whole_y=4,
    whole_z=4,
    backward=4,  # the last work-group comes first, and of each its last wave
    scratch=8,  # address for all lanes of all workers
    scratch_lane=8,  # bytes
    quantum=8,  # backward branches of a wave's turn
    step_limit=8,  # backward branches of a work-group
    ranges=8,  # RANGEs
    range_count=8,
    counts=8,  # u64 a record, to which executions are added
    lanes=8,  # the same of active lanes
    sgprs=8,  # 128 SGPRs before those that the plan says are put in; 0: zeros
    images=8,  # EXEC in the first of 64 bytes, then VGPR rows, for each wave; 0: all work-items and their ids
    image_size=8,
    lds_image=8,
    watch=8,  # WATCH, 0 where neither waits nor hazards are checked
)
"""A launch in this process."""
OBSERVE_RACES, OBSERVE_UNWRITTEN, OBSERVE_BARRIERS, OBSERVE_FOOTPRINT, OBSERVE_FLOATS, OBSERVE_FLOW = 1, 2, 4, 8, 16, 32
OBSERVE_UNDEFINED, OBSERVE_LDS = 64, 128
"""What observed code is looked at for: races, reads of what nobody wrote, barriers that not all come to; or, without
these, which bytes are read and written; results that are exceptional floats, also where operands are; undefined values
that decide something; accesses beyond the LDS of their work-group, which all code tells."""
OBSERVE_VALUES = OBSERVE_FLOATS | OBSERVE_FLOW | OBSERVE_UNDEFINED
"""What needs `WATCHED_VALUES`."""
EVENT = FieldLayout(reason=8, context=8, group=8, key=8, record=8)
"""Reason why a worker needs help, with its CONTEXT and GROUP: UNBOUND or MODE with a table key and a record to bind, or
what stopped it."""
RUNNING, HELP, ENDING = range(3)
"""States of a launch."""
