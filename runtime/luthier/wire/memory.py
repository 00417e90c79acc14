"""Structures in memory that processes of a program share with the service.

Each mapping begins with the digest of `luthier.emulator.agreement`, which the other side compares with its own.
"""

from __future__ import annotations

from luthier.wire.structures import WireStructure

SPACE_HEAD = WireStructure(digest="S64")
"""Beginning of tables in the shared space; records and decoded code follow."""
CHECK_TALLY = WireStructure(
    digest="S64",
    launches="u8",  # launches of the program's kernels
    observed="u8",  # those of them in which checks observed each access
    nanoseconds="u8",  # duration of all
    observed_nanoseconds="u8",  # … and of the observed ones
    left="u8",  # launches that ran unobserved for lack of time
    allocations="u8",
    bytes="u8",  # of these allocations
    reserved="u8",
)
"""What the processes of a program have checked so far."""
LEDGER_HEAD = WireStructure(digest="S64", records="u8", reserved="u8[7]")
"""Beginning of the ledger: number of launches, of which only those that fit are recorded."""
LEDGER_ROW = WireStructure(launches="u8", instrumented="u8", waves="u8[2]", reserved="u8[4]")
"""One for each kernel. Waves: those of instrumented launches, with 32 and with 64 lanes."""
LEDGER_RECORD = WireStructure(
    time="u8",  # when it was written to the queue, in nanoseconds since 1970 like all times; 0: not yet
    number="u8",  # number among the launches of the kernel
    begin="u8",  # on the device
    end="u8",  # NEVER if the times on the device stay unknown
    kernel="u2",  # its row
    instrumented="u2",
    grid="u4[3]",  # work-items
    group_segment="u4",
    private_segment="u4",
    block="u2[3]",
    queue="u2",  # number among those of this process
    stack="u4",  # host stack that launched it; 0: unknown
    thread="u4",  # thread that wrote it to the queue
)
"""Record of one launch; the records follow the rows."""
NEVER = (1 << 64) - 1
"""`end` of a launch whose times on the device stay unknown."""
EVENT_HEAD = WireStructure(digest="S64", written="u8", read="u8", reserved="u8[6]")
"""Beginning of the ring of API events: numbers of events written by the process and read by the service."""
EVENT_RECORD = WireStructure(
    time="u8",  # nanoseconds since 1970
    call="u8",  # its number in this process
    thread="u4",
    function="u4",
    is_exit="u2",
    has_result="u2",
    count="u2",  # of values
    reserved="u2",
    result="u8",
    values="u8[27]",
)
"""The begin or the end of a call of an API function."""
