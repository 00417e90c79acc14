"""`luthier selftest`: its report if everything works, and that everything wrong or missing is reported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import luthier
import numpy as np
import pytest
from commands import MAIN
from effort import EVERYTHING
from luthier.cli.main import main
from luthier.errors import LuthierError
from luthier.isa.targets import TARGETS
from luthier.run import preflight
from luthier.support.processes import run

from luthier_build import rocm
from luthier_build.selftest import devices, gpus, kernel, programs
from luthier_build.selftest.launches import LAUNCHES
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


KERNELS = [*LAUNCHES] if EVERYTHING else [kernel.NAME, "copy", "calls"]
"""Kernels that the self-test launches on a GPU, each in a process under each of its tools."""


def test_a_gpu(tmp_path: Path) -> None:
    """On the virtual device, which looks like one to HIP."""
    steps = on_a_gpu(tmp_path)
    assert statuses(steps) == {"ok": 4 + len(KERNELS), "skipped": 1}, steps
    assert steps["hip:0", "device"]["detail"].startswith("gfx908, ROCr ")
    assert "rocprofv3 is not installed" in steps["hip:0", "rocprofv3"]["detail"]
    for name in KERNELS:
        assert re.fullmatch(
            r"[1-9]\d* instructions; unchanged and under 7 tools as on the emulated device",
            steps["hip:0", f"kernel {name}"]["detail"],
        )


def on_a_gpu(tmp_path: Path, **env: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the steps on a virtual device in whose program the self-test runs."""
    pytest.importorskip("hip", reason="hip-python is not installed (extra hip)")
    report = tmp_path / "report.json"
    fewer = (
        f"from luthier_build.selftest.launches import LAUNCHES; [*map(LAUNCHES.pop, {{*LAUNCHES}} - {set(KERNELS)})]; "
    )
    command = [sys.executable, "-c", fewer + MAIN]
    outside = [sys.executable, "-c", MAIN, "run", "--device", "emu:gfx908"]
    argv = [*outside, "--", *command, "selftest", "--device", "hip", "-o", str(report)]
    subprocess.run(argv, env=os.environ | env, check=False, capture_output=True)
    return {(step["where"], step["name"]): step for step in json.loads(report.read_text())["steps"]}


PROFILER = """#!{python}
import subprocess, sys
from pathlib import Path
at = sys.argv.index("--")
folder, counters = Path(sys.argv[sys.argv.index("-d") + 1]), sys.argv[2 : sys.argv.index("--output-format")]
subprocess.run(sys.argv[at + 1 :], check=True)
rows = [f"1,1,luthier_selftest,{{name}},{{value}}" for name, value in zip(counters, {values}, strict=True)]
(folder / "host").mkdir()
header = "Process_Id,Dispatch_Id,Kernel_Name,Counter_Name,Counter_Value"
(folder / "host" / "1_counter_collection.csv").write_text("\\n".join([header, *rows]))
"""
"""Stands for rocprofv3: it writes given counters in its format."""


@pytest.mark.thorough
@pytest.mark.parametrize("waves", [24, 23])
def test_counters_of_a_profiler(tmp_path: Path, waves: int) -> None:
    device = luthier.open_device("emu:gfx908")
    devices.launch(device, kernel.code_object("gfx908").data)
    counters = devices.sq_counters(device.stats)
    values = [waves, *(counters[name] for name in ("SQ_INSTS_VALU", "SQ_INSTS_SALU", "SQ_INSTS_SMEM"))]
    profiler = tmp_path / "rocprofv3"
    profiler.write_text(PROFILER.format(python=sys.executable, values=values))
    profiler.chmod(0o755)
    step = on_a_gpu(tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}")["hip:0", "rocprofv3"]
    assert step["status"] == ("ok" if waves == 24 else "failed"), step
    if waves != 24:
        assert step["detail"] == "SQ_WAVES: 23, on the emulated device 24"


def test_a_kernel_that_ends_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As HIP ends it after a fault: the error names the kernel and the tool."""
    source = "import os, sys; print('kernel copy, under counting', file=sys.stderr, flush=True); os.abort()"
    monkeypatch.setattr(programs, "COMMAND", [sys.executable, "-c", source])
    (step,) = (step for step in gpus.steps_of("hip:0", {"target": "gfx90a"}) if step.name == "kernel luthier_selftest")
    (outcome,) = run_steps([step])
    assert outcome.status == "failed"
    assert "was killed by SIGABRT" in outcome.detail
    assert outcome.detail.splitlines()[-1].startswith("kernel copy, under counting: ")
    assert "SIGABRT" in outcome.detail.splitlines()[-1]


def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    code, steps = selftest(tmp_path, "--device", "hip:7")
    assert (code, steps["hip:7", "device"]["status"]) == (1, "failed")
    assert "there is no AMD GPU, or its driver is missing (/dev/kfd)" in steps["hip:7", "device"]["detail"]


@pytest.mark.parametrize("missing", ["permission", "hip-python", "device"])
def test_what_a_gpu_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Each is one failed step with the reason."""
    driver = tmp_path / "kfd"
    driver.touch()
    monkeypatch.setattr(preflight, "DRIVER", str(driver))
    gpus.gpus_of.cache_clear()
    expected = "hip: HIP finds no device: hipErrorNoDevice"
    if missing == "permission":
        monkeypatch.setattr(os, "access", lambda path, *_, **__: str(path) != str(driver))
        expected = f"no permission to open {driver}: add your user to the groups"
    if missing == "hip-python":
        (tmp_path / "hip").mkdir()
        (tmp_path / "hip" / "__init__.py").write_text("raise ImportError('not here')")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        expected = "hip needs hip-python: pip install 'luthier[hip]' (not here)"
    code, steps = selftest(tmp_path, "--device", "hip")
    gpus.gpus_of.cache_clear()
    assert code == 1
    (step,) = (step for step in steps.values() if step["where"] == "hip")
    assert (step["name"], step["status"]) == ("device", "failed")
    assert expected in step["detail"]


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
