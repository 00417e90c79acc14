"""Observation of a running kernel: single steps, breakpoints, traces."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from msgspec import Struct

from luthier.emulator import layout
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.running.registers import WaveRegisters
from luthier.emulator.running.worker import WorkerState, get_field


class WaveStep(Struct, frozen=True):
    """A wave about to execute an instruction."""

    code: DecodedCode
    worker: WorkerState
    record: int
    workgroup: int
    wave: int
    """Index in its work-group."""
    registers: WaveRegisters

    @property
    def address(self) -> int:
        """Return the virtual address of the instruction in the code object."""
        return self.code.address_of(self.record)

    @property
    def text(self) -> str:
        """Return the text of the instruction."""
        return self.code.text(self.record)

    def __str__(self) -> str:
        return f"work-group {self.workgroup} wave {self.wave} {self.address:#x} {self.text}"


Trace = Callable[[WaveStep], object]
"""Called before an instruction; returning False ends the launch."""


def observer_of(code: DecodedCode, trace: Trace, breakpoints: Collection[int] | None) -> Callable[[WorkerState], bool]:
    """Return the observer that calls `trace` before every instruction, or only at the virtual addresses in
    `breakpoints`."""
    places = None if breakpoints is None else frozenset(breakpoints)

    def observe(worker: WorkerState) -> bool:
        step = step_of(code, worker)
        return (places is not None and step.address not in places) or trace(step) is not False

    return observe


def step_of(code: DecodedCode, worker: WorkerState) -> WaveStep:
    """Return the step of the wave that stopped last."""
    wave = worker.current()
    return WaveStep(
        code,
        worker,
        worker.record_of(wave),
        worker.workgroup,
        get_field(wave, layout.WAVE, "index"),
        WaveRegisters(wave, code.isa.wave_size, code.isa.target.target.addressable_vgprs),
    )


class TraceEntry(NamedTuple):
    """One executed wave-instruction."""

    workgroup: int
    wave: int
    address: int
    exec: int
    """EXEC before the instruction."""
    text: str


class TraceRecorder:
    """A recorded trace: pass it as `trace` of a launch, then read `entries`.

    Args:
        limit: the most entries to keep; the launch continues without recording more.
    """

    def __init__(self, limit: int = 1_000_000) -> None:
        self.limit = limit
        self.entries: list[TraceEntry] = []
        self._texts: dict[int, str] = {}

    def __call__(self, step: WaveStep) -> None:
        """Record one step."""
        if len(self.entries) >= self.limit:
            return
        address = step.address
        text = self._texts.get(address)
        if text is None:
            text = self._texts[address] = step.text
        self.entries.append(TraceEntry(step.workgroup, step.wave, address, step.registers.exec, text))
