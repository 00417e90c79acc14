"""Checks of programs on GPUs, by the hooks of tools: what a virtual device observes itself, a GPU does not."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from types import MappingProxyType

from luthier.errors import LuthierError
from luthier.findings.collector import FindingSet
from luthier.findings.finding import Unchecked
from luthier.findings.kinds import CHECKS, FindingKind, kinds_of_check
from luthier.findings.scope import CheckedScope
from luthier.patch import by_kind
from luthier.run import results
from luthier.run.findings.collector import Collector
from luthier.run.instrumentation import Instrumentation
from luthier.run.selection import is_of_runtime
from luthier.run.view import KernelResult
from luthier.support.wording import counted
from luthier.tool.tool import failed

HOOK_TOOLS = MappingProxyType({"memory": "memcheck", "race": "lds_race", "fp": "fp_check"})
"""Check -> the tool that makes it."""
_NEEDS = "only virtual devices (--device emu:TARGET) can see this"
NOT_ON_GPUS = MappingProxyType(
    {
        check: "`luthier check` looks for them in the code" if check in ("waits", "hazards") else _NEEDS
        for check in CHECKS
        if check not in HOOK_TOOLS
    }
)
"""Check -> why it cannot run on a GPU."""
_UNSEEN = MappingProxyType(
    {
        "memory": ("bounds of variables, constants and private memory", _NEEDS),
        "race": ("races in global memory, and missing fences", _NEEDS),
    }
)
"""Check -> what its tool does not look for, and why."""
_DENORMALS = frozenset({FindingKind.DENORMAL.label, FindingKind.DENORMAL_FLOW.label})


def hook_tools(kinds: Collection[str]) -> list[str]:
    """Return the tools that look for kinds of findings, with their options, as for ``luthier run -t``.

    Raises:
        LuthierError: no tool looks for one of the kinds.
    """
    if not _DENORMALS.isdisjoint(kinds):
        raise LuthierError(f"--fp denormal cannot be checked on a GPU: {_NEEDS}")
    flow = {FindingKind.NAN_FLOW.label, FindingKind.INFINITY_FLOW.label}
    options = {"fp": f":flow={'false' if flow.isdisjoint(kinds) else 'true'}"}
    wanted = {kind.check for kind in FindingKind if kind.label in kinds}
    return [f"{tool}{options.get(check, '')}" for check, tool in HOOK_TOOLS.items() if check in wanted]


def collect(instrumentation: Instrumentation, collector: Collector) -> None:
    """Move what the tools of a run have found, and could not check, to a collector.

    A tool that fails is a fault of the run, and does not affect others.
    """
    for tool in instrumentation.tools.tools:
        run = instrumentation.view(tool)
        try:
            for finding in tool.findings(run):
                if finding.kind in collector.kinds:
                    collector.keep(finding)
            for unchecked in tool.unchecked(run):
                collector.leave(unchecked)
        except Exception as problem:  # whatever a tool's own code raises
            instrumentation.fail(failed(tool, "findings", problem))
    for check, gap in _UNSEEN.items():
        if kinds_of_check(check) & collector.kinds:
            collector.leave(Unchecked(0, "", *gap))
    kernels = [kernel for kernel in results.kernels(instrumentation) if not is_of_runtime(kernel.name)]
    for kernel in kernels:
        _leave_uninstrumented(kernel, collector)
    for fault in instrumentation.faults:
        collector.leave(Unchecked(0, "", "launches", fault))
    if not instrumentation.sessions:
        why = "no process of the program loaded ROCr (libhsa-runtime64.so.1), with which programs use AMD GPUs"
        collector.leave(Unchecked(0, "", "launches", why))
    launches = sum(kernel.launches for kernel in kernels)
    # A kernel without an access that a tool checks is examined by that.
    observed = sum(kernel.launches if kernel.patched.idle else kernel.instrumented for kernel in kernels)
    collector.scope = partial(CheckedScope, launches, observed, kernels=len(kernels), by_hooks=True)


def _leave_uninstrumented(kernel: KernelResult, findings: FindingSet) -> None:
    """Record the launches and instructions of a kernel that ran without hooks."""
    patched = kernel.patched
    if missing := kernel.launches - kernel.instrumented:
        why = patched.reason or "the tools, or options, left them out"
        if not patched.idle:
            findings.leave(Unchecked(0, kernel.name, "launches", f"{why} ({missing} of {kernel.launches})"))
    if patched.report is None:
        return
    for count, refusal in by_kind(patched.report.refusals).values():
        findings.leave(Unchecked(0, kernel.name, "instructions", f"{refusal.message} ({count})"))
    if patched.report.unknown_calls:
        why = f"{counted(patched.report.unknown_calls, 'call')} with unknown targets may reach code without hooks"
        findings.leave(Unchecked(0, kernel.name, "called functions", why))
