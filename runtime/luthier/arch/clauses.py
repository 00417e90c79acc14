"""Hazards of memory instructions of one clause, which more than one branch has."""

from __future__ import annotations

from luthier.arch.hazards import Hazard, row

_CLAUSE = "LLVM, GCNHazardRecognizer, checkSoftClauseHazards"

_CLAUSE_REACH = 5
"""Instructions that LLVM looks back at: longer clauses, which it makes, are no finding."""


def clause_rows(kind: str, words: str, until: tuple[str, ...] = ()) -> tuple[Hazard, ...]:
    """Return the rows of consecutive memory instructions that may be restarted together.

    LLVM also keeps stores after loads apart from them, since they might have the same address.
    """

    def of(name: str, producer: str, consumer: str) -> Hazard:
        return row(
            f"{words} of one clause: {name}",
            (kind, producer),
            (kind, consumer),
            _CLAUSE_REACH,
            _CLAUSE,
            until=until,
            cleared_by=(f"not {kind}",),
            xnack=True,
            remedy="an instruction of another kind between them, s_nop 0",
        )

    registers = "SGPRs" if kind == "SMEM" else "vectors"
    return (
        of("one overwrites what another read", f"reads {registers} to load", f"writes {registers}"),
        of("one overwrites what it reads itself", "loads", "overwrites its own source"),
        of("one overwrote what it read itself", "overwrites its own source", ""),
    )
