"""Traces the addresses that kernels access: a record for each access of each lane."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from luthier import InstrumentationTask, Run, Table, Tool, ToolModule
from luthier.errors import HookError

DEVICE = ToolModule.from_package(__name__, "device")
KINDS = ("load", "store", "atomic")
SPACES = ("global", "flat", "scratch", "buffer", "lds", "scalar", "scalar buffer")
"""Their numbers are in the records."""


class MemTrace(Tool):
    """Pushes a record for each access through the channel ``accesses``."""

    @dataclass(frozen=True)
    class Options:
        """Options: what is traced."""

        spaces: str = "global+flat+buffer"
        """Of `SPACES`, with + between them."""
        kinds: str = "load+store+atomic"
        """Of `KINDS`, likewise."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.spaces = _chosen("spaces", self.options.spaces, SPACES)
        self.kinds = _chosen("kinds", self.options.kinds, KINDS)
        self.kernels: list[tuple[str, int, int]] = []
        """Kernels by number: name, instructions that are traced, those whose address cannot be told."""
        self.untold: list[tuple[str, str]] = []
        """Kernel, and why an address cannot be told."""

    def instrument(self, task: InstrumentationTask) -> None:
        """Put the hook before every instruction that accesses memory of the kinds that were asked for."""
        name, number = task.lifted.kernel.name, len(self.kernels)
        traced, untold = 0, 0
        for instruction in task.instructions:
            access = instruction.memory
            if access is None or access.space not in self.spaces or access.kind not in self.kinds:
                continue
            try:
                size = task.access_size(instruction)
                addresses = [task.effective_address(instruction, which) for which in range(access.count)]
            except HookError as problem:
                self.untold.append((name, problem.message))
                untold += 1
                task.leave_out(problem.message)
                continue
            hook = DEVICE.access_wave if access.space.startswith("scalar") else DEVICE.access
            about = instruction.address, number, size, KINDS.index(access.kind), SPACES.index(access.space)
            for address in addresses:
                task.insert_hook_before(instruction, hook, address, *about)
            traced += 1
        self.kernels.append((name, traced, untold))

    def why_idle(self) -> str:
        """Return what was looked for, and the first address that cannot be computed."""
        looked = f"{'+'.join(sorted(self.kinds))} of {'+'.join(sorted(self.spaces))}"
        if not self.untold:
            return f"there is no {looked}"
        return f"none of {len(self.untold)} {looked} has an address that can be told, the first: {self.untold[0][1]}"

    def report(self, run: Run) -> Iterable[Table]:
        """Yield the numbers of kernels, and how many records there are."""
        rows = [(number, *kernel) for number, kernel in enumerate(self.kernels)]
        yield Table("kernels", ("number", "kernel", "traced", "untold"), rows)
        channels = [(one.pid, one.gpu, one.taken, one.dropped, one.lost) for one in run.channels("accesses")]
        yield Table("accesses", ("process", "device", "records", "dropped", "lost"), channels)
        if self.untold:
            yield Table("not traced", ("kernel", "reason"), list(dict.fromkeys(self.untold)))


def _chosen(option: str, text: str, known: tuple[str, ...]) -> frozenset[str]:
    """Return what an option names.

    Raises:
        ToolError: an unknown name.
    """
    from luthier.errors import ToolError

    names = frozenset(text.split("+"))
    for name in names - set(known):
        raise ToolError(f"option {option} of mem_trace: no {name!r}; there are {', '.join(known)}")
    return names
