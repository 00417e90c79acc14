"""Layout of the memory that compiled code and Python share.

Each structure is one table of fields. Compiled code and NumPy use the same offsets.
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
"""The most records of a run, whose instructions one function executes (`emulator.running.hot`)."""

CONSTANTS = 1024
"""Offset in a wave of the inline constants, one 64-bit entry each (see `constants.py`)."""
VECTORS = 2048
"""Offset in a wave of VGPR 0: rows of 4 bytes per lane for the VGPRs, then the AGPRs (unused on targets without
them)."""
FLAT_SCRATCH_BIT, FLAT_LANE_SHIFT = 58, 52
"""On targets where scratch has global addresses: the bit that distinguishes them from memory, and the lowest bit of the
lane number. Source: LLVM's code for ``addrspacecast`` and ``is.private`` on GFX1250: ``lane << 52`` plus
SRC_FLAT_SCRATCH_BASE; bits 63:58 are those of the base."""
VECTOR_ROWS = 256
"""VGPRs that instructions can name; there are as many AGPRs."""
VECTOR_UNIT, AGPR_UNIT, UNITS = r.VGPR_FIRST, r.AGPR_FIRST, r.UNIT_LIMIT
"""First unit of each vector file, and one above the last unit."""
SCALARS = 4 * r.SCC
"""Bytes of a wave's numbered scalar registers: SGPRs, VCC, trap temporaries, M0 and EXEC, by unit."""


def agprs(wave_size: int) -> int:
    """Return the offset in a wave of AGPR 0."""
    return VECTORS + VECTOR_ROWS * 4 * wave_size


def sink_row(wave_size: int) -> int:
    """Return the offset in a wave of the row that takes writes to registers that do not exist."""
    return VECTORS + rows(wave_size) * 4 * wave_size


def rows(wave_size: int) -> int:
    """Return the rows of a wave: VGPRs and AGPRs; in waves of 32 lanes, which have no AGPRs, the VGPRs that
    ``s_set_vgpr_msb`` can name."""
    return (4 if wave_size == 32 else 2) * VECTOR_ROWS


def wave_stride(wave_size: int) -> int:
    """Return the bytes from one wave to the next.

    The number of rows is odd, so that the same register of two waves falls into different cache sets.
    """
    return sink_row(wave_size) + 4 * wave_size + (4 * wave_size if wave_size == 32 else 0)


WAVE = FieldLayout(
    SCALARS,
    scc=4,
    mode=4,
    flat_scratch=8,
    sink=64,  # target of writes to SGPR_NULL
    zero=8,
    shared_base=8,  # apertures, read by name as 64-bit scalars
    shared_limit=8,
    private_base=8,
    private_limit=8,
    pops_exiting_wave_id=8,
    pc=8,  # record to continue at
    context=8,
    group=8,
    tables=8,  # array of TABLES record tables by table key; 0: not made yet
    table=8,  # the current one
    lds=8,  # host address of the work-group's LDS
    lds_size=8,
    scratch=8,  # host address of lane 0's scratch
    scratch_size=8,  # bytes per lane
    stepping=4,  # STEPPING, or OBSERVED, WATCHED_VALUES and ALL_DEFINED
    status=4,
    index=4,  # of the wave in its work-group
    barrier=4,
    pending=4,
    banks=16,  # byte offsets for the upper bits of VGPR numbers: src0, src1, src2 and the result, four bytes each
    bank_bits=4,  # these bits, as s_set_vgpr_msb encodes them
    bank_key=4,  # their part of a table key: a bit for each operand where they are not 0
    unseen=4,  # stepped: it continues at an instruction that was not shown yet
    told=4,  # observed: its accesses are reported as well as its barriers
    incomplete=4,  # observed: it has stores for which it has not waited, so its waits are reported
    joined=4,  # named barrier at which it waits; 0 for none
    named_seen=4,  # how often that barrier had opened when the wave joined it, or last passed it
    origins=4,  # set of the loads that gave it undefined values, as native code numbers them
    searches=4,  # how often undefined bits were looked for in its registers
    nans=4,  # set of the loads and operations that gave it NaN, as `origins`
)
"""One wave: SGPRs and VCC, TTMPs, M0, EXEC by unit number in the first 512 bytes, then these fields, inline constants,
VGPRs, AGPRs."""

