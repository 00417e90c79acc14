"""The pseudo-code of one lane (or one scalar instruction) evaluated: operand bits in, result bits out."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import isa_numbers as n
from isa_deviations import NATIVE, prepare_quotient
from isa_documents import text_of
from isa_language import Cell, Environment, Places
from isa_library import FUNCTIONS
from isa_numbers import V, make
from isa_pseudocode import compile_text


class Setting(NamedTuple):
    """What is the same for all lanes of an instruction."""

    name: str
    major: int
    text: str
    wave64: bool = True
    opsel: int = 0
    opsel_hi: int = 0
    neg: int = 0
    """Bit per source: the NEG field where the text reads it itself."""
    simm16: int = 0
    simm32: int = 0
    round32: int = 0
    round16: int = 0
    denorm: int = 15
    ieee: bool = True
    fnuz: bool = False
    bitop3: int = 0
    sdwa_select: int = 0


class Inputs(NamedTuple):
    """What an instruction reads in one lane."""

    sources: tuple[tuple[int, int], ...]
    """Bits and width of S0, S1, S2."""
    old: tuple[int, int] = (0, 32)
    """D0 before."""
    vcc: int = 0
    """The lane's bit of VCC or of the mask that the encoding names instead."""
    scc: int = 0
    exec: int = 0
    lane: int = 0
    m0: int = 0
    pc: int = 0


@dataclass(frozen=True)
class Result:
    """A variable after an instruction."""

    bits: int
    written: int
    loose: tuple[tuple[int, int], ...]
    kind: str


SOURCE_INDEX = 1 << 20
"""Where `VGPR[laneId][SRC0.u32]` finds the value of source 0, whatever operand it is; source 1 one further."""
RESULT_INDEX = 1 << 19


class _LaneRegisters(Places):
    """VGPR[laneId][…] of a lane that sees its operands only."""

    def __init__(self, env: Environment) -> None:
        self.env = env

    def get(self, indices: tuple[int, ...], low: int, width: int) -> int:
        index = indices[1]
        cell = self.env.cells["D0" if index == RESULT_INDEX else f"S{index - SOURCE_INDEX}"]
        return cell.bits >> low

    def put(self, indices: tuple[int, ...], low: int, width: int, value: V) -> None:
        if indices[1] != RESULT_INDEX:
            raise IndexError(indices)
        self.env.cells["D0"].put(low, width, value)


def float_constants() -> dict[str, V]:
    def f(number: float, width: int = 64) -> V:
        return n.from_float(number, width)

    return {
        "INF": f(float("inf")),
        "NAN": V(0x7FF8000000000000, "f", 64, ((0, 64),)),
        "MAX_FLOAT_F32": V(0x7F7FFFFF, "f", 32),
        "PI": f(3.141592653589793),
        "UNDERFLOW_F32": V(0, "f", 32),
        "OVERFLOW_F32": V(0x7F800000, "f", 32),
        "UNDERFLOW_F64": V(0, "f", 64),
        "OVERFLOW_F64": V(0x7FF0000000000000, "f", 64),
        "ROUND_NEAREST_EVEN": make(0, "u", 2),
        "ROUND_TOWARD_ZERO": make(3, "u", 2),
        "ROUND_MODE": V(0, "b", 2),
        "laneID": make(0, "i", 32),
    }


_CONSTANTS = float_constants()


def _call_document(major: int, name: str) -> object:
    """A ``v_…`` function of the pseudo-code is that instruction."""
    text = text_of(name, major) or text_of(name, 12)
    if text is None:
        return None
    run = compile_text(text)

    def call(env: Environment, *arguments: V) -> V:
        inner = Environment(env.functions)
        inner.constants = env.constants
        inner.round32, inner.round16, inner.denorm = env.round32, env.round16, env.denorm
        for index, argument in enumerate(arguments):
            inner.cells[f"S{index}"] = Cell(argument.bits, argument.width, argument.kind, 0, list(argument.loose))
        inner.cells["D0"] = Cell(0, 0, "b")
        run(inner)
        return inner.cells["D0"].value()

    return call


