"""Hazards as data: what a row of the table says, and how rows are written down.

A hazard has a *producer* and a *consumer*, two kinds of instructions, and registers by which they meet. Between them
there must be a number of *wait states* (each instruction is one, ``s_nop n`` is n + 1), or of vector instructions; or
an instruction of a certain kind must stand there, however far they are apart. Some need a third instruction between
them to come about.

A row stands in the folder of the generation at which it begins, and says at which descendants it ends. A generation
that another package adds ends rows by their names (`Generation.hazards_ended`).

Sources: the ISA documents ("Manually Inserted Wait States (NOPs)" of Vega, MI100, MI200 and MI300; "Dependency
Resolution: Required Independent Instructions"), and LLVM, GCNHazardRecognizer and AMDGPUWaitSGPRHazards, which are the
only public source from GFX10 on. The tests compare the rows with the wait states that LLVM inserts.

Of LLVM's recognizer, by its functions, and where their rows are:

- `gfx9`, `gfx940`, `gfx950`, `clauses`: checkSoftClauseHazards, checkVMEMHazards, checkDPPHazards,
  checkDivFMasHazards, checkGetRegHazards, checkSetRegHazards, checkVALUHazards and its helper, checkRWLaneHazards,
  checkRFEHazards, checkReadM0Hazards, checkPermlaneHazards; of SILoadStoreOptimizer needsConstrainedOpcode.
- `gfx908`, `gfx90a`, `gfx940`, `gfx950`, `matrix`: checkMAIHazards908, checkMAIHazards90A, checkMAILdStHazards,
  checkMAIVALUHazards, fixShift64HighRegBug.
- `gfx10`, `gfx11`, `gfx12`: checkNSAtoVMEMHazard, checkFPAtomicToDenormModeHazard, fixVcmpxPermlaneHazards,
  fixVMEMtoScalarWriteHazards, fixSMEMtoVectorWriteHazards, fixVcmpxExecWARHazard, fixLdsBranchVmemWARHazard,
  fixLdsDirectVALUHazard, fixLdsDirectVMEMHazard, fixVALUPartialForwardingHazard, fixVALUTransUseHazard,
  fixWMMAHazards, fixVALUMaskWriteHazard.
- `gfx12`, `gfx1250`: AMDGPUWaitSGPRHazards, fixVALUTransCoexecutionHazards, checkWMMACoexecutionHazards,
  fixGetRegWaitIdle, fixDsAtomicAsyncBarrierArriveB64, fixSetRegMode; of
  AMDGPULowerVGPREncoding needNopBeforeSetVGPRMSB.

Deliberately not here:

- ``s_delay_alu`` and checkMFMAPadding: hints, nothing depends on them.
- What shows only in shaders for graphics: fixRequiredExportPriority, parameter loads mixed with transcendental
  operations.
- checkInlineAsmHazards: here instructions of inline assembly are instructions like others.
- Hard clauses of images on GFX10.1.
- Writes of EXEC that an instruction does not name, as those of ``s_and_saveexec``, after memory read it (GFX10.1).
- Reads of EXEC by vector memory after a vector instruction wrote it, which LLVM keeps apart and no document asks for.
- EXECZ and VCCZ as sources of vector instructions (GFX9), and VCC by the numbers of its SGPRs: no compiler makes them.
- ``s_nop`` before a wave gives its registers back (GFX11), and what only a trap handler meets.
- On GFX1250: ``s_set_vgpr_msb`` behind ``s_setreg_b32`` of MODE, of which LLVM does not know whether it is dropped as
  behind ``s_setreg_imm32_b32``; pages that fault, fixScratchBaseForwardingHazard (FLAT_SCRATCH as a base), fixTDM (how
  many tensor loads may run); on GFX1251 its longer WMMA, and fixVPermPk16Hazard of what comes after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace


class Party(NamedTuple):
    """One of those who make a hazard."""

    kind: str
    """Of instructions: a key of `luthier.hazards.wait_states.kinds.KINDS`."""
    role: str = ""
    """Which of their registers: a key of `ROLES` there."""


Relation = Literal["overlap", "same", "partly"]
"""Relation of the registers of both: some are common; all are; some, but not all."""
Clock = Literal["states", "vector instructions"]


class Hazard(Struct, frozen=True, kw_only=True, dict=True):
    """A row of the table."""

    name: str
    """In words, also for findings."""
    producer: Party | None
    """None: the consumer is wrong by itself."""
    consumer: Party
    needed: int | Mapping[int, int] | None
    """How many must be between them; by the producer's passes (`Generation.passes`); None: one of `cleared_by`."""
    source: str
    until: tuple[str, ...] = ()
    """Descendants of the generation where it begins that do not have it any more; what descends from these neither."""
    clock: Clock = "states"
    relation: Relation = "overlap"
    middle: Party | None = None
    """Instruction that must come between them, in the same registers, for there to be a hazard."""
    cleared_by: tuple[Party, ...] = ()
    """Instructions between them behind which there is no hazard."""
    clears_all: bool = True
    """They clear what still waits for the middle, too."""
    second: Party | None = None
    """Another producer, behind the middle: the consumer must meet both, by different sources, and be far from it."""
    second_within: int = 0
    """It counts if at most so many are between both producers."""
    disarmed_by: tuple[Party, ...] = ()
    """Behind them there is none for their registers, until another middle."""
    forgotten_by: tuple[Party, ...] = ()
    """Behind them their registers no longer wait for the middle."""
    tags: Literal["any", "same", "other"] = "any"
    """Whether producer and consumer must have the same tag (`Hazard.needed`: passes, else the opcode), or another."""
    transcendental: int | None = None
    """So many transcendental instructions between them are enough, too."""
    at_most: str = ""
    """Immediate of the consumer: needed are not more than this."""
    wave_size: int | None = None
    """Only in waves of so many lanes."""
    xnack: bool = False
    """Only where memory instructions may be started anew."""
    remedy: str = ""
    """Remedy in words, if wait states do not help."""
    only_if: str = ""
    """In words, what makes the consumer wrong by itself, where instructions do not show it: it is told apart then."""

    @cached_property
    def in_registers(self) -> bool:
        """Return whether producer and consumer meet in registers; else the one is enough for the other."""
        return self.producer is not None and bool(self.producer.role) and bool(self.consumer.role)

    @cached_property
    def middle_is_event(self) -> bool:
        """Return whether the middle counts for all registers of a producer, not for those that it shares."""
        return self.middle is not None and (not self.middle.role or self.second is not None)

    def parties(self, name: str) -> tuple[Party, ...]:
        """Those that a field names, one of `luthier.hazards.wait_states.model.PARTS`."""
        said: Party | tuple[Party, ...] | None = getattr(self, name)
        if said is None:
            return ()
        return (said,) if isinstance(said, Party) else said

    def most(self) -> int:
        """Return the largest number needed; 0 where numbers do not help."""
        if self.needed is None:
            return 0
        return self.needed if isinstance(self.needed, int) else max(self.needed.values())

    def is_in(self, wave_size: int, xnack: bool) -> bool:
        """Return whether it holds in waves of so many lanes, in code for devices that may start memory instructions
        anew, or for others."""
        return self.wave_size in (None, wave_size) and (xnack or not self.xnack)