UNIT_OFFSETS = {
    r.SCC: WAVE["scc"],
    r.MODE: WAVE["mode"],
    r.FLAT_SCRATCH_LO: WAVE["flat_scratch"],
    r.FLAT_SCRATCH_HI: WAVE["flat_scratch"] + 4,
}
"""Offsets of the units that are not at four times their number."""
VCC = r.VCC_LO * 4
M0 = r.M0 * 4
EXEC = r.EXEC_LO * 4

ACCESS = FieldLayout(mask=8, size=4, kind=4, follows=8, repeats=8, addresses=64 * 8)
"""One checked memory access of a stepped instruction: lanes, bytes per lane, kind, addresses (one if scalar). Observed
code also gives, for accesses by lanes, which lanes begin where the lane before ends (`follows`), and which have its
address (`repeats`). Either lane may be inactive."""
ACCESS_LANES, ACCESS_SCALAR, ACCESS_OUTSIDE, ACCESS_ROW = range(4)
"""Kinds: by lanes at host addresses; by the wave at a host address; by lanes at offsets outside LDS; by lanes at
consecutive host addresses, of which only that of lane 0 is given."""
ACCESSES = 32
"""Entries of a context's log: more than an instruction makes."""

ALIAS = FieldLayout(address=8, size=8, host=8)
"""Memory that kernels see at another address than the host."""

FLOATS = FieldLayout(
    nan=8,  # lanes with such a result where no operand is one
    infinity=8,
    denormal=8,
    nan_flow=8,  # lanes with such a result where an operand is one
    infinity_flow=8,
    denormal_flow=8,
    operand_nan=8,  # lanes with such an operand
    operand_infinity=8,
    operand_denormal=8,
    operand_zero=8,
)
"""Exceptional floats of one instruction, as lane masks."""

DECIDED = FieldLayout(lanes=8, kind=4, scalar=4, elements=4, bytes=4, is_row=4)
"""A decision by an undefined value: lane mask, kind, whether the value belongs to the whole wave. For LOADS_UNDEFINED
and STORES_UNDEFINED instead: number of elements in `CONTEXT.moved_bits`, bytes of each, whether they are in a row."""
DECIDES_BRANCH, DECIDES_ADDRESS, DECIDES_MASK, DECIDES_STORE, TAKES_INACTIVE, LOSES_HALF = range(6)
LOADS_UNDEFINED, STORES_UNDEFINED, NAMES_BEYOND = range(6, 9)
"""Kinds: where the wave continues, which memory it accesses, which lanes are active, what it stores to memory. Without
a decision: lanes that take a value of an inactive lane; lanes of a mask whose upper half may be lost (`USE_HALF`);
undefined values that memory gives or gets; lanes that name one of 64 lanes, which their wave does not have."""
UNWRITTEN_VALUES, LANE_VALUES = 1, 2
"""Sources of undefined values, as bits: registers and memory that were never written; inactive lanes."""
UNDEFINED_MASK = (1 << 44) - 1
"""Bits of a host address that index the shadow of memory."""
UNDEFINED_COPY = UNDEFINED_MASK + 1
"""Distance in bytes from the shadow to a copy of memory from when it became undefined: a byte that differs from its
copy was written since."""

CONTEXT = FieldLayout(
    budget=8,  # taken backward branches left before the wave yields
    launch=8,
    ranges=8,  # host address of the allocation table
    range_count=8,
    aliases=8,  # host address of the ALIASes, searched for addresses that are not in the allocation table
    alias_count=8,
    code_base=8,  # host address of the program's first code byte
    code_size=8,
    code_index=8,  # u32 per code word: record number or 0xFFFFFFFF, stored with all bits inverted
    clock=8,  # advances with every read
    fault_address=8,
    fault_lane=4,
    fault_size=4,
    fault_kind=4,
    translate=8,  # host address of the helper for addresses that the fast check does not find
    current=8,  # wave that returned
    resume=8,  # wave index to continue with
    addresses=64 * 8,  # lane addresses under translation
    accesses=8,  # entries in the log, which only stepped code fills
    access_log=ACCESSES * ACCESS.size,
    observe=8,  # function that observed code calls with a wave, its record, ACCESS, FLOATS or 0, and an EVENT
    floats=FLOATS.size,
    undefined=8,  # host address of the shadow of memory, which marks undefined bits
    decided=DECIDED.size,
    moved_bits=64 * 16,  # undefined bits of elements that memory gives or gets
    moved_places=64 * 8,  # their addresses; in a row: that of the first one
    following=8,  # host address of a u32 that is not 0 while accesses are reported to follow NaN through memory
)
"""One thread."""

