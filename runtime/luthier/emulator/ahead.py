"""Compilation of what kernels need before they are launched."""

from __future__ import annotations

from collections.abc import Iterable

from luthier.emulator.device import EmulatedDevice
from luthier.emulator.native.machine import machine_code
from luthier.emulator.running.plan import entry_of, kernel_plan
from luthier.objects import CodeObject, Kernel


def compile_ahead(found: CodeObject, kernels: Iterable[Kernel]) -> int:
    """Compile the operations that kernels and the functions of their object use, and keep them in the user's cache.

    A launch compiles what is missing all the same: what control reaches by pointers into other objects, or in another
    MODE.

    Returns:
        how many operations were compiled, and not in the cache.

    Raises:
        DeviceError: the emulated device has no such target.
        EmulationError: an entry is no instruction.
    """
    shared = machine_code()
    before = shared.compiled
    device = EmulatedDevice(found.target, threads=1)
    module = device.load(found)
    functions = [symbol.address for symbol in found.symbols if symbol.type == "func" and symbol.defined]
    for kernel in kernels:
        code = module.code(kernel.wave_size)
        key = kernel_plan(kernel, device.target.target, code)["key"]
        called = (code.record_at(address) for address in functions)
        code.ensure(key, entry_of(kernel, code), *(record for record in called if record is not None))
    return shared.compiled - before
