"""`luthier lift`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from luthier import open_device
from luthier.cli.counts import counts_of
from luthier.cli.main import main
from luthier.isa.registers import VGPR_FIRST
from luthier.lifting import lift
from luthier.lifting.annotations import Annotations
from luthier.objects import CodeObject, load_object


def test_text(compiled: Callable[..., CodeObject], capsys: pytest.CaptureFixture[str]) -> None:
    path = compiled("gfx90a", "calls.hip").name
    assert main(["lift", path, "--kernel", "calls", "--instructions", "--registers"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("kernel calls: gfx90a, wave64, 3 functions, ")
    assert "\nfunction 1 _Z6middlefi at " in out
    assert "s_swappc_b64 s[30:31], s[" in out
    assert main(["lift", path]) == 0
    assert capsys.readouterr().out.count("\nkernel ") == 13


def test_json(compiled: Callable[..., CodeObject], capsys: pytest.CaptureFixture[str]) -> None:
    code_object = compiled("gfx1100", "calls.hip")
    assert main(["lift", code_object.name, "-k", "from_variable", "-k", "calls", "--json"]) == 0
    calls, unknown = json.loads(capsys.readouterr().out)  # in the order of the object
    lifted = lift(code_object, "calls")
    assert calls["kernel"] == "calls"
    assert calls["unknown"] == []
    assert [one["name"] for one in calls["functions"]] == [function.name for function in lifted.functions]
    assert len(calls["blocks"]) == len(lifted.blocks)
    assert sum(block["instructions"] for block in calls["blocks"]) == calls["instructions"]
    assert calls["blocks"][0]["live_in"]["vector_active"] >= 1
    assert "may change at run time" in unknown["unknown"][0]["reason"]
    assert not unknown["functions"][0]["calls"][0]["known"]


def test_errors(compiled: Callable[..., CodeObject], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lift", compiled("gfx90a", "calls.hip").name, "--kernel", "nothing"]) == 1
    assert "no kernel matches 'nothing'" in capsys.readouterr().err
    assert main(["lift", "/no/such/file"]) == 1
    assert capsys.readouterr().err.startswith("luthier lift: error: ")


LOOPS = """
#include <hip/hip_runtime.h>
__device__ inline float step(float x, int i) {
  return x * 1.5f + i;
}
extern "C" __global__ void walk(float *p, int n, int m) {
  float x = p[threadIdx.x];
  for (int i = 0; i < n; ++i) {
    x = sinf(x);
    #pragma nounroll
    for (int j = 0; j < m; ++j)
      x = step(x, p[j]);
  }
  p[threadIdx.x] = x;
}
"""


def annotated(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["lift", str(path), "--annotate", *options]) == 0
    return capsys.readouterr().out


def test_annotations(compile_object: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every instruction with its source, what is live, its loop, and how often it ran by the emulated device."""
    path = compile_object(LOOPS, "gfx90a", "-g")
    lifted = lift(load_object(path), "walk")
    device = open_device("emu:gfx90a")
    device.load(path).kernel("walk").launch(np.ones(64, np.float32), 3, 5, grid=2, block=64)
    stats = device.stats
    ran = tmp_path / "stats.json"
    ran.write_text(json.dumps(stats.to_json()))

    (data,) = json.loads(annotated(path, capsys, "--json", "--counts", str(ran)))
    rows = {row["address"]: row for row in data["code"]}
    assert len(rows) == data["instructions"]
    locations = []
    for block in lifted.blocks:
        for index in range(block.first, block.last + 1):
            instruction = lifted.instructions[index]
            row = rows[instruction.address]
            live = lifted.liveness.live_before(index)
            assert (row["text"], row["block"]) == (instruction.text, block.index)
            assert row["live"]["scalar"] == sum(unit < VGPR_FIRST for unit in live.active)
            assert row["live"]["vector_active"] == sum(unit >= VGPR_FIRST for unit in live.active)
            assert row["executions"] == stats.executions_at(instruction.address)
            assert row["active_lanes"] == stats.active_lanes_at(instruction.address)
            expected = instruction.source and instruction.source.to_json()
            assert expected == (None if row["source"] is None else data["sources"][row["source"]])
            locations.append(instruction.source)
    assert sum(row["executions"] for row in rows.values()) == stats.instructions
    assert {loop["depth"] for loop in data["loops"]} == {1, 2}
    for number, at in enumerate(data["loop_of_block"]):
        inside = [loop["depth"] for loop in data["loops"] if number in loop["blocks"]]
        assert (at is None) == (not inside)
        assert not inside or data["loops"][at]["depth"] == max(inside)
    kernel = lifted.kernel
    assert data["resources"]["vgprs"] == kernel.vgpr_count
    assert data["resources"]["waves_per_simd"] == min(8, 512 // kernel.allocated_vgprs)

    text = annotated(path, capsys, "--counts", str(ran))
    assert f"{stats.instructions} wave-instructions counted" in text
    assert " in loop 2 deep:" in text
    step = next(number for number, line in enumerate(LOOPS.splitlines(), 1) if "1.5f" in line)
    assert f"source.hip:{step}:" in text
    assert ", inlined at " in text
    for row in rows.values():
        live = row["live"]
        shown = f"{row['executions']:12} s{live['scalar']:<3} v{live['vector_active']:<3} {row['address']:#x} "
        assert shown in text
    by_line = Annotations(lifted, counts_of(str(ran), lifted)).by_line()
    assert sum(by_line.values()) == stats.instructions
    assert list(by_line.values()) == sorted(by_line.values(), reverse=True)


def test_annotations_without_source(compiled: Callable[..., CodeObject], capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(compiled("gfx1100", "calls.hip").name)
    text = annotated(path, capsys, "-k", "loop")
    assert "source: no debug information; compile with -g" in text
    (data,) = json.loads(annotated(path, capsys, "-k", "loop", "--json"))
    assert {row["source"] for row in data["code"]} == {None}
    assert "executions" not in data["code"][0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "cannot be read"),
        ("[1]", "is not a result of"),
        ('{"kernel": "loop", "addresses": [{}]}', "is not a result of"),
        ('{"kernel": "other"}', "no counts of this kernel"),
        ('{"kernel": "loop", "addresses": [{"address": 3, "executions": 1, "active_lanes": 1}]}', "does not have"),
    ],
)
def test_wrong_counts(
    text: str, problem: str, compiled: Callable[..., CodeObject], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "counts").write_text(text)
    path = compiled("gfx1100", "calls.hip").name
    assert main(["lift", path, "-k", "loop", "--counts", str(tmp_path / "counts")]) == 1
    assert problem in capsys.readouterr().err
    assert main(["lift", path, "-k", "loop", "--counts", str(tmp_path)]) == 1
    assert "counts.parquet" in capsys.readouterr().err
