"""Code that runs in a captured launch; that of a capture is kept, decoded, for the next one."""

from __future__ import annotations

import functools

from msgspec import Struct
from msgspec.structs import replace

from luthier.cache.memory import BoundedCache
from luthier.capture.form import Capture
from luthier.emulator.binding.program import DecodedCode
from luthier.errors import DeviceError, LuthierError
from luthier.isa import Isa
from luthier.isa.targets import TargetId
from luthier.objects import CodeObject, Kernel
from luthier.objects.origins import teller


class Program(Struct, frozen=True):
    """Code that runs in a captured launch, as it is loaded."""

    object: CodeObject
    """Code object that the code is from, for reports."""
    kernel: Kernel
    """The kernel, at its address in `code`."""
    code: DecodedCode
    place: int
    """Address of the code's first byte in memory."""
    group: int
    """Bytes of LDS of a work-group."""
    private: int
    """Bytes of scratch of a work-item."""
    kernarg: int
    """Address of the arguments."""


def device_of(capture: Capture, target: str | None, object: CodeObject) -> TargetId:
    """Return the device that a launch runs on; None: the recorded one.

    Raises:
        DeviceError: it does not take this object's code.
    """
    device = TargetId.parse(target or capture.manifest.target)
    if not device.accepts(object.target):
        told = capture.manifest
        raise DeviceError(f"code for {object.target} on a device that is {device}", kernel=told.kernel)
    return device


def recorded_program(capture: Capture, target: str | None) -> Program:
    """Return the code that was captured, where it was, for a device.

    Raises:
        LuthierError: the code object is damaged, has no such kernel, or is not for the device.
    """
    told = capture.manifest
    object, codes = _read_object(capture.object, told.object)
    device = device_of(capture, target, object)
    if told.kernel not in object.kernels:
        raise LuthierError("the capture's code object has no such kernel", kernel=told.kernel)
    kernel = object.kernels[told.kernel]
    key = device, kernel.wave_size, told.load_address
    code = codes.use(key) or codes.put(key, _decoded(object, isa_of(object, device, kernel), told.load_address))
    place = told.load_address + code.base
    return Program(object, kernel, code, place, told.group_segment, told.private_segment, told.kernarg)


_Codes = BoundedCache[tuple[TargetId, int, int], DecodedCode]
"""Code by device, wave size and address, which launches share: what one has bound is there for the next."""


@functools.lru_cache(maxsize=2)
def _read_object(data: bytes, name: str) -> tuple[CodeObject, _Codes]:
    """Return a code object and its decoded code, also for the next capture: to run a small launch takes less time."""
    return CodeObject(data, name), _Codes(4)


def _decoded(object: CodeObject, isa: Isa, load_address: int) -> DecodedCode:
    """Return an object's code as it is loaded at an address."""

    def address_of(name: str) -> int | None:
        symbol = object.symbol(name)
        return None if symbol is None or not symbol.defined else symbol.address + load_address

    code = DecodedCode(isa, object.text_as_loaded(address_of))
    code.origin = teller(object)
    return code


def isa_of(object: CodeObject, device: TargetId, kernel: Kernel) -> Isa:
    """Return the instructions of a kernel of an object on a device."""
    return Isa.of(replace(object.target, target=device.target), kernel.wave_size)
