"""Uninitialised reads and LDS races: found where they are, and nowhere else."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from luthier.devices import open_device
from luthier.emulator import CheckWarning, Finding, Module
from luthier.emulator.inspection.checks import Kind, kind_of
from luthier.emulator.inspection.sighted import Sighted
from luthier.errors import DeviceError, EmulationError

TARGETS = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1200")


@pytest.fixture(scope="module", params=TARGETS)
def checked(request: pytest.FixtureRequest, build_kernels: Callable[[str, str], Path]) -> Module:
    device = open_device(f"emu:{request.param}", check=["uninitialised", "races"])
    return device.load(build_kernels("checks", request.param))


@pytest.fixture(scope="module")
def working(checked: Module, build_kernels: Callable[[str, str], Path]) -> Module:
    """Kernels that do nothing wrong, on the same device."""
    target = checked.device.target.target.name
    return checked.device.load(build_kernels("groups", target))


def findings(module: Module, kernel: str, *arguments: Any, **sizes: Any) -> tuple[Finding, ...]:
    """Of a launch; they are also warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module.kernel(kernel).launch(*arguments, **sizes)
    found = module.device.findings
    assert [str(item.message) for item in caught if item.category is CheckWarning] == [str(item) for item in found]
    return found


def text_at(module: Module, kernel: str, address: int) -> str:
    code = module.code(module.kernel(kernel).kernel.wave_size)
    record = code.record_at(address)
    assert record is not None
    return code.text(record)


def only(found: tuple[Finding, ...], check: str) -> Finding:
    assert [item.check for item in found] == [check], [str(item) for item in found]
    return found[0]


# Uninitialised reads ------------------------------------------------------------------------------------------------


def test_the_first_byte_never_written(checked: Module) -> None:
    source, out = checked.device.allocate(4 * 101), checked.device.allocate(400)
    source.write(np.arange(100, dtype=np.int32))
    found = findings(checked, "sum_of_two", source, out, 100, grid=1, block=128)
    finding = only(found, "uninitialised")
    assert "load" in finding.text
    assert finding.text == text_at(checked, "sum_of_two", finding.address)
    wave_size = checked.kernel("sum_of_two").kernel.wave_size
    assert finding.wave * wave_size + (finding.lane or 0) == 99
    assert finding.kind is Kind.READ
    assert f"the one at {source.address + 400:#x} (400 bytes into buffer of 404 bytes) was never written" in str(
        finding
    )
    assert finding.count == 1
    source.write(b"\0\0\0\0", 400)
    assert findings(checked, "sum_of_two", source, out, 100, grid=1, block=128) == ()
    # What a kernel wrote may be read by the next one.
    assert findings(checked, "sum_of_two", out, source, 99, grid=1, block=128) == ()


def test_bytes_of_a_dword(checked: Module) -> None:
    cells = checked.device.allocate(4 * 64)
    assert findings(checked, "bytes_only", cells, 0, block=64) == ()
    finding = only(findings(checked, "bytes_only", cells, np.zeros(64, np.int32), block=64), "uninitialised")
    assert finding.count == 64
    assert finding.place == cells.address
    assert "(1 bytes into buffer of 256 bytes)" in finding.where


def test_atomics_read(checked: Module) -> None:
    cells = checked.device.allocate(16)
    finding = only(findings(checked, "count_up", cells, block=32), "uninitialised")
    assert finding.kind is Kind.ATOMIC
    assert "atomic" in finding.text
    assert findings(checked, "count_up", cells, block=32) == ()


def test_scalar_loads(checked: Module) -> None:
    source = checked.device.allocate(8)
    source.write(np.array([1], np.int32))
    out = np.zeros(32, np.int32)
    finding = only(findings(checked, "read_uniform", source, out, grid=2, block=32), "uninitialised")
    assert finding.lane is None
    assert finding.text.startswith("s_load")
    assert finding.workgroup == 1


def test_freed_and_new_memory_is_not_confused(checked: Module) -> None:
    for _ in range(8):
        buffer = checked.device.allocate(16)
        assert only(findings(checked, "count_up", buffer, block=4), "uninitialised").place == buffer.address
        buffer.free()


