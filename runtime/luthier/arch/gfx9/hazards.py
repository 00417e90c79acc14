"""Hazards that begin with GFX9: scalar registers, lanes, and memory instructions of one clause."""

from __future__ import annotations

from luthier.arch.clauses import clause_rows, replayed_load
from luthier.arch.hazards import Hazard, sourced
from luthier.arch.parties import *

_VEGA = "Vega ISA 4.5"

ROWS = sourced(
    _VEGA,
    Hazard(
        name="VALU writes an SGPR, vector memory reads it",
        producer=VALU.writes(SGPRS),
        consumer=VMEM.reads(SGPRS),
        needed=5,
    ),
    Hazard(
        name="VALU writes an SGPR, it selects a lane",
        producer=VALU.writes(SGPRS),
        consumer=V_READLANE_OR_V_WRITELANE.by(LANE_SELECT),
        needed=4,
    ),
    Hazard(name="VALU writes VCC, v_div_fmas", producer=VALU.writes(VCC), consumer=V_DIV_FMAS.reads(VCC), needed=4),
    Hazard(name="VALU writes EXEC, DPP", producer=VALU.writes(EXEC), consumer=DPP.reads(EXEC), needed=5),
    # LLVM separates it from all sources of DPP, which reads only the first source across lanes.
    Hazard(name="VALU writes a VGPR, DPP reads it", producer=VALU.writes(VGPRS), consumer=DPP.by(SOURCE_0), needed=2),
    Hazard(
        name="s_setreg, s_getreg of the same register",
        producer=S_SETREG.by(HARDWARE_REGISTER),
        consumer=S_GETREG.by(HARDWARE_REGISTER),
        needed=2,
    ),
    Hazard(
        name="s_setreg, s_setreg of the same register",
        producer=S_SETREG.by(HARDWARE_REGISTER),
        consumer=S_SETREG.by(HARDWARE_REGISTER),
        needed=2,
    ),
    Hazard(
        name="s_setreg of MODE.vskip, vector instruction", producer=S_SETREG.by(SETS_VSKIP), consumer=VALU, needed=2
    ),
    Hazard(
        name="s_setvskip, vector instruction",
        producer=S_SETVSKIP,
        consumer=VALU,
        needed=2,
        source="Vega ISA 4.5, as of MODE.vskip",
    ),
    Hazard(
        name="s_setvskip, s_getreg of MODE",
        producer=S_SETVSKIP.by(MODE),
        consumer=S_GETREG.by(HARDWARE_REGISTER),
        needed=2,
    ),
    Hazard(name="s_setreg of TRAPSTS, s_rfe", producer=S_SETREG.by(TRAP_STATUS), consumer=S_RFE, needed=1),
    Hazard(
        name="SALU writes M0, message, trace or GDS",
        producer=SALU.writes(M0),
        consumer=M0_MESSAGE_TRACE_OR_GDS.by(READS_M0),
        needed=1,
    ),
    Hazard(
        name="SALU writes M0, indexed move, interpolation or LDS with an address in M0",
        producer=SALU.writes(M0),
        consumer=M0_MOVE_OR_LDS_ADDRESS.by(USES_M0),
        needed=1,
    ),
    Hazard(
        name="SALU writes M0, operand in LDS with an address in M0",
        producer=SALU.writes(M0),
        consumer=VALU.by(READS_LDS_AT_M0),
        needed=1,
        source="LLVM, checkReadM0Hazards",
        until=("GFX90A",),
    ),
    # Not buffer loads, which the documents do not name, but LLVM also separates.
    Hazard(
        name="SALU writes M0, store of LDS, or scratch or global load to LDS",
        producer=SALU.writes(M0),
        consumer=STORE_OF_LDS_OR_FLAT_LOAD_TO_LDS.by(USES_M0),
        needed=1,
    ),
    Hazard(
        name="store of more than 64 bits, VALU overwrites its data",
        producer=VMEM.by(DATA_OF_A_WIDE_STORE),
        consumer=VALU.writes(VECTORS),
        needed=1,
        until=("GFX940",),
    ),
    *clause_rows(SMEM, NOT_SMEM, SGPRS, "scalar loads"),
    *clause_rows(VMEM, NOT_VMEM, VECTORS, "vector memory instructions"),
    replayed_load(xnack=True),
)
