"""Tables of a run directory, which are all that it holds besides ``summary.json``."""

from __future__ import annotations

from msgspec.structs import replace

from luthier.run.tables import Column, Schema


def _columns(**columns: str) -> tuple[Column, ...]:
    """Return columns given as ``name="type: what it means"``."""
    parts = {name: text.split(": ", 1) for name, text in columns.items()}
    return tuple(Column(name, type, what) for name, (type, what) in parts.items())


def _added(**columns: str) -> tuple[Column, ...]:
    """Return columns that tables of this schema may lack."""
    return tuple(replace(column, added=True) for column in _columns(**columns))


_KERNEL = {
    "kernel": "string: symbol",
    "object": "string: name of the code object: a path, or where it was in memory",
    "digest": "string: of the code object's contents; with `kernel` it names a kernel in all tables, runs and machines",
}

KERNELS = Schema(
    "kernels",
    "each kernel that was launched, over all processes and devices; twice if it was selected on some devices only",
    _columns(
        **_KERNEL,
        name="string: of the kernel as in its source, if the symbol is a mangled one",
        target="string: of the code object",
        wave_size="uint32: lanes of a wave",
        vgprs="uint32: vector registers that a wave has, AGPRs included where they share a file",
        sgprs="uint32: scalar registers",
        group_segment="uint32: bytes of static LDS of a work-group",
        private_segment="uint32: bytes of scratch of a work-item",
        waves_per_simd="uint32: most waves on a SIMD by their registers and static LDS",
        patched_vgprs="uint32: `vgprs` of the patched kernel; null if there is none, as those that follow",
        patched_sgprs="uint32: `sgprs` of it",
        patched_waves_per_simd="uint32: `waves_per_simd` of it",
        instructions="uint64: of the kernel and the functions it calls",
        added_instructions="uint64: by patching",
        code_bytes="uint64: of the instructions",
        patched_bytes="uint64: of the patched kernel",
        requested_sites="uint64: instructions at which tools asked for hooks",
        sites="uint64: those that have them",
        hooks="uint64: hooks that were spliced in",
        refused_hooks="uint64: hooks that were not",
        unknown_calls="uint64: calls that may go where nobody knows: that runs uninstrumented",
        launches="uint64: launches",
        instrumented="uint64: launches that ran the patched kernel",
        covered="bool: every launch ran with every hook that was asked for",
        skipped="bool: it was not selected",
        from_cache="bool: the patched kernel was in the cache",
        reason="string: why it is not instrumented",
    ),
)

LAUNCHES = Schema(
    "launches",
    "each launch, in the order of each process",
    _columns(
        process="int64: its number in the system",
        device="uint32: number of the device; null, as kernel, object and digest, for kernels beyond the first 65,535",
        queue="uint32: number of the queue in its process",
        **_KERNEL,
        number="uint64: among the launches of the kernel in its process, from 0",
        instrumented="bool: it ran the patched kernel",
        time_ns="int64: when it was written to the queue, nanoseconds since 1970",
        begin_ns="int64: when it began on the device, by the device's own time stamps; null if that is not known",
        end_ns="int64: when it ended; null as before",
        grid_x="uint32: work-items",
        grid_y="uint32: work-items",
        grid_z="uint32: work-items",
        block_x="uint32: work-items of a work-group",
        block_y="uint32: work-items of a work-group",
        block_z="uint32: work-items of a work-group",
        group_segment="uint32: bytes of LDS, the dynamic part included",
        private_segment="uint32: bytes of scratch of a work-item",
    ),
)

SITES = Schema(
    "sites",
    "each hook that a tool asked for, and each instruction it wanted counted",
    _columns(
        **_KERNEL,
        address="uint64: virtual address of the instruction in the code object",
        mnemonic="string: of the instruction",
        text="string: the instruction",
        tool="string: who asked",
        hook="string: its name; null where the instruction is counted without one",
        place="string: before or after; null as before",
        status="string: patched, counted or refused",
        kind="string: of the refusal",
        reason="string: why it was refused",
    ),
)

