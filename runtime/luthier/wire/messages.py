"""Requests that native libraries make of the service of a run, and the numbers in them and in its replies.

A message is numbers of 64 bits and byte strings with their length. What comes in which order beside the numbers that
are declared here is said at each request; where there is just one number it has no declaration.
"""

from __future__ import annotations

import enum

from luthier.wire.structures import Message

VERSION = 7
"""Version of the order of strings and single numbers in messages; raised when it changes."""
SOCKET_VARIABLE = "LUTHIER_RUN_SOCKET"
"""Environment variable that tells the virtual device where its service is."""
TOOLS_SOCKET_VARIABLE = "LUTHIER_TOOLS_SOCKET"
"""The same for the tool library. On GPUs that a run does not make, the device may be that of another run."""


class Request(enum.IntEnum):
    """Requests of a program.

    The first one of a connection begins with the digest of `luthier.emulator.agreement`, as text.
    """

    HELLO = 1
    """These are the virtual device's. This one: the digest. Reply: `Setup`, the inline constants; for each device the
    target's name and a `Gpu`."""
    PLAN = 2
    """`Plan`, the kernel's descriptor, the object's URI and contents. Reply: an address, and a
    number of `Bounds` of the object's variables."""
    BIND = 3
    """`Bind`."""
    EXPLAIN = 4
    """`Explain`; bytes of the context, the work-group, the wave, and the allocation table. Reply: a text."""
    SHARE = 5
    """A size, and a file. Reply: a name. Or a size of 0 and such a name, which nobody attaches to any more."""
    ATTACH = 6
    """A name. Reply: a size, and the file."""
    COUNTS = 7
    """If that is all, as the process ends, or so far; a number of codes; for each a `CodeCounts` and its
    `RecordCounts`."""
    OUTSIDE = 8
    """`Outside`, the object's URI and contents. Reply: a record, all ones if there is no instruction."""
    CAPTURE = 9
    """`Capture`, the packet, the allocation table and its aliases, while the launch waits. Reply: if it is wanted."""
    CAPTURED = 10
    """That launch has ended: whether it failed, whether it ran code of other objects, and how many launches ran beside
    it; what was executed until it began and until it ended, each the codes of `COUNTS`."""
    FOUND = 11
    """`Sighting`."""
    RUNNING = 12
    """`Running` and its `RunningPlace`s; if it is due, what its code has executed in the process, the codes of
    `COUNTS`, else none."""
    FOLLOW = 13
    """`Follow`. Reply: `luthier.emulator.layout.TRANSITION`s, as bytes."""
    WATCHED = 14
    """`Watched`; bytes of `luthier.emulator.layout.FOUND`s, and of `MET`s."""
    FOUND_CALL = 15
    """`CallSighting`, the function's name, the symbol and the file that the call is in."""
    FOUND_COPY = 16
    """`Sighting` of a race, and what `FOUND_CALL` has for the call that copies."""
    HOT = 17
    """What was executed often in the process, the codes of `COUNTS`."""
    INSTRUMENT = 18
    """These are the tool library's. Their replies name no C functions. This one: the digest, the command line. Reply:
    `Wishes`, patterns of functions of HSA and HIP, and the file of the ledger."""
    OBJECT = 19
    """A URI and contents. Reply: a number."""
    KERNEL = 20
    """`FindKernel`. Reply: the row in the ledger, name, symbol, bytes of arguments that are to be read, patched object,
    symbols of its blocks of variables; if there is a patched object `Limits`."""
    BLOCK = 21
    """A device and a symbol. Reply: size and offsets of rings, and a file."""
    LOADED = 22
    """`Loaded`, addresses of blocks."""
    FAULT = 23
    """A text."""
    CODE_OBJECT = 24
    """`LoadedObject`."""
    LAUNCH = 25
    """`Launch`; contents of the arguments, empty if they could not be read. Reply: `LaunchAnswer`."""
    LAUNCH_END = 26
    """`LaunchEnd`."""
    LAUNCH_MEMORY = 27
    """`LaunchMemory`, the device's name, and a text that says why the memory cannot be told, else empty; triples of
    numbers, as bytes: address and size of memory, and where its contents are in the file. Comes with the file, before
    the launch and after."""
    FUNCTIONS = 40
    """Functions that there will be events of. Reply: how many events there is room for, and a file."""
    DRAIN = 41
    """No contents."""


