"""The shipped tools, with device modules compiled by the tests, and launches of kernels under them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kept import ROOT
from luthier import Table, Tool, ToolModule, load_object, open_device, patch_object, reported
from luthier.emulator import EmulatedDevice
from luthier.emulator.inspection.debug import WaveStep
from luthier.isa.targets import TARGETS as EVERY
from msgspec.structs import replace
from shipped import tool_of

from luthier_build.plugin import include_dir

PROCESSORS = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
"""Wave64 with 64-byte lines and with 128-byte ones, wave32 with and without v_cmpx that leaves no mask."""
WAVE64 = tuple(f"{name} wave64" for name in PROCESSORS if len(EVERY[name].wave_sizes) > 1)
TARGETS = (*PROCESSORS, *WAVE64)
"""What kernels are compiled for: in the processor's usual wave size, and where there is another, in that."""
ALL = {**EVERY, **{name: replace(EVERY[name.split()[0]], wave_sizes=(64,)) for name in WAVE64}}
"""The same -> what it is like."""
_WAVE64_FLAGS = (
    *("-mwavefrontsize64", "-U__AMDGCN_WAVEFRONT_SIZE", "-D__AMDGCN_WAVEFRONT_SIZE=64"),
    *(f"-I{include_dir()}", "-include", "luthier/support/wave64_on_gfx10.h"),
)


@pytest.fixture
def shipped(make_module: Callable[..., ToolModule]) -> Callable[..., Tool]:
    """``shipped(name, **options)``: the tool of a package in examples/tools."""

    def make(name: str, /, **options: object) -> Tool:
        return tool_of(make_module, name, PROCESSORS, **options)

    return make


@dataclass
class Bench:
    """A kernel on a device, with its arguments at places that stay."""

    path: Path
    kernel: str
    target: str
    arguments: Sequence[Any]
    grid: int
    block: int

    def __post_init__(self) -> None:
        device = open_device(f"emu:{self.target}")
        assert isinstance(device, EmulatedDevice)
        self.device = device
        self.object = load_object(self.path)
        self.placed = [device.allocate(one.nbytes) if isinstance(one, np.ndarray) else one for one in self.arguments]

    def launch(self, data: bytes, **more: Any) -> tuple[Any, list[bytes]]:
        """The loaded module, and what the buffers hold then."""
        for value, place in zip(self.arguments, self.placed, strict=True):
            if isinstance(value, np.ndarray):
                place.write(value)
        module = self.device.load(data)
        module.kernel(self.kernel).launch(*self.placed, grid=self.grid, block=self.block, **more)
        return module, [one.read() for one in self.placed if hasattr(one, "read")]

    def watch(self, see: Callable[[WaveStep], object]) -> None:
        """Run the original; `see` is called before each instruction."""
        self.launch(self.object.data, trace=see)

    def under(self, tool: Tool, *, strict: bool = True) -> dict[str, Table]:
        """Return the tool's report of one launch; check that its outputs equal the original's."""
        patched = patch_object(self.object, tool.instrument, [self.kernel], strict=strict)
        _, before = self.launch(self.object.data)
        module, after = self.launch(patched.data)
        assert before == after
        return {table.title: table for table in reported(tool, module, patched)}


@pytest.fixture(scope="session")
def compile_object(compile_object: Callable[..., Path]) -> Callable[..., Path]:
    """The code object of HIP source, also for a target of `WAVE64`."""

    def compile(source: Path | str, target: str, *flags: str, **more: str) -> Path:
        processor, *wave64 = target.split()
        return compile_object(source, processor, *(_WAVE64_FLAGS if wave64 else ()), *flags, **more)

    return compile


@pytest.fixture(scope="session")
def app(compile_object: Callable[..., Path]) -> Callable[..., Path]:
    """`app(name, target, *flags)`: the same of an application in examples/apps."""
    return lambda name, target, *flags: compile_object(ROOT / "examples" / "apps" / f"{name}.hip", target, *flags)


@pytest.fixture
def bench(compile_object: Callable[..., Path]) -> Callable[..., Bench]:
    """``bench(source, kernel, target, *arguments, grid, block)``: a kernel, compiled."""

    def make(
        source: Path | str, kernel: str, target: str, *arguments: Any, grid: int = 1, block: int = 64, flags: Any = ()
    ) -> Bench:
        made = Bench(compile_object(source, target, *flags), kernel, target.split()[0], arguments, grid, block)
        assert made.object.kernels[kernel].wave_size == ALL[target].wave_sizes[0]
        return made

    return make


def rows(table: Table) -> list[dict[str, Any]]:
    """Rows by the names of their columns."""
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]
