"""Requests of the tool library to the service of a run. The first of a connection is `Instrument`."""

from __future__ import annotations

from typing import Annotated

from luthier.wire.messages import ChosenLaunches, MemoryFile
from luthier.wire.structures import File, ForeignText, Message, PathText, request


class Wishes(Message, frozen=True):
    """Launches to instrument, and events that tools observe."""

    chosen: ChosenLaunches  # of a patched kernel
    launches: bool  # launches on a device do not overlap, and are reported before and after
    code_objects: bool
    ranges: bool  # marks and ranges of roctx are reported
    stacks: bool  # the host's stack of each launch is recorded
    rows: int  # capacity of the ledger for kernels
    records: int  # capacity of the ledger for launches
    hsa: tuple[str, ...]  # patterns of HSA functions
    hip: tuple[str, ...]  # patterns of HIP functions
    memory: tuple[str, ...]  # patterns of events of memory allocated with HIP
    ledger: File


@request(19, Wishes)
class Instrument(Message, frozen=True):
    """Beginning of a connection."""

    digest: str  # digest of `luthier.emulator.agreement`
    command: ForeignText  # command line of the process, separated by blanks


@request(20, int)
class SendObject(Message, frozen=True):
    """A code object: the file that the URI names, or the contents."""

    uri: ForeignText
    contents: bytes


class Limits(Message, frozen=True):
    """Limits for launches of a patched kernel."""

    private_segment: int
    group_segment: int
    work_items: int


class FindKernelAnswer(Message, frozen=True):
    """A kernel."""

    row: int  # row in the ledger
    arguments: int  # bytes of arguments to read at a launch
    name: str
    symbol: str  # symbol of the descriptor
    object: bytes  # patched code object; empty: the original runs
    blocks: tuple[str, ...]  # symbols of the blocks of variables that the patched object references
    limits: Limits


@request(21, FindKernelAnswer)
class FindKernel(Message, frozen=True):
    """A kernel's first launch."""

    gpu: int
    object: int
    descriptor: int  # its virtual address


class FindBlockAnswer(Message, frozen=True):
    """Memory for a block of variables."""

    size: int
    rings: tuple[int, ...]  # offsets of the rings of channels, in bytes
    memory: File


@request(22, FindBlockAnswer)
class FindBlock(Message, frozen=True):
    """A block of variables that a patched object references."""

    gpu: int
    symbol: str


@request(23)
class Loaded(Message, frozen=True):
    """A patched object that has been loaded."""

    row: int
    delta: int  # offset added to its addresses
    original_delta: int  # offset added to the original's
    blocks: tuple[int, ...]  # addresses of its blocks of variables


@request(24)
class ObjectLoaded(Message, frozen=True):
    """A code object that has been loaded on a device."""

    gpu: int
    object: int


class LaunchAnswer(Message, frozen=True):
    """Treatment of a launch that is about to begin."""

    instrumented: bool
    capture: int  # limit in bytes for its memory if it is captured; 0: it is not
    arguments: int  # bytes of its arguments, including hidden ones


@request(25, LaunchAnswer)
class LaunchRequest(Message, frozen=True):
    """A launch that is about to begin."""

    gpu: int
    row: int
    number: int  # number among the launches of the kernel
    chosen: bool  # selected to run instrumented
    grid_x: int
    grid_y: int
    grid_z: int
    block_x: int
    block_y: int
    block_z: int
    group_segment: int
    private_segment: int
    arguments: bytes  # contents of the arguments; empty if they could not be read


@request(26)
class LaunchEnd(Message, frozen=True):
    """A launch that has ended."""

    gpu: int
    row: int
    number: int


class MemoryRange(Message, frozen=True):
    """Addresses and the place of their contents in a file, with the same alignment to pages."""

    address: int
    size: int
    offset: int


@request(27)
class LaunchMemory(Message, frozen=True):
    """Memory that a captured launch may access."""

    gpu: int
    row: int
    number: int
    is_after: bool  # true when the launch has ended
    kernarg: int  # address of the arguments
    queue: int  # address of the queue
    load_address: int  # offset added to virtual addresses of the kernel's code object
    id: int  # number of the packet in its queue
    cooperative: bool
    device: str  # name of the device's target
    ranges: Annotated[bytes, MemoryRange]
    contents: File


@request(28)
class LaunchUnread(Message, frozen=True):
    """A launch that cannot be captured, since its memory cannot be read."""

    gpu: int
    row: int
    number: int
    problem: ForeignText  # why it cannot be read


class ApiValue(Message, frozen=True):
    """An argument, or the pointee of a pointer after the function has returned."""

    is_signed: bool
    name: str

    def of(self, word: int) -> int:
        """Return the value of a 64-bit word."""
        return word - (1 << 64) if self.is_signed and word >> 63 else word


class ApiFunction(Message, frozen=True):
    """A function of an API."""

    result_is_signed: bool
    api: str  # one of `luthier.run.events.APIS` or `luthier.run.events.RANGES`
    name: ForeignText
    arguments: tuple[ApiValue, ...]
    outputs: tuple[ApiValue, ...]


@request(29, MemoryFile)
class Functions(Message, frozen=True):
    """Functions whose events will follow; the reply is the memory for events."""

    functions: tuple[ApiFunction, ...]


@request(30)
class Drain(Message, frozen=True):
    """Request to take events, to make room for others."""


class StackFrame(Message, frozen=True):
    """A call in a file, or a Python function at a line."""

    is_python: bool
    file: PathText
    name: ForeignText  # of a Python function
    place: int  # address in the file, relative to where that is loaded; or the line, 0: unknown


class FrameNumber(Message, frozen=True):
    """A frame, by number among those of its process."""

    number: int


@request(36)
class NewStack(Message, frozen=True):
    """A stack of the host that launched a kernel, with the frames that no earlier one has."""

    number: int  # number among those of the process, from 1
    is_whole: bool  # it reaches the beginning of the thread
    frames: tuple[StackFrame, ...]  # new ones, numbered consecutively from 0
    stack: Annotated[bytes, FrameNumber]  # innermost first
    ranges: tuple[ForeignText, ...]  # the thread's own ranges of roctx, outermost first


@request(31)
class Fault(Message, frozen=True):
    """An error in the process, reported at the end of the run."""

    text: ForeignText
