"""LLVM's MC layer for AMDGPU, native. Use `luthier.isa`, which gives it types and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

LLVM_VERSION: str

class McError(ValueError):
    """What LLVM refuses; `args` are its message and a 1-based source line (0: none)."""

_Columns = tuple[
    NDArray[np.int64],  # offset
    NDArray[np.int32],  # size
    NDArray[np.int32],  # opcode
    NDArray[np.uint32],  # flags
    NDArray[np.int64],  # target
    NDArray[np.int32],  # operand_start
    NDArray[np.uint8],  # operand_kind
    NDArray[np.int64],  # operand_value
]
_Fixup = tuple[int, int, str, str, str, int, str]

class Isa:
    def __init__(self, cpu: str, features: str) -> None: ...
    def decode(self, code: bytes | bytearray | memoryview, address: int, patient: bool = False) -> _Columns:
        """`patient` offers LLVM all bytes that follow each instruction: the same result, slower; for tests."""
    def listing(self, code: bytes, address: int) -> list[tuple[int, int, str | None, int | None]]:
        """Offset, size, text and branch target of every instruction, without NumPy; None where there is no such."""
    def named_registers(self, code: bytes, address: int) -> tuple[int, int, int, bool, bool]:
        """VGPRs, AGPRs and SGPRs that a wave needs for what they name; whether any is for LDS, and for scratch."""
    def encode(
        self,
        opcode: NDArray[np.int32],
        operand_start: NDArray[np.int32],
        operand_kind: NDArray[np.uint8],
        operand_value: NDArray[np.int64],
    ) -> tuple[bytes, NDArray[np.int32]]: ...
    def vgpr_places(self, opcode: int) -> list[int]:
        """For each operand which bits of ``s_set_vgpr_msb`` go with it (0 to 3), -1 for none."""
    def print(
        self,
        opcode: NDArray[np.int32],
        operand_start: NDArray[np.int32],
        operand_kind: NDArray[np.uint8],
        operand_value: NDArray[np.int64],
        addresses: NDArray[np.int64],
    ) -> list[str]: ...
    def assemble(self, source: str) -> tuple[_Columns, bytes, list[tuple[str, int]], list[_Fixup]]: ...
    def describe_opcode(
        self, opcode: int
    ) -> tuple[
        str, str, str, int, list[tuple[str, bool, int, int, int]], list[int], list[int], int, int, int, bool
    ]: ...
    register_count: int
    def register(self, number: int) -> tuple[str, str, int, int, bool]:
        """LLVM's name, the assembly text, first unit, number of units, whether it is a half."""
    def register_units(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8], NDArray[np.uint8]]:
        """By register: first unit, number of units, whether it is a half, whether this processor's encoder takes it."""
    def register_numbers(self) -> dict[str, int]: ...
    def register_class_name(self, id: int) -> str: ...
    def register_classes(self) -> list[tuple[str, list[int]]]: ...

def opcode_names() -> list[str]: ...
def opcode_numbers(names: list[str]) -> list[int]:
    """-1 where there is none of that name."""

def demangle(name: str) -> str:
    """The C++ name of a mangled symbol; any other name as it is."""

def host() -> tuple[str, list[str]]:
    """Name and features of the CPU this runs on, as LLVM calls them."""

def set_operand_names(numbers: dict[str, int]) -> None: ...
def named_operand_positions(opcode: int, names: int) -> list[int]: ...

# Reachable code (runtime/native/lifting/code).

_Block = TypeVar("_Block")
_Edge = TypeVar("_Edge")

class OpcodeTraits:
    """How control leaves the instructions of each opcode, and its marks (`luthier.lifting.instructions.semantics`)."""

    def __init__(self, traits_of: Callable[[int], tuple[int, int]]) -> None: ...

class Piece:
    """A run of text decoded from its first byte."""

    end: int
    """Address behind it."""
    def __init__(self, isa: Isa, code: bytes, start: int, traits: OpcodeTraits) -> None: ...
    def __len__(self) -> int:
        """Number of instructions."""
    def columns(self) -> _Columns: ...

class TextMap:
    """The executable sections of an object, its functions, and the addresses at which pieces begin, all ascending."""

    def __init__(
        self,
        sections: list[tuple[int, int]],
        functions: list[tuple[int, int]],
        starts: list[int],
        first_unit: list[int],
    ) -> None:
        """`first_unit`: of registers, by LLVM's number; -1 where there is none."""
    def function(self, address: int) -> int | None:
        """Start of the function of known size that holds an address."""