NAMED_BARRIERS = 32
"""Named barriers that 5-bit numbers can name; kernels have up to 28 (LLVM, COMPUTE_PGM_RSRC3_GFX125_NAMED_BAR_CNT)."""

GROUP = FieldLayout(
    waves=8,  # host address of the first wave
    wave_stride=8,
    wave_count=8,
    live=8,  # waves that have not ended
    waiting=8,  # live waves at the barrier
    active=8,  # 0: start a new work-group
    progress=8,
    number=8,  # of the work-group in the grid
    signals=8,  # arrivals at the split barrier since it last opened
    phase=8,  # how often it opened
    steps=8,  # turns, and backward branches taken in them
    slept=8,  # steps among them that no wave used, because it slept
    slice_begin=8,  # steps at the start of the work-group's slice
    lds=8,
    lds_size=8,
    watched=8,  # state of the host's checks; 0: none yet
    named=8,  # named barriers that the kernel allocates; 0 in work-groups of one wave
    named_members=4 * NAMED_BARRIERS,  # arrivals that open each barrier; 0: not set
    named_signals=4 * NAMED_BARRIERS,  # arrivals since it last opened
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
    lane_images=8,  # for each wave: EXEC, then its initial VGPR rows
    lane_image_stride=8,
    lane_image_size=8,
    group_id_x=4,  # offsets in a wave of the ids; the sink: not wanted
    group_id_y=4,
    group_id_z=4,
    group_info=4,
    scratch_offset=4,  # offset in a wave of the wave's scratch offset
    wave_id=4,  # offset in a wave of the wave's index in its work-group
    wave_id_shift=4,
    packed_yz=4,  # not 0: y and z share the place of y, 16 bits each; the mask of the enabled halves
    mode=4,
    stepping=4,
    cooperative=4,  # every work-group is resident: one whose waves all wait may continue later
    slice=8,  # steps of a work-group after which the scheduler returns; 0: after each round of its waves
    grid_arrived=8 * GRID_BARRIERS,  # waves at each barrier of the grid
    grid_phase=8 * GRID_BARRIERS,  # how often it opened
    scc=4,  # initial SCC
    lds_image=8,  # initial contents of LDS, 0 for zeros
    architected_scratch=4,  # FLAT_SCRATCH starts as the wave's own scratch; 2: with FLAT_SCRATCH_BIT
    scratch_base=8,
    entry=8,  # byte offset of the first record in a table
    told=4,  # initial WAVE.told
    named=4,  # GROUP.named of work-groups of more than one wave
    undefined=8,  # CONTEXT.undefined; 0: undefined values are not tracked
    shadow=8,  # bytes from a wave to the shadow of its registers
    lane_scratch=8,  # bytes of a lane's scratch
    wave_size=4,
    given_sgprs=4,  # initialised SGPRs, from s0 on
    early=8,  # u32 offsets in a wave of the registers that may be read before they are written; 0: all that are not set
    early_count=4,
    backward=4,  # the last work-group comes first, and in each work-group the last wave
)
"""One launch, shared by its threads."""

YIELD, BARRIER, END, FAULT, UNIMPLEMENTED, UNBOUND, MODE, JUMP = range(8)
TRAP, STOP, DEADLOCK, RUNAWAY, DONE, STEP, RETRY, SWITCH, MESSAGE = range(8, 17)
"""Reasons why compiled code returned. RETRY: the wave waits for other waves at the same instruction. SWITCH: it is
another work-group's turn. MESSAGE: the wave sent an interrupt, whose event is in M0, and continues."""

MODE_MASK = 1023
"""Bits of MODE that code depends on: rounding, denormals, DX10_CLAMP, IEEE."""
GPR_INDEX_ENABLE = 1 << 27
"""MODE bit of GFX9: the vector operands that M0[15:12] selects are relative to M0."""
RELATIVE_KEY_SHIFT = 10
"""Position in a table key of four bits for vector operands: those relative to M0, or those whose VGPR numbers have
upper bits (`WAVE`, ``bank_key``)."""
FP16_OVERFLOW_SHIFT = 23
"""Position in MODE of FP16_OVFL: overflow of 16- and 8-bit floats gives the largest number."""
OVERFLOW_KEY_SHIFT = 14
"""Position of FP16_OVFL in a table key."""
STEPPING = 1 << 15
"""Bit of a table key: code that returns after every instruction."""
SKIP_SHIFT = 28
"""Position in MODE of GFX9's VSKIP: vector instructions have no effect."""
SKIPPING = 1 << 16
"""Bit of a table key: vector skip mode."""
OBSERVED = 1 << 17
"""Bit of a table key: code that reports its accesses and barriers."""
WATCHED_VALUES = 1 << 18
"""Bit of a table key: code that reports exceptional floats and decisions by undefined values."""
ALL_DEFINED = 1 << 19
"""Bit of a table key, beside WATCHED_VALUES: code for waves without undefined bits in registers. It looks for them only
where memory is read. A wave changes its table when it reads some, and back when its registers are defined again."""
TABLES = 1 << 20
"""Number of record tables. Their keys: MODE & MODE_MASK; above it M0[15:12] while GPR_INDEX_ENABLE is set, or the
operands with upper bits of VGPR numbers; FP16_OVFL, STEPPING, SKIPPING, OBSERVED, WATCHED_VALUES and
ALL_DEFINED."""


