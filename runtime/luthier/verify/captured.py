"""Verification of a captured launch, original and patched: every byte must equal the recorded one, and every counter
the emulator's count."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from luthier.capture import Capture, Replayed
from luthier.capture.form import PAGE
from luthier.capture.replay import PreparedLaunch
from luthier.emulator.running.stats import AddressCounts
from luthier.errors import VerifyError
from luthier.objects import CodeObject
from luthier.patch import KernelReport
from luthier.run import results
from luthier.run.replaying import ReplayedRun
from luthier.support.table import Table
from luthier.tool import TaskShare, Tool, ToolGroup
from luthier.tool.counts import CellModule, KernelCounts
from luthier.tool.task import InstrumentationTask
from luthier.verify.side_by_side import KernelVerdict, counts_of, miscounted, predicted, refused_of, unexpected

_AskedKernel = tuple[InstrumentationTask, Sequence[TaskShare], KernelReport | None]


class _CapturedWishes:
    """Requests of tools in the kernel of the capture."""

    def __init__(self) -> None:
        self.kernel: _AskedKernel | None = None

    def asked(
        self, object: CodeObject, task: InstrumentationTask, shares: Sequence[TaskShare], report: KernelReport | None
    ) -> None:
        """Record the requests."""
        self.kernel = task, shares, report


def verify_capture(
    capture: Capture,
    tools: Tool | ToolGroup | Sequence[Tool],
    *,
    target: str | None = None,
    strict: bool = False,
    hoist: bool | None = None,
    threads: int | None = None,
) -> KernelVerdict:
    """Verify a captured launch.

    Both run with late results, and with the check for hazards on the executed path. If the original lacks waits, its
    results depend on timing: then both run with immediate results.

    Args:
        target: target of the device; None: the recorded one.
        strict: whether a refused hook or kernel is an error.
        hoist: whether hooks that only count become counters; None: the default.
        threads: host threads that run work-groups; None: one for each core.

    Raises:
        AddressTaken: this process uses addresses of the captured memory.
        VerifyError: the original differs from the recorded launch; or with `strict`, something was refused.
        LuthierError: the launch cannot be run.
    """
    group = ToolGroup.of(tools)
    launch = PreparedLaunch(capture, target or capture.manifest.target)
    checks, original, waits = _original(launch, threads)
    asked = _CapturedWishes()
    run = ReplayedRun(group, hoist=hoist, asked=asked)
    patched = run.replay(launch, threads, checks)
    instrumentation = run.instrumentation
    instrumentation.end()
    (kernel,) = results.kernels(instrumentation)
    problems = list(instrumentation.faults)
    if not kernel.instrumented and not kernel.patched.idle:
        reason = kernel.patched.reason or "the launch is too large to be instrumented"
        if strict:
            raise VerifyError(f"not verified: {reason}", kernel=kernel.name)
        problems.append(f"not verified: {reason}")
    report = kernel.patched.report
    if strict and report is not None and report.refusals:
        raise VerifyError(f"refused: {report.refusals[0].message}", kernel=kernel.name)
    problems += _differences(original, patched)
    compared = _ComparedCounts()
    if asked.kernel is not None and kernel.instrumented:
        compared = _compared_counts(run, group, asked.kernel, original)
        problems += compared.problems
        problems += [failure for failure in instrumentation.failures if failure not in problems]
    manifest = capture.manifest
    x, y, z = (-(-whole // size) for whole, size in zip(manifest.grid, manifest.block, strict=True))
    pages = {*patched.touched.tolist(), *capture.after["address"].tolist()}
    return KernelVerdict(
        manifest.kernel,
        str(launch.object.target),
        (x, y, z),
        manifest.block,
        len(pages) * PAGE,
        compared.counters,
        compared.expected,
        (original.instructions, patched.instructions),
        compared.not_lifted,
        compared.refused_executions,
        report if kernel.instrumented else None,
        tuple(problems),
        compared.counted,
        compared.tables,
        waits,
        tuple(str(one) for one in original.findings if one.check != "waits"),
    )


class _ComparedCounts(Struct, frozen=True):
    """Counts of the patched launch, compared with those of the original; the fields are those of `KernelVerdict`."""

    counters: dict[str, int] = {}
    expected: dict[str, int] = {}
    not_lifted: int = 0
    refused_executions: int = 0
    counted: int = 0
    tables: tuple[Table, ...] = ()
    problems: Sequence[str] = ()


def _compared_counts(run: ReplayedRun, group: ToolGroup, asked: _AskedKernel, original: Replayed) -> _ComparedCounts:
    """Compare what tools counted with the emulator's counts of the original launch."""
    task, shares, report = asked
    columns = (original.counts[name] for name in ("address", "executions", "lanes"))
    counts, not_lifted = counts_of(task, AddressCounts(*(column.astype("i8") for column in columns)))
    refused = refused_of(report)
    expected = predicted(task, group, shares, counts, refused)
    counters = _variables(run, expected)
    problems = list(unexpected(counters, expected))
    counted = 0
    for kernel_counts in _counters(run, group):
        counted += int(kernel_counts.counted.sum() + kernel_counts.lanes_counted.sum())
        problems += miscounted(task, kernel_counts, counts)
    return _ComparedCounts(
        counters,
        expected,
        not_lifted,
        int(counts.executions[sorted({task.insertions[number].at for number in refused})].sum()),
        counted,
        tuple(table for _, reported in results.tables(run.instrumentation) for table in reported),
        problems,
    )


def _original(launch: PreparedLaunch, threads: int | None) -> tuple[Sequence[str], Replayed, tuple[str, ...]]:
    """Run the original; return the checks for both runs, the replay, and the missing waits.

    Raises:
        VerifyError: it differs from the recorded launch.
    """
    checks: Sequence[str] = ("waits", "hazards")
    done = launch.run(threads, checks)
    waits = tuple(str(one) for one in done.findings if one.check == "waits")
    if waits or not done.same_bytes:
        checks = ("hazards",)
        done = launch.run(threads, checks)
    if not done.same_bytes or done.counts_equal is False:
        what = done.fault or done.difference or "the instruction counts differ"
        raise VerifyError(f"the original differs from the recorded launch: {what}", kernel=launch.kernel.name)
    return checks, done, waits


def _differences(original: Replayed, patched: Replayed) -> list[str]:
    """Return the differences of the patched launch from the original one."""
    problems = [str(one) for one in (patched.fault, patched.difference) if one is not None]
    known = {one.defect for one in original.findings}
    return problems + [str(one) for one in patched.findings if one.defect not in known]


def _variables(run: ReplayedRun, expected: dict[str, int]) -> dict[str, int]:
    """Return the tools' variables of at most 8 bytes, and the expected ones."""
    return {
        variable.name: variable.value
        for session in run.instrumentation.sessions
        for block, variable in session.variables()
        if not isinstance(block.module, CellModule) and (variable.size <= 8 or variable.name in expected)
    }


def _counters(run: ReplayedRun, group: ToolGroup) -> Sequence[KernelCounts]:
    """Return the counters that are not variables of a tool."""
    return run.instrumentation.view(group.tools[0]).counts()
