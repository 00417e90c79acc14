"""Checks of an emulated device: what they find is where it is, and nowhere else."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from luthier.devices import open_device
from luthier.emulator import CheckWarning, Finding, Module, layout
from luthier.emulator.inspection.checks import LaunchChecks, kernel_code
from luthier.emulator.running import executor
from luthier.errors import DeviceError, EmulationError
from luthier.findings.collector import FindingSet
from luthier.findings.kinds import kinds_of_init
from luthier.isa.access_kinds import AccessKind, kind_of

TARGETS = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1200")


@pytest.fixture(scope="module", params=TARGETS)
def checked(request: pytest.FixtureRequest, build_kernels: Callable[[str, str], Path]) -> Module:
    device = open_device(f"emu:{request.param}", check=["init", "race"])
    return device.load(build_kernels("checks", request.param))


@pytest.fixture(scope="module")
def working(checked: Module, build_kernels: Callable[[str, str], Path]) -> Module:
    """Kernels that do nothing wrong, on the same device."""
    target = checked.device.target.target.name
    return checked.device.load(build_kernels("groups", target))


def findings(module: Module, kernel: str, *arguments: Any, **sizes: Any) -> tuple[Finding, ...]:
    """Return the findings of a launch, which are also warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module.kernel(kernel).launch(*arguments, **sizes)
    findings = module.device.findings
    assert [str(item.message) for item in caught if item.category is CheckWarning] == [str(item) for item in findings]
    return findings


def text_at(module: Module, kernel: str, address: int) -> str:
    code = module.code(module.kernel(kernel).kernel.wave_size)
    record = code.record_at(address)
    assert record is not None
    return code.text(record)


def only(findings: tuple[Finding, ...], kind: str = "uninitialised-read") -> Finding:
    assert [item.kind for item in findings] == [kind], [str(item) for item in findings]
    return findings[0]


# Uninitialised reads ------------------------------------------------------------------------------------------------


def test_memory_never_written(checked: Module) -> None:
    source, out = checked.device.allocate(4 * 101), checked.device.allocate(400)
    source.write(np.arange(99, dtype=np.int32))
    finding = only(findings(checked, "sum_of_two", source, out, 100, grid=1, block=128))
    assert "load" in finding.instruction
    assert finding.instruction == text_at(checked, "sum_of_two", finding.offset)
    wave_size = checked.kernel("sum_of_two").kernel.wave_size
    assert finding.wave * wave_size + finding.lane == 99
    assert (finding.check, finding.access, finding.count) == ("init", "read", 1)
    assert (finding.address, finding.size) == (source.address + 4 * 99, 8)
    assert finding.allocation is not None
    assert (finding.allocation.address, finding.allocation.size) == (source.address, 404)
    assert f"wave {finding.wave} lane {finding.lane}: read of 8 bytes at" in str(finding)
    source.write(np.zeros(2, np.int32), 4 * 99)
    assert findings(checked, "sum_of_two", source, out, 100, grid=1, block=128) == ()
    # What a kernel wrote may be read by the next one.
    assert findings(checked, "sum_of_two", out, source, 99, grid=1, block=128) == ()


@pytest.mark.rows(2)
def test_bytes_of_a_dword(checked: Module) -> None:
    """A partially written dword counts as written."""
    cells = checked.device.allocate(4 * 64)
    assert findings(checked, "bytes_only", cells, 0, block=64) == ()
    assert findings(checked, "bytes_only", cells, np.zeros(64, np.int32), block=64) == ()


def test_atomics_read(checked: Module) -> None:
    cells = checked.device.allocate(16)
    finding = only(findings(checked, "count_up", cells, block=32))
    assert finding.access == "atomic"
    assert "atomic" in finding.instruction
    assert findings(checked, "count_up", cells, block=32) == ()


def test_scalar_loads(checked: Module) -> None:
    source = checked.device.allocate(8)
    source.write(np.array([1], np.int32))
    out = np.zeros(32, np.int32)
    reads = findings(checked, "read_uniform", source, out, grid=2, block=32)
    assert "race" in {item.kind for item in reads}  # both work-groups write the same bytes
    finding = only(tuple(item for item in reads if item.kind != "race"))
    assert finding.instruction.startswith("s_load")
    assert finding.group == 1


