"""What a run under tools has found: for the tools, for people, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from luthier.counts import KernelCounts
from luthier.errors import LuthierError, ToolError
from luthier.patch import by_kind
from luthier.run.instrumentation import Instrumentation
from luthier.run.patching import Patched
from luthier.run.sessions import LiveVariable
from luthier.table import Table
from luthier.tool import Tool

SCHEMA = 1
"""Of `summary`; it grows when something in it changes its meaning or goes."""


@dataclass(frozen=True)
class KernelResult:
    """A kernel of one code object, in all processes and on all devices."""

    name: str
    object: str
    launches: int
    instrumented: int
    """Launches that ran the patched kernel."""
    patched: Patched

    @property
    def covered(self) -> bool:
        """Whether every launch ran with every hook that the tools asked for."""
        report = self.patched.report
        return report is not None and not report.refusals and self.launches == self.instrumented

    def to_json(self) -> dict[str, Any]:
        """The row of ``luthier run --json``."""
        report = self.patched.report
        return {
            "kernel": self.name,
            "object": self.object,
            "launches": self.launches,
            "instrumented": self.instrumented,
            "reason": self.patched.reason or None,
            "skipped": self.patched.skipped,
            "covered": self.covered,
            "from_cache": self.patched.kept,
            "requested_sites": None if report is None else report.requested_sites,
            "sites": None if report is None else report.sites,
            "hooks": None if report is None else report.insertions,
            "unknown_calls": None if report is None else report.unknown_calls,
            "refused": {}
            if report is None
            else {
                kind: {"hooks": count, "first": first.message}
                for kind, (count, first) in by_kind(report.refusals).items()
            },
        }


class Run:
    """A run as a tool sees it: its own variables on every device of every process, and all kernels.

    It may be looked at while the program runs and after.
    """

    def __init__(self, instrumentation: Instrumentation, tool: Tool) -> None:
        self._instrumentation = instrumentation
        self._number = instrumentation.tools.tools.index(tool)

    @property
    def kernels(self) -> list[KernelResult]:
        """What was launched so far."""
        return kernels(self._instrumentation)

    def variables(self, name: str | None = None) -> list[LiveVariable]:
        """The tool's variables of that name, or all: one for each device of each process that has come to need it."""
        modules = self._instrumentation.patcher.modules_of[self._number]
        return [
            variable
            for session in list(self._instrumentation.sessions)
            for block, variable in session.variables()
            if id(block.module) in modules and name in (None, variable.name)
        ]

    def counts(self) -> list[KernelCounts]:
        """What was counted into no variable (`InstrumentationTask.count`), for each kernel, over all devices and
        processes."""
        found = []
        sessions = list(self._instrumentation.sessions)
        companions = {
            id(companion): companion
            for session in sessions
            for kernel in list(session.kernels)
            if (companion := kernel.patched.companion) is not None and companion.counters is not None
        }
        for companion in companions.values():
            symbols = {block.symbol for block in companion.blocks}
            counters = companion.counters
            assert counters is not None
            cells = np.zeros(counters.cells, np.int64)
            for session in sessions:
                for block, variable in session.variables():
                    if block.symbol in symbols and variable.name == counters.symbol:
                        cells += np.frombuffer(variable.read(), np.int64)
            found.append(counters.counts(cells))
        return found

    def total(self, name: str) -> int:
        """The variable's values as integers, added up over devices and processes; 0 if there is none yet."""
        return sum(variable.value for variable in self.variables(name))


def kernels(instrumentation: Instrumentation) -> list[KernelResult]:
    """What was launched so far; kernels of one name and object together."""
    found: dict[tuple[str, str, int], list[Any]] = {}
    for session in list(instrumentation.sessions):
        for kernel, row in zip(list(session.kernels), session.counts, strict=False):
            key = kernel.name, kernel.object.name, id(kernel.patched.companion) or hash(kernel.patched.reason)
            entry = found.setdefault(key, [0, 0, kernel.patched])
            entry[0] += int(row["launches"])
            entry[1] += int(row["instrumented"])
    return [KernelResult(name, object, *entry) for (name, object, _), entry in found.items()]


