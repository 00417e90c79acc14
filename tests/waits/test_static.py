"""The check of waits over all paths: sizes of counters, paths and limits (cases: ../filetests/check/waits.test)."""

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


def texts(report: WaitReport) -> list[str]:
    return [
        f"{finding.access} {', '.join(finding.registers.names())} {finding.counter}({finding.enough})"
        for finding in report.findings
    ]


def repeated(count: int, text: Callable[[int], str]) -> str:
    return "; ".join(text(number) for number in range(count))


LOAD = "global_load v{0}, v[2:3], off"


@pytest.mark.rows(3)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1200"])
def test_counters_are_finite(target: str) -> None:
    model = wait_model(TARGETS[target])
    most = model.counters[model.streams[model.stream_index["vector"]].counter].most
    loads = repeated(most - 1, lambda number: LOAD.format(20 + number))
    name = "loadcnt" if target == "gfx1200" else "vmcnt"
    assert texts(check(target, f"{LOAD.format(10)}; {loads}; v_mov_b32 v1, v10")) == [f"reads v10 {name}({most - 1})"]
    one_more = f"{loads}; {LOAD.format(90)}"
    assert texts(check(target, f"{LOAD.format(10)}; {one_more}; v_mov_b32 v1, v10")) == []


def test_lgkmcnt_of_gfx9_counts_to_15() -> None:
    reads = [f"ds_read_b32 v{20 + number}, v4" for number in range(15)]
    assert texts(check("gfx942", "; ".join(["ds_read_b32 v10, v4", *reads[:14], "v_mov_b32 v1, v10"]))) == [
        "reads v10 lgkmcnt(14)"
    ]
    assert texts(check("gfx942", "; ".join(["ds_read_b32 v10, v4", *reads, "v_mov_b32 v1, v10"]))) == []


def test_a_finding_tells_its_path() -> None:
    branch = "s_cbranch_scc0 b; s_waitcnt vmcnt(0); s_branch c; b: ; v_mov_b32 v5, 0; c: ; v_mov_b32 v1, v10"
    (finding,) = check("gfx906", f"{LOAD.format(10)}; {branch}").findings
    lifted = lift(kernel("gfx906", "s_nop 0"), "k")
    begin = lifted.columns.address[0]
    assert [address - begin for address in finding.path] == [0, 20, 24]
    assert finding.producer.text == "global_load_dword v10, v[2:3], off"
    assert "vmcnt(0) is enough" in str(finding)


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
