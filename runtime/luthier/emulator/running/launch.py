"""One launch of a kernel: arguments, packet and scratch put into memory, waves executed, counts collected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from luthier.emulator.binding.program import Code
from luthier.emulator.native.machine import machine_code
from luthier.emulator.running import start as abi
from luthier.emulator.running.execution import Execution, Observer, Outcome, Start
from luthier.emulator.running.loader import Image
from luthier.emulator.running.memory import Allocation, Memory
from luthier.emulator.running.stats import AddressCounts, LaunchStats
from luthier.emulator.running.worker import Worker
from luthier.errors import DeviceError, EmulationError
from luthier.isa.targets import Target
from luthier.objects import Kernel

if TYPE_CHECKING:
    from luthier.lifting import LiftedRepresentation

RESIDENT_GROUPS = 1024
"""Work-groups of the largest cooperative launch."""


@dataclass(frozen=True)
class Result:
    """What a launch did."""

    stats: LaunchStats
    fault: EmulationError | None
    """What stopped it."""


@dataclass(frozen=True)
class Launch:
    """What is launched.

    Raises:
        DeviceError: a launch that no device of the target would take.
    """

    target: Target
    kernel: Kernel
    image: Image
    code: Code
    arguments: bytes
    """The kernarg segment."""
    geometry: abi.Geometry
    queue: int
    """Host address of the amd_queue_t that kernels see."""
    step_limit: int
    """Quanta that a work-group may use."""
    lift: Callable[[], LiftedRepresentation] | None = None
    """Gives the kernel's functions and blocks, for its counts."""
    cooperative: bool = False
    """All work-groups run at once."""
    observer: Observer | None = None
    """Looks at every instruction; then one worker runs all waves."""

    def __post_init__(self) -> None:
        if self.cooperative and self.geometry.groups > RESIDENT_GROUPS:
            raise DeviceError(
                f"a cooperative launch of {self.geometry.groups} work-groups; at most {RESIDENT_GROUPS} are resident",
                kernel=self.kernel.name,
            )
        abi.check_geometry(self.kernel, self.target, self.geometry)

    @property
    def waves(self) -> int:
        """Waves of a work-group."""
        return -(-self.geometry.items // self.kernel.wave_size)

    def run(self, memory: Memory, workers: Sequence[Worker], threads: int) -> Result:
        """Execute it on as many of the workers as it has work for.

        Raises:
            EmulationError: the kernel's entry is no instruction.
        """
        kernel, compiled = self.kernel, machine_code().compiled
        used = workers[: self.geometry.groups]
        with self._start(memory, len(used)) as start:
            execution = Execution(
                start,
                memory,
                kernel.name,
                step_limit=self.step_limit,
                observer=self.observer,
                together=self.cooperative,
            )
            outcome = execution.run(used, threads)
        stats = self._collect(outcome, machine_code().compiled - compiled)
        return Result(stats, outcome.fault or self._find_beyond(outcome))

    @contextmanager
    def _start(self, memory: Memory, workers: int) -> Iterator[Start]:
        """How its waves begin, with what they find in memory, which is given back afterwards."""
        kernel, code, geometry, descriptor = self.kernel, self.code, self.geometry, self.kernel.descriptor
        entry = code.record_at(kernel.entry + kernel.descriptor.hardware_entry)
        if entry is None:
            raise EmulationError(f"the entry {kernel.entry:#x} is no instruction", kernel=kernel.name)
        mode = abi.initial_mode(kernel)
        scratch_lane = abi.scratch_bytes(kernel, self.target)
        lds = kernel.group_segment_fixed_size + geometry.dynamic_lds
        temporary: list[Allocation] = []

        def take(size: int, label: str) -> Allocation:
            temporary.append(memory.allocate(size, label))
            return temporary[-1]

        try:
            scratch = take(workers * self.waves * kernel.wave_size * scratch_lane, "scratch").address
            # Compilers widen scalar loads within what alignment makes safe on hardware.
            kernarg = take(max(1, -(-len(self.arguments) // 64)) * 64, f"arguments of {kernel.name}")
            kernarg.view()[: len(self.arguments)] = np.frombuffer(self.arguments, np.uint8)
            packet = take(64, "dispatch packet")
            object_address = self.image.host(kernel.descriptor_address)
            packet.view()[:] = np.frombuffer(
                abi.dispatch_packet(kernel, geometry, object_address, kernarg.address, scratch_lane, lds), np.uint8
            )
            inputs = abi.Inputs(packet.address, self.queue, kernarg.address, self.arguments, scratch, scratch_lane)
            yield Start(
                code,
                entry,
                mode,
                geometry.grid,
                abi.sgpr_image(kernel, self.target, inputs),
                abi.lane_images(kernel, self.target, geometry, kernel.wave_size),
                vgprs=min(self.target.addressable_vgprs, max(descriptor.vgprs, 1)),
                agprs=descriptor.agprs,
                lds=lds,
                lds_limit=self.target.lds_bytes,
                scratch=scratch,
                scratch_lane=scratch_lane,
                code_base=self.image.host(code.base),
                architected_scratch=self.target.architected_flat_scratch,
            )
        finally:
            for allocation in temporary:
                memory.free(allocation)

    def _find_beyond(self, outcome: Outcome) -> EmulationError | None:
        """Executing an instruction that names a register beyond what the descriptor allocates is a fault."""
        descriptor, code = self.kernel.descriptor, self.code
        executed = outcome.counts != 0
        vgprs = descriptor.architected_vgprs
        if self.target.unified_vgprs and not (executed & (code.agprs > 0)).any():
            # No document says what is behind accum_offset. In the unified file AGPRs are (AMD's code for gem5, "changes
            # related to the accumulation offset" of MI200), and AMD's own kernels use them under VGPR names alone.
            # Kernels that use both names fault, since here the two are different registers.
            vgprs = min(descriptor.vgprs, self.target.addressable_vgprs)
        files = [("v", code.vgprs, vgprs), ("a", code.agprs, descriptor.agprs)]
        if self.target.sgpr_allocation_granule:  # else every wave has all
            files.append(("s", code.sgprs, descriptor.allocated_sgprs))
        for name, used, limit in files:
            beyond = np.flatnonzero(executed & (used > limit))
            if beyond.size:
                record = int(beyond[0])
                message = f"{code.text(record)} at {code.address_of(record):#x} uses {name}{int(used[record]) - 1}; "
                message += f"the kernel descriptor allocates {limit}"
                if name == "v" and limit < descriptor.vgprs:
                    message += " before the AGPRs (accum_offset), which it also uses"
                return EmulationError(
                    message, kernel=self.kernel.name, offset=code.address_of(record), target=str(code.isa.target)
                )
        return None

    def _collect(self, outcome: Outcome, compiled: int) -> LaunchStats:
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

        return LaunchStats(
            self.kernel.name,
            AddressCounts(addresses, count[executed].astype(np.int64), lanes[executed].astype(np.int64)),
            name_opcodes,
            self.waves * self.geometry.groups,
            self.geometry.groups,
            outcome.seconds,
            compiled,
            self.lift,
        )
