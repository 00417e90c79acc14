"""Hazards of memory instructions that are started anew, alone or with their clause, which more than one branch has."""

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


def replayed_load(*, xnack: bool) -> Hazard:
    """Return the row of scalar loads that may give part of their result before they are started anew.

    LLVM takes other registers for the result (its opcodes that end in ``_ec``) unless it knows that all comes at once:
    one dword, or an address that is a multiple of the size.

    Args:
        xnack: whether code may be for devices that start no memory instruction anew.
    """
    return row(
        "scalar load of several dwords overwrites its own address, with which it may be started anew",
        None,
        ("SMEM", "address under several loaded"),
        None,
        "LLVM, SMInstructions.td and SILoadStoreOptimizer (needsConstrainedOpcode)",
        xnack=xnack,
        remedy="other registers",
        only_if="the address is no multiple of the size",
    )
