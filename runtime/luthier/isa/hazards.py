"""What the hardware does not interlock: instructions that must stand apart, as one table.

A hazard has a *producer* and a *consumer*, two kinds of instructions, and registers by which they meet. Between them
there must be a number of *wait states* (each instruction is one, ``s_nop n`` is n + 1), or of vector instructions; or
an instruction of a certain kind must stand there, however far they are apart. Some need a third instruction between
them to come about.

Sources: the ISA documents ("Manually Inserted Wait States (NOPs)" of Vega, MI100, MI200 and MI300; "Dependency
Resolution: Required Independent Instructions"), and LLVM, GCNHazardRecognizer and AMDGPUWaitSGPRHazards, which are the
only public source from GFX10 on. The tests compare the table with the wait states that LLVM inserts.

Deliberately not here:

- ``s_delay_alu``: a hint, nothing depends on it.
- What shows only in shaders for graphics: priorities around exports (GFX11.5), parameter loads mixed with
  transcendental operations.
- What depends on more than two or three instructions in order, or on an allocation: partial forwarding on GFX11 in
  waves of 64 lanes, 64-bit shifts by the last register allocated on gfx90a, hard clauses of images on GFX10.1.
- Writes of EXEC that an instruction does not name, as those of ``s_and_saveexec``, after memory read it (GFX10.1).
- Reads of EXEC by vector memory after a vector instruction wrote it, which LLVM keeps apart and no document asks for.
- ``s_nop`` before a wave gives its registers back (GFX11), and what only a trap handler meets.
- On GFX1250: pages that fault, FLAT_SCRATCH as a base, changes of MODE, ``s_getreg`` of the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from luthier.isa.generations import GFX9, GFX10, GFX11, GFX12, GFX90A, GFX908, GFX940, GFX1250, generations
from luthier.isa.hazard_parties import DS_NOPS, KINDS, ROLES, SCALAR_WRITERS, Role
from luthier.isa.opcodes import Opcode
from luthier.isa.targets import Target


class Party(NamedTuple):
    """One of those who make a hazard."""

    kind: str
    """Of instructions: a key of `KINDS`."""
    role: str = ""
    """Which of their registers: a key of `ROLES`."""

    def may_be(self, opcode: Opcode) -> bool:
        """Whether instructions of this opcode may be it."""
        return KINDS[self.kind].has(opcode) and (self.role not in SCALAR_WRITERS or _writes_scalars(opcode))

    @property
    def units(self) -> Role:
        """Gives the registers of an instruction; none: it is no such party."""
        return ROLES[self.role]


def _writes_scalars(opcode: Opcode) -> bool:
    """Whether it may write a register that has one value a wave."""
    return bool(opcode.implicit_defs) or any(
        operand.is_def and (operand.register_class or "S").startswith("S") for operand in opcode.operands
    )


Relation = Literal["overlap", "same", "partly"]
"""Of the registers of both: some are common; all are; some, but not all."""
Clock = Literal["states", "vector instructions"]


@dataclass(frozen=True, kw_only=True)
class Hazard:
    """A row of the table."""

    name: str
    """In words, also for findings."""
    producer: Party | None
    """None: the consumer is wrong by itself."""
    consumer: Party
    needed: int | Mapping[int, int] | None
    """How many must be between them; by the producer's passes (`passes`); None: one of `cleared_by`."""
    where: frozenset[str]
    """Generations, and processors that are told apart."""
    source: str
    clock: Clock = "states"
    relation: Relation = "overlap"
    middle: Party | None = None
    """What must come between them, in the same registers, so that there is a hazard."""
    cleared_by: tuple[Party, ...] = ()
    """Instructions between them behind which there is no hazard."""
    clears_all: bool = True
    """They clear what still waits for the middle, too."""
    disarmed_by: tuple[Party, ...] = ()
    """Behind them there is none for their registers, until another middle."""
    forgotten_by: tuple[Party, ...] = ()
    """Behind them their registers no longer wait for the middle."""
    opcodes: Literal["any", "same", "other"] = "any"
    """Whether producer and consumer must have the same opcode, or different ones."""
    transcendental: int | None = None
    """So many transcendental instructions between them are enough, too."""
    at_most: str = ""
    """Immediate of the consumer: needed are not more than this."""
    wave_size: int | None = None
    """Only in waves of so many lanes."""
    xnack: bool = False
    """Only where memory instructions may be started anew."""
    remedy: str = ""
    """What stands for wait states, in words, if they do not help."""

    @cached_property
    def in_registers(self) -> bool:
        """Whether producer and consumer meet in registers; else the one is enough for the other."""
        return self.producer is not None and bool(self.producer.role) and bool(self.consumer.role)

    def parties(self, name: str) -> tuple[Party, ...]:
        """Those that a field names, one of `PARTS`."""
        said: Party | tuple[Party, ...] | None = getattr(self, name)
        if said is None:
            return ()
        return (said,) if isinstance(said, Party) else said

    def most(self) -> int:
        """The largest number needed; 0 where numbers do not help."""
        if self.needed is None:
            return 0
        return self.needed if isinstance(self.needed, int) else max(self.needed.values())

    def is_in(self, target: Target, wave_size: int, xnack: bool = True) -> bool:
        """Whether a processor has it."""
        return (
            (target.generation in self.where or target.name in self.where)
            and f"not {target.name}" not in self.where
            and self.wave_size in (None, wave_size)
            and (xnack or not self.xnack)
        )