COUNTERS = Schema(
    "counters",
    "the tools' variables at the end, in each process and on each device; of large ones each part",
    _columns(
        tool="string: whose it is",
        module="string: device module of the tool",
        variable="string: its name",
        process="int64: its number in the system",
        device="uint32: number of the device",
        type="string: C++ type; empty if it is not known",
        bytes="uint64: of the whole variable",
        first="uint64: number of the first element in this row, or of the first byte of `raw`",
        unsigned="uint64[]: the elements, if they are unsigned, bool, or of unknown type in 1, 2, 4 or 8 bytes",
        signed="int64[]: if they are signed",
        real="float64[]: if they are floating-point numbers",
        raw="binary: the bytes, if they are anything else",
    ),
)

COUNTS = Schema(
    "counts",
    "what tools had counted without hooks and into no variable: each instruction of such a kernel",
    _columns(
        **_KERNEL,
        address="uint64: virtual address of the instruction in the code object",
        mnemonic="string: of the instruction",
        block="int32: number of its block; null where control does not reach",
        executions="uint64: times that a wave ran it; null if that was not counted",
        active_lanes="uint64: sum of the lanes that were active then; null if that was not counted",
    ),
)

LISTINGS = Schema(
    "listings",
    "each instruction of the kernels that tools were asked for, and of the functions that they call",
    _columns(
        **_KERNEL,
        address="uint64: virtual address of the instruction in the code object",
        text="string: the instruction",
        kind="string: sort of work: vector, matrix, memory, lds, scalar, scalar memory, control, wait, other",
        block="int32: number of its block",
        file="string: where it comes from in the source; null if debug information does not say, as those that follow",
        line="uint32: line of it; 0 if the compiler made it for no line",
        inlined="string: places of the calls that it was inlined by, innermost first; null if it was not",
        live_sgprs="uint16: scalar registers whose values are read later, before it runs",
        live_vgprs="uint16: vector registers whose values are read later in the lanes that are active, before it runs",
    )
    + _added(
        user_file="string: file of the user's line that it is charged to: the innermost of `file` and `inlined` that "
        "is in no header of a compiler or of ROCm",
        user_line="uint32: that line; 0 if it is none in particular",
        user_function="string: name of the function that the line is in; empty if that is not known",
    ),
)

BLOCKS = Schema(
    "blocks",
    "each basic block of these kernels, with the ways out of it",
    _columns(
        **_KERNEL,
        block="int32: its number in the kernel",
        function="string: name of the function that it is in",
        address="uint64: virtual address of its first instruction",
        instructions="uint32: how many it has",
        depth="uint32: loops around it, in its function",
        exit="string: how it is left: fallthrough, branch, conditional, call, tail, return, end, trap, unknown",
        successors="int32[]: blocks of its function that control may go on to",
        ways="string[]: how each of them is reached: fallthrough, taken, indirect",
    ),
)

CALLS = Schema(
    "calls",
    "calls of HIP functions, and the program's own ranges, in the order in which they ended; none unless asked for",
    _columns(
        process="int64: its number in the system",
        thread="int64: the system's number of it",
        name="string: of the function",
        begin_ns="int64: when it was called, nanoseconds since 1970",
        end_ns="int64: when it came back; null if it did not before the process ended",
        result="int64: what it returned; null if that is not known",
        arguments="string: integers, addresses and handles among its arguments, by name, as a JSON object",
    )
    + _added(
        api="string: hip; or the program's own (roctx): roctx, nested on a thread, roctx.range, not nested, roctx.mark",
    ),
)

TABLES = (KERNELS, LAUNCHES, SITES, COUNTERS, COUNTS, LISTINGS, BLOCKS, CALLS)
"""All of these are written; traces of tools may be beside them."""
ADDED = frozenset((LISTINGS.name, BLOCKS.name, CALLS.name))
"""Tables that runs of this schema may lack, since the first Luthiers that wrote it did not have them."""
