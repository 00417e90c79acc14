"""The check on all paths and while a kernel runs, in the command and in verification."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import luthier
import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier.cli.main import main
from luthier.emulator import CheckWarning
from luthier.hazards.wait_states import HazardReport, check_hazards
from luthier.lifting import lift
from luthier.objects import elf as E
from luthier.tool import Tool
from luthier.tool.task import InstrumentationTask
from luthier.verify import verify_kernel
from luthier.verify.launch_plan import LaunchPlan
from pair_findings import distance
from wait_kernels import kernel

LANE, SELECT = "v_readfirstlane_b32 s4, v0", "v_readlane_b32 s5, v1, s4"
DPP = "v_mov_b32_dpp v2, v3 quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xf"
SPILL = "v_writelane_b32 v4, s30, 0"
MODE = "s_setreg_imm32_b32 hwreg(HW_REG_WAVE_MODE, 4, 4), 3"
MFMA = "v_mfma_f32_4x4x4_16b_f16 v[0:3], v[4:5], v[6:7], v[0:3]"

# (target, what runs, wait states there and needed of what is found)
CASES = [
    ("gfx906", f"{LANE}; s_nop 2; {SELECT}", [(3, 4)]),
    ("gfx906", f"{LANE}; s_nop 3; {SELECT}", []),
    ("gfx906", f"{LANE}; s_nop 0; s_mov_b32 s9, 0; {SELECT}", [(2, 4)]),
    ("gfx906", f"v_mov_b32 v3, 0; {DPP}; v_mov_b32 v3, 0; s_nop 1; {DPP}", [(0, 2)]),
    ("gfx942", f"{MFMA}; s_nop 3; v_mov_b32 v9, v0", [(4, 5)]),
    ("gfx942", f"{MFMA}; s_nop 4; v_mov_b32 v9, v0", []),
    ("gfx942", f"{MFMA}; s_nop 3; v_mov_b32 v9, v4", []),
    # Over a branch, on the way that has fewest.
    ("gfx906", f"{LANE}; s_cbranch_scc1 b; s_nop 4; b: ; {SELECT}", [(1, 4)]),
    ("gfx906", f"{LANE}; s_cbranch_scc1 b; s_nop 4; b: ; s_nop 2; {SELECT}", []),
    # Around a loop.
    ("gfx906", f"a: ; {SELECT}; s_nop 0; {LANE}; s_cbranch_scc1 a", [(1, 4)]),
    # A trap is no use of all registers.
    ("gfx1201", "v_mov_b32 v1, s4; s_mov_b32 s4, 1; s_cbranch_scc1 b; s_trap 2; b: ; s_nop 0", []),
    # Into a function and out of it.
    ("gfx906", f"{LANE}; s_call_b64 s[30:31], f; =functions= f: ; {SELECT}; s_setpc_b64 s[30:31]", [(1, 4)]),
    ("gfx906", f"s_call_b64 s[30:31], f; {SELECT}; =functions= f: ; {LANE}; s_setpc_b64 s[30:31]", [(1, 4)]),
    # Where a function begins, the call has written the return address; what its caller has written may be on its way.
    ("gfx1201", f"{SPILL}; s_call_b64 s[30:31], f; =functions= f: ; s_setpc_b64 s[30:31]", []),
    (
        "gfx1201",
        f"{SPILL}; s_mov_b32 s30, 0; s_call_b64 s[4:5], f; =functions= f: ; {SPILL}; s_setpc_b64 s[4:5]",
        [(0, None)],
    ),
    ("gfx1250", f"{MODE}; s_set_vgpr_msb 0", [(0, 1)]),
    ("gfx1250", f"{MODE}; s_nop 0; s_set_vgpr_msb 0", []),
    ("gfx1250", f"{MODE}; s_cbranch_scc1 b; s_nop 0; b: ; s_set_vgpr_msb 0", []),
    ("gfx1250", f"s_cbranch_scc1 b; {MODE}; b: ; s_set_vgpr_msb 0", [(0, 1)]),
    ("gfx1250", "s_setreg_imm32_b32 hwreg(HW_REG_WAVE_SCHED_MODE, 0, 2), 2; s_set_vgpr_msb 0", []),
    ("gfx1250", "s_setreg_b32 hwreg(HW_REG_WAVE_MODE, 4, 4), s4; s_set_vgpr_msb 0", []),
    ("gfx1100", "v_rcp_f32 v4, v3; v_mov_b32 v5, v4", [(0, 6)]),
    ("gfx1100", "v_rcp_f32 v4, v3; s_waitcnt_depctr 0xfff; v_mov_b32 v5, v4", []),
]


def check(target: str, body: str) -> HazardReport:
    return check_hazards(lift(kernel(target, body), "k"))


@pytest.mark.parametrize(("target", "body", "expected"), CASES)
def test_on_all_paths(target: str, body: str, expected: list[tuple[int, int]]) -> None:
    report = check(target, body)
    assert [(one.there, one.needed) for one in report.findings] == expected


@pytest.mark.parametrize(("target", "body", "expected"), [case for case in CASES if "scc1" not in case[1]])
def test_while_it_runs(target: str, body: str, expected: list[tuple[int, int]]) -> None:
    device = luthier.open_device(f"emu:{target}", check=["hazards", "waits"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckWarning)
        device.load(kernel(target, body).data).kernel("k").launch(np.zeros(64, np.uint32), grid=2, block=128)
    assert [distance(one) for one in device.findings] == expected
    report = check(target, body)
    assert [(one.offset, one.other and one.other.offset) for one in device.findings] == [
        (one.consumer.address, one.producer and one.producer.address) for one in report.findings
    ]
    assert all(one.group == 0 and one.check == "hazards" for one in device.findings)


@pytest.mark.parametrize(
    ("target", "vgprs", "agprs", "line", "hazard"),
    [
        *(
            ("gfx90a", 96, 0, f"{shift} v[4:5], v{amount}, v[2:3]", amount == 95)
            for shift in ("v_lshlrev_b64", "v_lshrrev_b64", "v_ashrrev_i64")
            for amount in (95, 94, 87)
        ),
        ("gfx90a", 96, 0, "v_lshlrev_b64 v[4:5], 3, v[2:3]", False),
        ("gfx90a", 96, 0, "v_lshlrev_b64 v[4:5], v3, v[94:95]", False),
        ("gfx90a", 96, 0, "v_lshlrev_b32 v4, v95, v2", False),
        ("gfx942", 96, 0, "v_lshlrev_b64 v[4:5], v95, v[2:3]", False),
        # Registers are given in blocks of eight, and AGPRs behind them do not help (LLVM, fixShift64HighRegBug).
        ("gfx90a", 96, 8, "v_lshlrev_b64 v[4:5], v95, v[2:3]", True),
        ("gfx90a", 92, 0, "v_lshlrev_b64 v[4:5], v91, v[2:3]", False),
        ("gfx90a", 92, 4, "v_lshlrev_b64 v[4:5], v91, v[2:3]", False),
    ],
)
def test_64_bit_shifts_by_the_last_register(target: str, vgprs: int, agprs: int, line: str, hazard: bool) -> None:
    code = function("k", [line, "s_endpgm"])
    report = check_hazards(lift(assembled(kernel_text(code, target, vgprs=vgprs, agprs=agprs), target), "k"))
    assert [(one.there, one.needed) for one in report.findings] == [(0, None)] * hazard


@pytest.mark.parametrize(
    ("target", "load", "possible"),
    [
        ("gfx942", "s_load_dwordx2 s[0:1], s[0:1], 0x0", ["s[0:1]"]),
        ("gfx942:xnack+", "s_load_dwordx4 s[4:7], s[6:7], 0x0", ["s[6:7]"]),
        ("gfx942:xnack-", "s_load_dwordx2 s[0:1], s[0:1], 0x0", []),
        ("gfx942", "s_load_dword s0, s[0:1], 0x0", []),
        ("gfx942", "s_load_dwordx2 s[4:5], s[0:1], 0x0", []),
        ("gfx90a", "s_load_dwordx2 s[4:5], s[0:1], s4", ["s4"]),
        ("gfx90a", "s_buffer_load_dwordx2 s[4:5], s[4:7], 0x0", ["s[4:5]"]),
        ("gfx1010", "s_load_dwordx2 s[0:1], s[0:1], 0x0", ["s[0:1]"]),
        ("gfx1030", "s_load_dwordx2 s[0:1], s[0:1], 0x0", []),
        ("gfx1201", "s_load_b64 s[0:1], s[0:1], 0x0", []),
        ("gfx1250", "s_load_b64 s[0:1], s[0:1], 0x0", ["s[0:1]"]),
        ("gfx1250", "s_load_b32 s0, s[0:1], 0x0", []),
    ],
)
def test_scalar_loads_over_their_own_address(target: str, load: str, possible: list[str]) -> None:
    """What memory instructions that are started anew make of it depends on the address: it is told, but no finding."""
    report = check(target, load)
    assert not report.findings
    assert [one.registers.names() for one in report.possible] == [possible] * bool(possible)


def test_the_command_tells_what_is_possible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.co"
    path.write_bytes(kernel("gfx1250", "s_load_b64 s[0:1], s[0:1], 0x0").data)
    assert main(["check", str(path)]) == 0
    assert "hazards: 1 possible finding, by what the code does not show (--possible" in capsys.readouterr().out
    assert main(["check", str(path), "--possible"]) == 0
    assert "it needs other registers if the address is not a multiple of the size" in capsys.readouterr().out
    assert main(["check", str(path), "--json"]) == 0
    ((hazard,),) = (found["possible_hazards"] for found in json.loads(capsys.readouterr().out)["kernels"])
    assert hazard["registers"] == ["s[0:1]"]
    assert hazard["only_if"] == "the address is not a multiple of the size"


def test_a_finding_tells_its_path() -> None:
    (finding,) = check("gfx906", f"{LANE}; s_cbranch_scc1 b; s_nop 4; b: ; {SELECT}").findings
    assert finding.registers.names() == ["s4"]
    assert len(finding.path) == 2
    assert "VALU writes an SGPR, it selects a lane; 1 wait states, it needs 4" in str(finding)
    assert finding.to_json()["producer"]["text"] == LANE


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"{LANE}; s_nop 5; {SELECT}", [(6, 4)]),
        ("s_nop 0", [(1, 0)]),
        (f"{LANE}; s_nop 3; {SELECT}", []),
        (f"{LANE}; s_nop 1; s_nop 1; {SELECT}", []),
        (f"{LANE}; s_cbranch_scc1 b; s_mov_b32 s9, 0; b: ; s_nop 2; {SELECT}", []),
    ],
)
def test_wait_states_that_no_path_needs(body: str, expected: list[tuple[int, int]]) -> None:
    assert [(one.states, one.needed) for one in check("gfx906", body).unneeded] == expected


def test_the_command(tmp_path: Path, capsys) -> None:
    path = tmp_path / "k.co"
    path.write_bytes(kernel("gfx906", f"{LANE}; s_nop 2; {SELECT}; s_nop 7").data)
    assert main(["check", str(path), "--json"]) == 1
    (checked,) = json.loads(capsys.readouterr().out)["kernels"]
    (finding,) = checked["hazards"]
    assert (finding["there"], finding["needed"], finding["registers"]) == (3, 4, ["s4"])
    assert [(nop["states"], nop["needed"]) for nop in checked["unneeded_nops"]] == [(8, 0)]
    assert main(["check", str(path), "--unneeded"]) == 1
    assert "0 of 8 wait states are needed" in capsys.readouterr().out


class First(Tool):
    """A hook at the kernel's entry."""

    def __init__(self, module) -> None:
        super().__init__()
        self.module = module

    def instrument(self, task: InstrumentationTask) -> None:
        task.insert_hook_before(task.lifted.blocks[0].first, self.module.nothing)


