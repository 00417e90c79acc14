"""Code of captured launches; decoded code is kept for the next launch."""

from __future__ import annotations

import functools

from msgspec import Struct
from msgspec.structs import replace

from luthier.cache.memory import BoundedCache
from luthier.capture.form import Capture
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.running.executor import resident_groups
from luthier.emulator.running.plan import kernel_plan
from luthier.errors import DeviceError, LuthierError
from luthier.isa import Isa
from luthier.isa.targets import Target, TargetId
from luthier.objects import CodeObject, Kernel
from luthier.objects.origins import teller


class Program(Struct, frozen=True):
    """Loaded code of a captured launch."""

    object: CodeObject
    """Code object of the code, for reports."""
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
    """Return the device of a launch; for None, the recorded one.

    Raises:
        DeviceError: it cannot run this object's code.
    """
    device = TargetId.parse(target or capture.manifest.target)
    if not device.accepts(object.target):
        manifest = capture.manifest
        raise DeviceError(f"code for {object.target} on a device that is {device}", kernel=manifest.kernel)
    return device


def recorded_program(capture: Capture, target: str | None) -> Program:
    """Return the captured code, at its address, for a device.

    Raises:
        LuthierError: the code object is damaged, lacks the kernel, or is not for the device.
    """
    manifest = capture.manifest
    object, codes = _read_object(capture.object, manifest.object)
    device = device_of(capture, target, object)
    if manifest.kernel not in object.kernels:
        raise LuthierError("the capture's code object does not have the kernel", kernel=manifest.kernel)
    kernel = object.kernels[manifest.kernel]
    key = device, kernel.wave_size, manifest.load_address
    code = codes.use(key) or codes.put(key, _decoded(object, isa_of(object, device, kernel), manifest.load_address))
    place = manifest.load_address + code.base
    return Program(object, kernel, code, place, manifest.group_segment, manifest.private_segment, manifest.kernarg)


_Codes = BoundedCache[tuple[TargetId, int, int], DecodedCode]
"""Code by device, wave size and address. Launches share it with all bound instructions."""


@functools.lru_cache(maxsize=2)
def _read_object(data: bytes, name: str) -> tuple[CodeObject, _Codes]:
    """Return a code object and its decoded code. They are cached: reading takes longer than running a small launch."""
    return CodeObject(data, name), _Codes(4)


def _decoded(object: CodeObject, isa: Isa, load_address: int) -> DecodedCode:
    """Return an object's code, loaded at an address."""

    def address_of(name: str) -> int | None:
        symbol = object.symbol(name)
        return None if symbol is None or not symbol.defined else symbol.address + load_address

    code = DecodedCode(isa, object.text_as_loaded(address_of))
    code.origin = teller(object)
    return code


def isa_of(object: CodeObject, device: TargetId, kernel: Kernel) -> Isa:
    """Return the ISA of a kernel of an object on a device."""
    return Isa.of(replace(object.target, target=device.target), kernel.wave_size)


class PlannedKernel:
    """The plan of a kernel, and how many of its work-groups fit on a device."""

    def __init__(self, kernel: Kernel, target: Target, code: DecodedCode) -> None:
        self.kernel = kernel
        self.fields = kernel_plan(kernel, target, code)
        """Fields of `layout.PLAN`."""
        self.resident = functools.cache(functools.partial(resident_groups, self.fields))
        """As `resident_groups` for waves, bytes of LDS and of scratch."""


_plans = BoundedCache[tuple[int, int, str], PlannedKernel](16)
"""Plans by the number of the code, the identity of the kernel, and the target."""


def planned(kernel: Kernel, target: Target, code: DecodedCode) -> PlannedKernel:
    """Return the plan of a kernel; it is cached, since making it takes longer than running a small launch.

    Raises:
        LuthierError: the kernel cannot run.
    """
    key = code.number, id(kernel), target.name
    return _plans.use(key) or _plans.put(key, PlannedKernel(kernel, target, code))
