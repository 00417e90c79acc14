"""The emulated device: load code objects, launch kernels, read memory."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.running import start as abi
from luthier.emulator.running.channels import DeviceChannel, drained, open_channels
from luthier.emulator.running.executor import Executor, leave_unwritten
from luthier.emulator.running.launch import IN_TURNS, KernelLaunch
from luthier.emulator.running.loader import LoadedImage
from luthier.emulator.running.memory import AllocationTable, DeviceAllocation
from luthier.emulator.running.plan import kernel_plan
from luthier.emulator.running.stats import LaunchStats
from luthier.emulator.running.storage import DeviceBuffer, ModuleVariable
from luthier.errors import DeviceError, LuthierError, ObjectError
from luthier.isa import Isa
from luthier.isa.targets import TargetId
from luthier.objects import CodeObject, Kernel, load_object_for
from luthier.objects.origins import teller
from luthier.support.wording import enumerated

if TYPE_CHECKING:  # most launches do not need these
    from luthier.emulator.inspection.debug import Trace
    from luthier.emulator.inspection.debugger import DebugSession
    from luthier.emulator.running.observation import Observation
    from luthier.findings.collector import FindingSet
    from luthier.findings.finding import Finding
    from luthier.lifting import LiftedRepresentation

WAITING = 1 << 12
"""Factor on the step limit of work-groups whose waves may wait for a channel: each `s_sleep` counts as a step."""
Source = bytes | str | os.PathLike[str] | CodeObject


class Module:
    """A code object loaded on a device."""

    def __init__(self, device: EmulatedDevice, code: CodeObject) -> None:
        self.device = device
        self.object = code
        if not device.target.accepts(code.target):
            raise ObjectError(f"code for {code.target} on a device that is {device.target}", object=code.name)
        self.image = LoadedImage(code, device.memory, device.resolve)
        try:
            self.channels = open_channels(code, self.image, device.memory)
            """Symbol -> channel of a tool."""
        except LuthierError:
            self.image.unload()
            raise
        self._codes: dict[int, DecodedCode] = {}
        self.waves: Counter[str] = Counter()
        """Launched waves by kernel."""

    def kernel(self, name: str) -> KernelHandle:
        """Return the kernel called `name`.

        Raises:
            ObjectError: the object has no such kernel.
        """
        if name not in self.object.kernels:
            known = enumerated(self.object.kernels)
            raise ObjectError(f"no kernel {name!r}; there are: {known}", object=self.object.name)
        return KernelHandle(self, self.object.kernels[name])

    def variable(self, name: str) -> ModuleVariable:
        """Return the variable called `name`: its symbol, or its name in the source (``counters::total``).

        Raises:
            ObjectError: the object has no such variable, or it has no storage.
        """
        symbol = self.object.variable(name)
        storage = self.image.managed.get(name if symbol is None else symbol.name)
        if storage is not None:
            return ModuleVariable(name, storage.address, storage.size, self.device.memory, storage)
        if symbol is None:
            raise ObjectError(f"no variable {name!r}", object=self.object.name)
        address = self.image.host(symbol.address)
        holder = self.device.memory.find(address)
        if holder is None or address + symbol.size > holder.end:
            raise ObjectError(f"variable {name!r} lies outside the loaded segments", object=self.object.name)
        return ModuleVariable(name, address, symbol.size, self.device.memory, holder)

    def channel(self, name: str) -> DeviceChannel:
        """Return the tool's channel called `name`: its symbol, or its name in the source.

        Raises:
            ObjectError: no channel or several channels have this name.
        """
        matches = [one for symbol, one in self.channels.items() if name in (symbol, one.name)]
        if len(matches) != 1:
            known = ", ".join(one.name for one in self.channels.values()) or "none"
            raise ObjectError(f"{len(matches)} channels {name!r}; there are: {known}", object=self.object.name)
        return matches[0]

    def code(self, wave_size: int) -> DecodedCode:
        """Return the decoded code, for waves of `wave_size` lanes."""
        code = self._codes.get(wave_size)
        if code is None:
            isa = Isa.of(replace(self.object.target, target=self.device.target.target), wave_size)
            ranges = self.object.text_as_loaded(self.image.address_of)
            code = self._codes[wave_size] = DecodedCode(isa, ranges)
            code.target, code.origin = self.object.target, teller(self.object)
        return code

    def rewrite(self, address: int, data: bytes) -> None:
        """Replace instructions of the loaded code by as many of the same sizes; `object` stays unchanged.

        This tries variants of a kernel without loading it again. What was decoded and analysed of all other
        instructions is kept.

        Args:
            address: virtual address of the first instruction.

        Raises:
            DeviceError: the instructions have other sizes, or one of them does not fall through to the next.
        """
        sizes = {*self._codes, *(kernel.wave_size for kernel in self.object.kernels.values())}
        codes = [self.code(size) for size in sizes]
        with self.device.exclusive:
            for code in codes:
                code.rewrite(address, data)
            host = self.image.host(address)
            holder = next(one for one in self.image.allocations if one.address <= host < one.end)
            holder.view()[host - holder.address :][: len(data)] = np.frombuffer(data, np.uint8)

    def unload(self) -> None:
        """Free the module's memory. Its kernels cannot be launched any more."""
        for channel in self.channels.values():
            channel.free()
        self.channels.clear()
        self.image.unload()
        self.device.forget(self)