def mode_key(mode: int) -> int:
    """Return MODE's part of a table key, without the bits of M0."""
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
"""Faults of typed buffers. ELEMENT: a misaligned element. For the others, the fault address is the format number."""
FAULT_LANES, FAULT_MODE, FAULT_BANK, FAULT_BANK_MODE, FAULT_SWIZZLED, FAULT_STRIDED, FAULT_OPEN = range(12, 19)
"""Other faults, each with the meaning of its address. LANES: a transposing load with lanes off (EXEC). MODE: MODE bits
that are not modelled (MODE). BANK: upper bits of VGPR numbers (the bits) beyond the kernel's VGPRs. BANK_MODE: upper
bits (the bits) that a write of MODE may or may not change. SWIZZLED: an access to a swizzled buffer (its offset) whose
bounds are not known. STRIDED: a scalar access to a buffer with a stride (the stride) whose bounds are not known. OPEN:
a question that no source answers (its index in `questions.QUESTIONS`)."""

# Inputs of the native executor ---------------------------------------------------------------------------------------

MASTER = FieldLayout(records=8, version=8, runs=8)
"""One master table of records: its address or 0; how often it has changed; the address of a table, by record, of
functions that execute a run (0: none), or 0."""
CHECK = FieldLayout(offset=8, size=8)
"""A stretch of code that must not change after the plan was made: bytes from the code's base."""
ABSENT = 0xFFFFFFFF
"""Instead of an SGPR's offset: the kernel does not enable it."""
PLAN = FieldLayout(
    code=8,  # number of the decoded code, for further requests
    kernel=8,  # number of the kernel, for reports
    code_delta=8,  # from the kernel descriptor to the code's first byte
    code_size=8,
    code_index=8,
    code_copy=8,  # the code that was decoded
    checks=8,  # CHECKs
    check_count=8,
    masters=8,  # MASTERs, one for each table key
    record_count=8,  # of a table
    entry=8,  # byte offset of the first record in a table
    beyond=8,  # u32 records that fault when executed: they name registers that the kernel does not have
    beyond_count=8,
    uses=8,  # u16 by record, USEs of memory; of an observed kernel
    watch=8,  # WATCH that each launch copies; 0: neither waits nor hazards are checked
    plain=8,  # address of the PLAN for launches that no check observes; 0: this one
    name=8,  # address of the kernel's zero-terminated name
    key=4,
    mode=4,
    stepping=4,  # as WAVE.stepping; STEPPING: the entry is a record that leads to the kernel's
    wave_size=4,
    vgpr_bytes=4,
    agpr_bytes=4,
    work_item_ids=4,  # how many of x, y, z are passed
    packed_ids=4,
    lds_limit=4,
    scratch_limit=4,  # bytes per lane
    scratch_extra=4,  # bytes per lane beyond those of the packet
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
    of_program=4,  # the program launches the kernel, not its runtime
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
    early=8,  # LAUNCH.early
    early_count=4,
    undefined=4,  # sources of undefined values that are tracked: UNWRITTEN_VALUES, LANE_VALUES
    fences=4,  # FENCES: what makes stores visible to others
)
"""Plan of a kernel's start: everything that does not depend on the dispatch packet."""

