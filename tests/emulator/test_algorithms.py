"""Whole algorithms: the same source on every target, unoptimized and optimized, and on the host; equal to the bit.

`make test-all` runs every target at every level.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import zlib
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from effort import EMULATED, EVERYTHING
from luthier.devices import open_device
from luthier.emulator import Module
from numpy.typing import NDArray

from luthier_build.toolchain import Toolchain

pytestmark = pytest.mark.rows()

WAVE64 = ("-mwavefrontsize64", "-U__AMDGCN_WAVEFRONT_SIZE", "-D__AMDGCN_WAVEFRONT_SIZE=64")
TARGETS = [*EMULATED, "gfx1250", "gfx1100 wave64", "gfx1201 wave64"]
LEVELS = ("-O0", "-O3")
CASES = [(target, LEVELS[(index + index // 5) % 2]) for index, target in enumerate(TARGETS)]
if EVERYTHING:
    CASES = [(target, level) for target in TARGETS for level in (*LEVELS, "-O1", "-Os")]
RANDOM = np.random.default_rng(int(os.environ.get("LUTHIER_SEED", "12")))
ITEMS, GROUPS = 80, 3

SIZES = {  # words in and out, of an item or a group
    "sha256": (16, 8),
    "linear_system": (42, 13),
    "string_search": (27, 9),
    "big_powers": (9, 8),
    "edit_distance": (8, 1),
    "quicksort": (24, 24),
    "interpreter": (16, 18),
    "mandelbrot": (2, 3),
    "encodings": (12, 18),
    "primes": (4, 4),
}
GROUP_SIZES = {
    "aes128": (260, 256),
    "fourier": (384, 256),
    "bodies": (192, 192),
    "radix_sort": (256, 256),
    "life": (128, 128),
    "network": (64 + 1024, 64),
}


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}{case[1]}".replace(" ", "-"))
def module(request: pytest.FixtureRequest, build_kernels: Callable[..., Path]) -> Module:
    target, level = request.param
    processor, _, wave = target.partition(" ")
    path = build_kernels("algorithms", processor, level, *(WAVE64 if wave else ()))
    return open_device(f"emu:{processor}").load(path)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    source = Path(__file__).parent / "kernels" / "algorithms.hip"
    output = tmp_path_factory.mktemp("host") / "algorithms.so"
    command = [Toolchain.find().clang, "-x", "c++", "-O1", "-ffp-contract=off", "-fwrapv", "-fPIC", "-shared"]
    subprocess.run([str(part) for part in [*command, source, "-o", output]], check=True)
    return ctypes.CDLL(str(output))


def problem(name: str) -> NDArray[np.uint32]:
    """Input words, a row an item or a group; the same in every test."""
    random = np.random.default_rng([*name.encode(), 12])
    words = (SIZES | GROUP_SIZES)[name][0]
    rows = random.integers(0, 1 << 32, (ITEMS if name in SIZES else GROUPS, words), np.uint32)
    if name == "fourier":
        turns = np.exp(-2j * np.pi * np.arange(64) / 128)
        roots = np.stack([turns.real, turns.imag], axis=1).astype(np.float32).ravel()
        rows[:, :256] = random.standard_normal((GROUPS, 256)).astype(np.float32).view(np.uint32)
        rows[:, 256:] = roots.view(np.uint32)
    return rows


@pytest.mark.rows(1)
@pytest.mark.parametrize("name", [*SIZES, *GROUP_SIZES])
def test_same_as_on_the_host(module: Module, host: ctypes.CDLL, name: str) -> None:
    inputs, outputs = (SIZES | GROUP_SIZES)[name]
    given = problem(name)
    expected = np.zeros((len(given), outputs), np.uint32)
    actual = np.zeros_like(expected)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (given, expected)]
    getattr(host, name)(*pointers, inputs, outputs, len(given))
    grid, block = (2, 64) if name in SIZES else (GROUPS, 64)
    module.kernel(name).launch(given, actual, inputs, outputs, len(given), grid=grid, block=block)
    assert expected.any()
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.rows(1)
def test_no_instruction_is_refused(module: Module) -> None:
    """Also in code that these inputs do not reach; of unoptimized kernels, which are long, a few on each target."""
    names = list(module.object.kernels)
    long = len(module.object.data) > 100_000 and not EVERYTHING
    for name in RANDOM.permutation(names)[:3] if long else names:
        assert module.kernel(str(name)).refused() == {}


def test_against_other_implementations(host: ctypes.CDLL) -> None:
    """Compare the host's results with Python's libraries, to validate the source."""

    def run(name: str) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        inputs, outputs = (SIZES | GROUP_SIZES)[name]
        given = problem(name)
        actual = np.zeros((len(given), outputs), np.uint32)
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (given, actual)]
        getattr(host, name)(*pointers, inputs, outputs, len(given))
        return given, actual

    given, actual = run("sha256")
    assert [row.tobytes() for row in actual] == [hashlib.sha256(row.tobytes()).digest() for row in given]
    given, actual = run("encodings")
    for row, result in zip(given, actual, strict=True):
        assert result[0] == zlib.crc32(row.tobytes())
        assert result[1:17].tobytes() == b64encode(row.tobytes())
    for name in ("quicksort", "radix_sort"):
        given, actual = run(name)
        kind = np.int32 if name == "quicksort" else np.uint32
        assert np.array_equal(actual.view(kind), np.sort(given.view(kind), axis=1))
    given, actual = run("fourier")
    waves = given[:, :256].view(np.float32).astype(np.float64).view(np.complex128)
    np.testing.assert_allclose(
        actual.view(np.float32).astype(np.float64).view(np.complex128), np.fft.fft(waves), rtol=0, atol=1e-4
    )
    given, actual = run("big_powers")
    for row, result in zip(given, actual, strict=True):
        base, power = int.from_bytes(row[:8].tobytes(), "little"), int(row[8]) >> 12
        modulus = (1 << 255) - 19
        assert (int.from_bytes(result.tobytes(), "little") - pow(base, power, modulus)) % modulus == 0
    given, actual = run("linear_system")
    for row, result in zip(given.view(np.int32), actual, strict=True):
        x = np.linalg.solve(row[:36].reshape(6, 6) / 1048576.0, row[36:] / 65536.0)
        np.testing.assert_allclose(result[:12].view(np.float64), x, rtol=1e-6)