class Setup(Message, frozen=True):
    """Properties that all virtual devices share."""

    base: int
    """Address of the shared space in every process."""
    size: int
    code_size: int
    """Bytes of it that are machine code; a `luthier.wire.memory.SPACE_HEAD` follows."""
    imports: int
    """Address of this process's pointers to C functions."""
    shared_base: int
    private_base: int
    """Apertures of LDS and scratch."""
    counts_wanted: bool
    capture_patience: int
    """Milliseconds that launches wait for another one, which is captured, to end; 0: no captures are wanted."""
    races: bool
    uninitialised: bool
    barriers: bool
    floats_flow: bool
    undefined: bool
    """Checks that are wanted."""
    findings: bool
    """Findings of any check are."""
    gpus: int


class Gpu(Message, frozen=True):
    """A virtual device."""

    engine_major: int
    engine_minor: int
    engine_stepping: int
    wave_size: int
    waves_per_simd: int
    simds_per_unit: int
    units: int
    lds_bytes: int
    device_id: int
    clock_mhz: int
    memory_bytes: int


class Plan(Message, frozen=True):
    """A kernel that is about to run."""

    gpu: int
    kernel: int
    """Address of the descriptor."""
    load_address: int
    is_file: bool
    """True if the contents are the file that the URI names (or empty), not memory."""


class Bounds(Message, frozen=True):
    """A variable of a code object; without bytes: room in front of the first one."""

    address: int
    size: int
    reserved: int
    """Bytes from there on that are nobody else's."""


class Bind(Message, frozen=True):
    """A record that a kernel reaches."""

    kernel: int
    key: int
    record: int


class Outside(Message, frozen=True):
    """An address outside a kernel's own code, to which it jumps."""

    kernel: int
    gpu: int
    code: int
    """Address of the first byte of the kernel's code."""
    address: int
    load_address: int
    """Of the object that the address is in."""
    is_file: bool
    """True if the contents are the file that the URI names (or empty), not memory."""


class Explain(Message, frozen=True):
    """A fault."""

    kernel: int
    reason: int
    launch: int
    """Number among the launches of the kernel in the process."""


class Sighting(Message, frozen=True):
    """Something that a check of the program's memory found, as often as a launch did it."""

    kind: int
    """`luthier.findings.kinds.FindingKind`. What kernels have nothing to do with has 0 in all that is about them."""
    kernel: int
    record: int
    address: int
    size: int
    """Bytes of the access."""
    lane: int
    wave: int
    group: int
    """Number of the work-group in the launch."""
    base: int
    """Address of the allocation that is meant, or is the nearest."""
    extent: int
    """Bytes of it, as the program asked for them."""
    allocation: int
    """Its number among those of the process, from 1 on; 0: there is none."""
    is_variable: bool
    """It is a variable of a code object."""
    count: int
    launch: int
    """Number among the launches of the kernel in the process."""
    in_lds: bool
    """The address is an offset in LDS."""
    operands: int
    """Kinds of floats among the first lane's operands: `luthier.wire.floats.FLOAT_NAN` and the like."""
    has_other: bool
    """There is another instruction: what follows is about it."""
    other_record: int
    other_address: int
    other_size: int
    other_lane: int
    other_wave: int
    other_group: int
    has_launch: bool
    """The other instruction is of another launch:"""
    other_kernel: int
    other_launch: int
    has_copy: bool
    """There is no other instruction, but a copy: its place and size are told as another one's, `other_record` is the
    call's address in its file, as that of a `CallSighting`."""
    copy_writes: bool
    """It writes there; else it reads."""


class CallSighting(Message, frozen=True):
    """Something that a check of a program's calls of HIP found."""

    kind: int
    """`luthier.findings.kinds.FindingKind`."""
    error: int
    """What the function returned; 0 where that is not meant."""
    offset: int
    """Address of the call in its file, from where that is loaded."""
    address: int
    """Of bytes that the call is about; 0: of none."""
    size: int
    """How many."""
    base: int
    """Address of the allocation that they begin in; 0: there is none."""
    extent: int
    """Bytes of it, as the program asked for them."""
    has_launch: bool = False
    """A launch failed, of which is the rest; the kernel's symbol is behind the name of the error."""
    groups_x: int = 0
    """Work-groups of the grid."""
    groups_y: int = 0
    groups_z: int = 0
    items_x: int = 0
    """Work-items of a work-group."""
    items_y: int = 0
    items_z: int = 0
    lds: int = 0
    """Bytes of a work-group, beside those of the kernel."""
    kernel_lds: int = 0
    kernel_items: int = 0
    """Work-items of a work-group for which the kernel was compiled at most; 0: not known, as the next two."""
    device_lds: int = 0
    """Bytes that a work-group may have."""
    device_items: int = 0
    """Work-items that it may have."""
    most_groups: int = 0
    """Work-groups of a cooperative launch that the device holds at once."""


