"""Named barriers and those of clusters, of gfx1250, in kernels of several waves."""

from __future__ import annotations

import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier.devices import open_device
from luthier.errors import EmulationError
from luthier.objects import CodeObject
from numpy.typing import NDArray

TARGET = "gfx1250"
CODE = """\
s_load_b64 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
v_readfirstlane_b32 s6, v0
s_lshr_b32 s6, s6, 5
s_wait_kmcnt 0x0
{body}
s_endpgm"""
PUT = "\nv_mov_b32 v2, s8\nglobal_store_b32 v1, v2, s[4:5]"


def made(body: str, units: int = 1) -> CodeObject:
    lines = CODE.format(body=body).splitlines()
    text = kernel_text(function("k", lines), TARGET, lds=64, directives={"named_barrier_count": units})
    return assembled(text, TARGET)


def stored(body: str, waves: int = 2, units: int = 1) -> NDArray[np.uint32]:
    """Return s8 of each wave."""
    out = np.zeros(32 * waves, np.uint32)
    open_device(f"emu:{TARGET}").load(made(body, units)).kernel("k").launch(out, grid=1, block=32 * waves)
    rows = out.reshape(waves, 32)
    assert (rows == rows[:, :1]).all()
    return rows[:, 0]


def m0(number: int, members: int) -> str:
    return f"s_mov_b32 m0, {members << 16 | number:#x}\n"


INIT = m0(1, 2) + "s_barrier_init m0\ns_barrier_signal -1\ns_barrier_wait -1\n"
"""All waves set the same, and no one goes on before."""


def test_descriptor() -> None:
    for units in (0, 1, 7):
        assert made("s_nop 0", units).kernels["k"].descriptor.named_bar_cnt == units


@pytest.mark.parametrize("consumer", [0, 1])
def test_waits_for_those_who_signal(consumer: int) -> None:
    """One wave waits for the other, which writes LDS first, whichever the scheduler begins with."""
    body = f"""{INIT}
s_mov_b32 s8, 0
s_cmp_lg_u32 s6, {consumer}
s_cbranch_scc1 produce
s_barrier_join 1
s_barrier_signal 1
s_barrier_wait 1
v_mov_b32 v3, 0
ds_load_b32 v4, v3
s_wait_dscnt 0x0
v_readfirstlane_b32 s8, v4
s_branch done
produce:
s_sleep 1
v_mov_b32 v3, 0
v_mov_b32 v4, 77
ds_store_b32 v3, v4
s_wait_dscnt 0x0
s_barrier_signal 1
done:{PUT}"""
    actual = stored(body)
    assert actual[consumer] == 77
    assert actual[1 - consumer] == 0


@pytest.mark.parametrize("turns", [1, 5])
def test_opens_again(turns: int) -> None:
    """Two pairs of four waves, each at its barrier; in each turn one adds to what the other has left."""
    body = f"""{m0(1, 2)}s_barrier_init m0
{m0(2, 2)}s_barrier_init m0
s_barrier_signal -1
s_barrier_wait -1
s_lshr_b32 s7, s6, 1
s_add_co_u32 m0, s7, 1
s_barrier_join m0
s_lshl_b32 s7, s7, 2
v_mov_b32 v3, s7
s_movk_i32 s9, {turns}
again:
s_and_b32 s10, s6, 1
s_and_b32 s11, s9, 1
s_cmp_lg_u32 s10, s11
s_cbranch_scc1 other
ds_load_b32 v4, v3
s_wait_dscnt 0x0
v_add_nc_u32 v4, 3, v4
v_mul_lo_u32 v4, v4, 5
v_add_nc_u32 v4, s6, v4
ds_store_b32 v3, v4
s_wait_dscnt 0x0
other:
s_barrier_signal m0
s_barrier_wait 1
s_sub_co_u32 s9, s9, 1
s_cmp_lg_u32 s9, 0
s_cbranch_scc1 again
ds_load_b32 v4, v3
s_wait_dscnt 0x0
v_readfirstlane_b32 s8, v4{PUT}"""
    # An add to M0 leaves no count in its upper half.
    expected = []
    for pair in range(2):
        value = 0
        for left in range(turns, 0, -1):
            value = (value + 3) * 5 + 2 * pair + (left & 1)
        expected += [value] * 2
    np.testing.assert_array_equal(stored(body, 4), expected)


def test_state_and_first() -> None:
    """One wave alone signals: the first, not the second; then the barrier has opened and counts from 0."""
    body = f"""{m0(3, 3)}s_barrier_init m0
s_barrier_signal -1
s_barrier_wait -1
s_mov_b32 s8, 0
s_cmp_lg_u32 s6, 0
s_cbranch_scc1 done
s_get_barrier_state s12, 3
s_barrier_signal_isfirst 3
s_cselect_b32 s13, 1, 0
s_get_barrier_state s14, m0
s_barrier_signal_isfirst 3
s_cselect_b32 s15, 1, 0
s_barrier_signal 3
s_get_barrier_state s16, 3
s_get_barrier_state s17, 0
s_wait_kmcnt 0x0
s_sub_co_u32 s14, s14, s12
s_lshl_b32 s13, s13, 8
s_lshl_b32 s15, s15, 9
s_or_b32 s8, s12, s13
s_or_b32 s8, s8, s15
s_add_co_u32 s8, s8, s14
s_sub_co_u32 s16, s16, s12
s_or_b32 s8, s8, s16
s_or_b32 s8, s8, s17
done:{PUT}"""
    # rocjitsu: signals from bit 16, members from bit 4, bit 0: it exists, from bit 24 units of four.
    assert stored(body, units=2)[0] == 2 << 24 | 1 << 16 | 1 << 8 | 3 << 4 | 1


