"""Operations across lanes: reads and writes of single lanes, permutations inside and between rows of 16."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from llvmlite import ir

from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.memory_code import unanswered
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.questions import LANES_OFF, WIDTH

if TYPE_CHECKING:
    from luthier.emulator.ir.wave import OperandSlot, WaveBuilder

operations = OperationTable()

OP_SEL = 4
"""The op_sel bit of a source's modifiers."""


@operations.wave("v_readfirstlane_b32", "u32 -> vdst:u32")
def readfirstlane(w: WaveBuilder, result: OperandSlot, source: OperandSlot) -> None:
    """D = S0 of the lowest active lane; of lane 0 if no lane is active."""
    result.write_scalar(source.scalar())


@operations.wave("v_readlane_b32", "u32 u32 -> vdst:u32")
def readlane(w: WaveBuilder, result: OperandSlot, source: OperandSlot, lane: OperandSlot) -> None:
    """D = S0 of lane S1, independent of EXEC."""
    named = lane.scalar()
    w.names_lanes(named)
    result.write_scalar(source.read_lane(named & (w.wave_size - 1)))


@operations.wave("v_writelane_b32", "u32 u32 -> vdst:u32")
def writelane(w: WaveBuilder, result: OperandSlot, source: OperandSlot, lane: OperandSlot) -> None:
    """D of lane S1 = S0, independent of EXEC."""
    result.write_lane(lane.scalar() & (w.wave_size - 1), source.scalar())


def _collect(w: WaveBuilder, source: OperandSlot, lanes: list[TypedValue]) -> tuple[TypedValue, TypedValue]:
    """Return for each lane the source's value in the lane given by a scalar u32, and whether that lane is active."""
    values = ir.Constant(ir.VectorType(ir.IntType(32), w.wave_size), ir.Undefined)
    active = values
    for place, lane in enumerate(lanes):
        index = ir.Constant(ir.IntType(32), place)
        values = w.ir.insert_element(values, source.read_lane(lane).llvm, index)
        bit = (w.exec_bits >> lane.to("u64")) & 1
        active = w.ir.insert_element(active, bit.to("u32").llvm, index)
    return w.wrap(values, "u32"), w.wrap(active, "u32") != 0


def _permute(w: WaveBuilder, result: OperandSlot, source: OperandSlot, lanes: list[TypedValue]) -> None:
    """Write the values of the named lanes.

    With op_sel of the first source, inactive lanes are fetched, too. Otherwise they give 0 with op_sel of the second
    source (bound control), and nothing without it.
    """
    values, active = _collect(w, source, lanes)
    fetch_inactive = w.modifiers.get("src0_modifiers", 0) & OP_SEL
    bound_control = w.modifiers.get("src1_modifiers", 0) & OP_SEL
    if not fetch_inactive:
        values = w.select(active, values, 0 if bound_control else result.row(0))
    result.write(values)


def _other_row(lane: int, crossed: bool) -> int:
    return (lane & ~15) ^ (16 if crossed else 0)


def _permlane(name: str, crossed: bool) -> None:
    static = ("src0_modifiers", "src1_modifiers")

    @operations.wave(f"v_{name}_b32", "u32 u32 u32 -> u32", static=static)
    def permlane(w: WaveBuilder, result: OperandSlot, source: OperandSlot, low: OperandSlot, high: OperandSlot) -> None:
        """Each lane takes S0 of a lane of its row (or of the neighbouring row), given by 4 bits of {S2, S1}."""
        selectors = low.scalar().to("u64") | (high.scalar().to("u64") << 32)
        places = [((selectors >> (4 * place)) & 15).to("u32") for place in range(16)]
        lanes = [places[lane & 15] + _other_row(lane, crossed) for lane in range(w.wave_size)]
        _permute(w, result, source, lanes)

    @operations.wave(f"v_{name}_var_b32", "u32 u32 -> u32", static=static)
    def permlane_var(w: WaveBuilder, result: OperandSlot, source: OperandSlot, selector: OperandSlot) -> None:
        """Each lane takes S0 of a lane of its row (or of the neighbouring row), given by 4 bits of its S1."""
        lanes = [(selector.read_lane(w.number(lane)) & 15) + _other_row(lane, crossed) for lane in range(w.wave_size)]
        _permute(w, result, source, lanes)


