"""Registers that instructions read and write (cases: ../filetests/check/effects.test)."""

from __future__ import annotations

import numpy as np
import pytest
from luthier.isa import Isa
from luthier.isa.registers import UnitSet
from luthier.lifting.instructions.effects import Columns, EffectTable


@pytest.mark.parametrize("target", ["gfx1100", "gfx1150", "gfx1200"])
def test_dual_operations_are_both_their_halves(target: str) -> None:
    """Every pair, with registers of either parity: what the two operations by themselves do."""
    isa = Isa.of(target, 32)
    table = EffectTable(isa, 32, 0)
    random = np.random.default_rng(0)
    # VOPD (RDNA3 and RDNA4 instruction set architecture): 110010 OPX OPY VSRC1X SRC0X, VDSTX VDSTY VSRC1Y SRC0Y
    opx, opy, _ = (field.ravel() for field in np.meshgrid(np.arange(16), np.arange(32), np.arange(8)))
    sources = np.r_[0:128, 240:248, 255:512]  # scalar registers, constants, a literal, vector registers
    source, vector = random.choice(sources, (2, len(opx))), random.integers(0, 256, (4, len(opx)))
    words = np.zeros((len(opx), 3), np.uint32)
    words[:, 0] = 0x32 << 26 | opx << 22 | opy << 17 | vector[0] << 9 | source[0]
    words[:, 1] = vector[1] << 24 | vector[2] >> 1 << 17 | vector[3] << 9 | source[1]
    words[:, 2] = 0x12345
    pairs = isa.decode(words.tobytes())
    dual = [index for index in np.flatnonzero(pairs.offset % 12 == 0).tolist() if pairs.opcode[index] >= 0]
    halves = []
    for index in dual:
        for half in isa.text(pairs, index).split(" :: "):
            name, rest = half.split(" ", 1)
            ending = "" if "fmaak" in name or "fmamk" in name else "_e32"
            vcc = ", vcc_lo" if name == "v_dual_cndmask_b32" else ""
            # Not every target has the dot products by themselves. They name the registers that v_fmac names.
            single = "v_fmac_f32" if "dot2acc" in name else name.replace("v_dual_", "v_")
            halves.append(f"{single}{ending} {rest}{vcc}")
    alone = isa.assemble("\n".join(halves)).instructions
    both, separate = Columns(pairs), Columns(alone)
    for number, index in enumerate(dual):
        x, y = table.of(separate, 2 * number), table.of(separate, 2 * number + 1)
        effects = table.of(both, index)
        for name in ("reads", "cross_reads", "writes", "kills", "hard_kills"):
            expected = getattr(x, name) | getattr(y, name)
            assert UnitSet(getattr(effects, name)) == UnitSet(expected), (name, halves[2 * number : 2 * number + 2])
    assert len({int(pairs.opcode[index]) for index in dual}) > 200
