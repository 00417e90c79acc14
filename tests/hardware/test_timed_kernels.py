"""Readers of published times, their launches, and measures of agreement (benchmarks/projection)."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest
from agreement import agreement, best_constant, halves
from kernel_launches import SOURCES, KernelLaunch, Zeros, source_of
from luthier.errors import LuthierError
from measure_kernels import KernelMeter, drawn
from timed_kernels import (
    MEASURED,
    MEASURED_GFX950,
    MEASURED_MI300X,
    SIMULATED,
    TimedKernel,
    aiter,
    benchmark_hub,
    mgpusim,
    mgpusim_mi300x,
)

FIR = """
#include <hip/hip_runtime.h>
__global__ void FIR(float *out, float *factors, float *in, float *past, unsigned taps) {
  float sum = 0;
  for (unsigned i = 0; i < taps; i++)
    sum += factors[i] * in[threadIdx.x];
  out[threadIdx.x] = sum;
}
"""
KEYS = ["block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "use_shmem"]


def hub_checkout(folder: Path, cache: object) -> Path:
    """Return a folder like a checkout of benchmark_hub, with one file of times."""
    path = folder / "cachefiles/convolution_milo/MI250X.json.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(json.dumps(cache).encode()))
    return folder


def launches(name: str, parameters: dict[str, int]) -> list[KernelLaunch]:
    """Return the launches of a kernel."""
    return list(source_of(TimedKernel(name, "", "", parameters, 1.0)).launches(parameters))


def test_configurations_are_read(tmp_path: Path) -> None:
    """Failed configurations, and those that the published source does not describe, are left out."""
    rows = {
        "a": dict(zip(KEYS, (16, 4, 3, 1, 1), strict=True), time=1.5, times=[1.5]),
        "b": dict(zip(KEYS, (16, 4, 3, 1, 0), strict=True), time=2.5),
        "c": dict(zip(KEYS, (32, 4, 3, 1, 1), strict=True), time="InvalidConfig"),
    }
    checkout = hub_checkout(tmp_path, {"tune_params_keys": KEYS, "cache": rows})
    (kernel,) = benchmark_hub(checkout, "convolution", "MI250X")
    assert (kernel.time_ms, kernel.label, kernel.simulated_ms) == (1.5, "16-4-3-1-1", None)
    (launch,) = launches("convolution", dict(kernel.parameters))
    assert (launch.grid, launch.block) == ((86, 1024), (16, 4))  # 4096 / 48, rounded up


@pytest.mark.parametrize("cache", [[], {"cache": {}}, {"tune_params_keys": KEYS, "cache": {"a": {"time": 1.0}}}])
def test_other_files_are_refused(tmp_path: Path, cache: object) -> None:
    with pytest.raises(LuthierError, match="is not a cache file of Kernel Tuner"):
        list(benchmark_hub(hub_checkout(tmp_path, cache), "convolution", "MI250X"))
    with pytest.raises(LuthierError, match=r"cannot read .*W6600.json.gz: No such file"):
        list(benchmark_hub(tmp_path, "convolution", "W6600"))


def test_programs_of_the_mi300x_are_read(tmp_path: Path) -> None:
    """Rows that differ in names or fractions alone are one launch."""
    header = "benchmark,scaling_param_name,scaling_param_value,non_scaling_json,kernel_ms_mean,n_reps\n"
    rows = [
        f'polybench_3dconv,size,20,"{{""block_size"":8,""filter_size"":3,""scale"":{scale}}}",{time},3\n'
        for scale, time in (('""half""', 1), (0.5, 2))
    ]
    path = tmp_path / MEASURED_MI300X
    path.parent.mkdir(parents=True)
    path.write_text(header + "".join(rows))
    (kernel,) = mgpusim_mi300x(tmp_path)
    assert (kernel.time_ms, kernel.label, kernel.gpu) == (2.0, "20-8-3", "MI300X")
    (launch,) = launches(kernel.name, dict(kernel.parameters))
    assert (launch.grid, launch.block, launch.arguments[-2:]) == ((3, 3, 3), (8, 8, 8), (20, 3))
    for values, message in (
        ("many,{}", "parameters of fir are not numbers"),
        ("1,[]", "parameters of fir are not numbers"),
        ("1,{}", "kernel_ms_mean must be a number, not 'soon'"),
    ):
        path.write_text(f"{header}fir,size,{values},soon,3\n")
        with pytest.raises(LuthierError, match=message):
            list(mgpusim_mi300x(tmp_path))


def test_kernels_in_assembly_are_read(tmp_path: Path) -> None:
    """Rows of other kernels, other GPUs and split products are left out; the launch is that of aiter's host code."""
    name = "_ZN5aiter41f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128E"
    rows = [
        f"gfx950,256,40,200,512,0,3.5,{name}\n",
        f"gfx942,256,40,200,512,0,4,{name}\n",
        f"gfx950,256,40,200,512,1,4,{name}\n",
        "gfx950,256,40,200,512,0,4,another\n",
    ]
    path = tmp_path / MEASURED_GFX950
    path.parent.mkdir(parents=True)
    path.write_text("gfx,cu_num,M,N,K,splitK,us,kernelName\n" + "".join(rows))
    (kernel,) = aiter(tmp_path)
    assert (kernel.time_ms, kernel.label, kernel.gpu) == (0.0035, "40-200-512-32-128", "MI350X")
    (launch,) = launches(kernel.name, dict(kernel.parameters))
    assert (launch.kernel, launch.grid, launch.block) == (name, (2, 2), (256, 1))
    sizes = [argument for argument in launch.arguments if not isinstance(argument, Zeros)]
    assert len(launch.arguments) == 84  # of the kernel
    assert [value for value in sizes if value] == [1.0, 200, 512, 512, 40, 200, 512, 16, 16]


