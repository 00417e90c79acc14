"""Waves that fit on a SIMD, compared with LLVM's remarks on the same kernels."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from luthier import load_object
from luthier.isa.targets import TARGETS
from luthier.objects.occupancy import occupancy_of
from msgspec.structs import replace

from luthier_build.toolchain import Toolchain

WHERE = [
    *[(name, ()) for name in ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1250")],
    *[(name, more) for name in ("gfx1010", "gfx1030", "gfx1100", "gfx1201") for more in ((), ("-mcumode",))],
    *[(name, ("-mwavefrontsize64",)) for name in ("gfx1030", "gfx1201")],
]
# LLVM's own figures for 81 to 88 and 97 to 100 SGPRs are above what its granules of 16 leave room for.
SGPRS = (0, 40, 73, 89, 101)
VGPRS = (0, 25, 40, 64, 100, 127)
# LLVM uses the smallest and the largest work-group; a size between them may fit better.
ITEMS = (1, 64, 128, 256, 512, 1024)
LDS = (0, 4, 512, 3000, 9000, 20000, 36000, 65536)
LARGEST = 'extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, {items})))'
KERNEL = LARGEST + ' void k{number}(int *p) {{ asm volatile("" ::: {clobbers}); {lds} }}\n'
TILE = "static __attribute__((shared)) volatile char tile[{size}]; tile[*p] = 1;"


@pytest.mark.rows(2)
@pytest.mark.parametrize(("target", "flags"), WHERE, ids=str)
def test_as_llvm_says(tmp_path: Path, target: str, flags: tuple[str, ...]) -> None:
    random.seed(f"{target} {flags}")
    text = ""
    for number in range(60):
        used = [f'"{kind}{n - 1}"' for kind, n in zip("sv", map(random.choice, (SGPRS, VGPRS)), strict=True) if n]
        size, items = random.choice(LDS), random.choice(ITEMS)
        lds = TILE.format(size=size) if size else ""
        text += KERNEL.format(number=number, items=items, clobbers=", ".join(used) or '"s0"', lds=lds)
    (tmp_path / "kernels.hip").write_text(text)
    toolchain = Toolchain.find()
    command = [toolchain.clang, *toolchain.device_flags(target), *flags, "-nogpuinc", "-nogpulib", "-O1"]
    command += ["--offload-device-only", "--no-gpu-bundle-output", "-Rpass-analysis=kernel-resource-usage"]
    done = subprocess.run([*command, "kernels.hip", "-o", "out"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = re.findall(r"Function Name: (\w+)(?:.|\n)*?Occupancy \[waves/SIMD\]: (\d+)", done.stderr)
    assert len(expected) == 60
    kernels = load_object(tmp_path / "out", target=target).kernels
    occupancies = {name: kernel.occupancy() for name, kernel in kernels.items()}
    assert {name: one.waves for name, one in occupancies.items()} == {name: int(waves) for name, waves in expected}
    assert {name for one in occupancies.values() for name in one.limited_by} >= {"VGPRs", "LDS"}
    assert any("SGPRs" in one.limited_by for one in occupancies.values()) == (TARGETS[target].sgpr_file is not None)


def test_a_known_size_of_work_groups(app: Callable[[str, str], Path]) -> None:
    """Work-groups of one size that fit, by LDS: whole waves of whole groups, on any SIMD."""
    kernel = load_object(app("reduction", "gfx90a")).kernels["reduction"]
    descriptor = replace(kernel.descriptor, group_segment_fixed_size=20000)  # three groups a compute unit
    assert [occupancy_of(descriptor, 1024, items).lds for items in (1, 64, 65, 128, 256, 640, 1024)] == [
        *(1, 1, 2, 2, 3, 8, 8),
    ]
    assert replace(kernel, metadata={".reqd_workgroup_size": [8, 16, 1]}).occupancy(descriptor).lds == 2
    assert replace(kernel, metadata={".reqd_workgroup_size": "x"}).occupancy(descriptor).lds == 8
    assert replace(kernel, metadata={".reqd_workgroup_size": []}).occupancy(descriptor).lds == 8
    assert replace(kernel, max_flat_workgroup_size=1 << 62).occupancy(descriptor).lds == 8  # more than any counter
