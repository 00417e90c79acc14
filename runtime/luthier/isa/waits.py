"""What runs on behind a wave's back, and the counters by which the wave waits for it: one model a generation.

A wave goes on when a memory operation, a message or an export is issued. Counters say how many are not done: each such
instruction adds 1 to one counter (FLAT to two), and ``s_waitcnt`` and its successors wait until a counter is not above
a limit. What an instruction gives is in its registers when its counters say so, not before.

Operations that are done in the order in which they were issued are a *stream*. Streams of one counter are not ordered
among each other. So an operation is certainly done when its counter is not above the number of *younger operations of
its own stream*: were it not, all of those would not be either. In an unordered stream that is 0.

Counters are finite. An instruction that would make one overflow waits for older operations.

Sources: LLVM, SIInsertWaitcnts (events and their counters, what returns out of order), AMDGPUBaseInfo (fields and
widths); the ISA documents, "Data Dependency Resolution", "Manually Inserted Wait States (NOPs)", "S_WAITCNT".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from luthier.isa.generations import GFX9, GFX10, GFX11, GFX12, GFX1250, Generation, generations
from luthier.isa.instructions import InstructionFlag
from luthier.isa.opcodes import Opcode

if TYPE_CHECKING:
    from luthier.isa.mc import Isa


class Counter(NamedTuple):
    """A counter of operations that are not done."""

    name: str
    """As assembly calls it, e.g. ``vmcnt``."""
    most: int
    """The largest number that it holds."""


class Stream(NamedTuple):
    """Operations that one counter counts and that are done in a certain order."""

    name: str
    counter: int
    """Index in `WaitModel.counters`."""
    ordered: bool = True
    """They are done in the order of issue."""
    locks: bool = False
    """Not results are awaited: sources (and EXEC) are read late and must not change until then."""
    replaces: tuple[str, ...] = ()
    """Streams whose results one of this may overwrite while they are outstanding, since results are written in the
    order of issue."""


class Issue(NamedTuple):
    """What an instruction adds to."""

    stream: int
    """Index in `WaitModel.streams`."""
    registers: bool
    """Whether registers are outstanding: those it writes, or for a stream that locks those it reads."""


class Limit(NamedTuple):
    """A wave goes on when a counter is not above a value."""

    counter: int
    value: int


class _Field(NamedTuple):
    """Where an instruction holds a limit; all ones are no limit."""

    counter: str
    pieces: tuple[tuple[int, int], ...]
    """(lowest bit, bits), the lowest piece first."""


_F = InstructionFlag
_NOT_COUNTED = (
    *("S_PREFETCH", "S_BUFFER_PREFETCH", "S_ATC_PROBE", "DS_NOP"),
    *("BUFFER_WBINVL1", "BUFFER_GL0_INV", "BUFFER_GL1_INV", "BUFFER_INV", "BUFFER_WBL2", "BUFFER_INVL2"),
)
"""Memory instructions that no counter counts. Of ``buffer_*`` that clean caches LLVM relies on no count either."""
_TO_LDS = ("ASYNC", "TENSOR")
"""Between memory and LDS without registers, with counters of their own (GFX1250)."""


@dataclass(frozen=True, eq=False)
class WaitModel:
    """Counters, streams and wait instructions of a generation."""

    counters: tuple[Counter, ...]
    streams: tuple[Stream, ...]
    fields: Mapping[str, tuple[_Field, ...]]
    """LLVM's generic name of a wait instruction -> the limits in its immediate."""
    halves: bool = False
    """Loads of 16 bits write half a register, and instructions read halves: they are outstanding each for itself."""
    releases: Mapping[str, str] = field(default_factory=dict)
    """Other instructions behind which all of a stream is done, by generic name."""
    complete: bool = True
    """Nothing but these counters says when registers may be used."""

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
        """For each counter its streams."""
        return tuple(
            tuple(number for number, stream in enumerate(self.streams) if stream.counter == counter)
            for counter in range(len(self.counters))
        )

    @cached_property
    def replaced(self) -> tuple[frozenset[int], ...]:
        """For each stream those whose results its own may overwrite."""
        return tuple(frozenset(self.stream_index[name] for name in stream.replaces) for stream in self.streams)

    @lru_cache(maxsize=1 << 14)  # noqa: B019  there is one for each generation, for good
    def issues(self, opcode: Opcode, gds: bool = False) -> tuple[Issue, ...]:
        """What an instruction adds to; nothing for most.

        Args:
            gds: it has the modifier ``gds`` (`is_gds`).
        """
        names = self._streams(opcode, gds)
        index = self.stream_index
        results = any(operand.is_def for operand in opcode.operands) or opcode.pseudo in _GIVE_SCC
        return tuple(Issue(index[name], results or self.streams[index[name]].locks) for name in names if name in index)

    def may_issue(self, opcode: Opcode) -> bool:
        """Whether `issues` is not empty, with ``gds`` or without."""
        return bool(self.issues(opcode))

    def may_wait(self, opcode: Opcode) -> bool:
        """Whether it may wait for something."""
        return opcode.pseudo in self.fields or opcode.pseudo in self.releases or "waitexp" in opcode.operand_index

    def _streams(self, opcode: Opcode, gds: bool) -> tuple[str, ...]:
        pseudo, flags = opcode.pseudo, opcode.flags
        if pseudo.startswith(_NOT_COUNTED):
            return ()
        if flags & _F.SMEM:
            return ("scalar",)
        if flags & _F.DS:
            return ("gds", "gds sources") if gds or flags & _F.GWS else ("lds",)
        if flags & (_F.VMEM | _F.FLAT):
            if any(word in pseudo for word in _TO_LDS):
                return ()
            return self._vector(opcode)
        if flags & _F.EXPORT:
            return ("export sources",)
        if pseudo.startswith("LDS_"):
            return ("lds direct",)
        if pseudo.startswith(("S_SENDMSG", "S_GET_BARRIER_STATE")):
            return ("message",)
        return ("barrier",) if pseudo in _GIVE_SCC else ()

    def _vector(self, opcode: Opcode) -> tuple[str, ...]:
        pseudo, flags = opcode.pseudo, opcode.flags
        flat = bool(flags & _F.FLAT) and not flags & (_F.FLAT_GLOBAL | _F.FLAT_SCRATCH)
        if "store" in self.stream_index and _only_writes(opcode):
            return ("store", "lds") if flat else ("store",)
        if flat:
            return ("flat", "flat lds") if "flat" in self.stream_index else ("vector", "lds")
        if pseudo.startswith("IMAGE_BVH"):
            return ("bvh",) if "bvh" in self.stream_index else ("vector",)
        if pseudo.startswith(("IMAGE_SAMPLE", "IMAGE_GATHER", "IMAGE_GET_LOD")):
            return ("sample",) if "sample" in self.stream_index else ("vector",)
        return ("vector",)

    def limits(self, isa: Isa, opcode: Opcode, values: list[int]) -> tuple[Limit, ...]:
        """What an instruction waits for; nothing for most.

        Args:
            values: of its operands, as `InstructionArray.operand_value` has them.
        """
        fields = self.fields.get(opcode.pseudo)
        where = opcode.operand_index
        if fields is None:
            position = where.get("waitexp")  # of interpolation
            return () if position is None else self._limits((_Field("expcnt", ((0, 3),)),), values[position])
        if "sdst" in where and isa.register_first_unit[values[where["sdst"]]] >= 0:
            return ()  # the limit is in a register
        return self._limits(fields, values[where["simm16"]] if "simm16" in where else 0)

    def text(self, limits: Iterable[Limit]) -> tuple[str, ...]:
        """Assembly that waits."""
        together = {counter for counter, _ in self.fields.get("S_WAITCNT", ())}
        parts, lines = [], []
        for number, value in sorted(limits):
            name = self.counters[number].name
            if name in together:
                parts.append(f"{name}({value})")
            else:
                lines.append(f"s_waitcnt_{name} null, {value}" if together else f"s_wait_{name} {value}")
        return (*([f"s_waitcnt {' '.join(parts)}"] if parts else []), *lines)

    def _limits(self, fields: tuple[_Field, ...], immediate: int) -> tuple[Limit, ...]:
        found = []
        for counter, pieces in fields:
            value = width = 0
            for low, bits in pieces:
                value |= (immediate >> low & ((1 << bits) - 1)) << width
                width += bits
            if not width or value != (1 << width) - 1:
                found.append(Limit(self.counter_index[counter], value))
        return tuple(found)

    def released(self, opcode: Opcode) -> int | None:
        """The stream that is done behind an instruction."""
        name = self.releases.get(opcode.pseudo)
        return None if name is None else self.stream_index[name]


