"""Tables of a run folder, which contains only these and ``summary.json``."""

from __future__ import annotations

from msgspec.structs import replace

from luthier.run.tables import Column, Schema


def _columns(**columns: str) -> tuple[Column, ...]:
    """Parse columns given as ``name="type: meaning"``."""
    parts = {name: text.split(": ", 1) for name, text in columns.items()}
    return tuple(Column(name, type, what) for name, (type, what) in parts.items())


def _added(**columns: str) -> tuple[Column, ...]:
    """Return columns that tables of this schema may lack."""
    return tuple(replace(column, added=True) for column in _columns(**columns))


_KERNEL = {
    "kernel": "string: symbol",
    "object": "string: name of the code object: a path, or its place in memory",
    "digest": "string: of the code object; with `kernel` it identifies a kernel in all tables, runs and machines",
}

KERNELS = Schema(
    "kernels",
    "each launched kernel, over all processes and devices; twice if it was selected on some devices only",
    _columns(
        **_KERNEL,
        name="string: of the kernel as in its source, if the symbol is a mangled one",
        target="string: of the code object",
        wave_size="uint32: lanes of a wave",
        vgprs="uint32: vector registers of a wave, including AGPRs if they share a file",
        sgprs="uint32: scalar registers",
        group_segment="uint32: bytes of static LDS of a work-group",
        private_segment="uint32: bytes of scratch of a work-item",
        waves_per_simd="uint32: maximum waves on a SIMD by registers and static LDS",
        patched_vgprs="uint32: `vgprs` of the patched kernel; null if there is none, as for the following columns",
        patched_sgprs="uint32: `sgprs` of the patched kernel",
        patched_waves_per_simd="uint32: `waves_per_simd` of the patched kernel",
        instructions="uint64: of the kernel and the functions it calls",
        added_instructions="uint64: added by patching",
        code_bytes="uint64: of the instructions",
        patched_bytes="uint64: of the patched kernel",
        requested_sites="uint64: instructions at which tools requested hooks",
        sites="uint64: instructions that have the requested hooks",
        hooks="uint64: hooks that were inserted",
        refused_hooks="uint64: hooks that were not",
        unknown_calls="uint64: calls with unknown targets, which run uninstrumented",
        launches="uint64: launches",
        instrumented="uint64: launches that ran the patched kernel",
        covered="bool: every launch ran with every requested hook",
        skipped="bool: the kernel was not selected",
        from_cache="bool: the patched kernel was in the cache",
        reason="string: why the kernel is not instrumented",
    ),
)

LAUNCHES = Schema(
    "launches",
    "each launch, in order for each process",
    _columns(
        process="int64: process ID",
        device="uint32: number of the device; null, like kernel, object and digest, for kernels beyond 65,535",
        queue="uint32: number of the queue in its process",
        **_KERNEL,
        number="uint64: number among the launches of the kernel in its process, from 0",
        instrumented="bool: the launch ran the patched kernel",
        time_ns="int64: time when it was written to the queue, in nanoseconds since 1970",
        begin_ns="int64: start on the device, by the device's time stamps; null if unknown",
        end_ns="int64: end on the device; null if unknown",
        grid_x="uint32: work-items",
        grid_y="uint32: work-items",
        grid_z="uint32: work-items",
        block_x="uint32: work-items of a work-group",
        block_y="uint32: work-items of a work-group",
        block_z="uint32: work-items of a work-group",
        group_segment="uint32: bytes of LDS, including the dynamic part",
        private_segment="uint32: bytes of scratch of a work-item",
    )
    + _added(
        thread="uint32: ID of the thread that wrote it to the queue",
        stack="uint32: number of the host's stack of calls that launched it, in the table `stacks`; null if unknown",
    ),
)

STACKS = Schema(
    "stacks",
    "each stack of the host's calls that launched a kernel",
    _columns(
        process="int64: process ID",
        stack="uint32: its number in the process",
        frames="uint32[]: its frames in the table `frames`, outermost first; of HIP and ROCr only the called function",
        ranges="string[]: the thread's own ranges (roctx), outermost first",
        whole="bool: it begins where the thread begins; otherwise outer calls are unknown",
    ),
)

FRAMES = Schema(
    "frames",
    "each call in these stacks",
    _columns(
        process="int64: process ID",
        frame="uint32: its number in the process",
        python="bool: a Python function",
        function="string: name of the function; empty if unknown",
        file="string: source file; null if unknown",
        line="uint32: source line; 0 if unknown",
        object="string: executable or library that contains the call; null for Python, empty for other code that was "
        "compiled at run time",
        offset="uint64: address of the call in it, relative to where it is loaded; null for Python",
    ),
)

