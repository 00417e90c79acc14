"""Results of a run under tools: tables, summary and JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from luthier import __version__
from luthier.errors import LuthierError, ToolCodeError, ToolError
from luthier.objects.names import spellings
from luthier.patch import KernelReport, by_kind
from luthier.run.executed import Executed
from luthier.run.instrumentation import Instrumentation
from luthier.run.summary import ReportedTable, ReportedTool, RunProcess, RunSummary
from luthier.run.tables import SCHEMA
from luthier.run.view import KernelResult, launched_kernels
from luthier.support.losses import losses
from luthier.support.table import Table
from luthier.support.wording import enumerated
from luthier.tool.counts import CellModule
from luthier.tool.observation import LiveVariable
from luthier.tool.tool import failed

if TYPE_CHECKING:
    from luthier.run.program import Unfinished


def kernels(instrumentation: Instrumentation) -> list[KernelResult]:
    """Return the kernels launched so far; merged by name and object."""
    return launched_kernels(instrumentation.sessions)


NO_CLOCK = (
    "virtual devices have no clock: every reading gives 100 more than the last, so that these are numbers of readings"
)
"""Reason why results of tools that read the clock are no times."""


def tables(instrumentation: Instrumentation, *, has_clock: bool = True) -> Iterator[tuple[str, list[Table]]]:
    """Yield each tool's name and tables; a tool that fails is reported and does not affect others.

    Args:
        instrumentation: of the run.
        has_clock: whether the devices have a clock; otherwise tools that read it get a table that says so.
    """
    for tool in instrumentation.tools.tools:
        no_times = [Table("no times", ("reason",), [(NO_CLOCK,)])] if tool.reads_clock and not has_clock else []
        try:
            yield tool.name, [*no_times, *tool.report(instrumentation.view(tool))]
        except Exception as problem:  # whatever a tool's own code raises
            instrumentation.fail(failed(tool, "report", problem))
            yield tool.name, []


def coverage(results: Iterable[KernelResult]) -> Table:
    """Return a table of what was instrumented in the launched kernels."""
    rows = []
    for kernel in results:
        report = kernel.patched.report
        notes = [kernel.patched.reason] if kernel.patched.reason else []
        if report is not None and not kernel.patched.reason:
            notes += [
                f"{count} refused ({kind}: {one.message})" for kind, (count, one) in by_kind(report.refusals).items()
            ]
            if report.unknown_calls:
                first = f": {report.unresolved[0]}" if report.unresolved else ""
                notes.append(f"{report.unknown_calls} calls have unknown targets, which run uninstrumented{first}")
        hooked, counted = _instrumented(report)
        launches = f"{kernel.instrumented} of {kernel.launches}"
        rows.append((kernel.name, launches, hooked, counted, "; ".join(notes)))
    return Table("", ("kernel", "launches instrumented", "hooks inserted", "counted", "notes"), rows)


def _instrumented(report: KernelReport | None) -> tuple[str, str]:
    """Describe how many of the requested instructions have hooks, and whether others are counted in registers."""
    if report is None:
        return "", ""
    hooks = f"at {report.sites} of {report.requested_sites} instructions" if report.requested_sites else "none"
    return hooks, "in registers" if report.counts else ""


def summary(
    instrumentation: Instrumentation,
    command: Sequence[str] | None,
    code: int,
    reported: Iterable[tuple[str, list[Table]]],
    executed: Executed | None = None,
    devices: Sequence[str] = (),
    options: Mapping[str, Any] = MappingProxyType({}),
    unfinished: Unfinished | None = None,
) -> RunSummary:
    """Return the summary of a run that has ended.

    Args:
        command: command line; None: all command lines are omitted, also those of processes.
        executed: counts of the virtual devices.
        devices: names of the devices.
        options: as for `RunSummary`.
        unfinished: what was stopped.
    """
    reported = list(reported)  # may add faults
    tool_options = [dataclasses.asdict(tool.options) for tool in instrumentation.tools.tools]
    return RunSummary(
        schema=SCHEMA,
        luthier=__version__,
        command=list(command or ()),
        exit_code=code,
        devices=list(devices) or None,
        options=dict(options),
        tools=[
            ReportedTool(name, [ReportedTable(**table.to_json()) for table in of_tool], given)
            for (name, of_tool), given in zip(reported, tool_options, strict=True)
        ],
        processes=[
            RunProcess(
                process=session.pid,
                **session.about,
                command="" if command is None else session.command,
                launches=session.launches,
                kernels=len(session.kernels),
            )
            for session in instrumentation.sessions
        ],
        faults=list(dict.fromkeys((*instrumentation.faults, *losses()))),
        executed=None if executed is None else executed.to_json(),
        executed_notes=[] if executed is None else list(executed.notes),
        ended_before="" if unfinished is None else unfinished.what,
        unfinished=[] if unfinished is None else unfinished.to_json(),
    )


def document(instrumentation: Instrumentation, summary: RunSummary) -> dict[str, Any]:
    """Return everything except single launches and sites as plain data."""
    return {
        **summary.to_json(),
        "kernels": [kernel.to_json() for kernel in kernels(instrumentation)],
        "variables": [
            {
                "variable": variable.name,
                "module": block.module.name,
                "process": session.pid,
                "device": variable.gpu,
                "value": _value(variable),
            }
            for session in instrumentation.sessions
            for block, variable in session.variables()
            if not isinstance(block.module, CellModule)  # not a variable of a tool
        ],
    }


def _value(variable: LiveVariable) -> Any:
    """Return a variable of at most 8 bytes as a number or a list of numbers, others as hexadecimal text."""
    elements = variable.elements if variable.size <= _SMALL else None
    if elements is None:
        return variable.read().hex()
    return elements.tolist() if len(elements) > 1 else elements.item()


_SMALL = 8
"""Maximum bytes of a variable shown as numbers; larger ones are tables, which the tools report."""


def check_tools(instrumentation: Instrumentation) -> None:
    """Check that no tool's own code has failed.

    Raises:
        ToolCodeError: it has failed.
    """
    failures = [*dict.fromkeys((*instrumentation.patcher.failures, *instrumentation.failures))]
    if failures:
        more = f" (and {len(failures) - 1} more failures)" if len(failures) > 1 else ""
        raise ToolCodeError(f"{failures[0]}{more}")


def check(instrumentation: Instrumentation) -> None:
    """Check that something was instrumented if there are tools.

    Raises:
        ToolError: no process loaded the tool library, no kernel was launched, or none of them instrumented.
        LuthierError: the fault that prevented instrumentation.
    """
    results = kernels(instrumentation)
    if not instrumentation.tools.tools or any(kernel.instrumented for kernel in results):
        return
    asked = [kernel for kernel in results if not kernel.patched.skipped]
    if asked and all(kernel.patched.idle for kernel in asked):
        return  # tools examined all kernels and requested nothing
    if not instrumentation.sessions:
        raise ToolError(
            "nothing was instrumented: the program did not load ROCr (libhsa-runtime64.so.1), with which programs use "
            "AMD GPUs; `luthier doctor` shows whether this machine has it"
        )
    if instrumentation.faults:
        raise LuthierError(f"nothing was instrumented: {instrumentation.faults[0]}")
    if not results:
        raise ToolError("nothing was instrumented: the program launched no kernel")
    reason = next(
        (kernel.patched.reason for kernel in results if kernel.patched.reason and not kernel.patched.skipped), ""
    )
    if not reason:
        names = dict.fromkeys(spellings(kernel.name)[-1] for kernel in results)
        reason = f"no launch was selected; the program launched {enumerated(names)}"
    raise ToolError(f"nothing was instrumented: {reason}")
