"""Results of lifting: functions, blocks, edges, calls and addresses of one kernel."""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args, overload

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from luthier.cache.memory import BoundedCache
from luthier.isa import InstructionArray, InstructionFlag, Isa, Opcode, OperandKind
from luthier.isa.registers import UnitSet
from luthier.isa.targets import Target
from luthier.lifting.instructions import operations
from luthier.lifting.instructions.effects import Columns, Effects, EffectTable, IndexMode, SkipMode
from luthier.lifting.instructions.memory import MemoryAccess, memory_access
from luthier.lifting.instructions.operations import OperationClass, Operations
from luthier.lifting.places import Places
from luthier.objects import CodeObject, Kernel

if TYPE_CHECKING:
    from luthier.objects.source import SourceLocation

EdgeKind = Literal["fallthrough", "taken", "indirect"]
Restriction = Literal[
    "in vector skip mode",
    "in VGPR index mode",
    "where upper bits of VGPR numbers are used that are not known",
    "before an instruction that LLVM does not know",
]
"""Reason why no code can be inserted before an instruction."""
BlockExit = Literal["fallthrough", "branch", "conditional", "call", "tail", "return", "end", "trap", "unknown"]
EXITS: tuple[BlockExit, ...] = get_args(BlockExit)
EDGE_KINDS: tuple[EdgeKind, ...] = get_args(EdgeKind)
"""By their numbers in native code (`runtime/native/lifting/code/blocks.h`)."""


class Edge(Struct, frozen=True, gc=False):
    """Control from one block to another of the same function. A call's block has a fallthrough edge to where it
    returns."""

    kind: EdgeKind
    to: int
    """Block index."""


class ControlEdge(NamedTuple):
    """An edge from one block to another."""

    source: int
    """Block index."""
    to: int
    kind: EdgeKind


class BasicBlock(Struct, frozen=True, gc=False):
    """Instructions that run one after the other, entered at the first and left at the last."""

    index: int
    function: int
    """Index of the function it belongs to; the first one, where hand-written functions share code."""
    first: int
    """Index of the first instruction."""
    last: int
    """Index of the last instruction (inclusive)."""
    exit: BlockExit
    """Kind of its terminator."""
    successors: tuple[Edge, ...]
    predecessors: tuple[int, ...]
    """Block indices, ascending."""


class CallSite(Struct, frozen=True):
    """A call, or a jump that leaves the function for another (a tail call)."""

    index: int
    """Instruction."""
    kind: Literal["call", "tail"]
    callees: tuple[int, ...]
    """Functions it may go to, all of them if `known`; else those of the object that pointers lead to are among them."""
    known: bool
    """False: it may go elsewhere too, and is in `LiftedKernel.unknown`. A jump that may is a tail call if there is a
    function that it may go to."""
    return_block: int | None
    """Block control comes back to; None for tail calls and where nothing follows a call that cannot return."""
    link: int | None
    """First unit of the register pair that receives the return address; None for tail calls."""
    pointer: int | None
    """First unit of the register pair that it takes its target from, if pointers may be in it, whose addresses are the
    original's: then it must go to the copy of what they point to. None: it need not."""
    references: tuple[int, ...]
    """Indices in `pc_references` of the addresses that flow into it; empty for s_call_b64."""
    slots: tuple[int, ...]
    """Addresses of the memory slots (GOT entries, constant tables) the target is loaded from."""


class Function(Struct, frozen=True):
    """A kernel or a device function."""

    index: int
    name: str
    """Its symbol, or ``sub_<address>``."""
    entry: int
    """Virtual address."""
    blocks: tuple[BasicBlock, ...]
    """In address order."""
    entry_block: int
    """Index of the block at `entry`."""
    calls: tuple[CallSite, ...]
    is_kernel: bool


