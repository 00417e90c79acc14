"""A matrix product of 8-bit floats by Triton on the emulated device, and another emulator's published times."""

from __future__ import annotations

import os
import resource
import tempfile
import time
import warnings
from collections.abc import Iterable

import numpy as np
from luthier.devices import open_device
from numpy.typing import NDArray
from run import Row

TARGET = "gfx950"
SIZE, TILE = 1024, 64
ROCJITSU = {1: 4.21, 55: 0.52}
"""Engine threads -> seconds that rocjitsu (ROCm/rocm-systems, emulation/rocjitsu) reports for this product with these
tiles on gfx950, on a workstation with 64 cores: one thread, and the best. This machine is a different one."""
RUNS = 3


def measure() -> Iterable[Row]:
    """Yield the seconds of one product by threads, and the processor's time of them all.

    The result is compared with NumPy's in 64 bits first.
    """
    try:
        code, name, block, lds, pointers = _compiled()
    except ImportError:
        return
    random = np.random.default_rng(3)
    a, b = (random.integers(0, 256, (SIZE, SIZE), np.uint8) & 0xBF for _ in range(2))  # below 2, and no NaN
    expected = _numbers(a) @ _numbers(b)
    scale = np.abs(_numbers(a)) @ np.abs(_numbers(b))
    for threads in sorted({1, os.cpu_count() or 1}):
        kernel = open_device(f"emu:{TARGET}", threads=threads).load(code).kernel(name)
        seconds, processor = [], []
        for run in range(RUNS + 1):
            c = np.zeros((SIZE, SIZE), np.float32)
            before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
            kernel.launch(a, b, c, *[0] * pointers, grid=(SIZE // TILE, SIZE // TILE), block=block, dynamic_lds=lds)
            took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
            worst = float((np.abs(c - expected) / scale).max())
            if worst > 1e-6:
                raise RuntimeError(f"the product is wrong by {worst:g} of the sum of its magnitudes")
            if run:  # the first one compiles
                seconds.append(took)
                processor.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        published = 1 if threads == 1 else max(ROCJITSU)
        peer = f"rocjitsu, published, {published} thread{'s' * (published > 1)} of 64 cores"
        what = f"{SIZE}^3 fp8 by Triton, {TILE}x{TILE} tiles, {TARGET}, {threads} thread{'s' * (threads > 1)}"
        yield Row(what, min(seconds), "s", peer, ROCJITSU[published])
        yield Row(f"  processor time of {threads} thread{'s' * (threads > 1)}", min(processor), "s")
        yield Row("  largest error, of the sum of magnitudes", worst, "")


def _numbers(bits: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return the values of FP8 (E4M3 without infinities) that are not NaN."""
    exponent, fraction = bits >> 3 & 15, (bits & 7).astype(np.float64)
    normal = np.ldexp(1 + fraction / 8, exponent.astype(np.int32) - 7)
    values = np.where(exponent == 0, np.ldexp(fraction / 8, -6), normal)
    return np.where(bits & 0x80, -values, values)


def _compiled() -> tuple[bytes, str, int, int, int]:
    """Compile the product.

    Returns:
        the code object, the kernel's name, work-items of a work-group, bytes of dynamic LDS, and how many pointers of
        its own Triton adds to the arguments.

    Raises:
        ImportError: Triton is not installed.
    """
    import triton
    from luthier.objects import load_object
    from product_kernel import matmul
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = {"a": "*fp8e4nv", "b": "*fp8e4nv", "c": "*fp32"}
    constants = {"SIZE": SIZE, "TILE": TILE, "STEP": 128}
    signature = {**names, **dict.fromkeys(constants, "constexpr")}
    attributes = {(place,): [["tt.divisibility", 16], ["tt.pointer_range", 32]] for place in range(len(names))}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ["TRITON_CACHE_DIR"] = folder
        source = ASTSource(matmul, signature, constants, attributes)
        made = triton.compile(source, target=GPUTarget("hip", TARGET, 64))
    code, name = made.asm["hsaco"], made.metadata.name
    explicit = [argument for argument in load_object(code).kernels[name].arguments if not argument.hidden]
    return code, name, made.metadata.num_warps * 64, made.metadata.shared, len(explicit) - len(names)
