"""The interpreter of the documents' pseudo-code and the comparison, with answers known beforehand."""

from __future__ import annotations

from fractions import Fraction

import isa_numbers as n
import numpy as np
import pytest
from isa_compare import differences
from isa_lanes import Inputs, Setting, evaluate
from isa_language import Unreadable
from isa_operands import Expected
from isa_pseudocode import compile_text
from isa_state import State

RNG = np.random.default_rng(4)


def result(text: str, *sources: int, width: int = 32, old: int = 0) -> int:
    inputs = Inputs(tuple((source, width) for source in sources), (old, 64))
    return evaluate(Setting("test", 11, text), inputs)["D0"].bits


@pytest.mark.parametrize(
    ("text", "sources", "wanted"),
    [
        ("D0.u32 = S0.u32 - S1.u32", (3, 5), 0xFFFFFFFE),
        ("D0.i32 = S0.i32 >> S1[4 : 0].u32", (0x80000000, 35), 0xF0000000),
        ("D0.u32 = ((S0.u32 + S1.u32) >> 1U)", (0xFFFFFFFF, 1), 0),
        ("D0.u32 = 32'U((64'U(S0.u32) * 64'U(S1.u32)) >> 32U)", (0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFE),
        ("D0.i32 = 32'I(signext(S0.i8))", (0x80,), 0xFFFFFF80),
        ("D0.u32[31 : 0] = S0.u32[0 : 31]", (1,), 0x80000000),
        ("D0 = { S1[15 : 0].u16, S0[31 : 16].u16 }", (0xAAAABBBB, 0xCCCCDDDD), 0xDDDDAAAA),
        ("tmp = 0; for i in 0 : 31 do tmp += S0.u32[i] == 1'1U ? 1 : 0 endfor; D0.i32 = tmp", (0xF0F0,), 8),
        ("F = lambda(x, y) ( x > y ? x - y : y - x); D0.u32 = F(S0.u32, S1.u32)", (3, 10), 7),
        ("if isNAN(64'F(S0.f32)) then D0.u32 = 1U else D0.u32 = 2U endif", (0x7FC00000,), 1),
    ],
)
def test_integers(text: str, sources: tuple[int, ...], wanted: int) -> None:
    assert result(text, *sources) == wanted


@pytest.mark.parametrize(("kind", "width"), [(np.float16, 16), (np.float32, 32), (np.float64, 64)])
@pytest.mark.parametrize("op", ["+", "-", "*", "/"])
def test_floats_as_numpy(kind: type, width: int, op: str) -> None:
    operate = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[op]
    bits = RNG.integers(0, 1 << width, (300, 2), dtype=np.uint64).astype(f"u{width // 8}")
    for x, y in bits:
        with np.errstate(all="ignore"):
            wanted = operate(x.view(kind), y.view(kind))
        got = result(f"D0.f{width} = S0.f{width} {op} S1.f{width}", int(x), int(y), width=width)
        if np.isnan(wanted):
            assert n.is_nan(n.V(got, "f", width))
        else:
            assert got == int(np.asarray(wanted).view(x.dtype))


def test_rounding_modes() -> None:
    third = Fraction(1, 3)
    patterns = [n.from_fraction(third, "f", 32, mode).bits for mode in (n.NEAREST, n.UP, n.DOWN, n.ZERO)]
    assert patterns == [0x3EAAAAAB, 0x3EAAAAAB, 0x3EAAAAAA, 0x3EAAAAAA]


def test_prose_is_no_pseudo_code() -> None:
    with pytest.raises(Unreadable):
        compile_text("vmcnt <= S0.u[5:0]")


def test_comparison_sees_every_kind_of_state() -> None:
    def state() -> State:
        rows = np.zeros((4, 32), np.uint32)
        memory = np.zeros(16, np.uint8)
        return State(
            rows, rows.copy(), np.zeros(128, np.uint32), 0, 0, memory, memory.copy(), np.zeros((2, 4), np.uint8)
        )

    assert not differences(Expected(state()), state())
    for name in ("vgprs", "agprs", "sgprs", "memory", "lds", "scratch"):
        changed = state()
        getattr(changed, name).flat[3] = 1
        assert differences(Expected(state()), changed)
    changed = state()
    changed.scc = 1
    assert differences(Expected(state()), changed)
