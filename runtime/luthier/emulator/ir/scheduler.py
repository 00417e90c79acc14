"""The compiled scheduler: starts work-groups and runs their waves until something needs Python.

``i32 scheduler(ptr context, ptr group)`` runs work-groups one after another, the waves of each round robin: a wave
runs until it ends, reaches a barrier, or has used its quantum of backward branches. It returns when a work-group has
used its slice, so that others may have a turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from luthier.emulator import layout
from luthier.emulator.ir.exact import I8, I32, I64, PTR
from luthier.emulator.ir.wave import NEXT
from luthier.isa.registers import EXEC_LO, FLAT_SCRATCH_SGPR, TTMPS
from luthier.wire.structures import Layout

_LINE = ir.VectorType(I32, 32)


class Code:
    """Short names for the few things the scheduler does."""

    def __init__(self, function: ir.Function) -> None:
        self.function = function
        self.ir = ir.IRBuilder(function.append_basic_block("entry"))

    def number(self, value: int, type: ir.Type = I64) -> Any:
        """Return a constant."""
        return ir.Constant(type, value)

    def at(self, base: Any, offset: Any) -> Any:
        """Return `base` plus bytes."""
        index = self.number(offset) if isinstance(offset, int) else offset
        return self.ir.gep(base, [index], source_etype=I8)

    def get(self, structure: Layout, base: Any, name: str) -> Any:
        """Return a field, as i64 whatever its size."""
        field = structure.fields[name]
        value = self.ir.load(self.at(base, field.offset), typ=ir.IntType(8 * field.size))
        return value if field.size == 8 else self.ir.zext(value, I64)

    def set(self, structure: Layout, base: Any, name: str, value: Any) -> None:
        """Write a field, from an i64 or a number."""
        field = structure.fields[name]
        if isinstance(value, int):
            value = self.number(value)
        if field.size < 8:
            value = self.ir.trunc(value, ir.IntType(8 * field.size))
        self.ir.store(value, self.at(base, field.offset))

    def pointer(self, structure: Layout, base: Any, name: str) -> Any:
        """Return a field that is an address."""
        return self.ir.load(self.at(base, structure[name]), typ=PTR)

    def store_word(self, base: Any, offset: Any, value: Any) -> None:
        """Write the low 32 bits of `value`."""
        self.ir.store(self.ir.trunc(value, I32), self.at(base, offset), align=4)

    def is_equal(self, left: Any, right: int) -> Any:
        """Return whether an i64 is the number."""
        return self.ir.icmp_unsigned("==", left, self.number(right))

    @contextmanager
    def loop(self, first: Any, count: Any) -> Iterator[Any]:
        """Emit code for each number from `first` below `count`."""
        head = self.function.append_basic_block("head")
        body = self.function.append_basic_block("body")
        done = self.function.append_basic_block("done")
        before = self.ir.block
        self.ir.branch(head)
        self.ir.position_at_end(head)
        index = self.ir.phi(I64)
        index.add_incoming(first, before)
        self.ir.cbranch(self.ir.icmp_unsigned("<", index, count), body, done)
        self.ir.position_at_end(body)
        yield index
        index.add_incoming(self.ir.add(index, self.number(1)), self.ir.block)
        self.ir.branch(head)
        self.ir.position_at_end(done)

    def copy(self, target: Any, source: Any, size: Any) -> None:
        """Copy `size` bytes."""
        callee = self._declare("llvm.memcpy.p0.p0.i64", [PTR, PTR, I64, ir.IntType(1)])
        self.ir.call(callee, [target, source, size, ir.Constant(ir.IntType(1), 0)])

    def clear(self, target: Any, size: Any) -> None:
        """Emit zeros over `size` bytes."""
        self.fill(target, size, 0)

    def fill(self, target: Any, size: Any, byte: int) -> None:
        """Fill `size` bytes."""
        callee = self._declare("llvm.memset.p0.i64", [PTR, I8, I64, ir.IntType(1)])
        self.ir.call(callee, [target, ir.Constant(I8, byte), size, ir.Constant(ir.IntType(1), 0)])

    def clear_lines(self, target: Any, size: Any) -> None:
        """Emit zeros over `size` bytes, a multiple of 128: most sizes are too small for a call."""
        with self.loop(self.number(0), self.ir.lshr(size, self.number(7))) as line:
            place = self.at(target, self.ir.shl(line, self.number(7)))
            self.ir.store(ir.Constant(_LINE, None), place, align=64)

    def copy_lines(self, target: Any, source: Any, size: Any) -> None:
        """Copy `size` bytes, a multiple of 128."""
        with self.loop(self.number(0), self.ir.lshr(size, self.number(7))) as line:
            offset = self.ir.shl(line, self.number(7))
            self.ir.store(self.ir.load(self.at(source, offset), typ=_LINE, align=8), self.at(target, offset), align=64)

    def _declare(self, name: str, arguments: list[ir.Type]) -> Any:
        module = self.function.module
        return module.globals.get(name) or ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)


def emit_scheduler(module: ir.Module, name: str) -> None:
    """Add the scheduler to `module`."""
    start = _emit_start(module)
    function = ir.Function(module, NEXT, name)
    c = Code(function)
    context, group = function.args
    launch = c.pointer(layout.CONTEXT, context, "launch")
    again = function.append_basic_block("again")
    fresh = function.append_basic_block("fresh")
    sweep = function.append_basic_block("sweep")
    c.ir.branch(again)

    c.ir.position_at_end(again)
    active = c.get(layout.GROUP, group, "active")
    c.ir.cbranch(c.is_equal(active, 0), fresh, sweep)

    c.ir.position_at_end(fresh)
    _return_if_aborted(c, launch)
    number = c.ir.atomic_rmw("add", c.at(launch, layout.LAUNCH["next_group"]), c.number(1), "monotonic")
    none_left = c.ir.icmp_unsigned(">=", number, c.get(layout.LAUNCH, launch, "group_count"))
    with c.ir.if_then(none_left):
        c.ir.ret(ir.Constant(I32, layout.DONE))
    c.set(layout.GROUP, group, "number", _from_end(c, launch, number, c.get(layout.LAUNCH, launch, "group_count")))
    c.ir.call(start, [launch, group])
    c.set(layout.CONTEXT, context, "resume", 0)
    c.ir.branch(sweep)

    c.ir.position_at_end(sweep)
    c.set(layout.GROUP, group, "progress", 0)
    first = c.get(layout.CONTEXT, context, "resume")
    with c.loop(first, c.get(layout.GROUP, group, "wave_count")) as index:
        _turn(c, context, launch, group, index)
    c.set(layout.CONTEXT, context, "resume", 0)
    with c.ir.if_then(c.is_equal(c.get(layout.GROUP, group, "live"), 0)):
        c.set(layout.GROUP, group, "active", 0)
        c.ir.branch(again)
    # A sweep that began in the middle (after a return to Python) proves nothing about the waves before it.
    idle = c.ir.and_(c.is_equal(c.get(layout.GROUP, group, "progress"), 0), c.is_equal(first, 0))
    with c.ir.if_then(c.ir.and_(idle, c.is_equal(c.get(layout.LAUNCH, launch, "cooperative"), 0))):
        c.ir.ret(ir.Constant(I32, layout.DEADLOCK))
    steps = c.get(layout.GROUP, group, "steps")
    used = c.ir.sub(steps, c.get(layout.GROUP, group, "slice_begin"))
    given = c.ir.load_atomic(c.at(launch, layout.LAUNCH["slice"]), "monotonic", 8, typ=I64)  # it may become less
    with c.ir.if_then(c.ir.icmp_unsigned(">=", used, given), likely=False):
        c.set(layout.GROUP, group, "slice_begin", steps)
        _return_if_aborted(c, launch)
        c.ir.ret(ir.Constant(I32, layout.SWITCH))
    c.ir.branch(again)


def _from_end(c: Code, launch: Any, number: Any, count: Any) -> Any:
    """Return a number below `count`, of a launch that goes backward counted from the end."""
    backward = c.is_equal(c.get(layout.LAUNCH, launch, "backward"), 1)
    return c.ir.select(backward, c.ir.sub(c.ir.sub(count, c.number(1)), number), number)


def _return_if_aborted(c: Code, launch: Any) -> None:
    abort = c.ir.load_atomic(c.at(launch, layout.LAUNCH["abort"]), "monotonic", 4, typ=I32)
    with c.ir.if_then(c.ir.icmp_unsigned("!=", abort, ir.Constant(I32, 0)), likely=False):
        c.ir.ret(ir.Constant(I32, layout.STOP))


def _turn(c: Code, context: Any, launch: Any, group: Any, index: Any) -> None:
    """Run wave `index` if it is ready, and act on why it stopped."""
    stride = c.get(layout.GROUP, group, "wave_stride")
    place = _from_end(c, launch, index, c.get(layout.GROUP, group, "wave_count"))
    wave = c.at(c.pointer(layout.GROUP, group, "waves"), c.ir.mul(place, stride))
    ready = c.is_equal(c.get(layout.WAVE, wave, "status"), layout.READY)
    with c.ir.if_then(ready):
        # A wave that is stepped comes here for every instruction: its quantum goes on until it is used up.
        left, full = c.get(layout.CONTEXT, context, "budget"), c.get(layout.LAUNCH, launch, "quantum")
        stepped = c.is_equal(c.get(layout.WAVE, wave, "stepping"), layout.STEPPING)
        going_on = c.ir.and_(stepped, c.ir.icmp_signed(">=", left, c.number(0)))
        given = c.ir.select(going_on, left, full)
        c.set(layout.CONTEXT, context, "budget", given)
        c.ir.store(wave, c.at(context, layout.CONTEXT["current"]))
        unseen = c.ir.icmp_unsigned("!=", c.get(layout.WAVE, wave, "unseen"), c.number(0))
        with c.ir.if_then(unseen, likely=False):
            c.set(layout.WAVE, wave, "unseen", 0)
            c.set(layout.CONTEXT, context, "resume", index)
            c.ir.ret(ir.Constant(I32, layout.STEP))
        record = c.pointer(layout.WAVE, wave, "pc")
        function = c.ir.load(record, typ=NEXT.as_pointer())
        code = c.ir.call(function, [wave, record])
        elsewhere = c.ir.icmp_unsigned("!=", c.get(layout.WAVE, wave, "pc"), c.ir.ptrtoint(record, I64))
        moved = c.ir.or_(elsewhere, c.ir.icmp_unsigned("!=", code, ir.Constant(I32, layout.RETRY)))
        progress = c.ir.or_(c.get(layout.GROUP, group, "progress"), c.ir.zext(moved, I64))
        c.set(layout.GROUP, group, "progress", progress)
        names = ("yielded", "barrier", "retry", "ended", "other", "spent", "after")
        blocks = {key: c.function.append_basic_block(key) for key in names}
        switch = c.ir.switch(code, blocks["other"])
        for value, key in (
            (layout.YIELD, "yielded"),
            (layout.BARRIER, "barrier"),
            (layout.RETRY, "retry"),
            (layout.END, "ended"),
        ):
            switch.add_case(ir.Constant(I32, value), blocks[key])

        c.ir.position_at_end(blocks["yielded"])
        c.ir.branch(blocks["spent"])

        c.ir.position_at_end(blocks["barrier"])
        c.set(layout.WAVE, wave, "status", layout.WAITING)
        c.set(layout.GROUP, group, "waiting", c.ir.add(c.get(layout.GROUP, group, "waiting"), c.number(1)))
        used = c.ir.sub(c.ir.add(given, c.number(1)), c.get(layout.CONTEXT, context, "budget"))
        c.ir.branch(blocks["spent"])

        c.ir.position_at_end(blocks["retry"])
        c.ir.branch(blocks["spent"])

        # A loop of barriers uses up no quantum, but must end too.
        c.ir.position_at_end(blocks["spent"])
        cost = c.ir.phi(I64)
        for key, amount in (("yielded", full), ("barrier", used), ("retry", c.number(1))):
            cost.add_incoming(amount, blocks[key])
        steps = c.ir.add(c.get(layout.GROUP, group, "steps"), cost)
        c.set(layout.GROUP, group, "steps", steps)
        _return_if_aborted(c, launch)
        over = c.ir.icmp_unsigned(">", steps, c.get(layout.LAUNCH, launch, "step_limit"))
        with c.ir.if_then(over, likely=False):
            c.set(layout.CONTEXT, context, "resume", index)
            c.ir.ret(ir.Constant(I32, layout.RUNAWAY))
        c.ir.branch(blocks["after"])

        c.ir.position_at_end(blocks["ended"])
        c.set(layout.WAVE, wave, "status", layout.ENDED)
        c.set(layout.GROUP, group, "live", c.ir.sub(c.get(layout.GROUP, group, "live"), c.number(1)))
        c.ir.branch(blocks["after"])

        c.ir.position_at_end(blocks["other"])
        c.set(layout.CONTEXT, context, "resume", index)
        c.ir.ret(code)

        c.ir.position_at_end(blocks["after"])
        # Waves that ended no longer count: the barrier opens when every live wave waits.
        waiting = c.get(layout.GROUP, group, "waiting")
        together = c.ir.icmp_unsigned("==", waiting, c.get(layout.GROUP, group, "live"))
        some = c.ir.icmp_unsigned("!=", waiting, c.number(0))
        with c.ir.if_then(c.ir.and_(together, some)):
            c.set(layout.GROUP, group, "waiting", 0)
            with c.loop(c.number(0), c.get(layout.GROUP, group, "wave_count")) as other:
                waiter = c.at(c.pointer(layout.GROUP, group, "waves"), c.ir.mul(other, stride))
                status = c.get(layout.WAVE, waiter, "status")
                freed = c.ir.select(c.is_equal(status, layout.WAITING), c.number(layout.READY), status)
                c.set(layout.WAVE, waiter, "status", freed)


def _leave_undefined(c: Code, launch: Any, start: Any, size: Any) -> None:
    """Let memory count as written by nobody, whatever it holds, if undefined values are followed."""
    base = c.get(layout.LAUNCH, launch, "undefined")
    with c.ir.if_then(c.ir.icmp_unsigned("!=", base, c.number(0))):
        low = c.ir.and_(c.ir.ptrtoint(start, I64), c.number(layout.UNDEFINED_MASK))
        shadow = c.ir.inttoptr(c.ir.add(base, low), PTR)
        c.fill(shadow, size, 0xFF)
        c.copy(c.at(shadow, layout.UNDEFINED_COPY), start, size)


def _leave_scratch_undefined(c: Code, launch: Any, wave: Any) -> None:
    """Let the scratch of a wave count as written by nobody."""
    lanes, each = (c.get(layout.LAUNCH, launch, name) for name in ("wave_size", "lane_scratch"))
    scratch, size = c.pointer(layout.WAVE, wave, "scratch"), c.ir.mul(lanes, each)
    with c.ir.if_then(c.ir.icmp_unsigned("!=", size, c.number(0))):
        _leave_undefined(c, launch, scratch, size)


def _leave_registers_undefined(c: Code, launch: Any, wave: Any) -> None:
    """Emit the shadow of a wave's registers at its begin: defined are those that the ABI gives a value."""
    shadow = c.at(wave, c.get(layout.LAUNCH, launch, "shadow"))
    c.fill(shadow, c.number(layout.SCALARS), 0xFF)
    c.clear(shadow, c.ir.shl(c.get(layout.LAUNCH, launch, "given_sgprs"), c.number(2)))
    for first, count in ((FLAT_SCRATCH_SGPR, 2), (TTMPS[0], len(TTMPS)), (EXEC_LO, 2)):
        c.clear(c.at(shadow, 4 * first), c.number(4 * count))
    c.ir.store(ir.Constant(I32, 1), c.at(shadow, layout.WAVE["scc"]))
    vectors, accumulators = c.at(shadow, layout.VECTORS), c.at(shadow, c.get(layout.LAUNCH, launch, "agprs"))
    c.fill(vectors, c.get(layout.LAUNCH, launch, "vgpr_bytes"), 0xFF)
    c.fill(accumulators, c.get(layout.LAUNCH, launch, "agpr_bytes"), 0xFF)
    c.clear(vectors, c.get(layout.LAUNCH, launch, "lane_image_size"))