_Decode = Callable[[int, int | None], Piece]
"""Decodes one of the text's pieces, by its start, or from there up to an address."""
Problem = tuple[str, int, int | None, int | None]
"""Message, address, and what ends the message: the start of a function for its name, a number."""

class Explorer:
    """Marks which instructions control can reach."""

    leaders: int
    """Number of addresses at which a block begins."""
    links: int
    """Number of registers in which the functions' callers leave return addresses."""
    def __init__(self, text: TextMap, known: Explorer | None) -> None:
        """`known`: its decoded pieces are used."""
    def functions(self, first: int) -> list[int]:
        """Addresses of the called functions from this number on, in the order in which they were found."""
    def link_of(self, register: int) -> int | None:
        """The first unit of a register, by LLVM's number."""
    def add_functions(self, entries: list[int], decode: _Decode) -> Problem | None:
        """Explore functions."""
    def reach(self, address: int, origin: int, decode: _Decode) -> Problem | None:
        """Explore all that control reaches from an address."""
    def parts(self) -> list[tuple[int, int, int]]:
        """Start of each piece of which something is reached, how many instructions of it count, and where they end."""
    marks: int
    """Marks of all opcodes in these pieces together."""
    def columns(self) -> _Columns:
        """These pieces put together, with offsets from the start of the first one."""
    def cut(self, decode: _Decode) -> tuple[Blocks, Problem | None]: ...

_Resolution = tuple[bool, tuple[int, ...], str, tuple[int, ...], tuple[int, ...], bool]
"""The fields of `luthier.lifting.code.graph.Resolution`."""

class ArrangedBlocks:
    """Blocks in the order of functions, then of addresses."""

class Blocks:
    """All blocks of the reached code, in address order; instructions count in the parts put together."""

    def first(self) -> list[int]: ...
    def last(self) -> list[int]: ...
    def exits(self) -> list[int]: ...
    def successors(self, block: int) -> list[tuple[int, int]]:
        """Kind and block of each edge."""
    def jumps(self) -> list[tuple[int, tuple[int, ...], _Resolution | None]]:
        """Blocks that end with calls and register jumps: block, targets, what is known if it is analysed."""
    def find_functions(self, explorer: Explorer, roots: list[int], left: int) -> int:
        """Find the blocks of all functions, the first one's from the addresses `roots`. Returns units of effort: more
        than `left` if these did not suffice."""
    def members(self) -> dict[int, list[int]]:
        """The blocks of each function, ascending, by its address."""
    def at(self, address: int) -> int:
        """The block that begins there, -1 if none does."""
    def arrange(
        self,
        instructions: int,
        exits: tuple[str, ...],
        kinds: tuple[str, ...],
        block: Callable[[int, int, int, int, Any, tuple[_Edge, ...], tuple[int, ...]], _Block],
        edge: Callable[[Any, int], _Edge],
    ) -> tuple[ArrangedBlocks, list[int], list[_Block], NDArray[np.int32]]:
        """In the order of functions: the blocks; the place of each; as `block` and `edge` make them; the place of each
        instruction's block."""

# Data flow of lifting (runtime/native/lifting). Sets of units are 192 bytes, the lowest unit first.

class EffectTable:
    """The instructions of one processor at one wave size."""

    def __init__(self, first_unit: list[int], unit_count: list[int], half: list[bool], wide: bool) -> None: ...
    def tell(self, opcode: int, form: dict[str, object]) -> None:
        """What all instructions of an opcode have in common (`luthier.lifting.instructions.effects`)."""
    def missing(self, opcodes: NDArray[np.int32]) -> list[int]:
        """Those of `opcodes` that were not told yet, ascending."""
    def code(
        self,
        opcode: NDArray[np.int32],
        operand_start: NDArray[np.int32],
        operand_kind: NDArray[np.uint8],
        operand_value: NDArray[np.int64],
        vectors: bytes,
        everything: bytes,
    ) -> Code: ...

class WideEffectTable(EffectTable):
    """The same for processors with up to 1,024 VGPRs; all that is made from it is as wide."""

