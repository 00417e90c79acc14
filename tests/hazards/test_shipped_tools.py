"""Kernels patched by the tools of examples/tools have no hazard and no missing wait that the original does not have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from luthier.hazards.wait_counters import check_order, check_waits
from luthier.hazards.wait_states import check_hazards
from luthier.lifting import lift
from luthier.module import ToolModule
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from shipped import NAMES, tool_of
from shipped_tools import shipped_tools

TARGETS = ("gfx942", "gfx1010", "gfx1030", "gfx1100", "gfx1200", "gfx1201", "gfx1250")
WAVE64 = ("gfx1100", "gfx1201")
"""Those whose kernels are compiled for waves of 64 lanes, too."""
FLAG = "-mwavefrontsize64"
APPLICATIONS = ("vector_add", "reduction")
OPTIONS: Mapping[str, Mapping[str, object]] = {
    "register_write": {"at": "v_*", "flip": 1},
}
TOOLS = shipped_tools()


def findings(object: CodeObject, kernel: str) -> Counter[str]:
    """How many findings a kernel has, by kind."""
    lifted = lift(object, kernel)
    missing = (*check_waits(lifted, unneeded=False).findings, *check_order(lifted))
    waits = (f"{one.access} {one.counter}" for one in missing)
    return Counter([*waits, *(hazard for _, hazard in check_hazards(lifted, unneeded=False, searches=0).consumers)])


def test_vcc_where_ways_join_on_gfx12(
    make_module: Callable[..., ToolModule], app: Callable[..., Path], tmp_path: Path
) -> None:
    """LLVM forgets that a scalar instruction wrote VCC where a vector instruction did on another way."""
    test_nothing_is_added(make_module, app, tmp_path, "lds_race", "gfx1201", (FLAG,))


def test_entry_before_a_write_of_mode_on_gfx1250(
    make_module: Callable[..., ToolModule], app: Callable[..., Path], tmp_path: Path
) -> None:
    """Launch state is put into lanes of VGPRs right before the write of MODE that clang 22 begins kernels with."""
    test_nothing_is_added(make_module, app, tmp_path, "lds_race", "gfx1250", ())


@pytest.mark.rows(1)
@pytest.mark.parametrize(("target", "flags"), [*((one, ()) for one in TARGETS), *((one, (FLAG,)) for one in WAVE64)])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_added(
    make_module: Callable[..., ToolModule],
    app: Callable[..., Path],
    tmp_path: Path,
    name: str,
    target: str,
    flags: tuple[str, ...],
) -> None:
    options = {"to": str(tmp_path)} if name == "lift_dump" else OPTIONS.get(name, TOOLS[name].trial)
    tool = tool_of(make_module, name, [target], **options)
    inserted = 0
    for application in APPLICATIONS:
        object = load_object(app(application, target, *flags))
        patched = patch_object(object, tool.instrument, strict=True)
        inserted += sum(kernel.added_instructions for kernel in patched.report.kernels)
        after = load_object(patched.data)
        for kernel in object.kernels:
            assert not findings(after, kernel) - findings(object, kernel), (application, kernel)
    assert (inserted > 0) == TOOLS[name].inserts
