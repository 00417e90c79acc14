"""Requests of the virtual device to the service of a run. The first of a connection is `Hello`."""

from __future__ import annotations

from luthier.wire.messages import (
    AllocationHistory,
    CallSighting,
    ChosenLaunches,
    CodeCounts,
    HostCall,
    InFlightSighting,
    MemoryFile,
    OriginStore,
    Progress,
    Sighting,
)
from luthier.wire.structures import File, ForeignText, Message, PathText, request


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
    target: str


class Setup(Message, frozen=True):
    """Common properties of all virtual devices, and the devices."""

    base: int  # address of the shared space in every process
    size: int
    code_size: int  # bytes of the space that are machine code; a `luthier.wire.memory.SPACE_HEAD` follows
    imports: int  # address of this process's pointers to C functions
    shared_base: int  # aperture of LDS
    private_base: int  # aperture of scratch
    counts_wanted: bool
    capture_patience: int
    """Milliseconds that launches wait for a captured one to end; 0: no captures are wanted."""
    races: bool  # check for races
    uninitialised: bool  # check for reads of memory that was never written
    barriers: bool  # check for barriers that waves or lanes miss
    floats_flow: bool  # report exceptional floats also for exceptional operands
    undefined: bool  # track undefined values
    in_flight: bool  # check for the host's uses of memory that operations in flight use
    findings: bool  # findings of any check are wanted
    projected: bool  # launches are measured for projections
    constants: bytes  # inline constants of instructions
    gpus: tuple[Gpu, ...]
    space: File


@request(1, Setup)
class Hello(Message, frozen=True):
    """Beginning of a connection."""

    digest: str  # digest of `luthier.emulator.agreement`


class Bounds(Message, frozen=True):
    """A variable of a code object; without bytes, unused memory before the first one."""

    address: int
    size: int
    reserved: int  # bytes from its address that belong to nothing else


class PlanAnswer(Message, frozen=True):
    """A plan."""

    address: int  # 0: there is none
    variables: tuple[Bounds, ...]  # variables of the code object, if bounds are checked


@request(2, PlanAnswer)
class Plan(Message, frozen=True):
    """A kernel that is about to run."""

    gpu: int
    kernel: int  # address of the descriptor
    load_address: int
    is_file: bool  # true if the contents are the file that the URI names (or empty), not memory
    descriptor: bytes
    uri: ForeignText
    contents: bytes


@request(3)
class Bind(Message, frozen=True):
    """A record that a kernel reaches."""

    kernel: int
    key: int
    record: int


@request(4, int)
class Outside(Message, frozen=True):
    """An address outside of a kernel's own code to which it jumps."""

    kernel: int
    gpu: int
    code: int  # address of the first byte of the kernel's code
    address: int
    load_address: int  # address of the object that the address is in
    is_file: bool  # true if the contents are the file that the URI names (or empty), not memory
    uri: ForeignText
    contents: bytes


@request(5, str)
class Explain(Message, frozen=True):
    """A fault."""

    kernel: int
    reason: int
    launch: int  # number among the launches of the kernel in the process
    context: bytes
    group: bytes  # bytes of the work-group
    waves: bytes
    ranges: bytes  # allocation table: `luthier.emulator.layout.RANGE`s


@request(6, int)
class Share(Message, frozen=True):
    """Memory to which other processes may attach."""

    size: int
    memory: File


@request(7)
class Unshare(Message, frozen=True):
    """Memory to which other processes may no longer attach."""

    name: int


@request(8, MemoryFile)
class Attach(Message, frozen=True):
    """Memory that another process shares."""

    name: int


@request(9)
class Counts(Message, frozen=True):
    """Instructions that the process has executed."""

    is_all: bool  # true at the end of the process
    codes: tuple[CodeCounts, ...]


@request(10)
class Hot(Message, frozen=True):
    """Instructions that the process has executed often."""

    codes: tuple[CodeCounts, ...]


@request(11)
class Running(Message, frozen=True):
    """A long-running launch."""

    kernel: int  # number of its plan
    seconds: int
    others: int  # other launches of the process that run
    is_due: bool  # a progress line is due
    progress: Progress
    """Without work-groups: the process has no long-running launch any more; other fields are unused."""
    executed: tuple[CodeCounts, ...]  # instructions of its code that the process has executed, if it is due


@request(12, bool)
class CaptureRequest(Message, frozen=True):
    """A launch that may be captured and waits for the reply before it begins."""

    gpu: int
    plan: int  # number of the kernel's plan
    packet_address: int
    queue: int  # address of the packet's `amd_queue_t`
    code: int  # address of the code's first byte
    id: int  # number of the packet in its queue
    cooperative: bool
    packet: bytes
    ranges: bytes  # allocation table: `luthier.emulator.layout.RANGE`s
    aliases: bytes  # its `luthier.emulator.layout.ALIAS`es


