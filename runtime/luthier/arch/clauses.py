"""Hazards of memory instructions that are started anew, alone or with their clause, which more than one branch has."""

from __future__ import annotations

from luthier.arch.hazards import Hazard
from luthier.arch.parties import *

_CLAUSE = "LLVM, GCNHazardRecognizer, checkSoftClauseHazards"

_CLAUSE_REACH = 5
"""Instructions that LLVM looks back at: longer clauses, which it makes, are no finding."""


def clause_rows(kind: Party, other: Party, registers: RegisterSet, words: str) -> tuple[Hazard, ...]:
    """Return the rows of consecutive memory instructions that may be restarted together.

    LLVM also keeps stores after loads apart from them, since they might have the same address.

    Args:
        kind: the memory instructions.
        other: all others.
        registers: those that they load.
        words: what they are.
    """

    def of(name: str, producer: Party, consumer: Party) -> Hazard:
        return Hazard(
            name=f"{words} of one clause: {name}",
            producer=producer,
            consumer=consumer,
            needed=_CLAUSE_REACH,
            source=_CLAUSE,
            cleared_by=(other,),
            xnack=True,
            remedy="an instruction of another kind between them, s_nop 0",
        )

    loading = kind.by(READS_SGPRS_TO_LOAD if registers is SGPRS else READS_VECTORS_TO_LOAD)
    replacing = kind.by(OVERWRITES_ITS_OWN_SOURCE)
    return (
        of("one overwrites what another read", loading, kind.writes(registers)),
        of("one overwrites what it reads itself", kind.by(LOADS), replacing),
        of("one overwrote what it read itself", replacing, kind),
    )


def replayed_load(*, xnack: bool) -> Hazard:
    """Return the row of scalar loads that may give part of their result before they are started anew.

    LLVM takes other registers for the result (its opcodes that end in ``_ec``) unless it knows that all comes at once:
    one dword, or an address that is a multiple of the size.

    Args:
        xnack: whether code may be for devices that start no memory instruction anew.
    """
    return Hazard(
        name="scalar load of several dwords overwrites its own address, with which it may be started anew",
        producer=None,
        consumer=SMEM.by(ADDRESS_UNDER_SEVERAL_LOADED),
        needed=None,
        source="LLVM, SMInstructions.td and SILoadStoreOptimizer (needsConstrainedOpcode)",
        xnack=xnack,
        remedy="other registers",
        only_if="the address is no multiple of the size",
    )