def test_lds_never_written(checked: Module) -> None:
    out = np.zeros(256, np.int32)
    assert findings(checked, "half_written", out, 256, grid=2, block=256) == ()
    finding = only(findings(checked, "half_written", out, 100, block=256), "uninitialised")
    wave_size = checked.kernel("half_written").kernel.wave_size
    item = finding.wave * wave_size + (finding.lane or 0)
    assert item >= 100
    assert finding.place == 4 * (item ^ 1)
    assert f"4 bytes of LDS at offset {finding.place:#x}" in finding.where
    assert finding.count == 156
    # Every work-group begins anew.
    assert only(findings(checked, "half_written", out, 100, grid=3, block=256), "uninitialised").count == 3 * 156


def test_flat_pointers_into_both(checked: Module) -> None:
    memory = checked.device.allocate(4 * 64)
    found = findings(checked, "flat_place", memory, np.zeros(64, np.int32), 40, block=64)
    wheres = sorted(item.where for item in found)
    assert [item.check for item in found] == ["uninitialised"] * len(found)
    lds = [item for item in found if "LDS" in item.where]
    device = [item for item in found if "LDS" not in item.where]
    assert sum(item.count for item in lds) == 8, wheres  # LDS was written up to 32, read up to 40
    assert sum(item.count for item in device) == 24, wheres


# Races --------------------------------------------------------------------------------------------------------------


def test_a_missing_barrier(checked: Module) -> None:
    out = np.zeros(256, np.int32)
    assert findings(checked, "neighbours", out, 1, block=256) == ()
    assert out.tolist() == [*range(1, 256), -1]
    found = findings(checked, "neighbours", out, 0, block=256)
    races = [item for item in found if item.check == "races"]
    assert races
    wave_size = checked.kernel("neighbours").kernel.wave_size
    for race in races:
        assert race.other is not None
        assert race.other.wave != race.wave
        assert {race.kind, race.other.kind} == {Kind.READ, Kind.WRITE}
        assert race.other.text == text_at(checked, "neighbours", race.other.address)
        assert race.place % (4 * wave_size) == 0  # the border between two waves
        assert f"without a barrier between, wave {race.other.wave} lane {race.other.lane}" in str(race)


def test_a_write_after_reads(checked: Module) -> None:
    found = findings(checked, "anti", np.zeros(256, np.int32), block=256)
    assert {item.check for item in found} == {"races"}
    assert {Kind.READ, Kind.WRITE} in [{item.kind, item.other.kind} for item in found if item.other is not None]


def test_atomics_do_not_race(checked: Module) -> None:
    data, out = np.arange(256, dtype=np.uint32), np.zeros(8, np.uint32)
    assert findings(checked, "histogram_lds", data, out, 1, block=256) == ()
    assert np.all(out == 32)
    found = findings(checked, "histogram_lds", data, out, 0, block=256)
    assert {item.check for item in found} == {"races"}
    # Lanes of one instruction that write the same byte race too.
    assert any(item.other is not None and item.other.wave == item.wave for item in found)


def test_one_wave_is_in_order(checked: Module) -> None:
    size = checked.kernel("anti").kernel.wave_size
    assert all(
        item.check != "races" for item in findings(checked, "neighbours", np.zeros(size, np.int32), 0, block=size)
    )


# Nothing found where nothing is wrong -------------------------------------------------------------------------------


def test_right_kernels_are_left_alone(working: Module) -> None:
    data = np.arange(300, dtype=np.float32)
    sums = np.zeros(2, np.float32)
    assert findings(working, "reduction", data, sums, 300, grid=2, block=256) == ()
    assert sums.sum() == data.sum()
    numbers = np.arange(200, dtype=np.uint32)
    out = np.zeros_like(numbers)
    assert findings(working, "dynamic_reverse", numbers, out, grid=2, block=100, dynamic_lds=400) == ()
    assert np.array_equal(out, numbers.reshape(2, 100)[:, ::-1].ravel())


# The option ---------------------------------------------------------------------------------------------------------


def test_one_check_alone(build_kernels: Callable[[str, str], Path]) -> None:
    path = build_kernels("checks", "gfx942")
    out = np.zeros(256, np.int32)
    races = open_device("emu:gfx942", check="races").load(path)
    assert findings(races, "half_written", out, 100, block=256) == ()
    assert {item.check for item in findings(races, "anti", out, block=256)} == {"races"}
    uninitialised = open_device("emu:gfx942", check="uninitialised").load(path)
    assert findings(uninitialised, "anti", out, block=256) == ()
    assert len(findings(uninitialised, "half_written", out, 100, block=256)) == 1
    plain = open_device("emu:gfx942").load(path)
    assert findings(plain, "anti", out, block=256) == ()