_NINE = generations(GFX9, GFX940)
_MATRIX_90A = frozenset({GFX90A.generation})
_MATRIX_942 = frozenset({GFX940.generation, "not gfx950"})
_950 = frozenset({"gfx950"})
_MATRIX_2 = _MATRIX_90A | {GFX940.generation}
_908 = frozenset({GFX908.generation})
_940 = frozenset({GFX940.generation})
_10_1 = frozenset({GFX10.generation})
_10 = generations(GFX10, GFX11) - {GFX11.generation}
_11 = frozenset({GFX11.generation})
_11_0 = frozenset({"gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx11-generic"})
_12_0 = frozenset({GFX12.generation})
_1250 = frozenset({GFX1250.generation})

_VEGA = "Vega ISA 4.5"
_MI100, _MI200, _MI300 = "MI100 ISA 4.5", "MI200 ISA 4.5", "MI300 ISA 4.5, 7.5"
_LLVM = "LLVM, GCNHazardRecognizer"


def _passes(more: int) -> dict[int, int]:
    """Passes and some more."""
    return {count: count + more for count in (2, 4, 8, 16)}


_IN_ORDER = ("result", "matrix C")
MATRIX_KINDS = ("MFMA", "MFMA, no DGEMM", "XDL", "SGEMM", "DGEMM", "DGEMM 4x4", "DGEMM 16x16")
"""Matrix instructions write, and read C, in order: behind the younger one, the older one has done it."""


def _row(
    name: str,
    producer: tuple[str, str] | str | None,
    consumer: tuple[str, str] | str,
    needed: int | Mapping[int, int] | None,
    where: frozenset[str],
    source: str,
    **more: object,
) -> Hazard:
    def party(said: tuple[str, str] | str) -> Party:
        return Party(said) if isinstance(said, str) else Party(*said)

    made = None if producer is None else party(producer)
    lists = ("cleared_by", "disarmed_by", "forgotten_by")
    options: dict[str, object] = {"middle": None, **dict.fromkeys(lists, ()), **more}
    if made is not None and made.role in _IN_ORDER and made.kind in MATRIX_KINDS:
        options["disarmed_by"] = (("MFMA", made.role),)
    if options["middle"] is not None:
        options["middle"] = party(options["middle"])  # type: ignore[arg-type]
    for name_of_list in lists:
        options[name_of_list] = tuple(party(one) for one in options[name_of_list])  # type: ignore[attr-defined]
    return Hazard(
        name=name,
        producer=made,
        consumer=party(consumer),
        needed=needed,
        where=where,
        source=source,
        **options,  # type: ignore[arg-type]
    )


