"""Hazards of matrix instructions of GFX9, and of AGPRs."""

from __future__ import annotations

from luthier.isa.generations import GFX90A, GFX908, GFX940
from luthier.isa.hazards.rows import Hazard, Relation, row

_908 = frozenset({GFX908.generation})
_940 = frozenset({GFX940.generation})
_950 = frozenset({"gfx950"})
_MATRIX_90A = frozenset({GFX90A.generation})
_MATRIX_942 = frozenset({GFX940.generation, "not gfx950"})
_MATRIX_2 = _MATRIX_90A | {GFX940.generation}

_MI100, _MI200, _MI300 = "MI100 ISA 4.5", "MI200 ISA 4.5", "MI300 ISA 4.5, 7.5"
_LLVM = "LLVM, GCNHazardRecognizer"


def _passes(more: int) -> dict[int, int]:
    """Passes and some more."""
    return {count: count + more for count in (2, 4, 8, 16)}


MATRIX_908_ROWS = (
    row("VALU writes EXEC, MFMA", ("VALU", "writes EXEC"), "MFMA or v_accvgpr_write", 4, _908, _MI100),
    row(
        "VALU writes a VGPR, MFMA reads it",
        ("VALU", "writes VGPRs"),
        ("MFMA or v_accvgpr_write", "reads VGPRs"),
        2,
        _908,
        _MI100,
    ),
    row("MFMA writes AGPRs, MFMA reads them as A or B", ("MFMA", "result"), ("MFMA", "AGPRs of A, B"), 4, _908, _MI100),
    row(
        "MFMA writes AGPRs, MFMA reads some of them as C",
        ("MFMA", "result"),
        ("MFMA", "matrix C"),
        2,
        _908,
        _MI100,
        relation="partly",
    ),
    row(
        "MFMA writes an AGPR, v_accvgpr_read",
        ("MFMA", "result"),
        ("v_accvgpr_read", "reads vectors"),
        {2: 4, 8: 10, 16: 18},
        _908,
        _MI100,
    ),
    row(
        "MFMA writes an AGPR, v_accvgpr_write",
        ("MFMA", "result"),
        ("v_accvgpr_write", "result"),
        {2: 1, 8: 7, 16: 15},
        _908,
        _MI100,
    ),
    row(
        "MFMA reads an AGPR as C, v_accvgpr_write",
        ("MFMA", "matrix C"),
        ("v_accvgpr_write", "result"),
        {2: 0, 8: 5, 16: 13},
        _908,
        _MI100,
    ),
    row("v_accvgpr_write, MFMA reads it as C", ("v_accvgpr_write", "result"), ("MFMA", "matrix C"), 1, _908, _MI100),
    row(
        "v_accvgpr_write, MFMA reads it as A or B",
        ("v_accvgpr_write", "result"),
        ("MFMA", "AGPRs of A, B"),
        3,
        _908,
        _MI100,
    ),
    row(
        "v_accvgpr_write, v_accvgpr_read",
        ("v_accvgpr_write", "result"),
        ("v_accvgpr_read", "reads vectors"),
        3,
        _908,
        _MI100,
    ),
    row(
        "v_accvgpr_read, memory reads its result",
        ("v_accvgpr_read", "result"),
        ("VMEM or LDS", "reads VGPRs"),
        2,
        _908,
        _MI100,
    ),
    row(
        "VALU writes a VGPR, move of an AGPR, memory reads the VGPR",
        ("VALU, no MFMA or AGPR move", "writes VGPRs"),
        ("VMEM or LDS", "reads VGPRs"),
        2,
        _908,
        _MI100,
        middle="AGPR move",
    ),
)

_COUNTS_942 = {2: 5, 4: 7, 8: 11, 16: 19}
_COUNTS_950 = {2: 5, 4: 8, 8: 12, 16: 20}
_COUNTS_90A = {2: 5, 8: 11, 16: 19}
_USERS = ("VALU, memory or export, no MFMA", "reads vectors")
_WRITERS = ("VALU, memory or export, no MFMA", "writes vectors")


def _matrix_rows(
    kind: str, where: frozenset[str], source: str, rows: tuple[tuple[str, tuple[str, str], object, Relation], ...]
) -> tuple[Hazard, ...]:
    """Rows of what one kind of matrix instruction writes."""
    return tuple(
        row(f"{kind} writes registers, {words}", (kind, "result"), consumer, needed, where, source, relation=relation)  # type: ignore[arg-type]
        for words, consumer, needed, relation in rows
    )


def _any_use(counts: object) -> tuple[tuple[str, tuple[str, str], object, Relation], ...]:
    return (
        ("MFMA reads them as A or B", ("MFMA", "matrix A, B"), counts, "overlap"),
        ("VALU, memory or export reads them", _USERS, counts, "overlap"),
        ("VALU or memory overwrites them", _WRITERS, counts, "overlap"),
    )