def _table_key(c: Code, mode: ir.Value) -> ir.Value:
    """Return `layout.mode_key` of a mode."""
    overflow = c.ir.and_(c.ir.lshr(mode, c.number(layout.FP16_OVERFLOW_SHIFT)), c.number(1))
    low = c.ir.and_(mode, c.number(layout.MODE_MASK))
    return c.ir.or_(low, c.ir.shl(overflow, c.number(layout.OVERFLOW_KEY_SHIFT)))


def _emit_start(module: ir.Module) -> ir.Function:
    """Emit ``void start(ptr launch, ptr group)``: the state in which a work-group begins."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, PTR]), "start_group")
    function.linkage = "internal"
    c = Code(function)
    launch, group = function.args
    number = c.get(layout.GROUP, group, "number")
    grid_x, grid_y = (c.get(layout.LAUNCH, launch, f"grid_{axis}") for axis in "xy")
    x = c.ir.urem(number, grid_x)
    rest = c.ir.udiv(number, grid_x)
    y, z = c.ir.urem(rest, grid_y), c.ir.udiv(rest, grid_y)
    x, y, z = (c.ir.add(i, c.get(layout.LAUNCH, launch, f"first_{axis}")) for i, axis in ((x, "x"), (y, "y"), (z, "z")))
    given = c.get(layout.LAUNCH, launch, "packed_yz")
    both = c.ir.and_(c.ir.or_(y, c.ir.shl(z, c.number(16))), given)
    y = c.ir.select(c.is_equal(given, 0), y, both)
    count = c.get(layout.GROUP, group, "wave_count")
    for name, value in (
        ("live", count),
        ("waiting", 0),
        ("active", 1),
        ("steps", 0),
        ("slice_begin", 0),
        ("signals", 0),
        ("phase", 0),
        ("watched", 0),
    ):
        c.set(layout.GROUP, group, name, value)
    named = c.get(layout.LAUNCH, launch, "named")
    several = c.ir.icmp_unsigned(">", count, c.number(1))
    c.set(layout.GROUP, group, "named", c.ir.select(several, named, c.number(0)))
    with c.ir.if_then(c.ir.icmp_unsigned("!=", named, c.number(0))):
        c.clear(c.at(group, layout.GROUP["named_members"]), c.number(3 * 4 * layout.NAMED_BARRIERS))
    lds, lds_size = c.pointer(layout.GROUP, group, "lds"), c.get(layout.GROUP, group, "lds_size")
    contents = c.pointer(layout.LAUNCH, launch, "lds_image")
    with c.ir.if_else(c.is_equal(c.get(layout.LAUNCH, launch, "lds_image"), 0)) as (empty, filled):
        # A C library clears nothing by a masked store, which takes long where no page is yet.
        with empty, c.ir.if_then(c.ir.icmp_unsigned("!=", lds_size, c.number(0))):
            c.clear(lds, lds_size)
        with filled:
            c.copy(lds, contents, lds_size)
    with c.ir.if_then(c.is_equal(c.get(layout.LAUNCH, launch, "lds_image"), 0)):
        _leave_undefined(c, launch, lds, lds_size)
    with c.loop(c.number(0), count) as index:
        stride = c.get(layout.GROUP, group, "wave_stride")
        wave = c.at(c.pointer(layout.GROUP, group, "waves"), c.ir.mul(index, stride))
        c.copy_lines(wave, c.pointer(layout.LAUNCH, launch, "sgpr_image"), c.number(layout.SCALARS))
        vectors = c.at(wave, layout.VECTORS)
        c.clear_lines(vectors, c.get(layout.LAUNCH, launch, "vgpr_bytes"))
        accumulators = c.at(wave, c.get(layout.LAUNCH, launch, "agprs"))
        c.clear_lines(accumulators, c.get(layout.LAUNCH, launch, "agpr_bytes"))
        image_stride = c.get(layout.LAUNCH, launch, "lane_image_stride")
        image = c.at(c.pointer(layout.LAUNCH, launch, "lane_images"), c.ir.mul(index, image_stride))
        c.ir.store(c.ir.load(image, typ=I64), c.at(wave, layout.EXEC))
        c.copy_lines(vectors, c.at(image, 64), c.get(layout.LAUNCH, launch, "lane_image_size"))
        with c.ir.if_then(c.ir.icmp_unsigned("!=", c.get(layout.LAUNCH, launch, "undefined"), c.number(0))):
            _leave_registers_undefined(c, launch, wave)
            _leave_scratch_undefined(c, launch, wave)
        for axis, value in (("x", x), ("z", z), ("y", y)):
            c.store_word(wave, c.get(layout.LAUNCH, launch, f"group_id_{axis}"), value)
        first = c.ir.shl(c.ir.zext(c.is_equal(index, 0), I64), c.number(31))
        c.store_word(wave, c.get(layout.LAUNCH, launch, "group_info"), c.ir.or_(first, count))
        shift = c.get(layout.LAUNCH, launch, "wave_id_shift")
        c.store_word(wave, c.get(layout.LAUNCH, launch, "wave_id"), c.ir.shl(index, shift))
        scratch = c.get(layout.WAVE, wave, "scratch")
        offset = c.ir.sub(scratch, c.get(layout.LAUNCH, launch, "scratch_base"))
        c.store_word(wave, c.get(layout.LAUNCH, launch, "scratch_offset"), offset)
        kind = c.get(layout.LAUNCH, launch, "architected_scratch")
        with c.ir.if_then(c.ir.icmp_unsigned("!=", kind, c.number(0))):
            bit = c.ir.shl(c.ir.lshr(kind, c.number(1)), c.number(layout.FLAT_SCRATCH_BIT))
            c.set(layout.WAVE, wave, "flat_scratch", c.ir.or_(scratch, bit))
            c.ir.store(scratch, c.at(wave, FLAT_SCRATCH_SGPR * 4), align=8)
        for name, value in (
            *(("status", layout.READY), ("barrier", 0), ("pending", 0), ("unseen", 0)),
            *(("bank_bits", 0), ("bank_key", 0), ("joined", 0), ("named_seen", 0)),
        ):
            c.set(layout.WAVE, wave, name, value)
        for name in ("scc", "told"):
            c.set(layout.WAVE, wave, name, c.get(layout.LAUNCH, launch, name))
        mode = c.get(layout.LAUNCH, launch, "mode")
        c.set(layout.WAVE, wave, "mode", mode)
        tables = c.pointer(layout.WAVE, wave, "tables")
        stepping = c.get(layout.LAUNCH, launch, "stepping")
        c.set(layout.WAVE, wave, "stepping", stepping)
        key = c.ir.or_(_table_key(c, mode), stepping)
        place = c.at(tables, c.ir.shl(key, c.number(3)))
        table = c.ir.load(place, typ=PTR)
        c.ir.store(table, c.at(wave, layout.WAVE["table"]))
        c.ir.store(c.at(table, c.get(layout.LAUNCH, launch, "entry")), c.at(wave, layout.WAVE["pc"]))
    c.ir.ret_void()
    return function