USE_READS, USE_WRITES, USE_COHERENT, USE_RETURNS, USE_PLAIN, USE_GUARDS, USE_NARROW = 1, 2, 4, 8, 16, 32, 64
USE_LOCKS = 128
"""Facts about a memory instruction. READS, WRITES: both for an atomic. COHERENT: it bypasses private caches, like
atomic loads and stores. RETURNS: an atomic that returns the old value. PLAIN: cannot be an atomic load. GUARDS: a load
that only decides whether an atomic is tried at the same address. NARROW: an atomic that other work-groups may not
see. LOCKS: an atomic that compares before it stores, as locks are taken."""
USE_HALF = 128
"""Of other instructions: makes a mask of 64 lanes whose upper half nothing reads."""
FENCE_WAITS, FENCE_WRITES_BACK, FENCE_NEAR, FENCE_FAR = 8, 16, 32, 64
"""Parts of fences, in the place of USEs, and none that an atomic has. WAITS: for all stores of the wave. WRITES_BACK:
what other L2 caches shall see. NEAR, FAR: invalidates the caches between the wave and the rest of its work-group, and
of the device."""
FENCES_KNOWN, FENCES_WRITE_BACK, FENCES_APART, FENCES_SHOWN = 1, 2, 4, 8
"""KNOWN: the parts that a fence needs are known; with WRITE_BACK also `FENCE_WRITES_BACK`. APART: waves of a work-group
may have caches of their own, between which fences are needed, too (WGP mode, TgSplit). SHOWN: atomic stores for other
work-groups do not look like plain ones."""
USE_LDS_SHIFT = 8
"""Position of the same bits for addresses in LDS: loads to LDS read memory and write LDS."""
EVENT_ACCESS, EVENT_BARRIER, EVENT_SIGNAL, EVENT_WAIT, EVENT_GRID_SIGNAL, EVENT_GRID_WAIT, EVENT_END = range(7)
EVENT_FLOATS, EVENT_BEYOND_LDS, EVENT_UNDEFINED, EVENT_FENCE, EVENT_TAINTS, EVENT_SEARCH = range(7, 13)
EVENT_COARSE_ONLY, EVENT_FOLLOWED = range(13, 15)
"""Events that observed code reports. ACCESS: before a memory access. BARRIER, SIGNAL, WAIT: a wave arrived at a
barrier, signalled it, passed it. GRID_SIGNAL, GRID_WAIT: the same for a barrier of the whole grid. END: the wave ended.
FLOATS: exceptional results. UNDEFINED: a decision by an undefined value (`DECIDED`). FENCE: a part of a fence.
TAINTS: a wave of which all registers were defined reads undefined bits. SEARCH: its registers may be defined again.
FOLLOWED: before an access, in code that checks floats, while NaN is followed.
Code of every variant reports BEYOND_LDS, before an access beyond the end of LDS, and COARSE_ONLY, before an atomic that
hardware may not perform on fine-grained memory."""

