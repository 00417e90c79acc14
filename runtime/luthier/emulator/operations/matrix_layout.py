"""Layouts of matrix elements in registers, for MFMA, SMFMAC, WMMA and SWMMAC.

Sources: AMD matrix instruction calculator; ISA documents, "Matrix arithmetic instructions" of CDNA1 to CDNA4, "WMMA"
of RDNA3 and RDNA4. In all layouts, neighbouring rows of A, columns of B, and columns of D are in neighbouring lanes. A
layout therefore gives only the lane where a run begins, and its position in the lane's registers.
"""

from __future__ import annotations

from msgspec import Struct


class Source(Struct, frozen=True):
    """Positions of the run of rows (columns) for each k, of A or B. In a compressed A, k counts stored elements."""

    lanes: tuple[int, ...]
    """By k: lane of row (column) 0."""
    elements: tuple[int, ...]
    """By k: index of the element in the lane, counted from the low bits of the first register."""


class MatrixResult(Struct, frozen=True):
    """Positions of C and D by row; the rows of several blocks are consecutive."""

    lanes: tuple[int, ...]
    """Lane of column 0."""
    registers: tuple[int, ...]
    """Register (for 64-bit results, first of the pair)."""
    shifts: tuple[int, ...]
    """First bit of the element: 16 for the high half of a register."""


def _source(steps: int, lane: object, element: object) -> Source:
    assert callable(lane)
    assert callable(element)
    return Source(tuple(lane(k) for k in range(steps)), tuple(element(k) for k in range(steps)))


# GFX9 ---------------------------------------------------------------------------------------------------------------


