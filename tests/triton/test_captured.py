"""Triton's kernels, launched by HIP 6.4, captured, and replayed without it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kept import ROOT
from rocm_stacks import stack

pytest.importorskip("triton", reason="needs Triton")

from .test_kernels import compile_attention, sort_rows
from .test_matmul import compile_product
from .test_softmax import ROWS, arguments, softmax

RELEASE = "6.4"
LUTHIER = str(ROOT / ".venv/bin/luthier")
PROGRAM = Path(__file__).with_name("launches.py")
PATIENCE = 300


def launches(compile_kernel, target: str) -> list:
    """Kernels, their arguments and grids."""
    given = arguments()
    launches = [(compile_kernel(softmax, target, given, {"BLOCK": 256}), given, (ROWS,))]
    x = np.random.default_rng(4).integers(-1000, 1000, (2, 256)).astype(np.int32)
    given = [x, np.zeros_like(x)]
    launches.append((compile_kernel(sort_rows, target, given, {"descending": False, "BLOCK": 256}), given, (2,)))
    launches.append((*compile_attention(compile_kernel, target), (3,)))
    for kind in ("fp32", "fp16"):
        compiled, given, _ = compile_product(compile_kernel, target, kind)
        launches.append((compiled, given, (2, 2)))
    return launches


@pytest.mark.rocm(RELEASE)
@pytest.mark.parametrize(
    "target", ["gfx90a", *(pytest.param(t, marks=pytest.mark.thorough) for t in ("gfx942", "gfx1100"))]
)
def test_captures_are_replayed(compile_kernel, tmp_path: Path, target: str) -> None:
    """The program's results are those of the emulated device; the replays' are the program's."""
    files, wanted = [], []
    for number, (compiled, given, grid) in enumerate(launches(compile_kernel, target)):
        files.append(tmp_path / f"{number}.npz")
        np.savez(
            files[-1],
            object=np.frombuffer(compiled.object.data, np.uint8),
            name=compiled.name,
            grid=(*grid, 1, 1)[:3],
            block=compiled.block,
            dynamic_lds=compiled.dynamic_lds,
            scratch=compiled.scratch,
            count=len(given),
            **{f"argument{at}": value for at, value in enumerate(given)},
        )
        compiled.launch(*given, grid=grid)
        wanted.append({f"argument{at}": value for at, value in enumerate(given) if isinstance(value, np.ndarray)})
    kept = tmp_path / "kept"
    argv = [*stack(RELEASE), LUTHIER, "capture", "--device", f"emu:{target}", "-o", str(kept), "--", sys.executable]
    made = subprocess.run([*argv, PROGRAM, *files], capture_output=True, text=True, timeout=PATIENCE)
    assert made.returncode == 0, made
    for file, arrays in zip(files, wanted, strict=True):
        left = np.load(f"{file}.out.npz")
        for name, array in arrays.items():
            np.testing.assert_array_equal(left[name], array)
    done = subprocess.run([LUTHIER, "replay", "--json", str(kept)], capture_output=True, text=True, timeout=PATIENCE)
    rows = json.loads(done.stdout)
    assert {row["what"] for row in rows} == {"equal"}, rows
    assert [row["kernel"] for row in rows] == ["softmax", "sort_rows", "attention", "matmul", "matmul"]
