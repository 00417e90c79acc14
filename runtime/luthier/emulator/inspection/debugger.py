"""Interactive control of a kernel: stop, step, run to breakpoints."""

from __future__ import annotations

import queue
from collections.abc import Callable
from types import TracebackType

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.inspection.debug import Trace, WaveStep
from luthier.emulator.running.memory import AllocationTable, host_bytes
from luthier.emulator.running.registers import WaveRegisters
from luthier.emulator.running.stats import LaunchStats
from luthier.errors import DeviceError
from luthier.objects import Kernel
from luthier.support.threads import Worker
from luthier.support.wording import counted

Stop = Callable[[WaveStep], bool]


class DebugSession:
    """A launch that stops before instructions.

    It starts stopped before the first instruction of the first wave. Instructions of all waves are shown one after
    another, in execution order; a wave runs until it ends, waits, or has used its turn. `where`, registers and LDS are
    the live state of a stop: they may be changed, and they change with the next step.

    `EmulatedDevice.debug` makes sessions. Close a session (it is a context manager): until then no other launch runs on
    the device. Argument arrays receive their results when the kernel has ended or the session is closed; before that,
    read them with `memory`.
    """

    def __init__(
        self,
        kernel: Kernel,
        code: DecodedCode,
        memory: AllocationTable,
        launch: Callable[[Trace], LaunchStats | None],
    ) -> None:
        self.kernel = kernel
        self._code = code
        self._memory = memory
        self.where: WaveStep | None = None
        """The wave about to execute an instruction; None: the kernel has ended."""
        self.stats: LaunchStats | None = None
        """Counts of the launch after it has ended; None if nothing was counted."""
        self._breakpoints: set[int] = set()
        self._until: Stop = lambda step: True
        self._events: queue.SimpleQueue[WaveStep | LaunchStats | BaseException | None] = queue.SimpleQueue()
        self._go_on: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = Worker(self._launch, launch)
        self._wait()

    # Going on -------------------------------------------------------------------------------------------------------

    def step(self, count: int = 1) -> WaveStep | None:
        """Execute the next `count` instructions, of any wave; return the new stop, or None at the end of the kernel.

        Raises:
            EmulationError: the kernel failed; the session is over.
        """
        if count < 1:
            raise DeviceError(f"the number of steps must be at least 1, not {count}", kernel=self.kernel.name)
        left = count

        def enough(step: WaveStep) -> bool:
            nonlocal left
            left -= 1
            return left <= 0

        return self._resume(enough)

    def step_wave(self) -> WaveStep | None:
        """Execute one instruction of the stopped wave, or up to a breakpoint; None if the kernel ends first.

        Raises:
            EmulationError: the kernel failed; the session is over.
        """
        stopped = self._stopped()
        group, wave = stopped.workgroup, stopped.wave
        return self._resume(
            lambda step: (step.workgroup == group and step.wave == wave) or step.address in self._breakpoints
        )

    def run(self, until: Stop | None = None) -> WaveStep | None:
        """Execute up to a breakpoint, or to a step for which `until` holds; None at the end of the kernel.

        Raises:
            EmulationError: the kernel failed; the session is over.
        """
        return self._resume(lambda step: step.address in self._breakpoints or (until is not None and until(step)))

    def finish(self) -> LaunchStats:
        """Execute to the end without stopping at breakpoints, and return the counts.

        Raises:
            EmulationError: the kernel failed.
        """
        if self.where is not None:
            self._resume(lambda step: False)
        if self.stats is None:
            raise DeviceError("the session was closed before the kernel ended", kernel=self.kernel.name)
        return self.stats

    def close(self) -> None:
        """End the launch. Closing twice has no effect."""
        if self.where is not None:
            self.where = None
            self._go_on.put(False)
        self._thread.join()

    # Breakpoints ----------------------------------------------------------------------------------------------------

    @property
    def breakpoints(self) -> frozenset[int]:
        """Return the virtual addresses of the breakpoints in the code object."""
        return frozenset(self._breakpoints)

    def break_at(self, address: int | None = None, *, offset: int | None = None) -> int:
        """Set a breakpoint and return its virtual address.

        Args:
            address: virtual address of an instruction in the code object.
            offset: instead, its offset in bytes from the kernel's entry.

        Raises:
            DeviceError: no instruction begins there.
        """
        place = self._place(address, offset)
        if self._code.record_at(place) is None:
            raise DeviceError(f"no instruction begins at {place:#x}", kernel=self.kernel.name, offset=place)
        self._breakpoints.add(place)
        return place

    def clear(self, address: int | None = None, *, offset: int | None = None) -> None:
        """Remove a breakpoint; without arguments, remove all."""
        if address is None and offset is None:
            self._breakpoints.clear()
        else:
            self._breakpoints.discard(self._place(address, offset))

    def _place(self, address: int | None, offset: int | None) -> int:
        if (address is None) == (offset is None):
            raise DeviceError("give a breakpoint either an address or an offset", kernel=self.kernel.name)
        return address if address is not None else self.kernel.entry + (offset or 0)

    # Looking --------------------------------------------------------------------------------------------------------

    @property
    def registers(self) -> WaveRegisters:
        """Return the registers of the stopped wave."""
        return self._stopped().registers

    @property
    def wave_count(self) -> int:
        """Return the number of waves of a work-group."""
        return self._stopped().worker.group_field("wave_count")

    def wave(self, index: int) -> WaveRegisters:
        """Return the registers of a wave of the work-group, by its index.

        Raises:
            DeviceError: the work-group has no such wave.
        """
        stopped = self._stopped()
        if not 0 <= index < self.wave_count:
            message = f"the work-group has no wave {index}, only {counted(self.wave_count, 'wave')}"
            raise DeviceError(message, kernel=self.kernel.name)
        return replace(stopped.registers, memory=stopped.worker.wave(index))

    def waves(self) -> list[str]:
        """Return a line for each wave of the work-group: its location, and whether it runs, waits or has ended."""
        worker = self._stopped().worker
        return [worker.describe_wave(index) for index in range(self.wave_count)]

    def lds(self) -> NDArray[np.uint8]:
        """Return the LDS of the work-group, live and writable."""
        worker = self._stopped().worker
        return worker.lds()[: worker.group_field("lds_size")]

    def memory(self, address: int, size: int) -> bytes:
        """Return `size` bytes of device memory.

        Raises:
            DeviceError: they are not inside one allocation.
        """
        holder = self._memory.find(address)
        if size < 0 or holder is None or address + size > holder.end:
            where = self._memory.describe(address)
            raise DeviceError(f"cannot read {size} bytes at {address:#x}: {where}", kernel=self.kernel.name)
        return host_bytes(address, size).tobytes()

    # The launch -----------------------------------------------------------------------------------------------------

    def _launch(self, launch: Callable[[Trace], LaunchStats | None]) -> None:
        try:
            outcome: LaunchStats | BaseException | None = launch(self._trace)
        except BaseException as problem:  # handed to the thread that steps
            outcome = problem
        self._events.put(outcome)

    def _trace(self, step: WaveStep) -> bool:
        """Pass on a step to stop at, and wait; runs on the launch's thread."""
        if not self._until(step):
            return True
        self._events.put(step)
        return self._go_on.get()

    def _stopped(self) -> WaveStep:
        if self.where is None:
            raise DeviceError("the kernel has ended", kernel=self.kernel.name)
        return self.where

    def _resume(self, until: Stop) -> WaveStep | None:
        self._stopped()
        self._until = until
        self._go_on.put(True)
        return self._wait()

    def _wait(self) -> WaveStep | None:
        event = self._events.get()
        if isinstance(event, WaveStep):
            self.where = event
            return event
        self.where = None
        self._thread.join()
        if isinstance(event, BaseException):
            raise event
        self.stats = event
        return None

    def __enter__(self) -> DebugSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "ended" if self.where is None else f"stopped at {self.where}"
        return f"<DebugSession {self.kernel.name}, {state}>"
