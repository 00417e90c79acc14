"""Requests of the tool library to the service of a run. The first of a connection is `Instrument`."""

from __future__ import annotations

from typing import Annotated

from luthier.wire.messages import MemoryFile
from luthier.wire.structures import File, ForeignText, Message, request


class Wishes(Message, frozen=True):
    """Launches that are to run instrumented, and events that tools want reported."""

    first: int  # number of the first launch of each kernel that runs instrumented
    end: int
    step: int
    unique_grid: bool  # of launches that differ in nothing but their number, the first one only
    launches: bool  # launches run one after the other on each device, and are reported before and after
    code_objects: bool
    ranges: bool  # marks and ranges of roctx are reported
    rows: int  # kernels that the ledger has room for
    records: int  # launches that the ledger has room for
    hsa: tuple[str, ...]  # patterns of functions of HSA
    hip: tuple[str, ...]  # patterns of functions of HIP
    memory: tuple[str, ...]  # patterns of what becomes of memory that the program has of HIP
    ledger: File


@request(19, Wishes)
class Instrument(Message, frozen=True):
    """Begin of a connection."""

    digest: str  # that of `luthier.emulator.agreement`
    command: ForeignText  # command line of the process, its parts separated by blanks


@request(20, int)
class SendObject(Message, frozen=True):
    """A code object: the file that the URI names, or the contents."""

    uri: ForeignText
    contents: bytes


class Limits(Message, frozen=True):
    """Limits of what a launch of a patched kernel may ask for."""

    private_segment: int
    group_segment: int
    work_items: int


class FindKernelAnswer(Message, frozen=True):
    """A kernel."""

    row: int  # row in the ledger
    arguments: int  # bytes of arguments that are to be read at a launch
    name: str
    symbol: str  # symbol of the descriptor
    object: bytes  # patched code object; empty: the original runs
    blocks: tuple[str, ...]  # symbols of the blocks of variables that the patched object refers to
    limits: Limits


@request(21, FindKernelAnswer)
class FindKernel(Message, frozen=True):
    """A kernel that is launched for the first time."""

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
    """A block of variables that a patched object refers to."""

    gpu: int
    symbol: str


@request(23)
class Loaded(Message, frozen=True):
    """A patched object that has been loaded."""

    row: int
    delta: int  # value that was added to its addresses
    original_delta: int  # value that was added to the original's
    blocks: tuple[int, ...]  # addresses of its blocks of variables


@request(24)
class ObjectLoaded(Message, frozen=True):
    """A code object that has been loaded on a device."""

    gpu: int
    object: int


class LaunchAnswer(Message, frozen=True):
    """Treatment of a launch that is about to begin."""

    instrumented: bool
    capture: int  # bytes of memory that it may have if it is to be captured; 0: it is not
    arguments: int  # bytes of its arguments, the hidden ones among them


@request(25, LaunchAnswer)
class LaunchRequest(Message, frozen=True):
    """A launch that is about to begin."""

    gpu: int
    row: int
    number: int  # number among the launches of the kernel
    chosen: bool  # true if it is to run instrumented
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
    """Addresses, and where their contents are in a file; where pages begin, pages begin there, too."""

    address: int
    size: int
    offset: int


@request(27)
class LaunchMemory(Message, frozen=True):
    """Memory that a launch may access, where it is captured."""

    gpu: int
    row: int
    number: int
    is_after: bool  # true when the launch has ended
    kernarg: int  # address of the arguments
    queue: int  # address of the queue
    load_address: int  # value that is added to the virtual addresses of the kernel's code object
    id: int  # number of the packet in its queue
    cooperative: bool
    device: str  # name of the device's target
    ranges: Annotated[bytes, MemoryRange]
    contents: File


@request(28)
class LaunchUnread(Message, frozen=True):
    """A launch whose memory cannot be read, where it was to be captured."""

    gpu: int
    row: int
    number: int
    problem: ForeignText  # why it cannot be read


class ApiValue(Message, frozen=True):
    """An argument, or what a pointer points at when the function has returned."""

    is_signed: bool
    name: str

    def of(self, word: int) -> int:
        """Return the integer in 64 bits."""
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
    """Functions that there will be events of; the reply is the memory for events."""

    functions: tuple[ApiFunction, ...]


@request(30)
class Drain(Message, frozen=True):
    """Events are to be taken, so that there is room for others."""


@request(31)
class Fault(Message, frozen=True):
    """An error in the process, for the end of the run."""

    text: ForeignText
