"""Ahead-of-time compilation of the operations that kernels use."""

from __future__ import annotations

from collections.abc import Iterable

from luthier.emulator.device import EmulatedDevice
from luthier.emulator.native.machine import machine_code
from luthier.emulator.running.plan import entry_of, kernel_plan
from luthier.objects import CodeObject, Kernel


def compile_ahead(code_object: CodeObject, kernels: Iterable[Kernel]) -> int:
    """Compile the operations that kernels and the functions of their object use, and keep them in the user's cache.

    A launch still compiles what is missing: code reached through pointers into other objects, or in another MODE.

    Returns:
        The number of operations that were compiled because the cache did not have them.

    Raises:
        DeviceError: the emulated device does not support the target.
        EmulationError: no instruction begins at a kernel's entry.
    """
    shared = machine_code()
    before = shared.compiled
    device = EmulatedDevice(code_object.target, threads=1)
    module = device.load(code_object)
    functions = [symbol.address for symbol in code_object.symbols if symbol.type == "func" and symbol.defined]
    for kernel in kernels:
        code = module.code(kernel.wave_size)
        key = kernel_plan(kernel, device.target.target, code)["key"]
        called = (code.record_at(address) for address in functions)
        code.ensure(key, entry_of(kernel, code), *(record for record in called if record is not None))
    return shared.compiled - before
