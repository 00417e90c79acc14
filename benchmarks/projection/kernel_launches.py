"""Say how each timed kernel is compiled and launched."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from luthier.errors import LuthierError
from msgspec import Struct
from numpy.typing import NDArray
from timed_kernels import TimedKernel, read_file

Grid = tuple[int, ...]


class Zeros(Struct, frozen=True):
    """A buffer whose contents do not matter to addresses and branches."""

    size: int
    """Bytes."""


class KernelLaunch(Struct, frozen=True, eq=False):
    """A launch of a kernel."""

    kernel: str
    """Its name in the source; in the code object it may be mangled."""
    arguments: Sequence[Zeros | NDArray[Any] | int | float | bytes]
    grid: Grid
    """Work-groups."""
    block: Grid
    """Work-items of a work-group."""
    dynamic_lds: int = 0


class KernelSource(Struct, frozen=True):
    """A file of a checkout with kernels, and how it is launched for the parameters of a timed kernel."""

    file: str
    launches: Callable[[Mapping[str, int]], Iterator[KernelLaunch]]
    flags: tuple[str, ...]
    defines: bool = False
    """The parameters are macros, so that each configuration is compiled by itself."""
    pragmas: str = ""
    """Prefix of parameters that Kernel Tuner removes with their ``#pragma unroll`` if they are 0."""
    memsets: int = 0
    """Times that the measured time includes a memset of a small buffer."""
    is_compiled: bool = True
    """False: the file is a code object; its name may have parameters in braces."""

    def text(self, checkout: Path, parameters: Mapping[str, int]) -> str:
        """Return the source as it is compiled.

        Raises:
            LuthierError: the checkout has no such file.
        """
        text = read_file(checkout / self.file).decode()
        for name, value in parameters.items():
            if self.pragmas and name.startswith(self.pragmas) and value == 0:
                text = re.sub(rf"\n\s*#pragma\s+unroll\s+{name}\b", "\n", text)
        if not self.defines:
            return text
        # As flags, macros would be of the compiler's headers too, so that no two configurations shared those.
        macros = "".join(f"#define {name} {value}\n" for name, value in parameters.items())
        return f"#include <hip/hip_runtime.h>\n{macros}{text}"

    def flags_of(self, checkout: Path) -> list[str]:
        """Return the compiler's flags."""
        return [*self.flags, "-w", f"-I{(checkout / self.file).parent}"]


def source_of(kernel: TimedKernel) -> KernelSource:
    """Return how a timed kernel is compiled and launched.

    Raises:
        LuthierError: it is not known.
    """
    if kernel.name not in SOURCES:
        raise LuthierError(f"launches of {kernel.name} are not described; there are {', '.join(SOURCES)}")
    return SOURCES[kernel.name]