_GIVE_SCC = frozenset(
    {"S_BARRIER_SIGNAL_ISFIRST_IMM", "S_BARRIER_SIGNAL_ISFIRST_M0", "S_BARRIER_SIGNAL_ISFIRST", "S_BARRIER_LEAVE"}
)
"""What gives SCC late (GFX12)."""


def _only_writes(opcode: Opcode) -> bool:
    """Whether a vector memory instruction gives nothing back: stores, atomics without return, write-backs."""
    if opcode.pseudo in ("GLOBAL_WB", "GLOBAL_WBINV"):
        return True
    if "_LDS" in opcode.pseudo or not opcode.flags & (_F.STORE | _F.ATOMIC):
        return False
    return not any(operand.is_def for operand in opcode.operands)


def is_gds(opcode: Opcode, values: list[int]) -> bool:
    """Whether an instruction for LDS goes to GDS instead."""
    position = opcode.operand_index.get("gds")
    return position is not None and bool(values[position])


def _waitcnt(vm: tuple[tuple[int, int], ...], exp: int, lgkm: tuple[int, int]) -> tuple[_Field, ...]:
    return _Field("vmcnt", vm), _Field("expcnt", ((exp, 3),)), _Field("lgkmcnt", (lgkm,))


_EXPORTS = (
    Stream("export sources", 0, ordered=False, locks=True),
    Stream("gds sources", 0, ordered=False, locks=True),
    Stream("lds direct", 0, replaces=("lds direct",)),
)


