"""Tables of what a tool found in a patched object on a device of this process, as `luthier run` shows them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from luthier.module.embedded import plain_name
from luthier.patch import PatchedObject
from luthier.support.device_memory import Variable
from luthier.support.table import Table
from luthier.tool import Tool
from luthier.tool.counts import KernelCounts, MissingSums, completed
from luthier.tool.observation import LaunchedKernel, LiveChannel, TypedVariable, total


class _HereVariable(TypedVariable):
    """A variable with what `luthier.tool.observation.LiveVariable` has besides."""

    def __init__(self, variable: Variable, sums: MissingSums) -> None:
        super().__init__(variable.name, variable.size, "")  # of its type a patched object says nothing
        self.pid, self.gpu = os.getpid(), 0
        self._variable, self._sums = variable, sums

    def _load(self) -> bytes:
        return completed(bytes(self._variable.read()), self._sums.missing())

    def _store(self, data: NDArray[Any]) -> None:
        self._variable.write(data)
        self._sums.written()


class HereRun:
    """`luthier.tool.observation.Run` of one patched object that is loaded in this process.

    Args:
        module: the patched object on a device (`EmulatedDevice.load`, `HipDevice.load`).
        patched: what `patch_object` gave.
    """

    def __init__(self, module: Any, patched: PatchedObject) -> None:
        self._module, self._patched = module, patched
        self._sums = {name: MissingSums(partial(self._counted, name)) for name in patched.report.variables}

    @property
    def folder(self) -> None:
        """Return None: there is no run directory."""

    @property
    def kernels(self) -> Sequence[LaunchedKernel]:
        """Return nothing: launches are not counted here."""
        return ()

    def variables(self, name: str | None = None) -> list[Any]:
        """Return the tools' variables of that name, or all."""
        names = [one for one in self._patched.report.variables if name in (None, one, plain_name(one))]
        return [_HereVariable(self._module.variable(one), self._sums[one]) for one in names]

    def _counted(self, name: str) -> dict[int, int]:
        """Return what kernels counted for a variable and did not add to it: 64-bit element -> value."""
        total: dict[int, int] = {}
        for kernel, counters in self._patched.sums.items():
            memories = [self._module.variable(counters.symbol).read()] if counters.size else []
            for module in {id(one.into.module): one.into.module for one in counters.sums}.values():
                missing = counters.missing(module, name, memories, self._module.waves.get(kernel, 0))
                for index, value in missing.items():
                    total[index] = total.get(index, 0) + value
        return total

    def channels(self, name: str | None = None) -> list[LiveChannel]:
        """Return the tools' channels of that name, or all; on a GPU nothing drains them."""
        found = getattr(self._module, "channels", {}).values()
        return [LiveChannel(channel.ring, os.getpid(), 0) for channel in found if name in (None, channel.name)]

    def counts(self) -> list[KernelCounts]:
        """Return the counts that go to no variable, for each kernel."""
        return [counters.read(self._module) for counters in self._patched.counters.values()]

    def total(self, name: str) -> int | float:
        """Return the variable's value; 0 if there is none."""
        return total(self.variables(name))


def reported(tool: Tool, module: Any, patched: PatchedObject) -> list[Table]:
    """Return what a tool reports on all that its patched object has run so far in this process.

    Args:
        tool: the one that instrumented it.
        module: the patched object on a device.
        patched: what `patch_object` gave.
    """
    return list(tool.report(HereRun(module, patched)))
