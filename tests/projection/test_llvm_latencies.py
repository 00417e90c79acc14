"""Latencies of vector instructions beside LLVM's scheduling model, as llvm-mca prints it."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from assembly import assembled, function, kernel_text
from luthier.lifting import lift
from luthier.projection import machine_named
from luthier.projection.costs import instruction_costs, instruction_facts

MCA = shutil.which("llvm-mca-22") or shutil.which("llvm-mca")
LINE = re.compile(r"^ *\d+ +(\d+) .*\b(v_\w+)", re.M)
CODE = [
    "v_add_f32 v0, v1, v2",
    "v_add_f64 v[0:1], v[2:3], v[4:5]",
    "v_rcp_f32 v0, v1",
    "v_lshlrev_b64 v[0:1], v2, v[4:5]",
    "v_cvt_u32_f32 v0, v1",
    "v_cvt_f32_f16 v0, v1",
    "v_cvt_f32_ubyte0 v0, v1",
]
MULTIPLY = "v_mul_lo_u32 v0, v1, v2"
"""Not of CDNA, where LLVM has it at the full rate."""


@pytest.mark.skipif(MCA is None, reason="llvm-mca is not installed")
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def test_latencies(target: str) -> None:
    """The time until a result can be read is LLVM's; its numbers of GFX9 are in four cycles."""
    machine = machine_named(target)
    unit = int(machine.issue.value)
    code = CODE if unit == 4 else [*CODE, MULTIPLY]
    assert MCA is not None
    command = [MCA, "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={target}", "-iterations=1", "-instruction-info"]
    done = subprocess.run(command, input="\n".join(code) + "\n", capture_output=True, text=True, check=True)
    expected = [unit * int(latency) for latency, _ in LINE.findall(done.stdout.partition("Instruction Info")[2])]
    lifted = lift(assembled(kernel_text(function("k", [*code, "s_endpgm"]), target), target), "k")
    costs = instruction_costs(lifted, machine, instruction_facts(lifted, list(range(len(code)))))
    assert [costs[index].latency for index in range(len(code))] == expected[: len(code)]