@request(13)
class Captured(Message, frozen=True):
    """The end of a captured launch."""

    failed: bool
    outside: bool  # it ran code of other objects
    beside: int  # launches that ran beside it
    before: tuple[CodeCounts, ...]  # instructions that the process had executed when it began
    after: tuple[CodeCounts, ...]  # instructions that the process had executed when it ended


@request(14, bytes)
class Follow(Message, frozen=True):
    """A step of the hazard automaton that a wave makes for the first time."""

    kernel: int  # number of its plan
    state: int
    record: int


@request(15)
class Watched(Message, frozen=True):
    """A launch that has ended, with missing waits or hazards."""

    kernel: int  # number of its plan
    launch: int  # number among the launches of the kernel in the process
    found: bytes  # `luthier.emulator.layout.FOUND`s
    met: bytes  # `luthier.emulator.layout.MET`s


@request(16)
class Found(Message, frozen=True):
    """A finding in the program's memory."""

    sighting: Sighting
    calls: tuple[HostCall, ...]  # calls that caused it, innermost first
    memory: AllocationHistory
    origins: tuple[OriginStore, ...]  # of an undefined value; none: not known


@request(17)
class FoundCall(Message, frozen=True):
    """A finding in the program's calls of HIP."""

    sighting: CallSighting
    function: PathText
    symbol: PathText  # symbol that contains the call
    file: PathText
    memory: AllocationHistory
    origins: tuple[OriginStore, ...]  # of an undefined value; none: not known


@request(18)
class FoundCopy(Message, frozen=True):
    """A race of a kernel with a copy."""

    sighting: Sighting
    function: PathText  # HIP function that copies
    symbol: PathText  # symbol that contains its call
    file: PathText


@request(37)
class FoundInFlight(Message, frozen=True):
    """The host's use of memory that an operation in flight uses."""

    sighting: InFlightSighting
    calls: tuple[HostCall, ...]  # the access, and the calls that lead to it, innermost first
    function: PathText  # that uses the memory for the program; "": an instruction of the program
    operation: PathText  # HIP function that enqueued the operation
    enqueued: tuple[HostCall, ...]  # its calls, innermost first
    memory: AllocationHistory


class SampledPart(Message, frozen=True):
    """Work-groups of one size, all of one sample of a launch or of its rest."""

    sample: int  # 0: the rest, which is not measured; samples count from 1
    first_x: int  # id of the first work-group
    first_y: int
    first_z: int
    groups_x: int
    groups_y: int
    groups_z: int
    items_x: int  # work-items of a work-group
    items_y: int
    items_z: int


class SampledLaunch(Message, frozen=True):
    """The way in which a launch is measured."""

    number: int  # of all launches that are alike; 0: they are not counted
    model: bytes  # `luthier.emulator.layout.COST_MODEL`; empty: it is not measured
    parts: tuple[SampledPart, ...]  # of the whole grid


@request(33, SampledLaunch)
class SampleLaunch(Message, frozen=True):
    """The first launch of a kernel with these sizes in a process."""

    gpu: int
    kernel: int  # number of its plan
    grid_x: int  # work-items
    grid_y: int
    grid_z: int
    block_x: int
    block_y: int
    block_z: int
    lds: int  # bytes of a work-group
    scratch: int  # bytes of a work-item
    cooperative: bool


class SampleCost(Message, frozen=True):
    """Counts and costs of the accesses of a sample."""

    groups: int
    waves: int
    executed: tuple[CodeCounts, ...]
    costs: bytes  # rows of `luthier.emulator.running.executor.ACCESS_COSTS`


@request(34)
class Sampled(Message, frozen=True):
    """A measured launch that has ended."""

    number: int
    problem: str  # why it was not measured; empty: it was
    samples: tuple[SampleCost, ...]


class AlikeLaunches(Message, frozen=True):
    """Launches that ended since the last report."""

    number: int
    launches: int


@request(35)
class LaunchesEnded(Message, frozen=True):
    """Launches since the last report, by what they are alike to."""

    is_all: bool  # true at the end of the process
    alike: tuple[AlikeLaunches, ...]


class CheckedLaunches(Message, frozen=True):
    """Launches that checks observe, and memory in which the process counts them."""

    chosen: ChosenLaunches  # of an observed kernel
    budget: int  # milliseconds that observed launches may take, besides the first of each size; 0: no limit
    tally: File  # `luthier.wire.memory.CHECK_TALLY`


@request(32, CheckedLaunches)
class ChooseLaunches(Message, frozen=True):
    """Question of a process whose launches are checked."""
