"""Functions with several callers: operations that one caller left outstanding do not count for another
(`called_programs`)."""

from __future__ import annotations

import random

import pytest
from called_programs import Draw, Program, is_a_way
from luthier.hazards.wait_counters import check_waits
from luthier.lifting import lift
from wait_kernels import kernel

GFX9 = ("s_waitcnt vmcnt({0})", "s_waitcnt lgkmcnt({0})", "global_load_dword", "ds_read_b32", "s_load_dword")
GFX12 = ("s_wait_loadcnt {0}", "s_wait_dscnt {0}", "global_load_b32", "ds_load_b32", "s_load_b32")
GFX11 = (*GFX9[:2], *GFX12[2:])
TARGETS = {
    **dict.fromkeys(("gfx906", "gfx90a", "gfx942", "gfx950", "gfx1030"), GFX9),
    "gfx1100": GFX11,
    "gfx1201": GFX12,
    "gfx1250": GFX12,
}


def memory(waits: tuple[str, str], vector: str, local: str, scalar: str) -> Draw:
    """Loads, uses and waits."""

    def draw(chosen: random.Random) -> list[str]:
        register = chosen.randrange(10, 22)
        if chosen.random() < 0.3:
            return [chosen.choice(waits).format(chosen.randrange(4))]
        kinds = [
            f"{vector} v{register}, v[2:3], off",
            f"{vector} v{register}, v[2:3], off",
            f"{local} v{register}, v4",
            f"{scalar} s{register}, s[0:1], 0x0",
            f"v_mov_b32 v1, v{register}",
            f"v_mov_b32 v{register}, 0",
            f"s_mov_b32 s2, s{register}",
        ]
        return [chosen.choice(kinds)]

    return draw


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_calls_are_as_if_inlined(target: str) -> None:
    first, second, *loads = TARGETS[target]
    findings, in_callers, in_functions = 0, 0, 0
    for seed in range(6):
        program = Program(seed, memory((first, second), *loads), body=3, between=4)
        pairs_of_both = []
        for inline in (True, False):
            lifted, known = program.lifted(target, inline=inline)
            report = check_waits(lifted, unneeded=False)
            assert all(is_a_way(lifted, finding.path) for finding in report.findings)
            pairs: dict[tuple[str, ...], set[str]] = {}
            for late in report.findings:
                pair = known[late.consumer.address], known[late.producer.address], late.access, late.counter
                pairs.setdefault(pair, set()).update(late.registers.names())
            pairs_of_both.append(pairs)
        assert pairs_of_both[0] == pairs_of_both[1], seed
        findings += len(pairs_of_both[0])
        in_callers += sum(name.startswith("k") for name, *_ in pairs_of_both[0])
        in_functions += sum(name.startswith(("f", "g")) for name, *_ in pairs_of_both[0])
    assert findings > 40
    assert in_callers > 10
    assert in_functions > 10


LOAD, USE = "global_load_dword v10, v[2:3], off", "v_mov_b32 v1, v10"
CALL, RETURN = "s_call_b64 s[30:31], f", "s_setpc_b64 s[30:31]"


def found(body: str) -> list[int]:
    """How many blocks are on the way of each finding."""
    lifted = lift(kernel("gfx942", body), "k")
    findings = check_waits(lifted).findings
    assert all(is_a_way(lifted, finding.path) for finding in findings)
    return [len(finding.path) for finding in findings]


@pytest.mark.rows(1)
@pytest.mark.parametrize("calls", [3, 70, 300])
def test_however_many_callers(calls: int) -> None:
    """Each arrives with another number of operations after a load."""
    callers = [
        f"{LOAD}; {'global_store_dword v[2:3], v4, off; ' * (number % 60)}{CALL}; s_waitcnt vmcnt(0); {USE}; "
        f"s_load_dword s{10 + number % 7}, s[0:1], {4 * number}; {CALL}; v_mov_b32 v10, 0; s_waitcnt lgkmcnt(0)"
        for number in range(calls)
    ]
    body = f"=functions= f: ; v_mov_b32 v5, 0; s_cbranch_scc0 over; v_mov_b32 v6, 0; over: ; {RETURN}"
    assert found(f"{'; '.join(callers)}; {body}") == []
    callers[calls // 2] = callers[calls // 2].replace("s_waitcnt vmcnt(0); ", "")
    assert found(f"{'; '.join(callers)}; {body}") == [4]


def test_a_function_that_calls_itself() -> None:
    """What goes in comes back from any depth, to the call that it came from."""
    recursive = (
        "=functions= f: ; s_cbranch_scc1 out; global_store_dword v14, v15, s[4:5]; v_writelane_b32 v15, s30, 0; "
        "v_writelane_b32 v15, s31, 1; s_call_b64 s[30:31], f; s_nop 3; v_readlane_b32 s30, v15, 0; "
        f"v_readlane_b32 s31, v15, 1; global_load_dword v15, v14, s[4:5]; s_waitcnt vmcnt(0); out: ; {RETURN}"
    )
    done = "s_waitcnt vmcnt(0)"
    assert found(f"{LOAD}; {CALL}; {done}; {USE}; {CALL}; {USE}; {recursive}") == []
    assert len(found(f"{CALL}; {USE}; {LOAD}; {CALL}; {USE}; {recursive}")) == 1


@pytest.mark.parametrize(("wait", "count"), [("s_waitcnt vmcnt(0)", 0), ("s_nop 0", 1)])
def test_a_function_that_ends_with_another_one(wait: str, count: int) -> None:
    functions = f"=functions= f: ; v_mov_b32 v5, 0; s_branch g; g: ; v_mov_b32 v6, 0; {RETURN}"
    body = f"{LOAD}; {CALL}; {wait}; {USE}; s_call_b64 s[30:31], g; {LOAD}; s_call_b64 s[30:31], g; {functions}"
    assert len(found(body)) == count