def _streams(counters: tuple[Counter, ...], *rows: tuple[str, Stream]) -> tuple[Stream, ...]:
    index = {counter.name: number for number, counter in enumerate(counters)}
    return tuple(stream._replace(counter=index[name]) for name, stream in rows)


_EXP = Counter("expcnt", 7)
_NINE = (Counter("vmcnt", 63), Counter("lgkmcnt", 15), _EXP)
_TEN = (Counter("vmcnt", 63), Counter("vscnt", 63), Counter("lgkmcnt", 63), _EXP)
_TWELVE = (
    Counter("loadcnt", 63),
    Counter("storecnt", 63),
    Counter("samplecnt", 63),
    Counter("bvhcnt", 7),
    Counter("dscnt", 63),
    Counter("kmcnt", 31),
    _EXP,
)

_MODEL_9 = WaitModel(
    _NINE,
    _streams(
        _NINE,
        # Of FLAT both counters may go down at once and early, so it is ordered with nothing, but its memory accesses
        # give their results in the order of all others.
        ("vmcnt", Stream("vector", 0, replaces=("vector", "flat"))),
        ("vmcnt", Stream("flat", 0, ordered=False)),
        ("lgkmcnt", Stream("lds", 0, replaces=("lds",))),
        ("lgkmcnt", Stream("flat lds", 0, ordered=False)),
        ("lgkmcnt", Stream("gds", 0)),
        ("lgkmcnt", Stream("scalar", 0, ordered=False)),
        ("lgkmcnt", Stream("message", 0, ordered=False)),
        *(("expcnt", stream) for stream in _EXPORTS[:2]),
    ),
    {"S_WAITCNT": _waitcnt(((0, 4), (14, 2)), 4, (8, 4))},
)
_SPLIT_10 = {
    "S_WAITCNT_VMCNT": (_Field("vmcnt", ((0, 6),)),),
    "S_WAITCNT_VSCNT": (_Field("vscnt", ((0, 6),)),),
    "S_WAITCNT_LGKMCNT": (_Field("lgkmcnt", ((0, 6),)),),
    "S_WAITCNT_EXPCNT": (_Field("expcnt", ((0, 3),)),),
}
_STREAMS_10 = (
    ("vmcnt", Stream("vector", 0, replaces=("vector",))),
    ("vmcnt", Stream("sample", 0, replaces=("sample",))),
    ("vmcnt", Stream("bvh", 0, replaces=("bvh",))),
    ("vscnt", Stream("store", 0)),
    ("lgkmcnt", Stream("lds", 0, replaces=("lds",))),
    ("lgkmcnt", Stream("gds", 0)),
    ("lgkmcnt", Stream("scalar", 0, ordered=False)),
    ("lgkmcnt", Stream("message", 0, ordered=False)),
)
_MODEL_10 = WaitModel(
    _TEN,
    _streams(_TEN, *_STREAMS_10, *(("expcnt", stream) for stream in _EXPORTS[:2])),
    {"S_WAITCNT": _waitcnt(((0, 4), (14, 2)), 4, (8, 6)), **_SPLIT_10},
)
_MODEL_11 = WaitModel(
    _TEN,
    _streams(_TEN, *_STREAMS_10, *(("expcnt", stream) for stream in _EXPORTS)),
    {"S_WAITCNT": _waitcnt(((10, 6),), 0, (4, 6)), **_SPLIT_10},
    halves=True,
)
_IDLE = tuple(_Field(counter.name, ()) for counter in _TWELVE)
_MODEL_12 = WaitModel(
    _TWELVE,
    _streams(
        _TWELVE,
        # Loads are counted in order, but may write their registers out of order (LLVM, vmem-write-vgpr-in-order).
        ("loadcnt", Stream("vector", 0)),
        ("storecnt", Stream("store", 0)),
        ("samplecnt", Stream("sample", 0)),
        ("bvhcnt", Stream("bvh", 0)),
        ("dscnt", Stream("lds", 0, replaces=("lds",))),
        ("kmcnt", Stream("scalar", 0, ordered=False)),
        ("kmcnt", Stream("message", 0, ordered=False)),
        ("kmcnt", Stream("barrier", 0, ordered=False)),
        *(("expcnt", stream) for stream in (_EXPORTS[0], _EXPORTS[2])),
    ),
    {
        "S_WAIT_LOADCNT": (_Field("loadcnt", ((0, 6),)),),
        "S_WAIT_STORECNT": (_Field("storecnt", ((0, 6),)),),
        "S_WAIT_SAMPLECNT": (_Field("samplecnt", ((0, 6),)),),
        "S_WAIT_BVHCNT": (_Field("bvhcnt", ((0, 3),)),),
        "S_WAIT_DSCNT": (_Field("dscnt", ((0, 6),)),),
        "S_WAIT_KMCNT": (_Field("kmcnt", ((0, 5),)),),
        "S_WAIT_EXPCNT": (_Field("expcnt", ((0, 3),)),),
        "S_WAIT_LOADCNT_DSCNT": (_Field("loadcnt", ((8, 6),)), _Field("dscnt", ((0, 6),))),
        "S_WAIT_STORECNT_DSCNT": (_Field("storecnt", ((8, 6),)), _Field("dscnt", ((0, 6),))),
        "S_WAIT_IDLE": _IDLE,
    },
    halves=True,
    releases={"S_BARRIER_WAIT": "barrier"},
)

_NO_IMAGES = ("samplecnt", "bvhcnt", "expcnt")
_TWELVE_FIFTY = tuple(counter for counter in _TWELVE if counter.name not in _NO_IMAGES)
_MODEL_1250 = WaitModel(
    _TWELVE_FIFTY,
    _streams(
        _TWELVE_FIFTY,
        *((name, stream) for stream in _MODEL_12.streams if (name := _TWELVE[stream.counter].name) not in _NO_IMAGES),
    ),
    {
        name: kept
        for name, fields in _MODEL_12.fields.items()
        if (kept := tuple(field for field in fields if field.counter not in _NO_IMAGES))
    },
    halves=True,
    releases=_MODEL_12.releases,
    complete=False,
)

_MODELS = (
    (generations(GFX9, GFX10), _MODEL_9),
    (generations(GFX10, GFX11), _MODEL_10),
    (generations(GFX11, GFX12), _MODEL_11),
    (generations(GFX12, GFX1250), _MODEL_12),
    (generations(GFX1250), _MODEL_1250),
)


@cache
def wait_model(generation: Generation) -> WaitModel:
    """Counters, streams and wait instructions of a generation, or of a target's."""
    return next(model for names, model in reversed(_MODELS) if generation.is_of(names))
