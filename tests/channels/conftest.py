"""Kernels whose stores are traced, and tools that do it by channels of every kind."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from compiling import compiled
from luthier.devices import open_device
from luthier.emulator import EmulatedDevice
from luthier.emulator.device import Module
from luthier.module import ToolModule
from luthier.objects import load_object
from luthier.patch import patch_object
from luthier.tool.task import InstrumentationTask
from numpy.typing import NDArray

from luthier_build.toolchain import Toolchain

TARGETS = ("gfx90a", "gfx1030", "gfx1201")
STORE = "global_store_"


@dataclass(frozen=True)
class Loaded:
    """A traced kernel on its own device."""

    device: EmulatedDevice
    module: Module

    def launch(self, masks: NDArray[np.uint32], block: int, rounds: int = 32) -> NDArray[np.uint64]:
        """Run `stores`; what each store must have pushed, (work-item << 32 | round), shape (stores,), sorted."""
        out = np.zeros(len(masks) * rounds, np.uint32)
        groups = -(-len(masks) // block)
        self.module.kernel("stores").launch(out, masks, len(masks), rounds, grid=groups, block=block)
        items, turns = np.nonzero(masks[:, None] >> np.arange(rounds, dtype=np.uint32) & 1)
        expected = np.zeros(len(masks) * rounds, np.uint32)
        expected[turns * len(masks) + items] = items * 3 + turns
        assert np.array_equal(out, expected)
        return np.sort(items.astype(np.uint64) << np.uint64(32) | turns.astype(np.uint64))


def patterns(rng: np.random.Generator, count: int) -> NDArray[np.uint32]:
    """Return the rounds in which each work-item stores: all, none, one lane, alternating lanes, random ones."""
    masks = rng.integers(0, 1 << 32, count, np.uint32)
    kinds = np.repeat(rng.integers(0, 5, -(-count // 64)), 64)[:count]
    lanes = np.arange(count) % 64
    masks[kinds == 0] = 0xFFFFFFFF
    masks[kinds == 1] = 0
    masks[(kinds == 2) & (lanes != 17)] = 0
    masks[(kinds == 3) & (lanes % 2 == 1)] = 0
    return masks


@pytest.fixture(scope="session")
def build_stores() -> Callable[[str], Path]:
    """``build_stores(target)``: the code object of stores.hip."""
    source = Path(__file__).with_name("stores.hip")
    toolchain = Toolchain.find()

    @functools.cache
    def build(target: str) -> Path:
        command = [toolchain.clang, *toolchain.device_flags(target), "-O2", "--offload-device-only"]
        return compiled([*command, "--no-gpu-bundle-output", source], [source], f"stores-{target}.hsaco")

    return build


@pytest.fixture
def trace(build_stores: Callable[[str], Path]) -> Callable[..., Loaded]:
    """``trace(target, module, *hooks)``: `stores` with hooks before its stores, which get the values stored."""

    def make(target: str, module: ToolModule, *hooks: str, threads: int | None = None) -> Loaded:
        def instrument(task: InstrumentationTask) -> None:
            if task.lifted.kernel.name != "stores":
                return
            for store in (one for one in task.instructions if one.mnemonic.startswith(STORE)):
                for hook in hooks:
                    # The value that is stored is work-item * 3 + round.
                    task.insert_hook_before(store, module.hook(hook), task.operand(store, "vdata"))

        patched = patch_object(load_object(build_stores(target)), instrument, strict=True)
        device = open_device(f"emu:{target}")
        if threads is not None:
            device = EmulatedDevice(device.target, threads)
        return Loaded(device, device.load(patched.data))

    return make
