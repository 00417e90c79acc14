"""Hazards, on several branches, of memory instructions that may restart, alone or with their clause."""

from __future__ import annotations

from luthier.arch.hazards import Hazard
from luthier.arch.parties import *

_CLAUSE = "LLVM, GCNHazardRecognizer, checkSoftClauseHazards"

_CLAUSE_REACH = 5
"""Number of instructions that LLVM checks backwards. It emits longer clauses, so these are not reported."""


def clause_rows(kind: Party, other: Party, registers: RegisterSet, words: str) -> tuple[Hazard, ...]:
    """Return the rows of consecutive memory instructions that may restart together.

    LLVM also separates stores from preceding loads, because they may have the same address.

    Args:
        kind: the memory instructions.
        other: all other instructions.
        registers: registers that the memory instructions load.
        words: the memory instructions in words.
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
    """Return the row of scalar loads that may write part of their result before they restart.

    LLVM uses other registers for the result (opcodes ending in ``_ec``) unless it knows that the result arrives as a
    whole: one dword, or an address that is a multiple of the size.

    Args:
        xnack: whether the row is only for devices whose memory instructions may restart.
    """
    return Hazard(
        name="scalar load of several dwords overwrites its own address, with which it may restart",
        producer=None,
        consumer=SMEM.by(ADDRESS_UNDER_SEVERAL_LOADED),
        needed=None,
        source="LLVM, SMInstructions.td and SILoadStoreOptimizer (needsConstrainedOpcode)",
        xnack=xnack,
        remedy="other registers",
        only_if="the address is not a multiple of the size",
    )