_SCALAR_ROWS = (
    _row(
        "VALU writes an SGPR, vector memory reads it",
        ("VALU", "writes SGPRs"),
        ("VMEM", "reads SGPRs"),
        5,
        _NINE,
        _VEGA,
    ),
    _row(
        "VALU writes an SGPR, it selects a lane",
        ("VALU", "writes SGPRs"),
        ("v_readlane, v_writelane", "lane select"),
        4,
        _NINE,
        _VEGA,
    ),
    _row("VALU writes VCC, v_div_fmas", ("VALU", "writes VCC"), ("v_div_fmas", "reads VCC"), 4, _NINE, _VEGA),
    _row("VALU writes EXEC, DPP", ("VALU", "writes EXEC"), ("DPP", "reads EXEC"), 5, _NINE, _VEGA),
    _row("VALU writes a VGPR, DPP reads it", ("VALU", "writes VGPRs"), ("DPP", "reads VGPRs"), 2, _NINE, _VEGA),
    _row(
        "s_setreg, s_getreg of the same register",
        ("s_setreg", "hardware register"),
        ("s_getreg", "hardware register"),
        2,
        _NINE,
        _VEGA,
    ),
    _row(
        "s_setreg, s_setreg of the same register",
        ("s_setreg", "hardware register"),
        ("s_setreg", "hardware register"),
        2,
        _NINE,
        _VEGA,
    ),
    _row("s_setreg of MODE.vskip, vector instruction", ("s_setreg", "sets VSKIP"), "VALU", 2, _NINE, _VEGA),
    _row("s_setvskip, vector instruction", "s_setvskip", "VALU", 2, _NINE, "Vega ISA 4.5, as of MODE.vskip"),
    _row("s_setreg of TRAPSTS, s_rfe", ("s_setreg", "trap status"), "s_rfe", 1, _NINE, _VEGA),
    _row(
        "SALU writes M0, message, trace or GDS",
        ("SALU", "writes M0"),
        ("M0 message, trace or GDS", "reads M0"),
        1,
        _NINE,
        _VEGA,
    ),
    _row(
        "SALU writes M0, indexed move, interpolation or LDS with an address in M0",
        ("SALU", "writes M0"),
        ("M0 move or LDS address", "uses M0"),
        1,
        _NINE,
        _VEGA,
    ),
    _row("SALU writes M0, load from memory to LDS", ("SALU", "writes M0"), ("load to LDS", "uses M0"), 1, _NINE, _VEGA),
    _row(
        "store of more than 64 bits, VALU overwrites its data",
        ("VMEM", "data of a wide store"),
        ("VALU", "writes vectors"),
        1,
        _NINE - _940,
        _VEGA,
    ),
    _row(
        "store of more than 64 bits, VALU overwrites its data",
        ("VMEM", "data of a wide store"),
        ("VALU", "writes vectors"),
        2,
        _940,
        _MI300,
    ),
)

_CLAUSE = "LLVM, GCNHazardRecognizer, checkSoftClauseHazards"

_CLAUSE_REACH = 5
"""Instructions that LLVM looks back at: longer clauses, which it makes, are no finding."""


def _clause(kind: str, words: str, where: frozenset[str]) -> tuple[Hazard, ...]:
    """Memory instructions, one behind another, that may be started anew together. LLVM keeps also stores behind loads
    apart from them, for they might have the same address."""

    def row(name: str, producer: str, consumer: str) -> Hazard:
        return _row(
            f"{words} of one clause: {name}",
            (kind, producer),
            (kind, consumer),
            _CLAUSE_REACH,
            where,
            _CLAUSE,
            cleared_by=(f"not {kind}",),
            xnack=True,
            remedy="an instruction of another kind between them, s_nop 0",
        )

    registers = "SGPRs" if kind == "SMEM" else "vectors"
    return (
        row("one overwrites what another read", f"reads {registers} to load", f"writes {registers}"),
        row("one overwrites what it reads itself", "loads", "overwrites its own source"),
        row("one overwrote what it read itself", "overwrites its own source", ""),
    )