class KernelHandle:
    """A kernel that can be launched."""

    def __init__(self, module: Module, kernel: Kernel) -> None:
        self.module = module
        self.kernel = kernel
        self.name = kernel.name
        self._lifted: LiftedRepresentation | None = None
        self._plan: dict[str, int] | None = None

    def lift(self) -> LiftedRepresentation:
        """Lift the kernel to functions and basic blocks.

        Raises:
            LiftError: the code cannot be lifted.
        """
        if self._lifted is None:
            from luthier.lifting import lift

            self._lifted = lift(self.module.object, self.name)
        return self._lifted

    def plan(self) -> dict[str, int]:
        """Return the initial state of its waves: the fields of `layout.PLAN`.

        Raises:
            DeviceError: its descriptor contradicts itself.
            EmulationError: no instruction begins at its entry.
        """
        if self._plan is None:
            code = self.module.code(self.kernel.wave_size)
            self._plan = kernel_plan(self.kernel, self.module.device.target.target, code)
        return self._plan

    def refused(self) -> dict[int, str]:
        """Return the reasons why instructions of the kernel and its functions cannot be executed, by virtual address.

        A wave that reaches one faults. All other instructions are compiled; none is executed.

        Raises:
            LiftError: the code cannot be lifted.
        """
        lifted, code = self.lift(), self.module.code(self.kernel.wave_size)
        places = lifted.code.addresses[lifted.reached]
        records = {code.record_at(place): place for place in places.tolist()}
        code.ensure(
            layout.mode_key(abi.initial_mode(self.kernel)), *(record for record in records if record is not None)
        )
        return {place: code.refusals[record].reason for record, place in records.items() if record in code.refusals}

    def launch(
        self,
        *arguments: Any,
        grid: int | Sequence[int] = 1,
        block: int | Sequence[int] = 1,
        dynamic_lds: int = 0,
        trace: Trace | None = None,
        breakpoints: Collection[int] | None = None,
        cooperative: bool = False,
    ) -> LaunchStats:
        """Run the kernel to its end.

        Args:
            arguments: NumPy arrays (copied in, and back after the launch), numbers, `DeviceBuffer`s; or one `bytes`
                object as the whole explicit kernarg segment. Hidden arguments are filled in.
            grid: size in work-groups, one to three numbers.
            block: work-items of a work-group, one to three numbers.
            dynamic_lds: bytes of LDS beyond the kernel's own.
            trace: called before every instruction of every wave, with all waves on one thread; returning False ends
                the launch.
            breakpoints: virtual addresses in the code object; `trace` is called only there.
            cooperative: all work-groups run at once, so that they may wait for each other.

        Raises:
            DeviceError: the kernel does not take these arguments or sizes.
            EmulationError: a fault, an unimplemented operation or a deadlock. Arrays are not copied back; the device
                stays usable.
        """
        with self._prepared(arguments, grid, block, dynamic_lds) as (raw, geometry):
            return self.module.device.run(self, raw, geometry, trace, breakpoints, cooperative)

    def observe(
        self,
        observation: Observation,
        samples: Sequence[Sequence[Mapping[str, int]]],
        *arguments: Any,
        grid: int | Sequence[int] = 1,
        block: int | Sequence[int] = 1,
        dynamic_lds: int = 0,
    ) -> list[LaunchStats]:
        """Run samples of the kernel's work-groups one after the other, observed by native code; return their counts.

        Args:
            samples: for each sample its parts of the grid, as `KernelLaunch.parts`.
            arguments: like the other ones, as of `launch`.

        Raises:
            DeviceError: the kernel does not take these arguments or sizes.
            EmulationError: as of `launch`; also if a work-group waits for one that does not run.
        """
        with self._prepared(arguments, grid, block, dynamic_lds) as (raw, geometry):
            return [
                self.module.device.run(self, raw, geometry, observation=observation, parts=parts) for parts in samples
            ]

    @contextmanager
    def _prepared(
        self, arguments: Sequence[Any], grid: int | Sequence[int], block: int | Sequence[int], dynamic_lds: int
    ) -> Iterator[tuple[bytes, abi.Geometry]]:
        """Provide the kernarg segment; copy arrays back if the block ends without an error."""
        device = self.module.device
        if not self.module.image.allocations:
            raise DeviceError("the kernel's module was unloaded", kernel=self.name)
        if not isinstance(dynamic_lds, (int, np.integer)):
            raise DeviceError(f"dynamic_lds must be a number of bytes, not {dynamic_lds!r}", kernel=self.name)
        geometry = abi.Geometry(abi.as_triple(grid), abi.as_triple(block), int(dynamic_lds))
        if len(arguments) == 1 and isinstance(arguments[0], (bytes, bytearray)):
            yield abi.complete_arguments(self.kernel, bytes(arguments[0]), geometry, device.queue), geometry
            return
        buffers: list[tuple[NDArray[Any], DeviceAllocation]] = []
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
            yield abi.pack_arguments(self.kernel, values, geometry, device.queue), geometry
            for array, allocation in buffers:
                array[...] = allocation.view().view(array.dtype).reshape(array.shape)
        finally:
            for _, allocation in buffers:
                device.memory.free(allocation)


