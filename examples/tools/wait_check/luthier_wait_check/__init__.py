"""Checks each launched kernel for missing waits and wait states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from luthier import InstrumentationTask, Run, Table, Tool
from luthier.hazards.wait_counters import WaitFinding, check_waits
from luthier.hazards.wait_states import HazardFinding, check_hazards


class WaitCheck(Tool):
    """Checks the kernels of a program as `luthier check` checks those of a file; inserts nothing."""

    @dataclass(frozen=True)
    class Options:
        """Options: the checks and the output."""

        hazards: bool = True
        """Also find missing wait states (hazards)."""
        unneeded: bool = False
        """Also list waits and wait states that no path needs: not errors, but they may cost time."""
        top: int = 50
        """Findings to show; 0: all."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.checked: list[tuple[object, ...]] = []
        self.finding_rows: list[tuple[str, str]] = []
        self.unneeded: list[tuple[str, str]] = []

    def instrument(self, task: InstrumentationTask) -> None:
        """Check the kernel and the functions that it calls, on all paths."""
        lifted, unneeded = task.lifted, self.options.unneeded
        name = lifted.kernel.name
        waits = check_waits(lifted, unneeded=unneeded)
        findings: list[WaitFinding | HazardFinding] = [*waits.findings]
        more = 0
        if self.options.hazards:
            hazards = check_hazards(lifted, unneeded=unneeded)
            findings += hazards.findings
            more = hazards.more
            self.unneeded += (_finding_row(name, nop) for nop in hazards.unneeded)
        self.unneeded += (_finding_row(name, wait) for wait in waits.unneeded)
        self.finding_rows += (_finding_row(name, one) for one in findings)
        row = name, str(lifted.object.target), waits.instructions, len(findings) + more, waits.unchecked
        if row not in self.checked:  # the row may come from another device or process
            self.checked.append(row)

    def report(self, run: Run) -> Iterable[Table]:
        """Yield the findings, then the kernels that were checked, and those that were not."""
        findings = list(dict.fromkeys(self.finding_rows))
        title = f"findings: {len(findings)}" if findings else "findings"
        yield Table(title, ("kernel", "finding"), findings[: self.options.top or None])
        if self.options.unneeded:
            yield Table("not needed", ("kernel", "instruction"), list(dict.fromkeys(self.unneeded)))
        columns = ("kernel", "target", "instructions", "findings", "partly checked")
        yield Table("checked", columns, self.checked)
        done = {row[0] for row in self.checked}
        missing = dict.fromkeys(one.name for one in run.kernels if one.name not in done)
        if missing:
            reason = "it was not lifted, or not selected"
            yield Table("not checked", ("kernel", "reason"), [(name, reason) for name in missing])


def _finding_row(kernel: str, what: object) -> tuple[str, str]:
    """Return a finding as text."""
    return kernel, str(what).removeprefix(f"{kernel}: ")