_permlane("permlane16", False)
_permlane("permlanex16", True)


@operations.wave("v_permlane64_b32", "u32 -> u32")
def permlane64(w: WaveBuilder, result: OperandSlot, source: OperandSlot) -> None:
    """Each half of a wave64 takes S0 of the other half."""
    if w.wave_size == 64:
        result.write(w.shuffle(source.row(0), [lane ^ 32 for lane in range(64)]))


def _swap_rows(name: str, distance: int, since: tuple[int, ...] = ()) -> None:
    @operations.wave(name, "vdst_in:u32 src0:u32 -> vdst:u32 src0_out:u32", since=since)
    def swap(
        w: WaveBuilder, first: OperandSlot, second: OperandSlot, old_first: OperandSlot, old_second: OperandSlot
    ) -> None:
        """Exchange the odd groups of lanes of D and the even groups of S0.

        CDNA4's document and AMD's rocjitsu ignore EXEC; in LLVM, ``fi`` says whether inactive lanes are fetched.
        """
        unanswered(w, w.exec_bits != (1 << w.wave_size) - 1, LANES_OFF)
        x, y = old_first.row(0), old_second.row(0)
        lanes = w.wave_size
        odd = [bool(lane & distance) for lane in range(lanes)]
        moved = [lane ^ distance for lane in range(lanes)]
        mask = w.constant_mask(odd)
        first.write(w.select(mask, w.shuffle(y, moved), x))
        second.write(w.select(mask, y, w.shuffle(x, moved)))


_swap_rows("v_permlane16_swap_b32", 16)
_swap_rows("v_permlane32_swap_b32", 32)
_swap_rows("v_permlane16_swap_b32", 16, (125,))


def _in_groups(name: str, place: Callable[[TypedValue, TypedValue, TypedValue], TypedValue]) -> None:
    """Declare an exchange in groups of lanes (rocjitsu, vector_special.py, gen_vector_permlane_family).

    `place`: maps a lane's number in its group, S1 and the group's width to the number of the source lane.
    """

    @operations.wave(f"v_permlane_{name}_b32", "u32 u32 u32 -> u32", since=(125,))
    def permlane(
        w: WaveBuilder, result: OperandSlot, source: OperandSlot, selector: OperandSlot, width: OperandSlot
    ) -> None:
        """Each lane takes S0 of a lane of its group of S2 lanes; 0 if that lane is not in the group."""
        chosen, size = selector.scalar(), width.scalar()
        unanswered(w, (size == 0) | (size > w.wave_size) | ((size & (size - 1)) != 0), WIDTH)
        unanswered(w, w.exec_bits != (1 << w.wave_size) - 1, LANES_OFF)
        lanes = []
        inside = []
        for lane in range(w.wave_size):
            number = w.number(lane) & (size - 1)
            taken = place(number, chosen, size)
            good = taken < size
            lanes.append(w.select(good, w.number(lane) - number + taken, 0))
            inside.append(good.to("u32"))
        values, _ = _collect(w, source, lanes)
        kept = ir.Constant(ir.VectorType(ir.IntType(32), w.wave_size), ir.Undefined)
        for lane, good in enumerate(inside):
            kept = w.ir.insert_element(kept, good.llvm, ir.Constant(ir.IntType(32), lane))
        result.write(w.select(w.wrap(kept, "u32") != 0, values, 0))


_in_groups("bcast", lambda number, chosen, size: chosen & (size - 1))
_in_groups("up", lambda number, chosen, size: number - chosen)  # below 0 it exceeds every width
_in_groups("down", lambda number, chosen, size: number + chosen)
_in_groups("xor", lambda number, chosen, size: number ^ chosen)


# D = S0 ^ S1, a lane number (rocjitsu, vector_special.py, gen_vector_permlane_idx_gen).
operations.lane("v_permlane_idx_gen_b32", "u32 u32 -> u32", since=(125,))(lambda b, x, y: x ^ y)


@operations.wave("v_nop v_pipeflush v_clrexcp", "->")
def nop(w: WaveBuilder) -> None:
    """Do nothing; exceptions are not modelled."""