FACT_SPANS = 26
FACT = FieldLayout(
    reads=1,  # numbers of SPANs, which follow in this order: registers that are read,
    both=1,  # read and written: outstanding results in them may not be overwritten,
    writes=1,  # written,
    results=1,  # outstanding after the instruction,
    locked=1,  # read late
    streams=2,  # up to two streams that it adds to: index + 1, 0 for none
    flags=1,  # FACT_ENDS, FACT_ANY_LANE
    released=1,  # stream that is done after it: index + 1
    limits=8,  # by counter: the limit to wait for + 1, 0 for none
    replaced=4,  # bit set of streams whose results it may overwrite
    spans=4 * FACT_SPANS,  # SPANs
)
"""Facts about an instruction for the check of waits (`isa.waits`)."""
SPAN = FieldLayout(first=2, count=1, half=1)
"""Register units; half: HALF_LOW or HALF_HIGH of each unit, 0 for whole units."""
HALF_LOW, HALF_HIGH = 1, 2
FACT_ENDS, FACT_ANY_LANE = 1, 2
"""The wave ends; registers of inactive lanes count, too."""
STREAM = FieldLayout(counter=1, most=1, ordered=1, locks=1, beside=4)
FOUND = FieldLayout(consumer=4, producer=4, unit=2, stream=1, position=1, writes=1, wave=4, lane=4, group=8)
"""A use of an outstanding register: records of both instructions. FOUND.lane of a scalar register: ABSENT."""
HIT = FieldLayout(producers=8, rule=4, more=4)
"""A hazard in a step of the hazard automaton. producers: a byte for each record, not 0 if it may be the producer.
more: the next HIT is in the same step."""
MET = FieldLayout(consumer=4, producer=4, hit=4, wave=4, group=8)
"""A hazard that a wave met: both records (the producer may be ABSENT), and the index of the HIT."""
FOLLOW_ENDS = 1 << 63
FOLLOW_SHIFT = 32
TRANSITION = WireStructure(key="u8", next="u8")
"""A step of the hazard automaton. key: a record, and above it (FOLLOW_SHIFT) the state before. next: the state after,
and above it the index of the first HIT + 1, or 0 for none. FOLLOW_ENDS: the state after is not known."""
FOLLOW_MOST = 64
"""The most TRANSITIONs that WATCH.follow fills in: one for a state and a record, and new ones for the records that are
executed next. It returns their number."""
LOOK_BACK = 256
"""Instructions of a wave that are searched for the producer of a hazard."""
WATCH = FieldLayout(
    facts=8,  # FACTs by record; 0: waits are not checked
    streams=8,  # STREAMs
    stream_count=4,
    poison=4,  # content of outstanding registers
    found=8,  # FOUNDs
    capacity=8,
    count=8,  # of FOUNDs; more than the capacity if some are lost
    follow=8,  # function of the WATCH, a state, a record and the place for TRANSITIONs; 0: hazards are not checked
    automaton=8,  # its number: each automaton has its own states
    forgotten=8,  # 32-bit records, in the order in which their transitions changed
    forgotten_count=8,
    hits=8,  # HITs
    met=8,  # METs
    met_capacity=8,
    met_count=8,  # like count
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
    packet=8,  # addresses for the kernel
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
    resident=4,  # work-groups that may run at once and have scratch
    stepped=4,  # one worker at a time, on the thread that asks for the next event
    scc=4,
    observe=4,  # OBSERVE_RACES and the others; the plan's code must be observed
    whole_x=4,  # work-groups of the whole launch
    whole_y=4,
    whole_z=4,
    backward=4,  # the last work-group comes first, and in each work-group the last wave
    scratch=8,  # address of the scratch of all lanes of all workers
    scratch_lane=8,  # bytes per lane
    quantum=8,  # backward branches of a wave's turn
    step_limit=8,  # backward branches of a work-group
    ranges=8,  # RANGEs
    range_count=8,
    counts=8,  # u64 for each record, to which executions are added
    lanes=8,  # u64 for each record, to which active lanes are added
    sgprs=8,  # 128 initial SGPRs, which the plan's inputs overwrite; 0: zeros
    images=8,  # for each wave 64 bytes that begin with EXEC, then VGPR rows; 0: all work-items and their ids
    image_size=8,
    lds_image=8,
    watch=8,  # WATCH; 0: neither waits nor hazards are checked
    costs=8,  # COST_MODEL, for OBSERVE_COSTS
)
"""A launch in this process."""
COST_MODEL = FieldLayout(
    line=8,  # bytes of a line of the vector cache
    store_line=8,  # bytes of its write requests to L2
    scalar_line=8,
    l2_line=8,
    vector_lines=8,  # lines that the caches hold
    scalar_lines=8,
    l2_lines=8,
    lds_banks=8,  # of four bytes
    lds_store_banks=8,
    lds_mixed=8,  # `Generation.lds_reads_128_mixed`
)
"""Caches and LDS that a launch is measured with."""
OBSERVE_RACES, OBSERVE_UNWRITTEN, OBSERVE_BARRIERS, OBSERVE_FOOTPRINT, OBSERVE_FLOATS, OBSERVE_FLOW = 1, 2, 4, 8, 16, 32
OBSERVE_UNDEFINED, OBSERVE_LDS, OBSERVE_COSTS, OBSERVE_LANES = 64, 128, 256, 512
"""Observations. RACES; UNWRITTEN: reads of memory that was never written; BARRIERS: barriers that not all waves reach;
FOOTPRINT, without these: bytes that are read and written; FLOATS: exceptional results; FLOW: also of exceptional
operands; UNDEFINED: decisions by undefined values; LDS: accesses beyond a work-group's LDS, which all code reports;
COSTS, without other observations of accesses: cache lines and cycles of LDS; LANES: values of inactive lanes, and masks
of lanes that lose their upper half."""
OBSERVE_VALUES = OBSERVE_FLOATS | OBSERVE_FLOW | OBSERVE_UNDEFINED | OBSERVE_LANES
"""Observations that need `WATCHED_VALUES`."""
EVENT = FieldLayout(reason=8, context=8, group=8, key=8, record=8)
"""Reason why a worker needs help, with its CONTEXT and GROUP: UNBOUND or MODE with a table key and a record to bind;
any other reason stopped it."""
RUNNING, HELP, ENDING = range(3)
"""States of a launch."""
