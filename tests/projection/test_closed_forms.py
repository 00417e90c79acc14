"""Projected times of kernels whose time on a GPU is known: measured latencies, documented passes, bandwidths."""

from __future__ import annotations

from typing import Any

import luthier
import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier.emulator import KernelHandle
from luthier.errors import LuthierError
from luthier.projection import LaunchWork, MachineModel, machine_named, measure, project, project_on_each
from luthier.projection.text import explained
from msgspec.structs import replace

MACHINES = {"gfx90a": "mi250x", "gfx942": "mi300x", "gfx1100": "rx7900xtx", "gfx1201": "rx9070xt"}
LENGTH = 100


def loaded(code: str, target: str, **more: Any) -> KernelHandle:
    """Return a kernel of this code."""
    text = kernel_text(function("k", [code, "s_endpgm"]), target, **more)
    return luthier.open_device(f"emu:{target}").load(assembled(text, target)).kernel("k")


def worked(
    kernel: KernelHandle, machine: MachineModel, grid: int = 1, block: int | None = None, **more: int
) -> LaunchWork:
    """Return the work of a launch with a buffer of 64 KiB."""
    size = block or kernel.kernel.wave_size
    return measure(kernel, np.zeros(1 << 16, np.uint8), machine=machine, grid=grid, block=size, **more)


def cycles_for_each(unit: str, target: str, count: int = LENGTH, setup: str = "", **more: int) -> float:
    """Return the cycles of a wave alone that one more of these instructions takes."""
    machine = machine_named(MACHINES[target])

    def of(times: int) -> float:
        kernel = loaded("\n".join([setup, *[unit] * times]), target, **more)
        return project(worked(kernel, machine), kernel.lift(), machine).wave_cycles

    return (of(2 * count) - of(count)) / count


@pytest.mark.parametrize(
    ("target", "dependent", "independent"), [("gfx942", 4, 4), ("gfx1100", 5, 1), ("gfx1201", 5, 1)]
)
def test_adds(target: str, dependent: float, independent: float) -> None:
    """A chain of v_add_f32 takes what thread traces of GPUs show; independent ones take an issue each."""
    assert cycles_for_each("v_add_f32 v1, v1, v1", target) == dependent
    alone = "\n".join(f"v_add_f32 v{number}, v1, v1" for number in range(2, 12))
    assert cycles_for_each(alone, target, 10) == 10 * independent


@pytest.mark.parametrize(("target", "cycles"), [("gfx1100", 2), ("gfx1201", 9)])
def test_scalar_chain(target: str, cycles: float) -> None:
    """A chain of scalar operations takes what thread traces of GPUs show."""
    assert cycles_for_each("s_lshl_b32 s4, s4, 1", target) == cycles


@pytest.mark.parametrize(
    ("instruction", "passes"),
    [
        ("v_mfma_f32_32x32x8bf16_1k a[0:15], v[2:3], v[4:5], a[0:15]", 16),
        ("v_mfma_f32_4x4x4f16 a[0:3], v[2:3], v[4:5], a[0:3]", 2),
    ],
)
def test_matrix_chain(instruction: str, passes: int) -> None:
    """A chain of MFMA takes four cycles a pass: 64 of the instruction that AMD's documentation measures on MI250."""
    assert cycles_for_each(instruction, "gfx90a", agprs=32) == 4 * passes


@pytest.mark.parametrize(
    ("instruction", "cycles"),
    [
        ("v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7]", 16),
        ("v_wmma_i32_16x16x16_iu8 v[0:7], v[8:9], v[12:13], v[0:7]", 8),
    ],
)
def test_wmma_chain(instruction: str, cycles: int) -> None:
    """A chain of WMMA takes what thread traces of gfx1201 show."""
    assert cycles_for_each(instruction, "gfx1201") == cycles


def test_few_waves_are_bound_by_latency() -> None:
    """One wave that waits for each of its loads is bound by latency; the launch would take less without."""
    machine = machine_named("gfx90a").with_values({"launch_overhead": 0}, "test")
    chase = ["v_mov_b32 v1, 0", *["ds_read_b32 v1, v1\n s_waitcnt lgkmcnt(0)"] * LENGTH]
    kernel = loaded("\n".join(chase), "gfx90a", lds=1024)
    projection = project(worked(kernel, machine), kernel.lift(), machine)
    assert projection.bound_by == "latency"
    assert projection.next_us < 0.1 * projection.time_us
    assert projection.time_us == pytest.approx(projection.wave_cycles / machine.clock.value, rel=0.01)


@pytest.mark.parametrize(
    ("target", "load", "least", "most"),
    [("gfx942", "ds_read_b32", 64, 74), ("gfx1100", "ds_load_b32", 31, 33), ("gfx1201", "ds_load_b32", 31, 33)],
)
def test_pointer_chase_in_lds(target: str, load: str, least: float, most: float) -> None:
    """A chain of loads of one lane from LDS takes what was measured for one, and the issue of the wait."""
    wait = "s_wait_dscnt 0x0" if target == "gfx1201" else "s_waitcnt lgkmcnt(0)"
    cycles = cycles_for_each(f"{load} v1, v1\n {wait}", target, setup="v_mov_b32 v1, 0", lds=1024)
    assert least <= cycles <= most + 4


COPY = """
 s_lshl_b32 s4, s2, 12
 s_load_dwordx2 s[2:3], s[0:1], 0x0
 v_lshlrev_b32 v1, 4, v0
 v_add_u32 v1, s4, v1
 s_waitcnt lgkmcnt(0)
 global_load_dwordx4 v[2:5], v1, s[2:3]
 s_waitcnt vmcnt(0)
 global_store_dwordx4 v1, v[2:5], s[2:3]
"""