class Code:
    """Instructions, with the units that computed register numbers may name, and all that is followed."""

    def effects(self, index: int) -> tuple[int, int, int, int, int, int]:
        """The fields of `luthier.lifting.Effects`."""
    def together(self, first: int, last: int) -> tuple[int, int, int]:
        """Units that instructions `first` to `last` read, write and replace."""
    def address_search(
        self,
        blocks: Blocks,
        addresses: NDArray[np.int64],
        sizes: NDArray[np.int32],
        roles: NDArray[np.uint32],
        filled: list[int],
        text: TextMap,
        known: KnownFunctions,
        slot_value: Callable[[int], int | None],
        table: Callable[[int], tuple[int, int] | None],
        computed: bool,
    ) -> AddressSearch:
        """The search for addresses in functions of these blocks; `roles`: of instructions, from
        `luthier.lifting.addresses.operations.roles`; `filled`: addresses in the code that the loader writes to;
        `slot_value`, `table`: of `luthier.lifting.addresses.slots.CodeSlots`; `computed`: whether an instruction may
        access any vector register."""
    def flow(
        self,
        blocks: ArrangedBlocks,
        functions: list[tuple[int, list[int]]],  # entry block, calls
        calls: list[tuple[int, bool, bool, list[int]]],  # block, whether a tail call, all callees known, callees
        entries: list[int],
        overrides: dict[int, OverrideRow],
        launched: int,
        unknown: bool,
        longest: int,
    ) -> Flow:
        """`longest`: instructions of a block, from which on it is followed as several."""

OverrideRow = tuple[bytes, bytes, bytes, bytes, bytes, int, bool, bool]
"""`luthier.lifting.Effects`; whether its opcode does not tell what it does to masks; whether inserted code before it
writes EXEC."""
_SegmentLanes = tuple[int, int, int, int, list[int]]

class AddressSearch:
    """Finds where register jumps go."""

    changed: bool
    """Whether the last analysis changed what is known."""
    spent: int
    """Units of effort that it took: more than were left if these did not suffice."""
    searches: int
    """Number of its functions whose results were not known from an earlier one."""
    def analyse(
        self,
        functions: list[int],
        alone: bool,
        explorer: Explorer,
        decode: _Decode,
        pointed: Callable[[int, str], tuple[str, list[int]] | None],
        followed: list[int] | None,
        left: int,
    ) -> Problem | None:
        """Analyse functions, by address, and explore where their jumps and calls lead, in `explorer`, whatever the
        blocks are of; `pointed`: `luthier.lifting.addresses.analysis.Pointed`; `followed`: instructions in place of
        those that can matter."""

class SearchCache:
    """The latest results of functions of one text."""

    def __init__(self, most: int) -> None: ...
    def __len__(self) -> int: ...

class WideSearchCache(SearchCache): ...

class KnownFunctions:
    """What is known of the functions that a kernel calls."""

    def __init__(self, cache: SearchCache, entries: list[int]) -> None:
        """`entries`: where the hardware enters the kernel, its address first."""
    def connect(self, blocks: Blocks, explorer: Explorer) -> None:
        """Connect blocks that end with register jumps and calls of known targets."""
    def found(self) -> tuple[list[tuple[int, int, int, int]], set[int], set[int], set[int]]:
        """In all functions, ascending: addresses of each s_getpc_b64 and of the additions to its halves, and the
        offset. Then s_getpc_b64 whose value is changed otherwise, those whose incomplete address has uses that are not
        followed, and those whose complete address has uses other than jumps."""
    def found_in(self, function: int) -> tuple[dict[int, _Resolution], set[tuple[int, int, int, int]], set[int], int]:
        """In one function: where its jumps and calls lead, references, changed s_getpc_b64, and the scalar units that
        it may change."""

class WideKnownFunctions(KnownFunctions): ...

class Flow:
    """A kernel's control flow and what is known of its lane masks."""

    def changed(self, overrides: dict[int, OverrideRow], keep_lanes: bool) -> Flow:
        """The same with other effects of some instructions; `keep_lanes`: what is known of masks is the same."""
    def liveness(self, touched: bytes) -> Liveness:
        """`touched`: units that inserted code reads or writes."""
    def lanes(self, block: int) -> tuple[list[_SegmentLanes], list[int], _SegmentLanes, list[list[int]]]:
        """Groups of lanes in a block: its segments, over its call, after it, along its edges."""

class Liveness:
    """What is live where."""

    def at(self, block: int, offset: int) -> tuple[int, int]:
        """Live units of active and of inactive lanes before an instruction, given by its block and its number there;
        the number after the last stands for the end of the block."""
    def columns(self, blocks: NDArray[np.int32], offsets: NDArray[np.int32]) -> NDArray[np.uint64]:
        """[2, words of a set, points] the same before instructions, each given by its block and its number there."""
