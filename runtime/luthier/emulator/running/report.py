"""Error messages from the state in which a wave stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from luthier.emulator import layout
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.questions import QUESTIONS
from luthier.emulator.running.memory import AllocationTable
from luthier.emulator.running.registers import WaveRegisters
from luthier.emulator.running.worker import WorkerState
from luthier.errors import EmulationError, Wrong

_WHAT = {
    layout.FAULT_ALIGNMENT: "memory, misaligned for an atomic operation,",
    layout.FAULT_ELEMENT: "memory, misaligned for the buffer's data format,",
    layout.FAULT_BUFFER: "a buffer",
}
_SPACES = {layout.FAULT_MEMORY: "memory", layout.FAULT_BUFFER: "memory", layout.FAULT_LDS: "LDS"}
_WRONG = (*_SPACES, layout.FAULT_SCRATCH, layout.FAULT_ALIGNMENT)
"""Faults that hardware also raises."""
_STATE = {
    layout.FAULT_LANES: "a transposing load with some lanes off (EXEC is {:#x}): the result is not documented",
    layout.FAULT_MODE: "MODE becomes {:#x}, with bits whose effect is not modelled (floating-point exceptions, traps, "
    "skipping of vector instructions, or bits that the target does not define)",
    layout.FAULT_BANK: "s_set_vgpr_msb {:#x}: VGPRs beyond those that the kernel has",
    layout.FAULT_SWIZZLED: "an access at {:#x} of a swizzled buffer, beyond its number of records as bytes: whether it "
    "is out of bounds is not documented",
    layout.FAULT_STRIDED: "a scalar access to a buffer with a stride of {}: its bounds are not documented",
    layout.FAULT_BANK_MODE: "a write of MODE where the upper bits of VGPR numbers are {:#x} and bits 19:12 of the new "
    "value differ: whether it changes them depends on the hardware",
}
_FORMAT = {
    layout.FAULT_FORMAT: "there is no data format {}",
    layout.FAULT_SCALED: "data format {} holds scaled integers or sRGB, which can be loaded but not stored",
    layout.FAULT_SELECT: "the buffer descriptor selects components (DST_SEL) that data format {} does not have, or a "
    "combination that is not defined for stores",
    layout.FAULT_NARROWED: "how the 32-bit integers of buffer data format {} become 16 bits is not documented",
}


def explain(
    memory: AllocationTable,
    kernel: str,
    code: DecodedCode,
    worker: WorkerState,
    reason: int,
    describe: Callable[[], Sequence[str]] = tuple,
) -> EmulationError:
    """Return the error for a reason code of the compiled scheduler.

    Args:
        describe: returns sentences about a launch that does not end.
    """
    if reason in (layout.DEADLOCK, layout.RUNAWAY):
        return _stuck(kernel, code, worker, reason, describe())
    wave = worker.current()
    record = worker.record_of(wave)
    address = code.address_of(record)
    text = code.text(record)
    index = int.from_bytes(wave[layout.WAVE["index"] :][:4].tobytes(), "little")
    place = f"{address:#x} ({text}){worker.origin_of(wave)}, wave {index} of work-group {worker.workgroup}"
    what = _what(memory, worker, reason)
    if reason == layout.UNIMPLEMENTED:
        refusal = code.refusals.get(record)
        why = refusal.reason if refusal is not None else "unknown"
        message = f"cannot execute the instruction at {place}: {why}"
    elif reason == layout.JUMP:
        message = f"{what}, at {place}"
    else:
        message = f"{what} at {place}" if reason != layout.FAULT else f"{what}; at {place}"
    error = EmulationError(message, kernel=kernel, offset=address, target=str(code.isa.target))
    kind = worker.field("fault_kind")
    if reason == layout.FAULT and kind in _WRONG:
        address, size, lane = (worker.field(f"fault_{name}") for name in ("address", "size", "lane"))
        error.wrong = Wrong(what, lane, index, worker.workgroup)
        if kind in _SPACES:
            limit = worker.group_field("lds_size")
            error.wrong = replace(error.wrong, space=_SPACES[kind], address=address, size=size, extent=limit)
    elif reason in (layout.JUMP, layout.TRAP):
        error.wrong = Wrong(what, -1, index, worker.workgroup)
    error.waves = _waves(worker)
    error.registers = WaveRegisters(wave, code.isa.wave_size, code.isa.target.target.addressable_vgprs).dump(
        vgprs=int(code.vgprs.max(initial=0))
    )
    return error


def _waves(worker: WorkerState) -> tuple[str, ...]:
    return tuple(worker.describe_wave(index) for index in range(worker.group_field("wave_count")))


def _what(memory: AllocationTable, worker: WorkerState, reason: int) -> str:
    """Return the fault, without its location."""
    address, lane, size = (worker.field(f"fault_{name}") for name in ("address", "lane", "size"))
    if reason == layout.JUMP:
        return f"jump to {address:#x}, where no instruction of the object begins"
    if reason == layout.TRAP:
        return f"trap {address}"
    if reason != layout.FAULT:
        return f"stopped with code {reason}"
    kind = worker.field("fault_kind")
    if kind == layout.FAULT_LDS:
        where = f"{size} bytes of LDS at offset {address:#x}, lane {lane}"
        return f"access to {where}: the work-group has {worker.group_field('lds_size')} bytes"
    if kind == layout.FAULT_SCRATCH:
        return f"access to {size} bytes of scratch at offset {address:#x}, lane {lane}: outside the lane's scratch"
    if kind == layout.FAULT_MEMORY:
        return f"access to {size} bytes at address {address:#x}, lane {lane}: {memory.describe(address)}"
    if kind == layout.FAULT_OPEN:
        return QUESTIONS[address]
    if kind in _STATE:
        return _STATE[kind].format(address)
    if kind in _FORMAT:
        return _FORMAT[kind].format(address)
    return f"access to {size} bytes of {_WHAT.get(kind, 'memory')} at {address:#x}, lane {lane}"


def _stuck(kernel: str, code: DecodedCode, worker: WorkerState, reason: int, launch: Sequence[str]) -> EmulationError:
    waves = _waves(worker)
    what = (
        "deadlock: no wave of the work-group can continue"
        if reason == layout.DEADLOCK
        else "the work-group does not end: it reached the limit of loop iterations"
    )
    shown = "\n  ".join([*waves[:32], *launch])
    message = f"{what} (work-group {worker.workgroup}):\n  {shown}"
    error = EmulationError(message, kernel=kernel, target=str(code.isa.target))
    error.waves = waves
    return error
