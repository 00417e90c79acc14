"""Every row of the table on both sides of its limit, in kernels: straight, past an early exit, into a function and out
of one, and around a loop; on all paths, and while it runs where any kernel can execute it."""

from __future__ import annotations

import warnings

import luthier
import numpy as np
import pytest
from luthier.emulator import CheckWarning
from luthier.hazards.wait_states import check_hazards
from luthier.hazards.wait_states.model import Rule
from luthier.lifting import lift
from sequences import HARMFUL, TARGETS_OF_TESTS, Isa, Sequence_, isa_of, sequence
from test_table import find
from wait_kernels import kernel

LINK = "s[98:99]"
FAR = "; ".join(["s_nop 15", "v_nop"] * 8)
SHAPES = {
    "straight": ("{first}; {between}; {last}", ()),
    "early exit": ("{first}; {between}; s_cbranch_scc0 on; s_endpgm; on: ; {last}", ("s_cbranch_scc0 4",)),
    "into a function": (
        "{first}; {between}; s_call_b64 " + LINK + ", f; =functions= f: ; {last}; s_setpc_b64 " + LINK,
        (f"s_call_b64 {LINK}, 4",),
    ),
    "out of a function": (
        "s_call_b64 " + LINK + ", f; {last}; =functions= f: ; {first}; {between}; s_setpc_b64 " + LINK,
        (f"s_setpc_b64 {LINK}",),
    ),
    "around a loop": ("a: ; {last}; " + FAR + "; {first}; {between}; s_cbranch_scc1 a", ("s_cbranch_scc1 4",)),
}
"""Assembly, and what stands between both besides."""
NOT_LIFTED = ("s_rfe", "s_branch", "s_setvskip", "hwreg(HW_REG_MODE, 28")
"""Control goes elsewhere behind them, or lifting refuses them."""
NOT_EXECUTED = {"gfx1250": ("v_wmma", "v_swmmac", "s_getreg")}
"""What the emulated device refuses."""


def sides(
    line: Sequence_, rule: Rule, texts: list[str], needed: int, more: tuple[str, ...]
) -> list[tuple[list[str], bool]]:
    """What to put behind the producer (and what must come between), and whether that is too little."""
    first, last = texts[:-1], texts[-1]
    filler = "v_nop" if rule.hazard.clock == "vector instructions" else "s_nop 0"
    rows = []
    for count in sorted({0, max(0, needed - 1 - len(more)), max(0, needed - 1), needed}):
        between = [filler] * count
        lacks = line.lacks(line.steps([*first, *between, *more, last]))[-1]
        rows.append((between, any(lack.rule == rule.number for lack in lacks)))
    return rows


def cases(isa: Isa) -> list[tuple[Rule, list[str], int]]:
    """Rows with instructions that meet by them."""
    rows = []
    for rule in sequence(isa).model.rules:
        met = find(isa, rule) if rule.hazard.producer is not None else None
        if met is not None and not any(word in text for word in NOT_LIFTED for text in met[1]):
            rows.append((rule, met[1], met[2]))
    return rows


@pytest.mark.rows(1)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("target", TARGETS_OF_TESTS)
def test_both_sides(target: str, shape: str) -> None:
    isa = isa_of(target)
    line = sequence(isa)
    agprs = 64 if isa.target.target.has_agprs else 0
    text, more = SHAPES[shape]
    verdicts = set()
    for rule, texts, needed in cases(isa):
        for between, missing in sides(line, rule, texts, needed, more):
            body = text.format(first="; ".join(texts[:-1]), between="; ".join(between), last=texts[-1])
            object = kernel(target, body.replace("; ;", ";"), agprs)
            static = {finding.hazard for finding in check_hazards(lift(object, "k"), unneeded=False).findings}
            # Around the loop the second instruction may be a first one, too, of what lasts.
            if shape != "around a loop" or missing or rule.window:
                assert (rule.hazard.name in static) == missing, (rule.hazard.name, body)
            verdicts.add(missing)
            never = (*HARMFUL, *NOT_EXECUTED.get(target, ()))
            if not any(word in one for one in texts for word in never) and shape != "around a loop":
                dynamic = launched(object, target)
                assert dynamic <= static, body
                assert (rule.hazard.name in dynamic) == missing, (rule.hazard.name, body)
    assert verdicts == {True, False}


def launched(object: object, target: str) -> set[str]:
    device = luthier.open_device(f"emu:{target}", check="hazards", threads=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckWarning)
        device.load(object).kernel("k").launch(np.zeros(64, np.uint32), grid=1, block=isa_of(target).wave_size)
    return {one.rule for one in device.findings}
