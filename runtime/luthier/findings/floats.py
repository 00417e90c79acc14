"""Causes of exceptional floats, derived from the instruction and its operands."""

from __future__ import annotations

from collections.abc import Collection

from luthier.errors import LuthierError
from luthier.findings.kinds import FLOATS
from luthier.wire.floats import FLOAT_DENORMAL, FLOAT_INFINITY, FLOAT_NAN, FLOAT_ZERO

_POLES = ("v_rcp", "v_rsq", "v_div", "v_log", "v_s_rcp", "v_s_rsq", "v_s_log")
"""Prefixes of instructions that have a pole at 0."""
_WORDS = {FLOAT_NAN: "NaN", FLOAT_INFINITY: "infinite", FLOAT_DENORMAL: "denormal"}
OPTIONS = {"nan": "nan", "inf": "infinity", "denormal": "denormal"}
"""Words of ``--fp`` -> kind."""
FLOW = "flow"


def cause(kind: str, instruction: str, operands: int) -> str:
    """Return the cause of an exceptional result.

    Args:
        kind: kind of the finding.
        instruction: text of the instruction.
        operands: classes of the operands, as bits.
    """
    if kind.endswith("-flow"):
        were = [word for bit, word in _WORDS.items() if operands & bit]
        return f"{kind.removesuffix('-flow')} from an operand that is {' or '.join(were)}"
    if kind == "infinity":
        at_pole = operands & FLOAT_ZERO and instruction.startswith(_POLES)
        what = (
            "logarithm of zero" if at_pole and "log" in instruction else "division by zero" if at_pole else "overflow"
        )
        return f"{what}: no operand is NaN or infinite, the result is infinite"
    if kind == "nan":
        what = "an operand is infinite, none NaN" if operands & FLOAT_INFINITY else "no operand is NaN or infinite"
        return f"invalid operation: {what}, the result is NaN"
    return "underflow: no operand is NaN, infinite or denormal, the result is denormal"


def kinds_of_floats(words: Collection[str]) -> frozenset[str]:
    """Return the kinds that the words of ``--fp`` select.

    Raises:
        LuthierError: there is no such word, or `flow` is given alone.
    """
    unknown = [word for word in words if word not in (*OPTIONS, FLOW)]
    if unknown:
        raise LuthierError(f"--fp takes {', '.join((*OPTIONS, FLOW))}, not {unknown[0]!r}")
    kinds = {OPTIONS[word] for word in words if word != FLOW}
    if not kinds:
        raise LuthierError(f"--fp needs one of {', '.join(OPTIONS)} besides flow")
    if FLOW in words:
        kinds |= {f"{kind}-flow" for kind in FLOATS if kind in kinds}
    return frozenset(kinds)


def looked_for(kinds: Collection[str]) -> int:
    """Return the classes of floats that kinds look for, as bits: `luthier.wire.floats.FLOAT_NAN` etc."""
    return sum(bit for kind, bit in FLOATS.items() if not {kind, f"{kind}-{FLOW}"}.isdisjoint(kinds))


def has_flow(kinds: Collection[str]) -> bool:
    """Return whether kinds include results of exceptional operands."""
    return any(kind.endswith(f"-{FLOW}") for kind in kinds)