def test_freed_and_new_memory_is_not_confused(checked: Module) -> None:
    for _ in range(8):
        buffer = checked.device.allocate(16)
        assert only(findings(checked, "count_up", buffer, block=4)).address == buffer.address
        buffer.free()


def test_lds_never_written(checked: Module) -> None:
    out = np.zeros(256, np.int32)
    assert findings(checked, "half_written", out, 256, grid=2, block=256) == ()
    finding = only(findings(checked, "half_written", out, 100, block=256))
    wave_size = checked.kernel("half_written").kernel.wave_size
    item = finding.wave * wave_size + finding.lane
    assert item >= 100
    assert finding.in_lds
    assert (finding.address, finding.size, finding.count) == (4 * (item ^ 1), 4, 156)
    # Every work-group starts from the beginning.
    assert only(findings(checked, "half_written", out, 100, grid=3, block=256)).count == 3 * 156


def test_flat_pointers_into_both(checked: Module) -> None:
    memory = checked.device.allocate(4 * 64)
    reads = findings(checked, "flat_place", memory, np.zeros(64, np.int32), 40, block=64)
    assert {item.kind for item in reads} == {"uninitialised-read"}
    assert sum(item.count for item in reads) == 8 + 24  # LDS was written up to 32, read up to 40


# Races --------------------------------------------------------------------------------------------------------------


def test_a_missing_barrier(checked: Module) -> None:
    out = np.zeros(256, np.int32)
    assert findings(checked, "neighbours", out, 1, block=256) == ()
    assert out.tolist() == [*range(1, 256), -1]
    races = [item for item in findings(checked, "neighbours", out, 0, block=256) if item.kind == "race"]
    assert races
    for race in races:
        assert race.in_lds
        assert race.other is not None
        assert race.other.wave != race.wave
        assert race.other.instruction == text_at(checked, "neighbours", race.other.offset)
        assert f"({race.other.instruction}) of work-group 0 wave {race.other.wave} lane {race.other.lane}" in str(race)


def test_a_write_after_reads(checked: Module) -> None:
    races = findings(checked, "anti", np.zeros(256, np.int32), block=256)
    assert {item.kind for item in races} == {"race"}


def test_atomics_do_not_race(checked: Module) -> None:
    data, out = np.arange(256, dtype=np.uint32), np.zeros(8, np.uint32)
    assert findings(checked, "histogram_lds", data, out, 1, block=256) == ()
    assert np.all(out == 32)
    assert "race" in {item.kind for item in findings(checked, "histogram_lds", data, out, 0, block=256)}


def test_one_wave_is_in_order(checked: Module) -> None:
    size = checked.kernel("anti").kernel.wave_size
    assert "race" not in {
        item.kind for item in findings(checked, "neighbours", np.zeros(size, np.int32), 0, block=size)
    }


@pytest.mark.parametrize("target", ["gfx90a", "gfx1100"])
def test_races_do_not_depend_on_alignment(build_kernels: Callable[[str, str], Path], target: str) -> None:
    """A whole line that consecutive lanes access has one record, unless they begin amid a dword."""
    device = open_device(f"emu:{target}", check="race")
    module = device.load(build_kernels("checks", target))
    rng = random.Random(target)
    kinds = Counter[str]()
    widths, starts, lanes = (1, 2, 4, 4, 8, 8, 16, 16), (0, 0, 16, 128, 136), (0, 0, 8, 37)
    for _ in range(24):
        count = rng.randrange(2, 7)
        steps = [
            (rng.randrange(2), *map(rng.choice, (widths, (False, True), starts, lanes)), rng.random() < 0.7)
            for _ in range(count)
        ]
        groups = rng.choice([1, 1, 2])
        results = []
        for shift in (0, 1):
            buffer = device.allocate(2048)
            given = np.array(steps, np.int32)
            races = findings(module, "in_steps", buffer.address + shift, given, count, grid=groups, block=128)
            results.append([places(item, buffer.address + shift) for item in races])
            buffer.free()
        assert results[0] == results[1], (steps, groups)
        kinds.update(item.kind for item in races)
    assert kinds["race"] > 12, "nothing was tried"


