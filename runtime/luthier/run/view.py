"""View of a run for tools."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from luthier.errors import ToolError
from luthier.objects import CodeObject, Kernel
from luthier.objects.names import spellings
from luthier.patch import by_kind
from luthier.run.patching import Patched, digest_of
from luthier.run.sessions import Session
from luthier.tool.counts import KernelCounts
from luthier.tool.observation import LiveChannel, LiveVariable, Value, total

if TYPE_CHECKING:
    from luthier.patch.output.companion import Companion


class KernelResult(Struct, frozen=True):
    """A kernel of a code object, over all processes and devices."""

    kernel: Kernel
    code_object: CodeObject
    launches: int
    instrumented: int
    """Launches that ran the patched kernel."""
    patched: Patched

    @property
    def name(self) -> str:
        """Return the kernel's symbol."""
        return self.kernel.name

    @property
    def object(self) -> str:
        """Return the code object's name."""
        return self.code_object.name

    @property
    def covered(self) -> bool:
        """Return whether every launch ran with every hook that tools requested."""
        report = self.patched.report
        return report is not None and not report.refusals and self.launches == self.instrumented

    def to_json(self) -> dict[str, Any]:
        """Return the row of ``luthier run --json``."""
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
            "unresolved": [] if report is None else [str(call) for call in report.unresolved],
            "refused": {}
            if report is None
            else {
                kind: {"hooks": count, "first": first.message}
                for kind, (count, first) in by_kind(report.refusals).items()
            },
        }

    def to_row(self) -> dict[str, Any]:
        """Return the row of `luthier.run.schema.KERNELS`."""
        kernel, report = self.kernel, self.patched.report
        descriptor, target = kernel.descriptor, self.code_object.target
        spelled = spellings(kernel.name)
        return {
            "kernel": kernel.name,
            "object": self.object,
            "digest": digest_of(self.code_object),
            "name": spelled[-1] if len(spelled) > 1 else None,
            "target": str(target),
            "wave_size": kernel.wave_size,
            "vgprs": descriptor.vgprs,
            "sgprs": descriptor.sgprs,
            "group_segment": kernel.group_segment_fixed_size,
            "private_segment": kernel.private_segment_fixed_size,
            "waves_per_simd": kernel.occupancy().waves,
            "patched_vgprs": report and report.vgprs[1],
            "patched_sgprs": report and report.sgprs[1],
            "patched_waves_per_simd": report and report.waves_per_simd[1],
            "instructions": report and report.instructions,
            "added_instructions": report and report.added_instructions,
            "code_bytes": report and report.code_bytes,
            "patched_bytes": report and report.patched_bytes,
            "requested_sites": report and report.requested_sites,
            "sites": report and report.sites,
            "hooks": report and report.insertions,
            "refused_hooks": report and len(report.refusals),
            "unknown_calls": report and report.unknown_calls,
            "launches": self.launches,
            "instrumented": self.instrumented,
            "covered": self.covered,
            "skipped": self.patched.skipped,
            "from_cache": self.patched.kept,
            "reason": self.patched.reason or None,
        }


class ToolView:
    """`luthier.tool.observation.Run` for one tool.

    Args:
        sessions: sessions of processes; more may be added.
        modules: identities of the tool's modules; more may be added.
        folder: run folder.
        initial: values of variables that `initialise` has set, by name.
    """

    def __init__(
        self,
        sessions: Sequence[Session],
        modules: Collection[int],
        folder: Path | None = None,
        initial: dict[str, Value] | None = None,
    ) -> None:
        self._sessions = sessions
        self._modules = modules
        self.folder = folder
        self._initial = {} if initial is None else initial

    @property
    def kernels(self) -> list[KernelResult]:
        """Return the kernels launched so far."""
        return launched_kernels(self._sessions)

    def initialise(self, name: str, value: Value) -> None:
        """Set the initial value of a variable, before the program uses it.

        Raises:
            ToolError: the program already uses the tool's variables.
        """
        if self.variables():
            raise ToolError(
                f"variable {name} is in use: set it in at_init, or write to each of run.variables({name!r})"
            )
        self._initial[name] = value

    def variables(self, name: str | None = None) -> list[LiveVariable]:
        """Return the tool's variables of a name, or all: one for each device of each process that needed it."""
        return [
            variable
            for session in list(self._sessions)
            for block, variable in session.variables()
            if id(block.module) in self._modules and name in (None, variable.name)
        ]

    def channels(self, name: str | None = None) -> list[LiveChannel]:
        """Return the tool's channels of a name, or all: one for each device of each process that needed it."""
        return [
            channel
            for session in list(self._sessions)
            for block in list(session.blocks.values())
            if id(block.block.module) in self._modules
            for channel in block.channels
            if name in (None, channel.name)
        ]

    def counts(self) -> list[KernelCounts]:
        """Return the counts of `InstrumentationTask.count` without a variable, for each kernel, over all devices and
        processes."""
        counts = []
        sessions = list(self._sessions)
        companions = {
            id(companion): companion
            for session in sessions
            for kernel in list(session.kernels)
            if (companion := kernel.patched.companion) is not None
            and companion.counters is not None
            and companion.counters.profiled
        }
        for companion in companions.values():
            symbols = {block.symbol for block in companion.blocks}
            counters = companion.counters
            assert counters is not None
            memories = [
                variable.read()
                for session in sessions
                for block, variable in session.variables()
                if block.symbol in symbols and variable.name == counters.symbol
            ]
            counts.append(counters.together(memories, _waves(sessions, companion)))
        return counts

    def total(self, name: str) -> int | float:
        """Return the sum of the variable's values over devices and processes; 0 if there is none yet."""
        return total(self.variables(name))


def _waves(sessions: Iterable[Session], companion: Companion) -> int:
    """Return the number of waves that ran a patched kernel."""
    return sum(
        kernel.waves(row)
        for session in sessions
        for kernel, row in zip(list(session.kernels), session.counts, strict=False)
        if kernel.patched.companion is companion
    )


def launched_kernels(sessions: Iterable[Session]) -> list[KernelResult]:
    """Return the kernels launched so far; merged by name and object."""
    entries: dict[tuple[str, str, int], list[Any]] = {}
    for session in list(sessions):
        for kernel, row in zip(list(session.kernels), session.counts, strict=False):
            patched = kernel.patched
            key = (
                kernel.name,
                digest_of(kernel.object),
                id(patched.companion) if patched.companion else hash(patched.reason),
            )
            entry = entries.setdefault(key, [kernel.kernel, kernel.object, 0, 0, patched])
            entry[2] += int(row["launches"])
            entry[3] += int(row["instrumented"])
    return [KernelResult(*entry) for entry in entries.values()]