def _double(where: frozenset[str], source: str, large: int, large_c: int, reader: str) -> tuple[Hazard, ...]:
    """Rows of DGEMM.

    Args:
        large: wait states of the larger kind before A, B and VALU.
        large_c: the same before C.
        reader: kind of MFMA that must wait before C.
    """
    some = "reads some of them as C"
    memory, valu = ("memory or export", "reads vectors"), ("VALU, no MFMA", "reads vectors")
    return (
        *_matrix_rows(
            "DGEMM 4x4",
            where,
            source,
            (
                ("MFMA reads them as A or B", ("MFMA", "matrix A, B"), 6, "overlap"),
                ("DGEMM 4x4 reads them as C", ("DGEMM 4x4", "matrix C"), 4, "same"),
                (f"{reader} {some}", (reader, "matrix C"), 4, "partly"),
                ("memory or export reads them", memory, 9, "overlap"),
                ("VALU reads them", valu, 6, "overlap"),
                ("VALU or memory overwrites them", _WRITERS, 6, "overlap"),
            ),
        ),
        *_matrix_rows(
            "DGEMM 16x16",
            where,
            source,
            (
                ("MFMA reads them as A or B", ("MFMA", "matrix A, B"), large, "overlap"),
                (f"{reader} {some}", (reader, "matrix C"), large_c, "partly"),
                ("memory or export reads them", memory, 18, "overlap"),
                ("VALU reads them", valu, large, "overlap"),
                ("VALU or memory overwrites them", _WRITERS, 11, "overlap"),
            ),
        ),
        row("DGEMM, v_fma_f64", "DGEMM", "v_fma_f64", 2, where, source),
    )


_SOME_C = "reads some of them as C"
MATRIX_90A_ROWS = (
    row("VALU writes EXEC, MFMA", ("VALU, no MFMA", "writes EXEC"), "MFMA", 4, _MATRIX_2, _MI200),
    row(
        "VALU writes a register, MFMA reads it",
        ("VALU, no MFMA or DOT", "writes vectors"),
        ("MFMA", "reads vectors"),
        2,
        _MATRIX_2,
        _MI200,
    ),
    *_matrix_rows(
        "MFMA, no DGEMM",
        _MATRIX_90A,
        _MI200,
        (
            *_any_use(_COUNTS_90A),
            (f"MFMA, no DGEMM {_SOME_C}", ("MFMA, no DGEMM", "matrix C"), {2: 2, 8: 8, 16: 16}, "partly"),
            (f"DGEMM {_SOME_C}", ("DGEMM", "matrix C"), {2: 3, 8: 9, 16: 17}, "partly"),
        ),
    ),
    row(
        "MFMA reads a register as C, VALU or memory overwrites it",
        ("MFMA, no DGEMM", "matrix C"),
        _WRITERS,
        {2: 1, 8: 7, 16: 15},
        _MATRIX_90A,
        _MI200,
    ),
    *_double(_MATRIX_90A, _MI200, 11, 9, "DGEMM"),
    row(
        "VALU writes a register, DGEMM, memory reads the register",
        ("VALU", "writes vectors"),
        ("VMEM or LDS", "reads vectors"),
        2,
        _MATRIX_90A,
        _LLVM,
        middle="DGEMM",
    ),
    row(
        "64-bit shift by the last VGPR",
        None,
        ("64-bit shift", "by the last VGPR"),
        None,
        _MATRIX_90A,
        "LLVM, GCNHazardRecognizer, fixShift64HighRegBug",
        remedy="another register",
    ),
    row(
        "DOT, another DOT or VALU or memory reads its result",
        ("DOT", "result"),
        _USERS,
        3,
        _MATRIX_2,
        _MI200,
        tags="other",
    ),
    row(
        "DOT, the same reads its result as A or B",
        ("DOT", "result"),
        ("DOT", "matrix A, B"),
        3,
        _MATRIX_2,
        _MI200,
        tags="same",
    ),
    row(
        "DOT, another DOT or VALU or memory overwrites its result",
        ("DOT", "result"),
        _WRITERS,
        3,
        _MATRIX_2,
        _MI200,
        tags="other",
    ),
)


def _matrix_940(
    where: frozenset[str], counts: dict[int, int], xdl_c: dict[int, int], other_c: dict[int, int]
) -> tuple[Hazard, ...]:
    return (
        *_matrix_rows(
            "XDL",
            where,
            _MI300,
            (
                *_any_use(counts),
                (f"XDL {_SOME_C}", ("XDL", "matrix C"), xdl_c, "partly"),
                (f"SGEMM or DGEMM {_SOME_C}", ("SGEMM or DGEMM", "matrix C"), other_c, "partly"),
            ),
        ),
        *_matrix_rows(
            "SGEMM",
            where,
            _MI300,
            (
                *_any_use(_passes(2)),
                (f"SGEMM or DGEMM {_SOME_C}", ("SGEMM or DGEMM", "matrix C"), _passes(0), "partly"),
            ),
        ),
    )


def _other_passes(where: frozenset[str], counts: dict[int, int]) -> Hazard:
    """Only between matrix instructions of as many passes the accumulator is handed on at once."""
    return row(
        "XDL writes registers, XDL of other passes reads them as C",
        ("XDL", "result"),
        ("XDL", "matrix C"),
        counts,
        where,
        _MI300,
        relation="same",
        tags="other",
    )


MATRIX_940_ROWS = (
    _other_passes(_MATRIX_942, _passes(1)),
    _other_passes(_950, _passes(2)),
    *_matrix_940(_MATRIX_942, _COUNTS_942, _passes(1), _passes(1)),
    *_matrix_940(_950, _COUNTS_950, _passes(2), {2: 3, 4: 6, 8: 10, 16: 18}),
    row(
        "MFMA of 2 passes writes registers, MFMA reads them as C",
        ("MFMA, no DGEMM", "result"),
        ("MFMA", "matrix C"),
        {2: 2, 4: 0, 8: 0, 16: 0},
        _940,
        _MI300,
        relation="same",
    ),
    row(
        "XDL reads a register as C, VALU or memory overwrites it",
        ("XDL", "matrix C"),
        _WRITERS,
        {2: 1, 4: 3, 8: 7, 16: 15},
        _940,
        _MI300,
    ),
    *_double(_MATRIX_942, _MI300, 11, 9, "SGEMM or DGEMM"),
    *_double(_950, _LLVM, 19, 17, "SGEMM or DGEMM"),
)
