"""Calibration of machines with measured times, and the table of errors (benchmarks/projection)."""

from __future__ import annotations

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from luthier.errors import LuthierError
from luthier.projection import MachineModel, machine_named, read_machine
from luthier.projection.calibration import calibrated, machine_text
from scatter import drawn_points
from timed_kernels import TimedKernel
from validate import (
    DOCUMENT,
    NUMBERS,
    Projected,
    Row,
    as_markdown,
    documented,
    floating_operations,
    read_results,
    table,
    written,
)

MACHINE = machine_named("mi250x")
BYTES = (1e9, 2e9, 5e9)
CYCLES = (1e3, 9e6, 4e6)


def times(machine: MachineModel) -> list[float]:
    """Return times of launches that memory or instruction fetch bounds, in seconds."""
    rate = machine.value("memory_bandwidth") * machine.value("memory_efficiency") * 1e9
    fetch = machine.value("fetch_width") * machine.value("clock") * 1e6
    return [max(size / rate, 1e3 * cycles / fetch) for size, cycles in zip(BYTES, CYCLES, strict=True)]


def test_numbers_that_made_the_times_are_found() -> None:
    true = MACHINE.with_values({"memory_efficiency": 0.61, "fetch_width": 11}, "made up")
    fitted = calibrated(MACHINE, ["memory_efficiency", "fetch_width"], times, times(true), "fitted to three")
    assert times(fitted) == pytest.approx(times(true), rel=0.06)
    assert fitted.memory_efficiency.source == "fitted to three"
    assert fitted.l1_width == MACHINE.l1_width


def test_numbers_stay_near_the_machine() -> None:
    fitted = calibrated(MACHINE, ["memory_efficiency"], times, [1e6 * time for time in times(MACHINE)], "absurd")
    assert fitted.value("memory_efficiency") >= MACHINE.value("memory_efficiency") / 16.01


def test_shares_stay_below_all_and_sizes_are_known() -> None:
    fitted = calibrated(MACHINE, ["memory_efficiency"], times, [1e-6 * time for time in times(MACHINE)], "absurd")
    assert MACHINE.value("memory_efficiency") <= fitted.value("memory_efficiency") <= 1
    with pytest.raises(LuthierError, match="l2_line is a size"):
        calibrated(MACHINE, ["l2_line"], times, [1.0] * 3, "")


def test_machines_are_written_as_they_are(tmp_path: Path) -> None:
    changed = MACHINE.with_values({"clock": 1000}, "calibrated with Zeiten µ \udcff \x7f.csv")
    (tmp_path / "m.toml").write_bytes(machine_text(changed).encode())
    read = read_machine(tmp_path / "m.toml")
    assert read.value("clock") == 1000
    assert read.clock.source == "calibrated with Zeiten µ ? \x7f.csv"


def test_no_calibration_without_times_or_with_many_numbers() -> None:
    with pytest.raises(LuthierError, match="fits 1 to 10 numbers, not 11"):
        calibrated(MACHINE, ["clock"] * 11, times, [1.0] * 3, "")
    with pytest.raises(LuthierError, match=r"matrix_16bit of .* is 0"):
        calibrated(MACHINE, ["matrix_16bit"], times, [1.0] * 3, "")
    with pytest.raises(LuthierError, match="there are none"):
        calibrated(MACHINE, ["clock"], times, [], "")


@pytest.mark.parametrize("gpu", NUMBERS)
def test_numbers_that_are_fitted_exist(gpu: str) -> None:
    machine = machine_named(gpu)
    same = calibrated(machine, NUMBERS[gpu], lambda machine: [1.0], [1.0], "nothing to do")
    assert [same.value(name) for name in NUMBERS[gpu]] == [machine.value(name) for name in NUMBERS[gpu]]


def projected(number: int, measured: float, time: float, simulated: float | None = None) -> Projected:
    """Return a projection of a launch."""
    kernel = TimedKernel("fir", "MI300A", str(number), {}, measured, simulated)
    return Projected(kernel, time, 10 * time, "memory")


RESULTS = [projected(1, 1, 1.5), projected(2, 2, 3), projected(3, 4, 6, 2), projected(4, 8, 12, 4)]


def test_baselines_are_of_the_same_launches(tmp_path: Path) -> None:
    rows = {row.method: row for row in table("MI300A", "nothing", RESULTS, {"1": 10, "2": 20, "3": 40, "9": 1})}
    assert (rows["luthier"].launches, rows["luthier"].mean_error, rows["luthier"].rank_correlation) == (4, 0.5, 1.0)
    assert rows["plain roofline"].mean_error == 14
    assert rows["plain roofline, best constant"].mean_error == 0
    assert rows["time on another GPU, best constant"].launches == 3
    assert "MGPUSim" not in rows  # two launches say nothing
    path = tmp_path / "results.json"
    written(list(rows.values()), path)
    written([Row("W7800", "fir", "luthier", "nothing", 3, None, 0.5, 0.5, 1.5, 0.3)], path)
    kept = read_results(path)
    assert [row for row in kept if row.gpu == "MI300A"] == list(rows.values())
    assert "| W7800 | fir | nothing | luthier | 3 |  | 50% | 50% | 1.50 | 30.0% |" in as_markdown(kept)


@pytest.mark.parametrize(
    ("mnemonic", "operations"),
    [
        ("v_add_f32_e32", 1),
        ("v_fmac_f32_e32", 2),
        ("v_fma_f64", 2),
        ("v_pk_fma_f32", 4),
        ("v_dual_fmac_f32", 4),
        ("v_mul_f32_dpp", 1),
        ("v_add_u32_e32", 0),
        ("v_mov_b32_e32", 0),
        ("s_add_f32", 0),
    ],
)
def test_operations_of_the_roofline(mnemonic: str, operations: int) -> None:
    assert floating_operations(mnemonic) == operations


def test_every_launch_is_a_dot_on_its_side_of_the_line() -> None:
    picture = ElementTree.fromstring(drawn_points(RESULTS, "a < b"))
    paths = [path.get("d", "") for path in picture.iter("{http://www.w3.org/2000/svg}path")]
    dots = [tuple(map(float, dot)) for path in paths for dot in re.findall(r"M([\d.]+) (-?[\d.]+)h0", path)]
    assert len(dots) == len(RESULTS)
    for x, y in dots:  # all projections are 1.5 times too slow: above the diagonal
        assert 420 - y - x == pytest.approx(420 / 2 * math.log10(1.5), abs=0.2)
    with pytest.raises(LuthierError, match="no points to draw"):
        drawn_points([], "")


def test_the_document_has_the_kept_errors() -> None:
    text = DOCUMENT.read_text()
    rows = read_results()
    assert rows
    assert as_markdown(rows) in text
    assert documented(text, rows) == text
    assert documented(text, rows[:1]) != text


def test_machines_say_what_was_kept() -> None:
    """A GPU's projected times come with the mean error over the launches of each kernel, before any calibration."""
    rows = [row for row in read_results() if (row.method, row.calibrated_on) == ("luthier", "nothing")]
    assert {row.gpu for row in rows} == {"MI250X", "MI300A", "MI300X", "MI350X", "W6600", "W7800"}
    for row in rows:
        text = machine_named(row.gpu).validation
        assert f"{100 * row.mean_error:.0f} % over {row.launches}" in text
        assert row.kernel in text
    assert MACHINE.with_values({"clock": 1500}, "slower").validation == ""
    assert machine_named("rx7900xtx").validation == machine_named("mi100").validation == ""