class PcReference(Struct, frozen=True):
    """An address made of the program counter: s_getpc_b64 and the adds of a constant offset to it.

    ``target = address after the s_getpc_b64 + 64-bit offset in the literals of low and high``. To keep the target when
    the code moves, both literals are rewritten.
    """

    getpc: int
    """Instruction that reads the program counter."""
    low: int
    """Instruction that adds the low half of the offset, as an immediate operand; -1 for kinds "computed", "value"."""
    high: int
    """Instruction that adds the high half and the carry; `low` where one addition of 64 bits does both; -1 for kinds
    "computed", "value"."""
    target: int
    """Virtual address; for kinds "computed" and "value" that of the instruction after s_getpc_b64."""
    kind: Literal["code", "pointer", "data", "computed", "value"]
    """"code": a lifted instruction; "pointer": a lifted function, whose address is not only jumped to but used as a
    value, and so stays that of the original; "data": anything else; "computed": the address feeds only arithmetic
    whose results go to jumps and calls listed in `LiftedKernel.direct_jumps`, so it need not be right after the code
    moved; "value": what was read goes where it cannot be followed, so it stays that of the original when the code
    moves, and jumps to what is made of it are listed there too, or are calls by pointers."""


class CodeTable(Struct, frozen=True):
    """Constant memory that holds addresses of lifted functions: a GOT entry, or an array of function pointers.

    To make calls through it reach functions that moved, point its references at a copy with the words changed.
    """

    address: int
    """Virtual address of the first word."""
    targets: tuple[int, ...]
    """The code address in each 8-byte word, when the object is loaded at 0."""
    references: tuple[int, ...]
    """Indices in `pc_references` of the addresses it is reached by."""


class DirectJump(Struct, frozen=True):
    """A jump or call by register with one known target, whose address is not made by a retargetable `PcReference`.

    When code moves, it must become s_branch, or s_call_b64 with the same link register.
    """

    index: int
    target: int
    """Virtual address."""


class Unknown(Struct, frozen=True):
    """A jump or call whose targets were not all found."""

    index: int
    reason: str


class Clause(Struct, frozen=True):
    """The extent of an s_clause: `first` to `last` must follow it with nothing between, or s_clause be removed or
    shortened."""

    index: int
    """The s_clause instruction."""
    first: int
    last: int


MOST_EFFECTS = 1 << 16
"""Instructions whose effects are kept; half a kilobyte each."""
_MATRIX = re.compile(r"v_(?:s?mfmac?|s?wmmac?)_")