SITES = Schema(
    "sites",
    "each hook and each count that a tool requested",
    _columns(
        **_KERNEL,
        address="uint64: virtual address of the instruction in the code object",
        mnemonic="string: of the instruction",
        text="string: the instruction",
        tool="string: tool that requested it",
        hook="string: name of the hook; null for counts",
        place="string: before or after; null for counts",
        status="string: patched, counted or refused",
        kind="string: of the refusal",
        reason="string: why it was refused",
    ),
)

COUNTERS = Schema(
    "counters",
    "the tools' variables at the end, for each process and device; large ones in parts",
    _columns(
        tool="string: tool that owns it",
        module="string: device module of the tool",
        variable="string: its name",
        process="int64: process ID",
        device="uint32: number of the device",
        type="string: C++ type; empty if unknown",
        bytes="uint64: of the whole variable",
        first="uint64: number of the first element in this row, or of the first byte of `raw`",
        unsigned="uint64[]: the elements, if they are unsigned, bool, or of unknown type in 1, 2, 4 or 8 bytes",
        signed="int64[]: the elements, if they are signed",
        real="float64[]: the elements, if they are floating-point numbers",
        raw="binary: the bytes, otherwise",
    ),
)

COUNTS = Schema(
    "counts",
    "counts without hooks or variables, for each instruction of kernels in which tools requested them",
    _columns(
        **_KERNEL,
        address="uint64: virtual address of the instruction in the code object",
        mnemonic="string: of the instruction",
        block="int32: number of its block; null if it is unreachable",
        executions="uint64: executions by waves; null if not counted",
        active_lanes="uint64: sum of active lanes over these executions; null if not counted",
    ),
)

LISTINGS = Schema(
    "listings",
    "each instruction of kernels passed to tools, and of the functions that they call",
    _columns(
        **_KERNEL,
        address="uint64: virtual address of the instruction in the code object",
        text="string: the instruction",
        kind="string: kind of work: vector, matrix, memory, lds, scalar, scalar memory, control, wait, other",
        block="int32: number of its block",
        file="string: source file; null if debug information lacks it, as for the following columns",
        line="uint32: source line; 0 if the instruction belongs to no line",
        inlined="string: locations of inlined calls that contain it, innermost first; null if there are none",
        live_sgprs="uint16: live scalar registers before the instruction",
        live_vgprs="uint16: live vector registers of active lanes before the instruction",
    )
    + _added(
        user_file="string: file of the user's line to which it is charged: the innermost of `file` and `inlined` "
        "outside of headers of a compiler or of ROCm",
        user_line="uint32: that line; 0 if it belongs to no line",
        user_function="string: name of the function that contains the line; empty if unknown",
    ),
)

BLOCKS = Schema(
    "blocks",
    "each basic block of these kernels, with its successors",
    _columns(
        **_KERNEL,
        block="int32: number in the kernel",
        function="string: name of its function",
        address="uint64: virtual address of its first instruction",
        instructions="uint32: number of instructions",
        depth="uint32: loops that contain it, in its function",
        exit="string: how control leaves it: fallthrough, branch, conditional, call, tail, return, end, trap, unknown",
        successors="int32[]: successors in its function",
        ways="string[]: how each successor is reached: fallthrough, taken, indirect",
    ),
)

CALLS = Schema(
    "calls",
    "calls of HIP functions, and the program's own ranges, in the order of their ends; only if requested",
    _columns(
        process="int64: process ID",
        thread="int64: thread ID",
        name="string: of the function",
        begin_ns="int64: time of the call, in nanoseconds since 1970",
        end_ns="int64: time of the return; null if the process ended before",
        result="int64: returned value; null if unknown",
        arguments="string: integers, addresses and handles among its arguments, by name, as a JSON object",
    )
    + _added(
        api="string: hip; or for roctx ranges: roctx (nested on a thread), roctx.range (not nested), roctx.mark",
    ),
)

TABLES = (KERNELS, LAUNCHES, SITES, COUNTERS, COUNTS, LISTINGS, BLOCKS, CALLS, STACKS, FRAMES)
"""All of these are written; tools may add traces."""
ADDED = frozenset((LISTINGS.name, BLOCKS.name, CALLS.name, STACKS.name, FRAMES.name))
"""Tables that runs of this schema may lack, since they were added later."""
