"""One wave of a stopped work-group, as expressions and front ends see it."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec.structs import replace
from numpy.typing import NDArray

from luthier.capture.replay import PreparedLaunch
from luthier.debug.locations import Bytes, Frame, NotAvailable, numbers
from luthier.debug.source_places import SourcePlaces
from luthier.emulator import layout
from luthier.emulator.inspection.debug import WaveStep
from luthier.emulator.running.registers import WaveRegisters
from luthier.emulator.running.worker import get_field
from luthier.errors import LuthierError
from luthier.objects.source import SourceFrame
from luthier.objects.variables import DwarfVariable


class Stopped(Protocol):
    """Protocol of what a view asks of a debugger."""

    @property
    def launch(self) -> PreparedLaunch:
        """Return the launch."""

    @property
    def source(self) -> SourcePlaces:
        """Return the places of its code."""

    def read(self, address: int, size: int) -> bytes:
        """Return memory; raise DeviceError where there is none."""

    def has_frame(self, address: int, register: int) -> bool:
        """Return whether at an instruction a scalar register has the frame of the function that it is in."""

    def lanes(self, view: StoppedWave, variable: DwarfVariable) -> int:
        """Return the lanes of a wave, of those that are on, that a variable is for where it is said to be."""


class StoppedWave:
    """A wave that is stopped, or waits for others.

    Args:
        step: where the launch is stopped.
        index: of the wave in the work-group of that.
    """

    def __init__(self, debugger: Stopped, step: WaveStep, index: int) -> None:
        self._debugger, self._step = debugger, step
        self.wave, self.workgroup = index, step.workgroup
        memory = step.worker.wave(index)
        self.registers: WaveRegisters = replace(step.registers, memory=memory)
        self.record = step.record if index == step.wave else step.worker.record_of(memory)
        self.ended = get_field(memory, layout.WAVE, "status") == layout.ENDED

    @property
    def pc(self) -> int:
        """Return the virtual address of the instruction that is next."""
        return self._step.code.address_of(self.record)

    @property
    def text(self) -> str:
        """Return the instruction that is next."""
        return self._step.code.text(self.record)

    @property
    def frames(self) -> tuple[SourceFrame, ...]:
        """Return its places in the source, innermost first; empty if there is no debug information."""
        return self._debugger.source.frames(self.pc)

    def variables(self, depth: int | None = None) -> list[DwarfVariable]:
        """Return the variables that are visible, inner ones in place of those that they hide.

        Args:
            depth: only those of the function that is inlined so deep.
        """
        found = {one.name: one for one in self._debugger.launch.object.variables.at(self.pc)}
        return [one for one in found.values() if depth is None or one.depth == depth]

    def bytes_of(self, variable: DwarfVariable) -> Bytes:
        """Return the bytes of a variable, by lane.

        Raises:
            NotAvailable: nobody knows.
        """
        target = self._debugger.launch.device.target
        unit = 1 if target.architected_flat_scratch else self.registers.wave_size
        worker = self._step.worker
        lds = worker.lds()[: worker.group_field("lds_size")]

        def has_frame(register: int) -> bool:
            return self._debugger.has_frame(self.pc, register)

        return Frame(self.registers, unit, lds, self._debugger.read, has_frame).value(variable, self.pc)

    def lanes_of(self, variable: DwarfVariable) -> int:
        """Return the mask of the lanes, of those that are on, whose value of a variable `bytes_of` has.

        For others the compiler does not tell: it says where a variable is as if all lanes went the same way.
        """
        return self._debugger.lanes(self, variable)

    def variable(self, name: str) -> NDArray[Any] | None:
        """Return a variable by lane as numbers; None if there is none of that name, or it has other contents.

        Raises:
            LuthierError: its value is not available.
        """
        one = next((one for one in self.variables() if one.name == name), None)
        if one is None:
            return None
        try:
            found = numbers(one.type, self.bytes_of(one))
        except NotAvailable as problem:
            raise LuthierError(f"{name}: {problem}") from None
        if unknown := self.registers.exec & ~self.lanes_of(one):
            lane = (unknown & -unknown).bit_length() - 1
            raise LuthierError(f"{name}: optimised away here in {unknown.bit_count()} active lanes, {lane} for example")
        return found