class _Functions(dict):  # type: ignore[type-arg]
    """The library, and every instruction of the document."""

    def __init__(self, major: int) -> None:
        super().__init__(FUNCTIONS)
        self.major = major

    def get(self, name: str, default: object = None) -> object:
        function = super().get(name)
        if function is None and name.startswith("v_"):
            function = _call_document(self.major, name)
            if function is not None:
                self[name] = function
        return function


@functools.cache
def functions_of(major: int) -> _Functions:
    return _Functions(major)


def environment(setting: Setting, inputs: Inputs) -> Environment:
    env = Environment(functions_of(setting.major))
    env.round32, env.round16, env.denorm = setting.round32, setting.round16, setting.denorm
    cells = env.cells
    for index, (bits, width) in enumerate(inputs.sources):
        cells[f"S{index}"] = Cell(bits, width, "b")
    env.arrays["S"] = [Cell(bits, 32, "b") for bits, _ in inputs.sources]
    cells["D0"] = Cell(inputs.old[0], inputs.old[1], "b")
    cells["D"] = cells["D0"]
    cells["D1"] = Cell(0, 64, "b")
    cells["VCC"] = Cell(inputs.vcc << inputs.lane, 64, "b")
    cells["EXEC"] = Cell(inputs.exec, 64, "b")
    cells["EXEC_LO"] = Cell(inputs.exec & 0xFFFFFFFF, 32, "b")
    cells["SCC"] = Cell(inputs.scc, 1, "u")
    cells["PC"] = Cell(inputs.pc, 64, "i")
    cells["M0"] = Cell(inputs.m0, 32, "u")
    constants = dict(_CONSTANTS)
    lane = make(inputs.lane, "u", 32)
    constants |= {
        "laneId": lane,
        "laneID": lane,
        "OPSEL": make(setting.opsel, "b", 4),
        "OPSEL_HI": make(setting.opsel_hi, "b", 4),
        "NEG": make(setting.neg, "b", 3),
        "SIMM16": make(setting.simm16, "b", 16),
        "SIMM32": make(setting.simm32, "b", 32),
        "WAVE_MODE.IEEE": make(setting.ieee, "u", 1),
        "WAVE64": make(setting.wave64, "u", 1),
        "WAVE32": make(not setting.wave64, "u", 1),
        "wave32": make(not setting.wave64, "u", 1),
        "SRC0": make(SOURCE_INDEX, "u", 32),
        "SRC1": make(SOURCE_INDEX + 1, "u", 32),
        "SRC2": make(SOURCE_INDEX + 2, "u", 32),
        "VDST": make(RESULT_INDEX, "u", 32),
        "INST.OMOD": make(setting.bitop3 >> 6, "b", 2),
        "INST.ABS": make(setting.bitop3 >> 3 & 7, "b", 3),
        "INST.NEG": make(setting.bitop3 & 7, "b", 3),
        "SDWA_SRC0_SEL": make(setting.sdwa_select, "b", 3),
        "BYTE1": make(1, "b", 3),
        "BYTE2": make(2, "b", 3),
        "BYTE3": make(3, "b", 3),
        "WORD1": make(1, "b", 3),
    }
    if setting.fnuz:
        constants["FNUZ"] = make(1, "u", 1)
    env.constants = constants
    env.places["VGPR"] = _LaneRegisters(env)
    return env


@functools.lru_cache(maxsize=400_000)
def evaluate(setting: Setting, inputs: Inputs) -> dict[str, Result]:
    """All variables of interest after the instruction."""
    env = environment(setting, inputs)
    if setting.name.startswith("v_div_fixup"):
        prepare_quotient(env, setting.name)
    native = NATIVE.get(setting.name)
    if native is not None:
        native[0](env)
    else:
        compile_text(setting.text)(env)
    results: dict[str, Result] = {}
    for name in ("D0", "D1", "VCC", "SCC", "EXEC", "S0", "PC", "M0"):
        cell = env.cells.get(name)
        if cell is not None and (cell.written or name == "D0"):
            results[name] = Result(cell.bits, cell.written, tuple(cell.loose), cell.kind)
    return results


def fraction(number: int) -> Fraction:
    return Fraction(number)
