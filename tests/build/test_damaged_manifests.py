"""Device modules whose manifests are damaged: they are refused, or work."""

from __future__ import annotations

import random

import pytest
from assembly import assembled, function, kernel_text
from effort import EVERYTHING
from limited import MB, survives
from luthier import InstrumentationTask, immediate
from luthier.lifting import lift
from luthier.module import ModuleManifest
from luthier.module.tool_module import load_built
from manifests import damaged

from luthier_build.package import compile_tool
from luthier_build.settings import load_settings
from luthier_build.toolchain import Toolchain

SOURCE = """\
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>
MARK_LUTHIER_DEVICE_MODULE
/// Adds up.
__managed__ uint64_t total = 0;
__constant__ float scale[2] = {2.5f};
/// Counts.
LUTHIER_HOOK_ANNOTATE count(bool all, int16_t by) { luthier::sAtomicAdd<uint64_t>(&total, all ? by : scale[0]); }
LUTHIER_HOOK_ANNOTATE read(uint32_t what) { total += luthier::readReg<uint32_t>(0) + what; }
"""
SHARE = 1 if EVERYTHING else 15


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    folder = tmp_path_factory.mktemp("tool")
    (folder / "device.hip").write_text(SOURCE)
    settings = load_settings({"package": "tool", "targets": ["gfx90a"], "modules": {"device": ["device.hip"]}})
    compile_tool(
        settings, project=folder, destination=folder / "out", toolchain=Toolchain.find(), report=lambda _: None
    )
    return (folder / "out/device.hipfb").read_bytes(), (folder / "out/device.json").read_text()


def use(bundle: bytes, text: str, task: InstrumentationTask) -> None:
    """All that is done with a module before anything is compiled, and its manifest written again."""
    manifest = ModuleManifest.from_text(text, "damaged")
    assert ModuleManifest.from_text(manifest.to_json(), "again") == manifest
    names = (one.name + one.location for one in (*manifest.hooks, *manifest.variables))
    " ".join(
        (manifest.package, manifest.module, manifest.cuid, manifest.llvm, manifest.compiler, manifest.luthier, *names)
    )
    " ".join((*manifest.targets, *manifest.intrinsics, *manifest.wave_sizes))
    loaded = load_built(bundle, manifest)
    assert {*loaded.hooks} == {"count", "read"}
    for hook in loaded.hooks.values():
        str(hook)
        assert loaded.hook(hook.symbol).module is loaded
        assert [(one.llvm, one.size) for one in hook.parameters] == {
            "count": [("i1", 1), ("i16", 2)],
            "read": [("i32", 4)],
        }[hook.symbol]
        task.insert_hook_before(0, hook, *[immediate(1)] * len(hook.parameters))
    assert {name: variable.size for name, variable in loaded.variables.items()} == {"total": 8, "scale": 8}


def test_damaged_manifests(module: tuple[bytes, str]) -> None:
    bundle, text = module
    lifted = lift(assembled(kernel_text(function("k", ["s_endpgm"]), "gfx90a"), "gfx90a"), "k")
    cases = list(damaged(text))
    chosen = cases if EVERYTHING else cases[random.Random(len(cases)).randrange(SHARE) :: SHARE]
    wrong, worked = {}, 0
    for what, damage in [("nothing", text), *chosen]:
        task = InstrumentationTask(lifted)
        try:
            worked += survives(lambda damage=damage, task=task: use(bundle, damage, task), memory=512 * MB, seconds=3)
        except BaseException as problem:
            wrong[what] = repr(problem)
    assert not wrong, f"{len(wrong)} of {len(chosen)}: {wrong}"
    assert 0 < worked < len(chosen) / 2