class Follow(Message, frozen=True):
    """A step of the automaton of hazards that a wave is about to make for the first time."""

    kernel: int
    """Number of its plan."""
    state: int
    record: int


class Watched(Message, frozen=True):
    """A launch that has ended in which waits or hazards were found to be missing."""

    kernel: int
    """Number of its plan."""
    launch: int
    """Number among the launches of the kernel in the process."""


class Running(Message, frozen=True):
    """A launch that has not ended for long."""

    kernel: int
    """Number of its plan."""
    seconds: int
    others: int
    """Launches of the process that run, too."""
    is_due: bool
    """The user is to be told."""
    groups: int
    """Work-groups of the launch; 0: no launch of the process runs for long any more, and nothing else is meant."""
    begun: int
    running: int
    """Those of them that have begun, and of these those that have not ended."""
    resident: int
    """As many as the device holds at once."""
    is_full: bool
    """As many run as can, and others have not begun."""
    repeats: bool
    """And those that run have come back to a state in which they were."""
    places: int
    """Number of `RunningPlace`s that follow."""


class RunningPlace(Message, frozen=True):
    """An instruction at which waves are that neither wait at a barrier nor have ended."""

    record: int
    groups: int
    """Work-groups of these waves."""


class Capture(Message, frozen=True):
    """A launch that is about to begin, where captures are wanted."""

    gpu: int
    plan: int
    """Number of the kernel's plan."""
    packet: int
    """Address of the packet,"""
    queue: int
    """of its `amd_queue_t`,"""
    code: int
    """and of the code's first byte."""
    id: int
    """Number of the packet in its queue."""
    cooperative: bool


class CodeCounts(Message, frozen=True):
    """Executed instructions of a code."""

    code: int
    records: int
    """Number of `RecordCounts` that follow."""


class RecordCounts(Message, frozen=True):
    """Executions of an instruction, and the number of lanes that took part."""

    record: int
    executions: int
    lanes: int


class Wishes(Message, frozen=True):
    """Launches that are to run instrumented, events that tools want reported, and the size of the ledger."""

    first: int
    end: int
    step: int
    unique_grid: bool
    launches: bool
    code_objects: bool
    ranges: bool
    rows: int
    records: int


class FindKernel(Message, frozen=True):
    """A kernel that is launched for the first time."""

    gpu: int
    object: int
    descriptor: int
    """Its virtual address."""


class Limits(Message, frozen=True):
    """Limits of what a launch of a patched kernel may ask for."""

    private_segment: int
    group_segment: int
    work_items: int


class Loaded(Message, frozen=True):
    """A patched object that has been loaded."""

    row: int
    delta: int
    """Value that was added to its addresses."""
    original_delta: int
    blocks: int
    """Number of addresses that follow."""


class LoadedObject(Message, frozen=True):
    """A code object that has been loaded on a device."""

    gpu: int
    object: int


class Launch(Message, frozen=True):
    """A launch that is about to begin."""

    gpu: int
    row: int
    number: int
    """Number among the launches of the kernel."""
    chosen: bool
    """True if it is to run instrumented."""
    grid_x: int
    grid_y: int
    grid_z: int
    block_x: int
    block_y: int
    block_z: int
    group_segment: int
    private_segment: int


class LaunchEnd(Message, frozen=True):
    """A launch that has ended."""

    gpu: int
    row: int
    number: int


class LaunchAnswer(Message, frozen=True):
    """Reply to a launch that is about to begin."""

    instrumented: bool
    capture: int
    """Bytes of memory that it may have if it is to be captured; 0: it is not."""
    arguments: int
    """Bytes of its arguments, the hidden ones among them."""


class LaunchMemory(Message, frozen=True):
    """Memory that a launch may access, where it is captured."""

    gpu: int
    row: int
    number: int
    is_after: bool
    """True when the launch has ended."""
    kernarg: int
    queue: int
    """Addresses of the arguments and of the queue."""
    load_address: int
    """Value that is added to the virtual addresses of the kernel's code object."""
    id: int
    """Number of the packet in its queue."""
    cooperative: bool