_IN_ORDER = ("result", "matrix C")
MATRIX_KINDS = ("MFMA", "MFMA, no DGEMM", "XDL", "SGEMM", "DGEMM", "DGEMM 4x4", "DGEMM 16x16")
"""Matrix instructions write, and read C, in order: behind the younger one, the older one has done it."""


def row(
    name: str,
    producer: tuple[str, str] | str | None,
    consumer: tuple[str, str] | str,
    needed: int | Mapping[int, int] | None,
    source: str,
    **more: object,
) -> Hazard:
    """Return a row, with operands as (kind, role) or a kind alone; `more` are other fields of `Hazard`."""

    def party(said: tuple[str, str] | str) -> Party:
        return Party(said) if isinstance(said, str) else Party(*said)

    made = None if producer is None else party(producer)
    lists = ("cleared_by", "disarmed_by", "forgotten_by")
    options: dict[str, object] = {**dict.fromkeys(("middle", "second")), **dict.fromkeys(lists, ()), **more}
    if made is not None and made.role in _IN_ORDER and made.kind in MATRIX_KINDS:
        options["disarmed_by"] = (("MFMA", made.role),)
    for name_of_party in ("middle", "second"):
        if options[name_of_party] is not None:
            options[name_of_party] = party(options[name_of_party])  # type: ignore[arg-type]
    for name_of_list in lists:
        options[name_of_list] = tuple(party(one) for one in options[name_of_list])  # type: ignore[attr-defined]
    return Hazard(
        name=name,
        producer=made,
        consumer=party(consumer),
        needed=needed,
        source=source,
        **options,  # type: ignore[arg-type]
    )


def ending(at: str, *rows: Hazard) -> tuple[Hazard, ...]:
    """Rows that end at a descendant of the generation where they begin."""
    return tuple(replace(one, until=(*one.until, at)) for one in rows)
