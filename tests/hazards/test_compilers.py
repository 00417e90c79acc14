"""Compiled code waits for what it uses and keeps apart what hardware does not: no finding on any path."""

from __future__ import annotations

from pathlib import Path

import pytest
from effort import GENERATIONS
from luthier.errors import LiftError
from luthier.hazards.wait_counters import check_order, check_waits
from luthier.hazards.wait_states import check_hazards
from luthier.isa.targets import TARGETS
from luthier.lifting import lift
from luthier.lifting.allocation import unallocated
from luthier.objects import load_object

KERNELS = Path(__file__).parents[1] / "emulator" / "kernels"
FILES = ["algorithms", "arithmetic", "groups", "mathematics", "plain", "virtual"]
LEVELS = ["-O0", "-O1", "-O2", "-O3"]
NEWER = ("gfx103", "gfx11", "gfx125")
WAVES = [
    pytest.param(name, size, marks=[] if often else [pytest.mark.thorough])
    for name, target in sorted(TARGETS.items())
    for size in target.wave_sizes
    for often in [
        name in GENERATIONS or (size == target.default_wave_size and (target.is_generic or name.startswith(NEWER)))
    ]
]

HOLD = {"vector instruction, s_setreg of MODE": FILES, "LDS, branch, VMEM": ["virtual"]}
"""Hazards in what LLVM 22 makes of some files (docs/checking.md): a row of GFX1250 that it has had since, and one that
it does not look for across calls."""


@pytest.mark.rows(30)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("target", "lanes"), WAVES)
@pytest.mark.parametrize("file", FILES)
def test_compiled_kernels(compile_object, file: str, target: str, lanes: int, level: str) -> None:
    wave = ["-mwavefrontsize64"] if lanes != TARGETS[target].default_wave_size else []
    flags = (f"-I{KERNELS}", "-ffp-contract=off", level, *wave)
    object = load_object(compile_object(KERNELS / f"{file}.hip", target, *flags))
    for kernel in object.kernels:
        try:
            lifted = lift(object, kernel)
        except LiftError:
            assert not TARGETS[target].decodes_all  # some kernels of gfx1250 are not lifted
            continue
        hazards = [one for one in check_hazards(lifted).findings if file not in HOLD.get(one.hazard, ())]
        every = [*check_waits(lifted).findings, *check_order(lifted), *unallocated(lifted), *hazards]
        assert list(map(str, every)) == []


@pytest.mark.rows
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx9-4-generic"])
def test_matrix_kernels(compile_object, target: str, level: str) -> None:
    """LLVM 22 makes of the generic processor's what is enough for gfx942."""
    object = load_object(compile_object(Path(__file__).with_name("matrix.hip"), target, level))
    findings = [finding for kernel in object.kernels for finding in check_hazards(lift(object, kernel)).findings]
    assert {one.only_on for one in findings} == ({("gfx950",)} if TARGETS[target].is_generic else set())


DOT = """
#include <stdint.h>
#define __global__ __attribute__((global))
extern "C" __global__ void k(float *out, const uint32_t *in) {
  float sum = out[__builtin_amdgcn_workitem_id_x()];
  uint32_t value = in[__builtin_amdgcn_workitem_id_x()];
  DOT
  out[__builtin_amdgcn_workitem_id_x()] = sum * 3.0f;
}
"""
WRITTEN = 'asm volatile("v_dot2_f32_f16 %0, %1, %1, %0" : "+v"(sum) : "v"(value));'
BUILT_IN = """
  typedef _Float16 Half2 __attribute__((ext_vector_type(2)));
  sum = __builtin_amdgcn_fdot2(__builtin_bit_cast(Half2, value), __builtin_bit_cast(Half2, value), sum, false);
"""


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("dot", "names"), [(BUILT_IN, []), (WRITTEN, ["DOT, another DOT or VALU or memory reads its result"])]
)
def test_inline_assembly(compile_object, dot: str, names: list[str]) -> None:
    """The compiler does not look into it: what it puts behind such an instruction is too near."""
    object = load_object(compile_object(DOT.replace("DOT", dot), "gfx942"))
    report = check_hazards(lift(object, "k"), unneeded=False)
    assert [finding.hazard for finding in report.findings] == names
