"""A tool's tables for a patched object on a device of this process, as in `luthier run`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from luthier.errors import ToolError
from luthier.module.embedded import plain_name
from luthier.patch import PatchedObject
from luthier.support.device_memory import Variable
from luthier.support.suggestions import did_you_mean
from luthier.support.table import Table
from luthier.tool import Tool
from luthier.tool.counts import KernelCounts, MissingSums, completed
from luthier.tool.observation import LaunchedKernel, LiveChannel, TypedVariable, Value, total


class _HereVariable(TypedVariable):
    """A variable with the interface of `luthier.tool.observation.LiveVariable`."""

    def __init__(self, variable: Variable, sums: MissingSums) -> None:
        super().__init__(variable.name, variable.size, "")  # a patched object does not give its type
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
        patched: the result of `patch_object`.
    """

    def __init__(self, module: Any, patched: PatchedObject) -> None:
        self._module, self._patched = module, patched
        self._sums = {name: MissingSums(partial(self._counted, name)) for name in patched.report.variables}

    @property
    def folder(self) -> None:
        """Return None: there is no run directory."""

    @property
    def kernels(self) -> Sequence[LaunchedKernel]:
        """Return nothing: launches are not recorded."""
        return ()

    def initialise(self, name: str, value: Value) -> None:
        """Write a value to the tools' variables with this name.

        Raises:
            ToolError: there is none.
            DeviceError: the value does not fit.
        """
        variables = self.variables(name)
        if not variables:
            names = sorted({plain_name(symbol) for symbol in self._patched.report.variables})
            known = f"their hooks use {', '.join(names) or 'none'}"
            raise ToolError(f"the tools have no variable {name!r}; {known}{did_you_mean(name, names)}")
        for variable in variables:
            variable.put(value)

    def variables(self, name: str | None = None) -> list[Any]:
        """Return the tools' variables with this name; None: all."""
        symbols = [symbol for symbol in self._patched.report.variables if name in (None, symbol, plain_name(symbol))]
        return [_HereVariable(self._module.variable(symbol), self._sums[symbol]) for symbol in symbols]

    def _counted(self, name: str) -> dict[int, int]:
        """Return counts of kernels that are not yet added to a variable: 64-bit element -> value."""
        total: dict[int, int] = {}
        for kernel, counters in self._patched.sums.items():
            memories = [self._module.variable(counters.symbol).read()] if counters.size else []
            for module in {id(added.into.module): added.into.module for added in counters.sums}.values():
                missing = counters.missing(module, name, memories, self._module.waves.get(kernel, 0))
                for index, value in missing.items():
                    total[index] = total.get(index, 0) + value
        return total

    def channels(self, name: str | None = None) -> list[LiveChannel]:
        """Return the tools' channels with this name; None: all. On a GPU nothing drains them."""
        channels = getattr(self._module, "channels", {}).values()
        return [LiveChannel(channel.ring, os.getpid(), 0) for channel in channels if name in (None, channel.name)]

    def counts(self) -> list[KernelCounts]:
        """Return the counts of each kernel that do not go to variables."""
        return [counters.read(self._module) for counters in self._patched.counters.values()]

    def total(self, name: str) -> int | float:
        """Return the variable's value; 0 if there is none."""
        return total(self.variables(name))


def reported(tool: Tool, module: Any, patched: PatchedObject) -> list[Table]:
    """Return a tool's tables for all launches of its patched object so far in this process.

    Args:
        tool: the tool that instrumented it.
        module: the patched object on a device.
        patched: the result of `patch_object`.
    """
    return list(tool.report(HereRun(module, patched)))
