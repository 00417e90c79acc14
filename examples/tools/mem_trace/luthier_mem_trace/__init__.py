"""Traces the addresses that kernels access: a record for each access of each lane."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from luthier import InstrumentationTask, Run, Table, Tool, ToolModule, immediate
from luthier.errors import HookError
from numpy.typing import NDArray

if TYPE_CHECKING:
    from luthier.channels import Channel

DEVICE = ToolModule.from_package(__name__, "device")
KINDS = ("load", "store", "atomic")
SPACES = ("global", "flat", "scratch", "buffer", "lds", "scalar", "scalar buffer")
"""Records contain their indices."""
_SITE = [("pc", "<u8"), ("kernel", "<u2"), ("size", "<u2"), ("kind", "u1"), ("space", "u1")]
SITE = np.dtype([*_SITE, ("unit", "u1")])
"""A traced instruction; `unit` is the binary logarithm of the unit of distances between its lanes."""
ACCESS = np.dtype(
    [("address", "<u8"), _SITE[0], ("workgroup", "<u4"), *_SITE[1:3], ("lane", "u1"), *_SITE[3:]],
)
"""An access of one lane."""
WHOLE = 1 << 31
"""Flag in the site of a pushed record, as in device.hip: the record has only an address."""
ONCE = 255
"""The lane of accesses of a wave."""


class MemTrace(Tool):
    """Pushes a record for each access through the channel ``accesses``."""

    @dataclass(frozen=True)
    class Options:
        """Options: the traced accesses."""

        spaces: str = "global+flat+buffer"
        """Any of `SPACES`, joined by +."""
        kinds: str = "load+store+atomic"
        """Any of `KINDS`, joined by +."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.spaces = _chosen("spaces", self.options.spaces, SPACES)
        self.kinds = _chosen("kinds", self.options.kinds, KINDS)
        self.kernels: list[tuple[str, int, int]] = []
        """Kernels by number: name, traced instructions, instructions without an available address."""
        self.sites: list[tuple[int, ...]] = []
        """Instructions by number: the fields of `SITE`."""
        self.seen: dict[tuple[int, int], int] = {}
        """Accesses so far, by process and device."""
        self.not_traced: list[tuple[str, str]] = []
        """Kernel, and why an address is not available."""

    def instrument(self, task: InstrumentationTask) -> None:
        """Insert the hook before every memory access of the requested spaces and kinds."""
        name, number = task.lifted.kernel.name, len(self.kernels)
        traced, not_traced = 0, 0
        for instruction in task.instructions:
            access = instruction.memory
            if access is None or access.space not in self.spaces or access.kind not in self.kinds:
                continue
            try:
                size = task.access_size(instruction)
                addresses = [task.effective_address(instruction, which) for which in range(access.count)]
            except HookError as problem:
                self.not_traced.append((name, problem.message))
                not_traced += 1
                task.leave_out(problem.message)
                continue
            # Distances between lanes are multiples of the access size; for 12 bytes, of 4.
            unit = (size & -size).bit_length() - 1 if size else 0
            site = immediate(len(self.sites))
            for address in addresses:
                if access.space.startswith("scalar"):
                    task.insert_hook_before(instruction, DEVICE.access_wave, address, site)
                else:
                    task.insert_hook_before(instruction, DEVICE.access, address, site, unit)
            about = KINDS.index(access.kind), SPACES.index(access.space)
            self.sites.append((instruction.address, number, size, *about, unit))
            traced += 1
        self.kernels.append((name, traced, not_traced))

    def unpacked(self, channel: Channel, batch: NDArray[Any]) -> NDArray[Any]:
        """Return an `ACCESS` for each lane, from records for all lanes of a wave or for one."""
        whole = batch["site"] >= WHOLE
        about = np.array(self.sites, SITE)[batch["site"] & np.uint32(WHOLE - 1)]
        where = batch["where"].view(np.int64)
        distance = np.where(whole, 0, where >> 48 << about["unit"])
        base = np.where(whole, where, where << 16 >> 16)
        lanes = np.ascontiguousarray(batch["lanes"])
        bits = np.unpackbits(lanes.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
        bits[lanes == 0, 0] = 1
        record, lane = np.nonzero(bits)
        made = np.empty(len(record), ACCESS)
        made["address"] = (base[record] + distance[record] * lane).view(np.uint64)
        made["lane"] = np.where(lanes[record] == 0, ONCE, lane)
        made["workgroup"] = batch["workgroup"][record]
        for name, _ in _SITE:
            made[name] = about[name][record]
        device = getattr(channel, "pid", 0), getattr(channel, "gpu", 0)
        self.seen[device] = self.seen.get(device, 0) + len(made)
        return made

    def why_idle(self) -> str:
        """Return the searched accesses, and the first address that is not available."""
        looked = f"{'+'.join(sorted(self.kinds))} of {'+'.join(sorted(self.spaces))}"
        if not self.not_traced:
            return f"there is no {looked}"
        return f"{len(self.not_traced)} {looked}: no address is available, first: {self.not_traced[0][1]}"

    def report(self, run: Run) -> Iterable[Table]:
        """Yield the numbers of kernels, and of records."""
        rows = [(number, *kernel) for number, kernel in enumerate(self.kernels)]
        yield Table("kernels", ("number", "kernel", "traced", "not traced"), rows)
        channels = [
            (one.pid, one.gpu, self.seen.get((one.pid, one.gpu), 0), one.taken, one.dropped, one.lost)
            for one in run.channels("accesses")
        ]
        yield Table("accesses", ("process", "device", "accesses", "records", "dropped", "lost"), channels)
        if self.not_traced:
            yield Table("not traced", ("kernel", "reason"), list(dict.fromkeys(self.not_traced)))


def _chosen(option: str, text: str, known: tuple[str, ...]) -> frozenset[str]:
    """Return the names in an option.

    Raises:
        ToolError: an unknown name.
    """
    from luthier.errors import ToolError

    names = frozenset(text.split("+"))
    for name in names - set(known):
        raise ToolError(f"option {option} of mem_trace must be some of {', '.join(known)}, joined by +, not {name!r}")
    return names
