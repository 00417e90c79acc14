"""Hazards of matrix instructions that several generations have with other numbers."""

from __future__ import annotations

from luthier.arch.hazards import Hazard, Relation, row

_MI300 = "MI300 ISA 4.5, 7.5"


def passes_and(more: int) -> dict[int, int]:
    """Return the wait states for each number of passes: that number and some more."""
    return {count: count + more for count in (2, 4, 8, 16)}


USERS = ("VALU, memory or export, no MFMA", "reads vectors")
WRITERS = ("VALU, memory or export, no MFMA", "writes vectors")
SOME_C = "reads some of them as C"


def matrix_rows(
    kind: str, source: str, rows: tuple[tuple[str, tuple[str, str], object, Relation], ...]
) -> tuple[Hazard, ...]:
    """Return the rows of what one kind of matrix instruction writes."""
    return tuple(
        row(f"{kind} writes registers, {words}", (kind, "result"), consumer, needed, source, relation=relation)  # type: ignore[arg-type]
        for words, consumer, needed, relation in rows
    )


def any_use(counts: object) -> tuple[tuple[str, tuple[str, str], object, Relation], ...]:
    """Consumers of what matrix instructions write, for `matrix_rows`, but those that take it as C."""
    return (
        ("MFMA reads them as A or B", ("MFMA", "matrix A, B"), counts, "overlap"),
        ("VALU, memory or export reads them", USERS, counts, "overlap"),
        ("VALU or memory overwrites them", WRITERS, counts, "overlap"),
    )


def double_rows(source: str, large: int, large_c: int, reader: str) -> tuple[Hazard, ...]:
    """Return the rows of DGEMM.

    Args:
        large: wait states of the larger kind before A, B and VALU.
        large_c: wait states of the larger kind before C.
        reader: kind of MFMA that must wait before C.
    """
    memory, valu = ("memory or export", "reads vectors"), ("VALU, no MFMA", "reads vectors")
    return (
        *matrix_rows(
            "DGEMM 4x4",
            source,
            (
                ("MFMA reads them as A or B", ("MFMA", "matrix A, B"), 6, "overlap"),
                ("DGEMM 4x4 reads them as C", ("DGEMM 4x4", "matrix C"), 4, "same"),
                (f"{reader} {SOME_C}", (reader, "matrix C"), 4, "partly"),
                ("memory or export reads them", memory, 9, "overlap"),
                ("VALU reads them", valu, 6, "overlap"),
                ("VALU or memory overwrites them", WRITERS, 6, "overlap"),
            ),
        ),
        *matrix_rows(
            "DGEMM 16x16",
            source,
            (
                ("MFMA reads them as A or B", ("MFMA", "matrix A, B"), large, "overlap"),
                (f"{reader} {SOME_C}", (reader, "matrix C"), large_c, "partly"),
                ("memory or export reads them", memory, 18, "overlap"),
                ("VALU reads them", valu, large, "overlap"),
                ("VALU or memory overwrites them", WRITERS, 11, "overlap"),
            ),
        ),
        row("DGEMM, v_fma_f64", "DGEMM", "v_fma_f64", 2, source),
    )


def xdl_rows(counts: dict[int, int], xdl_c: dict[int, int], other_c: dict[int, int]) -> tuple[Hazard, ...]:
    """Rows of XDL and SGEMM.

    Args:
        counts: wait states of XDL before A, B and VALU.
        xdl_c: the same before C of XDL.
        other_c: the same before C of others.
    """
    return (
        *matrix_rows(
            "XDL",
            _MI300,
            (
                *any_use(counts),
                (f"XDL {SOME_C}", ("XDL", "matrix C"), xdl_c, "partly"),
                (f"SGEMM or DGEMM {SOME_C}", ("SGEMM or DGEMM", "matrix C"), other_c, "partly"),
            ),
        ),
        *matrix_rows(
            "SGEMM",
            _MI300,
            (
                *any_use(passes_and(2)),
                (f"SGEMM or DGEMM {SOME_C}", ("SGEMM or DGEMM", "matrix C"), passes_and(0), "partly"),
            ),
        ),
    )


def other_passes(counts: dict[int, int]) -> Hazard:
    """Return the row for matrix instructions of different numbers of passes.

    Only between those of the same number is the accumulator forwarded at once.
    """
    return row(
        "XDL writes registers, XDL of other passes reads them as C",
        ("XDL", "result"),
        ("XDL", "matrix C"),
        counts,
        _MI300,
        relation="same",
        tags="other",
    )
