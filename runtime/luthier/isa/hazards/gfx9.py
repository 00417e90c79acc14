"""Hazards of GFX9: scalar registers, lanes, and memory instructions of one clause."""

from __future__ import annotations

from luthier.isa.generations import GFX9, GFX10, GFX940, generations
from luthier.isa.hazards.rows import Hazard, row

_NINE = generations(GFX9, GFX940)
_940 = frozenset({GFX940.generation})
_950 = frozenset({"gfx950"})
_10_1 = frozenset({GFX10.generation})

_VEGA, _MI300 = "Vega ISA 4.5", "MI300 ISA 4.5, 7.5"
_LLVM = "LLVM, GCNHazardRecognizer"

SCALAR_ROWS = (
    row(
        "VALU writes an SGPR, vector memory reads it",
        ("VALU", "writes SGPRs"),
        ("VMEM", "reads SGPRs"),
        5,
        _NINE,
        _VEGA,
    ),
    row(
        "VALU writes an SGPR, it selects a lane",
        ("VALU", "writes SGPRs"),
        ("v_readlane, v_writelane", "lane select"),
        4,
        _NINE,
        _VEGA,
    ),
    row("VALU writes VCC, v_div_fmas", ("VALU", "writes VCC"), ("v_div_fmas", "reads VCC"), 4, _NINE, _VEGA),
    row("VALU writes EXEC, DPP", ("VALU", "writes EXEC"), ("DPP", "reads EXEC"), 5, _NINE, _VEGA),
    # LLVM keeps it apart from all that DPP reads; across lanes it reads the first source alone.
    row("VALU writes a VGPR, DPP reads it", ("VALU", "writes VGPRs"), ("DPP", "source 0"), 2, _NINE, _VEGA),
    row(
        "s_setreg, s_getreg of the same register",
        ("s_setreg", "hardware register"),
        ("s_getreg", "hardware register"),
        2,
        _NINE,
        _VEGA,
    ),
    row(
        "s_setreg, s_setreg of the same register",
        ("s_setreg", "hardware register"),
        ("s_setreg", "hardware register"),
        2,
        _NINE,
        _VEGA,
    ),
    row("s_setreg of MODE.vskip, vector instruction", ("s_setreg", "sets VSKIP"), "VALU", 2, _NINE, _VEGA),
    row("s_setvskip, vector instruction", "s_setvskip", "VALU", 2, _NINE, "Vega ISA 4.5, as of MODE.vskip"),
    row("s_setvskip, s_getreg of MODE", ("s_setvskip", "MODE"), ("s_getreg", "hardware register"), 2, _NINE, _VEGA),
    row("s_setreg of TRAPSTS, s_rfe", ("s_setreg", "trap status"), "s_rfe", 1, _NINE, _VEGA),
    row(
        "SALU writes M0, message, trace or GDS",
        ("SALU", "writes M0"),
        ("M0 message, trace or GDS", "reads M0"),
        1,
        _NINE,
        _VEGA,
    ),
    row(
        "SALU writes M0, indexed move, interpolation or LDS with an address in M0",
        ("SALU", "writes M0"),
        ("M0 move or LDS address", "uses M0"),
        1,
        _NINE,
        _VEGA,
    ),
    # Not buffer loads, which documents do not name; LLVM keeps these apart, too.
    row(
        "SALU writes M0, store of LDS, or scratch or global load to LDS",
        ("SALU", "writes M0"),
        ("store of LDS, FLAT load to LDS", "uses M0"),
        1,
        _NINE,
        _VEGA,
    ),
    row(
        "store of more than 64 bits, VALU overwrites its data",
        ("VMEM", "data of a wide store"),
        ("VALU", "writes vectors"),
        1,
        _NINE - _940,
        _VEGA,
    ),
    row(
        "store of more than 64 bits, VALU overwrites its data",
        ("VMEM", "data of a wide store"),
        ("VALU", "writes vectors"),
        2,
        _940,
        _MI300,
    ),
    row(
        "store of more than 64 bits with an offset in an SGPR, VALU overwrites its data",
        ("VMEM", "data of a wide store, offset in an SGPR"),
        ("VALU", "writes vectors"),
        1,
        _940,
        "LLVM since 2026, checkVALUHazardsHelper",
    ),
)

_CLAUSE = "LLVM, GCNHazardRecognizer, checkSoftClauseHazards"

_CLAUSE_REACH = 5
"""Instructions that LLVM looks back at: longer clauses, which it makes, are no finding."""


def _clause(kind: str, words: str, where: frozenset[str]) -> tuple[Hazard, ...]:
    """Memory instructions, one behind another, that may be started anew together. LLVM keeps also stores behind loads
    apart from them, for they might have the same address."""

    def of(name: str, producer: str, consumer: str) -> Hazard:
        return row(
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
        of("one overwrites what another read", f"reads {registers} to load", f"writes {registers}"),
        of("one overwrites what it reads itself", "loads", "overwrites its own source"),
        of("one overwrote what it read itself", "overwrites its own source", ""),
    )


LANE_ROWS = (
    *_clause("SMEM", "scalar loads", _NINE | _10_1),
    *_clause("VMEM", "vector memory instructions", _NINE),
    # Not as a lane mask: that takes no wait states. LLVM keeps these apart, too.
    row(
        "VALU writes an SGPR, VALU reads it as a constant",
        ("VALU", "writes SGPRs"),
        ("VALU", "reads SGPRs as constants"),
        2,
        _940,
        _MI300,
    ),
    row(
        "VALU writes EXEC, VALU reads it as a constant",
        ("VALU", "writes EXEC"),
        ("VALU", "reads EXEC as a constant"),
        2,
        _940,
        _MI300,
    ),
    row(
        "VALU writes a VGPR, v_readlane reads it",
        ("VALU", "writes VGPRs"),
        ("v_readlane, v_readfirstlane", "source 0"),
        1,
        _940,
        _MI300,
    ),
    row("VALU writes EXEC, lane move", ("VALU", "writes EXEC"), ("lane moves", "reads EXEC"), 4, _940, _MI300),
    row(
        "transcendental operation, VALU reads its result",
        ("transcendental", "writes VGPRs"),
        ("VALU, no transcendental", "reads or keeps VGPRs"),
        1,
        _940,
        _MI300,
    ),
    row(
        "VALU with a shifted result, VALU uses it",
        ("VALU", "shifted result"),
        ("VALU", "uses vectors"),
        1,
        _940,
        _MI300,
    ),
    row(
        "conversion to 4 bits, VALU uses its result", ("VALU", "4-bit result"), ("VALU", "uses vectors"), 1, _950, _LLVM
    ),
    row(
        "VALU writes a VGPR, v_permlane reads it",
        ("VALU", "writes VGPRs"),
        ("v_permlane", "reads VGPRs"),
        2,
        _950,
        _LLVM,
    ),
    row("v_cmpx, v_permlane", "v_cmpx", "v_permlane", 4, _950, _LLVM),
)