def test_programs_are_read_with_simulated_times(tmp_path: Path) -> None:
    (tmp_path / MEASURED).parent.mkdir()
    (tmp_path / MEASURED).write_text("kernel_name,problem_size,avg_ms\nfir,1024_taps8,0.5\nfir,4096_taps16,2\n")
    (tmp_path / SIMULATED).write_text("kernel_name,problem_size,sim_ms\nfir,1024_taps8,0.25\nfir,4096_taps16,\n")
    first, second = mgpusim(tmp_path)
    assert (first.time_ms, first.simulated_ms, first.gpu) == (0.5, 0.25, "MI300A")
    assert (second.time_ms, second.simulated_ms, list(second.parameters.values())) == (2.0, None, [4096, 16])
    (launch,) = launches("fir", dict(second.parameters))
    assert (launch.grid, launch.block, launch.arguments[-1]) == ((16, 1), (256, 1), 16)
    (tmp_path / MEASURED).write_text("kernel_name,problem_size,avg_ms\nfir,1024_taps8,soon\n")
    with pytest.raises(LuthierError, match="avg_ms must be a number, not 'soon'"):
        list(mgpusim(tmp_path))
    (tmp_path / MEASURED).write_text("name\nfir\n")
    with pytest.raises(LuthierError, match="has no column kernel_name"):
        list(mgpusim(tmp_path))


def test_work_items_cover_the_problem() -> None:
    """The last work-group may be incomplete; buffers are as large as the host program's."""
    (multiplication,) = launches("matrixmultiplication", {"m": 64, "k": 64, "n": 64})
    assert (multiplication.grid, multiplication.block) == ((2, 2), (8, 8))  # a work-item computes 4 x 4
    columns, product = launches("conv2d", dict(zip("abcdefg", (1, 1, 8, 8, 3, 3, 3), strict=True)))
    assert columns.arguments[:2] == (Zeros(4 * 64), Zeros(4 * 9 * 36))
    assert (product.grid, product.arguments[:3]) == ((3, 1), (3, 36, 9))
    assert [launch.kernel for launch in launches("atax", {"n": 512, "m": 512})] == ["atax_kernel1", "atax_kernel2"]
    with pytest.raises(LuthierError, match="launches of nonsense are not described; there are convolution"):
        launches("nonsense", {})