@pytest.mark.parametrize("target", ["gfx90a", "gfx1100"])
def test_scalar_loads_race_with_stores(build_kernels: Callable[[str, str], Path], target: str) -> None:
    """Loads that repeat the last one take a shorter way without `init`, and report the same."""
    modules = [
        open_device(f"emu:{target}", check=checks).load(build_kernels("checks", target))
        for checks in (["race"], ["race", "init"])
    ]
    rng = random.Random(target)
    readers = Counter[bool]()
    for _ in range(24):
        groups, by_lanes, rounds = rng.randrange(1, 5), rng.randrange(2), rng.randrange(9)
        writer, at = rng.randrange(groups * 128), rng.randrange(4 + (rounds + 1) // 2)
        results = []
        for module in modules:
            cells, out = module.device.allocate(64), module.device.allocate(4 * 128 * groups)
            cells.write(np.arange(16, dtype=np.int32))
            arguments = cells, out, rounds, by_lanes, writer, at
            races = findings(module, "load_and_store", *arguments, grid=groups, block=128)
            results.append([places(item, cells.address) for item in races])
        assert results[0] == results[1], arguments[2:]
        readers.update(bool(item.other and item.group != item.other.group) for item in races)
    assert min(readers[False], readers[True]) > 4, "nothing was tried"


@pytest.mark.parametrize("target", ["gfx90a", "gfx1100"])
def test_a_kernel_that_stores_to_its_arguments(build_kernels: Callable[[str, str], Path], target: str) -> None:
    module = open_device(f"emu:{target}", check="race").load(build_kernels("checks", target))
    out = module.device.allocate(4 * 512)
    last = 511
    races = findings(module, "load_and_store", 0, out, 0, 0, last, 1, grid=4, block=128)
    stores = [item for item in races if item.group == 3 and "store" in item.instruction]
    assert stores, [str(item) for item in races]
    assert all(item.kind == "race" and item.other and "s_load" in item.other.instruction for item in stores)


def places(finding: Finding, start: int) -> tuple[Any, ...]:
    """Return what a finding says, with its address from `start` on."""
    other = finding.other
    assert other is not None
    lanes = [(side.offset, side.group, side.wave, side.lane) for side in (finding, other)]
    return finding.kind, finding.count, finding.address - start, finding.size, *lanes


# No findings in correct programs ------------------------------------------------------------------------------------


@pytest.mark.rows(1)
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
    races = open_device("emu:gfx942", check="race").load(path)
    assert findings(races, "half_written", out, 100, block=256) == ()
    assert {item.check for item in findings(races, "anti", out, block=256)} == {"race"}
    uninitialised = open_device("emu:gfx942", check="init").load(path)
    assert findings(uninitialised, "anti", out, block=256) == ()
    assert len(findings(uninitialised, "half_written", out, 100, block=256)) == 1
    plain = open_device("emu:gfx942").load(path)
    assert findings(plain, "anti", out, block=256) == ()


@pytest.mark.parametrize("target", ["gfx90a", "gfx1100"])
def test_barriers_and_races_together(build_kernels: Callable[[str, str], Path], target: str) -> None:
    device = open_device(f"emu:{target}", check=["race", "barrier", "early-exit"])
    module = device.load(build_kernels("checks", target))
    out = device.allocate(4 * 256)
    with pytest.warns(CheckWarning, match="race in turned at"):
        module.kernel("turned").launch(out, 0, grid=1, block=256)
    assert {finding.check for finding in device.findings} == {"race"}
    for finding in device.findings:
        assert finding.in_lds
        assert finding.other is not None
        assert (finding.group, finding.wave) != (finding.other.group, finding.other.wave)
        assert finding.instruction == text_at(module, "turned", finding.offset)
    module.kernel("turned").launch(out, 1, grid=1, block=256)
    assert device.findings == ()


@pytest.mark.parametrize("checks", [["fp"], ["fp", "race", "waits"], ["fp", "init"]])
@pytest.mark.parametrize("target", ["gfx90a", "gfx1100"])
def test_exceptional_floats(build_kernels: Callable[[str, str], Path], target: str, checks: list[str]) -> None:
    """Count those lanes of each instruction whose operands were no such numbers."""
    device = open_device(f"emu:{target}", check=checks)
    module = device.load(build_kernels("checks", target))
    a, b, out = np.full(256, 1, np.float32), np.full(256, 2, np.float32), np.zeros(256, np.float32)
    module.kernel("sums").launch(a, b, out, grid=4, block=64)
    assert device.findings == ()
    a[70:73], b[70:73] = np.inf, -np.inf
    a[200], b[200] = 3e38, 3e38
    b[5] = np.nan
    with pytest.warns(CheckWarning, match="(nan|infinity) in sums"):
        module.kernel("sums").launch(a, b, out, grid=4, block=64)
    findings = sorted(device.findings, key=lambda finding: finding.kind, reverse=True)
    assert [(each.kind, each.count, each.group, each.lane) for each in findings] == [
        ("nan", 3, 1, 6),
        ("infinity", 1, 3, 8),
    ]
    assert "invalid operation: an operand is infinite, none NaN" in str(findings[0])
    assert "overflow: no operand is NaN or infinite" in str(findings[1])
    assert np.isnan(out[[5, 70, 71, 72]]).all()


def test_what_was_never_written_makes_no_exceptional_floats(build_kernels: Callable[[str, str], Path]) -> None:
    """The fill pattern that marks unwritten memory is not taken for a number of the program."""
    device = open_device("emu:gfx90a", check=["fp", "init"])
    module = device.load(build_kernels("checks", "gfx90a"))
    a, b, out = (device.allocate(4 * 4096) for _ in range(3))
    for _ in range(2):
        with pytest.warns(CheckWarning):
            module.kernel("sums").launch(a, b, out, grid=64, block=64)
        assert {finding.kind for finding in device.findings} == {"uninitialised-read"}


def test_what_is_too_large_for_init_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "MOST_UNWRITTEN", 64)
    device = open_device("emu:gfx90a", check="init")
    with pytest.warns(CheckWarning, match="reads of an allocation of 65 bytes are not checked by init"):
        assert device.allocate(65).read() == bytes(65)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert device.allocate(64).read() != bytes(64)


