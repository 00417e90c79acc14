"""Device code in the form of C++ Luthier, under its own header names: it compiles, and counts correctly."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from luthier import InstrumentationTask, Tool, ToolModule, immediate, load_object, open_device, patch_object, reg
from luthier.cli.main import main
from luthier.errors import HookError

from luthier_build.compile import compile_device
from luthier_build.plugin import include_dir, plugin_flags
from luthier_build.workspace import build_folder

FOLDER = Path(__file__).parent / "cpp_luthier"
TARGETS = {"gfx90a": 64, "gfx1100": 32}
"""Target -> lanes of a wave."""


def _module(name: str, tmp_path_factory: pytest.TempPathFactory) -> ToolModule:
    with build_folder(tmp_path_factory.mktemp(name)) as held:
        built = compile_device([FOLDER / f"{name}.hip"], tuple(TARGETS), folder=held, report=lambda line: None)
    return ToolModule.load(built.bundle)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> ToolModule:
    return _module("members", tmp_path_factory)


@pytest.fixture(scope="module")
def annotated(tmp_path_factory: pytest.TempPathFactory) -> ToolModule:
    return _module("annotated", tmp_path_factory)


def test_hooks_are_the_members_that_are_used_and_return_nothing(members: ToolModule) -> None:
    assert [hook.name for hook in members.hooks.values()] == [
        f"census::Census::{name}" for name in ("onVector", "onScalar", "onLds", "onEntry")
    ]
    assert members.onLds is members.hook("census::Census::onLds")
    with pytest.raises(HookError, match="no hook 'activeLanes'"):
        members.hook("activeLanes")


class Census(Tool):
    device: ToolModule

    def instrument(self, task: InstrumentationTask) -> None:
        device = self.device
        task.insert_hook_at_kernel_entry(device.onEntry)
        for instruction in task.instructions:
            opcode = immediate(instruction.opcode.number)
            offset = instruction.operand("offset")
            if instruction.memory is not None and instruction.memory.space == "lds" and offset is not None:
                address = task.operand(instruction, "addr")
                task.insert_hook_before(instruction, device.onLds, reg("m0"), address, immediate(offset[1]), 2)
            if instruction.is_scalar:
                task.insert_hook_before(instruction, device.onScalar, opcode)
            else:
                task.insert_hook_before(instruction, device.onVector, True, opcode)


def _patched(members: ToolModule, code: Path):  # type: ignore[no-untyped-def]
    Census.device = members
    return patch_object(load_object(code), Census().instrument, strict=True)


@pytest.mark.parametrize("target", TARGETS)
def test_counter_and_histogram(target: str, members: ToolModule, app) -> None:  # type: ignore[no-untyped-def]
    """Instructions, and those of each opcode, as the emulated device saw them in the original."""
    code = app("reduction", target)
    device = open_device(f"emu:{target}")
    data, sums = np.arange(1024, dtype=np.float32), np.zeros(4, np.float32)
    original = device.load(code.read_bytes()).kernel("reduction")
    original.launch(data, sums, 1024, grid=4, block=256)
    executed = dict(device.stats.opcodes)
    names = {one.opcode.number: one.mnemonic for one in original.lift().instructions}

    sums[:] = 0
    module = device.load(_patched(members, code).data)
    module.kernel("reduction").launch(data, sums, 1024, grid=4, block=256)
    assert np.array_equal(sums, data.reshape(4, 256).sum(axis=1))
    histogram = module.variable("census::Census::ByOpcode").read(np.uint64)
    counted: Counter[str] = Counter()
    for number in np.flatnonzero(histogram):
        counted[names[int(number)]] += int(histogram[number])
    assert counted == executed
    assert module.variable("census::Census::Total").read(int) == sum(executed.values())
    assert module.variable("census::Census::Groups").read(np.uint32).tolist() == [4, 1, 1]


STRIDED = """
extern "C" __global__ void strided(const float *in, float *out, int stride) {
  __shared__ float room[64 * 64];
  room[threadIdx.x * stride] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = room[threadIdx.x * stride];
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_bank_conflicts(target: str, members: ToolModule, compile_object) -> None:  # type: ignore[no-untyped-def]
    """Of accesses of a known stride: how many of 32 banks each wave touches."""
    code = compile_object("#include <hip/hip_runtime.h>\n" + STRIDED, target)
    device = open_device(f"emu:{target}")
    module = device.load(_patched(members, code).data)
    data, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    lanes, banks, instructions = TARGETS[target], 0, 0
    for stride in (1, 2, 3, 8, 32, 63):
        module.kernel("strided").launch(data, out, stride, grid=1, block=64)
        assert np.array_equal(out, data)
        for wave in range(64 // lanes):
            touched = {lane * stride % 32 for lane in range(wave * lanes, (wave + 1) * lanes)}
            banks, instructions = banks + 2 * len(touched), instructions + 2
    assert module.variable("census::Census::Instructions").read(int) == instructions
    assert module.variable("census::Census::Requests").read(np.float32)[0] == pytest.approx(banks)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_annotated_hooks(target: str, annotated: ToolModule, app) -> None:  # type: ignore[no-untyped-def]
    """Registers by LLVM's names: EXEC, VCC, and a pair that a member of a class swaps and swaps back."""
    assert {hook.name for hook in annotated.hooks.values()} == {"countVisit", "keepVcc", "Swapper::swap"}

    class Visits(Tool):
        def instrument(self, task: InstrumentationTask) -> None:
            for instruction in task.instructions:
                if instruction.memory is not None and instruction.memory.space == "global":
                    task.insert_hook_before(instruction, annotated.countVisit, False)
                    task.insert_hook_before(instruction, annotated.keepVcc, task.effective_address(instruction))
                    task.insert_hook_before(instruction, annotated.swap)
                    task.insert_hook_before(instruction, annotated.swap)

    code = app("vector_add", target)
    device = open_device(f"emu:{target}")
    module = device.load(patch_object(load_object(code), Visits().instrument, strict=True).data)
    a, b, c = (device.allocate(4000) for _ in range(3))
    values = np.arange(1000, dtype=np.float32)
    a.write(values)
    b.write(values)
    module.kernel("vector_add").launch(a, b, c, 1000, grid=4, block=256)
    assert np.array_equal(c.read(np.float32), 2 * values)
    assert module.variable("Visits").read(int) == 3 * 1000
    total = sum(buffer.address * 1000 + 4 * sum(range(1000)) for buffer in (a, b, c))
    assert module.variable("SumOfAddresses").read(int) == total % (1 << 64)


@pytest.mark.rows(1)
@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize("name", ["members", "annotated"])
def test_every_release(release, name: str, level: str, tmp_path: Path, manifest_of) -> None:  # type: ignore[no-untyped-def]
    """Each compiler gives the same hooks, at each level."""
    toolchain = release.toolchain
    command = [
        *(str(toolchain.clang), *toolchain.device_flags("gfx90a"), *plugin_flags(toolchain), f"-I{include_dir()}"),
        *("-Wno-pass-failed", "--cuda-device-only", "--no-gpu-bundle-output", "-std=c++17", level),
        *("-c", str(FOLDER / f"{name}.hip"), "-o", str(tmp_path / "tool.hsaco")),
    ]
    subprocess.run(command, check=True, capture_output=True)
    hooks = [hook["source"].partition("(")[0] for hook in manifest_of((tmp_path / "tool.hsaco").read_bytes())["hooks"]]
    members = [f"census::Census::{hook}" for hook in ("onVector", "onScalar", "onLds", "onEntry")]
    assert sorted(hooks) == sorted(members if name == "members" else ["countVisit", "keepVcc", "Swapper::swap"])


def test_what_the_sources_say_of_members(tmp_path: Path) -> None:
    """Names, types and comments of members come from the source, wherever they are defined."""
    command = ["build", str(FOLDER / "members.hip"), "--target", "gfx90a", "-o", str(tmp_path)]
    assert main([*command, "--build-dir", str(tmp_path / "build"), "--no-check-hooks"]) == 0
    raw = json.loads((tmp_path / "members.json").read_text())
    hook = raw["hooks"][0]
    assert (hook["name"], hook["documentation"]) == ("census::Census::onVector", "Counts a vector instruction.")
    assert [(one["type"], one["name"]) for one in hook["parameters"]] == [("bool", "PerWave"), ("int", "Opcode")]
    documented = {one["name"]: one["documentation"] for one in raw["variables"]}
    assert documented["census::Census::Total"] == "Instructions that ran."
