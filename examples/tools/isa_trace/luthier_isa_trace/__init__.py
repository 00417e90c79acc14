"""Traces the instructions of every wave in order: a record for each straight-line segment that a wave enters.

`luthier_isa_trace.reading` restores the stream of instructions, `luthier_isa_trace.export` writes it for simulators.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from luthier import InstrumentationTask, Run, Table, Tool, ToolModule, immediate
from luthier.errors import HookError
from luthier.isa.registers import EXEC_MASK
from numpy.typing import NDArray

if TYPE_CHECKING:
    from luthier.channels import Channel
    from luthier.lifting import BasicBlock

DEVICE = ToolModule.from_package(__name__, "device")
_WAVE = [("x", "<u4"), ("y", "<u4"), ("z", "<u4"), ("wave", "<u2")]
_SEGMENT = [("pc", "<u8"), ("kernel", "<u2"), ("instructions", "<u4"), ("starts", "u1")]
STEP = np.dtype([("exec", "<u8"), *_WAVE, *_SEGMENT])
"""A segment that a wave enters; ``starts``: the wave starts here."""
_SITE = [*_SEGMENT[:2], ("size", "<u2"), ("kind", "u1"), ("space", "u1"), ("parts", "u1"), ("unit", "u1")]
ADDRESS = np.dtype([("address", "<u8"), ("distance", "<i8"), ("lanes", "<u8"), *_WAVE, *_SITE[:-1]])
"""An access by some lanes of a wave: lane i accesses ``address + distance * i``; lanes 0: the wave, once.