def test_signals_may_say_how_many_open_it() -> None:
    """Without an init, the barrier waits for the member count of the last one."""
    body = (
        f"s_barrier_join 2\ns_barrier_signal -1\ns_barrier_wait -1\n{m0(2, 2)}s_barrier_signal m0\ns_barrier_wait 2\n"
    )
    np.testing.assert_array_equal(stored(f"{body}s_get_barrier_state s8, 2\ns_wait_kmcnt 0x0{PUT}"), [0x1000021] * 2)


def test_those_who_leave_are_not_waited_for() -> None:
    body = f"""{INIT}
s_barrier_join 1
s_cmp_eq_u32 s6, 0
s_cbranch_scc1 stay
s_barrier_leave
s_cselect_b32 s8, 5, 4
s_barrier_wait 1
s_branch done
stay:
s_barrier_signal 1
s_barrier_wait 1
s_barrier_leave
s_cselect_b32 s8, 7, 6
done:{PUT}"""
    np.testing.assert_array_equal(stored(body), [7, 4])


def test_nothing_is_waited_for_alone() -> None:
    """A wave that is a whole work-group, a wave that has joined no barrier, and cluster barriers without clusters."""
    body = f"{INIT}s_barrier_join 1\ns_barrier_wait 1\ns_get_barrier_state s8, 1\ns_wait_kmcnt 0x0{PUT}"
    assert stored(body, 1) == [0]
    body = "s_barrier_wait 1\ns_barrier_join 0\ns_barrier_wait 3\ns_barrier_signal -3\ns_barrier_wait -3\n"
    body += f"s_mov_b32 s8, 9{PUT}"
    np.testing.assert_array_equal(stored(body), [9, 9])


@pytest.mark.rows(4)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"{INIT}s_barrier_join 1\ns_barrier_wait 1", "deadlock|no wave .* can continue"),
        (f"{m0(9, 2)}s_barrier_init m0", "does not allocate"),
        ("s_barrier_signal 9", "does not allocate"),
        ("s_barrier_signal 2", "nobody has said how many"),
        ("s_barrier_signal_isfirst -3", "which wave is first"),
        (f"{m0(0, 2)}s_barrier_signal_isfirst m0", "which wave is first|whether a wave is the first"),
        ("s_get_barrier_state s8, -3", "the sources differ"),
        ("s_wakeup_barrier 1", "no source says"),
    ],
)
def test_what_is_in_doubt_stops(body: str, message: str) -> None:
    with pytest.raises(EmulationError, match=message):
        stored(body + PUT)


STATE = """\
v_readfirstlane_b32 s6, v0
s_lshr_b32 s6, s6, 5
s_cmp_lg_u32 s6, 0
s_cbranch_scc1 1f
s_barrier_signal -1
1:
s_sleep 1
s_get_barrier_state s8, -1
s_cmp_lg_u32 s6, 1
s_cbranch_scc1 2f
s_barrier_signal -1
2:
s_cmp_lg_u32 s6, 2
s_cbranch_scc1 3f
s_barrier_signal -1
3:
s_barrier_wait -1
s_wait_kmcnt 0x0"""


@pytest.mark.parametrize("target", ["gfx1201", TARGET])
def test_state_of_the_work_groups_barrier(target: str) -> None:
    """The waves come one after the other: before each, one more has signalled (pseudo-code of RDNA4's document)."""
    code = STATE + "\ns_load_b64 s[4:5], s[0:1], 0x0\nv_lshlrev_b32 v1, 2, v0\ns_wait_kmcnt 0x0" + PUT + "\ns_endpgm"
    data = assembled(kernel_text(function("k", code.splitlines()), target), target)
    out = np.zeros(96, np.uint32)
    open_device(f"emu:{target}", threads=1).load(data).kernel("k").launch(out, grid=1, block=96)
    np.testing.assert_array_equal(out[::32], [count << 16 | 3 << 4 | 1 for count in (1, 1, 2)])


def test_other_barriers_of_gfx12() -> None:
    code = "s_get_barrier_state s8, 1\ns_endpgm"
    data = assembled(kernel_text(function("k", code.splitlines()), "gfx1201"), "gfx1201")
    with pytest.raises(EmulationError, match="does not allocate"):
        open_device("emu:gfx1201").load(data).kernel("k").launch(np.zeros(64, np.uint32), grid=1, block=64)
