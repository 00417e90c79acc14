"""Asynchronous operations of a wave, and the counters by which it waits for them: one model per generation.

A wave continues after it issues a memory operation, a message or an export. Counters hold the number of incomplete
operations: each such instruction adds 1 to one counter (FLAT to two), and ``s_waitcnt`` and its successors wait until a
counter does not exceed a limit. The results of an instruction are valid only after its counters show its completion.

Operations that complete in the order of issue form a *stream*. Streams of one counter are not ordered relative to each
other, except for those *beside* each other, which are counted in the order of issue. An operation is therefore
certainly complete when its counter does not exceed the number of *younger operations of its own stream* and those
beside it, since otherwise all of these would be incomplete, too. In an unordered stream this number is 0.

Counters are finite. An instruction that would overflow a counter waits for older operations.

Sources: LLVM, SIInsertWaitcnts (events and their counters, what returns out of order), AMDGPUBaseInfo (fields and
widths); the ISA documents, "Data Dependency Resolution", "Manually Inserted Wait States (NOPs)", "S_WAITCNT".
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import asdict

from luthier.arch.generation import Generation
from luthier.arch.waits import LimitField, Waits
from luthier.isa.instructions import InstructionFlag
from luthier.isa.opcodes import Opcode

if TYPE_CHECKING:
    from luthier.isa.mc import Isa


class Issue(NamedTuple):
    """Stream that an instruction adds to."""

    stream: int
    """Index in `WaitModel.streams`."""
    registers: bool
    """Whether registers are outstanding: those it writes, or in a stream that locks, those it reads."""


class Limit(NamedTuple):
    """A wait until a counter does not exceed a value."""

    counter: int
    value: int


_F = InstructionFlag


class WaitModel(Waits, frozen=True, eq=False, kw_only=True, dict=True):
    """Counters, streams and wait instructions of a generation, and the effects of instructions on them."""

    @cached_property
    def counter_index(self) -> dict[str, int]:
        """Name -> index."""
        return {counter.name: index for index, counter in enumerate(self.counters)}

    @cached_property
    def stream_index(self) -> dict[str, int]:
        """Name -> index."""
        return {stream.name: index for index, stream in enumerate(self.streams)}

    @cached_property
    def streams_of(self) -> tuple[tuple[int, ...], ...]:
        """Return the streams of each counter."""
        return tuple(
            tuple(number for number, stream in enumerate(self.streams) if stream.counter == counter)
            for counter in range(len(self.counters))
        )

    @cached_property
    def replaced(self) -> tuple[frozenset[int], ...]:
        """Return for each stream those whose outstanding results its operations may overwrite."""
        return tuple(frozenset(self.stream_index[name] for name in stream.replaces) for stream in self.streams)

    @cached_property
    def beside(self) -> tuple[tuple[int, ...], ...]:
        """Return for each stream those whose operations are counted in order with its own ones."""
        return tuple(tuple(self.stream_index[name] for name in stream.beside) for stream in self.streams)

    @lru_cache(maxsize=1 << 14)  # noqa: B019  there is one for each generation, for good
    def issues(self, opcode: Opcode, gds: bool = False) -> tuple[Issue, ...]:
        """Return the streams to which an instruction adds; most instructions have none.

        Args:
            gds: whether it has the modifier ``gds`` (`is_gds`).
        """
        names = self._streams(opcode, gds)
        index = self.stream_index
        results = any(operand.is_def for operand in opcode.operands) or opcode.pseudo in self.late_scc
        return tuple(Issue(index[name], results or self.streams[index[name]].locks) for name in names if name in index)

    def may_issue(self, opcode: Opcode) -> bool:
        """Return whether `issues` is not empty, with or without ``gds``."""
        return bool(self.issues(opcode))

    def may_wait(self, opcode: Opcode) -> bool:
        """Return whether an instruction may wait for operations."""
        return opcode.pseudo in self.fields or opcode.pseudo in self.releases or "waitexp" in opcode.operand_index

    def _streams(self, opcode: Opcode, gds: bool) -> tuple[str, ...]:
        pseudo, flags = opcode.pseudo, opcode.flags
        if pseudo.startswith(self.uncounted):
            return ()
        if flags & _F.SMEM:
            return ("scalar",)
        if flags & _F.DS:
            return ("gds", "gds sources") if gds or flags & _F.GWS else ("lds",)
        if flags & (_F.VMEM | _F.FLAT):
            if any(word in pseudo for word in self.to_lds):
                return ()
            return self._vector(opcode)
        if flags & _F.EXPORT:
            return ("export sources",)
        if pseudo.startswith("LDS_"):
            return ("lds direct",)
        if pseudo.startswith(("S_SENDMSG", "S_GET_BARRIER_STATE")):
            return ("message",)
        return ("barrier",) if pseudo in self.late_scc else ()

    def _vector(self, opcode: Opcode) -> tuple[str, ...]:
        pseudo, flags = opcode.pseudo, opcode.flags
        flat = bool(flags & _F.FLAT) and not flags & (_F.FLAT_GLOBAL | _F.FLAT_SCRATCH)
        if "store" in self.stream_index and _only_writes(opcode):
            return ("store", "lds") if flat else ("store",)
        if flat:
            return ("flat", "flat lds") if "flat" in self.stream_index else ("vector", "lds")
        if pseudo.startswith("IMAGE_BVH"):
            return ("bvh",) if "bvh" in self.stream_index else ("vector",)
        if pseudo.startswith(("IMAGE_SAMPLE", "IMAGE_GATHER", "IMAGE_GET_LOD", "IMAGE_MSAA_LOAD")):
            return ("sample",) if "sample" in self.stream_index else ("vector",)
        return ("vector",)

    def limits(self, isa: Isa, opcode: Opcode, values: list[int]) -> tuple[Limit, ...]:
        """Return the waits of an instruction; most instructions have none.

        Args:
            values: its operand values (`InstructionArray.operand_value`).
        """
        fields = self.fields.get(opcode.pseudo)
        where = opcode.operand_index
        if fields is None:
            position = where.get("waitexp")  # of interpolation
            return () if position is None else self._limits((LimitField("expcnt", ((0, 3),)),), values[position])
        if "sdst" in where and isa.register_first_unit[values[where["sdst"]]] >= 0:
            return ()  # the limit is in a register
        return self._limits(fields, values[where["simm16"]] if "simm16" in where else 0)

    def text(self, limits: Iterable[Limit]) -> tuple[str, ...]:
        """Return assembly that waits."""
        together = {counter for counter, _ in self.fields.get("S_WAITCNT", ())}
        parts, lines = [], []
        for number, value in sorted(limits):
            name = self.counters[number].name
            if name in together:
                parts.append(f"{name}({value})")
            else:
                lines.append(f"s_waitcnt_{name} null, {value}" if together else f"s_wait_{name} {value}")
        return (*([f"s_waitcnt {' '.join(parts)}"] if parts else []), *lines)

    def _limits(self, fields: tuple[LimitField, ...], immediate: int) -> tuple[Limit, ...]:
        limits = []
        for counter, pieces in fields:
            value = width = 0
            for low, bits in pieces:
                value |= (immediate >> low & ((1 << bits) - 1)) << width
                width += bits
            if not width or value != (1 << width) - 1:
                limits.append(Limit(self.counter_index[counter], value))
        return tuple(limits)

    def released(self, opcode: Opcode) -> int | None:
        """Return the stream that is complete after an instruction, if any."""
        name = self.releases.get(opcode.pseudo)
        return None if name is None else self.stream_index[name]


def _only_writes(opcode: Opcode) -> bool:
    """Return whether a vector memory instruction returns nothing: stores, atomics without return, write-backs."""
    if opcode.pseudo in ("GLOBAL_WB", "GLOBAL_WBINV"):
        return True
    if "_LDS" in opcode.pseudo or not opcode.flags & (_F.STORE | _F.ATOMIC):
        return False
    return not any(operand.is_def for operand in opcode.operands)


def is_gds(opcode: Opcode, values: list[int]) -> bool:
    """Return whether an LDS instruction accesses GDS instead."""
    position = opcode.operand_index.get("gds")
    return position is not None and bool(values[position])


def wait_model(generation: Generation) -> WaitModel:
    """Return the counters, streams and wait instructions of a generation."""
    return _model(generation.waits)


@cache
def _model(waits: Waits) -> WaitModel:
    return WaitModel(**asdict(waits))