def _blocks(elements: int, block: int = 256) -> Grid:
    return -(-elements // block), 1


# benchmark_hub: sizes and arguments are those of kernels/*_milo.py ----------------------------------------------------


def _tuned(parameters: Mapping[str, int], width: int, height: int) -> tuple[Grid, Grid]:
    """Return grid and block of a launch of Kernel Tuner."""
    block = parameters["block_size_x"], parameters["block_size_y"]
    x, y = block[0] * parameters["tile_size_x"], block[1] * parameters["tile_size_y"]
    return (math.ceil(width / x), math.ceil(height / y)), block


def _convolution(parameters: Mapping[str, int]) -> Iterator[KernelLaunch]:
    image, border = 4096, 14
    buffers = Zeros(4 * image**2), Zeros(4 * (image + border) ** 2), Zeros(4 * (border + 1) ** 2)
    yield KernelLaunch("convolution_kernel", buffers, *_tuned(parameters, image, image))


def _dedispersion(parameters: Mapping[str, int]) -> Iterator[KernelLaunch]:
    channels, samples, shift, trials = 1536, 25000, 650, 2048
    # Delays in samples: 4148.808 (f^-2 - f_max^-2) seconds over the time of a sample.
    frequency = 1425.0 + 0.1953125 * np.arange(channels)
    shifts = (4148.808 / 0.00004096 * (frequency**-2 - frequency[-1] ** -2)).astype(np.float32)
    buffers = Zeros(channels * (samples + shift)), Zeros(4 * samples * trials), shifts
    yield KernelLaunch("dedispersion_kernel", buffers, *_tuned(parameters, samples, trials))


# MGPUSim's programs: each describes the launches of its main function -------------------------------------------------


def _vectoradd(n: int) -> Iterator[KernelLaunch]:
    yield KernelLaunch("vectoradd_float", (Zeros(4 * n), Zeros(4 * n), Zeros(4 * n), n, 1), _blocks(n), (256, 1))


def _relu(n: int) -> Iterator[KernelLaunch]:
    yield KernelLaunch("ReLUForward", (n, Zeros(4 * n), Zeros(4 * n)), _blocks(n), (256, 1))


def _matrixtranspose(n: int, _: int) -> Iterator[KernelLaunch]:
    quads, groups = n // 4, n // 64
    arguments = Zeros(4 * n * n), Zeros(4 * n * n), 0, quads, quads, groups, 0, 0
    yield KernelLaunch("matrixTranspose", arguments, (groups, groups), (16, 16), 16 * 16 * 16 * 4)


def _fir(n: int, taps: int) -> Iterator[KernelLaunch]:
    yield KernelLaunch(
        "FIR", (Zeros(4 * n), Zeros(4 * taps), Zeros(4 * n), Zeros(4 * taps), taps), _blocks(n), (256, 1)
    )


def _simpleconvolution(n: int, _: int, mask: int) -> Iterator[KernelLaunch]:
    wide = n + mask - 1
    arguments = Zeros(4 * wide * wide), Zeros(4 * mask * mask), Zeros(4 * n * n), n, n, mask, mask, wide
    yield KernelLaunch("simpleNonSeparableConvolution", arguments, _blocks(n * n, 64), (64, 1))


def _stencil2d(n: int, _: int) -> Iterator[KernelLaunch]:
    size = 4 * (n + 2) * (-(-(n + 2) // 16) * 16)
    arguments = Zeros(size), Zeros(size), 16, 0.25, 0.15, 0.05
    yield KernelLaunch("StencilKernel", arguments, (n // 16, n // 64), (1, 64))


def _kmeans(points: int, features: int, clusters: int) -> Iterator[KernelLaunch]:
    buffers = Zeros(4 * points * features), Zeros(4 * clusters * features), Zeros(4 * points)
    sizes = points, clusters, features, 0, points
    yield KernelLaunch("kmeans_kernel_compute", (*buffers, *sizes), _blocks(points), (256, 1))


def _nbody(n: int) -> Iterator[KernelLaunch]:
    buffer = Zeros(16 * n)
    yield KernelLaunch("nbody_sim", (buffer, buffer, n, 0.005, 50.0, *[buffer] * 3), _blocks(n), (256, 1))


def _two_passes(first: str, second: str) -> Callable[[int, int], Iterator[KernelLaunch]]:
    def launches(n: int, _: int) -> Iterator[KernelLaunch]:
        arguments = Zeros(4 * n * n), Zeros(4 * n), Zeros(4 * n), n, n
        yield KernelLaunch(first, arguments, _blocks(n), (256, 1))
        yield KernelLaunch(second, arguments, _blocks(n), (256, 1))

    return launches


def _matrixmultiplication(n: int, _: int, __: int) -> Iterator[KernelLaunch]:
    matrix, groups = Zeros(4 * n * n), n // 32
    buffers = matrix, matrix, matrix, n, Zeros(max(1, groups * groups) * 256 * 16)
    yield KernelLaunch("mmmKernel_local", buffers, (groups, groups), (8, 8))


def _columns(kernel: str, n: int, mask: int) -> KernelLaunch:
    """Return the launch that writes the columns of an image of one channel."""
    field = n - mask + 1
    pairs = (struct.pack("<II", value, value) for value in (n, mask, 1, 0, 1))
    buffers = Zeros(4 * n * n), Zeros(4 * mask * mask * field * field)
    return KernelLaunch(kernel, (*buffers, *pairs, 1, 1), _blocks(field * field), (256, 1))


def _im2col(_: int, __: int, n: int, ___: int, mask: int, ____: int) -> Iterator[KernelLaunch]:
    yield _columns("im2col", n, mask)


def _conv2d(_: int, __: int, n: int, ___: int, mask: int, ____: int, out: int) -> Iterator[KernelLaunch]:
    yield _columns("im2col_kernel", n, mask)
    columns, depth, tile = (n - mask + 1) ** 2, mask * mask, 16
    buffers = (
        Zeros(4 * out * depth),
        Zeros(4 * depth * columns),
        Zeros(4 * out * columns),
        Zeros(4 * tile * (columns + tile)),
    )
    grid = -(-columns // tile), -(-out // tile)
    yield KernelLaunch("gemm", (out, columns, depth, 1.0, 0.0, *buffers), grid, (tile, tile))


def _fft(n: int) -> Iterator[KernelLaunch]:
    yield KernelLaunch("fft1D_512", (Zeros(8 * n),), _blocks(n, 512), (64, 1))


def _spmv(rows: int, _: int, entries: int) -> Iterator[KernelLaunch]:
    each = entries // rows
    columns = ((np.arange(rows)[:, None] + np.arange(each)) % rows).astype(np.int32).ravel()
    starts = (np.arange(rows + 1) * each).astype(np.int32)
    arguments = Zeros(4 * entries), Zeros(4 * rows), columns, starts, rows, Zeros(4 * rows)
    yield KernelLaunch("spmv_csr_scalar_kernel", arguments, _blocks(rows), (256, 1))


# Programs that MGPUSim's repository has times of on an MI300X. Their kernels have no branches that depend on data -----


def _squares(n: int, block: int = 16) -> tuple[Grid, Grid]:
    """Return grid and block of a launch with a work-item for each element of a square."""
    return (-(-n // block),) * 2, (block, block)


def _sgemm(sizes: Mapping[str, int]) -> Iterator[KernelLaunch]:
    n = sizes["size"]
    yield KernelLaunch("sgemm_kernel", (*[Zeros(4 * n * n)] * 3, n, 1.5, 1.2), *_squares(n))


def _convolution_2d(sizes: Mapping[str, int]) -> Iterator[KernelLaunch]:
    n = sizes["size"]
    yield KernelLaunch("convolution2D_kernel", (*[Zeros(4 * n * n)] * 2, n, n), *_squares(n))


def _convolution_3d(sizes: Mapping[str, int]) -> Iterator[KernelLaunch]:
    n, mask, block = sizes["size"], sizes["filter_size"], sizes["block_size"]
    buffers = Zeros(4 * n**3), Zeros(4 * mask**3), Zeros(4 * n**3)
    yield KernelLaunch("conv3d_kernel", (*buffers, n, mask), (-(-n // block),) * 3, (block,) * 3)


def _syr2k(sizes: Mapping[str, int]) -> Iterator[KernelLaunch]:
    n, inner = sizes["matrix_size"], sizes["inner_size"]
    buffers = Zeros(4 * n * inner), Zeros(4 * n * inner), Zeros(4 * n * n)
    yield KernelLaunch("syr2k_kernel", (*buffers, n, inner, 1.5, 1.2), *_squares(n))


def _black_scholes(sizes: Mapping[str, int]) -> Iterator[KernelLaunch]:
    n, block = sizes["size"], sizes["block_size"]
    buffer = Zeros(4 * n)
    yield KernelLaunch("blackscholes_kernel", (*[buffer] * 4, 0.02, buffer, buffer, n), _blocks(n, block), (block, 1))


# Kernels of aiter in assembly -----------------------------------------------------------------------------------------


def _f4gemm(sizes: Mapping[str, int]) -> Iterator[KernelLaunch]:
    m, n, k, tile_m, tile_n = sizes.values()
    padded = 4096
    scales = [Zeros(-(-rows // 256) * 256 * k // 32 + padded) for rows in (m, n)]
    values: list[Zeros | int | float] = [Zeros(size + padded) for size in (2 * m * n, 0, m * k // 2, n * k // 2)]
    values += [1.0, 0.0, 0, 0, n, 0, k, 0, k, 0, m, n, k, *scales, k // 32, 0, k // 32, 0, 0]
    arguments: list[Zeros | NDArray[Any] | int | float | bytes] = []
    for value in values:
        arguments += [value, 0] if isinstance(value, Zeros) else [value, 0, 0, 0]
    name = f"f4gemm_bf16_per1x32Fp4_BpreShuffle_{tile_m}x{tile_n}"
    yield KernelLaunch(f"_ZN5aiter{len(name)}{name}E", arguments, (-(-n // tile_n), -(-m // tile_m)), (256, 1))


def _second_tier(name: str, launches: Callable[[Mapping[str, int]], Iterator[KernelLaunch]]) -> KernelSource:
    return KernelSource(f"benchmarks/tier2/{name}/{name}.hip", launches, ("-O3",))


def _program(name: str, launches: Callable[..., Iterator[KernelLaunch]], memsets: int = 0) -> KernelSource:
    return KernelSource(
        f"gpu_perf_scripts/{name}.cpp", lambda sizes: launches(*sizes.values()), ("-O2",), memsets=memsets
    )


SOURCES: Mapping[str, KernelSource] = {
    "convolution": KernelSource(
        "kernels/convolution_milo.cu.hip", _convolution, ("-O3", "-Dkernel_tuner"), defines=True
    ),
    "dedispersion": KernelSource(
        "kernels/dedisp_milo/dedispersion.cu.hip",
        _dedispersion,
        ("-O3", "-Dkernel_tuner"),
        defines=True,
        pragmas="loop_unroll_factor",
    ),
    "vectoradd": _program("vectoradd", _vectoradd),
    "relu": _program("relu", _relu),
    "matrixtranspose": _program("matrixtranspose", _matrixtranspose),
    "fir": _program("fir", _fir),
    "simpleconvolution": _program("simpleconvolution", _simpleconvolution),
    "stencil2d": _program("stencil2d", _stencil2d),
    "kmeans": _program("kmeans", _kmeans),
    "nbody": _program("nbody", _nbody),
    "atax": _program("atax", _two_passes("atax_kernel1", "atax_kernel2"), memsets=2),
    "bicg": _program("bicg", _two_passes("bicgKernel1", "bicgKernel2")),
    "matrixmultiplication": _program("matrixmultiplication", _matrixmultiplication),
    "im2col": _program("im2col", _im2col),
    "conv2d": _program("conv2d", _conv2d),
    "fft1D_512": _program("fft", _fft),
    "spmv_csr_scalar": _program("spmv", _spmv),
    "parboil_sgemm": _second_tier("parboil_sgemm", _sgemm),
    "polybench_2dconv": _second_tier("polybench_2dconv", _convolution_2d),
    "polybench_3dconv": _second_tier("polybench_3dconv", _convolution_3d),
    "polybench_syr2k": _second_tier("polybench_syr2k", _syr2k),
    "tango_blackscholes": _second_tier("tango_blackscholes", _black_scholes),
    "f4gemm": KernelSource(
        "hsa/gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_{tile_m}x{tile_n}.co", _f4gemm, (), is_compiled=False
    ),
}
"""How kernels are compiled and launched. Programs of MGPUSim are not here if their time includes copies from the host
(fastwalshtransform, floydwarshall), or if what they execute depends on data that host code prepares."""
