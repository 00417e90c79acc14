"""Times blocks, waves, or the code between two instructions, with the clocks that waves can read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from luthier import Hook, Immediate, Instruction, InstrumentationTask, Run, SiteSums, Table, Tool, ToolModule
from luthier.errors import HookError, ToolError
from luthier.isa import InstructionFlag
from luthier.tool.site_sums import ratio

DEVICE = ToolModule.from_package(__name__, "device")
WHAT = ("blocks", "waves")
CLOCKS = ("auto", "cycles", "real")
PASSES_ON = InstructionFlag.TERMINATOR | InstructionFlag.BRANCH | InstructionFlag.CALL


@dataclass(frozen=True)
class Span:
    """The code that is timed."""

    name: str
    """A block's number, or a description."""
    clock: str
    """``cycles`` or ``real``."""


class BlockTiming(Tool):
    """Adds clock values where an interval ends, and subtracts them where it begins."""

    reads_clock = True

    @dataclass(frozen=True)
    class Options:
        """Options: the intervals and the clock."""

        what: str = "blocks"
        """blocks or waves: time each from its beginning to its end."""
        between: str = ""
        """Time from before one instruction to before another that always follows it instead, e.g. 0x1900-0x19c4."""
        clock: str = "auto"
        """cycles: shader cycles; real: the device's constant clock; auto: cycles if their counter has 64 bits."""
        top: int = 20
        """Rows to show, longest time first; 0: all."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        for name, known in (("what", WHAT), ("clock", CLOCKS)):
            if (given := getattr(self.options, name)) not in known:
                raise ToolError(f"option {name} of block_timing must be one of {', '.join(known)}, not {given!r}")
        self.between: tuple[int, int] | None = None
        if self.options.between:
            match = re.fullmatch(r"(0x[0-9a-f]+|\d+)-(0x[0-9a-f]+|\d+)", self.options.between.lower())
            if match is None:
                raise ToolError(f"option between of block_timing must be ADDRESS-ADDRESS, not {self.options.between!r}")
            self.between = int(match[1], 0), int(match[2], 0)
        self.sums = SiteSums(DEVICE, "spans", 3)

    def instrument(self, task: InstrumentationTask) -> None:
        """Insert a hook at each beginning and each end."""
        if self.between is not None:
            self._between(task, *self.between)
        elif self.options.what == "waves":
            first = next(task.instructions)

            def whole(number: Immediate, begin: Hook, end: Hook) -> None:
                task.insert_hook_at_kernel_entry(begin, number)
                task.insert_hook_at_kernel_exit(end, number)

            self._time(task, first, "wave", whole)
        else:
            for block in task.lifted.blocks:
                first, last = task.lifted.instructions[block.first], task.lifted.instructions[block.last]

                def part(
                    number: Immediate, begin: Hook, end: Hook, first: int = block.first, last: Instruction = last
                ) -> None:
                    task.insert_hook_before(first, begin, number)
                    if last.flags & PASSES_ON or last.is_call:
                        task.insert_hook_before(last, end, number)
                    else:
                        task.insert_hook_after(last, end, number)

                self._time(task, first, f"block {block.index}", part)

    def _between(self, task: InstrumentationTask, start: int, stop: int) -> None:
        places = {one.address: one for one in task.instructions if one.address in (start, stop)}
        if not places:
            return

        def way(number: Immediate, begin: Hook, end: Hook) -> None:
            for address in (start, stop):
                if address not in places:
                    raise HookError(f"there is no instruction at {address:#x}")
            # Where both are the same point, the end of one interval comes before the beginning of the next.
            task.insert_hook_before(places[stop], end, number)
            task.insert_hook_before(places[start], begin, number)

        self._time(task, next(iter(places.values())), f"{start:#x} to {stop:#x}", way)

    def _time(
        self, task: InstrumentationTask, at: Instruction, name: str, insert: Callable[[Immediate, Hook, Hook], None]
    ) -> None:
        bits = task.lifted.target.cycle_counter_bits
        clock = self.options.clock
        if clock == "auto":
            clock = "cycles" if bits == 64 else "real"

        def checked(number: Immediate) -> None:
            if clock == "cycles" and bits < 64:
                raise HookError(f"the counter of cycles has {bits} bits, too few to be summed; use clock=real")
            hooks = (
                (DEVICE.begin_cycles, DEVICE.end_cycles) if clock == "cycles" else (DEVICE.begin_real, DEVICE.end_real)
            )
            insert(number, *hooks)

        self.sums.add(task, at, checked, Span(name, clock))

    def report(self, run: Run) -> Iterable[Table]:
        """Yield the times, longest first."""
        rows = []
        whole: dict[tuple[str, str], int] = {}
        for site, sums in self.sums.read(run):
            time, begun, ended = int(sums[0].astype(np.int64)), int(sums[1]), int(sums[2])
            if not begun and not ended:
                continue
            if begun != ended or time < 0:
                note = f"ended {ended} times" if begun != ended else "the clock went back"
                rows.append((site, begun, None, note))
                continue
            whole[site.kernel, site.object] = whole.get((site.kernel, site.object), 0) + time
            rows.append((site, begun, time, ""))
        rows.sort(key=lambda row: -(row[2] or 0))
        cells = [
            (
                *(site.kernel, site.facts.name, site.source, hex(site.address), site.facts.clock, begun, time),
                *(
                    (None, None)
                    if time is None
                    else (ratio(time, begun), ratio(100 * time, whole[site.kernel, site.object]))
                ),
                note,
            )
            for site, begun, time, note in rows[: self.options.top or None]
        ]
        columns = ("kernel", "what", "source", "address", "clock", "times", "time", "mean", "%", "note")
        yield Table("time", columns, cells)
        if self.between is not None and not self.sums.sites and not self.sums.unmeasured:
            yield Table("not measured", ("reason",), [(f"no kernel has an instruction at {self.options.between}",)])
        yield from self.sums.tables()
