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

from luthier import _mc
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
    "where unknown upper bits of VGPR numbers are used",
    "before an instruction that LLVM does not know",
]
"""Reason why no code can be inserted before an instruction."""
BlockExit = Literal["fallthrough", "branch", "conditional", "call", "tail", "return", "end", "trap", "unknown"]
EXITS: tuple[BlockExit, ...] = get_args(BlockExit)
EDGE_KINDS: tuple[EdgeKind, ...] = get_args(EdgeKind)
"""In the order of their numbers in native code (`runtime/native/lifting/code/blocks.h`)."""


class Edge(Struct, frozen=True, gc=False):
    """An edge to a block of the same function. A block that ends in a call has a fallthrough edge to the return
    point."""

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
    """A straight-line sequence of instructions, entered at the first and left at the last."""

    index: int
    function: int
    """Index of its function; the first one if hand-written functions share the block."""
    first: int
    """Index of the first instruction."""
    last: int
    """Index of the last instruction (inclusive)."""
    exit: BlockExit
    """How control leaves the block."""
    successors: tuple[Edge, ...]
    predecessors: tuple[int, ...]
    """Block indices, ascending."""


class CallSite(Struct, frozen=True, gc=False):
    """A call, or a jump to another function (a tail call)."""

    index: int
    """Instruction index."""
    kind: Literal["call", "tail"]
    callees: tuple[int, ...]
    """Possible target functions. If not `known`, they include the functions of the object that pointers lead to."""
    known: bool
    """Whether `callees` is complete; if not, the call is also in `LiftedKernel.unknown`. A jump with further targets
    is a tail call if at least one target is a function."""
    return_block: int | None
    """Block that the callee returns to; None for tail calls, and if no code follows a call that cannot return."""
    link: int | None
    """First unit of the register pair that receives the return address; None for tail calls."""
    pointer: int | None
    """First unit of the register pair with the target address, if this may be a pointer to original code, so that the
    call must be redirected to the copy of its target. None: no redirection is needed."""
    references: tuple[int, ...]
    """Indices in `pc_references` of the addresses that flow into it; empty for s_call_b64."""
    slots: tuple[int, ...]
    """Addresses of the memory slots (GOT entries, constant tables) from which the target is loaded."""


class Function(Struct, frozen=True, gc=False):
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


class PcReference(Struct, frozen=True, gc=False):
    """A PC-relative address: s_getpc_b64 and the additions of a constant offset to it.

    ``target = address after the s_getpc_b64 + 64-bit offset in the literals of low and high``. When the code moves,
    both literals are rewritten to keep the target.
    """

    getpc: int
    """Instruction that reads the program counter."""
    low: int
    """Instruction that adds the low half of the offset, as an immediate operand; -1 for kinds "computed", "value"."""
    high: int
    """Instruction that adds the high half and the carry; equal to `low` if a single 64-bit addition does both; -1 for
    kinds "computed", "value"."""
    target: int
    """Virtual address; for kinds "computed" and "value" that of the instruction after s_getpc_b64."""
    kind: Literal["code", "pointer", "data", "computed", "value"]
    """Use of the address.

    - "code": a lifted instruction;
    - "pointer": a lifted function whose address is also used as a value, and therefore stays the original address;
    - "data": anything else;
    - "computed": the address feeds only arithmetic for jumps and calls in `LiftedKernel.direct_jumps`, so it need not
      be correct after the code has moved;
    - "value": the address flows into uses that cannot be followed, so it stays the original address. Jumps to addresses
      derived from it are in `LiftedKernel.direct_jumps`, too, or are calls by pointers."""


class CodeTable(Struct, frozen=True, gc=False):
    """Constant memory that holds addresses of lifted functions: a GOT entry, or an array of function pointers.

    To make calls through it reach moved functions, point its references at a copy with new addresses.
    """

    address: int
    """Virtual address of the first word."""
    targets: tuple[int, ...]
    """The code address in each 8-byte word if the object is loaded at 0."""
    references: tuple[int, ...]
    """Indices in `pc_references` of the addresses through which it is accessed."""