def tables(instrumentation: Instrumentation) -> Iterator[tuple[str, list[Table]]]:
    """Each tool's name and what it reports; a tool that fails is told of, and the others are asked all the same."""
    for tool in instrumentation.tools.tools:
        try:
            yield tool.name, list(tool.report(Run(instrumentation, tool)))
        except Exception as problem:  # whatever a tool's own code raises
            instrumentation.tell(f"{tool.label()} failed when it was to report: {problem!r}")
            yield tool.name, []


def default_report(run: Run, tool: Tool) -> Sequence[Table]:
    """The sums of all variables of at most 8 bytes, and what the tool shows of what was counted in each kernel."""
    names = dict.fromkeys(variable.name for variable in run.variables() if variable.size <= 8)
    sums = [Table("", ("variable", "value"), [(name, run.total(name)) for name in names])] if names else []
    return [*sums, *(table for counts in run.counts() for table in tool.tables(counts))]


def coverage(results: Iterable[KernelResult]) -> Table:
    """What was instrumented of what was launched."""
    rows = []
    for kernel in results:
        report = kernel.patched.report
        notes = [kernel.patched.reason] if kernel.patched.reason else []
        if report is not None and not kernel.patched.reason:
            notes += [
                f"{count} refused ({kind}: {one.message})" for kind, (count, one) in by_kind(report.refusals).items()
            ]
            if report.unknown_calls:
                notes.append(f"{report.unknown_calls} calls with unknown targets, which run uninstrumented")
        sites = "" if report is None else f"{report.sites}/{report.requested_sites}"
        rows.append((kernel.name, f"{kernel.instrumented}/{kernel.launches}", sites, "; ".join(notes)))
    return Table("", ("kernel", "launches", "sites", ""), rows)


def summary(
    instrumentation: Instrumentation, command: Sequence[str], code: int, reported: Iterable[tuple[str, list[Table]]]
) -> dict[str, Any]:
    """Everything as JSON."""
    reported = list(reported)  # may add faults
    return {
        "schema": SCHEMA,
        "command": list(command),
        "exit_code": code,
        "tools": [{"tool": name, "tables": [table.to_json() for table in of_tool]} for name, of_tool in reported],
        "kernels": [kernel.to_json() for kernel in kernels(instrumentation)],
        "variables": [
            {
                "variable": variable.name,
                "module": block.module.name,
                "process": session.pid,
                "device": variable.gpu,
                "value": variable.value if variable.size <= 8 else variable.read().hex(),
            }
            for session in instrumentation.sessions
            for block, variable in session.variables()
        ],
        "processes": [
            {
                "process": session.pid,
                "command": session.command,
                "launches": len(session.launches) + session.unrecorded,
                "kernels": len(session.kernels),
            }
            for session in instrumentation.sessions
        ],
        "faults": list(instrumentation.faults),
    }


def check(instrumentation: Instrumentation) -> None:
    """Something must have been instrumented.

    Raises:
        ToolError: no process loaded the tool library, no kernel was launched, or none of them instrumented.
        LuthierError: all faults that kept it from being instrumented.
    """
    results = kernels(instrumentation)
    if any(kernel.instrumented for kernel in results):
        return
    if not instrumentation.sessions:
        raise ToolError("nothing was instrumented: the program did not load ROCr, or not with the tool library")
    if instrumentation.faults:
        raise LuthierError(f"nothing was instrumented: {instrumentation.faults[0]}")
    if not results:
        raise ToolError("nothing was instrumented: the program launched no kernel")
    reason = next(
        (kernel.patched.reason for kernel in results if kernel.patched.reason and not kernel.patched.skipped), ""
    )
    raise ToolError(f"nothing was instrumented: {reason or 'no launch was selected'}")
