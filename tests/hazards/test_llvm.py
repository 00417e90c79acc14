"""The table against LLVM's hazard recognizer, in random straight code."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence

import pytest
from llvm import states, through_llvm
from sequences import Lack, isa_of, missing_states, pool, sequence, wave_sizes

pytestmark = pytest.mark.rows()

COUNT = 150
"""Sequences of a test."""
SEED = os.environ.get("LUTHIER_SEED", "1")
NOT_ALONE = (
    *("s_branch", "s_rfe", "lds_direct", "ds_direct", "v_wmma", "image_", "s_movrel", "v_fma_f16", "s_nop"),
    "s_set_vgpr_msb",
)
"""LLVM wants more of them than a line, or its own opcodes; or they are what it inserts."""
ONLY_HERE = ("s_setvskip", "s_setreg_b32 hwreg(HW_REG_MODE, 28")
"""LLVM does not know what they need."""
ONLY_LLVM = (
    "v_cmpx",
    "v_dot",
    "v_mov_b32_dpp",
    "global_",
    "buffer_",
    "s_load",
    "v_cvt_scalef32",
    "v_cndmask",
    "v_addc",
    "v_writelane",
)
"""LLVM keeps these apart where no document asks for it: memory and v_cmpx, what packed instructions give, what DPP
keeps, stores behind loads in one clause, SGPRs as lane masks, M0 and buffer loads to LDS, v_writelane
behind what wrote the other lanes."""
RARE = ("gfx1030", "gfx1100", "gfx1200")
"""Processors with few hazards besides those of `NOT_ALONE`: with some seeds none of the sequences has one."""
NOT_IN_LLVM_22 = {
    "XDL writes registers, XDL of other passes reads them as C",
    "store of more than 64 bits with an offset in an SGPR, VALU overwrites its data",
    "vector instruction, s_setreg of MODE",
}
"""Hazards of documents or of younger versions that this one does not mend."""


def not_in_llvm_22(lack: Lack, text: str) -> bool:
    """Also where it looks back at 19 wait states of 20, and at transcendental operations behind WMMA."""
    return (
        lack.hazard.name in NOT_IN_LLVM_22
        or (lack.there, lack.needed) == (19, 20)
        or ("WMMA" in lack.hazard.name and text.startswith(("v_rcp", "v_exp")))
    )


def vectors(text: str) -> set[str]:
    """Return the VGPRs and AGPRs of an instruction."""
    return {
        f"{file}{number}"
        for file, only, first, last in re.findall(r"\b([va])(?:(\d+)\b|\[(\d+):(\d+)\])", text)
        for number in range(int(only or first), int(only or last) + 1)
    }


def meets_several_matrices(body: Sequence[str]) -> bool:
    """Return whether an instruction meets two matrix instructions before it in its registers.

    Of those that write registers of an operand LLVM looks at the youngest alone (checkMAIHazards90A); to the table
    matrix instructions read C in order, to LLVM they do not.
    """
    matrices = [(at, vectors(text)) for at, text in enumerate(body) if text.startswith(("v_mfma", "v_smfmac"))]
    return any(
        sum(earlier < at and bool(used & vectors(text)) for earlier, used in matrices) > 1
        for at, text in enumerate(body)
    )


def bodies(target: str, lanes: int, without: tuple[str, ...]) -> list[list[str]]:
    chance = random.Random(f"{target} {lanes} {SEED}")
    texts = [text for text in pool(isa_of(target, lanes)) if not text.startswith((*NOT_ALONE, *without))]
    return [chance.sample(texts, chance.randrange(2, 10)) for _ in range(COUNT)]


@pytest.mark.rows(1)
@pytest.mark.parametrize(("target", "lanes"), wave_sizes())
def test_nothing_is_found_behind_llvm(target: str, lanes: int) -> None:
    isa = isa_of(target, lanes)
    line = sequence(isa)
    given = bodies(target, lanes, ONLY_HERE)
    mended = 0
    for before, after in zip(given, through_llvm(isa, ["\n".join(one) for one in given]), strict=True):
        lacks = [
            one
            for text, here in zip(after, line.lacks(line.steps(after)), strict=True)
            for one in here
            if not not_in_llvm_22(one, text)
        ]
        assert lacks == [], (before, after)
        mended += any(line.lacks(line.steps(before)))
    assert mended or target in RARE


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx950"])
def test_as_many_wait_states_as_llvm_inserts(target: str) -> None:
    isa = isa_of(target)
    line = sequence(isa)
    given = bodies(target, 64, (*ONLY_HERE, *ONLY_LLVM))
    total = 0
    for before, after in zip(given, through_llvm(isa, ["\n".join(one) for one in given]), strict=True):
        inserted, waiting = [], 0
        for gap in states(isa, isa.assemble("\n".join(after)).instructions):
            if gap:
                waiting += gap
            else:
                inserted.append(waiting)
                waiting = 0
        if len(inserted) != len(before):
            continue  # LLVM replaced an instruction by several
        lacks = line.lacks(line.steps(before), mend=True)
        needed = [missing_states(here) for here in lacks]
        if any(not_in_llvm_22(one, text) for text, here in zip(before, lacks, strict=True) for one in here):
            continue
        if meets_several_matrices(before):
            continue
        assert needed == inserted, (before, after)
        total += sum(needed)
    assert total
