"""Registers that a kernel may read before it writes them: only these can hold undefined values when a wave begins."""

from __future__ import annotations

import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier.emulator import layout
from luthier.emulator.inspection.early import early_registers, plan_fields
from luthier.isa import registers as r

ROW = 4 * 64
BRANCH = """
  v_mov_b32 v2, 1
  v_cmp_lt_u32 vcc, v0, v2
  s_and_saveexec_b64 s[0:1], vcc
  v_mov_b32 v3, 1
  {between}
  s_or_b64 exec, exec, s[0:1]
  v_add_u32 v4, v3, v2
  s_endpgm
"""
"""Only some lanes write v3 before all read it."""


def offsets_in(text: str, target: str = "gfx90a", given: int = 8) -> list[int] | None:
    code = assembled(kernel_text(function("k", [text]), target), target)
    return early_registers(code, code.kernels["k"], given)


def early(text: str, target: str = "gfx90a", given: int = 8) -> set[str]:
    """Return the names of the early registers of a kernel of which v0 and s0 to s7 are set at the launch."""
    offsets = offsets_in(text, target, given)
    assert offsets is not None
    names = {4 * unit: f"s{unit}" for unit in r.SGPRS}
    names |= {layout.VECTORS + ROW * number: f"v{number}" for number in range(256)}
    names |= {layout.VCC: "vcc_lo", layout.VCC + 4: "vcc_hi", layout.M0: "m0", layout.WAVE["scc"]: "scc"}
    return {names[offset] for offset in offsets}


@pytest.mark.parametrize(
    ("text", "registers"),
    [
        ("v_mov_b32 v1, v0", set()),
        ("v_mov_b32 v1, s7", set()),
        ("v_mov_b32 v1, v5", {"v5"}),
        ("v_mov_b32 v1, s9", {"s9"}),
        ("s_cselect_b32 s0, 1, 2", {"scc"}),
        ("v_addc_co_u32 v1, vcc, v0, v0, vcc", {"vcc_lo", "vcc_hi"}),
        ("ds_read_b32 v1, v0", set()),
        ("ds_read_addtid_b32 v1", {"m0"}),
        ("ds_append v1", {"m0"}),
        ("s_mov_b32 s0, m0", {"m0"}),
        ("s_mov_b32 m0, 0\n ds_append v1", set()),
    ],
)
def test_registers(text: str, registers: set[str]) -> None:
    assert early(f"{text}\n s_endpgm") == registers


@pytest.mark.parametrize(("text", "tracks"), [("v_mov_b32 v1, v0", False), ("v_mov_b32 v1, v5", True)])
def test_waves_begin_without_tracking_where_no_register_is_early(text: str, tracks: bool) -> None:
    place = np.zeros(8, np.uint32)
    fields = plan_fields(offsets_in(f"{text}\n s_endpgm"), place, {"key": 1, "stepping": layout.OBSERVED})
    assert ("key" in fields, fields.get("early_count", 0)) == (not tracks, int(tracks))
    if not tracks:
        assert fields["key"] == 1 | layout.ALL_DEFINED
        assert fields["stepping"] == layout.OBSERVED | layout.ALL_DEFINED


def test_lanes_that_did_not_write() -> None:
    assert early(BRANCH.format(between="")) == {"v3"}
    assert early(BRANCH.format(between="s_xor_b64 exec, exec, s[0:1]\n v_mov_b32 v3, 2")) == set()


def test_code_that_is_not_known() -> None:
    offsets = offsets_in("s_load_dwordx2 s[0:1], s[0:1], 0x0\n s_waitcnt lgkmcnt(0)\n s_setpc_b64 s[0:1]")
    assert offsets is None or layout.VECTORS + ROW in offsets
