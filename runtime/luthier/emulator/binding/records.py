"""Binding of decoded instructions to records, many at a time.

Instructions that differ only in register numbers and immediates share a *shape*: the symbol of their machine code, and
a recipe for the slots of a record. `bind.Binder` computes each shape once, and the shape is kept on disk. A later
process then needs neither the operations nor LLVM's code generator.

A row of numbers identifies a shape: the opcode, whether the instruction branches, and a token for each operand that
determines the code (see `bind.Binder.roles`): the value of a modifier, the kind of a register, or whether a constant
is an inline constant.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.binding.shapes import MODIFIER, Fill, RegisterPlaces, Step
from luthier.emulator.constants import HALF, OPEN, SINGLES, inline_offsets, own_float
from luthier.emulator.ir.variant import FOLLOWED, FloatMode, Variant
from luthier.emulator.native.machine import machine_code
from luthier.emulator.native.store import store
from luthier.isa import InstructionArray, Isa
from luthier.isa.access_kinds import ACCESSES, WAITS_FOR_STORES, is_memory
from luthier.isa.instructions import NO_TARGET, OperandKind

if TYPE_CHECKING:
    from luthier.emulator.binding.bind import Binder

NO_BRANCH = np.iinfo(np.int64).max
"""Distance of an instruction that is not a branch."""
_TOKENS = {"-": 0, "0": 1, "v": 2, "vh": 3, "vl": 4, "s": 5, "sh": 6, "sl": 7}
_UNKNOWN_REGISTER = 1000
"""Token of a register that is not modelled, plus its number."""
_INLINE, _LITERAL, _LITERAL64, _UNKNOWN_CONSTANT = -1, -2, -3, -4
_OBSERVED = (*ACCESSES, *WAITS_FOR_STORES, "s_barrier", "s_endpgm")
"""Prefixes of the names of operations whose code differs when observed."""
_REGISTER, _IMMEDIATE, _WIDE_LITERAL = map(int, (OperandKind.REGISTER, OperandKind.IMMEDIATE, OperandKind.LITERAL64))


class _Known(NamedTuple):
    """Shape in the form that is kept on disk."""

    symbol: str
    recipe: Sequence[Step] = ()
    refusal: str = ""
    """Reason why there is no code; the other fields are then empty."""


class RecordMode(Struct, frozen=True):
    """Properties of a record table that affect the code of its records."""

    float_mode: FloatMode
    stepping: bool
    skipping: bool = False
    """Vector instructions do nothing (GFX9, MODE.VSKIP)."""
    observed: bool = False
    """Memory accesses and barriers are reported."""
    floats: int = 0
    """Kinds of exceptional floats that are reported: bits such as `layout.FLOAT_NAN`."""
    undefined: int = 0
    """Sources of undefined values that are tracked: bits such as `layout.LANE_VALUES`."""
    all_defined: bool = False
    """All registers are defined: only code that may read memory tracks undefined values."""


class Records(Struct, frozen=True):
    """Contents of records, one row per instruction."""

    functions: NDArray[np.uint64]
    """0 where the instruction is refused."""
    slots: NDArray[np.uint32]
    vgprs: NDArray[np.int32]
    """Number of VGPRs up to the last one that the instruction names."""
    agprs: NDArray[np.int32]
    refusals: dict[int, str]
    """By row: the reason why an instruction cannot be executed."""


Item = TypeVar("Item", bound=Hashable)


def _distinct(items: list[Item]) -> tuple[list[Item], NDArray[np.intp], list[int]]:
    """Return the distinct items, the index of each item among them, and the position where each occurs first.

    Unlike `np.unique`, it does not sort, and does not load more of NumPy.
    """
    numbers: dict[Item, int] = {}
    inverse = [numbers.setdefault(item, len(numbers)) for item in items]
    first: list[int] = []
    for place, number in enumerate(inverse):
        if number == len(first):
            first.append(place)
    return list(numbers), np.array(inverse, np.intp), first


class RecordBinder:
    """Fills in the records of one processor and wave size. Thread-safe."""

    @staticmethod
    @functools.cache
    def of(isa: Isa) -> RecordBinder:
        """Return the binder of an instruction set. All codes share it: its caches take hundreds of kilobytes."""
        return RecordBinder(isa)

    def __init__(self, isa: Isa) -> None:
        self.isa = isa
        self._lock = threading.RLock()
        self._registers = RegisterPlaces(isa)
        self._places = np.full((4, isa.register_count), -1, np.int64)
        """By LLVM register number: token, offset in a wave, number of VGPRs and AGPRs up to its last one."""
        self._roles: dict[int, tuple[tuple[int, int], ...] | str] = {}
        """By opcode: operand positions that determine the code with their roles, or why there is no operation."""
        self._shapes: dict[tuple[RecordMode, bytes], _Known] = {}

    @functools.cached_property
    def _binder(self) -> Binder:
        from luthier.emulator.binding.bind import Binder  # imports all operations and llvmlite

        return Binder(self.isa)

    def bind(
        self,
        code: InstructionArray,
        indices: NDArray[np.intp],
        targets: NDArray[np.int64],
        following: NDArray[np.int64],
        mode: RecordMode,
    ) -> Records:
        """Bind the instructions at `indices`. All of them must be decodable.

        Args:
            targets: distance in records from each to its branch target, or `NO_BRANCH`.
            following: code offset of the instruction after each.
        """
        with self._lock:
            opcodes = code.opcode[indices]
            starts = code.operand_start[indices].astype(np.intp)
            counts = code.operand_start[indices + 1] - starts
            width = int(counts.max(initial=0))
            columns = np.arange(width)
            present = columns < counts[:, None]
            flat = np.where(present, starts[:, None] + columns, 0)
            values = np.where(present, code.operand_value[flat], 0)
            kinds = np.where(present, code.operand_kind[flat], 0)
            is_register = kinds == _REGISTER
            self._place(values[is_register])
            roles = self._role_matrix(code, indices, opcodes, width)
            self._narrow(values, kinds, roles)
            rows = np.zeros((len(indices), width + 2), np.int64)
            rows[:, 0] = opcodes
            rows[:, 1] = np.where(targets == NO_BRANCH, 0, np.where(targets > 0, 1, 2))
            rows[:, 2:] = self._tokens(values, kinds, roles)
            keys = [key.rstrip(b"\0") for key in rows.view(f"S{rows.itemsize * (width + 2)}").ravel().tolist()]
            numbers, shape_of, first = _distinct(keys)
            shapes = self._look_up(numbers, code, indices[first], targets[first], mode)
            functions, refused = self._functions(shapes, code, indices[first], targets[first], mode)
            what = np.zeros((len(shapes), layout.RECORD_SLOTS), np.int8)
            where = np.zeros((len(shapes), layout.RECORD_SLOTS), np.int64)
            for number, shape in enumerate(shapes):
                for place, (fill, position) in enumerate(shape.recipe):
                    what[number, place], where[number, place] = fill, position
            slots, vgprs, agprs = self._fill(what[shape_of], where[shape_of], values, targets, following)
            refusals = {row: refused[number] for row, number in enumerate(shape_of.tolist()) if number in refused}
            return Records(functions[shape_of], slots, vgprs, agprs, refusals)

    # Rows -----------------------------------------------------------------------------------------------------------

    def _place(self, numbers: NDArray[np.int64]) -> None:
        """Fill in `_places` for these registers."""
        for number in set(numbers[self._places[0, numbers] < 0].tolist()):
            place = self._registers.place(number)
            token = _TOKENS.get(place.token, _UNKNOWN_REGISTER + number)
            self._places[:, number] = token, place.slot, place.vgprs, place.agprs

    @staticmethod
    def _narrow(values: NDArray[np.int64], kinds: NDArray[np.uint8], roles: NDArray[np.int8]) -> None:
        """Replace inline floats by the bits that their operands hold."""
        upper = values >> 32
        wide = (
            (kinds == _IMMEDIATE) & (roles > MODIFIER) & ((roles == HALF) | (roles < 64) & (upper != 0) & (upper != -1))
        )
        values[wide] = list(map(own_float, values[wide].tolist(), roles[wide].tolist()))

    def _role_matrix(
        self, code: InstructionArray, indices: NDArray[np.intp], opcodes: NDArray[np.int32], width: int
    ) -> NDArray[np.int8]:
        """Return the role of every operand; 0 for operands that do not affect the code."""
        unique, inverse, first = _distinct(opcodes.tolist())
        missing = {number: row for number, row in zip(unique, first, strict=True) if number not in self._roles}
        keeper = store()
        prefix = f"roles {self.isa.target} {self.isa.wave_size} "
        if missing and keeper is not None:
            kept = keeper.get(f"{prefix}{number}".encode() for number in missing)
            for number in missing:
                value = kept.get(f"{prefix}{number}".encode())
                if value is not None:
                    roles = json.loads(value)
                    self._roles[number] = roles if isinstance(roles, str) else tuple(map(tuple, roles))
        fresh = {}
        for number, row in missing.items():
            if number not in self._roles:
                fresh[f"{prefix}{number}".encode()] = self._find_roles(code, int(indices[row]), number)
        if keeper is not None:
            keeper.put(fresh)
        table = np.zeros((len(unique), width), np.int8)
        for row, number in enumerate(unique):
            known = self._roles[number]
            for position, role in () if isinstance(known, str) else known:
                table[row, position] = role
        return table[inverse]

    def _find_roles(self, code: InstructionArray, index: int, number: int) -> bytes:
        from luthier.emulator.ir.declare import Unsupported

        try:
            self._roles[number] = self._binder.roles(code, index)
        except Unsupported as problem:
            self._roles[number] = str(problem)
        return json.dumps(self._roles[number]).encode()

    def _tokens(
        self, values: NDArray[np.int64], kinds: NDArray[np.uint8], roles: NDArray[np.int8]
    ) -> NDArray[np.int64]:
        tokens = np.where(roles == MODIFIER, values, 0)
        decides = roles > MODIFIER
        registers = decides & (kinds == _REGISTER)
        tokens[registers] = self._places[0, values[registers]]
        for width, chosen in ((32, roles < 64), (64, roles == 64)):
            constants = decides & ~registers & chosen
            literal = np.where(kinds[constants] == _WIDE_LITERAL, _LITERAL64, _LITERAL)
            tokens[constants] = np.where(inline_offsets(values[constants], width) != 0, _INLINE, literal)
        tokens[decides & ~registers & (roles == OPEN) & np.isin(values, list(SINGLES))] = _UNKNOWN_CONSTANT
        return tokens

    # Shapes ---------------------------------------------------------------------------------------------------------

    def _look_up(
        self,
        keys: list[bytes],
        code: InstructionArray,
        indices: NDArray[np.intp],
        targets: NDArray[np.int64],
        mode: RecordMode,
    ) -> list[_Known]:
        """Return the shape of each key. `indices` and `targets` give one instruction for each key."""
        missing = {key: row for row, key in enumerate(keys) if (mode, key) not in self._shapes}
        keeper = store()
        prefix = f"shape {self.isa.target} {self.isa.wave_size} {mode} ".encode()
        if missing and keeper is not None:
            kept = keeper.get(prefix + key for key in missing)
            for key in missing:
                value = kept.get(prefix + key)
                if value is not None:
                    self._shapes[mode, key] = _Known(*json.loads(value))
        fresh = {}
        for key, row in missing.items():
            if (mode, key) not in self._shapes:
                shape = self._shapes[mode, key] = self._find(code, int(indices[row]), int(targets[row]), mode)
                fresh[prefix + key] = json.dumps(shape).encode()
        if keeper is not None:
            keeper.put(fresh)
        return [self._shapes[mode, key] for key in keys]

    def _find(self, code: InstructionArray, index: int, target: int, mode: RecordMode) -> _Known:
        from luthier.emulator.ir.declare import Unsupported

        try:
            variant, recipe = self._variant(code, index, target, mode)
        except Unsupported as problem:
            return _Known("", (), str(problem))
        return _Known(variant.symbol, recipe)

    def _variant(
        self, code: InstructionArray, index: int, target: int, mode: RecordMode
    ) -> tuple[Variant, tuple[Step, ...]]:
        if mode.skipping and not self.isa.opcode(int(code.opcode[index])).pseudo.startswith("S_"):
            return Variant("s_nop", self.isa.wave_size, 9, stepping=mode.stepping), ()
        shape = self._binder.bind(code, index, None if target == NO_BRANCH else target, mode.float_mode)
        observed = mode.observed and shape.variant.operation.startswith(_OBSERVED)
        floats = self._floats(shape.variant, mode.floats) if mode.floats else 0
        variant = replace(shape.variant, stepping=mode.stepping, observed=observed, floats=floats)
        if mode.all_defined and not self._may_read_memory(variant):
            return variant, shape.recipe
        return replace(variant, undefined=mode.undefined, all_defined=mode.all_defined), shape.recipe

    @staticmethod
    def _may_read_memory(variant: Variant) -> bool:
        from luthier.emulator.ir.declare import Form
        from luthier.emulator.native.emit import operation_of
        from luthier.emulator.operations.control import timing_only

        operation = operation_of(variant)
        return operation.form is Form.WAVE and operation.function is not timing_only

    def variants(self, code: InstructionArray, indices: range, mode: RecordMode) -> list[Variant | None]:
        """Return the variants of decodable instructions that are not refused; None for branches."""
        branches = code.target[indices.start : indices.stop] != NO_TARGET
        with self._lock:
            return [
                None if branches[at] else self._variant(code, index, NO_BRANCH, mode)[0]
                for at, index in enumerate(indices)
            ]

    def _floats(self, variant: Variant, wanted: int) -> int:
        """Return what an operation's code reports of what is wanted of all."""
        if wanted & FOLLOWED and is_memory(variant.operation):
            return FOLLOWED
        return wanted & ~FOLLOWED if self._float_results(variant) else 0

    @staticmethod
    def _float_results(variant: Variant) -> bool:
        """Return whether code reports exceptional results of an operation."""
        from luthier.emulator.ir.declare import Form
        from luthier.emulator.ir.exceptional import is_matrix, is_watched
        from luthier.emulator.native.emit import operation_of

        halves = [variant] if variant.second is None else [variant, variant.second]
        return is_matrix(variant.operation) or any(
            operation.form in (Form.LANE, Form.PACKED, Form.SCALAR)
            and is_watched(half.operation, float_results=any(spec.type.is_float for spec in operation.results))
            for half in halves
            for operation in (operation_of(half),)
        )

    def _functions(
        self,
        shapes: list[_Known],
        code: InstructionArray,
        indices: NDArray[np.intp],
        targets: NDArray[np.int64],
        mode: RecordMode,
    ) -> tuple[NDArray[np.uint64], dict[int, str]]:
        """Return the host address of each shape's function (0: there is none), and the reasons for 0 by shape."""
        rows = {shape.symbol: row for row, shape in enumerate(shapes) if not shape.refusal}

        def variant_of(symbol: str) -> Variant:
            row = rows[symbol]
            return self._variant(code, int(indices[row]), int(targets[row]), mode)[0]

        addresses = machine_code().addresses(rows, variant_of)
        functions = np.zeros(len(shapes), np.uint64)
        refused: dict[int, str] = {}
        for row, shape in enumerate(shapes):
            if shape.symbol in addresses:
                functions[row] = addresses[shape.symbol]
            else:
                refused[row] = shape.refusal or machine_code().refusal(shape.symbol)
        return functions, refused

    # Records --------------------------------------------------------------------------------------------------------

    def _fill(
        self,
        what: NDArray[np.int8],
        where: NDArray[np.int64],
        values: NDArray[np.int64],
        targets: NDArray[np.int64],
        following: NDArray[np.int64],
    ) -> tuple[NDArray[np.uint32], NDArray[np.int32], NDArray[np.int32]]:
        """Return the slots of every instruction, and the number of VGPRs and AGPRs up to the last one named."""
        from_operand = (what != Fill.NOTHING) & (what < Fill.TARGET)
        if values.shape[1] == 0:
            values = np.zeros((len(values), 1), np.int64)
        picked = np.take_along_axis(values, np.where(from_operand, where, 0), axis=1)
        slots = np.zeros(what.shape, np.int64)
        registers = what == Fill.REGISTER
        slots[registers] = self._places[1, picked[registers]]
        counts = np.zeros((2, *what.shape), np.int32)
        counts[:, registers] = self._places[2:, picked[registers]]
        branches = np.where(targets == NO_BRANCH, 0, targets * layout.RECORD.size)
        for fill, filled in (
            (Fill.IMMEDIATE, picked),
            (Fill.SIGNED16, (picked & 0xFFFF) - ((picked & 0x8000) << 1)),
            (Fill.HIGH, picked >> 32),
            (Fill.HIGH_SIGNED, np.where(picked >> 32 == 0, -(picked >> 31), picked >> 32)),
            (Fill.TARGET, np.broadcast_to(branches[:, None], what.shape)),
            (Fill.FOLLOWING, np.broadcast_to(following[:, None], what.shape)),
            (Fill.FOLLOWING_HIGH, np.broadcast_to(following[:, None] >> 32, what.shape)),
            (Fill.FIXED, where),
        ):
            chosen = what == fill
            slots[chosen] = filled[chosen]
        for fill, width in ((Fill.INLINE32, 32), (Fill.INLINE64, 64)):
            chosen = what == fill
            slots[chosen] = inline_offsets(picked[chosen], width)
        vgprs, agprs = counts.max(axis=2, initial=0)
        return (slots & 0xFFFFFFFF).astype(np.uint32), vgprs, agprs
