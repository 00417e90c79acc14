"""Steps that are cached by opcode and operands, and those for which these are not enough."""

from __future__ import annotations

import pytest
from luthier.hazards.wait_states.model import hazard_model
from luthier.hazards.wait_states.operands import opcodes_of
from luthier.hazards.wait_states.steps import instance_of, known_fields, step_of
from luthier.isa import Isa, TargetId
from luthier.isa import registers as r
from luthier.lifting.instructions.effects import Columns, EffectTable


@pytest.mark.parametrize(
    ("target", "lines", "vectors"),
    [
        ("gfx90a", ["v_lshlrev_b64 v[0:1], v7, v[2:3]"], (8, 16)),  # by the last VGPR of a block of eight
        ("gfx1030", ["v_movrels_b32_e32 v0, v1"], (8, 16)),  # any VGPR that the kernel has
        ("gfx1201", ["ds_nop"] * 9, (8, 8)),  # as many in a row as make the hardware forget
        ("gfx942", ["v_add_f32 v0, v1, v2"] * 2, (8, 16)),
    ],
)
def test_as_without_memory(target: str, lines: list[str], vectors: tuple[int, int]) -> None:
    size = 64 if target.startswith("gfx9") else 32
    isa = Isa.of(TargetId.parse(target), size)
    columns = Columns(isa.assemble("\n".join(lines)).instructions)
    model = hazard_model(isa.target.target, size)
    opcodes = opcodes_of(model, isa)
    every = frozenset(rule.number for rule in model.rules)
    for count in vectors:
        table = EffectTable(isa, size, r.mask_of(r.VGPRS[:count]))
        native = table.code(columns)
        for index, number in enumerate(columns.opcode):
            taking = opcodes.taking_of(number, every)
            fields = known_fields(opcodes, table, native, columns, index, taking, 0, count)
            instance = instance_of(table, native, columns, index, 0, count)
            assert fields == step_of(model, instance, index, opcodes.ticks[0], opcodes.ticks[0])[3:]