def test_pragmas_are_removed_as_the_tuner_does(tmp_path: Path) -> None:
    source = SOURCES["dedispersion"]
    path = tmp_path / source.file
    path.parent.mkdir(parents=True)
    text = "a\n   #pragma unroll loop_unroll_factor_channel\n#pragma unroll\nb\n"
    path.write_text(text)
    assert source.text(tmp_path, {"loop_unroll_factor_channel": 0}).endswith("a\n\n#pragma unroll\nb\n")
    unrolled = "#include <hip/hip_runtime.h>\n#define loop_unroll_factor_channel 4\n"
    assert source.text(tmp_path, {"loop_unroll_factor_channel": 4}) == unrolled + text


def test_kernels_are_measured_once(tmp_path: Path) -> None:
    """A configuration is compiled, run and kept; a file of another version is refused."""
    source = tmp_path / SOURCES["fir"].file
    source.parent.mkdir()
    source.write_text(FIR)
    kernel = TimedKernel("fir", "MI300A", "1024_taps8", {"n0": 1024, "n1": 8}, 1.0)
    meter = KernelMeter(tmp_path, tmp_path / "cache", "MI300A")
    first = meter.measured(kernel)
    assert (first.works[0].groups, first.works[0].items) == (4, 256)
    assert first.buffers == [2 * 4 * 1024 + 2 * 4 * 8]
    source.unlink()  # it is not needed again
    again = KernelMeter(tmp_path, tmp_path / "cache", "MI300A").measured(kernel)
    assert again.works[0].samples[0].table == first.works[0].samples[0].table
    meter.path(kernel, ".json").write_text('{"compiler": "old"}')
    with pytest.raises(LuthierError, match="is damaged or of another version"):
        meter.measured(kernel)


def test_draws_are_the_same_on_every_gpu() -> None:
    kernels = [TimedKernel("fir", "", str(number), {}, 1.0) for number in range(50)]
    few, many = drawn(kernels, 10), drawn(reversed(kernels), 20)
    assert many[:10] == few
    assert few != kernels[:10]
    assert drawn([kernel for kernel in kernels if kernel not in few[:3]], 7) == few[3:]


def test_agreement_of_a_few_times() -> None:
    result = agreement([1, 2, 3, 8], [2, 1, 4, 8])
    assert result.rank_correlation == pytest.approx(0.8)  # 1 - 6 (1 + 1) / (4 (16 - 1))
    assert result.mean_error == pytest.approx((1 / 2 + 1 + 1 / 4 + 0) / 4)
    assert result.weighted_error == pytest.approx(3 / 15)
    assert result.median_ratio == pytest.approx((3 / 4 + 1) / 2)
    assert result.fastest_among == 0.5  # the projected fastest takes 2, the second shortest of four
    assert math.isnan(agreement([1, 2], [1, 2]).rank_correlation)
    assert agreement([5, 5, 5], [1, 2, 3]).fastest_among == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [([], "at least one"), ([1, 0], "not 0.0"), ([1, math.nan], "not nan"), ([1], "1 projected times")],
)
def test_no_agreement_of_other_things(wrong: list[float], message: str) -> None:
    with pytest.raises(LuthierError, match=message):
        agreement(wrong, [1, 2])
    with pytest.raises(LuthierError, match=message):
        best_constant(wrong, [1, 2])


def test_the_best_constant_is_the_best() -> None:
    projected, measured = [1.0, 2, 3, 5, 9], [4.0, 7, 5, 21, 10]
    best = best_constant(projected, measured)

    def error(factor: float) -> float:
        return agreement([factor * time for time in projected], measured).mean_error

    assert error(best) <= min(error(factor / 1000) for factor in range(500, 5000))
    assert best_constant([1, 2, 3], [2, 4, 6]) == 2


def test_halves_share_nothing() -> None:
    first, second = halves(7, 1)
    assert sorted([*first, *second]) == list(range(7))
    assert (len(first), len(second)) == (3, 4)
    assert (first, second) == halves(7, 1) != halves(7, 2)
