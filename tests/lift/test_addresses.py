"""The search for targets of register jumps: skipping irrelevant instructions and reusing results change nothing."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
from assembly import DIALECTS, assembled, function, kernel_text
from luthier.errors import LiftError
from luthier.isa import Isa
from luthier.isa import registers as r
from luthier.lifting import lift, lifter
from luthier.lifting.addresses.analysis import AddressAnalysis, Pointed
from luthier.lifting.addresses.operations import OperationRole, roles
from luthier.lifting.addresses.slots import CodeSlots
from luthier.lifting.code import text
from luthier.lifting.code.text import Text
from luthier.lifting.listing import as_data
from luthier.objects import CodeObject, ObjectEditor, load_object

TARGETS = ["gfx90a", "gfx1100"]
SOURCES = {
    "calls.hip": ["calls", "calls_tail", "calls_exported", "selected", "selected_by_lane", "from_constant"],
    "divergence.hip": ["waterfall", "calls_in_branches"],
}


def everything(self: AddressAnalysis) -> list[int]:
    """Return all that may be followed, in place of what can matter; which of it control may get to is chosen later."""
    followed = roles(self.table.isa).of(self.columns.code.opcode) & OperationRole.FOLLOWED.value
    return [
        index
        for index in range(len(self.columns.address))
        if followed[index] or self.table.of(self.columns, index).writes & r.EXEC_MASK
    ]


def outcome(data: bytes, kernel: str, monkeypatch: pytest.MonkeyPatch, whole: bool) -> tuple[Any, list[Any]]:
    """What lifting says, or its error, and what every analysis of a function found."""
    analyses: list[Any] = []
    run = AddressAnalysis.run

    def noted(self: AddressAnalysis, entries: list[int], pointed: Pointed, *, alone: bool) -> bool:
        changed = run(self, entries, pointed, alone=alone)
        for entry in entries:
            with contextlib.suppress(IndexError):  # a function without register jumps is not analysed
                resolutions, references, computed, clobbers = self.known.found_in(entry)
                analyses.append((entry, resolutions, references, computed, clobbers & ~r.EXEC_MASK))
        return changed

    with monkeypatch.context() as patch:
        patch.setattr(AddressAnalysis, "run", noted)
        if whole:
            patch.setattr(AddressAnalysis, "_followed", everything)
        try:
            return as_data(lift(load_object(data), kernel)), analyses
        except LiftError as error:
            return str(error), analyses


def compare(data: bytes, kernel: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the analysis found, which must be what it finds if it follows every instruction. But that an address goes
    nowhere than to a jump is only known of those that are followed: else it stays a pointer."""
    part, full = (outcome(data, kernel, monkeypatch, whole) for whole in (False, True))
    pointers, fewer = (_without_pointers(told) for told, _ in (part, full))
    assert pointers >= fewer
    assert part == full
    return part[1]


def _without_pointers(lifted: Any) -> set[int]:
    """Makes them addresses of code; returns where they are made."""
    pointers = [one for one in lifted["pc_references"] if one["kind"] == "pointer"] if isinstance(lifted, dict) else []
    for reference in pointers:
        reference["kind"] = "code"
    return {one["address"] for one in pointers}


