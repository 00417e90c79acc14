"""Hazards that begin with GFX9: scalar registers, lanes, and memory instructions of one clause."""

from __future__ import annotations

from luthier.arch.clauses import clause_rows, replayed_load
from luthier.arch.hazards import row

_VEGA = "Vega ISA 4.5"

ROWS = (
    row(
        "VALU writes an SGPR, vector memory reads it",
        ("VALU", "writes SGPRs"),
        ("VMEM", "reads SGPRs"),
        5,
        _VEGA,
    ),
    row(
        "VALU writes an SGPR, it selects a lane",
        ("VALU", "writes SGPRs"),
        ("v_readlane, v_writelane", "lane select"),
        4,
        _VEGA,
    ),
    row("VALU writes VCC, v_div_fmas", ("VALU", "writes VCC"), ("v_div_fmas", "reads VCC"), 4, _VEGA),
    row("VALU writes EXEC, DPP", ("VALU", "writes EXEC"), ("DPP", "reads EXEC"), 5, _VEGA),
    # LLVM keeps it apart from all that DPP reads; across lanes it reads the first source alone.
    row("VALU writes a VGPR, DPP reads it", ("VALU", "writes VGPRs"), ("DPP", "source 0"), 2, _VEGA),
    row(
        "s_setreg, s_getreg of the same register",
        ("s_setreg", "hardware register"),
        ("s_getreg", "hardware register"),
        2,
        _VEGA,
    ),
    row(
        "s_setreg, s_setreg of the same register",
        ("s_setreg", "hardware register"),
        ("s_setreg", "hardware register"),
        2,
        _VEGA,
    ),
    row("s_setreg of MODE.vskip, vector instruction", ("s_setreg", "sets VSKIP"), "VALU", 2, _VEGA),
    row("s_setvskip, vector instruction", "s_setvskip", "VALU", 2, "Vega ISA 4.5, as of MODE.vskip"),
    row("s_setvskip, s_getreg of MODE", ("s_setvskip", "MODE"), ("s_getreg", "hardware register"), 2, _VEGA),
    row("s_setreg of TRAPSTS, s_rfe", ("s_setreg", "trap status"), "s_rfe", 1, _VEGA),
    row(
        "SALU writes M0, message, trace or GDS",
        ("SALU", "writes M0"),
        ("M0 message, trace or GDS", "reads M0"),
        1,
        _VEGA,
    ),
    row(
        "SALU writes M0, indexed move, interpolation or LDS with an address in M0",
        ("SALU", "writes M0"),
        ("M0 move or LDS address", "uses M0"),
        1,
        _VEGA,
    ),
    row(
        "SALU writes M0, operand in LDS with an address in M0",
        ("SALU", "writes M0"),
        ("VALU", "reads LDS at M0"),
        1,
        "LLVM, checkReadM0Hazards",
        until=("GFX90A",),
    ),
    # Not buffer loads, which documents do not name; LLVM keeps these apart, too.
    row(
        "SALU writes M0, store of LDS, or scratch or global load to LDS",
        ("SALU", "writes M0"),
        ("store of LDS, FLAT load to LDS", "uses M0"),
        1,
        _VEGA,
    ),
    row(
        "store of more than 64 bits, VALU overwrites its data",
        ("VMEM", "data of a wide store"),
        ("VALU", "writes vectors"),
        1,
        _VEGA,
        until=("GFX940",),
    ),
    *clause_rows("SMEM", "scalar loads"),
    *clause_rows("VMEM", "vector memory instructions"),
    replayed_load(xnack=True),
)
