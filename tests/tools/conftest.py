"""The tools that ship, with device modules compiled here, and launches of kernels under them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from luthier import Table, Tool, ToolModule, load_object, open_device, patch_object, reported
from luthier.emulator import EmulatedDevice
from luthier.emulator.inspection.debug import Step
from shipped import tool_of

TARGETS = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
"""Wave64 with 64-byte lines and with 128-byte ones, wave32 with and without v_cmpx that leaves no mask."""


@pytest.fixture
def shipped(make_module: Callable[..., ToolModule]) -> Callable[..., Tool]:
    """``shipped(name, **options)``: the tool of a package in examples/tools."""

    def make(name: str, /, **options: object) -> Tool:
        return tool_of(make_module, name, TARGETS, **options)

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

    def watch(self, see: Callable[[Step], object]) -> None:
        """Run the original; `see` is called before each instruction."""
        self.launch(self.object.data, trace=see)

    def under(self, tool: Tool, *, strict: bool = True) -> dict[str, Table]:
        """What the tool reports of one launch, whose outputs are those of the original."""
        patched = patch_object(self.object, tool.instrument, [self.kernel], strict=strict)
        _, before = self.launch(self.object.data)
        module, after = self.launch(patched.data)
        assert before == after
        return {table.title: table for table in reported(tool, module, patched)}


@pytest.fixture
def bench(compile_object: Callable[..., Path]) -> Callable[..., Bench]:
    """``bench(source, kernel, target, *arguments, grid, block)``: a kernel, compiled."""

    def make(
        source: Path | str, kernel: str, target: str, *arguments: Any, grid: int = 1, block: int = 64, flags: Any = ()
    ) -> Bench:
        return Bench(compile_object(source, target, *flags), kernel, target, arguments, grid, block)

    return make


def rows(table: Table) -> list[dict[str, Any]]:
    """Rows by the names of their columns."""
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]