_LANE_ROWS = (
    *_clause("SMEM", "scalar loads", _NINE | _10_1),
    *_clause("VMEM", "vector memory instructions", _NINE),
    _row(
        "VALU writes an SGPR, VALU reads it",
        ("VALU", "writes SGPRs"),
        ("VALU", "reads SGPRs"),
        2,
        _940,
        _MI300,
    ),
    _row(
        "VALU writes a VGPR, v_readlane reads it",
        ("VALU", "writes VGPRs"),
        ("v_readlane, v_readfirstlane", "source 0"),
        1,
        _940,
        _MI300,
    ),
    _row("VALU writes EXEC, lane move", ("VALU", "writes EXEC"), ("lane moves", "reads EXEC"), 4, _940, _MI300),
    _row(
        "transcendental operation, VALU reads its result",
        ("transcendental", "writes VGPRs"),
        ("VALU, no transcendental", "reads VGPRs"),
        1,
        _940,
        _MI300,
    ),
    _row(
        "VALU with a shifted result, VALU uses it",
        ("VALU", "shifted result"),
        ("VALU", "uses vectors"),
        1,
        _940,
        _MI300,
    ),
    _row(
        "conversion to 4 bits, VALU uses its result", ("VALU", "4-bit result"), ("VALU", "uses vectors"), 1, _950, _LLVM
    ),
    _row(
        "VALU writes a VGPR, v_permlane reads it",
        ("VALU", "writes VGPRs"),
        ("v_permlane", "reads VGPRs"),
        2,
        _950,
        _LLVM,
    ),
    _row("v_cmpx, v_permlane", "v_cmpx", "v_permlane", 4, _950, _LLVM),
)

