"""`luthier sanitize --check fp`: instructions that produce exceptional floats are reported and counted exactly."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import luthier
import numpy as np
import pytest
from commands import run_luthier
from luthier.emulator.inspection.debug import WaveStep
from luthier.errors import LuthierError
from luthier.findings.floats import cause, kinds_of_floats
from numpy.typing import NDArray
from rocm_stacks import stack

from .sanitized import findings_of, marked_line
from .test_newer_rocm import RELEASE, build_newer

__all__ = ["build_newer"]  # a fixture: pytest finds it here
Build = Callable[..., Path]
BUGS = {
    "adds": ("nan", "v_add_f32", "invalid operation"),
    "roots": ("nan", "v_sqrt_f32", "invalid operation"),
    "divides": ("infinity", "v_div_fixup_f32", "division by zero"),
    "halves": ("infinity", "v_pk_mul_f16", "overflow"),
    "doubles": ("denormal", "v_mul_f64", "underflow"),
    "narrows": ("infinity", "v_cvt_f16_f32", "overflow"),
}
"""Kernel -> kind, instruction and cause of the one exceptional number among a million."""
PLACE = 777777
KINDS = ("nan", "infinity", "denormal")
ALL = "nan,inf,denormal,flow"


def look(program: Path, log: Path, *words: str, target: str, kinds: str, before: list[str]) -> list[dict[str, Any]]:
    """Return what is found in a program."""
    return findings_of([program, *words], log, "--check", "fp", "--fp", kinds, target=target, before=before)


def check(program: Path, log: Path, kernel: str, target: str, before: list[str]) -> None:
    (finding,) = look(program, log, kernel, "bug", target=target, kinds="nan,inf,denormal", before=before)
    kind, instruction, why = BUGS[kernel]
    assert (finding["kind"], finding["name"], finding["count"]) == (kind, kernel, 1)
    assert finding["instruction"].startswith(instruction)
    assert finding["detail"].startswith(why)
    lines = {frame["line"] for frame in finding["frames"] if frame["file"].endswith("floats.hip")}
    assert marked_line("floats.hip", kernel) in lines
    lanes = 64 if target.startswith("gfx9") else 32
    assert finding["group"] * 256 + finding["wave"] * lanes + finding["lane"] == PLACE


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx1030"])
@pytest.mark.parametrize("kernel", BUGS)
def test_one_in_a_million(build_program: Build, tmp_path: Path, kernel: str, target: str) -> None:
    check(build_program("floats", "-g"), tmp_path / "log", kernel, target, [])


@pytest.mark.rocm(RELEASE)
@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("kernel", ["adds", "divides", "halves", "doubles"])
def test_one_in_a_million_on_newer_targets(build_newer: Build, tmp_path: Path, kernel: str, target: str) -> None:
    check(build_newer("floats", "-g"), tmp_path / "log", kernel, target, stack(RELEASE))


@pytest.mark.rows(1)
@pytest.mark.parametrize("kernel", BUGS)
def test_without_a_bug(build_program: Build, tmp_path: Path, kernel: str) -> None:
    program = build_program("floats", "-g")
    findings = look(program, tmp_path / "log", kernel, "none", target="gfx90a", kinds="nan,inf,denormal", before=[])
    assert findings == []


@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
def test_beside_what_nobody_wrote(build_program: Build, tmp_path: Path, target: str) -> None:
    """Overflows of the fill pattern of `init` are not findings; the program's own overflow is."""
    log = tmp_path / "log"
    words = ["--check", "init,fp", "--device", f"emu:{target}", "--json", log]
    done = run_luthier("sanitize", *words, "--", build_program("floats", "-g"), "squares", "bug")
    counts = {one["kind"]: one["count"] for one in json.loads(log.read_text())["findings"]}
    assert counts == {"uninitialised-read": (1 << 20) - 1, "infinity": 1}, done


# Registers -----------------------------------------------------------------------------------------------------------

FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def of_kind(values: NDArray[Any], kind: str) -> NDArray[np.bool_]:
    """Return by lane whether a number is of a kind; as bits say, so that nothing is converted."""
    info = np.finfo(values.dtype)
    kinds = {
        "nan": np.isnan(values),
        "infinity": np.isinf(values),
        "denormal": (values != 0) & (np.abs(values) < info.smallest_normal),
    }[kind]
    return np.asarray(kinds, np.bool_)


FLOAT_INSTRUCTION = re.compile(r"v_(?:add|mul|rcp|cvt)_(pk_?rtz_)?(f16|f32|f64)(?:_(f16|f32|f64))?(?:_e32|_e64)? (.*)")


