"""Hooks that cannot be spliced are errors of the build, with file, line and targets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from luthier.cli.main import main
from luthier.errors import BuildError

from luthier_build import sources
from luthier_build.package import compile_tool
from luthier_build.settings import load_settings, read_table

pytestmark = pytest.mark.rows()

MakeProject = Callable[[Mapping[str, str]], Path]

PYPROJECT = """\
[tool.luthier]
package = "sample_tool"
targets = ["gfx90a", "gfx1100"]
[tool.luthier.modules.device]
sources = ["sample_tool/device.hip"]
"""
HEADER = """\
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>
MARK_LUTHIER_DEVICE_MODULE
__device__ uint32_t out;
"""
BAD = """\
LUTHIER_HOOK_ANNOTATE good(uint32_t x) { out = x * 5; }
LUTHIER_HOOK_ANNOTATE waits(uint32_t x) {
  __syncthreads();
  out = x;
}
LUTHIER_HOOK_ANNOTATE traps(uint32_t x) { if (x == 3) __builtin_trap(); }
LUTHIER_HOOK_ANNOTATE allocates(uint32_t x) { *static_cast<uint32_t *>(malloc(x)) = x; }
LUTHIER_HOOK_ANNOTATE stacks(uint32_t x) { volatile char *a = (char *)__builtin_alloca(x); a[3] = x; out = a[x / 2]; }
__device__ uint32_t tree(uint32_t n) { return n < 2 ? threadIdx.x : n * tree(n - 1) + tree(n - 2); }
LUTHIER_HOOK_ANNOTATE recurses(uint32_t x) { out = tree(x); }
LUTHIER_HOOK_ANNOTATE ends() { __builtin_amdgcn_endpgm(); }
"""
REASONS = {
    "6: hook waits waits at a barrier (gfx90a, gfx1100)",
    "10: hook traps stops the program (a trap, abort or assert) (gfx90a, gfx1100)",
    "14: hook recurses uses threadIdx.x in _Z4treej, which cannot be inlined; pass the value to it (gfx90a, gfx1100)",
}


def project_with(make_project: MakeProject, hooks: str) -> Path:
    return make_project(
        {"pyproject.toml": PYPROJECT, "sample_tool/__init__.py": "", "sample_tool/device.hip": HEADER + hooks}
    )


def build(project: Path, **flags: object) -> None:
    settings = load_settings(read_table(project) or {}, flags=flags, environment={})
    compile_tool(settings, project=project, destination=project / "sample_tool", report=lambda line: None)


LAUNCH_STATE = """\
#include <luthier/channel.h>
struct Place { uint64_t address; uint32_t x, y, item; };
LUTHIER_RECORD(Place, address, x, y, item)
__device__ luthier::channel<Place> places;
LUTHIER_HOOK_ANNOTATE where(uint64_t address) {
  places.push({address, blockIdx.x, blockIdx.y, blockDim.x * blockIdx.x + threadIdx.x});
  if (blockIdx.x == 3)
    luthier::printf("%u %p\\n", blockIdx.y, (void *)__builtin_amdgcn_dispatch_ptr());
}
"""


@pytest.mark.thorough
def test_launch_state_comes_in_the_registers_that_it_needs(make_project: MakeProject) -> None:
    """Ids of work-groups are scalars: a register for each lane could not give them."""
    project = project_with(make_project, LAUNCH_STATE)
    build(project)
    assert list((project / "sample_tool").glob("*.hipfb"))


def test_every_reason_is_said_with_its_place_and_nothing_is_written(make_project: MakeProject) -> None:
    project = project_with(make_project, BAD)
    with pytest.raises(BuildError) as refused:
        build(project)
    lines = str(refused.value).splitlines()
    assert {f"sample_tool/device.hip:{reason}" for reason in REASONS} <= set(lines)
    for place, words in (("11: hook allocates sends", "malloc"), ("12: hook stacks needs", "private memory"),
                         ("15: hook ends ends", "the wave")):  # fmt: skip
        assert any(line.startswith(f"sample_tool/device.hip:{place}") and words in line for line in lines)
    assert not any("good" in line for line in lines)
    assert not (project / "sample_tool/device.hipfb").exists()


@pytest.mark.thorough
def test_files_that_another_build_made_are_checked_on_demand(
    make_project: MakeProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project = project_with(make_project, BAD)
    build(project, check_hooks=False)
    bundle = str(project / "sample_tool/device.hipfb")
    assert main(["check-hooks", bundle]) == 1
    output = capsys.readouterr().err
    assert all(reason in output for reason in REASONS)


@pytest.mark.thorough
def test_a_good_module_is_checked_once(make_project: MakeProject, capsys: pytest.CaptureFixture[str]) -> None:
    """Also a hook whose argument must be a constant: which register it reads."""
    project = project_with(
        make_project,
        "LUTHIER_HOOK_ANNOTATE good(uint32_t x) { out = x * 5; }\n"
        "LUTHIER_HOOK_ANNOTATE numbered(int which, uint32_t x) { out = luthier::readReg<uint32_t>(which) + x; }\n",
    )
    build(project)
    stamp = project / "build/luthier/device/device.checked"
    made = stamp.stat().st_mtime_ns
    build(project)
    assert stamp.stat().st_mtime_ns == made
    assert main(["check-hooks", str(project / "sample_tool/device.hipfb")]) == 0
    assert "2 hooks for gfx90a, gfx1100 can be spliced" in capsys.readouterr().out
    device = project / "sample_tool/device.hip"
    device.write_text(device.read_text() + "LUTHIER_HOOK_ANNOTATE late() { __syncthreads(); }\n")
    with pytest.raises(BuildError, match="hook late waits at a barrier"):
        build(project)


@pytest.mark.rows(1)
@pytest.mark.parametrize("members", ["int a[40]", "int a[2]", "char a[3]; short b; int c[3]"])
def test_structures_are_refused_without_libclang_too(
    make_project: MakeProject, monkeypatch: pytest.MonkeyPatch, members: str
) -> None:
    project = project_with(
        make_project, f"struct Big {{ {members}; }};\nLUTHIER_HOOK_ANNOTATE big(Big b) {{ out = b.a[1]; }}\n"
    )
    monkeypatch.setattr(sources, "available", lambda: False)
    with pytest.raises(BuildError, match=r"device\.hip:6: .*(passed in memory|cannot be passed in registers)"):
        build(project)


@pytest.mark.thorough
def test_scons_refuses_them_too(make_project: MakeProject) -> None:
    project = project_with(make_project, BAD)
    (project / "SConstruct").write_text(
        "from luthier_build import scons\nenv = Environment(tools=['default', scons.generate])\nenv.LuthierTool()\n"
    )
    done = subprocess.run([sys.executable, "-m", "SCons", "-Q"], cwd=project, capture_output=True, text=True)
    assert done.returncode == 2
    assert all(reason in done.stderr for reason in REASONS)
