"""Functions with several callers: what one of them leaves in SGPRs is no hazard of another one.

The oracle is the same program without calls: each call is the function's code, with instructions in the place of call
and return that write and read the same registers.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from luthier.lifting import lift
from luthier.lifting.hazards import check_hazards
from wait_kernels import kernel

Line = tuple[str, str]
"""An instruction, and what it is known by; labels are known by nothing."""

WAITS = ("depctr_sa_sdst(0)", "depctr_va_sdst(0)", "depctr_va_vcc(0)")
LINKS = {"f": "s[30:31]", "g": "s[32:33]"}


def straight(chosen: random.Random, name: str, count: int, nops: int) -> list[Line]:
    """Instructions that read, overwrite, read again, and sometimes wait."""
    some = [f"s{number}" for number in range(2, 10)] + ["vcc_lo", "vcc_hi"]

    def one() -> list[str]:
        a, b, c = chosen.choices(some, k=3)
        kinds: list[Callable[[], list[str]]] = [
            lambda: [f"v_mov_b32 v3, {a}"],
            lambda: [f"v_mov_b32 v4, {b}"],
            lambda: [f"s_mov_b32 {a}, {b}"],
            lambda: [f"s_mov_b32 {c}, 1"],
            lambda: [f"v_readfirstlane_b32 {a}, v1"],
            lambda: [f"s_cmp_eq_u32 {b}, 0"],
        ]
        rare: list[Callable[[], list[str]]] = [
            lambda: [f"s_wait_alu {chosen.choice(WAITS)}"],
            lambda: ["ds_nop"] * nops,
            lambda: ["s_load_b32 s12, s[0:1], 0x0"],
        ]
        return chosen.choice(rare if chosen.random() < 0.12 else kinds)()

    lines = [line for _ in range(count) for line in one()]
    return [(line, f"{name}{number}") for number, line in enumerate(lines)]


class Program:
    """A kernel that calls a function from several places, which calls another one."""

    def __init__(self, seed: int, nops: int) -> None:
        chosen = random.Random(seed)
        self._copies = 0
        self._bodies = {name: [straight(chosen, f"{name}{part}-", 7, nops) for part in range(3)] for name in "fg"}
        self._parts = [straight(chosen, f"k{part}-", 6, nops) for part in range(7)]

    def text(self, *, inline: bool) -> tuple[str, list[str]]:
        """The kernel, and what its instructions are known by."""
        lines: list[Line] = []
        for number, part in enumerate(self._parts):
            lines += part
            if number + 1 < len(self._parts):
                lines += self._call("g" if number == 3 else "f", f"call{number}", inline=inline)
        lines += [("s_endpgm", "end")]
        if not inline:
            for name in "fg":
                lines += [(f"{'=functions= ' if name == 'f' else ''}{name}:", "")]
                lines += [*self._body(name, inline=False), (f"s_setpc_b64 {LINKS[name]}", f"{name}-return")]
        return "; ".join(line for line, _ in lines), [known for _, known in lines if known]

    def _body(self, name: str, *, inline: bool) -> list[Line]:
        first, skipped, last = self._bodies[name]
        self._copies += 1
        label = f"over{self._copies}"
        nested = self._call("g", "f-call", inline=inline) if name == "f" else []
        branch = (f"s_cbranch_scc1 {label}", f"{name}-branch")
        return [*first, branch, *skipped, *nested, (f"{label}:", ""), *last]

    def _call(self, name: str, known: str, *, inline: bool) -> list[Line]:
        link = LINKS[name]
        if not inline:
            return [(f"s_call_b64 {link}, {name}", known)]
        returns = f"s_cmp_eq_u64 {link}, 0", f"{name}-return"
        return [(f"s_mov_b64 {link}, 0", known), *self._body(name, inline=True), returns]


def found(target: str, program: Program, *, inline: bool) -> set[tuple[str, str]]:
    """Instructions with hazards of SGPRs that were read, and which."""
    text, known = program.text(inline=inline)
    lifted = lift(kernel(target, text), "k")
    addresses = [at for at, block in zip(lifted.columns.address, lifted.block_of, strict=True) if block >= 0]
    name_of = dict(zip(addresses, known, strict=True))
    return {
        (name_of[place.address], hazard)
        for place, hazard in check_hazards(lifted, unneeded=False, searches=0).consumers
        if hazard.startswith("VALU read an SGPR")
    }


@pytest.mark.parametrize(("target", "nops"), [("gfx1201", 4)])
def test_calls_are_as_if_inlined(target: str, nops: int) -> None:
    hazards, in_callers, in_functions = 0, 0, 0
    for seed in range(12):
        program = Program(seed, nops)
        inlined = found(target, program, inline=True)
        assert found(target, program, inline=False) == inlined, seed
        hazards += len(inlined)
        in_callers += sum(name.startswith("k") for name, _ in inlined)
        in_functions += sum(name.startswith(("f", "g")) for name, _ in inlined)
    assert hazards > 40
    assert in_callers > 10
    assert in_functions > 10