class Waiting(NamedTuple):
    """An instruction whose results are looked at when the next one of the wave begins."""

    address: int
    result: str
    kind: type[Any]
    packed: bool
    operands: list[NDArray[Any]]
    lanes: NDArray[np.bool_]


class Oracle:
    """Looks at the registers of one instruction after the other, of what is stepped."""

    def __init__(self) -> None:
        self.counts: dict[tuple[int, str], int] = {}
        self.waiting: dict[tuple[int, int], Waiting] = {}

    def __call__(self, step: WaveStep) -> None:
        """Look at the results of the wave's instruction before, and at this one's operands."""
        key = step.workgroup, step.wave
        if key in self.waiting:
            self.judge(step, self.waiting.pop(key))
        match = FLOAT_INSTRUCTION.match(step.text)
        if match is None:
            return
        result, *operands = match[4].split(", ")
        lanes = np.array([step.registers.exec >> lane & 1 for lane in range(step.registers.wave_size)], np.bool_)
        values = [self.operand(step, one, FLOATS[match[3] or match[2]]) for one in operands]
        self.waiting[key] = Waiting(step.address, result, FLOATS[match[2]], bool(match[1]), values, lanes)

    @staticmethod
    def operand(step: WaveStep, name: str, kind: type[Any]) -> NDArray[Any]:
        number = int(re.findall(r"\d+", name)[0])
        if name.startswith("v"):
            values: NDArray[Any] = step.registers.vgpr(number, dtype=kind)
            return values
        assert name.startswith("s")
        size = np.dtype(kind).itemsize
        bits = step.registers.sgpr(number, max(1, size // 4)).to_bytes(max(4, size), "little")[:size]
        return np.full(step.registers.wave_size, np.frombuffer(bits, kind)[0])

    def judge(self, step: WaveStep, done: Waiting) -> None:
        """Count the lanes in which a result of an instruction is exceptional; each of two results has its own
        operands."""
        if done.packed:
            both = self.operand(step, done.result, np.uint32)
            results = [(both >> shift).astype(np.uint16).view(np.float16) for shift in (0, 16)]
            elements = [([operand], result) for operand, result in zip(done.operands, results, strict=True)]
        else:
            elements = [(done.operands, self.operand(step, done.result, done.kind))]
        kinds: dict[str, NDArray[np.bool_]] = {}
        for operands, result in elements:
            were = {kind: np.logical_or.reduce([of_kind(one, kind) for one in operands]) for kind in KINDS}
            flow = {
                "nan": were["nan"],
                "infinity": were["nan"] | were["infinity"],
                "denormal": were["nan"] | were["infinity"] | were["denormal"],
            }
            for kind in KINDS:
                exceptional = of_kind(result, kind) & done.lanes
                for name, where in ((kind, exceptional & ~flow[kind]), (f"{kind}-flow", exceptional & flow[kind])):
                    kinds[name] = kinds.get(name, np.zeros_like(where)) | where
        for name, where in kinds.items():
            if where.any():
                at = done.address, name
                self.counts[at] = self.counts.get(at, 0) + int(where.sum())


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx1030"])
def test_beside_registers(build_program: Build, tmp_path: Path, target: str) -> None:
    """The kinds, instructions and counts are those that registers have which are looked at step by step."""
    program = build_program("floats", "-g")
    findings = look(program, tmp_path / "log", "mixes", target=target, kinds=ALL, before=[])
    kinds = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-40, 1e-20, 70000, 1e-7], np.float32)
    at = np.arange(192)
    oracle, device = Oracle(), luthier.open_device(f"emu:{target}")
    kernel = next(one for one in device.load(program).object.kernels if "mixes" in one)
    module = device.load(program)
    module.kernel(kernel).launch(
        kinds[at % 13], kinds[at // 13 % 13], np.zeros(192, np.float32), grid=1, block=192, trace=oracle
    )
    assert {(one["offset"], one["kind"]): one["count"] for one in findings} == oracle.counts
    assert {kind for _, kind in oracle.counts} == {*KINDS, *(f"{kind}-flow" for kind in KINDS)}


def test_words() -> None:
    assert kinds_of_floats(["nan", "inf"]) == {"nan", "infinity"}
    assert kinds_of_floats(["denormal", "flow"]) == {"denormal", "denormal-flow"}
    for words in (["flow"], ["nan", "nans"]):
        with pytest.raises(LuthierError, match="--fp"):
            kinds_of_floats(words)
    assert cause("infinity", "v_log_f32_e32 v1, v2", 8).startswith("logarithm of zero")
    assert cause("infinity", "v_mul_f32_e32 v1, v2, v3", 8).startswith("overflow")
    assert cause("nan-flow", "v_mul_f32_e32 v1, v2, v3", 3) == "nan from an operand that is NaN or infinite"
