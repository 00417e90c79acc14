"""`luthier sanitize --check race`: missing fences are found, and nothing where they are there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from luthier.emulator import layout
from luthier.emulator.inspection.uses import fence_of
from luthier.isa.targets import TargetId
from rocm_stacks import stack

from .sanitized import findings_of, marked_line
from .test_newer_rocm import RELEASE, build_newer

__all__ = ["build_newer"]  # a fixture: pytest finds it here
Build = Callable[..., Path]
RELEASE_KIND, ACQUIRE_KIND, RACE = "missing-release", "missing-acquire", "race"
ALL = frozenset({"gfx90a", "gfx942", "gfx1100", "gfx1201"})
NINE = frozenset({"gfx90a", "gfx942"})
APART = frozenset({"gfx1100", "gfx1201", "gfx90a -mtgsplit"})
"""Where waves of a work-group may have caches of their own, and what completes their stores is followed."""
WAYS: dict[str, tuple[str, str, frozenset[str]]] = {
    "flag": ("", "", ALL),
    "flag-no-release": (RELEASE_KIND, "reads", ALL),
    # Where waves of a work-group have caches of their own, its fence is that of the device when it releases.
    "flag-block": (RELEASE_KIND, "reads", NINE),
    "flag-no-acquire": (ACQUIRE_KIND, "reads", ALL),
    # GFX11's loads of both scopes are the same.
    "flag-near": (RACE, "waits", ALL - {"gfx1100"}),
    "lock": ("", "", ALL),
    "lock-no-release": (RELEASE_KIND, "adds", ALL),
    "lock-no-acquire": (ACQUIRE_KIND, "adds", ALL),
    "flags": ("", "", ALL),
    "relay": ("", "", ALL),
    "hand-on": ("", "", ALL),
    "hand-on-lds": ("", "", ALL),
    "within": ("", "", ALL),
    "within-no-release": (RELEASE_KIND, "adds within", APART),
    "within-no-acquire": (ACQUIRE_KIND, "adds within", APART),
}
"""Way of fences.hip -> kind, line, and targets, some with a mode, on which it is found."""
MODES = ("gfx1100 -mcumode", "gfx1201 -mcumode", "gfx90a -mtgsplit", "gfx942 -mtgsplit")


@pytest.mark.rocm(RELEASE)
@pytest.mark.rows(5)
@pytest.mark.parametrize(
    ("way", "device"),
    [
        *((way, target) for way in WAYS for target in sorted(ALL)),
        *((way, mode) for way in WAYS if way.startswith(("hand-on", "within")) for mode in MODES),
    ],
)
def test_fences(build_newer: Build, tmp_path: Path, way: str, device: str) -> None:
    target, *flags = device.split()
    program = build_newer("fences", "-g", *flags)
    findings = findings_of([program, way], tmp_path / "log", "--check", "race", target=target, before=stack(RELEASE))
    kind, line, targets = WAYS[way]
    if not kind or device not in targets:
        assert findings == []
        return
    assert {finding["kind"] for finding in findings} == {kind}, findings
    lines = [{frame["line"] for frame in finding["frames"]} for finding in findings]
    if kind == RACE:  # with what the load would order
        assert marked_line("fences.hip", line) in set[int]().union(*lines), findings
        return
    assert all(marked_line("fences.hip", line) in each for each in lines), findings
    facts = TargetId.parse(target).target
    parts = facts.release_fence if kind == RELEASE_KIND else facts.acquire_fence
    is_within = way.startswith("within")
    if is_within:
        parts = (parts[-1].replace("SCOPE_DEV", "SCOPE_SE"),)
    for finding in findings:
        assert all(part in finding["detail"] for part in parts), finding
        assert (finding["group"] == finding["other"]["group"]) == is_within, finding


WAITS, WRITES_BACK = layout.FENCE_WAITS, layout.FENCE_WRITES_BACK
NEAR, FAR = layout.FENCE_NEAR, layout.FENCE_FAR


@pytest.mark.parametrize(
    ("target", "text", "parts"),
    [
        ("gfx90a", "s_waitcnt vmcnt(0)", WAITS),
        ("gfx90a", "s_waitcnt vmcnt(2) lgkmcnt(0)", WAITS),
        ("gfx90a", "s_waitcnt lgkmcnt(0)", 0),
        ("gfx90a", "buffer_wbl2", 0),
        ("gfx90a", "buffer_wbinvl1_vol", NEAR | FAR),
        ("gfx942", "buffer_wbl2 sc1", WRITES_BACK | WAITS),
        ("gfx942", "buffer_wbl2 sc0 sc1", WRITES_BACK | WAITS),
        ("gfx942", "buffer_inv sc0", NEAR),
        ("gfx942", "buffer_inv sc1", NEAR | FAR),
        ("gfx1100", "s_waitcnt vmcnt(0)", 0),
        ("gfx1100", "s_waitcnt_vscnt null, 0x0", WAITS),
        ("gfx1100", "buffer_gl0_inv", NEAR),
        ("gfx1100", "buffer_gl1_inv", FAR),
        ("gfx1201", "s_wait_storecnt 0x0", WAITS),
        ("gfx1201", "s_wait_storecnt_dscnt 0x0", WAITS),
        ("gfx1201", "s_wait_loadcnt 0x0", 0),
        ("gfx1201", "global_inv scope:SCOPE_SE", NEAR),
        ("gfx1201", "global_inv scope:SCOPE_DEV", NEAR | FAR),
        ("gfx1201", "global_wb scope:SCOPE_DEV", WRITES_BACK),
        ("gfx1250", "s_wait_storecnt 0x0", 0),
    ],
)
def test_parts_of_fences(target: str, text: str, parts: int) -> None:
    assert fence_of(TargetId.parse(target).target, text) == parts