def mfma_source(rows: int, steps: int, blocks: int) -> Source:
    """Return the layout of an input of MFMA.

    A lane holds consecutive k. With several blocks, all blocks of one k come first.
    """
    each = rows * steps * blocks // 64
    return _source(steps, lambda k: k // each * rows * blocks, lambda k: k % each)


def interleaved_source(rows: int, steps: int, run: int) -> Source:
    """Return a layout in which a lane holds several runs of `run` consecutive k (GFX950).

    The first runs of all lanes come before the second runs.
    """
    groups = 64 // rows
    return _source(steps, lambda k: k % (run * groups) // run * rows, lambda k: k // (run * groups) * run + k % run)


def gfx950_compressed_bytes(rows: int, steps: int) -> Source:
    """Return the layout of A of SMFMAC with 8-bit elements and K of 128 (16 rows) or 64 (32 rows)."""

    def bit(k: int, number: int) -> int:
        return k >> number & 1

    if rows == 16:
        return _source(
            steps,
            lambda k: 16 * (2 * bit(k, 5) + bit(k, 3)),
            lambda k: 4 * (2 * bit(k, 2) + bit(k, 4)) + k % 4,
        )
    return _source(steps, lambda k: 32 * bit(k, 4), lambda k: 4 * (2 * bit(k, 2) + bit(k, 3)) + k % 4)


def mfma_result(rows: int, columns: int, blocks: int, wide: bool) -> MatrixResult:
    """Return the layout of the result of MFMA.

    Four rows are in four registers of the same lanes (64-bit results: one row); then the next lanes follow.
    """
    height = 1 if wide else 4
    across = 64 // columns
    shared = -(-64 * height // (rows * columns))  # blocks that share a register
    lanes, registers = [], []
    for block in range(blocks):
        for row in range(rows):
            register = block * (rows * columns // 64) + row // (height * across) * height + row % height
            lanes.append(block % shared * columns + row // height % across * shared * columns)
            registers.append(register * (2 if wide else 1))
    return MatrixResult(tuple(lanes), tuple(registers), (0,) * len(lanes))


# GFX11 --------------------------------------------------------------------------------------------------------------


def gfx11_source(steps: int) -> Source:
    """Return the layout of an input of GFX11's WMMA.

    A lane holds its whole row. Every group of 16 lanes holds all rows; the first group is read.
    """
    return _source(steps, lambda k: 0, lambda k: k)


def gfx11_result(wave_size: int, shift: int) -> MatrixResult:
    """Return the layout of the result of GFX11's WMMA.

    Rows alternate between the groups of 16 lanes; 16-bit results use one half of each register.
    """
    groups = wave_size // 16
    rows = range(16)
    return MatrixResult(tuple(row % groups * 16 for row in rows), tuple(row // groups for row in rows), (shift,) * 16)


# GFX12 --------------------------------------------------------------------------------------------------------------


def gfx12_source(wave_size: int, bits: int, steps: int) -> Source:
    """Return the layout of A or B of WMMA."""
    if wave_size == 32:
        if bits == 16:
            return _source(steps, lambda k: 16 * (k // 4 % 2), lambda k: k // 8 * 4 + k % 4)
        half = steps // 2
        return _source(steps, lambda k: 16 * (k // half), lambda k: k % half)
    if bits == 16:
        return _source(steps, lambda k: 32 * (k // 8 % 2) + 16 * (k // 4 % 2), lambda k: k % 4)
    if bits == 4 and steps == 16:
        # Half of the lanes hold all steps.
        return _source(steps, lambda k: 16 * (k // 8), lambda k: k % 8)
    half, quarter = steps // 2, steps // 4
    return _source(steps, lambda k: 32 * (k // quarter % 2) + 16 * (k // half), lambda k: k % quarter)


def gfx12_sparse_source(wave_size: int, bits: int, steps: int) -> Source:
    """Return the layout of B of SWMMAC, whose K is `steps`."""
    half, quarter = steps // 2, steps // 4
    if wave_size == 32:
        if bits == 16:
            return _source(steps, lambda k: 16 * (k // 8 % 2), lambda k: k // 16 * 8 + k % 8)
        return _source(steps, lambda k: 16 * (k // half), lambda k: k % half)
    if bits == 16:
        return _source(steps, lambda k: 16 * (k // 8), lambda k: k % 8)
    return _source(steps, lambda k: 32 * (k // quarter % 2) + 16 * (k // half), lambda k: k % quarter)


def gfx12_compressed_source(wave_size: int, bits: int, steps: int) -> Source:
    """Return the layout of A of SWMMAC.

    A row of A has `steps` stored elements, two for every four of B.
    """
    half, quarter = steps // 2, steps // 4
    if wave_size == 32:
        if bits == 16:
            return _source(steps, lambda c: 16 * (c // 4 % 2), lambda c: c // 8 * 4 + c % 4)
        return _source(steps, lambda c: 16 * (c // half), lambda c: c % half)
    if bits == 16:
        return _source(steps, lambda c: 16 * (c // 4), lambda c: c % 4)
    if bits == 4 and steps == 16:
        return _source(steps, lambda c: 16 * (c // 8), lambda c: c % 8)
    return _source(steps, lambda c: 32 * (c // quarter % 2) + 16 * (c // half), lambda c: c % quarter)


def run_source(bits: int) -> Source:
    """Return the layout of an input of GFX1250's products of small floats with 128 steps.

    Runs of 16 steps of 8-bit elements, or 32 steps of narrower ones, alternate between the lower and the upper lanes
    (AMD's rocjitsu, shared/mma/layout.h, wmma_block_scaled_input_loc, which cites the CDNA5 document).
    """
    return alternating_source(128, 16 if bits == 8 else 32)


def alternating_source(steps: int, run: int) -> Source:
    """Return a layout of wave32 in which runs of `run` steps alternate between the lower and the upper lanes."""
    return _source(steps, lambda k: 16 * (k // run % 2), lambda k: k // (2 * run) * run + k % run)


def halved_source(steps: int) -> Source:
    """Return a layout of wave32 with the first half of the steps in the lower lanes, the second in the upper lanes."""
    half = steps // 2
    return _source(steps, lambda k: 16 * (k // half), lambda k: k % half)


def gfx12_result(wave_size: int, packed: bool) -> MatrixResult:
    """Return the layout of the result of GFX12's WMMA.

    Each group of 16 lanes has a run of rows; 16-bit results fill both halves of a register.
    """
    each = 256 // wave_size
    rows = range(16)
    if wave_size == 32:
        lanes = tuple(16 * (row // 8) for row in rows)
    else:
        lanes = tuple(32 * (row // 4 % 2) + 16 * (row // 8) for row in rows)
    if packed:
        return MatrixResult(lanes, tuple(row % each // 2 for row in rows), tuple(16 * (row % 2) for row in rows))
    return MatrixResult(lanes, tuple(row % each for row in rows), (0,) * 16)