def copy(groups: int) -> tuple[KernelHandle, LaunchWork]:
    """Return the kernel and the work of a copy of 4 KiB in place by each work-group, on gfx90a."""
    kernel = loaded(COPY, "gfx90a", directives={"system_sgpr_workgroup_id_x": 1})
    buffer = np.zeros(groups * 4096, np.uint8)
    return kernel, measure(kernel, buffer, machine=machine_named("mi250x"), grid=groups, block=256)


def test_stream_copy() -> None:
    """A large copy takes its bytes over the bandwidth that streams get."""
    machine = machine_named("mi250x")
    groups = 1 << 14
    kernel, work = copy(groups)
    projection = project(work, kernel.lift(), machine)
    seconds = 2 * 4096 * groups / (machine.memory_bandwidth.value * machine.memory_efficiency.value * 1e9)
    assert projection.bound_by == "memory"
    memory = next(unit for unit in projection.units if unit.name == "memory")
    assert memory.busy_us == pytest.approx(seconds * 1e6, rel=0.01)
    assert seconds * 1e6 <= projection.time_us <= 1.5 * seconds * 1e6


def test_how_far_a_bound_has_to_fall() -> None:
    """The words name the instructions that move the bytes; only a memory that is that much faster is no bound."""
    machine = machine_named("mi250x")
    kernel, work = copy(1 << 14)
    projection = project(work, kernel.lift(), machine)
    words = "\n".join(explained(projection))
    assert "global_load_dwordx4" in words
    assert "bytes that L2 does not hold" in words
    assert f"{projection.next_bound} would bound it" in words
    for share, is_bound in ((projection.needed_fall + 0.01, False), (projection.needed_fall - 0.01, True)):
        faster = machine.with_values({"memory_bandwidth": machine.memory_bandwidth.value / (1 - share)}, "test")
        assert (project(work, kernel.lift(), faster).bound_by == "memory") == is_bound


def test_operations_and_bytes_are_exact() -> None:
    kernel, work = copy(64)
    projection = project(work, kernel.lift(), machine_named("mi250x"))
    assert projection.operations == 0
    assert projection.accessed_bytes == 64 * (2 * 4096 + 4 * 8)  # each wave loads the buffer's address
    kernel = loaded("\n".join(["v_fma_f32 v1, v1, v1, v1", "v_add_f32 v1, v1, v1"] * 5), "gfx1100")
    machine = machine_named("rx7900xtx")
    assert project(worked(kernel, machine, 3, 64), kernel.lift(), machine).operations == 3 * 64 * 5 * (2 + 1)


def test_a_minimised_capture_says_so() -> None:
    kernel, work = copy(4)
    projection = project(replace(work, launched_groups=100), kernel.lift(), machine_named("mi250x"))
    assert projection.launched_groups == 100
    assert any("4 of the 100 work-groups that were launched" in note for note in projection.notes)


def test_more_waves_never_cost_less() -> None:
    """The time never falls when work-groups are added, and no unit takes longer than the launch."""
    machine = machine_named("mi250x")
    kernel, work = copy(1 << 13)
    times = []
    for groups in (1, 2, 100, 110, 111, 880, 881, 3000, 1 << 13):
        projection = project(replace(work, groups=groups), kernel.lift(), machine)
        times.append(projection.time_us)
        assert all(unit.busy_us <= projection.time_us for unit in projection.units)
    assert times == sorted(times)


def test_slower_clock() -> None:
    """At half the clock, compute takes twice as long, and memory as long as before."""
    machine = machine_named("rx7900xtx").with_values({"launch_overhead": 0}, "test")
    slow = machine.with_values({"clock": machine.clock.value / 2}, "test")
    kernel = loaded("\n".join(["v_add_f32 v1, v1, v1"] * LENGTH), "gfx1100")
    work = worked(kernel, machine, 1000)
    fast_time, slow_time = (project(work, kernel.lift(), one).time_us for one in (machine, slow))
    assert slow_time == pytest.approx(2 * fast_time)
    kernel, work = copy(64)
    full = machine_named("mi250x")
    fast_copy, slow_copy = (
        next(unit.busy_us for unit in project(work, kernel.lift(), one).units if unit.name == "memory")
        for one in (full, full.with_values({"clock": full.clock.value / 2}, "test"))
    )
    assert slow_copy == pytest.approx(fast_copy)


def test_work_of_another_processor() -> None:
    """Caches of another processor are refused when work is measured."""
    with pytest.raises(LuthierError, match="the kernel is for gfx90a"):
        worked(loaded("s_nop 0", "gfx90a"), machine_named("mi300x"))


def test_machine_without_matrix_instructions() -> None:
    """A machine that does not have an instruction is refused, with what to do."""
    kernel = loaded("v_mfma_f32_4x4x4f16 a[0:3], v[2:3], v[4:5], a[0:3]", "gfx90a", agprs=32)
    work = worked(kernel, machine_named("mi250x"))
    with pytest.raises(LuthierError, match="choose a machine with MFMA"):
        project(work, kernel.lift(), machine_named("w6600"))
    machines = [machine_named(name) for name in ("w6600", "mi250x", "mi300x")]
    projections, (reason,) = project_on_each(work, kernel.lift(), machines)
    assert [projection.machine for projection in projections] == [machine.name for machine in machines[1:]]
    assert "Radeon PRO W6600" in reason


def test_names_of_one_machine() -> None:
    assert machine_named("gfx90a") == machine_named("MI250X")
