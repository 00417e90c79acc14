"""Hazards of matrix instructions that several generations have, with different numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from luthier.arch.hazards import Hazard, Relation
from luthier.arch.parties import *

_MI300 = "MI300 ISA 4.5, 7.5"


def passes_and(more: int) -> dict[int, int]:
    """Return the wait states for each number of passes: that number plus `more`."""
    return {count: count + more for count in (2, 4, 8, 16)}


USERS = VALU_MEMORY_OR_EXPORT_NO_MFMA.reads(VECTORS)
WRITERS = VALU_MEMORY_OR_EXPORT_NO_MFMA.writes(VECTORS)
SOME_C = "reads some of them as C"
LATER_RESULT, LATER_C = (MFMA.by(RESULT),), (MFMA.by(MATRIX_C),)
"""Matrix instructions write, and read C, in order: after the younger one, the older one has finished."""


_Needed = int | Mapping[int, int]
_Use = tuple[str, Party, _Needed, Relation]
"""Words, the consumer, the wait states, and the relation of registers."""


def matrix_rows(kind: Party, source: str, uses: Iterable[_Use]) -> tuple[Hazard, ...]:
    """Return the rows for results of one kind of matrix instruction."""
    return tuple(
        Hazard(
            name=f"{kind} writes registers, {words}",
            producer=kind.by(RESULT),
            consumer=consumer,
            needed=needed,
            source=source,
            relation=relation,
            disarmed_by=LATER_RESULT,
        )
        for words, consumer, needed, relation in uses
    )


def any_use(counts: _Needed) -> tuple[_Use, ...]:
    """Return consumers of results of matrix instructions, for `matrix_rows`, except those that read C."""
    return (
        ("MFMA reads them as A or B", MFMA.by(MATRIX_A_B), counts, "overlap"),
        ("VALU, memory or export reads them", USERS, counts, "overlap"),
        ("VALU or memory overwrites them", WRITERS, counts, "overlap"),
    )


def double_rows(source: str, large: int, large_c: int, reader: Party) -> tuple[Hazard, ...]:
    """Return the rows of DGEMM.

    Args:
        large: wait states of the larger kind before A, B and VALU.
        large_c: wait states of the larger kind before C.
        reader: kind of MFMA that must wait before reading C.
    """
    memory, valu = MEMORY_OR_EXPORT.reads(VECTORS), VALU_NO_MFMA.reads(VECTORS)
    return (
        *matrix_rows(
            DGEMM_4X4,
            source,
            (
                ("MFMA reads them as A or B", MFMA.by(MATRIX_A_B), 6, "overlap"),
                ("DGEMM 4x4 reads them as C", DGEMM_4X4.by(MATRIX_C), 4, "same"),
                (f"{reader} {SOME_C}", reader.by(MATRIX_C), 4, "partly"),
                ("memory or export reads them", memory, 9, "overlap"),
                ("VALU reads them", valu, 6, "overlap"),
                ("VALU or memory overwrites them", WRITERS, 6, "overlap"),
            ),
        ),
        *matrix_rows(
            DGEMM_16X16,
            source,
            (
                ("MFMA reads them as A or B", MFMA.by(MATRIX_A_B), large, "overlap"),
                (f"{reader} {SOME_C}", reader.by(MATRIX_C), large_c, "partly"),
                ("memory or export reads them", memory, 18, "overlap"),
                ("VALU reads them", valu, large, "overlap"),
                ("VALU or memory overwrites them", WRITERS, 11, "overlap"),
            ),
        ),
        Hazard(name="DGEMM, v_fma_f64", producer=DGEMM, consumer=V_FMA_F64, needed=2, source=source),
    )


def xdl_rows(counts: dict[int, int], xdl_c: dict[int, int], other_c: dict[int, int]) -> tuple[Hazard, ...]:
    """Return the rows of XDL and SGEMM.

    Args:
        counts: wait states of XDL before A, B and VALU.
        xdl_c: wait states of XDL before C of XDL.
        other_c: wait states of XDL before C of others.
    """
    return (
        *matrix_rows(
            XDL,
            _MI300,
            (
                *any_use(counts),
                (f"XDL {SOME_C}", XDL.by(MATRIX_C), xdl_c, "partly"),
                (f"SGEMM or DGEMM {SOME_C}", SGEMM_OR_DGEMM.by(MATRIX_C), other_c, "partly"),
            ),
        ),
        *matrix_rows(
            SGEMM,
            _MI300,
            (
                *any_use(passes_and(2)),
                (f"SGEMM or DGEMM {SOME_C}", SGEMM_OR_DGEMM.by(MATRIX_C), passes_and(0), "partly"),
            ),
        ),
    )


def other_passes(counts: dict[int, int]) -> Hazard:
    """Return the row for matrix instructions with different numbers of passes.

    The accumulator is forwarded immediately only between instructions with the same number.
    """
    return Hazard(
        name="XDL writes registers, XDL of other passes reads them as C",
        producer=XDL.by(RESULT),
        consumer=XDL.by(MATRIX_C),
        needed=counts,
        source=_MI300,
        relation="same",
        tags="other",
        disarmed_by=LATER_RESULT,
    )