class DirectJump(Struct, frozen=True, gc=False):
    """An indirect jump or call with one known target, without a `PcReference` that can be retargeted.

    When the code moves, it must become s_branch, or s_call_b64 with the same link register.
    """

    index: int
    target: int
    """Virtual address."""


class Unknown(Struct, frozen=True, gc=False):
    """A jump or call with unknown targets."""

    index: int
    reason: str


class Clause(Struct, frozen=True, gc=False):
    """The extent of an s_clause. If code is inserted before any of `first` to `last`, the s_clause must be removed or
    shortened."""

    index: int
    """The s_clause instruction."""
    first: int
    last: int


MOST_EFFECTS = 1 << 16
"""Maximum number of instructions whose effects are cached; half a kilobyte each."""
_MATRIX = re.compile(r"v_(?:s?mfmac?|s?wmmac?)_")


class Instruction:
    """One instruction of a `LiftedKernel`: a view that is cheap to create."""

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
        """Return the byte offset in the object's file; -1 if no segment contains the instruction."""
        for segment in self._lifted.object.segments:
            if segment.vaddr <= self.address < segment.vaddr + segment.filesz:
                return self.address - segment.vaddr + segment.offset
        return -1

    @property
    def opcode(self) -> Opcode:
        """Return LLVM's opcode, with the properties that its instructions share."""
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
        """Return the operand with LLVM's name (``vdst``, ``src0``, ``offset``, …); None if the opcode has none."""
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
        """Return its memory access, if any."""
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
        """Return whether it branches inside the function; calls, returns and ends do not."""
        return bool(self.flags & InstructionFlag.BRANCH) and not self.is_call

    @property
    def is_conditional(self) -> bool:
        """Return whether it is a conditional branch."""
        return self.opcode.mnemonic.startswith("s_cbranch_")

    @property
    def is_call(self) -> bool:
        """Return whether it is a call or a tail call."""
        return any(call.index == self.index for call in self._lifted.calls_of(self.index))

    @property
    def is_barrier(self) -> bool:
        """Return whether it is a barrier, at which waves of a work-group wait for each other."""
        return self.opcode.mnemonic.startswith("s_barrier")

    @property
    def is_matrix(self) -> bool:
        """Return whether it is a matrix multiplication (MFMA, SMFMAC, WMMA, SWMMAC)."""
        return bool(_MATRIX.match(self.opcode.mnemonic))

    @property
    def is_float(self) -> bool:
        """Return whether it computes with, compares, rounds or converts floating-point numbers, also in memory.

        Loads, stores and copies do not count.
        """
        return operations.is_float(self)

    @property
    def operation_class(self) -> OperationClass:
        """Return the class of the unit that executes it, as counted by instruction_mix (`OperationClass`)."""
        return operations.class_of(self)

    @property
    def operations(self) -> list[Operations]:
        """Return its floating-point operations by type; of matrix instructions, also integer operations.

        An addition, multiplication or transcendental function counts as one operation, a fused multiply-add as two;
        comparisons, conversions and roundings do not count.
        """
        return operations.operations_of(self)

    @property
    def source(self) -> SourceLocation | None:
        """Return the source location with its inlined calls; None if debug information has none."""
        return self._lifted.object.source.at(self.address)

    @property
    def place(self) -> str:
        """Return the user's ``file:line`` (`SourceLocation.user`), or ``function+0x1c`` without debug information."""
        return self._lifted.places.at(self.index)

    @property
    def block(self) -> int:
        """Return the index of its block; -1 if the instruction is unreachable."""
        return self._lifted.block_of[self.index]

    @property
    def effects(self) -> Effects:
        """Return the registers that it reads, writes and replaces, and its effect on EXEC."""
        return self._lifted.effects(self.index)

    @property
    def uses(self) -> UnitSet:
        """Return all register units that it reads."""
        return UnitSet(self.effects.reads)

    @property
    def defs(self) -> UnitSet:
        """Return all register units that it may change."""
        return UnitSet(self.effects.writes)

    @property
    def restriction(self) -> Restriction | None:
        """Return why no code can be inserted before this instruction; None if code can be inserted."""
        return self._lifted.restrictions.get(self.index)

    def __repr__(self) -> str:
        return f"<{self.index}: {self.address:#x} {self.text}>"