class Instruction:
    """One instruction of a `LiftedKernel`; a view that is cheap to make."""

    __slots__ = ("_lifted", "index")

    def __init__(self, lifted: LiftedKernel, index: int) -> None:
        self._lifted = lifted
        self.index = index

    @property
    def address(self) -> int:
        """Return the virtual address."""
        return self._lifted.columns.address[self.index]

    @property
    def size(self) -> int:
        """Return the size in bytes."""
        return self._lifted.columns.size[self.index]

    @property
    def offset(self) -> int:
        """Return the byte offset in the object's file."""
        for segment in self._lifted.object.segments:
            if segment.vaddr <= self.address < segment.vaddr + segment.filesz:
                return self.address - segment.vaddr + segment.offset
        return -1

    @property
    def opcode(self) -> Opcode:
        """Return LLVM's opcode, with what is the same for all its instructions."""
        return self._lifted.isa.opcode(self._lifted.columns.opcode[self.index])

    @property
    def mnemonic(self) -> str:
        """Return the first word of the assembly."""
        return self.opcode.mnemonic

    @property
    def text(self) -> str:
        """Return the assembly."""
        return self._lifted.isa.text(self._lifted.code, self.index)

    @property
    def bytes(self) -> bytes:
        """Return the encoding."""
        return self._lifted.code.bytes_of(self.index)

    @property
    def operands(self) -> list[tuple[OperandKind, int]]:
        """Return the kind and value of each operand, in the order of ``opcode.operands``."""
        return self._lifted.code.operands(self.index)

    def operand(self, name: str) -> tuple[OperandKind, int] | None:
        """Return the operand LLVM calls `name` (``vdst``, ``src0``, ``offset``, …), None if the opcode has none."""
        position = self.opcode.operand_index.get(name)
        return None if position is None else self.operands[position]

    @property
    def flags(self) -> InstructionFlag:
        """Return the flags of the opcode."""
        return self.opcode.flags

    @property
    def is_vector(self) -> bool:
        """Return whether it executes once per lane, under EXEC: VALU, vector memory, LDS, export."""
        return not self.opcode.is_scalar

    @property
    def is_scalar(self) -> bool:
        """Return whether it executes once per wave: SALU, scalar memory, control flow, waits and messages."""
        return self.opcode.is_scalar

    @property
    def memory(self) -> MemoryAccess | None:
        """Return its memory access; None where it has none."""
        return memory_access(self.opcode)

    @property
    def is_memory(self) -> bool:
        """Return whether it reads or writes memory, LDS included."""
        return self.memory is not None

    @property
    def is_load(self) -> bool:
        """Return whether it reads memory and does not write it."""
        return self.memory is not None and self.memory.kind == "load"

    @property
    def is_store(self) -> bool:
        """Return whether it writes memory and does not read it."""
        return self.memory is not None and self.memory.kind == "store"

    @property
    def is_atomic(self) -> bool:
        """Return whether it reads and writes memory atomically."""
        return self.memory is not None and self.memory.kind == "atomic"

    @property
    def is_branch(self) -> bool:
        """Return whether control may go on elsewhere in the function: not calls, returns and ends."""
        return bool(self.flags & InstructionFlag.BRANCH) and not self.is_call

    @property
    def is_conditional(self) -> bool:
        """Return whether it is a branch that control may fall through."""
        return self.opcode.mnemonic.startswith("s_cbranch_")

    @property
    def is_call(self) -> bool:
        """Return whether it is a call, or jumps to another function."""
        return any(call.index == self.index for call in self._lifted.calls_of(self.index))

    @property
    def is_barrier(self) -> bool:
        """Return whether waves of a work-group wait for each other there."""
        return self.opcode.mnemonic.startswith("s_barrier")

    @property
    def is_matrix(self) -> bool:
        """Return whether it is a matrix multiplication (MFMA, SMFMAC, WMMA, SWMMAC)."""
        return bool(_MATRIX.match(self.opcode.mnemonic))

    @property
    def is_float(self) -> bool:
        """Return whether it computes with, compares, rounds or converts floating-point numbers, also in memory.

        Not what only moves them: loads, stores, copies.
        """
        return operations.is_float(self)

    @property
    def operation_class(self) -> OperationClass:
        """Return the class of the unit that executes it, as instruction_mix counts them.

        One of ``vector ALU``, ``matrix``, ``scalar ALU``, ``vector memory``, ``LDS``, ``scalar memory``, ``branch``,
        ``wait``, ``other``.
        """
        return operations.class_of(self)

    @property
    def operations(self) -> list[Operations]:
        """Return its floating-point operations by type, and those of matrix instructions of any type.

        An addition, multiplication or function is one, a fused multiplication and addition two; comparisons,
        conversions and roundings none.
        """
        return operations.operations_of(self)

    @property
    def source(self) -> SourceLocation | None:
        """Return the source location, with the calls that were inlined; None where debug information has none."""
        return self._lifted.object.source.at(self.address)

    @property
    def place(self) -> str:
        """Return the user's ``file:line`` (`SourceLocation.user`); without debug information ``function+0x1c``."""
        return self._lifted.places.at(self.index)

    @property
    def block(self) -> int:
        """Index of its block, -1 for an instruction that control does not reach."""
        return self._lifted.block_of[self.index]

    @property
    def effects(self) -> Effects:
        """Return the registers read, written and replaced, with lanes."""
        return self._lifted.effects(self.index)

    @property
    def uses(self) -> UnitSet:
        """Return everything that is read."""
        return UnitSet(self.effects.reads)

    @property
    def defs(self) -> UnitSet:
        """Return everything that may change."""
        return UnitSet(self.effects.writes)

    @property
    def restriction(self) -> Restriction | None:
        """Return why no code can be inserted before this instruction; None if it can."""
        return self._lifted.restrictions.get(self.index)

    def __repr__(self) -> str:
        return f"<{self.index}: {self.address:#x} {self.text}>"


class InstructionSequence(Sequence[Instruction]):
    """All instructions of a `LiftedKernel`, made when asked for."""

    def __init__(self, lifted: LiftedKernel) -> None:
        self._lifted = lifted

    def __len__(self) -> int:
        return len(self._lifted.columns.address)

    @overload
    def __getitem__(self, index: int) -> Instruction: ...
    @overload
    def __getitem__(self, index: slice) -> list[Instruction]: ...
    def __getitem__(self, index: int | slice) -> Instruction | list[Instruction]:
        if isinstance(index, slice):
            return [Instruction(self._lifted, one) for one in range(*index.indices(len(self)))]
        return Instruction(self._lifted, range(len(self))[index])

    def __iter__(self) -> Iterator[Instruction]:
        return (Instruction(self._lifted, index) for index in range(len(self)))


