"""Read published measured times of kernels.

Nothing of these records is in this repository: a reader takes the folder of a checkout that the user made.

- `benchmark_hub`: https://github.com/AutoTuningAssociation/benchmark_hub (MIT), "FAIR Benchmark Hub", doi
  10.5281/zenodo.15364124: the configurations of two kernels, each timed 32 times on each GPU.
- `mgpusim`: https://github.com/sarchlab/mgpusim (MIT), ``gpu_perf_scripts``: programs timed on an MI300A for several
  problem sizes, and for some of them the time that the simulator MGPUSim gives.
- `mgpusim_mi300x`: other programs that the same repository has times of, on an MI300X.
- `aiter`: https://github.com/ROCm/aiter (MIT): products of matrices of 4-bit numbers by kernels in assembly, whose code
  objects are in the repository, each timed for the sizes for which it is the fastest.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from luthier.errors import LuthierError
from msgspec import Struct

HUB = {"convolution": {"use_shmem": 1}, "dedispersion": dict[str, int]()}
"""Kernel of benchmark_hub -> parameters of the configurations that the published source describes. The others are of a
version that is not published."""
MEASURED = "gpu_perf_scripts/mi300a.csv"
SIMULATED = "gpu_perf_scripts/comparison_m9.1_v2.csv"
MEASURED_GFX950 = "aiter/configs/a4w4_blockscale_tuned_gemm.csv"
MEASURED_MI300X = "gpu_perf_scripts/calibration/mi300x_ground_truth.csv"


class TimedKernel(Struct, frozen=True):
    """A kernel, or a few of a program, measured in one configuration."""

    name: str
    """Of the kernel or program, in the records."""
    gpu: str
    label: str
    """Of the configuration, unique for the kernel."""
    parameters: Mapping[str, int]
    time_ms: float
    """Mean of the published runs."""
    simulated_ms: float | None = None
    """Published time of a simulator."""

    @property
    def key(self) -> tuple[str, str]:
        """Return what names the configuration among all of a GPU."""
        return self.name, self.label


def read_file(path: Path) -> bytes:
    """Return the contents of a file of a checkout.

    Raises:
        LuthierError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as problem:
        raise LuthierError(
            f"cannot read {path}: {problem.strerror}. Name the folder of a complete checkout, see benchmarks/README.md"
        ) from problem


def benchmark_hub(checkout: Path, name: str, gpu: str) -> Iterator[TimedKernel]:
    """Yield the configurations of a kernel that were timed on a GPU, in the file's order.

    Configurations that failed there, or that the published source does not describe, are left out.

    Raises:
        LuthierError: the file is missing or is not in the benchmark's form.
    """
    path = checkout / f"cachefiles/{name}_milo/{gpu}.json.gz"
    try:
        document = json.loads(gzip.decompress(read_file(path)))
        keys = document["tune_params_keys"]
        for row in document["cache"].values():
            time = row["time"]
            if isinstance(time, float) and all(row[key] == value for key, value in HUB[name].items()):
                parameters = {key: row[key] for key in keys}
                yield TimedKernel(name, gpu, "-".join(map(str, parameters.values())), parameters, time)
    except (EOFError, gzip.BadGzipFile, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise LuthierError(f"{path} is not a cache file of Kernel Tuner: {problem!r}") from problem


def mgpusim(checkout: Path) -> Iterator[TimedKernel]:
    """Yield the programs and problem sizes that were timed on an MI300A, in the file's order.

    Raises:
        LuthierError: a file is missing or is not in MGPUSim's form.
    """
    simulated = {
        (row["kernel_name"], row["problem_size"]): _number(checkout / SIMULATED, row, "sim_ms")
        for row in _rows(checkout / SIMULATED, "kernel_name", "problem_size", "sim_ms")
        if row["sim_ms"]
    }
    for row in _rows(checkout / MEASURED, "kernel_name", "problem_size", "avg_ms"):
        name, size = row["kernel_name"], row["problem_size"]
        sizes = {f"n{place}": int(number) for place, number in enumerate(re.findall(r"\d+", size))}
        time = _number(checkout / MEASURED, row, "avg_ms")
        yield TimedKernel(name, "MI300A", size, sizes, time, simulated.get((name, size)))


def mgpusim_mi300x(checkout: Path) -> Iterator[TimedKernel]:
    """Yield the programs and problem sizes that were timed on an MI300X.

    Rows that differ in names or fractions alone are times of one launch, as the programs do not launch anything else
    for another precision: the last one counts.

    Raises:
        LuthierError: the file is missing or is not in MGPUSim's form.
    """
    path = checkout / MEASURED_MI300X
    columns = "benchmark", "scaling_param_name", "scaling_param_value", "non_scaling_json", "kernel_ms_mean"
    kernels: dict[tuple[str, str], TimedKernel] = {}
    for row in _rows(path, *columns):
        try:
            parameters = {row["scaling_param_name"]: int(row["scaling_param_value"])}
            parameters |= {
                key: value for key, value in json.loads(row["non_scaling_json"]).items() if type(value) is int
            }
        except (TypeError, ValueError, AttributeError) as problem:
            raise LuthierError(f"{path}: parameters of {row['benchmark']} are not numbers: {problem}") from problem
        label = "-".join(map(str, parameters.values()))
        time = _number(path, row, "kernel_ms_mean")
        kernel = TimedKernel(row["benchmark"], "MI300X", label, parameters, time)
        kernels[kernel.key] = kernel
    yield from kernels.values()


def aiter(checkout: Path) -> Iterator[TimedKernel]:
    """Yield the products of matrices that were timed on a GPU with gfx950 and 256 compute units, in the file's order.

    Raises:
        LuthierError: the file is missing or is not in aiter's form.
    """
    path = checkout / MEASURED_GFX950
    for row in _rows(path, "gfx", "cu_num", "M", "N", "K", "splitK", "us", "kernelName"):
        tiles = re.fullmatch(r"_ZN5aiter\d+f4gemm_bf16_per1x32Fp4_BpreShuffle_(\d+)x(\d+)E", row["kernelName"])
        if tiles is None or (row["gfx"], row["cu_num"], row["splitK"]) != ("gfx950", "256", "0"):
            continue
        parameters = {name: int(_number(path, row, name.upper())) for name in "mnk"}
        parameters |= {"tile_m": int(tiles[1]), "tile_n": int(tiles[2])}
        label = "-".join(map(str, parameters.values()))
        yield TimedKernel("f4gemm", "MI350X", label, parameters, _number(path, row, "us") / 1000)


def _rows(path: Path, *columns: str) -> Iterator[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(read_file(path).decode(errors="replace")))
    if missing := [column for column in columns if column not in (reader.fieldnames or ())]:
        raise LuthierError(f"{path} has no column {missing[0]}: it is not a table of MGPUSim's times")
    yield from reader


def _number(path: Path, row: Mapping[str, str], column: str) -> float:
    try:
        return float(row[column])
    except (TypeError, ValueError):
        raise LuthierError(f"{path}: {column} must be a number, not {row[column]!r}") from None
