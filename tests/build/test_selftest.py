"""`luthier selftest`: its report if everything works, and that everything wrong or missing is reported."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import luthier
import numpy as np
import pytest
from luthier.cli.main import main
from luthier.errors import LuthierError
from luthier.isa.targets import TARGETS
from luthier.support.processes import run

from luthier_build import rocm
from luthier_build.selftest import devices, kernel
from luthier_build.selftest.steps import SelftestStep, Skip, run_steps
from luthier_build.toolchain import Toolchain

pytestmark = pytest.mark.rows()


def selftest(tmp_path: Path, *arguments: str) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    """The exit status, and the steps of the file by device and name."""
    code = main(["selftest", *arguments, "-o", str(tmp_path / "report.json")])
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["schema"] == 1
    assert report["machine"]["luthier"] == luthier.__version__
    assert report["machine"]["doctor"]
    return code, {(step["where"], step["name"]): step for step in report["steps"]}


def statuses(steps: dict[tuple[str, str], dict[str, Any]]) -> Counter[str]:
    return Counter(step["status"] for step in steps.values())


@pytest.mark.parametrize("device", ["emu:gfx1030"])
def test_all_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str], device: str) -> None:
    code, steps = selftest(tmp_path, "--device", device)
    assert (code, statuses(steps)) == (0, {"ok": 9}), steps
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 10
    assert table[-1] == "9 ok"
    assert {where for where, _ in steps} == {"machine", device, f"{device}, ROCr"}


def test_a_target_without_rocm(tmp_path: Path) -> None:
    code, steps = selftest(tmp_path, "--device", "emu:gfx1201")
    assert (code, statuses(steps)) == (0, {"ok": 5, "skipped": 4})
    assert all(step["detail"] for step in steps.values())


@pytest.mark.rows(18)
@pytest.mark.parametrize("target", [name for name, target in TARGETS.items() if not target.is_generic])
def test_the_kernel_is_right_everywhere(target: str) -> None:
    device = luthier.open_device(f"emu:{target}")
    devices.launch(device, kernel.code_object(target).data)
    assert device.stats.waves == kernel.GROUPS * -(-kernel.ITEMS // device.target.target.default_wave_size)


@pytest.mark.thorough
def test_a_planted_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong result of the emulated device is reported, and all other steps run."""
    right = kernel.expected()
    wrong = right.copy()
    wrong[77] ^= 1
    monkeypatch.setattr(kernel, "expected", lambda: wrong)
    code, steps = selftest(tmp_path, "--device", "emu:gfx90a")
    assert code == 1
    assert steps["emu:gfx90a", "original"]["status"] == "failed"
    message = f"1 of 200 numbers are wrong, the first at item 77: {right[77]:#x}, not {wrong[77]:#x}"
    assert steps["emu:gfx90a", "original"]["detail"] == message
    assert message in capsys.readouterr().out
    assert steps["emu:gfx90a", "lift"]["status"] == steps["emu:gfx90a", "hooks"]["status"] == "ok"
    assert steps["emu:gfx90a, ROCr", "program"]["status"] == "failed"
    assert len(steps) == 9


@pytest.mark.thorough
def test_counters_that_are_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in what counts is noticed."""
    monkeypatch.setattr("luthier.tool.counts.KernelCounts.opcodes", property(lambda self: {"S_NOP": 1}))
    code, steps = selftest(tmp_path, "--device", "emu:gfx1100")
    assert code == 1
    assert "1 instructions counted; " in steps["emu:gfx1100", "counters"]["detail"]
    assert steps["emu:gfx1100", "hooks"]["status"] == "ok"


@pytest.mark.thorough
def test_a_broken_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program cannot load its HIP; what the loader says is in the report."""
    (tmp_path / "libamdhip64.so.5").write_bytes(b"no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    code, steps = selftest(tmp_path, "--device", "emu:gfx90a")
    assert code == 1
    assert statuses(steps) == {"ok": 6, "failed": 3}
    assert steps["emu:gfx90a, ROCr", "program"]["status"] == "failed"


def test_nothing_but_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a compiler nor ROCm: what needs them says so."""

    def missing(*_: object) -> Toolchain:
        raise LuthierError("no clang")

    monkeypatch.setattr(Toolchain, "find", missing)
    monkeypatch.setattr(rocm, "find", lambda name: None)
    code, steps = selftest(tmp_path, "--device", "emu:gfx942", "--device", "emu:gfx90a")
    assert code == 0
    assert statuses(steps) == {"ok": 7, "skipped": 10}
    assert "no clang" in steps["emu:gfx942", "hooks"]["detail"]
    assert "libhsa-runtime64.so and libamdhip64.so not found" in steps["emu:gfx90a, ROCr", "program"]["detail"]


def test_a_gpu(tmp_path: Path) -> None:
    """On the virtual device, which looks like one to HIP."""
    pytest.importorskip("hip", reason="hip-python is not installed (extra hip)")
    report = tmp_path / "report.json"
    inside = "import sys; from luthier.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", inside]
    run([*command, "run", "--device", "emu:gfx908", "--", *command, "selftest", "--device", "hip:0", "-o", str(report)])
    _, step = json.loads(report.read_text())["steps"]
    assert step["status"] == "ok", step
    assert "gfx908" in step["detail"]


def test_a_gpu_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, steps = selftest(tmp_path, "--device", "hip:7")
    assert (code, steps["hip:7", "counters"]["status"]) == (1, "failed")
    assert "hip:7" in steps["hip:7", "counters"]["detail"]


@pytest.mark.parametrize("name", ["gfx90a", "emu:", "emu:gfx1", "hip:x", "cuda:0"])
def test_names_that_are_no_devices(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["selftest", "--device", name]) == 1
    assert "luthier selftest: error: " in capsys.readouterr().err


def test_a_step_of_each_kind() -> None:
    """One that fails, and one with a bug, stop no other."""

    def skip() -> str:
        raise Skip("not here")

    def fail() -> str:
        raise LuthierError("wrong")

    def bug() -> str:
        return str(np.zeros(1)[2])

    steps = [
        SelftestStep("there", name, function)
        for name, function in (("a", skip), ("b", fail), ("c", bug), ("d", lambda: "!"))
    ]
    outcomes = list(run_steps(steps))
    assert [outcome.status for outcome in outcomes] == ["skipped", "failed", "failed", "ok"]
    assert [bool(outcome.trace) for outcome in outcomes] == [False, False, True, False]
    assert outcomes[2].detail.startswith("index 2 is out of bounds")


@pytest.mark.thorough
def test_a_program_that_does_not_end() -> None:
    with pytest.raises(LuthierError, match=r"did not end within 0\.2 seconds"):
        run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.2)