@pytest.mark.parametrize(
    ("init", "expected"), [("reads", layout.OBSERVE_UNWRITTEN), ("decisions", layout.OBSERVE_UNDEFINED)]
)
def test_only_what_is_wanted_is_looked_at(build_kernels: Callable[[str, str], Path], init: str, expected: int) -> None:
    """Looking at accesses takes a launch to one thread."""
    module = open_device("emu:gfx90a").load(build_kernels("checks", "gfx90a"))
    code = module.code(64)
    findings = FindingSet(kinds_of_init([init]))
    assert LaunchChecks(findings, code, kernel_code(code, "anti", module.object)).what == expected


def test_earlier_names_and_unknown_ones(build_kernels: Callable[[str, str], Path]) -> None:
    device = open_device("emu:gfx90a", check=["uninitialised", "races", "bounds"])
    module = device.load(build_kernels("checks", "gfx90a"))
    source, out = device.allocate(4 * 101), device.allocate(400)
    source.write(np.arange(99, dtype=np.int32))
    only(findings(module, "sum_of_two", source, out, 100, grid=1, block=128))
    with pytest.raises(DeviceError, match="no check 'leaks'; choose from memory, race, init"):
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
        ("ds_read2st64_b32", AccessKind.READ),
        ("ds_load_b128", AccessKind.READ),
        ("ds_write_b8_d16_hi", AccessKind.WRITE),
        ("ds_store_2addr_b64", AccessKind.WRITE),
        ("ds_storexchg_rtn_b32", AccessKind.ATOMIC),
        ("ds_cmpstore_b32", AccessKind.ATOMIC),
        ("ds_add_rtn_u32", AccessKind.ATOMIC),
        ("ds_append", AccessKind.ATOMIC),
        ("global_atomic_add_f32", AccessKind.ATOMIC),
        ("global_store_dwordx4", AccessKind.WRITE),
        ("buffer_load_ubyte", AccessKind.READ),
        ("s_load_dwordx16", AccessKind.READ),
        ("s_buffer_store_dword", AccessKind.WRITE),
        ("flat_load_b32", AccessKind.READ),
    ],
)
def test_kinds(mnemonic: str, kind: AccessKind) -> None:
    assert kind_of(mnemonic) is kind
