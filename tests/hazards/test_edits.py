"""Instructions that tools add: they keep the distances that hardware needs, and wait for results of the application."""

from __future__ import annotations

import pytest
from effort import sample
from luthier.hazards.wait_counters import check_waits
from luthier.hazards.wait_states import check_hazards
from luthier.lifting import lift
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.tool.task import InstrumentationTask
from wait_kernels import kernel

LANE, SELECT = "v_readfirstlane_b32 s4, v0", "v_readlane_b32 s5, v1, s4"
MFMA = "v_mfma_f32_4x4x4_16b_f16 v[0:3], v[4:5], v[6:7], v[0:3]"
PAIRS = [  # (target, producer, consumer, wait states between them)
    ("gfx906", LANE, SELECT, 4),
    ("gfx906", "v_mov_b32 v3, 0", "v_mov_b32_dpp v2, v3 quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xf", 2),
    ("gfx906", LANE, "s_mov_b32 s5, s4", 0),
    ("gfx90a", "v_cmp_eq_u32 vcc, v0, v1", "v_div_fmas_f32 v2, v3, v4, v5", 4),
    ("gfx942", MFMA, "v_mov_b32 v9, v0", 5),
    ("gfx942", "v_cmp_eq_u32 s[4:5], v0, v1", "v_mov_b32 v2, s4", 2),
    ("gfx942", "v_cmp_eq_u32 s[4:5], v0, v1", "v_cndmask_b32 v2, v3, v4, s[4:5]", 0),
]


def patched(object: CodeObject, at: str, place: str, text: str) -> CodeObject:
    def instrument(task: InstrumentationTask) -> None:
        instruction = next(one for one in task.instructions if one.text == at)
        {"before": task.add_before, "after": task.add_after, "instead": task.replace}[place](instruction, text)

    return load_object(patch_object(object, instrument, ["k"], strict=True).data)


def nops(object: CodeObject) -> int:
    """Wait states of s_nop, but for those of `MARK`."""
    lifted = lift(object, "k")
    texts = [lifted.isa.text(lifted.code, index) for index in range(len(lifted.code)) if lifted.block_of[index] >= 0]
    return sum(int(text.split()[1]) + 1 for text in texts if text.startswith("s_nop ") and text != MARK)


MARK = "s_nop 13"


@pytest.mark.rows(12)
@pytest.mark.parametrize("place", ["before", "after", "instead"])
@pytest.mark.parametrize("consumer_added", [False, True])
@pytest.mark.parametrize("between", [0, 1, 3])
@pytest.mark.parametrize(("target", "producer", "consumer", "needed"), sample(PAIRS, 3))
def test_boundaries(
    target: str, producer: str, consumer: str, needed: int, between: int, consumer_added: bool, place: str
) -> None:
    """Exactly as many wait states as are missing, also over branches."""
    filler = ["s_mov_b32 s20, 0"] * between
    added, kept = (consumer, producer) if consumer_added else (producer, consumer)
    anchor = "s_mov_b32 s21, 0"
    original = [anchor] if consumer_added else [anchor, *filler]
    lines = [MARK, kept, *filler, *original] if consumer_added else [MARK, *original, kept]
    object = kernel(target, "; ".join([*lines, MARK]))
    # The anchor itself stands between, unless it is replaced or on the other side.
    more = {("before", True): 0, ("after", True): 1, ("before", False): 1, ("after", False): 0}.get(
        (place, consumer_added), 0
    )
    again = patched(object, anchor, place, added)
    assert not check_hazards(lift(again, "k"), unneeded=False).findings
    assert nops(again) == max(0, needed - between - more)


LOADS = [
    ("gfx906", "global_load_dword v4, v[2:3], off", "v_mov_b32 v5, v4"),
    ("gfx906", "s_load_dword s4, s[0:1], 0x0", "s_mov_b32 s5, s4"),
    ("gfx942", "ds_read_b32 v4, v0", "v_mov_b32 v4, 0"),
    ("gfx1100", "global_load_b32 v4, v[2:3], off", "v_mov_b32 v5, v4"),
    ("gfx1201", "s_load_b32 s4, s[0:1], 0x0", "s_mov_b32 s5, s4"),
    ("gfx1201", "global_load_b32 v4, v[2:3], off", "v_mov_b32 v5, v4"),
]


@pytest.mark.parametrize(("target", "load", "use"), LOADS)
def test_waits(target: str, load: str, use: str) -> None:
    object = kernel(target, f"{load}; s_mov_b32 s21, 0")
    again = patched(object, "s_mov_b32 s21, 0", "before", use)
    assert not check_waits(lift(again, "k"), unneeded=False).findings


@pytest.mark.parametrize(
    ("before", "added", "behind"),
    [
        ("v_mov_b32 v1, s4; s_mov_b32 s4, 1", "v_mov_b32 v2, s4", "s_nop 0"),
        ("v_mov_b32 v1, s4; s_nop 0", "s_mov_b32 s4, 1", "v_mov_b32 v2, s4"),
        ("s_nop 0", "v_mov_b32 v1, s4", "s_mov_b32 s4, 1; v_mov_b32 v2, s4"),
    ],
)
def test_scalars_of_gfx12(before: str, added: str, behind: str) -> None:
    again = patched(kernel("gfx1201", f"{before}; s_mov_b32 s21, 0; {behind}"), "s_mov_b32 s21, 0", "before", added)
    assert not check_hazards(lift(again, "k"), unneeded=False).findings
