"""One wave of a stopped work-group, for expressions and front ends."""

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
    """Parts of a debugger that a view needs."""

    @property
    def launch(self) -> PreparedLaunch:
        """Return the launch."""

    @property
    def source(self) -> SourcePlaces:
        """Return the source places of its code."""

    def read(self, address: int, size: int) -> bytes:
        """Return memory; raise DeviceError if the launch cannot access it."""

    def has_frame(self, address: int, register: int) -> bool:
        """Return whether a scalar register holds the function's frame at an instruction."""

    def lanes(self, view: StoppedWave, variable: DwarfVariable) -> int:
        """Return the mask of the active lanes of a wave for which the location of a variable holds."""


class StoppedWave:
    """A wave that is stopped, or waits for others.

    Args:
        step: stop of the launch.
        index: index of the wave in the stopped work-group.
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
        """Return the virtual address of the next instruction."""
        return self._step.code.address_of(self.record)

    @property
    def text(self) -> str:
        """Return the text of the next instruction."""
        return self._step.code.text(self.record)

    @property
    def frames(self) -> tuple[SourceFrame, ...]:
        """Return its places in the source, innermost first; empty if there is no debug information."""
        return self._debugger.source.frames(self.pc)

    def variables(self, depth: int | None = None) -> list[DwarfVariable]:
        """Return the visible variables, without hidden ones.

        Args:
            depth: only those of the function at this inlining depth.
        """
        by_name = {one.name: one for one in self._debugger.launch.object.variables.at(self.pc)}
        return [one for one in by_name.values() if depth is None or one.depth == depth]

    def bytes_of(self, variable: DwarfVariable) -> Bytes:
        """Return the bytes of a variable, by lane.

        Raises:
            NotAvailable: the value cannot be found.
        """
        target = self._debugger.launch.device.target
        unit = 1 if target.architected_flat_scratch else self.registers.wave_size
        worker = self._step.worker
        lds = worker.lds()[: worker.group_field("lds_size")]

        def has_frame(register: int) -> bool:
            return self._debugger.has_frame(self.pc, register)

        return Frame(self.registers, unit, lds, self._debugger.read, has_frame).value(variable, self.pc)

    def lanes_of(self, variable: DwarfVariable) -> int:
        """Return the mask of the active lanes for which `bytes_of` a variable is valid.

        For others its location is not known: compilers give locations as if all lanes took the same path.
        """
        return self._debugger.lanes(self, variable)

    def variable(self, name: str) -> NDArray[Any] | None:
        """Return a variable by lane as numbers; None: there is none with this name, or it is not numeric.

        Raises:
            LuthierError: its value is not available.
        """
        variable = next((one for one in self.variables() if one.name == name), None)
        if variable is None:
            return None
        try:
            values = numbers(variable.type, self.bytes_of(variable))
        except NotAvailable as problem:
            raise LuthierError(f"{name}: {problem}") from None
        if unknown := self.registers.exec & ~self.lanes_of(variable):
            lane = (unknown & -unknown).bit_length() - 1
            raise LuthierError(f"{name}: optimised away here in {unknown.bit_count()} active lanes, such as {lane}")
        return values
