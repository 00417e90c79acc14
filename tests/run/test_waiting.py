"""Loads by which waves wait for each other, among those in other loops."""

from __future__ import annotations

import pytest
from luthier.emulator.inspection.waiting import waits
from luthier.isa import Isa, TargetId

LOOP = """
loop:
  {load}
  s_waitcnt lgkmcnt(0)
  {more}
  v_cmp_eq_u32 vcc, v1, v3
  s_or_b64 s[2:3], vcc, s[2:3]
  s_andn2_b64 exec, exec, s[2:3]
  s_cbranch_execnz {back}
  s_endpgm
"""


def is_found(text: str, load: int = 0) -> bool:
    """Return whether the load at that position of a code is one by which a wave waits.

    Args:
        text: assembly; {back} is the distance of a branch to the label "loop".
    """
    isa = Isa.of(TargetId.parse("gfx90a"), 64)
    head, _, rest = text.partition("{back}")
    begin, end = (isa.assemble(part).instructions.code for part in (head.partition("loop:")[0], head + "0"))
    distance = (len(begin) - len(end)) // 4 if "loop:" in head else 0
    return waits(isa, isa.decode(isa.assemble(f"{head}{distance & 0xFFFF}{rest}").instructions.code, 0x1000), load)


@pytest.mark.parametrize(
    ("load", "more", "expected"),
    [
        ("ds_read_b32 v1, v0", "s_sleep 1", True),
        ("global_load_dword v1, v2, s[4:5]", "buffer_wbinvl1_vol", True),
        ("ds_read_b32 v1, v0", "v_add_u32 v0, 4, v0", False),  # another address each time
        ("ds_read_b32 v0, v0", "s_nop 0", False),  # the next one is what was loaded: a list
        ("ds_read_b32 v1, v0", "ds_write_b32 v0, v2", False),  # it may store what it loads
        ("ds_read_b32 v1, v0", "ds_add_u32 v0, v2", False),
        ("ds_read_b32 v1, v0", "s_barrier", False),  # the barrier shows that there is other work
        ("ds_write_b32 v1, v0", "s_nop 0", False),
        ("ds_add_rtn_u32 v1, v0, v2", "s_nop 0", False),
    ],
)
def test_loop(load: str, more: str, expected: bool) -> None:
    assert is_found(LOOP.format(load=load, more=more, back="{back}")) == expected


@pytest.mark.parametrize(
    ("between", "expected"),
    [("s_nop 0", True), ("v_mov_b32 v0, 8", False), ("ds_read_b32 v4, v5", False), ("s_barrier", False)],
)
def test_first_turn(between: str, expected: bool) -> None:
    """The first turn may be before the loop, if it is one."""
    load = "ds_read_b32 v1, v0"
    first = f"{load}\ns_waitcnt lgkmcnt(0)\n{between}\ns_cbranch_vccnz done\n"
    assert is_found(f"{first}{LOOP.format(load=load, more='s_nop 0', back='{back}')}done:\n  s_endpgm") == expected


def test_without_a_loop() -> None:
    assert not is_found("loop:\nds_read_b32 v1, v0\ns_waitcnt lgkmcnt(0)\ns_nop {back}\ns_endpgm")