class LiftedKernel(Struct, frozen=True, eq=False, dict=True, weakref=True):
    """One kernel and every function it may call, as data. Read-only.

    Instruction indices count in `code`; block, function and reference indices in the tuples of the same name.
    """

    object: CodeObject
    kernel: Kernel
    target: Target
    isa: Isa
    wave_size: int
    hardware_entries: tuple[int, ...]
    """Virtual addresses at which the hardware may start the kernel: its entry, and where kernel arguments are
    preloaded also 256 bytes on. Firmware adds the 256 by itself, so their distance must be kept when code moves."""
    code: InstructionArray
    """The text that holds the kernel and its functions, in address order; only instructions with a block are ever
    executed."""
    functions: tuple[Function, ...]
    """The kernel first."""
    blocks: tuple[BasicBlock, ...]
    """In the order of functions, then of addresses."""
    block_of: Sequence[int]
    """Block index of each instruction, -1 where control does not reach."""
    pc_references: tuple[PcReference, ...]
    direct_jumps: tuple[DirectJump, ...]
    code_tables: tuple[CodeTable, ...]
    """In address order."""
    unknown: tuple[Unknown, ...]
    clauses: tuple[Clause, ...]
    restrictions: Mapping[int, Restriction]
    """Instructions before which no code can be inserted, with the reason."""
    releases: tuple[int, ...]
    """s_sendmsg instructions that give all vector registers back; not with code inserted at `released`."""
    released: frozenset[int]
    """Instructions that may run after one of them."""
    columns: Columns
    """`code` as Python lists."""
    effect_table: EffectTable
    index_mode: Mapping[int, IndexMode]
    """Instructions that run, or may run, in VGPR index mode (s_set_gpr_idx_on)."""
    vgpr_bits: Mapping[int, int | None]
    """Instructions before which upper bits of VGPR numbers may not be 0, with the operand of s_set_vgpr_msb that
    inserted code has to end with; None where bits are used later that are not known. The registers in `code` are those
    that are meant."""
    skipped: Mapping[int, SkipMode]
    """Instructions that may run in vector skip mode (s_setvskip), in which vector instructions do nothing."""
    read_by_inserted: int = 0
    """Bit set of units that inserted code reads, where this is the kernel `also_reading` gives."""
    changed_by_inserted: Mapping[int, int] = field(default_factory=dict)
    """Instruction index -> bit set of units that code inserted before it changes (`also_changing`)."""
    _changed: Mapping[int, Effects] = field(default_factory=dict)
    """Effects of instructions that stand for others too, or for what is inserted before them, by index."""
    _effects: BoundedCache[int, Effects] = field(default_factory=lambda: BoundedCache(MOST_EFFECTS))
    """Cache of the effects of the others."""

    @functools.cached_property
    def reached(self) -> NDArray[np.bool_]:
        """Return [n] whether control reaches each instruction."""
        return np.asarray(self.block_of, np.int32) >= 0

    @functools.cached_property
    def places(self) -> Places:
        """Return the places of the instructions: user's lines, or functions and offsets."""
        functions = [
            (self.functions[block.function].name, self.functions[block.function].entry) for block in self.blocks
        ]
        return Places(self.object, self.code.addresses, functions, self.block_of)

    @property
    def instructions(self) -> InstructionSequence:
        """Return views of all instructions."""
        return InstructionSequence(self)

    def effects(self, index: int) -> Effects:
        """Return the registers that instruction `index` reads, writes and replaces."""
        effects = self._changed.get(index) or self._effects.get(index)
        if effects is None:
            effects = self.effect_table.of(self.columns, index, self.index_mode.get(index), self.skipped.get(index))
            self._effects.put(index, effects)
        return effects

    @property
    def edges(self) -> tuple[ControlEdge, ...]:
        """Return every edge from a block to another of the same function, in the order of blocks."""
        return tuple(ControlEdge(block.index, edge.to, edge.kind) for block in self.blocks for edge in block.successors)

    def calls_of(self, index: int) -> tuple[CallSite, ...]:
        """Return the calls of the function that an instruction is in."""
        block = self.block_of[index]
        return () if block < 0 else self.functions[self.blocks[block].function].calls

    def index_at(self, address: int) -> int | None:
        """Index of the reachable instruction that begins at virtual `address`."""
        at = bisect.bisect_left(self.columns.address, address)
        if at < len(self.columns.address) and self.columns.address[at] == address and self.block_of[at] >= 0:
            return at
        return None
