"""One launch of a kernel: memory set up, workers run, counts collected."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from luthier.emulator import layout
from luthier.emulator.inspection.debug import Trace, step_of
from luthier.emulator.inspection.report import explain
from luthier.emulator.native.machine import machine_code
from luthier.emulator.running import start as abi
from luthier.emulator.running.crew import CREW
from luthier.emulator.running.memory import Allocation, Arena
from luthier.emulator.running.stats import AddressCounts, LaunchStats
from luthier.emulator.running.worker import Worker, put_field, table_key
from luthier.errors import DeviceError, EmulationError

if TYPE_CHECKING:
    from luthier.emulator.inspection.checks import LaunchChecker
    from luthier.emulator.running.device import EmulatedDevice, KernelHandle

GRID_PATIENCE = 5.0
"""Seconds without progress of any work-group of a cooperative launch after which it is a deadlock."""
RESIDENT_GROUPS = 1024
"""Work-groups of the largest cooperative launch."""
QUANTUM = 4096
"""Backward branches and jumps a wave takes in one turn."""
STEPPED_QUANTUM = 16
"""The same where Python looks at every instruction."""


def _make_checker(device: EmulatedDevice, handle: KernelHandle) -> LaunchChecker | None:
    if device.checks is None:
        return None
    from luthier.emulator.inspection.checks import LaunchChecker

    return LaunchChecker(device.checks, handle.kernel.name)


class Launch:
    """One launch: sets up memory, runs the workers, collects counts."""

    def __init__(
        self,
        device: EmulatedDevice,
        handle: KernelHandle,
        kernarg: bytes,
        geometry: abi.Geometry,
        trace: Trace | None,
        breakpoints: Collection[int] | None,
        cooperative: bool = False,
    ) -> None:
        self.cooperative = cooperative
        if cooperative and geometry.groups > RESIDENT_GROUPS:
            raise DeviceError(
                f"a cooperative launch of {geometry.groups} work-groups; at most {RESIDENT_GROUPS} are resident",
                kernel=handle.name,
            )
        self.trace = trace
        self.breakpoints = None if breakpoints is None else frozenset(breakpoints)
        self.checker = _make_checker(device, handle)
        self.device = device
        self.handle = handle
        self.kernel = kernel = handle.kernel
        self.target = device.target.target
        abi.check_geometry(kernel, self.target, geometry)
        self.geometry = geometry
        self.wave_size = kernel.wave_size
        self.waves = -(-geometry.items // self.wave_size)
        self.code = handle.module.code(self.wave_size)
        self.mode = abi.initial_mode(kernel)
        self.kernarg = kernarg
        self.fault: EmulationError | None = None
        self._lock = threading.Lock()
        self._memory = Arena(layout.LAUNCH.size)

    @property
    def stepped(self) -> bool:
        """Whether Python looks at every instruction; then one worker runs all waves."""
        return self.trace is not None or self.checker is not None

    def run(self, workers: list[Worker]) -> LaunchStats:
        kernel, code = self.kernel, self.code
        compiled = machine_code().compiled
        entry = code.record_at(kernel.entry + self._preload_skip())
        if entry is None:
            raise EmulationError(f"the entry {kernel.entry:#x} is no instruction", kernel=kernel.name)
        stepping = layout.STEPPING if self.stepped else 0
        key = layout.mode_key(self.mode) | stepping
        code.ensure(key, entry)
        scratch_lane = abi.scratch_bytes(kernel, self.target)
        used = workers[: min(len(workers), self.geometry.groups)]
        lds = kernel.group_segment_fixed_size + self.geometry.dynamic_lds
        memory = self.device.memory
        temporary: list[Allocation] = []

        def take(size: int, label: str) -> Allocation:
            temporary.append(memory.allocate(size, label))
            return temporary[-1]

        try:
            scratch_base = take(len(used) * self.waves * self.wave_size * scratch_lane, "scratch").address
            # Compilers widen scalar loads within what alignment makes safe on hardware.
            padded = max(1, -(-len(self.kernarg) // 64)) * 64
            kernarg = take(padded, f"arguments of {kernel.name}")
            kernarg.view()[: len(self.kernarg)] = np.frombuffer(self.kernarg, np.uint8)
            packet = take(64, "dispatch packet")
            descriptor_address = self.handle.module.image.host(kernel.descriptor_address)
            packet.view()[:] = np.frombuffer(
                abi.dispatch_packet(kernel, self.geometry, descriptor_address, kernarg.address, scratch_lane, lds),
                np.uint8,
            )
            inputs = abi.Inputs(
                packet.address, self.device.queue, kernarg.address, self.kernarg, scratch_base, scratch_lane
            )
            keep = self._fill(inputs, code.begin if stepping else entry, stepping)
            table, holders = memory.table()
            for worker in used:
                worker.prepare(code, key, self.waves, lds, self.target.lds_bytes, scratch_base, scratch_lane)
                if stepping:
                    worker.begin_at(key, entry)
                worker.context(
                    launch=self._memory.address,
                    ranges=table.ctypes.data,
                    range_count=len(table),
                    code_base=self.handle.module.image.host(code.base),
                    code_size=code.size,
                    code_index=code.index.ctypes.data,
                    resume=0,
                    accesses=0,
                )
            began = time.perf_counter()
            if self.cooperative:
                threads = 1 if self.stepped else self.device.threads
                shares = [used[start::threads] for start in range(threads)]
                CREW.spread(self._work_together, [share for share in shares if share], self._abort)
            else:
                CREW.spread(self._work, used, self._abort)
            seconds = time.perf_counter() - began
            del keep, holders
        finally:
            for allocation in temporary:
                memory.free(allocation)
        stats = self._collect(used, seconds, machine_code().compiled - compiled)
        self.device.remember(stats)
        if self.checker is not None:
            self.device.found(self.checker.findings())
        if self.fault is None:
            self._check_registers(used)
        if self.fault is not None:
            raise self.fault
        return stats

    def _check_registers(self, workers: list[Worker]) -> None:
        """Executing an instruction that names a register beyond what the descriptor allocates is a fault."""
        descriptor, code = self.kernel.descriptor, self.code
        executed = np.zeros(code.count, np.bool_)
        for worker in workers:
            executed |= worker.counts()[0] != 0
        vgprs = descriptor.architected_vgprs
        if self.target.unified_vgprs and not (executed & (code.agprs > 0)).any():
            # No document says what is behind accum_offset. In the unified file AGPRs are (AMD's code for gem5, "changes
            # related to the accumulation offset" of MI200), and AMD's own kernels use them under VGPR names alone.
            # Kernels that use both names fault, since here the two are different registers.
            vgprs = min(descriptor.vgprs, 256)
        files = [("v", code.vgprs, vgprs), ("a", code.agprs, descriptor.agprs)]
        if self.target.major == 9:  # later every wave has all SGPRs; these are given out by sixteen
            files.append(("s", code.sgprs, -(-descriptor.sgprs // 16) * 16))
        for name, used, limit in files:
            beyond = np.flatnonzero(executed & (used > limit))
            if beyond.size:
                record = int(beyond[0])
                message = f"{code.text(record)} at {code.address_of(record):#x} uses {name}{int(used[record]) - 1}; "
                message += f"the kernel descriptor allocates {limit}"
                if name == "v" and limit < descriptor.vgprs:
                    message += " before the AGPRs (accum_offset), which it also uses"
                self.fault = EmulationError(
                    message, kernel=self.kernel.name, offset=code.address_of(record), target=str(code.isa.target)
                )
                return

    def _preload_skip(self) -> int:
        """With preloaded arguments the first 256 bytes of a kernel load them for firmware that cannot; skip those."""
        return 256 if self.kernel.descriptor.kernarg_preload_length else 0

    def _fill(self, inputs: abi.Inputs, entry: int, stepping: int) -> list[Any]:
        """The launch structure; what it points to is returned, to be kept."""
        kernel = self.kernel
        descriptor = kernel.descriptor
        image = abi.sgpr_image(kernel, self.target, inputs)
        lanes, lane_bytes = abi.lane_images(kernel, self.target, self.geometry, self.wave_size)
        row = 4 * self.wave_size
        values: dict[str, int] = {
            "next_group": 0,
            "group_count": self.geometry.groups,
            "abort": 0,
            "quantum": STEPPED_QUANTUM if stepping else QUANTUM,
            "step_limit": self.device.step_limit * (STEPPED_QUANTUM if stepping else QUANTUM),
            "grid_x": self.geometry.grid[0],
            "grid_y": self.geometry.grid[1],
            "grid_z": self.geometry.grid[2],
            "sgpr_image": image.words.ctypes.data,
            "vgpr_bytes": min(256, max(descriptor.vgprs, 1)) * row,
            "agpr_bytes": min(256, descriptor.agprs) * row,
            "agprs": layout.VECTORS + 256 * row,
            "lane_images": lanes.ctypes.data,
            "lane_image_stride": lanes.shape[1],
            "lane_image_size": lane_bytes,
            "group_id_x": image.group_ids[0],
            "group_id_y": image.group_ids[1],
            "group_id_z": image.group_ids[2],
            "group_info": image.group_info,
            "scratch_offset": image.scratch_offset,
            "wave_id": image.wave_id,
            "wave_id_shift": image.wave_id_shift,
            "packed_yz": image.packed_yz,
            "mode": self.mode,
            "stepping": stepping,
            "cooperative": int(self.cooperative),
            "grid_arrived": 0,
            "grid_phase": 0,
            "architected_scratch": int(self.target.architected_flat_scratch),
            "scratch_base": inputs.scratch_base,
            "entry": entry * layout.RECORD.size,
        }
        for name, value in values.items():
            put_field(self._memory.array, layout.LAUNCH, name, value)
        return [image, lanes]

    # On the worker's thread -----------------------------------------------------------------------------------------

    def _work(self, worker: Worker) -> None:
        """Run work-groups until there are none left."""
        try:
            self._advance(worker)
        except BaseException:
            self._abort()
            raise

    def _work_together(self, workers: list[Worker]) -> None:
        """Run the resident work-groups of a cooperative launch, a round of their waves at a time."""
        try:
            idle_since: float | None = None
            while workers:
                moved = False
                for worker in list(workers):
                    code = self._advance(worker)
                    if code == layout.STOP:
                        return
                    if code == layout.DONE:
                        workers.remove(worker)
                    moved |= code == layout.DONE or worker.group_field("progress") != 0
                now = time.perf_counter()
                idle_since = None if moved else idle_since or now
                if idle_since is not None and now - idle_since > GRID_PATIENCE:
                    self._fail(explain(self.device.memory, self.kernel.name, self.code, workers[0], layout.DEADLOCK))
                    return
        except BaseException:
            self._abort()
            raise

    def _advance(self, worker: Worker) -> int:
        """Run a worker until it is done, stopped, or another's turn, helping where compiled code cannot go on."""
        while True:
            code = worker.run()
            if code in (layout.DONE, layout.STOP, layout.SWITCH):
                return code
            if code == layout.UNBOUND:
                wave = worker.current()
                key = table_key(wave)
                self.code.ensure(key, worker.record_of(wave))
                worker.sync(key)
            elif code == layout.MODE:
                worker.switch_mode(worker.current())
            elif code == layout.MESSAGE:
                pass  # nobody here waits for interrupts
            elif code == layout.STEP:
                if not self._step(worker):
                    self._abort()
                    return layout.STOP
            else:
                self._fail(explain(self.device.memory, self.kernel.name, self.code, worker, code))
                return layout.STOP

    def _step(self, worker: Worker) -> bool:
        """Call the trace for the wave that has just stopped before an instruction; False ends the launch."""
        step = step_of(self.code, worker)
        if self.checker is not None:
            self.checker.observe(step)
        if self.trace is None:
            return True
        if self.breakpoints is not None and step.address not in self.breakpoints:
            return True
        return self.trace(step) is not False

    def _abort(self) -> None:
        put_field(self._memory.array, layout.LAUNCH, "abort", 1)

    def _fail(self, error: EmulationError) -> None:
        with self._lock:
            if self.fault is None:
                self.fault = error
        self._abort()

    def _collect(self, workers: list[Worker], seconds: float, compiled: int) -> LaunchStats:
        code = self.code
        count = np.zeros(code.count, np.uint64)
        lanes = np.zeros(code.count, np.uint64)
        for worker in workers:
            more_count, more_lanes = worker.counts()
            count += more_count
            lanes += more_lanes
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
            seconds,
            compiled,
            self.handle.lift,
        )
