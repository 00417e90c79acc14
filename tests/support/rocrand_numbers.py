"""Numbers that rocRAND's generators have to make, by the algorithms as they were published."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

WORD = (1 << 32) - 1
SEED = 20261121 << 20 | 77
COUNT = 10000


def xorwow(count: int) -> NDArray[np.uint32]:
    """Marsaglia, Xorshift RNGs (2003): a generator for each number, 2^67 steps apart: a power of the matrix of one."""

    def step(x: list[int]) -> list[int]:
        t = x[0] ^ x[0] >> 2
        return [*x[1:], (x[4] ^ x[4] << 4 ^ t ^ t << 1) & WORD]

    def bits(words: list[int]) -> NDArray[np.float32]:
        return np.array([word >> bit & 1 for word in words for bit in range(32)], np.float32)

    units = [[1 << bit if word == at else 0 for word in range(5)] for at in range(5) for bit in range(32)]
    jump = np.stack([bits(step(unit)) for unit in units], axis=1)
    for _ in range(67):
        jump = jump @ jump % 2
    first = 1228688033 * (SEED & WORD ^ 0x2C7F967F) & WORD
    second = 2073658381 * (SEED >> 32 ^ 0xA03697CB) & WORD
    start = [123456789 + first, 362436069 ^ first, 521288629 + second, 88675123 ^ second, 5783321 + first]
    state, weyl, result = bits([word & WORD for word in start]), 6615241 + first + second + 362437, []
    for _ in range(count):
        words = state.astype(np.uint64).reshape(5, 32) @ (np.uint64(1) << np.arange(32, dtype=np.uint64))
        result.append(weyl + step([int(word) for word in words])[4] & WORD)
        state = jump @ state % 2
    return np.array(result, np.uint32)


def mrg32k3a(count: int) -> NDArray[np.uint32]:
    """L'Ecuyer, Good parameters and implementations for combined multiple recursive random number generators (1999): a
    stream for each number, 2^76 steps apart; stretched to 32 bits."""
    m1, m2 = 4294967087, 4294944443

    def times(a: list[list[int]], b: list[list[int]], m: int) -> list[list[int]]:
        return [[sum(a[i][k] * b[k][j] for k in range(3)) % m for j in range(len(b[0]))] for i in range(3)]

    step1, step2 = ([[0, 1, 0], [0, 0, 1], row] for row in ([m1 - 810728, 1403580, 0], [m2 - 1370589, 0, 527612]))
    jump1, jump2 = step1, step2
    for _ in range(76):
        jump1, jump2 = times(jump1, jump1, m1), times(jump2, jump2, m2)
    x, y = SEED & WORD ^ 0x55555555, SEED >> 32 ^ 0xAAAAAAAA
    state1, state2 = ([[word * SEED % m] for word in words] for words, m in (((x, y, x), m1), ((y, x, y), m2)))
    result = []
    for _ in range(count):
        number = (times(step1, state1, m1)[2][0] - times(step2, state2, m2)[2][0]) % m1 or m1
        result.append(int((number - 1) * 1.000000048661607))
        state1, state2 = times(jump1, state1, m1), times(jump2, state2, m2)
    return np.array(result, np.uint32)


def mtgp32(count: int) -> NDArray[np.uint32]:
    """Saito and Matsumoto, Variants of Mersenne Twister suitable for graphic processors (2013): a generator for every
    256 numbers, with parameters of its own, which the header that comes with rocRAND lists."""
    text = Path("/usr/include/rocrand/rocrand_mtgp32_11213.h").read_text().partition("mtgp32dc_params_fast_11213[]")[2]
    entries = re.findall(r"/\* No\.\d+.*?\*/(.*?)UINT32_C\((0x[0-9a-f]+)\),\s*\{", text, re.S)
    seed, result = (SEED ^ SEED >> 32) & WORD, []
    for block in range(-(-count // 256)):
        body, mask = entries[block][0], int(entries[block][1], 0)
        _, position, shift1, shift2 = map(int, re.findall(r"\b(\d+),", body)[:4])
        table = [int(word, 0) for word in re.findall(r"UINT32_C\((0x[0-9a-f]+)\)", body)]
        recursion, tempering = table[:16], table[16:32]
        hidden = recursion[4] ^ recursion[8] << 16 & WORD
        filler = hidden + (hidden >> 16) & WORD
        filler = filler + (filler >> 8) & 0xFF
        state = [seed + block + 1 & WORD, hidden, *[filler * 0x01010101] * 349]
        for i in range(1, 351):
            state[i] ^= 1812433253 * (state[i - 1] ^ state[i - 1] >> 30) + i & WORD
        for i in range(256):
            x = state[i] & mask ^ state[i + 1]
            x ^= x << shift1 & WORD
            y = x ^ state[i + position] >> shift2
            state.append(y ^ recursion[y & 15])
            t = state[i + position - 1]
            t ^= t >> 16
            t ^= t >> 8
            result.append(state[-1] ^ tempering[t & 15])
    return np.array(result[:count], np.uint32)


def philox4x32_10(count: int) -> NDArray[np.uint32]:
    """Salmon and others, Parallel random numbers: as easy as 1, 2, 3 (2011): the counter is a number's over 4."""
    c = [np.arange(-(-count // 4), dtype=np.uint64), *np.zeros((3, -(-count // 4)), np.uint64)]
    mask, half = np.uint64(WORD), np.uint64(32)
    for turn in range(10):
        key = [np.uint64((SEED >> 32 * i) + turn * step & WORD) for i, step in enumerate((0x9E3779B9, 0xBB67AE85))]
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [b >> half ^ c[1] ^ key[0], b & mask, a >> half ^ c[3] ^ key[1], a & mask]
    return np.stack(c, axis=1).ravel()[:count].astype(np.uint32)


def sobol32(count: int) -> NDArray[np.uint32]:
    """Direction numbers by Joe and Kuo, as SciPy has them: one dimension after the other."""
    qmc = pytest.importorskip("scipy.stats.qmc", reason="SciPy is not installed")
    points = qmc.Sobol(SOBOL_DIMENSIONS, scramble=False, bits=32).random_base2(11)[: count // SOBOL_DIMENSIONS]
    numbers: NDArray[np.uint32] = (points.T.ravel() * 2.0**32).astype(np.uint32)
    return numbers


SOBOL_DIMENSIONS = 5
GENERATORS: Mapping[str, tuple[int, Callable[[int], NDArray[np.uint32]], int]] = {
    "XORWOW": (401, xorwow, 2000),
    "MRG32k3a": (402, mrg32k3a, 2000),
    "MTGP32": (403, mtgp32, COUNT),
    "Philox": (404, philox4x32_10, COUNT),
    "Sobol": (501, sobol32, COUNT),
}
"""rocRAND's number of each, the published algorithm, and how many of the first numbers are compared."""


@functools.cache
def published(name: str) -> NDArray[np.uint32]:
    """Return the first numbers of a generator."""
    _, algorithm, compared = GENERATORS[name]
    return algorithm(compared)
