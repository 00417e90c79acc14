"""Locations of the elements of matrix instructions in registers.

Written the way the ISA documents draw it: what a lane's elements are. (The emulator has it the other way round.)
"""

from __future__ import annotations

import re
from dataclasses import replace

from matrix_cases import Case, Place
from matrix_sums import FORMATS, bits_of, chain, fused, sum_of


def mfma(target: str, mnemonic: str, text: str = "") -> Case:
    """A dense MFMA by its name."""
    match = re.fullmatch(
        r"v_mfma_(f32|f64|i32)_(\d+)x\d+x(\d+)_?(?:(\d+)b_)?(bf16_1k|xf32|f\d+|bf16|i8|[fb][pf]8_[fb][pf]8)", mnemonic
    )
    assert match, mnemonic
    result, m, k = match[1], int(match[2]), int(match[3])
    kinds = match[5].removesuffix("_1k").split("_")
    if not re.search(r"x\d+_", mnemonic):  # as GFX908 and GFX90A spell it
        each = {"f32": 1, "f64": 1, "bf16": 2}.get(match[5], 4)
        blocks = 64 * each // (m * k)
    else:
        blocks = int(match[4] or 1)
        each = m * k * blocks // 64
    left, right = kinds[0], kinds[-1]
    if target == "gfx942" and bits_of(left) == 8 and left in FORMATS:
        left, right = f"{left}_fnuz", f"{right}_fnuz"

    def source(lane: int, element: int) -> tuple[int, int, int]:
        return lane // m % blocks, lane % m, lane // (m * blocks) * each + element

    def output(lane: int, element: int) -> tuple[int, int, int]:
        if result == "f64":
            return (0, 4 * element + lane // 16, lane % 16) if m == 16 else (lane // 4 % 4, lane // 16, lane % 4)
        if m == 4:
            return lane // 4, element, lane % 4
        if m == 16:
            return element // 4, 4 * (lane // 16) + element % 4, lane % 16
        return element // 16, 8 * (element % 16 // 4) + 4 * (lane // 32) + element % 4, lane % 32

    return Case(
        *(target, text, mnemonic, m, m, k, blocks, left, right, result, 64, source, source, output),
        *(each, each, m * m * blocks // 64, sum_of(target, kinds[0], k, each == 2)),
        accumulation=target == "gfx908",
    )


SCALED = ("fp8", "bf8", "fp6", "bf6", "fp4")


def scaled(m: int, left: int, right: int, mnemonic: str, text: str = "") -> Case:
    """The f8f6f4 operations: bytes in two runs of 16 a lane, smaller elements in one of 32."""
    k = 128 if m == 16 else 64

    def source(code: int) -> Place:
        def wide(lane: int, element: int) -> tuple[int, int, int]:
            return 0, lane % m, element // 16 * (k // 2) + 16 * (lane // m) + element % 16

        def narrow(lane: int, element: int) -> tuple[int, int, int]:
            return 0, lane % m, 32 * (lane // m) + element

        return wide if code < 2 else narrow

    dense = mfma("gfx950", "v_mfma_f32_16x16x4_f32" if m == 16 else "v_mfma_f32_32x32x2_f32")
    return replace(
        dense,
        text=f"{text} cbsz:{left} blgp:{right}",
        mnemonic=mnemonic,
        k=k,
        left=SCALED[left],
        right=SCALED[right],
        a=source(left),
        b=source(right),
        a_count=32,
        b_count=32,
        model=fused(16, halves=True),
    )


def smfmac(target: str, mnemonic: str, text: str = "") -> Case:
    match = re.fullmatch(r"v_smfmac_(f32|i32)_(\d+)x\d+x(\d+)_(\w+)", mnemonic)
    assert match
    result, m, k = match[1], int(match[2]), int(match[3])
    kinds = match[4].split("_")
    left, right = kinds[0], kinds[-1]
    bits = bits_of(left)
    a_count, b_count = m * k // 128, m * k // 64
    doubled = a_count * bits == 128
    model = sum_of(target, left, k // 2, False)
    if target == "gfx942" and bits == 8 and left in FORMATS:
        left, right = f"{left}_fnuz", f"{right}_fnuz"

    def stored(lane: int, element: int) -> tuple[int, int, int]:
        group, row = divmod(lane, m)
        if doubled and bits == 8:
            low, high = element >> 2 & 1, element >> 3 & 1
            if m == 16:
                return 0, row, 32 * (group >> 1) + 16 * low + 8 * (group & 1) + 4 * high + element % 4
            return 0, row, 16 * group + 8 * low + 4 * high + element % 4
        return 0, row, group * a_count + element

    def whole(lane: int, element: int) -> tuple[int, int, int]:
        group, column = divmod(lane, m)
        if doubled:
            return 0, column, element // 8 * (8 * 64 // m) + 8 * group + element % 8
        return 0, column, group * b_count + element

    dense = mfma(target, "v_mfma_f32_16x16x4f32" if m == 16 else "v_mfma_f32_32x32x2f32")
    return replace(
        dense,
        text=text,
        mnemonic=mnemonic,
        k=k,
        left=left,
        right=right,
        result=result,
        a=stored,
        b=whole,
        a_count=a_count,
        b_count=b_count,
        model=model,
        sparse=True,
    )


def wmma(target: str, mnemonic: str, wave_size: int, text: str = "", signed: tuple[bool, bool] = (True, True)) -> Case:
    """WMMA and SWMMAC; integers are signed as `signed` says, which the text must say too."""
    match = re.fullmatch(r"v_(wmma|swmmac)_(\w+?)_16x16x(\d+)_(\w+)", mnemonic)
    assert match, mnemonic
    sparse = mnemonic.startswith("v_swmmac")
    result, k = match[2], int(match[3])
    kinds = match[4].split("_")
    bits = bits_of(kinds[0]) if kinds[0] in FORMATS else int(kinds[0][2:])
    left, right = kinds[0], kinds[-1]
    if left.startswith("iu"):
        left, right = (f"{'i' if flag else 'u'}{bits}" for flag in signed)
    gfx11 = target.startswith("gfx11")
    quads = wave_size == 64
    narrow = result in ("f16", "bf16")

    def dense(lane: int, element: int) -> tuple[int, int, int] | None:
        low, high = lane // 16 % 2, lane // 32
        if gfx11:
            return 0, lane % 16, element
        if bits == 16:
            return 0, lane % 16, 8 * high + 4 * low + element if quads else 8 * (element // 4) + 4 * low + element % 4
        if bits == 4 and k == 16:
            return None if high else (0, lane % 16, 8 * low + element)
        return 0, lane % 16, k // 2 * low + (k // 4 * high if quads else 0) + element

    def stored(lane: int, element: int) -> tuple[int, int, int] | None:
        low, high = lane // 16 % 2, lane // 32
        if bits == 16:
            return 0, lane % 16, 4 * (lane // 16) + element if quads else 8 * (element // 4) + 4 * low + element % 4
        if bits == 4 and k == 32:
            return None if high else (0, lane % 16, 8 * low + element)
        return 0, lane % 16, k // 4 * low + (k // 8 * high if quads else 0) + element

    def whole(lane: int, element: int) -> tuple[int, int, int]:
        low, high = lane // 16 % 2, lane // 32
        if bits == 16:
            return 0, lane % 16, 8 * (lane // 16) + element if quads else 16 * (element // 8) + 8 * low + element % 8
        return 0, lane % 16, k // 2 * low + (k // 4 * high if quads else 0) + element

    def output(lane: int, element: int) -> tuple[int, int, int]:
        if gfx11:
            return 0, wave_size // 16 * element + lane // 16, lane % 16
        return 0, 8 * (lane // 16 % 2) + 4 * (lane // 32) + element, lane % 16

    spread = 16 * k // wave_size
    a_count = k if gfx11 else (spread // 2 if sparse else spread)
    b_count = k if gfx11 else spread
    if not gfx11 and bits == 4 and quads:
        a_count = max(8, a_count)
        b_count = max(8, b_count)
    return Case(
        *(target, text, mnemonic, 16, 16, k, 1, left, right, result, wave_size),
        *(stored if sparse else dense, whole if sparse else dense, output, a_count, b_count, 256 // wave_size, chain),
        sparse=sparse,
        d_step=2 if gfx11 and narrow else 1,
    )


def newest(mnemonic: str, text: str = "", signed: tuple[bool, bool] = (True, True)) -> Case:
    """Sparse products of gfx1250, and the dense one whose C is wider than D.

    Sources: AMD's rocjitsu (`luthier.emulator.operations.matrix`).
    """
    match = re.fullmatch(r"v_(wmma|swmmac)_(bf16f32|\w+?)_16x16x(\d+)_(\w+)", mnemonic)
    assert match, mnemonic
    sparse, k = match[1] == "swmmac", int(match[3])
    result, accumulator = ("bf16", "f32") if match[2] == "bf16f32" else (match[2], "")
    kinds = match[4].split("_")
    left, right = kinds[0], kinds[-1]
    if left == "iu8":
        left, right = (f"{'i' if flag else 'u'}8" for flag in signed)

    def alternating(run: int) -> Place:
        return lambda lane, element: (0, lane % 16, element // run * 2 * run + lane // 16 * run + element % run)

    def index(lane: int, element: int) -> tuple[int, int, int]:
        return 0, lane % 16, lane // 16 * (k // 4) + element

    def output(lane: int, element: int) -> tuple[int, int, int]:
        return 0, lane // 16 * 8 + element, lane % 16

    return Case(
        *("gfx1250", text, mnemonic, 16, 16, k, 1, left, right, result, 32),
        *(alternating(k // 8 if sparse else 4), alternating(k // 4 if sparse else 4), output),
        *(k // 4 if sparse else k // 2, k // 2, 8, chain),
        sparse=sparse,
        index=index,
        accumulator=accumulator,
    )