_MATRIX_908_ROWS = (
    _row("VALU writes EXEC, MFMA", ("VALU", "writes EXEC"), "MFMA or v_accvgpr_write", 4, _908, _MI100),
    _row(
        "VALU writes a VGPR, MFMA reads it",
        ("VALU", "writes VGPRs"),
        ("MFMA or v_accvgpr_write", "reads VGPRs"),
        2,
        _908,
        _MI100,
    ),
    _row(
        "MFMA writes AGPRs, MFMA reads them as A or B", ("MFMA", "result"), ("MFMA", "AGPRs of A, B"), 4, _908, _MI100
    ),
    _row(
        "MFMA writes AGPRs, MFMA reads some of them as C",
        ("MFMA", "result"),
        ("MFMA", "matrix C"),
        2,
        _908,
        _MI100,
        relation="partly",
    ),
    _row(
        "MFMA writes an AGPR, v_accvgpr_read",
        ("MFMA", "result"),
        ("v_accvgpr_read", "reads vectors"),
        {2: 4, 8: 10, 16: 18},
        _908,
        _MI100,
    ),
    _row(
        "MFMA writes an AGPR, v_accvgpr_write",
        ("MFMA", "result"),
        ("v_accvgpr_write", "result"),
        {2: 1, 8: 7, 16: 15},
        _908,
        _MI100,
    ),
    _row(
        "MFMA reads an AGPR as C, v_accvgpr_write",
        ("MFMA", "matrix C"),
        ("v_accvgpr_write", "result"),
        {2: 0, 8: 5, 16: 13},
        _908,
        _MI100,
    ),
    _row("v_accvgpr_write, MFMA reads it as C", ("v_accvgpr_write", "result"), ("MFMA", "matrix C"), 1, _908, _MI100),
    _row(
        "v_accvgpr_write, MFMA reads it as A or B",
        ("v_accvgpr_write", "result"),
        ("MFMA", "AGPRs of A, B"),
        3,
        _908,
        _MI100,
    ),
    _row(
        "v_accvgpr_write, v_accvgpr_read",
        ("v_accvgpr_write", "result"),
        ("v_accvgpr_read", "reads vectors"),
        3,
        _908,
        _MI100,
    ),
    _row(
        "v_accvgpr_read, memory reads its result",
        ("v_accvgpr_read", "result"),
        ("VMEM or LDS", "reads VGPRs"),
        2,
        _908,
        _MI100,
    ),
    _row(
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
        _row(f"{kind} writes registers, {words}", (kind, "result"), consumer, needed, where, source, relation=relation)  # type: ignore[arg-type]
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
        _row("DGEMM, v_fma_f64", "DGEMM", "v_fma_f64", 2, where, source),
    )


_SOME_C = "reads some of them as C"
_MATRIX_90A_ROWS = (
    _row("VALU writes EXEC, MFMA", ("VALU, no MFMA", "writes EXEC"), "MFMA", 4, _MATRIX_2, _MI200),
    _row(
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
    _row(
        "MFMA reads a register as C, VALU or memory overwrites it",
        ("MFMA, no DGEMM", "matrix C"),
        _WRITERS,
        {2: 1, 8: 7, 16: 15},
        _MATRIX_90A,
        _MI200,
    ),
    *_double(_MATRIX_90A, _MI200, 11, 9, "DGEMM"),
    _row(
        "VALU writes a register, DGEMM, memory reads the register",
        ("VALU", "writes vectors"),
        ("VMEM or LDS", "reads vectors"),
        2,
        _MATRIX_90A,
        _LLVM,
        middle="DGEMM",
    ),
    _row(
        "DOT, another DOT or VALU or memory reads its result",
        ("DOT", "result"),
        _USERS,
        3,
        _MATRIX_2,
        _MI200,
        opcodes="other",
    ),
    _row(
        "DOT, the same reads its result as A or B",
        ("DOT", "result"),
        ("DOT", "matrix A, B"),
        3,
        _MATRIX_2,
        _MI200,
        opcodes="same",
    ),
    _row(
        "DOT, another DOT or VALU or memory overwrites its result",
        ("DOT", "result"),
        _WRITERS,
        3,
        _MATRIX_2,
        _MI200,
        opcodes="other",
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


_MATRIX_940_ROWS = (
    *_matrix_940(_MATRIX_942, _COUNTS_942, _passes(1), _passes(1)),
    *_matrix_940(_950, _COUNTS_950, _passes(2), {2: 3, 4: 6, 8: 10, 16: 18}),
    _row(
        "MFMA of 2 passes writes registers, MFMA reads them as C",
        ("MFMA, no DGEMM", "result"),
        ("MFMA", "matrix C"),
        {2: 2, 4: 0, 8: 0, 16: 0},
        _940,
        _MI300,
        relation="same",
    ),
    _row(
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

_DRAINED = ("VMEM or LDS", "export", ("s_waitcnt_depctr", "va_vdst 0"))
"""Before them vector instructions have written their registers."""
_GFX10_ROWS = (
    _row(
        "branch over 0x3f words",
        None,
        ("branch", "offset of 0x3f"),
        None,
        _10_1,
        "LLVM, AMDGPU, offset-3f-bug",
        remedy="another distance",
    ),
    _row(
        "v_cmpx, v_permlane",
        "v_cmpx",
        "v_permlane",
        None,
        _10_1 | _11 | _12_0 | _1250,
        _LLVM,
        cleared_by=("VALU, no v_nop",),
        remedy="a vector instruction between them, no v_nop",
    ),
    _row(
        "memory reads an SGPR or EXEC, a scalar instruction overwrites it",
        ("VMEM or LDS", "reads SGPRs or EXEC"),
        ("SALU or SMEM", "writes SGPRs or EXEC by name"),
        None,
        _10_1,
        _LLVM,
        cleared_by=("VALU", ("s_waitcnt", "waits for all"), ("s_waitcnt_depctr", "vm_vsrc 0")),
        remedy="s_waitcnt_depctr 0xffe3 (vm_vsrc)",
    ),
    _row(
        "scalar load reads an SGPR, VALU overwrites it",
        ("SMEM", "reads SGPRs"),
        ("VALU", "writes SGPRs"),
        None,
        _10_1,
        _LLVM,
        cleared_by=(
            ("SALU", "no SOPP"),
            ("s_waitcnt", "lgkmcnt 0"),
            ("s_waitcnt_lgkmcnt", "waits for 0"),
        ),
        remedy="a scalar instruction between them",
    ),
    _row(
        "EXEC is read, v_cmpx overwrites it",
        ("not VALU", "reads EXEC"),
        ("VALU", "writes EXEC"),
        None,
        _10_1,
        _LLVM,
        cleared_by=(("VALU", "writes an SGPR"), ("s_waitcnt_depctr", "sa_sdst 0")),
        remedy="s_waitcnt_depctr 0xfffe (sa_sdst)",
    ),
    *(
        _row(
            f"{first}, branch, {second}",
            first,
            second,
            None,
            _10_1,
            _LLVM,
            middle="branch",
            cleared_by=("VMEM or LDS", ("s_waitcnt_vscnt", "waits for 0")),
            remedy="s_waitcnt_vscnt null, 0x0",
        )
        for first, second in (("LDS", "VMEM"), ("VMEM", "LDS"))
    ),
    _row(
        "image instruction with a long address, buffer instruction with an offset",
        ("image", "long address"),
        ("buffer", "offset with 2 or 4"),
        1,
        _10_1,
        _LLVM,
    ),
    _row(
        "floating-point atomic, s_denorm_mode",
        "floating-point atomic",
        "s_denorm_mode",
        3,
        _10,
        _LLVM,
        cleared_by=("VALU", "wait"),
    ),
)

_GFX11_ROWS = (
    _row(
        "transcendental operation, VALU reads its result",
        ("transcendental", "writes VGPRs"),
        ("VALU", "reads VGPRs"),
        6,
        _11_0,
        _LLVM,
        clock="vector instructions",
        transcendental=2,
        cleared_by=_DRAINED,
        remedy="s_waitcnt_depctr 0xfff (va_vdst)",
    ),
    _row(
        "WMMA writes registers, WMMA reads them as A or B",
        ("WMMA", "result"),
        ("WMMA", "matrix A, B"),
        1,
        _11 | _12_0 | _1250,
        "RDNA3 ISA 7.9.1",
        clock="vector instructions",
        remedy="v_nop",
    ),
    _row(
        "VALU uses a register, LDS direct load to it",
        ("VALU", "uses vectors"),
        ("LDS direct", "result"),
        15,
        _11 | _12_0,
        _LLVM,
        clock="vector instructions",
        cleared_by=("VMEM or LDS", "export"),
        at_most="waitvdst",
        remedy="a smaller wait_vdst",
    ),
    _row(
        "memory uses a register, LDS direct load to it",
        ("VMEM or LDS", "uses vectors"),
        ("LDS direct", "result"),
        None,
        _11,
        _LLVM,
        cleared_by=("VALU", "export", ("s_waitcnt", "waits for all"), ("s_waitcnt_depctr", "vm_vsrc 0")),
        remedy="s_waitcnt_depctr 0xffe3 (vm_vsrc)",
    ),
    *(
        _row(
            f"VALU reads a lane mask, {writer} overwrites it, {reader} reads it",
            ("VALU", "reads a mask"),
            (reader, f"reads {what}"),
            None,
            _11,
            _LLVM,
            middle=(writer, f"writes {what}"),
            cleared_by=(("s_waitcnt_depctr", field),),
            clears_all=False,
            # LLVM looks at one function at a time: calls and returns take long enough for a mask to be read.
            forgotten_by=(("anything", "writes SGPRs"), ("call or return", "all SGPRs")),
            wave_size=64,
            remedy=f"s_waitcnt_depctr ({field[:-2]})",
        )
        for writer, reader, what, field in (
            ("SALU, no call", "SALU or VALU", "SGPRs", "sa_sdst 0"),
            ("VALU", "VALU", "SGPRs other than VCC", "va_sdst 0"),
            ("VALU", "VALU", "VCC", "va_vcc 0"),
        )
    ),
)

_MEMORY_WAITS = ("VMEM, no FLAT", "SMEM")
_GFX12_ROWS = tuple(
    _row(
        f"VALU read an SGPR, {writer} overwrites it, {reader} reads it",
        ("VALU", "reads pairs of SGPRs"),
        (reader, f"reads {what}"),
        None,
        _12_0,
        "LLVM, AMDGPUWaitSGPRHazards",
        middle=(writer, f"writes {what}"),
        cleared_by=(*_MEMORY_WAITS, ("s_waitcnt_depctr", field), *more),
        clears_all=False,
        disarmed_by=disarmed,
        forgotten_by=(("ds_nop", f"SGPRs, by {DS_NOPS[wave_size]}"),),
        wave_size=wave_size,
        remedy=f"s_wait_alu ({field[:-2]})",
    )
    for wave_size in DS_NOPS
    for writer, reader, what, field, more, disarmed in (
        ("SALU", "SALU or VALU", "SGPRs", "sa_sdst 0", (), (("VALU", "writes VCC"),)),
        # A scalar instruction that reads what a vector instruction wrote waits for all of them.
        ("VALU", "VALU", "SGPRs other than VCC", "va_sdst 0", (("SALU", "reads SGPRs other than VCC"),), ()),
        ("VALU", "VALU", "VCC", "va_vcc 0", (("SALU", "reads VCC"),), (("SALU", "writes VCC"),)),
    )
)

_WMMA_TO_WMMA = {8: 5, 16: 9, 9: 3, 17: 5}
_WMMA_TO_VALU = {8: 4, 16: 8, 9: 2, 17: 4}
_GFX1250_ROWS = (
    _row(
        "transcendental operation, VALU reads its result",
        ("transcendental", "writes VGPRs"),
        ("VALU, no transcendental", "reads VGPRs"),
        1,
        _1250,
        _LLVM,
        clock="vector instructions",
        remedy="v_nop",
    ),
    _row(
        "transcendental operation, VALU overwrites its source",
        ("transcendental", "reads VGPRs"),
        ("VALU, no transcendental", "result"),
        1,
        _1250,
        _LLVM,
        clock="vector instructions",
        remedy="v_nop",
    ),
    *(
        _row(
            f"WMMA writes registers, {words}",
            ("XDL WMMA", "result"),
            consumer,
            counts,
            _1250,
            _LLVM,
            clock="vector instructions",
            remedy="v_nop",
        )
        for words, consumer, counts in (
            ("WMMA reads them as A or B", ("XDL WMMA", "matrix A, B"), _WMMA_TO_WMMA),
            ("VALU reads them", ("VALU, no WMMA", "reads vectors"), _WMMA_TO_VALU),
            ("VALU overwrites them", ("VALU, no WMMA", "writes vectors"), _WMMA_TO_VALU),
        )
    ),
)

HAZARDS: tuple[Hazard, ...] = (
    *_SCALAR_ROWS,
    *_LANE_ROWS,
    *_MATRIX_908_ROWS,
    *_MATRIX_90A_ROWS,
    *_MATRIX_940_ROWS,
    *_GFX10_ROWS,
    *_GFX11_ROWS,
    *_GFX12_ROWS,
    *_GFX1250_ROWS,
)
"""The table."""
