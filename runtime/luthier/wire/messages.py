"""Parts of messages between the processes of a run and its service: counts and findings."""

from __future__ import annotations

from typing import Annotated

from luthier.wire.structures import File, ForeignText, Message, PathText

SOCKET_VARIABLE = "LUTHIER_RUN_SOCKET"
"""Environment variable with the service's socket for the virtual device."""
TOOLS_SOCKET_VARIABLE = "LUTHIER_TOOLS_SOCKET"
"""Environment variable with the service's socket for the tool library. It is separate, since on the machine's GPUs the
virtual device may belong to another run."""


class MemoryFile(Message, frozen=True):
    """Memory that processes share."""

    size: int
    memory: File


class RecordCounts(Message, frozen=True):
    """Executions of an instruction, and the sum of active lanes."""

    record: int
    executions: int
    lanes: int


class ChosenLaunches(Message, frozen=True):
    """The launches of each kernel that the user selects, by number in the process."""

    first: int
    end: int
    step: int
    unique_grid: bool  # of launches that differ only in their number, the first only


class CodeCounts(Message, frozen=True):
    """Executed instructions of a code."""

    code: int
    records: Annotated[bytes, RecordCounts]


class RunningPlace(Message, frozen=True):
    """An instruction at which waves are, without waves that wait at a barrier or have ended."""

    record: int
    groups: int  # work-groups of these waves


class Progress(Message, frozen=True):
    """State of a launch that has not ended."""

    groups: int  # work-groups of the launch
    begun: int  # work-groups that have begun
    running: int  # work-groups that have begun and not ended
    resident: int  # work-groups that fit on the device at once
    is_full: bool  # no more work-groups fit, and some have not begun
    repeats: bool  # it is full, and the running work-groups are in an earlier state again
    places: tuple[RunningPlace, ...]


class HostCall(Message, frozen=True):
    """A call in the program, or a Python function at a line."""

    offset: int  # address in its file, relative to where that is loaded; or the line
    symbol: PathText  # or the Python function; empty if unknown
    file: PathText
    is_python: bool


class Sighting(Message, frozen=True):
    """Something that a check of the program's memory found, with its number of occurrences in a launch."""

    kind: int
    """`luthier.findings.kinds.FindingKind`. Sightings without a kernel have 0 in the kernel's fields."""
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
    """Address of the allocation, or of the nearest one."""
    extent: int
    """Its bytes, as requested by the program."""
    allocation: int
    """Its number among those of the process, from 1; 0: none."""
    is_variable: bool
    """Whether it is a variable of a code object."""
    count: int
    launch: int
    """Number among the launches of the kernel in the process."""
    in_lds: bool
    """Whether the address is an offset in LDS."""
    operands: int
    """Classes of floats among the first lane's operands, as bits: `luthier.wire.floats.FLOAT_NAN` etc. Of an atomic of
    fine-grained memory: `FINE_HOST` etc."""
    has_other: bool
    """Whether there is another instruction, described by the next fields."""
    other_record: int
    other_address: int
    other_size: int
    other_lane: int
    other_wave: int
    other_group: int
    has_launch: bool
    """Whether the other instruction belongs to another launch:"""
    other_kernel: int
    other_launch: int
    has_copy: bool
    """Whether there is a copy instead of another instruction: the fields of the other instruction have its place and
    size, and `other_record` the call's address in its file, as in a `CallSighting`."""
    copy_writes: bool
    """Whether it writes there, not reads."""
    origins: int
    """1 + the number, in the process, of the set of loads and operations that an undefined value (in `NAN_FLOW`: NaN)
    may come from; 0: not known."""


FINE_NONE, FINE_HOST, FINE_DEVICE, FINE_SHARED = range(4)
"""Kinds of fine-grained memory: pinned memory of the host, a device's own, and shared virtual memory, which is managed
or registered."""


class AllocationHistory(Message, frozen=True):
    """An allocation's name, and the calls that allocated and freed it; all empty if unknown."""

    name: ForeignText
    """Of a part, by `luthier_annotate.h`."""
    allocated: tuple[HostCall, ...]
    """The calls that allocated it, innermost first."""
    freed: tuple[HostCall, ...]
    """The calls that freed it."""


ORIGIN_MEMORY, ORIGIN_LDS, ORIGIN_SCRATCH, ORIGIN_MADE = range(4)
"""Kinds of memory that an undefined value or NaN was in; MADE: none, an operation made it."""


class OriginSource(Message, frozen=True):
    """A load that gave a wave undefined values or NaN, or an operation that made NaN."""

    record: int
    """In the code of the store that uses them, or of the finding."""
    store: int
    """Number of the store that wrote them in the list that this belongs to; 0: nothing did."""
    space: int
    """`ORIGIN_MEMORY` etc."""
    address: int
    """Of the first one."""
    base: int
    """Address of the allocation, if nothing wrote them; 0: none."""
    extent: int
    """Its bytes."""
    allocation: int
    """Its number."""
    memory: AllocationHistory


class OriginStore(Message, frozen=True):
    """A store of undefined values, or of NaN; the first of a list stands for the finding itself."""

    kernel: int
    """Number of its plan; 0: the finding is a copy, whose only source is what it copied."""
    record: int
    launch: int
    """The first one that did this, among the launches of the kernel in the process."""
    space: int
    """`ORIGIN_MEMORY` etc."""
    is_whole: bool
    """Whether `sources` has all."""
    sources: tuple[OriginSource, ...]
    """The loads before it in its wave, of which it may use any; without one its value was in registers that nothing
    wrote."""


class CallSighting(Message, frozen=True):
    """Something that a check of a program's calls of HIP found."""

    kind: int
    """`luthier.findings.kinds.FindingKind`."""
    error: int
    """Returned error; 0 if the sighting is about something else."""
    offset: int
    """Address of the call in its file, relative to where that is loaded."""
    address: int
    """Address of the bytes that the call accesses; 0: none."""
    size: int
    """Number of these bytes."""
    base: int
    """Address of the allocation in which they begin; 0: none."""
    extent: int
    """Its bytes, as requested by the program."""
    has_launch: bool = False
    """Whether a launch failed, described by the other fields; the kernel's symbol follows the name of the error."""
    groups_x: int = 0
    """Work-groups of the grid."""
    groups_y: int = 0
    groups_z: int = 0
    items_x: int = 0
    """Work-items of a work-group."""
    items_y: int = 0
    items_z: int = 0
    lds: int = 0
    """Bytes of dynamic LDS."""
    kernel_lds: int = 0
    kernel_items: int = 0
    """Maximum work-items of a work-group for which the kernel was compiled; 0: unknown, like the next two."""
    device_lds: int = 0
    """Maximum bytes of a work-group."""
    device_items: int = 0
    """Maximum work-items of a work-group."""
    most_groups: int = 0
    """Work-groups of a cooperative launch that fit on the device at once."""


class InFlightSighting(Message, frozen=True):
    """The host's use of memory that an operation in flight uses: enqueued, and not known to have ended."""

    kind: int
    """`luthier.findings.kinds.FindingKind`."""
    address: int
    """First byte that the host uses."""
    size: int
    """Number of bytes, of a call; 0: unknown, an instruction accesses it."""
    writes: bool
    """Whether the host writes them."""
    base: int
    """Address of the allocation in which they are; 0: unknown."""
    extent: int
    """Its bytes, as requested by the program."""
    stream: int
    """Handle of the operation's stream; 0: the null stream."""
    operation_size: int
    """Bytes that the operation copies."""
