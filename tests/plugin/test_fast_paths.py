"""Hooks of every kind that patching makes cheaper are recognised as such in what each clang makes of them.

A release of LLVM that spells or folds them otherwise would leave them correct and slow.
"""

from __future__ import annotations

import pytest
from luthier.isa.targets import TargetId
from luthier.module import ToolModule
from luthier.payload import ConstantArgument
from luthier.payload.cache import template_for
from luthier.payload.plain import PlainCount

from luthier_build.compile import compile_device
from luthier_build.settings import Settings
from luthier_build.workspace import build_folder

TARGETS = ["gfx90a", "gfx1100"]
SOURCE = """
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>
MARK_LUTHIER_DEVICE_MODULE
__device__ uint64_t sums[8] = {1};
__managed__ uint64_t managed = 9;
__device__ uint64_t read_too = 0;
__device__ uint64_t lanes() { return __builtin_popcountll(__builtin_amdgcn_read_exec()); }

LUTHIER_HOOK_ANNOTATE waves(uint64_t weight) { luthier::sAtomicAdd<uint64_t>(&managed, weight); }
LUTHIER_HOOK_ANNOTATE element(uint32_t index) { luthier::sAtomicAdd<uint64_t>(&sums[index], 3); }
LUTHIER_HOOK_ANNOTATE first() { luthier::sAtomicAdd<uint64_t>(&sums[0], 1); }
LUTHIER_HOOK_ANNOTATE active(bool by_wave) { luthier::sAtomicAdd<uint64_t>(&sums[1], by_wave ? 1 : lanes()); }
LUTHIER_HOOK_ANNOTATE five() { luthier::sAtomicAdd<uint64_t>(&sums[2], 5 * lanes()); }
LUTHIER_HOOK_ANNOTATE eight() { luthier::sAtomicAdd<uint64_t>(&sums[3], 8 * lanes()); }
LUTHIER_HOOK_ANNOTATE each_lane() { atomicAdd(reinterpret_cast<unsigned long long *>(&sums[4]), 7ull); }

LUTHIER_HOOK_ANNOTATE block_size() { luthier::sAtomicAdd<uint64_t>(&sums[5], blockDim.x * blockDim.z); }
LUTHIER_HOOK_ANNOTATE grid_size() { luthier::sAtomicAdd<uint64_t>(&sums[6], gridDim.x + gridDim.y); }

LUTHIER_HOOK_ANNOTATE looks() { if (read_too == 77) luthier::sAtomicAdd<uint64_t>(&read_too, 1); }
"""
PLAIN = {
    ("waves", "3"): PlainCount("managed", 0, 3, False),
    ("element", "6"): PlainCount("sums", 48, 3, False),
    ("first",): PlainCount("sums", 0, 1, False),
    ("active", "true"): PlainCount("sums", 8, 1, False),
    ("active", "false"): PlainCount("sums", 8, 1, True),
    ("five",): PlainCount("sums", 16, 5, True),
    ("eight",): PlainCount("sums", 24, 8, True),
    ("each_lane",): PlainCount("sums", 32, 7, True),
}
"""Hooks with their arguments, and the count that each may become."""
OF_LANES = {("active", "false"), ("five",), ("eight",)}
"""Those that read EXEC. Clang 15 does so by ``llvm.read_register``, and they remain hooks."""
SIZES = ("block_size", "grid_size")
"""Hooks that ask for sizes, which are to come from the dispatch packet."""
HIDDEN = {"kernarg_segment_ptr", "implicit_offset", "implicit_offset_v4"}
"""State that hidden arguments are found by."""


@pytest.fixture(scope="module")
def module(release, tmp_path_factory: pytest.TempPathFactory) -> ToolModule:
    folder = tmp_path_factory.mktemp("fast")
    path = folder / "device.hip"
    path.write_text(SOURCE)
    with build_folder(folder / "build") as held:
        built = compile_device([path], TARGETS, Settings(), release.toolchain, folder=held, report=lambda line: None)
    return ToolModule.load(built.bundle)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_every_fast_path_is_taken(module: ToolModule, release, target: str) -> None:
    id = TargetId.parse(target)
    contents = module.contents_for(id)
    assert contents.wave_sizes == id.target.wave_sizes
    added = {variable.symbol for variable in contents.variables if contents.only_adds_to(variable.symbol)}
    assert added == {"sums", "managed"}
    hooks = OF_LANES if release.toolchain.llvm_major == 15 else set()
    expected = {call: None if call in hooks else count for call, count in PLAIN.items()}
    for size in contents.wave_sizes:
        counting = {
            (name, *constants): template_for(module.hook(name), tuple(map(ConstantArgument, constants)), id, size)
            for name, *constants in PLAIN
        }
        assert {call: template.plain for call, template in counting.items()} == expected
        assert sum(template.relaxed for template in counting.values()) == len(PLAIN) == 8
        assert [name for (name, *_), one in counting.items() if not one.runs_without_lanes] == ["each_lane"]
        asking = [template_for(module.hook(name), (), id, size) for name in SIZES]
        states = [{taken.source.state for taken in one.inputs} for one in asking]
        assert [("dispatch_ptr" in one, bool(one & HIDDEN)) for one in states] == [(True, False)] * 2