An instruction with two addresses has two ``parts``, one after the other."""
KINDS = ("load", "store", "atomic")
SPACES = ("global", "flat", "scratch", "buffer", "lds", "scalar", "scalar buffer")
"""Records contain their indices."""
_WHOLE = 1 << 31
"""Flag of a site, as in device.hip."""
_MOST_KERNELS = 1 << 16


class IsaTrace(Tool):
    """Pushes a record for each segment, and for each access of memory."""

    @dataclass(frozen=True)
    class Options:
        """Options: what is traced."""

        addresses: bool = True
        """Whether to trace the addresses of memory instructions, too."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.kernels: list[tuple[str, int, bool]] = []
        """Kernels by number: name, wave size, whether work-groups are told apart in the third dimension."""
        self._segments: list[tuple[int, ...]] = []
        """By number: the fields of `_SEGMENT`."""
        self._accesses: list[tuple[int, ...]] = []
        """By number: the fields of `_SITE`."""
        self._executed: dict[int, list[int]] = {}
        """Waves, segments and instructions so far, by kernel."""
        self.no_address: list[tuple[str, str, str]] = []
        """Kernel, instruction, and why its address is not available."""

    def instrument(self, task: InstrumentationTask) -> None:
        """Insert hooks at segments and memory accesses, and count blocks, with which readers compare the stream.

        Raises:
            HookError: there are too many kernels.
        """
        lifted, number = task.lifted, len(self.kernels)
        if number == _MOST_KERNELS:
            raise HookError(f"a trace has at most {_MOST_KERNELS} kernels", kernel=lifted.kernel.name)
        z = task.third_workgroup_id
        self.kernels.append((lifted.kernel.name, lifted.wave_size, z is not None))
        place = (0 if z is None else z, lifted.wave_size)
        entry = lifted.functions[0].blocks[0]
        if entry.predecessors:
            task.insert_hook_at_kernel_entry(DEVICE.step, self._segment(0, number, 0, starts=True), *place)
        for block in lifted.blocks:
            starts = block.index == entry.index and not entry.predecessors
            for first, after in _segments_of(task, block):
                address = lifted.columns.address[first]
                site = self._segment(address, number, after - first, starts=starts and first == block.first)
                if first == block.first:
                    task.insert_hook_at_block(block, DEVICE.step, site, *place)
                else:
                    task.insert_hook_after(first - 1, DEVICE.step, site, *place)
        if self.options.addresses:
            self._trace_addresses(task, number, place)
        task.count(lifted.blocks)

    def _segment(self, pc: int, kernel: int, instructions: int, *, starts: bool) -> Any:
        self._segments.append((pc, kernel, instructions, starts))
        return immediate(len(self._segments) - 1)

    def _trace_addresses(self, task: InstrumentationTask, number: int, place: tuple[Any, int]) -> None:
        for instruction in task.instructions:
            access = instruction.memory
            if access is None or access.space not in SPACES:
                continue
            try:
                size = task.access_size(instruction)
                addresses = [task.effective_address(instruction, which) for which in range(access.count)]
            except HookError as problem:
                self.no_address.append((task.lifted.kernel.name, instruction.text, problem.message))
                continue
            unit = (size & -size).bit_length() - 1 if size else 0
            about = KINDS.index(access.kind), SPACES.index(access.space)
            site = immediate(len(self._accesses))
            self._accesses.append((instruction.address, number, size, *about, len(addresses), unit))
            for address in addresses:
                if access.space.startswith("scalar"):
                    task.insert_hook_before(instruction, DEVICE.access_wave, address, site, *place)
                else:
                    task.insert_hook_before(instruction, DEVICE.access, address, site, unit, *place)

    def unpacked(self, channel: Channel, batch: NDArray[Any]) -> NDArray[Any]:
        """Return a `STEP` or an `ADDRESS` for each record."""
        is_step = "exec" in (batch.dtype.names or ())
        sites = batch["site"]
        about = (
            np.array(self._segments, _SEGMENT)[sites]
            if is_step
            else np.array(self._accesses, _SITE)[sites & np.uint32(_WHOLE - 1)]
        )
        rows = np.empty(len(batch), STEP if is_step else ADDRESS)
        for name, _ in _WAVE:
            rows[name] = batch[name]
        for name in set(about.dtype.names or ()) & set(rows.dtype.names or ()):
            rows[name] = about[name]
        if is_step:
            rows["exec"] = batch["exec"]
            for kernel in np.unique(about["kernel"]).tolist():
                own = about[about["kernel"] == kernel]
                sums = self._executed.setdefault(kernel, [0, 0, 0])
                for at, more in enumerate((own["starts"].sum(), len(own), own["instructions"].sum(dtype=np.int64))):
                    sums[at] += int(more)
        else:
            whole, where = sites >= _WHOLE, batch["where"].view(np.int64)
            rows["lanes"] = batch["lanes"]
            rows["distance"] = np.where(whole, 0, where >> 48 << about["unit"])
            rows["address"] = np.where(whole, where, where << 16 >> 16).view(np.uint64)
        return rows

    def report(self, run: Run) -> Iterable[Table]:
        """Yield the numbers of kernels with what was traced of each, and what was lost."""
        rows = [(number, *kernel, *self._executed.get(number, (0, 0, 0))) for number, kernel in enumerate(self.kernels)]
        columns = ("number", "kernel", "wave size", "has z", "waves", "segments", "instructions with lanes")
        yield Table("kernels", columns, rows)
        lost = [
            (name, channel.pid, channel.gpu, channel.taken, channel.dropped, channel.lost)
            for name in ("steps", "addresses")
            for channel in run.channels(name)
        ]
        yield Table("records", ("channel", "process", "device", "records", "dropped", "lost"), lost)
        if self.no_address:
            yield Table("no address", ("kernel", "instruction", "reason"), list(dict.fromkeys(self.no_address)))


def _segments_of(task: InstrumentationTask, block: BasicBlock) -> Iterator[tuple[int, int]]:
    """Yield the first instruction of each segment of a block, and the one after its last."""
    first = block.first
    for index in range(block.first, block.last + 1):
        if index == block.last or task.lifted.effects(index).writes & EXEC_MASK:
            yield first, index + 1
            first = index + 1
