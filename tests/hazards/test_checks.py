"""The check of hazards in the command and in verification (cases: ../filetests/check)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from luthier.cli.main import main
from luthier.hazards.wait_states import HazardReport, check_hazards
from luthier.lifting import lift
from luthier.objects import elf as E
from luthier.verify import verify_kernel
from luthier.verify.launch_plan import LaunchPlan
from wait_kernels import HookAtEntry, kernel

LANE, SELECT = "v_readfirstlane_b32 s4, v0", "v_readlane_b32 s5, v1, s4"


def check(target: str, body: str) -> HazardReport:
    return check_hazards(lift(kernel(target, body), "k"))


def test_the_command_tells_what_is_possible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.co"
    path.write_bytes(kernel("gfx1250", "s_load_b64 s[0:1], s[0:1], 0x0").data)
    assert main(["check", str(path)]) == 0
    assert (
        "hazards: 1 possible finding, depending on facts the code does not show (--possible" in capsys.readouterr().out
    )
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


@pytest.mark.parametrize(("states", "count"), [(3, 0), (2, 1)])
def test_verification_tells_what_the_original_lacks(make_module, states: int, count: int) -> None:
    module = make_module("LUTHIER_HOOK_ANNOTATE nothing() {}\n", "gfx942")
    plan = LaunchPlan("k", (1, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 64, "fill": "arange"},))
    verdict = verify_kernel(kernel("gfx942", f"{LANE}; s_nop {states}; {SELECT}"), HookAtEntry(module), plan)
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