@pytest.mark.rows(10)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("source", "kernel"), [(name, one) for name, kernels in SOURCES.items() for one in kernels])
def test_what_is_left_out_of_compiled_code_changes_nothing(
    target: str, source: str, kernel: str, compiled: Callable[..., CodeObject], monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(compiled(target, source).data, kernel, monkeypatch)


def call(function: str, pair: int) -> list[str]:
    low, high = f"s{pair}", f"s{pair + 1}"
    return [
        f"s_getpc_b64 s[{pair}:{pair + 1}]",
        f"s_add_u32 {low}, {low}, {function}@rel32@lo+4",
        f"s_addc_u32 {high}, {high}, {function}@rel32@hi+12",
        f"s_swappc_b64 s[30:31], s[{pair}:{pair + 1}]",
    ]


def operation(rng: random.Random) -> list[str]:
    """Something that moves, saves, restores, adds or overwrites; two in three of few registers."""
    first, second, third = (rng.choice([0, 1, 2, 3, 4, 5, 30, 31]) for _ in range(3))
    pair, other = rng.choice([0, 2, 4, 30]), rng.choice([0, 2, 4, 30])
    return rng.choice(
        [
            [f"s_mov_b32 s{first}, s{second}"],
            [f"s_mov_b64 s[{pair}:{pair + 1}], s[{other}:{other + 1}]"],
            [f"s_mov_b32 s{first}, {rng.choice([0, 8, 64])}"],
            [f"s_cselect_b32 s{first}, s{second}, s{third}"],
            [f"v_writelane_b32 v10, s{first}, {rng.randrange(3)}"],
            [f"v_readlane_b32 s{first}, v10, {rng.randrange(3)}"],
            ["v_writelane_b32 v10, s30, 0", "v_writelane_b32 v10, s31, 1"],
            ["v_readlane_b32 s30, v10, 0", "v_readlane_b32 s31, v10, 1"],
            [f"s_add_u32 s{first}, s{second}, s{third}"],
            [f"s_add_u32 s{pair}, s{pair}, 16", f"s_addc_u32 s{pair + 1}, s{pair + 1}, 0"],
            [f"s_mul_i32 s{first}, s{second}, s{third}"],
            ["v_mov_b32 v10, v1"],
            [f"s_getpc_b64 s[{pair}:{pair + 1}]"],
            call("last", pair),
            [f"s_and_saveexec_b64 s[{pair}:{pair + 1}], vcc", "s_mov_b64 exec, s[2:3]"],
            [f"s_load_dwordx2 s[{pair}:{pair + 1}], s[{other}:{other + 1}], 0x8"],
        ]
    )


def program(rng: random.Random) -> str:
    body: list[str] = []
    labels = rng.randrange(1, 5)
    if saved := rng.random() < 0.7:
        body += ["v_writelane_b32 v11, s30, 5", "v_writelane_b32 v11, s31, 6"]
    for label in range(labels):
        body.append(f".L{label}:")
        for _ in range(rng.randrange(1, 5)):
            body += operation(rng)
        if rng.random() < 0.7:
            body.append(f"s_cbranch_scc{rng.randrange(2)} .L{rng.randrange(labels)}")
    if saved:
        body += ["v_readlane_b32 s30, v11, 5", "v_readlane_b32 s31, v11, 6"]
    functions = {
        "k": [*call("middle", 8), "s_endpgm"],
        "middle": [*body, "s_setpc_b64 s[30:31]"],
        "last": ["s_mov_b32 s4, 0", "s_setpc_b64 s[30:31]"],
    }
    lines: list[str] = []
    for name, own in functions.items():
        visible = f".globl {name}" if name == "k" else f".local {name}"
        lines += [visible, f".type {name},@function", f"{name}:", *own, f".size {name}, .-{name}"]
    return "\n".join(lines) + "\n"


def test_what_is_left_out_of_any_code_changes_nothing(
    assembled: Callable[..., CodeObject], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = unknown = restored = 0
    for seed in range(60):
        data = assembled("gfx90a", program(random.Random(seed))).data
        for _, resolutions, *_, clobbers in compare(data, "k", monkeypatch):
            known += any(is_return for is_return, *_ in resolutions.values())
            unknown += any(reason for _, _, reason, *_ in resolutions.values())
            restored += bool(clobbers) and not clobbers >> 30 & 3
    assert min(known - 15, unknown, restored) > 10, "nothing was tried"


def test_functions_are_analysed_once_for_all_kernels(
    compiled: Callable[..., CodeObject], monkeypatch: pytest.MonkeyPatch
) -> None:
    code_object = load_object(compiled("gfx90a", "calls.hip").data)
    kernels = SOURCES["calls.hip"]
    first = {kernel: as_data(lift(code_object, kernel)) for kernel in kernels}
    for kernel in kernels:
        assert as_data(lift(load_object(code_object.data), kernel)) == first[kernel]  # whatever was lifted before
    run, searches = AddressAnalysis.run, [0]

    def counted(self: AddressAnalysis, *arguments: Any, **options: Any) -> bool:
        changed = run(self, *arguments, **options)
        searches.append(self.searches)
        return changed

    with monkeypatch.context() as patch:
        patch.setattr(AddressAnalysis, "run", counted)
        assert as_data(lift(code_object, "calls")) == first["calls"]
        assert len(searches) > 1
        assert not any(searches)
        lift(load_object(code_object.data), "calls")
        assert any(searches)
    monkeypatch.setattr(lifter, "MOST_ANALYSES", 1)
    again = load_object(code_object.data)
    for kernel in kernels:
        assert as_data(lift(again, kernel)) == first[kernel]
        assert len(lifter._analyses[text.text_of(again, lift(again, kernel).isa)]) == 1


def test_decoded_code_is_bounded_over_all_objects(
    compiled: Callable[..., CodeObject], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text._kept, "most", 1)
    data = compiled("gfx90a", "calls.hip").data
    objects = [load_object(data) for _ in range(4)]
    isa = [lift(one, "calls").isa for one in objects][-1]  # all lifted, before any is asked
    assert sum(len(text.text_of(one, isa)._pieces) for one in objects) == 1


@pytest.mark.parametrize("target", ["gfx90a", "gfx1201"])
def test_a_lane_holds_what_was_put_there_last(target: str) -> None:
    """Payloads keep SGPRs in lanes meanwhile, now half of a program counter, now anything."""
    kept = "v_writelane_b32 v5, s8, 0\n v_readlane_b32 s8, v5, 0\n"
    code = f"""k:
 s_getpc_b64 s[8:9]
 {kept} s_add_u32 s8, s8, (f-k-4)&0xffffffff
 s_addc_u32 s9, s9, (f-k-4)>>32
 s_swappc_b64 s[30:31], s[8:9]
 s_mov_b32 s8, 1
 {kept} s_or_b32 s10, s10, s8
 s_endpgm
.size k, .-k
"""
    text = function("f", ["s_setpc_b64 s[30:31]"]) + code.replace(
        "k:", ".globl k\n.p2align 8\n.type k,@function\nk:", 1
    )
    lifted = lift(assembled(kernel_text(text, target), target), "k")
    assert [one.name for one in lifted.functions] == ["k", "f"]
    assert lifted.unknown == ()
    (reference,) = lifted.pc_references
    assert reference.kind == "code"


@pytest.mark.parametrize("between", ["v_mov_b32 v6, v7", "v_movreld_b32 v6, v7"])
def test_a_write_of_any_register_may_replace_a_return_address(between: str) -> None:
    """A function keeps its return address in lanes of v40. Whether an operation with a computed register number may
    overwrite that depends on the registers of the kernel, so kernels with others do not share what was found."""
    saves = [f"v_writelane_b32 v40, s{30 + half}, {half}" for half in (0, 1)]
    restores = [f"v_readlane_b32 s{30 + half}, v40, {half}" for half in (0, 1)]
    callee = function("f", [*saves, between, *restores, "s_setpc_b64 s[30:31]"])
    calls = ["s_getpc_b64 s[16:17]", "s_add_u32 s16, s16, f@rel32@lo+4", "s_addc_u32 s17, s17, f@rel32@hi+12"]
    calls += ["s_swappc_b64 s[30:31], s[16:17]", "s_endpgm"]
    small = kernel_text(f".hidden f\n{function('small', calls)}{callee}", "gfx1100", name="small", vgprs=24)
    large = kernel_text(function("large", calls), "gfx1100", name="large", vgprs=48).replace(DIALECTS, "")
    object = assembled(f"{small}\n{large}", "gfx1100")
    assert not lift(object, "small").unknown
    assert bool(lift(object, "large").unknown) == ("movrel" in between)


@pytest.mark.parametrize("distance", range(-9, 10))
@pytest.mark.parametrize("kind", [None, 1, 2, 3, 13])
def test_words_that_the_loader_makes_in_part(kind: int | None, distance: int) -> None:
    """A word of code's address is known if no relocation beside it may change it, or the one of all of it makes it."""
    code = function("k", ["s_nop 0", "s_endpgm"])
    words = '.section .words,"a"\n.p2align 3\n.fill 3, 8, 0\nword: .quad 0\n.fill 3, 8, 0\n.text\n'
    plain = assembled(kernel_text(words + code, "gfx90a"), "gfx90a")
    word, entry = plain.symbol("word").address, plain.kernels["k"].entry
    editor = ObjectEditor(plain)
    editor.write(word, entry.to_bytes(8, "little"))
    if kind is not None:
        editor.add_relocation(word + distance, kind, 4 if kind == 13 else 0, "" if kind == 13 else "k")
    object = load_object(editor.finish())
    isa = Isa.of("gfx90a")
    made = {3: entry, 13: None}.get(kind) if distance == 0 else None
    expected = entry if kind is None or abs(distance) > 7 else made
    assert CodeSlots(object, Text(object, isa)).value(word) == expected
