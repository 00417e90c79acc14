"""One launch of a kernel: put arguments, packet and scratch into memory, execute the waves, collect the counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.native.machine import machine_code
from luthier.emulator.running import start as abi
from luthier.emulator.running.execution import QUANTUM, ExecutionOutcome, Observer, execute
from luthier.emulator.running.executor import Executor, resident_groups
from luthier.emulator.running.loader import LoadedImage
from luthier.emulator.running.memory import AllocationTable, DeviceAllocation
from luthier.emulator.running.plan import find_beyond
from luthier.emulator.running.stats import AddressCounts, LaunchStats
from luthier.errors import DeviceError, EmulationError
from luthier.isa.targets import Target
from luthier.objects import Kernel

if TYPE_CHECKING:
    from luthier.lifting import LiftedRepresentation


class Turns(Struct, frozen=True):
    """Order in which one thread runs waves."""

    quantum: int = QUANTUM
    """Backward branches of a wave's turn."""
    backward: bool = False
    """Whether the last work-group comes first, and in each work-group the last wave."""


IN_TURNS = Turns()


class LaunchResult(Struct, frozen=True):
    """Result of a launch."""

    stats: LaunchStats
    fault: EmulationError | None
    """Fault that stopped the launch."""


@dataclass(frozen=True)
class KernelLaunch:
    """A kernel with its geometry and arguments.

    Raises:
        DeviceError: no device of the target can run the launch.
    """

    target: Target
    kernel: Kernel
    image: LoadedImage
    code: DecodedCode
    plan: Mapping[str, int]
    """`plan.kernel_plan`."""
    arguments: bytes
    """The kernarg segment."""
    geometry: abi.Geometry
    queue: int
    """Host address of the amd_queue_t that kernels see."""
    step_limit: int
    """Quanta that a work-group may use."""
    lift: Callable[[], LiftedRepresentation] | None = None
    """Lifts the kernel, for its counts."""
    cooperative: bool = False
    """All work-groups run at once."""
    observer: Observer | None = None
    """Sees every instruction; then all waves run on the launching thread."""
    observed: int = 0
    """Bits such as `layout.OBSERVE_RACES`; the plan then has `uses`, and the executor keeps what is seen."""
    turns: Turns = IN_TURNS
    watch: int = 0
    """Address of a `layout.WATCH`; 0: neither waits nor hazards are checked."""
    costs: int = 0
    """Address of a `layout.COST_MODEL`, for `layout.OBSERVE_COSTS`."""
    parts: Sequence[Mapping[str, int]] = ({},)
    """Fields of `layout.DISPATCH` that differ between the parts of the grid that run; without any, all of it runs."""

    def __post_init__(self) -> None:
        abi.check_geometry(self.kernel, self.target, self.geometry)
        if self.cooperative and self.geometry.groups > self.resident:
            raise DeviceError(
                f"a cooperative launch of {self.geometry.groups} work-groups; at most {self.resident} are resident",
                kernel=self.kernel.name,
            )

    @property
    def waves(self) -> int:
        """Return the number of waves of a work-group."""
        return -(-self.geometry.items // self.kernel.wave_size)

    @property
    def lds(self) -> int:
        """Return the bytes of LDS of a work-group."""
        return self.kernel.group_segment_fixed_size + self.geometry.dynamic_lds

    @property
    def resident(self) -> int:
        """Return how many of its work-groups the device holds at once."""
        return resident_groups(self.plan, self.waves, self.lds, abi.scratch_bytes(self.kernel, self.target))

    def run(self, memory: AllocationTable, executor: Executor) -> LaunchResult:
        """Execute the launch.

        Raises:
            EmulationError: no instruction begins at the kernel's entry.
        """
        compiled = machine_code().compiled
        with self._dispatch(memory, executor.threads) as dispatch:
            outcome = execute(
                executor,
                memory,
                self.code,
                self.plan,
                dispatch,
                self.kernel.name,
                parts=self.parts,
                step_limit=self.step_limit,
                observer=self.observer,
                observed=self.observed,
                quantum=self.turns.quantum,
            )
        stats = self._collect(outcome, machine_code().compiled - compiled)
        beyond = find_beyond(self.kernel, self.code, outcome.counts != 0)
        return LaunchResult(stats, outcome.fault or beyond)

    @contextmanager
    def _dispatch(self, memory: AllocationTable, threads: int) -> Iterator[dict[str, int]]:
        """Yield the dispatch, with arguments, packet and scratch in memory until the block ends."""
        kernel, geometry = self.kernel, self.geometry
        resident = min(geometry.groups, max(threads, self.resident))
        scratch_lane = abi.scratch_bytes(kernel, self.target)
        temporary: list[DeviceAllocation] = []

        def take(size: int, label: str) -> DeviceAllocation:
            temporary.append(memory.allocate(size, label))
            return temporary[-1]

        try:
            scratch = take(resident * self.waves * kernel.wave_size * scratch_lane, "scratch").address
            # Compilers widen scalar loads up to the alignment that is safe on hardware.
            kernarg = take(max(1, -(-len(self.arguments) // 64)) * 64, f"arguments of {kernel.name}")
            kernarg.view()[: len(self.arguments)] = np.frombuffer(self.arguments, np.uint8)
            packet = take(64, "dispatch packet")
            object_address = self.image.host(kernel.descriptor_address)
            packet.view()[:] = np.frombuffer(
                abi.dispatch_packet(kernel, geometry, object_address, kernarg.address, scratch_lane, self.lds), np.uint8
            )
            yield {
                "packet": packet.address,
                "queue": self.queue,
                "id": 1,
                "kernarg": kernarg.address,
                "code": self.image.host(self.code.base),
                **{f"grid_{axis}": count for axis, count in zip("xyz", geometry.grid, strict=True)},
                **{f"whole_{axis}": count for axis, count in zip("xyz", geometry.grid, strict=True)},
                **{f"block_{axis}": count for axis, count in zip("xyz", geometry.block, strict=True)},
                "lds_size": self.lds,
                "cooperative": self.cooperative,
                "backward": self.turns.backward,
                "resident": resident,
                "scratch": scratch,
                "scratch_lane": scratch_lane,
                "watch": self.watch,
                "costs": self.costs,
            }
        finally:
            for allocation in temporary:
                memory.free(allocation)

    def _collect(self, outcome: ExecutionOutcome, compiled: int) -> LaunchStats:
        code, count, lanes = self.code, outcome.counts, outcome.lanes
        executed = np.flatnonzero(count)
        addresses = code.addresses()[executed]
        order = np.argsort(addresses, kind="stable")
        executed, addresses = executed[order], addresses[order]
        opcodes = code.opcodes()[executed]

        def name_opcodes() -> dict[int, str]:
            names = {number: code.isa.opcode(number).mnemonic for number in set(opcodes.tolist())}
            return {
                address: names[number] for address, number in zip(addresses.tolist(), opcodes.tolist(), strict=True)
            }

        groups = sum(
            math.prod(part.get(f"grid_{axis}", count) for axis, count in zip("xyz", self.geometry.grid, strict=True))
            for part in self.parts
        )
        return LaunchStats(
            self.kernel.name,
            AddressCounts(addresses, count[executed].astype(np.int64), lanes[executed].astype(np.int64)),
            name_opcodes,
            self.waves * groups,
            groups,
            outcome.seconds,
            compiled,
            self.lift,
        )
