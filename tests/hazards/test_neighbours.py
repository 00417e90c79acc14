"""Wait states between the application and payloads on GFX9 (cases: ../filetests/spliced/neighbours.test)."""

from __future__ import annotations

from pathlib import Path

import pytest
from luthier.hazards.wait_counters import check_waits
from luthier.hazards.wait_states import check_hazards
from luthier.lifting import lift
from luthier.module import ToolModule
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.tool.task import InstrumentationTask, reg
from wait_kernels import kernel

TARGETS = ("gfx906", "gfx90a", "gfx942")
HOOKS = (Path(__file__).parents[1] / "filetests/spliced/neighbours.hip").read_text()
NAMES = ("store", "chosen", "first", "every", "wide")
FRESH = range(60, 70)
"""SGPRs that nothing uses."""
WRITERS = [f"v_cmp_eq_u32 s[{first}:{first + 1}], v{first - 60}, v1" for first in FRESH[-2::-2]]
VGPRS = 96


def around(target: str, before: str, behind: str = "s_nop 7") -> CodeObject:
    """A kernel in which all SGPRs but the fresh ones are live at an s_nop 1, and all VGPRs."""
    live = [f"s_xor_b32 s2, s2, s{unit}" for unit in (0, 1, *range(3, 102)) if unit not in FRESH]
    vectors = [f"v_xor_b32 v0, v0, v{unit}" for unit in range(1, VGPRS)]
    filled = [f"s_mov_b32 s{unit}, {unit}" for unit in range(8, 102)]
    filled += [f"v_mov_b32 v{unit}, {unit}" for unit in range(4, VGPRS)]
    return kernel(target, "; ".join([*filled, "s_nop 7", before, "s_nop 1", behind, *live, *vectors]))


@pytest.mark.rows(2)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", TARGETS)
def test_payloads_wait_for_what_was_written_right_before(hooks: ToolModule, target: str, name: str) -> None:
    lengths = []
    for distance in (0, 3, 8):
        apart = f"; s_nop {distance - 1}" if distance else ""
        object = around(target, "; ".join(WRITERS) + apart)
        lengths.append(_patched(object, hooks, name))
    assert lengths == sorted(lengths, reverse=True)


READERS = (
    "s_mov_b64 s[60:61], 0; global_load_dword v3, v2, s[60:61]",
    "s_mov_b64 s[60:61], 0; s_mov_b64 s[62:63], 0; s_mov_b32 s64, 0; buffer_load_dword v3, off, s[60:63], s64",
    "s_mov_b32 s62, 0; v_readlane_b32 s66, v3, s62",
    "s_mov_b64 vcc, 0; v_div_fmas_f32 v3, v2, v2, v2",
)


@pytest.mark.rows(8)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", TARGETS)
def test_what_follows_does_not_come_too_early(hooks: ToolModule, target: str, name: str, reader: str) -> None:
    """Between two hooks, and behind both: what is in the registers then is the application's own."""
    for marker in ("s_nop 1", reader.split("; ")[0]):
        _patched(around(target, "s_nop 7", reader), hooks, name, marker)


@pytest.mark.parametrize("free", [1, 2, 3])
@pytest.mark.parametrize("target", ["gfx1030", "gfx1201", "gfx1250"])
def test_registers_come_back_in_all_lanes(make_module, target: str, free: int) -> None:
    """Where hardly an SGPR is dead, a VGPR is kept in private memory for all lanes, and loaded in two steps."""
    module = make_module(HOOKS, target)
    scalars, vectors = range(3, 106 - free), range(4, VGPRS)
    filled = [f"s_mov_b32 s{unit}, {unit}" for unit in scalars[5:]] + [f"v_mov_b32 v{unit}, {unit}" for unit in vectors]
    used = [f"s_xor_b32 s2, s2, s{unit}" for unit in (0, 1, *scalars)]
    used += [f"v_xor_b32 v0, v0, v{unit}" for unit in (1, 2, 3, *vectors)]
    object = kernel(target, "; ".join([*filled, "s_nop 1", *used]), wave_size=32)

    def instrument(task: InstrumentationTask) -> None:
        task.budget(registers=VGPRS, on_excess="spill")
        point = next(one for one in task.instructions if one.text == "s_nop 1")
        for name in NAMES:
            task.insert_hook_before(point, module.hook(name), reg("v1"))

    lifted = lift(load_object(patch_object(object, instrument, ["k"], strict=True).data), "k")
    texts = [lifted.isa.text(lifted.code, index) for index in range(len(lifted.code))]
    assert "s_not_b32 exec_lo, exec_lo" in texts
    assert any(text.startswith("scratch_load") for text in texts)
    assert not check_waits(lifted, unneeded=False).findings


def _patched(object: CodeObject, hooks: ToolModule, name: str, marker: str = "s_nop 1") -> int:
    """Instructions that a patched kernel without hazards has more."""

    def instrument(task: InstrumentationTask) -> None:
        task.budget(registers=VGPRS, on_excess="spill")
        point = next(one for one in task.instructions if one.text == marker)
        task.insert_hook_before(point, hooks.hook(name), reg("v1"))

    original = lift(object, "k")
    assert not check_hazards(original, unneeded=False).findings
    patched = load_object(patch_object(object, instrument, ["k"], strict=True).data)
    lifted = lift(patched, "k")
    assert not check_hazards(lifted, unneeded=False).findings
    return len(lifted.code) - len(original.code)
