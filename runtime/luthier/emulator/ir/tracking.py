"""Instrumentation of an operation's complete code to track undefined values.

Shadows of registers are behind the wave. Shadows of memory of every kind (LDS, scratch, buffers, the host's stack) are
at `CONTEXT.undefined` plus the address modulo 16 TiB. A shadow of memory is valid while the memory holds the value for
which it was set (`layout.UNDEFINED_COPY`): values written since by the host, a copy engine or code that does not track
undefined values are defined. A load that finds such values clears their shadow, so that the next one need not compare.
Semantic functions of operations use only `WaveBuilder.decide`, `WaveBuilder.but_undefined` and `WaveBuilder.taken_from`
of all this.

In code for waves of which all registers are defined (`Variant.all_defined`) registers have no shadows. A load of
undefined values reports `layout.EVENT_TAINTS`; from then on the wave's registers have shadows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from llvmlite.ir import instructions as forms
from msgspec import Struct

from luthier.emulator import layout
from luthier.emulator.ir.definedness import (
    Shadow,
    any_bit,
    bits_of,
    bits_type,
    either,
    every,
    has_bits,
    lane_bits,
    lanes_of,
    result_shadow,
    spread,
)
from luthier.emulator.ir.exact import I1, I32, I64, PTR
from luthier.emulator.ir.memory_code import each_lane, fetch, spill
from luthier.emulator.ir.wave import DECIDES, WaveBuilder

_LOADS = ("llvm.masked.load.", "llvm.masked.gather.")
_STORES = ("llvm.masked.store.", "llvm.masked.scatter.")
_NO_RESULT = ("ptrtoint", "inttoptr", "getelementptr", "alloca", "store", "br", "ret", "switch", "fence")


class _PointerTarget(Struct, frozen=True):
    """Target of a pointer."""

    kind: str
    """``wave``, ``memory``, or ``other``, which is always defined."""
    offset: int | None = 0
    """Offset in the wave; None if it is known only at run time."""
    indices: tuple[Any, ...] = ()
    """Offsets known only at run time."""

    @property
    def is_tracked(self) -> bool:
        """Return whether the target has a shadow."""
        if self.kind != "wave" or self.offset is None:
            return self.kind != "other"
        is_register = self.offset < layout.SCALARS and not self.is_exec
        return is_register or self.offset == layout.WAVE["scc"] or self.offset >= layout.VECTORS

    @property
    def is_exec(self) -> bool:
        """Return whether the target is EXEC, at an offset known at compile time."""
        return self.kind == "wave" and self.offset in (layout.EXEC, layout.EXEC + 4)


class Tracker:
    """Adds code to one operation that tracks undefined values through it."""

    def __init__(self, w: WaveBuilder) -> None:
        self.w, self.b = w, w.ir
        self._shadows: dict[int, Shadow] = {}
        self._places: dict[int, _PointerTarget] = {}
        self._last: dict[int, Any] = {}
        """Block -> the block in which its code now ends."""
        self._phis: list[tuple[Any, Any]] = []
        """Each phi with its shadow's phi, or None."""
        self._base: Any = None
        """`CONTEXT.undefined`, loaded once: atomics make LLVM load it again each time."""

    def run(self) -> None:
        """Rewrite the function."""
        blocks = self._in_order()
        self._reached = self._find_reached(blocks)
        for block in blocks:
            self._rewrite(block)
        for phi, shadow in self._phis:
            phi.incomings = [(value, self._last.get(id(block), block)) for value, block in phi.incomings]
            for value, block in phi.incomings if shadow is not None else ():
                incoming = self.shadow(value)
                shadow.add_incoming(every(shadow.type, 0) if incoming is None else incoming, block)

    def shadow(self, value: Any) -> Shadow:
        """Return the shadow of a value; None if it is defined."""
        return self._shadows.get(id(value))

    # Order, and values that may be undefined ------------------------------------------------------------------------

    def _in_order(self) -> list[Any]:
        """Return the blocks in an order where values come before their uses, except in loops."""
        seen: set[int] = set()
        order = []
        stack = [(self.w.llvm_function.entry_basic_block, False)]
        while stack:
            block, done = stack.pop()
            if done:
                order.append(block)
            elif id(block) not in seen:
                seen.add(id(block))
                stack.append((block, True))
                last = block.instructions[-1]
                stack += [(next_, False) for next_ in last.operands if isinstance(next_, ir.Block)]
        return order[::-1]

    def _find_reached(self, blocks: list[Any]) -> set[int]:
        """Return the values that may have undefined bits."""
        reached: set[int] = set()
        before = -1
        while before != len(reached):
            before = len(reached)
            for block in blocks:
                for instruction in block.instructions:
                    if id(instruction) not in reached and self._may_be_undefined(instruction, reached):
                        reached.add(id(instruction))
        return reached

    def _may_be_undefined(self, instruction: Any, reached: set[int]) -> bool:
        name = instruction.opname
        if id(instruction) in self.w.taken or id(instruction) in self.w.joined:
            return True
        if id(instruction) in self.w.defined or id(instruction) in self.w.summed:
            return False
        if name in _NO_RESULT or not (has_bits(instruction.type) or name == "cmpxchg"):
            return False
        if name in ("load", "atomicrmw", "cmpxchg") or isinstance(instruction, forms.LoadAtomicInstr):
            place = self.place(instruction.operands[0])
            is_tracked = place.is_tracked and not (place.kind == "wave" and self.w.variant.all_defined)
            return is_tracked or any(id(index) in reached for index in place.indices)
        if name == "call" and not isinstance(instruction.callee, ir.Function):
            return False
        if name == "call" and instruction.callee.name.startswith(_LOADS):
            return True
        return any(id(value) in reached for value in _operands(instruction))

    def place(self, pointer: Any) -> _PointerTarget:
        """Return the target of a pointer."""
        target = self._places.get(id(pointer))
        if target is None:
            target = self._places[id(pointer)] = self._find_place(pointer)
        return target

    def _find_place(self, pointer: Any) -> _PointerTarget:
        if pointer is self.w.wave:
            return _PointerTarget("wave")
        if id(pointer) in self.w.defined:
            return _PointerTarget("other")
        if isinstance(pointer, forms.GEPInstr):
            base = self.place(pointer.pointer)
            late = tuple(index for index in pointer.indices if not isinstance(index, ir.Constant))
            if late or base.offset is None or base.kind != "wave":
                return _PointerTarget(base.kind, None, (*base.indices, *late))
            return _PointerTarget(base.kind, base.offset + pointer.indices[0].constant)  # in bytes
        if isinstance(pointer, (forms.AllocaInstr, forms.CastInstr)):
            return _PointerTarget("memory")
        if isinstance(pointer, (forms.PhiInstr, forms.SelectInstr)):
            raise TypeError("a phi or a select of pointers is not supported")
        return _PointerTarget("other")

    # Rewriting ------------------------------------------------------------------------------------------------------

    def _rewrite(self, block: Any) -> None:
        old, block.instructions, block.terminator = block.instructions, [], None
        self.b.position_at_end(block)
        phis = [one for one in old if isinstance(one, forms.PhiInstr)]
        for phi in phis:
            self._again(phi)
        for phi in phis:
            shadow = self.b.phi(bits_type(phi.type)) if id(phi) in self._reached else None
            self._shadows[id(phi)] = shadow
            self._phis.append((phi, shadow))
        for instruction in old[len(phis) :]:
            self._instruction(instruction)
        self._last[id(block)] = self.b.block

    def _again(self, instruction: Any) -> None:
        """Insert an existing instruction. llvmlite has no public function for it."""
        self.b._insert(instruction)
        if isinstance(instruction, forms.Terminator):
            self.b.block.terminator = instruction

    def _instruction(self, instruction: Any) -> None:
        name = instruction.opname
        if name == "call" and isinstance(instruction.callee, ir.Function):
            callee = instruction.callee.name
            if callee.startswith(DECIDES):
                self._decide(instruction)
                return
            special = next((does for start, does in self._calls().items() if callee.startswith(start)), None)
            if special is not None:
                self._again(instruction)
                special(instruction)
                return
        if name in ("atomicrmw", "cmpxchg"):
            self._atomic(instruction)
            return
        if id(instruction) in self.w.only_defined:
            mask, every_bit = instruction.operands
            shadow = self.shadow(mask)
            instruction.operands = [mask, every_bit if shadow is None else self.b.not_(shadow)]
            self._again(instruction)
            return
        self._again(instruction)
        if id(instruction) in self.w.taken:
            lanes = self.w.taken[id(instruction)]
            self._tell(layout.TAKES_INACTIVE, lanes)
            shadow = self.shadow(instruction.operands[0])
            self._shadows[id(instruction)] = either(self.b, [shadow, spread(self.b, lanes, instruction.type)])
            return
        if name == "store":
            self._store(instruction)
        elif name == "load" or isinstance(instruction, forms.LoadAtomicInstr):
            self._load(instruction)
        elif name == "extractvalue":
            self._shadows[id(instruction)] = self.shadow(instruction.aggregate) if instruction.indices[0] == 0 else None
        elif id(instruction) in self._reached:
            operands = instruction.args if name == "call" else instruction.operands
            shadows = [self.shadow(value) for value in operands]
            if any(shadow is not None for shadow in shadows):
                result = result_shadow(self.b, instruction, shadows)
                self._shadows[id(instruction)] = self._but_same(instruction, result)

    def _but_same(self, instruction: Any, shadow: Shadow) -> Shadow:
        """Return the shadow of a result; it is defined if both operands of xor or sub are the same register."""
        loads = [value for value in instruction.operands if isinstance(value, forms.LoadInstr)]
        if instruction.opname not in ("xor", "sub") or len(loads) != len(instruction.operands):
            return shadow
        left, right = (self.b.ptrtoint(load.operands[0], I64) for load in loads)
        return self.b.select(self.b.icmp_unsigned("==", left, right), every(shadow.type, 0), shadow)

    def _calls(self) -> dict[str, Callable[[Any], None]]:
        return {
            **dict.fromkeys(_LOADS, self._masked_load),
            **dict.fromkeys(_STORES, self._masked_store),
            "llvm.memcpy.": self._copied,
            "llvm.memset.": self._cleared,
        }

    # Registers ------------------------------------------------------------------------------------------------------

    def _beside(self, pointer: Any) -> Any:
        """Return the address of the shadow of a register."""
        return self.w.address(pointer, layout.wave_stride(self.w.wave_size))

    def _load(self, load: Any) -> None:
        if (summary := self.w.summed.get(id(load))) is not None:
            shadow = self.b.load(self._shadow_of_memory(load.operands[0]), typ=load.type, align=1)
            self.b.store(self.b.or_(self.b.load(summary, typ=load.type), shadow), summary)
        if id(load) not in self._reached:
            return
        if id(load) in self.w.joined:
            self._shadows[id(load)] = self._joined(load)
            return
        pointer, type = load.operands[0], bits_type(load.type)
        place, shadow = self.place(pointer), None
        align = load.align or 1
        if place.kind == "wave":
            if not self.w.variant.all_defined:
                shadow = self.b.load(self._beside(pointer), typ=type, align=load.align)
        elif place.is_tracked:
            shadow = self._loaded(
                pointer,
                load,
                lambda at: self.b.load(at, typ=type, align=align),
                None
                if isinstance(load, forms.LoadAtomicInstr)
                else lambda what, at: self.b.store(what, at, align=align),
            )
        late = [self.shadow(index) for index in place.indices]
        flags = either(self.b, [any_bit(self.b, one) for one in late if one is not None])
        self._shadows[id(load)] = either(self.b, [shadow, None if flags is None else spread(self.b, flags, type)])

    def _store(self, store: Any) -> None:
        value, pointer = store.operands
        place = self.place(pointer)
        if not has_bits(value.type):
            return
        shadow = self.shadow(value)
        if place.is_exec:
            if place.offset == layout.EXEC or self.w.wave_size == 64:
                self._tell_mask(shadow)
        elif place.kind == "wave" and place.is_tracked:
            if not self.w.variant.all_defined:
                self._store_beside(store, place, shadow)
            elif shadow is not None:
                with self.b.if_then((self.w.is_all_defined() == 0).llvm, likely=False):
                    self._store_beside(store, place, shadow)
        elif place.kind == "memory":
            align = store.align or 1
            self._stored(pointer, value, lambda what, at: self.b.store(what, at, align=align))

    def _store_beside(self, store: Any, place: _PointerTarget, shadow: Shadow) -> None:
        """Store the shadow of a register."""
        value, pointer = store.operands
        if place.offset is None and shadow is not None and not lanes_of(value.type):
            shadow = self._but_exec(pointer, shadow)
        filled = every(bits_type(value.type), 0) if shadow is None else shadow
        self.b.store(filled, self._beside(pointer), align=store.align)

    def _but_exec(self, pointer: Any, shadow: Any) -> Any:
        """Return the shadow to write for a scalar register. If the register is EXEC, report it and return 0."""
        base, place = (self.b.ptrtoint(one, I64) for one in (self.w.wave, pointer))
        offset = self.b.sub(self.b.sub(place, base), ir.Constant(I64, layout.EXEC))
        is_exec, is_mask = (
            self.b.icmp_unsigned("<", offset, ir.Constant(I64, size)) for size in (8, self.w.wave_size // 8)
        )
        nothing = every(shadow.type, 0)
        self._tell_mask(self.b.select(is_mask, shadow, nothing))
        return self.b.select(is_exec, nothing, shadow)

    def _tell_mask(self, shadow: Shadow) -> None:
        """Emit a call that reports undefined bits of EXEC, if it has any that mean a lane."""
        if shadow is not None and not lanes_of(shadow.type) and shadow.type.width > self.w.wave_size:
            shadow = self.b.trunc(shadow, I32)
        self._tell(layout.DECIDES_MASK, shadow)

    # Memory ---------------------------------------------------------------------------------------------------------

    def _shadow_of_memory(self, pointer: Any, apart: int = 0) -> Any:
        """Return a pointer (or one per lane) to the shadow of memory; with `UNDEFINED_COPY`, to its copy."""
        lanes, type = lanes_of(pointer.type), _numbers(pointer.type)
        if self._base is None:
            with self.b.goto_entry_block():
                self._base = self.w.load(self.w.context_field("undefined"), "u64")
        base = self._base + apart if apart else self._base
        start = self.w.splat(base).llvm if lanes else base.llvm
        low = self.b.and_(self.b.ptrtoint(pointer, type), every(type, layout.UNDEFINED_MASK))
        return self.b.inttoptr(self.b.add(low, start), ir.VectorType(PTR, lanes) if lanes else PTR)

    def _loaded(
        self, pointer: Any, value: Any, load: Callable[[Any], Any], clear: Callable[[Any, Any], Any] | None
    ) -> Any:
        """Return the shadow of a value loaded from memory.

        If all of the value was written without a shadow, the shadow in memory is cleared, so that the next load need
        not compare. Other work-groups may store to neighbouring bytes meanwhile, so nothing else is written, and
        nothing by atomic loads, whose memory another one may have changed since.

        Args:
            load: emits the same load from another address.
            clear: emits a store of a shadow to the same elements from another address on; None: keep it.
        """
        place = self._shadow_of_memory(pointer)
        shadow = load(place)
        before = self.b.block
        with self.b.if_then(any_bit(self.b, shadow), likely=False):
            held = load(self._shadow_of_memory(pointer, layout.UNDEFINED_COPY))
            kept = _where_equal(self.b, bits_of(self.b, value), held, shadow)
            if clear is not None and not _is_local(pointer):
                with self.b.if_then(self.b.not_(any_bit(self.b, kept))):
                    clear(kept, place)
            self._arrives(pointer, kept)
            after = self.b.block
        merged = self.b.phi(shadow.type)
        merged.add_incoming(shadow, before)
        merged.add_incoming(kept, after)
        return merged

    def _joined(self, load: Any) -> Any:
        """Return the shadow of the dwords of all lanes that a loop has loaded one lane after the other."""
        summary, places, bits = self.w.joined[id(load)]
        nothing = every(load.type, 0)
        each = ir.VectorType(I32, load.type.count // self.w.wave_size)
        before = self.b.block
        with self.b.if_then(any_bit(self.b, self.b.load(summary, typ=each)), likely=False):
            rows = spill(self.w, self.w.wrap(nothing, "u32"))
            with each_lane(self.w, bits) as lane:
                pointer = self.b.inttoptr(fetch(self.w, places, lane, "u64").llvm, PTR)
                own, held, shadow = (
                    self.b.load(at, typ=each, align=1)
                    for at in (
                        pointer,
                        self._shadow_of_memory(pointer, layout.UNDEFINED_COPY),
                        self._shadow_of_memory(pointer),
                    )
                )
                row = self.b.gep(rows, [(lane * each.count).llvm], source_etype=I32)
                its = _where_equal(self.b, own, held, shadow)
                with self.b.if_then(self.b.not_(any_bit(self.b, its))):
                    self.b.store(its, self._shadow_of_memory(pointer), align=1)
                self._arrives(pointer, its)
                self.b.store(its, row, align=4)
            kept = self.b.load(rows, typ=load.type)
            after = self.b.block
        merged = self.b.phi(load.type)
        merged.add_incoming(nothing, before)
        merged.add_incoming(kept, after)
        return merged

    def _arrives(self, pointer: Any, shadow: Any) -> None:
        """Emit what undefined bits that memory gives lead to, if there are any."""
        self._moves(layout.LOADS_UNDEFINED, pointer, shadow)
        if self.w.variant.all_defined and not _is_local(pointer):
            with self.b.if_then(any_bit(self.b, shadow), likely=False):
                self.w.report(layout.EVENT_TAINTS)

    def _moves(self, kind: int, pointer: Any, shadow: Any) -> None:
        """Emit a call that reports which elements in memory have undefined bits, if any has, to keep their origins.

        Args:
            pointer: to the elements, one after the other; or one to each.
        """
        if not self.w.variant.undefined & layout.UNWRITTEN_VALUES or _is_local(pointer):
            return
        with self.b.if_then(any_bit(self.b, shadow), likely=False):
            self.w.tell_moved(kind, shadow, self.b.ptrtoint(pointer, _numbers(pointer.type)))

    def _stored(self, pointer: Any, value: Any, store: Callable[[Any, Any], Any], mask: Any = None) -> None:
        """Set the shadow of memory to which a value was stored.

        Args:
            store: emits the same store of another value to another address.
            mask: the elements that are stored; None: all.
        """
        shadow, type = self.shadow(value), bits_type(value.type)
        store(every(type, 0) if shadow is None else shadow, self._shadow_of_memory(pointer))
        # The copy of a whole dword is compared: update it also for parts of dwords.
        always = not lanes_of(type) and type.width < 32
        if shadow is None and not always:
            return
        with self.b.if_then(ir.Constant(I1, 1) if always else any_bit(self.b, shadow)):
            store(bits_of(self.b, value), self._shadow_of_memory(pointer, layout.UNDEFINED_COPY))
            if shadow is not None:
                kept = shadow if mask is None else self.b.select(mask, shadow, every(type, 0))
                self._moves(layout.STORES_UNDEFINED, pointer, kept)

    def _masked_load(self, call: Any) -> None:
        pointer, align, mask, before = call.args
        name = call.callee.name.replace("masked.load", "masked.store").replace("masked.gather", "masked.scatter")
        types = [call.type, pointer.type, align.type, mask.type]
        put = self.w.function(name, ir.VoidType(), types)

        def load(at: Any) -> Any:
            return self.b.call(call.callee, [at, align, mask, before])

        def store(what: Any, at: Any) -> Any:
            return self.b.call(put, [what, at, align, mask])

        self._shadows[id(call)] = self._loaded(pointer, call, load, store)

    def _masked_store(self, call: Any) -> None:
        value, pointer, *rest = call.args
        self._stored(pointer, value, lambda what, at: self.b.call(call.callee, [what, at, *rest]), rest[-1])

    def _copied(self, call: Any) -> None:
        # Origins are not copied: an undefined value that a tensor copy moved counts as never written where it is now.
        target, source, *rest = call.args
        for apart in (0, layout.UNDEFINED_COPY):
            places = [self._shadow_of_memory(pointer, apart) for pointer in (target, source)]
            self.b.call(call.callee, [*places, *rest])

    def _cleared(self, call: Any) -> None:
        target, _, *rest = call.args
        self.b.call(call.callee, [self._shadow_of_memory(target), ir.Constant(ir.IntType(8), 0), *rest])

    def _atomic(self, atomic: Any) -> None:
        """Insert an atomic operation. The new value is undefined if the old value or an operand is."""
        pointer, new = atomic.operands[0], atomic.operands[-1]
        type = new.type
        self._again(atomic)
        is_swap = atomic.opname == "cmpxchg"
        old = self.b.extract_value(atomic, 0) if is_swap else atomic
        after, place, nothing = self.shadow(new), self._shadow_of_memory(pointer), every(type, 0)
        shadow = self.b.load(place, typ=type, align=1)
        before = self.b.block
        with self.b.if_then(any_bit(self.b, either(self.b, [shadow, after])), likely=False):
            held = self.b.load(self._shadow_of_memory(pointer, layout.UNDEFINED_COPY), typ=type, align=1)
            kept = _where_equal(self.b, old, held, shadow)
            self._arrives(pointer, kept)
            if not is_swap and atomic.operation != "xchg":
                after = spread(self.b, any_bit(self.b, either(self.b, [kept, after])), type)
            self.b.store(nothing if after is None else after, place, align=1)
            if after is not None:
                now = self.b.load(pointer, typ=type, align=1)
                self.b.store(now, self._shadow_of_memory(pointer, layout.UNDEFINED_COPY), align=1)
                self._moves(layout.STORES_UNDEFINED, pointer, after)
            end = self.b.block
        merged = self.b.phi(type)
        merged.add_incoming(nothing, before)
        merged.add_incoming(kept, end)
        self._shadows[id(atomic)] = merged

    # Decisions ------------------------------------------------------------------------------------------------------

    def _decide(self, call: Any) -> None:
        kind, value, *masks = call.args
        shadow = self.shadow(value)
        if shadow is None:
            return
        if masks:  # include lanes whose mask bit is undefined
            (mask,) = masks
            shadow = self.b.and_(lane_bits(self.b, shadow), either(self.b, [mask, self.shadow(mask)]))
        self._tell(kind.constant, shadow)

    def _tell(self, kind: int, shadow: Shadow) -> None:
        """Emit a call that reports undefined bits, if there are any."""
        if shadow is None:
            return
        is_scalar = not lanes_of(shadow.type) and kind != layout.DECIDES_MASK
        lanes = lane_bits(self.b, shadow) if lanes_of(shadow.type) else any_bit(self.b, shadow) if is_scalar else shadow
        if lanes_of(lanes.type):
            lanes = self.b.bitcast(lanes, ir.IntType(lanes.type.count))
        wide = lanes if lanes.type == I64 else self.b.zext(lanes, I64)
        with self.b.if_then(self.b.icmp_unsigned("!=", wide, ir.Constant(I64, 0)), likely=False):
            self.w.tell_decided(kind, wide, scalar=is_scalar)


def _numbers(pointers: Any) -> Any:
    """Return the type of the addresses of a pointer, or of a vector of them."""
    lanes = lanes_of(pointers)
    return ir.VectorType(I64, lanes) if lanes else I64


def _is_local(pointer: Any) -> bool:
    """Return whether a pointer leads to the host's stack."""
    while isinstance(pointer, (forms.GEPInstr, forms.CastInstr)):
        pointer = pointer.operands[0]
    return isinstance(pointer, forms.AllocaInstr)


def _operands(instruction: Any) -> Any:
    """Return the operands of an instruction; for a phi, its incoming values."""
    if isinstance(instruction, forms.PhiInstr):
        return [value for value, _ in instruction.incomings]
    return instruction.operands


def _where_equal(b: ir.IRBuilder, value: Any, held: Any, shadow: Any) -> Any:
    """Return a shadow where two values have equal dwords, and 0 elsewhere."""
    type = shadow.type
    width = type.element.width if lanes_of(type) else type.width
    count = max(1, lanes_of(type)) * width // 32
    if width % 32 == 0 and (width, count) != (32, 1):
        dwords = ir.VectorType(I32, count)
        value, held, shadow = (one if one.type == dwords else b.bitcast(one, dwords) for one in (value, held, shadow))
    kept = b.select(b.icmp_unsigned("==", value, held), shadow, every(shadow.type, 0))
    return kept if kept.type == type else b.bitcast(kept, type)


def track(w: WaveBuilder) -> None:
    """Make the complete code of an operation track undefined values."""
    Tracker(w).run()
