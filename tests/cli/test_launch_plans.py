"""Launch plans that are wrong: each is an error that names the kernel."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from kept import kept
from luthier.cli.main import main
from luthier.errors import LuthierError
from luthier.verify.launch_plan import StructureArgument, read_plans

from luthier_build.compile import compile_application

PLAN = "[k]\ngrid = [1]\nblock = [64]\n"


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ('buffer = "float32", count = -1', "count must not be negative, but is -1"),
        ('buffer = "float32", count = 4000000000000000', "Unable to allocate"),
        ('buffer = "float32", count = 4000000000000000, fill = "arange"', "Unable to allocate"),
        ('buffer = "float32", count = inf', "infinity"),
        ('buffer = "O", count = 4', "not a numeric type"),
        ('buffer = "S4", count = 4, fill = "random"', "not a numeric type"),
        ('buffer = "uint8", count = 4, fill = 300', "out of bounds"),
        ('buffer = "int32", count = 4, fill = nan', "NaN"),
        ('buffer = "int32", count = 4, fill = "ones"', "random, arange or a number, not 'ones'"),
        ('scalar = "uint8", value = 300', "out of bounds"),
        ('scalar = "int32", value = inf', "infinity"),
        ("structure = -1", "negative"),
        ("structure = 8, fields = 7", "not iterable"),
        ('structure = 8, fields = [{ scalar = "int32", value = 1 }]', "at"),
        ('structure = 8, fields = [{ at = 6, scalar = "int32", value = 1 }]', "4 bytes at byte 6 is outside"),
        ('structure = 8, fields = [{ at = -1, buffer = "int8", count = 1 }]', "8 bytes at byte -1 is outside"),
    ],
)
def test_arguments_that_cannot_be(tmp_path: Path, argument: str, problem: str) -> None:
    path = tmp_path / "launch.toml"
    path.write_text(f"{PLAN}arguments = [{{{argument}}}]\n")
    plan = read_plans(path)["k"]
    with pytest.raises(LuthierError, match=rf"argument 1 of the launch plan: .*{problem}.*kernel k"):
        plan.materialise()


@pytest.mark.parametrize(
    "line", ["dynamic_lds = -1", "dynamic_lds = inf", "grid = [inf]", "block = [0]", "arguments = 7", "arguments_ = []"]
)
def test_sizes_that_cannot_be(tmp_path: Path, line: str) -> None:
    key = line.split()[0]
    path = tmp_path / "launch.toml"
    path.write_text("".join(f"{one}\n" for one in [*PLAN.splitlines(), line] if one is line or one.split()[0] != key))
    with pytest.raises(LuthierError, match="malformed launch plan") as problem:
        read_plans(path)
    assert problem.value.kernel == "k"


def test_numbers_fill_buffers_of_every_type(tmp_path: Path) -> None:
    path = tmp_path / "launch.toml"
    kinds = ("float16", "float64", "int8", "uint64")
    buffers = ", ".join(f'{{buffer = "{kind}", count = 3, fill = 7}}' for kind in kinds)
    path.write_text(f"{PLAN}arguments = [{buffers}]\n")
    for kind, buffer in zip(kinds, read_plans(path)["k"].materialise(), strict=True):
        np.testing.assert_array_equal(buffer, np.full(3, 7, kind), strict=True)


STRUCTURES = """
#include <hip/hip_runtime.h>
struct Inner { float weight; short small; };
struct Params { int *out; unsigned n; Inner inner; double scale[2]; };
struct Pair { int a, b; };
extern "C" __global__ void take(Params p, int *other, float f, Pair q) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < p.n) p.out[i] = int(i * p.inner.weight * p.scale[1]) + q.b;
  other[i] = q.a + int(f);
}
__global__ void mangled(Pair q, int *other) { other[threadIdx.x] = q.a + q.b; }
"""


def built(tmp_path: Path, *flags: str) -> Path:
    def build(output: Path) -> None:
        (tmp_path / "structures.hip").write_text(STRUCTURES)
        compile_application(tmp_path / "structures.hip", "gfx90a", output, flags=flags)

    return kept((STRUCTURES, flags), build, "structures.hsaco")


def test_a_plan_to_fill_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Structures are filled from debug information; values reach the kernel, and writes by pointer are compared."""
    path, plan = built(tmp_path, "-g"), tmp_path / "plan.toml"
    command = ["verify", str(path), "-t", "instr_count", "--json"]
    assert main(["verify", str(path), "-t", "instr_count", "--write-plan", str(plan)]) == 0
    text = plan.read_text()
    assert '{ at = 12, scalar = "float32", value = 0 },  # inner.weight: float, 4 bytes\n' in text
    assert '{ at = 32, scalar = "float64", value = 0 },  # scale[1]: double, 8 bytes\n' in text
    assert '{ scalar = "float32", value = 512 },  # argument 3, f: float, 4 bytes\n' in text
    plan.write_text(text.replace('at = 8, scalar = "uint32", value = 0', 'at = 8, scalar = "uint32", value = 300'))
    plans = read_plans(plan)
    structure = plans["take"].materialise()[0]
    assert isinstance(structure, StructureArgument)
    assert (structure.data[8:12], [at for at, _ in structure.buffers]) == ((300).to_bytes(4, "little"), [0])
    capsys.readouterr()
    executed = {}
    for given in (text, plan.read_text()):
        plan.write_text(given)
        assert main([*command, "--plan", str(plan)]) == 0
        verdict = json.loads(capsys.readouterr().out)[0]
        assert verdict["compared_bytes"] >= 2 * 65536
        executed[given] = verdict["instructions"][0]
    assert executed[text] < executed[given]


def test_structures_that_are_made_up_or_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = built(tmp_path)
    assert main(["verify", str(path), "-t", "instr_count", "-k", "take"]) == 1
    assert "40 bytes); give a launch plan: --write-plan PLAN.toml writes a template" in capsys.readouterr().err
    assert main(["verify", str(path), "-t", "instr_count", "-k", "mangled"]) == 0
    assert "NOTE: argument 1 (Pair, 8 bytes) is not a number, but got a made-up one" in capsys.readouterr().out
    plan = tmp_path / "plan.toml"
    assert main(["verify", str(path), "-t", "instr_count", "--write-plan", str(plan)]) == 0
    assert "Pair, 8 bytes: a structure whose fields are not known\n    { structure = 8," in plan.read_text()
    assert isinstance(read_plans(plan)["take"].materialise()[0], StructureArgument)
