"""Source lines in `luthier disasm`, in `luthier check`, in findings of launches and in faults."""

from __future__ import annotations

import json
import re
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path

import luthier
import numpy as np
import pytest
from luthier.cli.main import main
from luthier.emulator import CheckWarning
from luthier.errors import EmulationError
from luthier.objects import load_object

SOURCE = """#include <hip/hip_runtime.h>
extern "C" __global__ void hasty(int *out, const int *in) {
  int value, sum;
  asm volatile("global_load_dword %0, %1, off" : "=v"(value) : "v"(in));
  asm volatile("v_add_u32 %0, %1, 1" : "=v"(sum) : "v"(value));
  asm volatile("v_readfirstlane_b32 s20, %0\\nv_readlane_b32 s21, %0, s20" : : "v"(sum) : "s20", "s21");
  asm volatile("s_waitcnt vmcnt(0)");
  out[0] = sum;
}
extern "C" __global__ void lost(int *out) {
  out[0] = 1;
  *(volatile int *)16 = 2;
}
"""


@pytest.fixture(scope="module")
def built(compile_object: Callable[..., Path]) -> dict[str, Path]:
    return {name: compile_object(SOURCE, "gfx906", "-O1", *flags) for name, flags in (("g", ["-g"]), ("none", []))}


def lines_of(text: str) -> set[int]:
    return {int(line) for line in re.findall(r"source\.hip:(\d+)", text)}


def test_disassembly(built: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """A line is printed before its first instruction, as by llvm-objdump."""
    assert main(["disasm", str(built["g"]), "--lines"]) == 0
    lines_of: dict[int, int] = {}
    line = 0
    for text in capsys.readouterr().out.splitlines():
        if match := re.match(r"; .*?source\.hip:(\d+)", text):
            line = int(match[1])
        elif text.startswith("; "):
            line = 0
        elif match := re.match(r" +([0-9a-f]+)  [0-9a-f]{8}", text):
            lines_of[int(match[1], 16)] = line
    object = load_object(built["g"])
    asked = "\n".join(map(hex, lines_of))
    command = ["llvm-symbolizer-22", f"--obj={built['g']}", "--output-style=JSON", "--no-inlines"]
    out = subprocess.run(command, input=asked, capture_output=True, text=True, check=True).stdout
    for address, answer in zip(lines_of, out.splitlines(), strict=True):
        (frame,) = json.loads(answer)["Symbol"]
        if frame["FileName"].endswith("source.hip") and object.source.at(address) is not None:
            assert lines_of[address] == frame["Line"], hex(address)
    assert set(lines_of.values()) >= {4, 5, 6, 8, 11, 12}
    assert main(["disasm", str(built["g"]), "--lines", "--json"]) == 0
    (described,) = json.loads(capsys.readouterr().out)
    listed = [one for part in described["functions"] for one in part["instructions"] if "source" in one]
    assert {one["source"][0]["line"] for one in listed} >= {4, 5, 6, 8}


def test_disassembly_without_debug_information(built: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["disasm", str(built["none"]), "--lines"]) == 0
    captured = capsys.readouterr()
    assert "compile with -g" in captured.err
    assert "source.hip" not in captured.out


def test_check(built: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(built["g"]), "--kernel", "hasty"]) == 1
    wait, hazard, *_ = capsys.readouterr().out.splitlines()
    assert lines_of(wait) == {4, 5}
    assert lines_of(hazard) == {6}
    assert main(["check", str(built["g"]), "--kernel", "hasty", "--json"]) == 1
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    (finding,) = kernel["findings"]
    assert [finding[party]["source"][0]["line"] for party in ("consumer", "producer")] == [5, 4]
    assert main(["check", str(built["none"]), "--kernel", "hasty", "--json"]) == 1
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["findings"][0]["consumer"]["source"] is None


def test_launches(built: dict[str, Path]) -> None:
    device = luthier.open_device("emu:gfx906", check=["waits", "hazards"])
    module = device.load(built["g"].read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckWarning)
        module.kernel("hasty").launch(np.zeros(64, np.int32), np.zeros(64, np.int32), grid=1, block=64)
    assert {(one.check, one.frames[0].line) for one in device.findings} >= {("waits", 5), ("hazards", 6)}
    assert all(lines_of(str(one)) == {one.frames[0].line} for one in device.findings)
    with pytest.raises(EmulationError, match=r"source .*source\.hip:12"):
        module.kernel("lost").launch(np.zeros(64, np.int32), grid=1, block=64)