def _copy_in(memory: AllocationTable, array: NDArray[Any]) -> DeviceAllocation:
    if array.dtype.hasobject:
        raise DeviceError("a kernel argument cannot be an array of Python objects")
    if not array.flags.writeable:
        raise DeviceError("a kernel argument cannot be a read-only array: pass a copy")
    allocation = memory.allocate(array.nbytes, "argument array")
    allocation.view()[:] = np.ascontiguousarray(array).view(np.uint8).ravel() if array.size else 0
    return allocation


class EmulatedDevice:
    """One emulated GPU.

    Args:
        target: target id, e.g. ``gfx942`` or ``gfx942:xnack-``.
        threads: host threads that run work-groups; None: one for each core.
        check: one or several checks of every launch, from `luthier.findings.kinds.DEVICE_CHECKS`:
            ``memory``, ``race``, ``init``, ``barrier``, ``early-exit``, ``waits``, ``hazards``, ``fp``; see `findings`.
            With ``init``, allocated memory holds a recognisable pattern, not zeros.

    Raises:
        DeviceError: a check does not exist, or `threads` is less than 1.
    """

    def __init__(
        self, target: TargetId | str, threads: int | None = None, check: str | Collection[str] | None = None
    ) -> None:
        self.target = TargetId.parse(target) if isinstance(target, str) else target
        self.threads = threads or len(os.sched_getaffinity(0))
        if self.threads < 1:
            raise DeviceError(f"an emulated device runs on at least 1 thread, not {threads}")
        self.memory = AllocationTable()
        self.step_limit = 1 << 20
        """Quanta (of 4096 backward branches) after which a work-group counts as never ending."""
        self.turns = IN_TURNS
        """Order in which waves run."""
        self._kinds = frozenset[str]() if check is None else self._kinds_of(check)
        """Kinds of findings that launches are checked for."""
        self._session: threading.Thread | None = None
        """Thread of the open debug session."""
        self._findings: tuple[Finding, ...] = ()
        self._stats: LaunchStats | None = None
        self._modules: list[Module] = []
        self.exclusive = threading.Lock()
        """Held during a launch, and by whatever must not overlap with one."""
        self._executor = Executor(self.threads)
        # The queue pointer's amd_queue_t, with the aperture words that old code objects read.
        queue = self.memory.allocate(256, "queue")
        queue.view()[64:72] = np.frombuffer(
            (abi.SHARED_BASE >> 32).to_bytes(4, "little") + (abi.PRIVATE_BASE >> 32).to_bytes(4, "little"), np.uint8
        )
        self.queue = queue.address

    @staticmethod
    def _kinds_of(check: str | Collection[str]) -> frozenset[str]:
        from luthier.emulator.inspection.checks import kinds_of_checks

        return kinds_of_checks(check)

    def __repr__(self) -> str:
        return f"<EmulatedDevice {self.target}, {self.threads} threads>"

    @property
    def stats(self) -> LaunchStats:
        """Return the counts of the last launch.

        Raises:
            DeviceError: nothing was launched.
        """
        if self._stats is None:
            raise DeviceError("nothing was launched on this device")
        return self._stats

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the findings of the checks in the last launch."""
        return self._findings

    def allocate(self, size: int) -> DeviceBuffer:
        """Allocate `size` bytes of zeroed memory; with the check ``init``, of memory that counts as never written."""
        allocation = self.memory.allocate(size)
        # Exceptional floats that result from its contents are not findings.
        if "uninitialised-read" in self._kinds and not leave_unwritten(
            allocation.address, size, undefined="nan" in self._kinds
        ):
            from luthier.emulator.inspection.checks import warn_unchecked

            warn_unchecked(f"reads of an allocation of {size} bytes are not checked by init: it is too large")
        return DeviceBuffer(self.memory, allocation)

    def load(self, source: Source) -> Module:
        """Load a code object: bytes, a path, or a `CodeObject`. A bundle must contain an image for this target.

        Raises:
            ObjectError: the object is malformed, is for another target, or has undefined symbols.
        """
        code = source if isinstance(source, CodeObject) else load_object_for(source, self.target)
        module = Module(self, code)
        self._modules.append(module)
        return module

    def resolve(self, name: str) -> int | None:
        """Return the host address of a symbol that a loaded module defines."""
        for module in self._modules:
            symbol = module.object.symbol(name)
            if symbol is not None and symbol.defined and symbol.binding != "local":
                return module.image.host(symbol.address)
        return None

    def forget(self, module: Module) -> None:
        """Forget a module; `Module.unload` calls this."""
        if module in self._modules:
            self._modules.remove(module)

    def debug(
        self,
        kernel: KernelHandle,
        *arguments: Any,
        grid: int | Sequence[int] = 1,
        block: int | Sequence[int] = 1,
        dynamic_lds: int = 0,
    ) -> DebugSession:
        """Launch a kernel that stops before its first instruction; see `DebugSession`. Arguments as in `launch`.

        Raises:
            DeviceError: a launch would raise it, or another session is open.
        """
        if kernel.module.device is not self:
            raise DeviceError("the kernel is loaded on another device", kernel=kernel.name)
        if self._session is not None:
            raise DeviceError("another debug session is open on this device", kernel=kernel.name)
        from luthier.emulator.inspection.debugger import DebugSession

        def launch(trace: Trace) -> LaunchStats:
            self._session = threading.current_thread()
            try:
                return kernel.launch(*arguments, grid=grid, block=block, dynamic_lds=dynamic_lds, trace=trace)
            finally:
                self._session = None

        return DebugSession(kernel.kernel, kernel.module.code(kernel.kernel.wave_size), self.memory, launch)

    # Launching ------------------------------------------------------------------------------------------------------

    def run(
        self,
        handle: KernelHandle,
        kernarg: bytes,
        geometry: abi.Geometry,
        trace: Trace | None = None,
        breakpoints: Collection[int] | None = None,
        cooperative: bool = False,
        observation: Observation | None = None,
        parts: Sequence[Mapping[str, int]] = ({},),
    ) -> LaunchStats:
        """Run a kernel whose kernarg segment is ready. One launch runs at a time.

        Args:
            observation: observation by native code, instead of the device's checks.
            parts: as of `KernelLaunch`.

        Raises:
            DeviceError: the kernel does not take these sizes, or a debug session is open.
            EmulationError: the kernel failed.
        """
        if self._session is not None and self._session is not threading.current_thread():
            raise DeviceError("a debug session is open on this device: close it first", kernel=handle.name)
        with self.exclusive:
            code = handle.module.code(handle.kernel.wave_size)
            observer = None
            if trace is not None:
                from luthier.emulator.inspection.debug import observer_of

                observer = observer_of(code, trace, breakpoints)
            plan, checks, findings = handle.plan(), observation, None
            if observation is None and self._kinds:
                checks, findings = self._checks_of(handle, code)
            if checks is not None:
                plan = {**plan, "uses": checks.begin()}
            launch = KernelLaunch(
                self.target.target,
                handle.kernel,
                handle.module.image,
                code,
                plan,
                kernarg,
                geometry,
                self.queue,
                self.step_limit * (WAITING if handle.module.channels else 1),
                lift=handle.lift,
                cooperative=cooperative,
                observer=observer,
                observed=0 if checks is None else checks.what,
                turns=self.turns if observation is None else replace(self.turns, quantum=observation.quantum),
                watch=0 if checks is None else checks.watch(),
                costs=0 if checks is None else checks.costs(),
                parts=parts,
            )
            self._findings = ()
            with drained(handle.module.channels):
                result = launch.run(self.memory, self._executor)
            self._stats = result.stats
            handle.module.waves[handle.name] += result.stats.waves
            if checks is not None:
                checks.end(self._executor, result.fault)
            if findings is not None:
                from luthier.emulator.inspection.checks import warn

                self._findings = tuple(findings.findings)
                warn(self._findings)
            if (fault := result.fault) is not None:
                source = handle.module.object.source
                if fault.offset is not None and source.present and (line := source.at(fault.offset)) is not None:
                    fault.source = str(line)
                raise fault
            return result.stats

    def _checks_of(self, handle: KernelHandle, code: DecodedCode) -> tuple[Observation, FindingSet]:
        """Return the device's checks of a launch, and what receives their findings."""
        from luthier.emulator.inspection.checks import DeviceFindings, LaunchChecks, kernel_code

        findings = DeviceFindings(self._kinds, self.memory)
        self._executor.forget(keep_undefined=True)
        kernel = kernel_code(code, handle.name, handle.module.object)
        return LaunchChecks(findings, code, kernel, filled=True), findings
