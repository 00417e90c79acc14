"""Hazards that begin with GFX940: more of vector instructions, and its matrix instructions."""

from __future__ import annotations

from luthier.arch.hazards import ending, row
from luthier.arch.matrix import WRITERS, double_rows, other_passes, passes_and, xdl_rows

_MI300 = "MI300 ISA 4.5, 7.5"

ROWS = (
    row(
        "store of more than 64 bits, VALU overwrites its data",
        ("VMEM", "data of a wide store"),
        ("VALU", "writes vectors"),
        2,
        _MI300,
    ),
    row(
        "store of more than 64 bits with an offset in an SGPR, VALU overwrites its data",
        ("VMEM", "data of a wide store, offset in an SGPR"),
        ("VALU", "writes vectors"),
        1,
        "LLVM since 2026, checkVALUHazardsHelper",
    ),
    # Not as a lane mask: that takes no wait states. LLVM keeps these apart, too.
    row(
        "VALU writes an SGPR, VALU reads it as a constant",
        ("VALU", "writes SGPRs"),
        ("VALU", "reads SGPRs as constants"),
        2,
        _MI300,
    ),
    row(
        "VALU writes EXEC, VALU reads it as a constant",
        ("VALU", "writes EXEC"),
        ("VALU", "reads EXEC as a constant"),
        2,
        _MI300,
    ),
    row(
        "VALU writes a VGPR, v_readlane reads it",
        ("VALU", "writes VGPRs"),
        ("v_readlane, v_readfirstlane", "source 0"),
        1,
        _MI300,
    ),
    row("VALU writes EXEC, lane move", ("VALU", "writes EXEC"), ("lane moves", "reads EXEC"), 4, _MI300),
    row(
        "transcendental operation, VALU reads its result",
        ("transcendental", "writes VGPRs"),
        ("VALU, no transcendental", "reads or keeps VGPRs"),
        1,
        _MI300,
    ),
    row(
        "VALU with a shifted result, VALU uses it",
        ("VALU", "shifted result"),
        ("VALU", "uses vectors"),
        1,
        _MI300,
    ),
    row(
        "MFMA of 2 passes writes registers, MFMA reads them as C",
        ("MFMA, no DGEMM", "result"),
        ("MFMA", "matrix C"),
        {2: 2, 4: 0, 8: 0, 16: 0},
        _MI300,
        relation="same",
    ),
    row(
        "XDL reads a register as C, VALU or memory overwrites it",
        ("XDL", "matrix C"),
        WRITERS,
        {2: 1, 4: 3, 8: 7, 16: 15},
        _MI300,
    ),
    *ending(
        "GFX950",
        other_passes(passes_and(1)),
        *xdl_rows({2: 5, 4: 7, 8: 11, 16: 19}, passes_and(1), passes_and(1)),
        *double_rows(_MI300, 11, 9, "SGEMM or DGEMM"),
    ),
)
