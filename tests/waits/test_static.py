"""The check of waits over all paths: directed cases for every counter, both sides of each limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from luthier.hazards.wait_counters import WaitReport, check_waits
from luthier.hazards.wait_counters.model import wait_model
from luthier.isa import Isa
from luthier.isa.targets import TARGETS
from luthier.lifting import lift
from wait_kernels import kernel


def check(target: str, body: str) -> WaitReport:
    return check_waits(lift(kernel(target, body), "k"))


def found(report: WaitReport) -> list[str]:
    return [
        f"{finding.access} {', '.join(finding.registers.names())} {finding.counter}({finding.enough})"
        for finding in report.findings
    ]


def repeated(count: int, text: Callable[[int], str]) -> str:
    return "; ".join(text(number) for number in range(count))


LOAD9 = "global_load_dword v{0}, v[2:3], off"
LOAD11 = "global_load_b32 v{0}, v[2:3], off"
READ_V10 = "v_add_u32_e32 v1, v10, v10"

# (targets, what runs, what is found); every one is followed by its own opposite where there is one.
CASES = [
    # Vector loads, in order.
    ("gfx906 gfx942", f"global_load_dword v10, v[2:3], off; {READ_V10}", ["reads v10 vmcnt(0)"]),
    ("gfx906 gfx942", f"global_load_dword v10, v[2:3], off; s_waitcnt vmcnt(0); {READ_V10}", []),
    ("gfx906", f"{LOAD9.format(10)}; {LOAD9.format(11)}; s_waitcnt vmcnt(1); {READ_V10}", []),
    ("gfx906", f"{LOAD9.format(10)}; {LOAD9.format(11)}; s_waitcnt vmcnt(2); {READ_V10}", ["reads v10 vmcnt(1)"]),
    ("gfx906", f"{LOAD9.format(10)}; {LOAD9.format(11)}; s_waitcnt lgkmcnt(0); {READ_V10}", ["reads v10 vmcnt(1)"]),
    # Stores count with loads, or apart.
    (
        "gfx906",
        f"{LOAD9.format(10)}; global_store_dword v[2:3], v4, off; s_waitcnt vmcnt(1); {READ_V10}",
        [],
    ),
    (
        "gfx1030",
        f"{LOAD9.format(10)}; global_store_dword v[2:3], v4, off; s_waitcnt vmcnt(1); v_mov_b32 v1, v10",
        ["reads v10 vmcnt(0)"],
    ),
    ("gfx1030", f"{LOAD9.format(10)}; s_waitcnt_vscnt null, 0x0; v_mov_b32 v1, v10", ["reads v10 vmcnt(0)"]),
    ("gfx1030", f"{LOAD9.format(10)}; s_waitcnt_vmcnt null, 0x0; v_mov_b32 v1, v10", []),
    # A store reads its data at issue.
    ("gfx906 gfx942", "global_store_dword v[2:3], v4, off; v_mov_b32 v4, 0; v_mov_b32 v2, 0", []),
    # Atomics with and without return.
    ("gfx90a", "global_atomic_add v10, v[2:3], v4, off glc; v_mov_b32 v1, v10", ["reads v10 vmcnt(0)"]),
    ("gfx90a", "global_atomic_add v[2:3], v4, off; v_mov_b32 v4, 0", []),
    (
        "gfx1100",
        "global_atomic_add_u32 v10, v[2:3], v4, off glc; s_waitcnt_vscnt null, 0x0; v_mov_b32 v1, v10",
        ["reads v10 vmcnt(0)"],
    ),
    # Overwriting: by another load in order it is right, by anything else not.
    ("gfx906 gfx1030", f"{LOAD9.format(10)}; {LOAD9.format(10)}; s_waitcnt vmcnt(0)", []),
    ("gfx906 gfx1030", f"{LOAD9.format(10)}; v_mov_b32 v10, 0", ["overwrites v10 vmcnt(0)"]),
    ("gfx1200", f"{LOAD11.format(10)}; {LOAD11.format(10)}; s_wait_loadcnt 0x0", ["overwrites v10 loadcnt(0)"]),
    ("gfx906", f"{LOAD9.format(10)}; ds_read_b32 v10, v4; s_waitcnt vmcnt(0) lgkmcnt(0)", ["overwrites v10 vmcnt(0)"]),
    ("gfx906", "ds_read_b32 v10, v4; ds_read_b32 v10, v5; s_waitcnt lgkmcnt(0)", []),
    # Scalar loads, out of order.
    ("gfx906 gfx1030", "s_load_dword s10, s[4:5], 0x0; s_mov_b32 s1, s10", ["reads s10 lgkmcnt(0)"]),
    ("gfx906 gfx1030", "s_load_dword s10, s[4:5], 0x0; s_waitcnt lgkmcnt(0); s_mov_b32 s1, s10", []),
    (
        "gfx906 gfx1030",
        "s_load_dword s10, s[4:5], 0x0; s_load_dword s11, s[4:5], 0x0; s_waitcnt lgkmcnt(1); s_mov_b32 s1, s10",
        ["reads s10 lgkmcnt(0)"],
    ),
    ("gfx906", "s_load_dword s10, s[4:5], 0x0; s_mov_b32 s10, 0", ["overwrites s10 lgkmcnt(0)"]),
    (
        "gfx906",
        "s_load_dword s10, s[4:5], 0x0; s_load_dword s10, s[4:5], 0x4; s_waitcnt lgkmcnt(0)",
        ["overwrites s10 lgkmcnt(0)"],
    ),
    ("gfx1200", "s_load_b32 s10, s[4:5], 0x0; s_wait_dscnt 0x0; s_mov_b32 s1, s10", ["reads s10 kmcnt(0)"]),
    ("gfx1200", "s_load_b32 s10, s[4:5], 0x0; s_wait_kmcnt 0x0; s_mov_b32 s1, s10", []),
    ("gfx906", "s_memtime s[10:11]; s_mov_b32 s1, s11", ["reads s11 lgkmcnt(0)"]),
    ("gfx906", "s_atomic_add s10, s[4:5], 0x0 glc; s_mov_b32 s1, s10", ["reads s10 lgkmcnt(0)"]),
    # LDS in order, but not among scalar loads: a limit holds for those of one kind.
    (
        "gfx906 gfx1030",
        "ds_read_b32 v10, v4; ds_read_b32 v11, v4; s_load_dword s10, s[4:5], 0x0; s_waitcnt lgkmcnt(1); "
        "v_mov_b32 v1, v10",
        [],
    ),
    (
        "gfx906 gfx1030",
        "ds_read_b32 v10, v4; s_load_dword s10, s[4:5], 0x0; s_waitcnt lgkmcnt(1); v_mov_b32 v1, v10",
        ["reads v10 lgkmcnt(0)"],
    ),
    # GDS counts with LDS, and its sources are read late.
    ("gfx906", "ds_read_b32 v10, v4; s_waitcnt lgkmcnt(0); v_mov_b32 v4, v10", []),
    ("gfx906", "ds_add_u32 v4, v5 gds; v_mov_b32 v4, 0", ["overwrites a source of v4 expcnt(0)"]),
    ("gfx906", "ds_add_u32 v4, v5 gds; s_waitcnt expcnt(0); v_mov_b32 v4, 0", []),
    ("gfx906", "ds_add_u32 v4, v5; v_mov_b32 v4, 0", []),
    ("gfx906", "ds_add_u32 v4, v5 gds; s_mov_b64 exec, 1", ["overwrites a source of exec expcnt(0)"]),
    # Exports: sources.
    ("gfx1030", "exp mrt0 v4, v5, v6, v7 done vm; v_mov_b32 v7, 0", ["overwrites a source of v7 expcnt(0)"]),
    ("gfx1030", "exp mrt0 v4, v5, v6, v7 done vm; v_mov_b32 v1, v7", []),
    # FLAT: two counters.
    ("gfx906", f"flat_load_dword v10, v[2:3]; s_waitcnt vmcnt(0); {READ_V10}", ["reads v10 lgkmcnt(0)"]),
    ("gfx906", f"flat_load_dword v10, v[2:3]; s_waitcnt lgkmcnt(0); {READ_V10}", ["reads v10 vmcnt(0)"]),
    ("gfx906", f"flat_load_dword v10, v[2:3]; s_waitcnt vmcnt(0) lgkmcnt(0); {READ_V10}", []),
    # Before GFX10 its counters go down at any time, so what is older is not certain to be done.
    (
        "gfx906",
        f"{LOAD9.format(10)}; flat_load_dword v11, v[2:3]; s_waitcnt vmcnt(1); {READ_V10}",
        ["reads v10 vmcnt(0)"],
    ),
    ("gfx1030", f"{LOAD9.format(10)}; flat_load_dword v11, v[2:3]; s_waitcnt vmcnt(1); v_mov_b32 v1, v10", []),
    ("gfx1200", "flat_load_b32 v10, v[2:3]; s_wait_loadcnt 0x0; v_mov_b32 v1, v10", ["reads v10 dscnt(0)"]),
    ("gfx1200", "flat_load_b32 v10, v[2:3]; s_wait_loadcnt_dscnt 0x0; v_mov_b32 v1, v10", []),
    ("gfx1200", "flat_load_b32 v10, v[2:3]; s_wait_idle; v_mov_b32 v1, v10", []),
    # LDS direct and interpolation, which has a wait of its own.
    ("gfx1100", "lds_direct_load v10 wait_vdst:15; v_mov_b32 v1, v10", ["reads v10 expcnt(0)"]),
    ("gfx1100", "lds_direct_load v10 wait_vdst:15; s_waitcnt expcnt(0); v_mov_b32 v1, v10", []),
    ("gfx1100", "lds_param_load v10, attr0.x wait_vdst:15; v_interp_p10_f32 v0, v10, v2, v10 wait_exp:0", []),
    (
        "gfx1100",
        "lds_param_load v10, attr0.x wait_vdst:15; v_interp_p10_f32 v0, v10, v2, v10 wait_exp:7",
        ["reads v10 expcnt(0)"],
    ),
    # Messages and barriers.
    ("gfx1100", "s_sendmsg_rtn_b32 s10, sendmsg(MSG_RTN_GET_REALTIME); s_mov_b32 s1, s10", ["reads s10 lgkmcnt(0)"]),
    ("gfx1200", "s_sendmsg_rtn_b32 s10, sendmsg(MSG_RTN_GET_REALTIME); s_wait_kmcnt 0x0; s_mov_b32 s1, s10", []),
    ("gfx1200", "s_barrier_signal_isfirst -1; s_cselect_b32 s1, 1, 0", ["reads scc kmcnt(0)"]),
    ("gfx1200", "s_barrier_signal_isfirst -1; s_barrier_wait -1; s_cselect_b32 s1, 1, 0", []),
    # Images on counters of their own, or with different order.
    (
        "gfx1200",
        "image_sample v10, [v2, v3], s[0:7], s[8:11] dmask:0x1 dim:SQ_RSRC_IMG_2D; s_wait_loadcnt 0x0; "
        "v_mov_b32 v1, v10",
        ["reads v10 samplecnt(0)"],
    ),
    (
        "gfx1030",
        "image_sample v10, v[2:3], s[0:7], s[8:11] dmask:0x1 dim:SQ_RSRC_IMG_2D; global_load_dword v10, v[2:3], off; "
        "s_waitcnt vmcnt(0)",
        ["overwrites v10 vmcnt(0)"],
    ),
    # They are counted in order all the same.
    (
        "gfx1030",
        "image_sample v10, v[2:3], s[0:7], s[8:11] dmask:0x1 dim:SQ_RSRC_IMG_2D; global_load_dword v12, v[2:3], off; "
        "s_waitcnt vmcnt(1); v_mov_b32 v1, v10",
        [],
    ),
    (
        "gfx1100",
        "global_load_b32 v12, v[2:3], off; image_sample v10, v[2:3], s[0:7], s[8:11] dmask:0x1 dim:SQ_RSRC_IMG_2D; "
        "global_load_b32 v13, v[2:3], off; s_waitcnt vmcnt(1); v_mov_b32 v1, v10; v_mov_b32 v2, v12; v_mov_b32 v3, v13",
        ["reads v13 vmcnt(0)"],
    ),
    (
        "gfx1200",
        "image_msaa_load v[10:13], [v2, v3, v4], s[0:7] dmask:0x1 dim:SQ_RSRC_IMG_2D_MSAA; s_wait_loadcnt 0x0; "
        "v_mov_b32 v1, v10",
        ["reads v10 samplecnt(0)"],
    ),
    # How many coordinates an image of GFX9 has is in its descriptor: only the first one is read for sure.
    (
        "gfx906",
        "global_load_dword v10, v[2:3], off; image_load v20, v[10:11], s[0:7] dmask:0x1 unorm",
        ["reads v10 vmcnt(0)"],
    ),
    ("gfx906", "global_load_dword v11, v[2:3], off; image_load v20, v[10:11], s[0:7] dmask:0x1 unorm", []),
    # Halves of a register by two loads.
    ("gfx906", "global_load_short_d16 v10, v[2:3], off; global_load_short_d16_hi v10, v[2:3], off", []),
    # Early exits, and what nobody uses.
    ("gfx906", "global_load_dword v10, v[2:3], off", []),
    (
        "gfx906",
        "global_load_dword v10, v[2:3], off; s_cbranch_scc0 out; s_waitcnt vmcnt(0); v_mov_b32 v1, v10; out:",
        [],
    ),
    (
        "gfx906",
        "global_load_dword v10, v[2:3], off; s_cbranch_scc0 out; s_waitcnt vmcnt(0); out: ; v_mov_b32 v1, v10",
        ["reads v10 vmcnt(0)"],
    ),
    # A path with more younger operations, one with fewer: the fewest count.
    (
        "gfx906",
        f"{LOAD9.format(10)}; s_cbranch_scc0 join; {LOAD9.format(11)}; join: ; s_waitcnt vmcnt(1); {READ_V10}",
        ["reads v10 vmcnt(0)"],
    ),
    # Loops that carry operations over the back edge: a load each turn, used in the next.
    (
        "gfx906",
        f"{LOAD9.format(10)}; loop: ; s_waitcnt vmcnt(0); {READ_V10}; {LOAD9.format(10)}; s_cbranch_scc0 loop",
        [],
    ),
    (
        "gfx906",
        f"{LOAD9.format(10)}; s_waitcnt vmcnt(0); loop: ; {READ_V10}; {LOAD9.format(10)}; s_cbranch_scc0 loop",
        ["reads v10 vmcnt(0)"],
    ),
    (
        "gfx906",
        f"{LOAD9.format(10)}; {LOAD9.format(11)}; loop: ; s_waitcnt vmcnt(1); {READ_V10}; {LOAD9.format(10)}; "
        f"s_waitcnt vmcnt(1); v_mov_b32 v1, v11; {LOAD9.format(11)}; s_cbranch_scc0 loop",
        [],
    ),
    (
        "gfx906",
        f"{LOAD9.format(10)}; {LOAD9.format(11)}; loop: ; s_waitcnt vmcnt(1); {READ_V10}; {LOAD9.format(10)}; "
        f"s_waitcnt vmcnt(2); v_mov_b32 v1, v11; {LOAD9.format(11)}; s_cbranch_scc0 loop",
        ["reads v11 vmcnt(1)"] * 2,  # that from before the loop, and that of the turn before
    ),
    # Calls: what is outstanding goes in and comes back.
    (
        "gfx906",
        f"{LOAD9.format(10)}; s_call_b64 s[30:31], f; =functions= f: ; v_mov_b32 v1, v10; s_setpc_b64 s[30:31]",
        ["reads v10 vmcnt(0)"],
    ),
    (
        "gfx906",
        f"{LOAD9.format(10)}; s_call_b64 s[30:31], f; "
        "=functions= f: ; s_waitcnt vmcnt(0) lgkmcnt(0); v_mov_b32 v1, v10; s_setpc_b64 s[30:31]",
        [],
    ),
    (
        "gfx906",
        f"s_call_b64 s[30:31], f; v_mov_b32 v1, v10; =functions= f: ; {LOAD9.format(10)}; s_setpc_b64 s[30:31]",
        ["reads v10 vmcnt(0)"],
    ),
    # Not what comes from another call of the same function.
    (
        "gfx906",
        f"s_call_b64 s[30:31], f; v_mov_b32 v1, v10; {LOAD9.format(10)}; s_call_b64 s[30:31], f; s_waitcnt vmcnt(0); "
        "v_mov_b32 v1, v10; =functions= f: ; v_mov_b32 v5, 0; s_setpc_b64 s[30:31]",
        [],
    ),
    ("gfx906", "s_load_dwordx2 s[10:11], s[4:5], 0x0; s_swappc_b64 s[30:31], s[10:11]", ["reads s[10:11] lgkmcnt(0)"]),
]


@pytest.mark.parametrize(
    ("target", "body", "expected"),
    [(target, body, expected) for targets, body, expected in CASES for target in targets.split()],
)
def test_case(target: str, body: str, expected: list[str]) -> None:
    assert found(check(target, body)) == expected


@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1200"])
def test_counters_are_finite(target: str) -> None:
    model = wait_model(TARGETS[target])
    load = LOAD9 if target.startswith("gfx9") or target == "gfx1030" else LOAD11
    most = model.counters[model.streams[model.stream_index["vector"]].counter].most
    loads = repeated(most - 1, lambda number: load.format(20 + number))
    name = "loadcnt" if target == "gfx1200" else "vmcnt"
    assert found(check(target, f"{load.format(10)}; {loads}; v_mov_b32 v1, v10")) == [f"reads v10 {name}({most - 1})"]
    one_more = f"{loads}; {load.format(90)}"
    assert found(check(target, f"{load.format(10)}; {one_more}; v_mov_b32 v1, v10")) == []


def test_lgkmcnt_of_gfx9_counts_to_15() -> None:
    reads = [f"ds_read_b32 v{20 + number}, v4" for number in range(15)]
    assert found(check("gfx942", "; ".join(["ds_read_b32 v10, v4", *reads[:14], "v_mov_b32 v1, v10"]))) == [
        "reads v10 lgkmcnt(14)"
    ]
    assert found(check("gfx942", "; ".join(["ds_read_b32 v10, v4", *reads, "v_mov_b32 v1, v10"]))) == []


def test_a_finding_tells_its_path() -> None:
    report = check(
        "gfx906",
        f"{LOAD9.format(10)}; s_cbranch_scc0 b; s_waitcnt vmcnt(0); s_branch c; b: ; v_mov_b32 v5, 0; c: ; {READ_V10}",
    )
    (finding,) = report.findings
    lifted = lift(kernel("gfx906", "s_nop 0"), "k")
    begin = lifted.columns.address[0]
    assert [address - begin for address in finding.path] == [0, 20, 24]
    assert finding.producer.text == "global_load_dword v10, v[2:3], off"
    assert "vmcnt(0) is enough" in str(finding)


CALL, RETURN = "s_call_b64 s[30:31], f; =functions= f: ;", "s_setpc_b64 s[30:31]"
UNNEEDED = [
    ("gfx906", "s_waitcnt vmcnt(0)", 1),
    ("gfx906", f"{LOAD9.format(10)}; s_waitcnt vmcnt(0); {READ_V10}; s_waitcnt vmcnt(0)", 1),
    ("gfx906", f"{LOAD9.format(10)}; s_waitcnt vmcnt(0); {READ_V10}", 0),
    ("gfx906", f"{LOAD9.format(10)}; s_waitcnt vmcnt(1); s_waitcnt vmcnt(0); {READ_V10}", 1),
    ("gfx906", f"{LOAD9.format(10)}; s_waitcnt vmcnt(0); v_mov_b32 v1, 0; s_waitcnt vmcnt(0); {READ_V10}", 2),  # either
    # For the order of memory, though nothing is read.
    ("gfx906", "global_store_dword v[2:3], v4, off; s_waitcnt vmcnt(0); s_barrier", 0),
    ("gfx906", f"{LOAD9.format(10)}; s_waitcnt vmcnt(0); s_barrier", 0),
    ("gfx906", "ds_write_b32 v2, v4; s_waitcnt lgkmcnt(0); s_cbranch_scc0 b; v_mov_b32 v5, 0; b: ; s_barrier", 0),
    ("gfx1200", f"ds_store_b32 v2, v4; {CALL} s_wait_dscnt 0x0; {RETURN}", 0),
    ("gfx1200", f"{CALL} ds_store_b32 v2, v4; s_wait_dscnt 0x0; {RETURN}", 0),
    ("gfx1200", "ds_store_b32 v2, v4; s_wait_dscnt 0x0; v_mov_b32 v5, 0; s_wait_dscnt 0x0; s_barrier_signal -1", 2),
    ("gfx1200", f"{LOAD11.format(10)}; s_wait_storecnt 0x0", 1),
    # A function's first wait, for what its callers leave.
    ("gfx906", f"{LOAD9.format(10)}; {CALL} s_waitcnt vmcnt(0); {READ_V10}; {RETURN}", 0),
    ("gfx906", f"s_mov_b32 s9, 0; {CALL} s_waitcnt vmcnt(0); {READ_V10}; {RETURN}", 1),
]


@pytest.mark.parametrize(("target", "body", "count"), UNNEEDED)
def test_unneeded_waits(target: str, body: str, count: int) -> None:
    report = check(target, body)
    assert not report.findings
    assert len(report.unneeded) == count


@pytest.mark.parametrize("target", ["gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1200", "gfx1250"])
def test_limits_are_those_that_the_assembler_encodes(target: str) -> None:
    isa = Isa.of(target)
    model = wait_model(TARGETS[target])
    for index, counter in enumerate(model.counters):
        for value in (0, 1, counter.most - 1):
            if "S_WAITCNT" in model.fields:
                if counter.name == "vscnt":
                    text = f"s_waitcnt_vscnt null, {value:#x}"
                else:
                    text = f"s_waitcnt {counter.name}({value})"
            else:
                text = f"s_wait_{counter.name} {value:#x}"
            code = isa.assemble(text).instructions
            limits = model.limits(isa, isa.opcode(int(code.opcode[0])), code.operand_value.tolist())
            assert limits == ((index, value),), text
