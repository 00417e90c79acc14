"""Lane masks behind a change of EXEC on GFX11 (cases: ../filetests/spliced/lane_masks.test)."""

from __future__ import annotations

import pytest
from luthier.hazards.wait_states import check_hazards
from luthier.lifting import lift
from luthier.patch.registers import lane_masks
from wait_kernels import kernel


@pytest.mark.rows(2)
@pytest.mark.parametrize("change", ["s_mov_b64 exec, s[8:9]", "s_and_saveexec_b64 s[8:9], vcc", "s_nop 0"])
@pytest.mark.parametrize("target", ["gfx1100", "gfx1150"])
def test_behind_a_change_of_exec(target: str, change: str) -> None:
    """What was written before it and behind it may be read."""
    code, use = f"v_mov_b32 v4, v1; {change}", "v_mov_b32 v5, v2; v_add_nc_u32 v6, v4, v5"
    isa = lift(kernel(target, code, wave_size=64), "k").isa
    waits = lane_masks.behind(isa, isa.assemble(code.replace("; ", "\n")).instructions.code, 0)
    assert bool(waits) == ("exec" in change)
    findings = [
        check_hazards(lift(kernel(target, "; ".join(lines), wave_size=64), "k"), unneeded=False).findings
        for lines in ((code, use), (code, *waits, use))
    ]
    assert bool(findings[0]) == bool(waits)
    assert not findings[1]
