"""Counters where a kernel calls by pointers: functions of the object, and unknown code, which uses all registers of the
kernel, ends waves, calls back, or returns late."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from effort import EVERYTHING
from luthier.devices import open_device
from luthier.errors import PatchError
from luthier.hazards.wait_states import check_hazards
from luthier.isa.targets import target_named
from luthier.lifting import lift
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.tool.task import InstrumentationTask

TARGETS = ("gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
GROUPS, WAVES, SLOTS = 5, 2, 24
KEPT = {30, 31, 38, *range(40, 48)}
"""SGPRs that unknown code must keep: those of the kernel, and the return address."""
SGPRS, VGPRS = 102, 8


class Source:
    """A kernel that calls all pointers of a table. s[40:41] is the table, s42 the place in it, s47 what is computed.

    Args:
        tail: whether a known function jumps on, and does not call.
        scc: what gives SCC to functions: "read", all read it; else only unknown ones do: "compared", a
            comparison; "link", one of what the call overwrites; "lanes", that some lanes are left.
        more: functions to which there are pointers, besides.
    """

    def __init__(self, target: str, *, tail: bool, scc: str = "read", more: int = 0) -> None:
        self.target, self.tail, self.scc, self.more = target, tail, scc, more
        family = target_named(target)
        self.major, self.wide = family.major, family.default_wave_size == 64
        self.b = "b64" if self.wide else "b32"
        self.exec, self.saved = ("exec", "s[20:21]") if self.wide else ("exec_lo", "s20")

    def slot(self, pair: int) -> list[str]:
        """The next pointer."""
        return [
            "s_lshl_b32 s43, s42, 3",
            *("s_add_u32 s44, s40, s43", "s_addc_u32 s45, s41, 0", "s_add_u32 s42, s42, 1"),
            *(f"load2 s[{pair}:{pair + 1}], s[44:45], 0x0", "wait_scalar"),
        ]

    def note(self, *numbers: int) -> list[str]:
        """SCC goes into the result."""
        return ["s_cselect_b32 s46, {}, {}".format(*numbers), "s_mul_i32 s47, s47, 3", "s_add_u32 s47, s47, s46"]

    def kernel(self) -> list[str]:
        size = 4 * (64 if self.wide else 32)
        lines = ["load2 s[40:41], s[0:1], 0x0"]
        lines += ["workgroup_id s39", "wait_scalar"]
        lines += ["v_mov_b32_e32 v2, v0", "v_mbcnt_lo_u32_b32 v0, -1, 0"]
        lines += ["v_mbcnt_hi_u32_b32 v0, -1, v0"] if self.wide else []
        lines += ["v_readfirstlane_b32 s47, v2", "s_and_b32 s47, s47, 0x3ff", f"s_lshr_b32 s47, s47, {5 + self.wide}"]
        lines += [f"s_mul_i32 s38, s39, {WAVES}", "s_add_u32 s38, s38, s47", "s_mov_b32 s47, s38", "v_mov_b32 v3, 0"]
        lines += [
            "s_mov_b32 s42, 0",
            "next:",
            "s_bitcmp1_b32 s42, 1",
            "s_cbranch_scc0 itself",
            "call 28, 29, f1",
        ]
        lines += ["itself:", *self.slot(4), "s_cmp_eq_u64 s[4:5], 0", "s_cbranch_scc1 done"]
        lines += ["s_bitcmp1_b32 s42, 1", "s_cbranch_scc0 all", "s_mov_b32 exec_lo, 0xffff", "all:"]
        lines += ["s_mov_b32 s30, s47", "s_bitcmp1_b32 s30, 2"] if self.scc == "link" else ["s_bitcmp1_b32 s47, 2"]
        if self.scc == "lanes":
            left = "s[22:23]" if self.wide else "s22"
            lines += [f"s_cselect_{self.b} {left}, -1, 0", f"s_and_saveexec_{self.b} {self.saved}, {left}"]
        lines += ["s_swappc_b64 s[30:31], s[4:5]", *self.note(1, 2)]
        lines += [f"s_mov_{self.b} {self.exec}, -1", "s_branch next", "done:"]
        lines += [f"s_mul_i32 s38, s38, {size}", "v_lshlrev_b32 v1, 2, v0", "vadd v1, s38, v1"]
        return [*lines, "vadd v3, s47, v3", f"global_store v1, v3, s[40:41] offset:{8 * SLOTS}", "s_endpgm"]

    def known(self) -> str:
        """Functions to which there are pointers in memory, one with ways through it; and one that is called, and calls
        or jumps on."""
        deaf = [] if self.scc == "read" else ["s_bitcmp1_b32 s47, 5"]
        first = [*deaf, *self.note(3, 4), "vadd v3, 1, v3", "s_bitcmp1_b32 s47, 1", "s_cbranch_scc1 f0_2"]
        first += [
            "s_bitcmp1_b32 s47, 3",
            "s_cbranch_scc1 f0_1",
            "s_add_u32 s47, s47, 5",
            "f0_1:",
            "s_add_u32 s47, s47, 1",
        ]
        first += ["f0_2:", "s_bitcmp1_b32 s47, 4", "s_setpc_b64 s[30:31]"]
        settle = ["s_wait_alu 0x0"] if self.major >= 12 else []
        second = [*self.slot(6), "vadd v3, 2, v3", "s_cmp_eq_u64 s[6:7], 0", "s_cbranch_scc1 f1_1"]
        if self.tail:
            second += ["s_setpc_b64 s[6:7]", "f1_1:", "s_setpc_b64 s[30:31]"]
        else:
            # On GFX12 what vector instructions have read must not be overwritten by a call without a wait.
            saved = ["s_mov_b64 s[34:35], s[30:31]", *settle]
            saved += [f"v_writelane_b32 v4, s{34 + lane}, {lane}" for lane in range(2)]
            second = [*saved, *second, "s_swappc_b64 s[30:31], s[6:7]", *self.note(5, 6), "f1_1:"]
            second += [f"v_readlane_b32 s{30 + lane}, v4, {lane}" for lane in range(2)]
            second += ["s_nop 4", *settle, "s_setpc_b64 s[30:31]"]
        third = [*deaf, *self.note(11, 12), "s_bitcmp1_b32 s47, 2", "s_setpc_b64 s[30:31]"]
        code = function("f0", first) + function("f1", second) + function("f2", third)
        names = [f"m{number}" for number in range(self.more)]
        for number, name in enumerate(names):
            code += function(name, [f"vadd v3, {number}, v3", *self.note(13, 14), "s_setpc_b64 s[30:31]"])
        return code + f".data\n.p2align 3\n.quad {', '.join(['f0', 'f2', *names])}\n.text\n"

    def unknown(self) -> str:
        """Functions that no pointer in the object leads to: the first uses all registers, the second ends some waves,
        the third calls back."""
        fill = [f"s_mov_b32 s{one}, {hex(0xABC000 + one)}" for one in range(SGPRS) if one not in {*KEPT, 20, 21}]
        fill += [f"v_mov_b32 v{one}, {hex(0xABC000 + one)}" for one in range(VGPRS) if one not in (0, 3, 4)]
        g = [*self.note(7, 8), f"s_mov_{self.b} {self.saved}, {self.exec}", f"s_mov_{self.b} {self.exec}, -1", *fill]
        g += [f"s_mov_{self.b} {self.exec}, {self.saved}", "s_mov_b32 vcc_lo, 77", "s_mov_b32 m0, 78"]
        g += ["load2 s[60:61], s[40:41], 0x0", "s_bitcmp1_b32 s47, 1", "s_setpc_b64 s[30:31]"]
        ends = [*self.note(9, 10), "s_and_b32 s46, s47, 3", "s_cmp_eq_u32 s46, 0", "s_cbranch_scc0 stay", "s_endpgm"]
        ends += ["stay:", "s_branch g"]
        back = ["s_mov_b64 s[48:49], s[30:31]", "call 28, 29, f0", "s_mov_b64 s[30:31], s[48:49]", "s_branch g"]
        return function("g", g) + function("h", ends) + function("c", back)

    def object(self) -> CodeObject:
        names = ["f0", "f1", "f2", "g", "h", "c", *(f"m{number}" for number in range(self.more))]
        local = "".join(f".protected {name}\n" for name in names)
        code = local + function("k", self.kernel()) + self.known() + self.unknown()
        return assembled(kernel_text(code, self.target, sgprs=SGPRS, vgprs=VGPRS), self.target)


CALLED = {
    "known alone": ["f0", "f2", "f0", "f0", "f2", "f0", "f0", "f2"],
    "all registers": ["f0", "g", "f2", "g", "g", "f0", "f0", "g", "f0", "f2", "g", "g", "f2"],
    "ends": ["f0", "h", "f2", "h", "f0", "h", "f2", "h", "f0", "h", "f2"],
    "calls back": ["c", "f0", "f0", "c", "c", "f2", "c", "g", "h", "f0", "c", "h", "f2", "h"],
}


def launch(object: CodeObject, data: bytes, names: list[str]):
    return launch_on(open_device(f"emu:{object.target.target.name}"), object, data, names)


def launch_on(device, object: CodeObject, data: bytes, names: list[str], trace=None):
    module = device.load(data)
    addresses = {one.name: one.address for one in object.symbols if one.type == "func"}
    lanes = object.kernels["k"].wave_size
    buffer = np.zeros(SLOTS + GROUPS * WAVES * lanes // 2, np.uint64)
    buffer[: len(names)] = [module.image.host(addresses[name]) for name in names]
    module.kernel("k").launch(buffer, grid=(GROUPS, 1, 1), block=(WAVES * lanes, 1, 1), trace=trace)
    return buffer[SLOTS:].tolist(), module, device.stats


ROUNDS = Path(__file__).parent / "rounds.hip"
KINDS = {"divergent": (), "uniform": ("-DUNIFORM",), "many": ("-DMANY",)}


@pytest.mark.parametrize(
    ("kind", "level", "most"),
    [("divergent", "-O0", 1.1), ("divergent", "-O3", 1.25), ("uniform", "-O3", 1.2), ("many", "-O3", 1.65)],
)
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
@pytest.mark.rows(1)
def test_cost(compile_object, target: str, kind: str, level: str, most: float) -> None:
    """Wave-instructions of a kernel that does little but call by pointers: each is looked up, and counted."""
    object = load_object(compile_object(ROUNDS, target, level, *KINDS[kind]))
    patched = patch_object(object, lambda task: task.count(task.instructions) and None, strict=True)
    spent = []
    for data in (object.data, patched.data):
        device = open_device(f"emu:{target}")
        module = device.load(data)
        out, given = np.zeros(64, np.uint32), np.arange(64, dtype=np.uint32) * 0x9E3779B1
        module.kernel("rounds").launch(out, given, 50, grid=(1, 1, 1), block=(64, 1, 1))
        spent.append((out.tolist(), device.stats))
    assert spent[0][0] == spent[1][0]
    before = spent[0][1]
    counts = patched.counters["rounds"].read(module, before.waves)
    assert counts.executions.tolist() == counts_at(lift(object, "rounds"), before)[0].tolist()
    assert spent[1][1].instructions <= most * before.instructions


def counts_at(lifted, stats) -> tuple[np.ndarray, np.ndarray]:
    """Executions and active lanes of the lifted instructions."""
    counts = np.zeros((2, len(lifted.code)), np.int64)
    at = np.searchsorted(lifted.code.addresses, stats.by_address.addresses)
    at = np.minimum(at, len(lifted.code) - 1)
    inside = (lifted.code.addresses[at] == stats.by_address.addresses) & lifted.reached[at]
    counts[0, at[inside]] = stats.by_address.executions[inside]
    counts[1, at[inside]] = stats.by_address.active_lanes[inside]
    return counts[0], counts[1]


def check_originals(object: CodeObject, before, after) -> None:
    """Check that of the functions that pointers lead to, originals run only where unknown code calls one."""
    entries = {one.name: one.address for one in object.symbols if one.type == "func"}
    ran, was = (dict(zip(one.by_address.addresses, one.by_address.executions, strict=True)) for one in (after, before))
    called = {name: ran.get(entries[name], 0) for name in entries if name[0] in "fmk"}
    assert {name: count for name, count in called.items() if count} == (
        {"f0": was[entries["c"]]} if entries["c"] in was else {}
    )


@pytest.mark.rows(2)
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("tail", [False, True], ids=["calls", "jumps"])
@pytest.mark.parametrize("names", CALLED)
@pytest.mark.parametrize("target", TARGETS if EVERYTHING else TARGETS[1:])
def test_counts_are_the_truth(target: str, names: str, tail: bool, given: bool) -> None:
    object = Source(target, tail=tail).object()
    lifted = lift(object, "k")
    assert len(lifted.unknown) == 2

    def instrument(task: InstrumentationTask) -> None:
        task.waves_given = given
        task.count(task.instructions)
        task.count(task.instructions, per="lane")

    patched = patch_object(object, instrument, strict=True)
    assert not check_hazards(lift(load_object(patched.data), "k")).findings
    was, _, before = launch(object, object.data, CALLED[names])
    now, module, after = launch(object, patched.data, CALLED[names])
    assert now == was
    counts = patched.counters["k"].read(module, before.waves)
    # Unknown code itself calls the originals.
    expected = [one - other for one, other in zip(counts_at(lifted, before), counts_at(lifted, after), strict=True)]
    assert counts.executions.tolist() == expected[0].tolist()
    assert counts.active_lanes.tolist() == expected[1].tolist()
    check_originals(object, before, after)


MORE = {
    "read": ["m0", "g", "m11", "m5", "f0", "h", "m6", "m7", "c", "f2", "m3", "h", "m10", "g", "m1", "m8"],
    "compared": CALLED["calls back"],
    "link": CALLED["calls back"],
    "lanes": CALLED["calls back"],
}


@pytest.mark.rows(2)
@pytest.mark.parametrize("scc", MORE)
@pytest.mark.parametrize("target", TARGETS if EVERYTHING else TARGETS[1:])
def test_lookups(target: str, scc: str) -> None:
    """One among many functions; and those after which SCC is restored for unknown code."""
    names = MORE[scc]
    object = Source(target, tail=False, scc=scc, more=12 * (scc == "read")).object()
    patched = patch_object(object, lambda task: task.count(task.instructions) and None, strict=True)
    assert not check_hazards(lift(load_object(patched.data), "k")).findings
    was, _, before = launch(object, object.data, names)
    now, module, after = launch(object, patched.data, names)
    assert now == was
    lifted = lift(object, "k")
    expected = counts_at(lifted, before)[0] - counts_at(lifted, after)[0]
    assert patched.counters["k"].read(module, before.waves).executions.tolist() == expected.tolist()
    check_originals(object, before, after)


@pytest.mark.rows(2)
@pytest.mark.parametrize("names", ["known alone", "all registers", "ends"])
@pytest.mark.parametrize("target", TARGETS if EVERYTHING else TARGETS[1:])
def test_each_wave_has_its_row(target: str, names: str) -> None:
    """Except waves that end in unknown code: they are in the sums only."""
    object = Source(target, tail=False).object()
    lifted = lift(object, "k")

    def instrument(task: InstrumentationTask) -> None:
        task.wave_rows = 100
        task.count(task.instructions, granularity="wave")

    patched = patch_object(object, instrument, strict=True)
    assert not check_hazards(lift(load_object(patched.data), "k")).findings
    truth: dict[tuple[int, int], Counter[int]] = {}

    def see(step) -> None:
        truth.setdefault((step.workgroup, step.wave), Counter())[step.address] += 1

    was, _, before = launch_on(open_device(f"emu:{target}"), object, object.data, CALLED[names], see)
    now, module, _ = launch(object, patched.data, CALLED[names])
    assert now == was
    counts = patched.counters["k"].read(module, before.waves)
    assert counts.executions.tolist() == counts_at(lifted, before)[0].tolist()
    waves = counts.waves
    assert waves is not None
    whose = [(row[0], row[3]) for row in waves.identity.tolist()]
    assert len(set(whose)) == len(whose) <= GROUPS * WAVES
    ended = GROUPS * WAVES - len(whose)
    assert 0 < ended < GROUPS * WAVES if names == "ends" else not ended
    for index, address in enumerate(lifted.code.addresses.tolist()):
        if lifted.reached[index]:
            assert waves.executions(index).tolist() == [truth[who][address] for who in whose]


def test_rows_of_waves_that_are_sent_away_are_refused() -> None:
    object = Source("gfx1100", tail=True).object()
    with pytest.raises(PatchError, match="the kernel jumps to unknown functions"):
        patch_object(object, lambda task: task.count(0, granularity="wave") and None, strict=True)