class InstructionSequence(Sequence[Instruction]):
    """All instructions of a `LiftedKernel`, created on access."""

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
            return [Instruction(self._lifted, number) for number in range(*index.indices(len(self)))]
        return Instruction(self._lifted, range(len(self))[index])

    def __iter__(self) -> Iterator[Instruction]:
        return (Instruction(self._lifted, index) for index in range(len(self)))


class LiftedKernel(Struct, frozen=True, eq=False, dict=True, weakref=True):
    """One kernel and every function it may call, as data. Read-only.

    Instruction indices refer to `code`; block, function and reference indices to the tuples of the same name.
    """

    object: CodeObject
    kernel: Kernel
    target: Target
    isa: Isa
    wave_size: int
    hardware_entries: tuple[int, ...]
    """Virtual addresses at which the hardware may start the kernel: its entry and, with preloaded kernel arguments, the
    address 256 bytes later. Firmware adds the 256, so this distance must be kept when code moves."""
    code: InstructionArray
    """The text that contains the kernel and its functions, in address order. Instructions without a block are
    unreachable."""
    functions: tuple[Function, ...]
    """The kernel first."""
    blocks: tuple[BasicBlock, ...]
    """In the order of functions, then of addresses."""
    arranged: _mc.ArrangedBlocks
    """`blocks` for the native analyses."""
    block_of: Sequence[int]
    """[n] block index of each instruction, -1 if unreachable."""
    pc_references: tuple[PcReference, ...]
    direct_jumps: tuple[DirectJump, ...]
    code_tables: tuple[CodeTable, ...]
    """In address order."""
    unknown: tuple[Unknown, ...]
    clauses: tuple[Clause, ...]
    restrictions: Mapping[int, Restriction]
    """Instructions before which no code can be inserted, with the reason."""
    releases: tuple[int, ...]
    """s_sendmsg instructions that deallocate all vector registers; remove them if code is inserted at `released`."""
    released: frozenset[int]
    """Instructions that may run after one of `releases`."""
    columns: Columns
    """`code` as Python lists."""
    effect_table: EffectTable
    index_mode: Mapping[int, IndexMode]
    """Instructions that may run in VGPR index mode (s_set_gpr_idx_on)."""
    vgpr_bits: Mapping[int, int | None]
    """Instructions before which upper bits of VGPR numbers may not be 0, with the s_set_vgpr_msb operand that inserted
    code must restore; None if unknown bits are used later. The registers in `code` include these bits."""
    skipped: Mapping[int, SkipMode]
    """Instructions that may run in vector skip mode (s_setvskip), in which vector instructions do nothing."""
    read_by_inserted: int = 0
    """Bit set of units that inserted code reads (`also_reading`)."""
    changed_by_inserted: Mapping[int, int] = field(default_factory=dict)
    """Instruction index -> bit set of units that code inserted before it changes (`also_changing`)."""
    _changed: Mapping[int, Effects] = field(default_factory=dict)
    """Effects of instructions that include code inserted before them, by index."""
    _effects: BoundedCache[int, Effects] = field(default_factory=lambda: BoundedCache(MOST_EFFECTS))
    """Cache of the effects of other instructions."""

    @functools.cached_property
    def reached(self) -> NDArray[np.bool_]:
        """Return [n] whether control reaches each instruction."""
        return np.asarray(self.block_of, np.int32) >= 0

    @functools.cached_property
    def places(self) -> Places:
        """Return the source locations of the instructions: the user's lines, or functions and offsets."""
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
        """Return every edge between blocks of the same function, in the order of blocks."""
        return tuple(ControlEdge(block.index, edge.to, edge.kind) for block in self.blocks for edge in block.successors)

    def calls_of(self, index: int) -> tuple[CallSite, ...]:
        """Return the calls of the function that contains an instruction."""
        block = self.block_of[index]
        return () if block < 0 else self.functions[self.blocks[block].function].calls

    def index_at(self, address: int) -> int | None:
        """Return the index of the reachable instruction that begins at a virtual address, if any."""
        at = bisect.bisect_left(self.columns.address, address)
        if at < len(self.columns.address) and self.columns.address[at] == address and self.block_of[at] >= 0:
            return at
        return None