# Names of `luthier sanitize` ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["gfx90a", "gfx1100"])
def test_races_that_native_code_sees(build_kernels: Callable[[str, str], Path], target: str) -> None:
    device = open_device(f"emu:{target}", check=["race", "barrier", "early-exit"])
    module = device.load(build_kernels("checks", target))
    out = device.allocate(4 * 256)
    with pytest.warns(CheckWarning, match="race in turned at"):
        module.kernel("turned").launch(out, 0, grid=1, block=256)
    assert {one.check for one in device.findings} == {"race"}
    for one in device.findings:
        assert isinstance(one, Sighted)
        assert one.in_lds
        assert (one.workgroup, one.wave) != (one.other_workgroup, one.other_wave)
        assert one.text == text_at(module, "turned", one.address)
        assert f"({one.other_text})" in str(one)
    module.kernel("turned").launch(out, 1, grid=1, block=256)
    assert device.findings == ()


@pytest.mark.parametrize("checks", [["fp"], ["fp", "race", "waits"]])
@pytest.mark.parametrize("target", ["gfx90a", "gfx1100"])
def test_exceptional_floats(build_kernels: Callable[[str, str], Path], target: str, checks: list[str]) -> None:
    """Of each instruction those lanes are counted whose operands were no such numbers."""
    device = open_device(f"emu:{target}", check=checks)
    module = device.load(build_kernels("checks", target))
    a, b, out = np.full(256, 1, np.float32), np.full(256, 2, np.float32), np.zeros(256, np.float32)
    module.kernel("sums").launch(a, b, out, grid=4, block=64)
    assert device.findings == ()
    a[70:73], b[70:73] = np.inf, -np.inf
    a[200], b[200] = 3e38, 3e38
    b[5] = np.nan
    with pytest.warns(CheckWarning, match="from operands that are n"):
        module.kernel("sums").launch(a, b, out, grid=4, block=64)
    found = sorted(device.findings, key=lambda one: str(one.count), reverse=True)
    assert [(one.check, one.count, one.workgroup, one.lane) for one in found if isinstance(one, Sighted)] == [
        ("fp", 3, 1, 6),
        ("fp", 1, 3, 8),
    ]
    assert str(found[0]).startswith("NaN from operands that are none in sums")
    assert str(found[1]).startswith("infinity from operands that are neither infinite nor NaN in sums")
    assert np.isnan(out[[5, 70, 71, 72]]).all()


def test_synonyms_and_what_is_not_together(build_kernels: Callable[[str, str], Path]) -> None:
    device = open_device("emu:gfx90a", check=["init", "memory"])
    module = device.load(build_kernels("checks", "gfx90a"))
    source, out = device.allocate(4 * 101), device.allocate(400)
    source.write(np.arange(100, dtype=np.int32))
    only(findings(module, "sum_of_two", source, out, 100, grid=1, block=128), "uninitialised")
    with pytest.raises(DeviceError, match="race cannot be checked together with uninitialised"):
        open_device("emu:gfx90a", check=["race", "init"])


def test_an_unknown_check() -> None:
    with pytest.raises(DeviceError, match="no check 'leaks'; there are: uninitialised, races"):
        open_device("emu:gfx942", check="leaks")


def test_checks_and_faults(checked: Module) -> None:
    with pytest.raises(EmulationError, match="null pointer"):
        findings(checked, "count_up", 0, block=4)
    cells = checked.device.allocate(16)
    cells.write(bytes(16))
    assert findings(checked, "count_up", cells, block=4) == ()


@pytest.mark.parametrize(
    ("mnemonic", "kind"),
    [
        ("ds_read2st64_b32", Kind.READ),
        ("ds_load_b128", Kind.READ),
        ("ds_write_b8_d16_hi", Kind.WRITE),
        ("ds_store_2addr_b64", Kind.WRITE),
        ("ds_storexchg_rtn_b32", Kind.ATOMIC),
        ("ds_cmpstore_b32", Kind.ATOMIC),
        ("ds_add_rtn_u32", Kind.ATOMIC),
        ("ds_append", Kind.ATOMIC),
        ("global_atomic_add_f32", Kind.ATOMIC),
        ("global_store_dwordx4", Kind.WRITE),
        ("buffer_load_ubyte", Kind.READ),
        ("s_load_dwordx16", Kind.READ),
        ("s_buffer_store_dword", Kind.WRITE),
        ("flat_load_b32", Kind.READ),
    ],
)
def test_kinds(mnemonic: str, kind: Kind) -> None:
    assert kind_of(mnemonic) is kind
