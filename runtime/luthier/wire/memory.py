"""Structures in memory that processes of a program share with the service.

Each mapping begins with the digest of `luthier.emulator.agreement`, which whoever maps it compares with its own.
"""

from __future__ import annotations

from luthier.wire.structures import WireStructure

SPACE_HEAD = WireStructure(digest="S64")
"""Beginning of tables in the shared space; records and decoded code follow."""
LEDGER_HEAD = WireStructure(digest="S64", records="u8", reserved="u8[7]")
"""Beginning of the ledger: launches in all; only as many as there is room for are recorded."""
LEDGER_ROW = WireStructure(launches="u8", instrumented="u8", waves="u8[2]", reserved="u8[4]")
"""One for each kernel. Waves: of launches that ran instrumented, if waves have 32 lanes and if they have 64."""
LEDGER_RECORD = WireStructure(
    time="u8",  # when it was written to the queue; nanoseconds since 1970, as all times; 0: not yet
    number="u8",  # among the launches of the kernel
    begin="u8",  # on the device
    end="u8",  # NEVER if the times on the device will not be known
    kernel="u2",  # its row
    instrumented="u2",
    grid="u4[3]",  # work-items
    group_segment="u4",
    private_segment="u4",
    block="u2[3]",
    queue="u2",  # among those of this process
)
"""Record of one launch; one for each follows the rows."""
NEVER = (1 << 64) - 1
"""`end` of a launch whose times on the device will not be known."""
EVENT_HEAD = WireStructure(digest="S64", written="u8", read="u8", reserved="u8[6]")
"""Beginning of the ring of API events: how many the process has written, and the service has read."""
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
