"""Small kernels that make the search for jump targets expensive: it ends in time that is linear in the code."""

from __future__ import annotations

import random

import pytest
from assembly import assembled, function, kernel_text
from effort import EVERYTHING
from limited import MB, survives
from luthier.errors import LiftError
from luthier.isa import Isa
from luthier.lifting import lift
from luthier.objects import CodeObject

WAYS = {
    "all": (("getpc", 1), ("call", 1), ("add", 1), ("branch", 1)),
    "adds": (("getpc", 1), ("call", 1), ("add", 6), ("branch", 2)),
    "calls": (("getpc", 2), ("call", 4), ("add", 2), ("branch", 1)),
    "jumps": (("getpc", 2), ("jump", 2), ("add", 2), ("branch", 2)),
    "lanes": (("getpc", 2), ("write", 8), ("read", 2), ("branch", 3), ("call", 1)),
    "moves": (("getpc", 4), ("move", 6), ("branch", 4), ("add", 1)),
    "loads": (("getpc", 2), ("load", 2), ("call", 1), ("add", 2), ("branch", 1)),
    "direct": (("direct", 4), ("getpc", 1), ("add", 1), ("branch", 1), ("call", 1)),
}
"""What the instructions are, and how often."""
SIZES = (500, *((2000, 8000, 32_000) if EVERYTHING else ()))
"""In instructions."""


def text(way: str, size: int, seed: int) -> str:
    """Instructions in any order, of these kinds."""
    rng = random.Random(f"{way} {size} {seed}")
    kinds, weights = zip(*WAYS[way], strict=True)
    near = rng.choice((8, 100, size))

    def pair() -> str:
        first = 2 * rng.randrange(2, rng.choice((4, 20)))
        return f"s[{first}:{first + 1}]"

    def label(at: int) -> str:
        return f"L{max(0, min(size - 1, at + rng.randrange(-near, near)))}"

    lines = []
    for at, kind in enumerate(rng.choices(kinds, weights, k=size)):
        low = 2 * rng.randrange(2, 20)
        lines.append(f"L{at}:")
        lines.append(
            {
                "getpc": f"s_getpc_b64 {pair()}",
                "call": f"s_swappc_b64 {pair()}, {pair()}",
                "jump": f"s_setpc_b64 {pair()}",
                "add": f"s_add_u32 s{low}, s{low}, {4 * rng.randrange(16)}\n"
                f"s_addc_u32 s{low + 1}, s{low + 1}, {rng.choice((0, 0, 0, -1))}",
                "branch": f"s_cbranch_scc{rng.randrange(2)} {label(at)}",
                "direct": f"s_call_b64 {pair()}, {label(at)}",
                "write": f"v_writelane_b32 v{rng.randrange(16)}, s{low}, {rng.randrange(64)}",
                "read": f"v_readlane_b32 s{low}, v{rng.randrange(16)}, {rng.randrange(64)}",
                "move": f"s_mov_b64 {pair()}, {pair()}",
                "load": f"s_load_dwordx2 {pair()}, {pair()}, {8 * rng.randrange(8)}",
            }[kind]
        )
    return "\n".join([*lines, "s_endpgm"])


def made(target: str, way: str, size: int, seed: int) -> CodeObject:
    """A kernel of that text; what it was assembled with is the same for all of a size."""
    code = Isa.of(target).assemble(text(way, size, seed)).instructions.code
    space = 2 * 8 * size
    frame = assembled(kernel_text(function("k", [f".fill {space // 4}, 4, 0xbf810000"]), target), target)
    section = next(one for one in frame.sections if one.name == ".text")
    data = bytearray(frame.data)
    data[section.offset : section.offset + len(code)] = code
    return CodeObject(bytes(data), f"{way}-{size}-{seed}")


@pytest.mark.rows(1)
@pytest.mark.parametrize("way", WAYS)
def test_the_search_ends(way: str) -> None:
    """A few seconds whatever is there, and for what is larger in proportion."""
    for size in SIZES:
        for seed in range(max(1, 16_000 // size) if EVERYTHING else 1):
            object = made("gfx90a", way, size, seed)
            seconds = 5 + size / 200
            survives(lambda object=object: lift(object, "k"), seconds=seconds)


def test_functions_that_have_their_blocks_in_common() -> None:
    """Thousands of places that are called, each with most of the blocks: refused before they take the memory."""
    object = made("gfx90a", "direct", 16_000, 0)
    assert not survives(lambda: lift(object, "k"), memory=300 * MB)


def test_calls_that_can_all_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many hooks called in a loop: from each call there is a way to every other one."""
    lines = [".Lloop:"]
    for number in range(400):
        lines += [
            f"s_cbranch_scc1 .Lbehind{number}",
            "s_getpc_b64 s[4:5]",
            "s_add_u32 s4, s4, callee@rel32@lo+4",
            "s_addc_u32 s5, s5, callee@rel32@hi+12",
            "s_swappc_b64 s[30:31], s[4:5]",
            f".Lbehind{number}:",
            "s_mov_b64 s[4:5], 0",
            "s_mov_b64 s[30:31], 0",
        ]
    kernel = function("k", [*lines, "s_cbranch_vccz .Lloop", "s_endpgm"])
    object = assembled(
        kernel_text(kernel + function("callee", ["s_setpc_b64 s[30:31]"]).replace(".globl", ".local"), "gfx90a"),
        "gfx90a",
    )
    monkeypatch.setattr("luthier.lifting.code.effort.FLOOR", 0)
    monkeypatch.setattr("luthier.lifting.code.effort.EACH", 10)
    assert len(lift(object, "k").functions) == 2


@pytest.mark.parametrize(("choices", "reason"), [(3, "do not belong together"), (30, "cannot be followed")])
def test_values_of_a_register_have_a_limit(choices: int, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each choice between a value and another one of it doubles them, where no paths meet."""
    lines = ["s_getpc_b64 s[0:1]"]
    for number in range(choices):
        lines += [f"s_add_u32 s2, s0, {4 << number & 0xFFFFFFFF:#x}", "s_cselect_b32 s0, s0, s2"]
    lines += ["s_cbranch_scc0 .Lout", "s_setpc_b64 s[0:1]", ".Lout:", "s_endpgm"]
    object = assembled(kernel_text(function("k", lines), "gfx90a"), "gfx90a")
    assert survives(lambda: lift(object, "k"), memory=300 * MB)
    monkeypatch.setattr("luthier.lifting.code.effort.FLOOR", 100)
    monkeypatch.setattr("luthier.lifting.code.effort.EACH", 1)
    (jump,) = lift(object, "k").unknown
    assert reason in jump.reason


def test_blocks_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is made of them."""
    lines = [line for n in range(4) for line in (f"s_cbranch_scc0 .L{n}", f".L{n}:", "s_nop 0")]
    object = assembled(kernel_text(function("k", [*lines, "s_endpgm"]), "gfx90a"), "gfx90a")
    blocks = len(lift(object, "k").blocks)
    monkeypatch.setattr("luthier.lifting.code.graph.MOST_BLOCKS", blocks)
    assert len(lift(object, "k").blocks) == blocks
    monkeypatch.setattr("luthier.lifting.code.graph.MOST_BLOCKS", blocks - 1)
    with pytest.raises(LiftError, match=f"{blocks} blocks: more than {blocks - 1} take"):
        lift(object, "k")
