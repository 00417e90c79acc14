"""Loads of LDS beside atomics of other waves are reported unless an atomic at the same place makes them safe."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from luthier.devices import open_device
from luthier.emulator.inspection.guards import guards
from luthier.isa import Isa, TargetId

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201", "gfx1250")
KERNELS = tuple(
    re.findall(r"void ((?:right|wrong|plain)_\w+)", (Path(__file__).parent / "kernels/guards.hip").read_text())
)
UNORDERED, RACE = "unordered-read", "race"
TOLD = {"right": set[str](), "wrong": {UNORDERED}, "plain": {RACE}}


def found_in(code: Path, target: str, kernel: str) -> set[str]:
    """Return the kinds of findings in a launch of four waves, some of which modify data that others load."""
    device = open_device(f"emu:{target}", check="race")
    values, out = device.allocate(4 * 256), device.allocate(4 * 512)
    values.write(np.random.default_rng(7).integers(0, 1000, 256).astype(np.int32))
    arguments = (out, values, 700) if kernel == "right_uniform" else (out, values)
    with warnings.catch_warnings(record=True):
        device.load(code).kernel(kernel).launch(*arguments, grid=1, block=256)
    for finding in device.findings:
        assert finding.in_lds
        assert finding.other is not None
        assert re.search("read|load", f"{finding.instruction} {finding.other.instruction}")
    return {finding.kind for finding in device.findings}


@pytest.mark.rows(1)
@pytest.mark.parametrize("level", ["-O1", "-O3"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels(build_kernels: Callable[..., Path], kernel: str, target: str, level: str) -> None:
    assert found_in(build_kernels("guards", target, level), target, kernel) == TOLD[kernel.partition("_")[0]]


EARLY_OUT = """
  {before}
  ds_read_b32 v3, v1 {offset}
  s_waitcnt lgkmcnt(0)
  v_cmp_lt_i32 vcc, v3, v2
  s_and_saveexec_b64 s[0:1], vcc
  {inside}
  s_or_b64 exec, exec, s[0:1]
  {behind}
  s_endpgm
"""


@pytest.mark.parametrize(
    ("inside", "behind", "expected"),
    [
        ("ds_max_i32 v1, v2", "", True),
        ("ds_max_rtn_i32 v4, v1, v2", "", True),
        ("v_mov_b32 v5, v1\nds_max_i32 v5, v2", "", True),
        ("v_mov_b32 v5, v2\nds_max_i32 v5, v2", "", False),  # another place
        ("ds_max_i32 v1, v2 offset:4", "", False),
        ("v_add_u32 v1, 4, v1\nds_max_i32 v1, v2", "", False),
        ("ds_max_i32 v1, v3", "", False),  # the atomic's own data
        ("ds_cmpst_b32 v1, v3, v2", "", True),
        ("ds_write_b32 v1, v2", "", False),
        ("ds_max_i32 v1, v2\nds_write_b32 v6, v2", "", False),  # more than the atomic
        ("ds_max_i32 v1, v2", "ds_write_b32 v6, v2", True),
        ("ds_max_i32 v1, v2", "ds_write_b32 v6, v3", False),  # what was loaded
        ("ds_max_i32 v1, v2\nv_mov_b32 v3, 0", "ds_write_b32 v6, v3", False),  # in lanes that did not try
        ("ds_max_i32 v1, v2", "v_mov_b32 v3, 0\nds_write_b32 v6, v3", True),
        ("ds_max_i32 v1, v2\nv_mov_b32 v5, 1", "ds_write_b32 v6, v5", False),  # whether it was tried
        ("ds_max_i32 v1, v2", "v_cndmask_b32 v5, 0, 1, vcc\nds_write_b32 v6, v5", False),
        ("ds_max_i32 v1, v2", "v_add_u32 v5, 1, v3\nglobal_load_dword v5, v5, s[2:3]", False),
        ("ds_max_i32 v1, v2", "s_swappc_b64 s[4:5], s[6:7]", False),  # undecided
        ("s_nop 0", "ds_max_i32 v1, v2", True),  # done in any case
    ],
)
def test_what_comes_of_it(inside: str, behind: str, expected: bool) -> None:
    assert is_found(EARLY_OUT.format(before="s_nop 0", offset="", inside=inside, behind=behind)) == expected


@pytest.mark.parametrize(
    ("before", "offset", "inside", "expected"),
    [
        ("v_mov_b32 v1, 8", "", "v_mov_b32 v7, 8\nds_max_i32 v7, v2", True),
        ("v_mov_b32 v1, 8", "", "v_mov_b32 v7, 12\nds_max_i32 v7, v2", False),
        ("v_mov_b32 v1, 8", "offset:4", "v_mov_b32 v7, 8\nds_max_i32 v7, v2 offset:4", True),
        ("v_mov_b32 v1, 8", "offset:4", "v_mov_b32 v7, 8\nds_max_i32 v7, v2", False),
        ("v_add_u32 v1, 8, v1", "", "v_mov_b32 v7, 8\nds_max_i32 v7, v2", False),
    ],
)
def test_constant_places(before: str, offset: str, inside: str, expected: bool) -> None:
    assert is_found(EARLY_OUT.format(before=before, offset=offset, inside=inside, behind="")) == expected


def is_found(text: str) -> bool:
    """Return whether the first load of a code of gfx90a is one that an atomic makes good."""
    isa = Isa.of(TargetId.parse("gfx90a"), 64)
    code = isa.decode(isa.assemble(text).instructions.code, 0x1000)
    load = next(index for index in range(len(code)) if isa.text(code, index).startswith("ds_read"))
    return guards(isa, code, load)
