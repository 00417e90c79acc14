"""The emulated device: load code objects, launch kernels, read memory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luthier.emulator import launch as abi
from luthier.emulator import layout
from luthier.emulator.loader import Image
from luthier.emulator.machine import machine_code
from luthier.emulator.memory import Allocation, Arena, Memory
from luthier.emulator.program import Code
from luthier.emulator.report import explain
from luthier.emulator.stats import AddressCounts, LaunchStats
from luthier.emulator.worker import Worker, put_field
from luthier.errors import DeviceError, EmulationError, ObjectError
from luthier.mc import Isa
from luthier.objects import CodeObject, Kernel, load_object
from luthier.targets import TargetId

Source = bytes | str | os.PathLike[str] | CodeObject

QUANTUM = 4096
"""Backward branches and jumps a wave takes in one turn."""


class DeviceBuffer:
    """Memory of a device."""

    def __init__(self, memory: Memory, allocation: Allocation) -> None:
        self._memory = memory
        self._allocation: Allocation | None = allocation

    def _live(self) -> Allocation:
        if self._allocation is None:
            raise DeviceError("the buffer was freed")
        return self._allocation

    @property
    def address(self) -> int:
        """Device address of the first byte."""
        return self._live().address

    @property
    def size(self) -> int:
        """Bytes."""
        return self._live().size

    def read(self, dtype: Any = None) -> Any:
        """The contents: bytes, or an array of `dtype`."""
        data = self._live().view().tobytes()
        return data if dtype is None else np.frombuffer(data, dtype).copy()

    def write(self, data: bytes | NDArray[Any], offset: int = 0) -> None:
        """Replace contents from byte `offset`.

        Raises:
            DeviceError: it does not fit.
        """
        raw = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else np.ascontiguousarray(data).view(np.uint8).ravel()
        if offset < 0 or offset + raw.size > self.size:
            raise DeviceError(f"{raw.size} bytes at {offset} do not fit a buffer of {self.size}")
        self._live().view()[offset : offset + raw.size] = raw

    def free(self) -> None:
        """Give the memory back."""
        self._memory.free(self._live())
        self._allocation = None


class Variable:
    """A variable of a loaded module; of a HIP managed variable its storage."""

    def __init__(self, name: str, address: int, size: int, view: NDArray[np.uint8]) -> None:
        self.name = name
        self.address = address
        self.size = size
        self._view = view

    def read(self, dtype: Any = None) -> Any:
        """Contents: bytes, an array of `dtype`, or with `dtype` int the little-endian unsigned number."""
        data = self._view.tobytes()
        if dtype is None:
            return data
        if dtype is int:
            return int.from_bytes(data, "little")
        return np.frombuffer(data, dtype).copy()

    def write(self, data: bytes | int | NDArray[Any]) -> None:
        """Replace the contents (a number fills the whole variable, little-endian).

        Raises:
            DeviceError: the sizes differ.
        """
        if isinstance(data, (int, np.integer)):
            data = (int(data) & ((1 << 8 * self.size) - 1)).to_bytes(self.size, "little")
        raw = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else np.ascontiguousarray(data).view(np.uint8).ravel()
        if raw.size != self.size:
            raise DeviceError(f"variable {self.name} has {self.size} bytes, not {raw.size}")
        self._view[:] = raw


class Module:
    """A code object loaded on a device."""

    def __init__(self, device: EmulatedDevice, code: CodeObject) -> None:
        self.device = device
        self.object = code
        if code.target.target != device.target.target:
            raise ObjectError(f"code for {code.target} on a device that is {device.target}", object=code.name)
        self.image = Image(code, device.memory, device.resolve)
        self._codes: dict[int, Code] = {}

    def kernel(self, name: str) -> KernelHandle:
        """The kernel called `name`.

        Raises:
            ObjectError: there is none.
        """
        if name not in self.object.kernels:
            known = ", ".join(self.object.kernels) or "none"
            raise ObjectError(f"no kernel {name!r}; there are: {known}", object=self.object.name)
        return KernelHandle(self, self.object.kernels[name])

    def variable(self, name: str) -> Variable:
        """The variable called `name`.

        Raises:
            ObjectError: no such symbol, or one without storage.
        """
        if name in self.image.managed:
            storage = self.image.managed[name]
            return Variable(name, storage.address, storage.size, storage.view())
        symbol = self.object.symbol(name)
        if symbol is None or not symbol.defined or symbol.size == 0:
            raise ObjectError(f"no variable {name!r}", object=self.object.name)
        address = self.image.host(symbol.address)
        holder = self.device.memory.find(address)
        if holder is None or address + symbol.size > holder.end:
            raise ObjectError(f"variable {name!r} lies outside the loaded segments", object=self.object.name)
        view = holder.view()[address - holder.address :][: symbol.size]
        return Variable(name, address, symbol.size, view)

    def code(self, wave_size: int) -> Code:
        """The decoded code, for waves of `wave_size` lanes."""
        found = self._codes.get(wave_size)
        if found is None:
            isa = Isa.of(self.object.target, wave_size)
            ranges = [(start, self.object.read(start, size)) for start, size in self.object.text_ranges]
            found = self._codes[wave_size] = Code(isa, ranges)
        return found

    def unload(self) -> None:
        """Give the memory back; its kernels must not be launched any more."""
        self.image.unload()
        self.device.forget(self)


class KernelHandle:
    """A kernel that can be launched."""

    def __init__(self, module: Module, kernel: Kernel) -> None:
        self.module = module
        self.kernel = kernel
        self.name = kernel.name

    def launch(
        self,
        *arguments: Any,
        grid: int | Sequence[int] = 1,
        block: int | Sequence[int] = 1,
        dynamic_lds: int = 0,
    ) -> LaunchStats:
        """Run the kernel to its end.

        Args:
            arguments: NumPy arrays (copied in, and back after the launch), numbers, `DeviceBuffer`s; or one `bytes` object as
                the whole explicit kernarg segment. Hidden arguments are filled in.
            grid: size in work-groups, one to three numbers.
            block: work-items of a work-group, one to three numbers.
            dynamic_lds: bytes of LDS beyond the kernel's own.

        Raises:
            DeviceError: arguments or sizes the kernel does not take.
            EmulationError: a fault, an unimplemented operation, a deadlock. Arrays are not copied back; the device is usable.
        """
        device = self.module.device
        geometry = abi.Geometry(abi.as_triple(grid), abi.as_triple(block), dynamic_lds)
        if len(arguments) == 1 and isinstance(arguments[0], (bytes, bytearray)):
            raw = abi.complete_arguments(self.kernel, bytes(arguments[0]), geometry, device.queue)
            return device.run(self, raw, geometry)
        buffers: list[tuple[NDArray[Any], Allocation]] = []
        try:
            values: list[int | float | bytes] = []
            for argument in arguments:
                if isinstance(argument, np.ndarray):
                    buffers.append((argument, _copy_in(device.memory, argument)))
                    values.append(buffers[-1][1].address)
                elif isinstance(argument, DeviceBuffer):
                    values.append(argument.address)
                elif isinstance(argument, np.generic):
                    values.append(argument.tobytes())
                else:
                    values.append(argument)
            raw = abi.pack_arguments(self.kernel, values, geometry, device.queue)
            stats = device.run(self, raw, geometry)
            for array, allocation in buffers:
                array[...] = allocation.view().view(array.dtype).reshape(array.shape)
            return stats
        finally:
            for _, allocation in buffers:
                device.memory.free(allocation)


def _copy_in(memory: Memory, array: NDArray[Any]) -> Allocation:
    if array.dtype.hasobject:
        raise DeviceError("an array of Python objects cannot be a kernel argument")
    if not array.flags.writeable:
        raise DeviceError("a read-only array cannot be a kernel argument: pass a copy")
    allocation = memory.allocate(array.nbytes, "argument array")
    allocation.view()[:] = np.ascontiguousarray(array).view(np.uint8).ravel() if array.size else 0
    return allocation


class EmulatedDevice:
    """One emulated GPU.

    Args:
        target: target id, e.g. ``gfx942`` or ``gfx942:xnack-``.
        threads: host threads that run work-groups; None: as many as there are cores.
    """

    def __init__(self, target: TargetId | str, threads: int | None = None) -> None:
        self.target = TargetId.parse(target) if isinstance(target, str) else target
        self.threads = threads or len(os.sched_getaffinity(0))
        if self.threads < 1:
            raise DeviceError(f"{threads} threads")
        self.memory = Memory()
        self.step_limit = 1 << 24
        """Quanta a work-group may use before it counts as never ending."""
        self._stats: LaunchStats | None = None
        self._modules: list[Module] = []
        self._lock = threading.Lock()
        self._workers = [Worker(number) for number in range(self.threads)]
        # What the queue pointer points to: amd_queue_t, with the aperture words that old code objects read.
        queue = self.memory.allocate(256, "queue")
        queue.view()[64:72] = np.frombuffer(
            (abi.SHARED_BASE >> 32).to_bytes(4, "little") + (abi.PRIVATE_BASE >> 32).to_bytes(4, "little"), np.uint8
        )
        self.queue = queue.address

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.threads, thread_name_prefix="luthier-emulator")

    def __repr__(self) -> str:
        return f"<EmulatedDevice {self.target}, {self.threads} threads>"

    @property
    def stats(self) -> LaunchStats:
        """Counts of the last launch.

        Raises:
            DeviceError: nothing was launched.
        """
        if self._stats is None:
            raise DeviceError("nothing was launched on this device")
        return self._stats

    def allocate(self, size: int) -> DeviceBuffer:
        """Zeroed memory of `size` bytes."""
        return DeviceBuffer(self.memory, self.memory.allocate(size))

    def load(self, source: Source) -> Module:
        """Load a code object: bytes, a path, or one already read. Of a bundle, the image for this target.

        Raises:
            ObjectError: malformed, for another target, or with undefined symbols.
        """
        code = source if isinstance(source, CodeObject) else load_object(source, target=str(self.target))
        module = Module(self, code)
        self._modules.append(module)
        return module

    def resolve(self, name: str) -> int | None:
        """Host address of a symbol that a loaded module defines."""
        for module in self._modules:
            symbol = module.object.symbol(name)
            if symbol is not None and symbol.defined and symbol.binding != "local":
                return module.image.host(symbol.address)
        return None

    def forget(self, module: Module) -> None:
        """Called by a module that is unloaded."""
        if module in self._modules:
            self._modules.remove(module)

    # Launching ------------------------------------------------------------------------------------------------------

    def run(self, handle: KernelHandle, kernarg: bytes, geometry: abi.Geometry) -> LaunchStats:
        """Run a kernel whose kernarg segment is ready. One launch runs at a time."""
        with self._lock:
            return _Launch(self, handle, kernarg, geometry).run(self._workers)

    def remember(self, stats: LaunchStats) -> None:
        """Make `stats` those of the last launch."""
        self._stats = stats

    def spread(self, work: Any, workers: list[Worker]) -> None:
        """Call `work` for each worker, each on its own thread."""
        if len(workers) == 1:
            work(workers[0])
            return
        for future in [self._pool.submit(work, worker) for worker in workers]:
            future.result()


class _Launch:
    """One launch: sets up memory, runs the workers, collects counts."""

    def __init__(self, device: EmulatedDevice, handle: KernelHandle, kernarg: bytes, geometry: abi.Geometry) -> None:
        self.device = device
        self.handle = handle
        self.kernel = kernel = handle.kernel
        self.target = device.target.target
        abi.check_geometry(kernel, self.target, geometry)
        self.geometry = geometry
        self.wave_size = kernel.wave_size
        self.waves = -(-geometry.items // self.wave_size)
        self.code = handle.module.code(self.wave_size)
        descriptor = kernel.descriptor
        self.mode = (
            descriptor.float_round_mode_32
            | descriptor.float_round_mode_16_64 << 2
            | descriptor.float_denorm_mode_32 << 4
            | descriptor.float_denorm_mode_16_64 << 6
            | descriptor.enable_dx10_clamp << 8
            | descriptor.enable_ieee_mode << 9
        )
        self.kernarg = kernarg
        self.fault: EmulationError | None = None
        self._lock = threading.Lock()
        self._memory = Arena(layout.LAUNCH.size)

    def run(self, workers: list[Worker]) -> LaunchStats:
        kernel, code = self.kernel, self.code
        compiled = machine_code().compiled
        entry = code.record_at(kernel.entry + self._preload_skip())
        if entry is None:
            raise EmulationError(f"the entry {kernel.entry:#x} is no instruction", kernel=kernel.name)
        code.ensure(self.mode, entry)
        scratch_lane = self._scratch_bytes()
        used = workers[: min(len(workers), self.geometry.groups)]
        lds = kernel.group_segment_fixed_size + self.geometry.dynamic_lds
        memory = self.device.memory
        scratch = Arena(len(used) * self.waves * self.wave_size * scratch_lane + 4096)
        scratch_base = (scratch.address + 255) // 256 * 256
        temporary: list[Allocation] = []
        try:
            temporary.append(memory.register(scratch_base, max(1, scratch.size - 512), "scratch", scratch))
            kernarg = memory.allocate(max(len(self.kernarg), 1), f"arguments of {kernel.name}")
            temporary.append(kernarg)
            kernarg.view()[: len(self.kernarg)] = np.frombuffer(self.kernarg, np.uint8)
            packet = memory.allocate(64, "dispatch packet")
            temporary.append(packet)
            descriptor_address = self.handle.module.image.host(kernel.descriptor_address)
            packet.view()[:] = np.frombuffer(
                abi.dispatch_packet(kernel, self.geometry, descriptor_address, kernarg.address, scratch_lane, lds), np.uint8
            )
            inputs = abi.Inputs(packet.address, self.device.queue, kernarg.address, self.kernarg, scratch_base, scratch_lane)
            keep = self._fill(inputs, entry)
            table = memory.table()
            for worker in used:
                worker.prepare(code, self.mode, self.waves, lds, self.target.lds_bytes, scratch_base, scratch_lane)
                worker.context(
                    launch=self._memory.address,
                    ranges=table.ctypes.data,
                    range_count=len(table),
                    code_base=self.handle.module.image.host(code.base),
                    code_size=code.size,
                    code_index=code.index.ctypes.data,
                    resume=0,
                )
            began = time.perf_counter()
            self.device.spread(self._work, used)
            seconds = time.perf_counter() - began
            del keep
        finally:
            for allocation in temporary:
                memory.free(allocation)
        stats = self._collect(used, seconds, machine_code().compiled - compiled)
        self.device.remember(stats)
        if self.fault is not None:
            raise self.fault
        return stats

    def _preload_skip(self) -> int:
        """With preloaded arguments the first 256 bytes of a kernel load them for firmware that cannot; skip those."""
        return 256 if self.kernel.descriptor.kernarg_preload_length else 0

    def _scratch_bytes(self) -> int:
        """Scratch of a lane: the kernel's own, and room for a stack whose depth is not known."""
        size = self.kernel.private_segment_fixed_size
        if self.kernel.uses_dynamic_stack:
            size += 16384
        return (size + 15) // 16 * 16

    def _fill(self, inputs: abi.Inputs, entry: int) -> list[Any]:
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
            "quantum": QUANTUM,
            "step_limit": self.device.step_limit,
            "grid_x": self.geometry.grid[0],
            "grid_y": self.geometry.grid[1],
            "grid_z": self.geometry.grid[2],
            "sgpr_image": image.words.ctypes.data,
            "vgpr_bytes": min(256, max(descriptor.architected_vgprs, 1)) * row,
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
            "packed_yz": int(image.packed_yz),
            "mode": self.mode,
            "architected_scratch": int(self.target.architected_flat_scratch),
            "scratch_base": inputs.scratch_base,
            "entry": entry * layout.RECORD.size,
        }
        for name, value in values.items():
            put_field(self._memory.array, layout.LAUNCH, name, value)
        return [image, lanes]

    # On the worker's thread -----------------------------------------------------------------------------------------

    def _work(self, worker: Worker) -> None:
        """Run work-groups until there are none left, helping out where compiled code cannot go on."""
        try:
            while True:
                code = worker.run()
                if code == layout.DONE or code == layout.STOP:
                    return
                if code == layout.UNBOUND:
                    wave = worker.current()
                    mode = int.from_bytes(wave[layout.WAVE["mode"] :][:4].tobytes(), "little")
                    self.code.ensure(mode, worker.record_of(wave))
                    worker.sync(mode)
                elif code == layout.MODE:
                    worker.switch_mode(worker.current())
                else:
                    self._fail(explain(self.device.memory, self.kernel.name, self.code, worker, code))
                    return
        except BaseException as problem:
            self._abort()
            if isinstance(problem, Exception) and not isinstance(problem, EmulationError):
                raise
            raise

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
        names = {int(number): code.isa.opcode(int(number)).mnemonic for number in np.unique(opcodes)}
        return LaunchStats(
            self.kernel.name,
            AddressCounts(addresses, count[executed].astype(np.int64), lanes[executed].astype(np.int64)),
            {int(address): names[int(number)] for address, number in zip(addresses, opcodes, strict=True)},
            self.waves * self.geometry.groups,
            self.geometry.groups,
            seconds,
            compiled,
        )
