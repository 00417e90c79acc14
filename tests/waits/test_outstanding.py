"""Outstanding operations at a point, against the check of waits: code inserted there waits enough, and no more."""

from __future__ import annotations

import random
import re

import pytest
from luthier.hazards.wait_counters import Outstanding, check_waits
from luthier.hazards.wait_counters.model import Limit
from luthier.isa.registers import SGPRS, VGPRS
from luthier.lifting import lift
from test_late_results import TARGETS, begin, random_body
from wait_kernels import kernel

ISSUES_AND_WAITS = ("global_load", "ds_", "s_load", "flat_", "s_wait")


def lines(target: str, seed: int) -> list[str]:
    """The body without what uses registers; each load has a register of its own, from number 10 on."""
    body = [line.strip() for line in random_body(target, random.Random(seed)).split(";")]
    body = [line for line in body if line.startswith(ISSUES_AND_WAITS)]
    start = [line.strip() for line in begin(target).split(";")]
    return start + [re.sub(r"\b([vs])1\d\b", rf"\g<1>{10 + number}", line) for number, line in enumerate(body)]


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(2))
def test_least_waits(target: str, seed: int) -> None:
    randomness = random.Random(seed)
    body = lines(target, seed)
    lifted = lift(kernel(target, "; ".join(body)), "k")
    outstanding = Outstanding(lifted)
    assert len(lifted.code) == len(body) + 1
    waited = 0
    for _ in range(8):
        at = randomness.randrange(len(body) // 2, len(body))
        loads = [match for line in body[:at] if (match := re.search(r"\b([vs])([1-9]\d)\b", line))]
        file, number = randomness.choice(loads).groups()
        unit = (SGPRS if file == "s" else VGPRS).start + int(number)
        use = f"{file}_mov_b32 {file}95, {file}{number}"

        def found(limits: tuple[Limit, ...], at: int = at, use: str = use) -> bool:
            text = [*body[:at], *outstanding.model.text(limits), use]
            report = check_waits(lift(kernel(target, "; ".join(text)), "k"), unneeded=False)
            return bool(report.findings)

        limits = outstanding.needed(at, 1 << unit, 0)
        assert limits is not None
        assert not found(limits)
        for limit in limits:
            assert found(tuple(one._replace(value=one.value + (one == limit)) for one in limits))
            waited += 1
    assert waited


def test_what_is_used_without_waiting_stays_outstanding() -> None:
    body = f"{begin('gfx90a')}; global_load_dword v10, v1, s[2:3]; v_mov_b32 v10, 0; s_nop 0"
    lifted = lift(kernel("gfx90a", body), "k")
    assert Outstanding(lifted).needed(len(lifted.code) - 1, 1 << VGPRS.start + 10, 0) == (Limit(0, 0),)


def test_functions_that_are_called_from_everywhere() -> None:
    """Behind a call nothing of the callee's is outstanding; in it, what callers have left is."""
    address = "s_getpc_b64 s[6:7]; s_add_u32 s6, s6, f@rel32@lo+4; s_addc_u32 s7, s7, f@rel32@hi+12"
    caller = f"global_load_dword v10, v1, s[2:3]; {address}; s_swappc_b64 s[30:31], s[6:7]; s_nop 1"
    callee = "f:; s_nop 2; s_waitcnt vmcnt(0); s_nop 3; s_setpc_b64 s[30:31]"
    body = f"{begin('gfx90a')}; {caller} =functions= {callee}"
    lifted = lift(kernel("gfx90a", body), "k")
    outstanding = Outstanding(lifted)
    texts = [lifted.isa.text(lifted.code, index) for index in range(len(lifted.code))]
    needed = [
        outstanding.needed(texts.index(text), 1 << VGPRS.start + 10, 0) for text in ("s_nop 1", "s_nop 2", "s_nop 3")
    ]
    assert needed == [(), (Limit(0, 0),), ()]