@pytest.mark.parametrize(("states", "count"), [(3, 0), (2, 1)])
def test_verification_tells_what_the_original_lacks(make_module, states: int, count: int) -> None:
    module = make_module("LUTHIER_HOOK_ANNOTATE nothing() {}\n", "gfx942")
    plan = LaunchPlan("k", (1, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 64, "fill": "arange"},))
    verdict = verify_kernel(kernel("gfx942", f"{LANE}; s_nop {states}; {SELECT}"), First(module), plan)
    assert verdict.equal
    assert len(verdict.hazards) == count


def test_code_that_no_segment_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel in a section that goes on behind its segment is not checked, and the command goes on."""
    object = kernel("gfx906", "s_nop 0")
    number = object.elf.section_names.index(".text")
    section = object.elf.sections[number]
    at = object.elf.header.sections_offset + number * E.SECTION_HEADER.size
    data = bytearray(object.data + bytes(1 << 13))
    data[at : at + E.SECTION_HEADER.size] = E.SECTION_HEADER.pack(section._replace(size=section.size + (1 << 12)))
    path = tmp_path / "cut"
    path.write_bytes(data)
    assert main(["check", str(path), "--json"]) == 1
    output = json.loads(capsys.readouterr().out)
    assert output["kernels"] == []
    assert "executable code that no segment holds" in output["not_checked"][0]["reason"]
