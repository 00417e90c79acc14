"""Parts of messages between the processes of a run and its service: what is executed, and what checks find."""

from __future__ import annotations

from typing import Annotated

from luthier.wire.structures import File, Message, PathText

SOCKET_VARIABLE = "LUTHIER_RUN_SOCKET"
"""Environment variable that tells the virtual device where its service is."""
TOOLS_SOCKET_VARIABLE = "LUTHIER_TOOLS_SOCKET"
"""Environment variable that tells the tool library. On GPUs that a run does not make, the virtual device may be that of
another run."""


class MemoryFile(Message, frozen=True):
    """Memory that processes share."""

    size: int
    memory: File


class RecordCounts(Message, frozen=True):
    """Executions of an instruction, and the number of lanes that took part."""

    record: int
    executions: int
    lanes: int


class CodeCounts(Message, frozen=True):
    """Executed instructions of a code."""

    code: int
    records: Annotated[bytes, RecordCounts]


class RunningPlace(Message, frozen=True):
    """An instruction at which waves are that neither wait at a barrier nor have ended."""

    record: int
    groups: int  # work-groups of these waves


class Progress(Message, frozen=True):
    """State of a launch that has not ended."""

    groups: int  # work-groups of the launch
    begun: int  # work-groups that have begun
    running: int  # work-groups that have begun and not ended
    resident: int  # work-groups that the device holds at once
    is_full: bool  # as many run as can, and others have not begun
    repeats: bool  # it is full, and those that run have come back to a state in which they were
    places: tuple[RunningPlace, ...]


class HostCall(Message, frozen=True):
    """A call in the program."""

    offset: int  # address in its file, from where that is loaded
    symbol: PathText
    file: PathText


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
