"""A GPU through HIP, with the interface of the emulated device.

It needs the package hip-python (``pip install luthier[hip]``), which loads the HIP runtime on first use. The runtime
ends the process when a kernel faults.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luthier.emulator.running.start import Geometry, as_triple, explicit_size, pack_explicit
from luthier.errors import DeviceError, ObjectError
from luthier.isa.targets import TargetId
from luthier.lifting import LiftedRepresentation, lift
from luthier.objects import CodeObject, Kernel, load_object
from luthier.support import device_memory as storage

_TARGET = re.compile(rb"gfx[0-9a-f]{3,4}(?::[a-z]+[+-])*(?=\0)")
_PROPERTIES = 16384
"""Bytes enough for hipDeviceProp_t of any version."""
_BUFFER, _SIZE, _END = 1, 2, 3
"""HIP_LAUNCH_PARAM_…: markers of a launch's argument buffer, its size, and the end."""


class Hip:
    """The HIP runtime with one current device.

    Raises:
        DeviceError: hip-python or the HIP runtime is missing, or the device does not exist.
    """

    def __init__(self, number: int) -> None:
        self._hip, count = _runtime(f"hip:{number}")
        self.number = number
        if number >= count:
            raise DeviceError(f"there is no device hip:{number}; HIP has {count}, numbered from 0")

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Call a HIP function on the device and return its first result, if it has any.

        Raises:
            DeviceError: it fails.
        """
        self._hip.hipSetDevice(self.number)
        try:
            error, *results = getattr(self._hip, name)(*arguments, **named)
        except RuntimeError as problem:  # no such function in the library
            raise DeviceError(f"this HIP runtime has no {name}: {problem}") from problem
        if error != self._hip.hipError_t.hipSuccess:
            raise DeviceError(f"{name} on hip:{self.number}: {error.name}")
        return results[0] if results else None

    def read(self, address: int, size: int) -> bytes:
        """Read bytes of device memory."""
        data = np.zeros(size, np.uint8)
        if size:
            self.call("hipMemcpy", data, address, size, self._hip.hipMemcpyKind.hipMemcpyDeviceToHost)
        return data.tobytes()

    def write(self, address: int, data: NDArray[np.uint8]) -> None:
        """Replace bytes of device memory."""
        if data.size:
            self.call("hipMemcpy", address, data, data.size, self._hip.hipMemcpyKind.hipMemcpyHostToDevice)

    def target(self) -> TargetId:
        """Return the device's target, from its properties.

        They are searched for its name, since their layout depends on the version of HIP.

        Raises:
            DeviceError: the properties do not contain a target.
        """
        with open("/proc/self/maps") as maps:
            paths = {line.split()[-1] for line in maps if "libamdhip64" in line}
        library = ctypes.CDLL(min(paths)) if paths else None
        for name in ("hipGetDevicePropertiesR0600", "hipGetDeviceProperties"):
            function = getattr(library, name, None)
            properties = ctypes.create_string_buffer(_PROPERTIES)
            if function is not None and function(properties, self.number) == 0:
                match = _TARGET.search(properties.raw)
                if match is not None:
                    return TargetId.parse(match[0].decode())
        raise DeviceError(f"the properties of hip:{self.number} do not name a target")


def _runtime(name: str) -> tuple[Any, int]:
    """Return hip-python's module of the HIP runtime, and the number of its devices.

    Args:
        name: device that is to be opened, for errors.

    Raises:
        DeviceError: hip-python or the HIP runtime is missing, or the runtime has no device.
    """
    try:
        from hip import hip as runtime
    except ImportError as problem:
        raise DeviceError(f"{name} needs hip-python: pip install 'luthier[hip]' ({problem})") from problem
    hip: Any = runtime
    try:
        error, count = hip.hipGetDeviceCount()
    except (RuntimeError, OSError) as problem:  # the first call loads the library
        raise DeviceError(f"{name}: cannot load the HIP runtime: {problem}") from problem
    if error != hip.hipError_t.hipSuccess:
        raise DeviceError(f"{name}: HIP finds no device: {error.name}")
    return hip, count


def gpu_names() -> list[str]:
    """Return the names of the devices of HIP, e.g. ``hip:0``.

    Raises:
        DeviceError: as for `HipDevice`.
    """
    return [f"hip:{number}" for number in range(_runtime("hip")[1])]


class HipBuffer(storage.Buffer):
    """Memory of a device."""

    def __init__(self, hip: Hip, size: int) -> None:
        super().__init__(size)
        self._hip = hip
        self._memory = hip.call("hipMalloc", max(size, 1))
        self._freed = False
        hip.call("hipMemset", self._memory, 0, max(size, 1))

    def _place(self) -> int:
        if self._freed:
            raise DeviceError("the buffer was freed")
        return int(self._memory)

    def _load(self) -> bytes:
        return self._hip.read(self.address, self.size)

    def _store(self, offset: int, data: NDArray[np.uint8]) -> None:
        self._hip.write(self.address + offset, data)

    def _release(self) -> None:
        self._hip.call("hipFree", self.address)
        self._freed = True


class HipVariable(storage.Variable):
    """A variable of a loaded module."""

    def __init__(self, hip: Hip, name: str, address: int, size: int, is_loaded: Callable[[], bool]) -> None:
        super().__init__(name, size)
        self._hip = hip
        self._is_loaded = is_loaded
        self.address = address

    def _place(self) -> int:
        if not self._is_loaded():
            raise DeviceError(f"the module of variable {self.name} was unloaded")
        return self.address

    def _load(self) -> bytes:
        return self._hip.read(self._place(), self.size)

    def _store(self, data: NDArray[np.uint8]) -> None:
        self._hip.write(self._place(), data)


class HipModule:
    """A code object loaded on a device."""

    def __init__(self, hip: Hip, code: CodeObject) -> None:
        self.object = code
        self.hip = hip
        self.handle = hip.call("hipModuleLoadData", bytes(code.data))
        self.waves: Counter[str] = Counter()
        """Launched waves by kernel."""

    def kernel(self, name: str) -> HipKernel:
        """Return the kernel called `name`.

        Raises:
            ObjectError: the object has no such kernel.
        """
        if name not in self.object.kernels:
            known = ", ".join(self.object.kernels) or "none"
            raise ObjectError(f"no kernel {name!r}; there are: {known}", object=self.object.name)
        return HipKernel(self, self.object.kernels[name])

    def variable(self, name: str) -> HipVariable:
        """Return the variable called `name`: its symbol, or its name in the source.

        Raises:
            ObjectError: the object has no such variable.
        """
        symbol = self.object.variable(name)
        if symbol is None:
            raise ObjectError(f"no variable {name!r}", object=self.object.name)
        self._live()
        address = int(self.hip.call("hipModuleGetGlobal", self.handle, symbol.name.encode()))
        return HipVariable(self.hip, name, address, symbol.size, lambda: self.handle is not None)

    def _live(self) -> None:
        if self.handle is None:
            raise DeviceError("the module was unloaded", object=self.object.name)

    def function(self, name: str) -> Any:
        """Return HIP's handle of a kernel.

        Raises:
            DeviceError: the module was unloaded.
        """
        self._live()
        return self.hip.call("hipModuleGetFunction", self.handle, name.encode())

    def unload(self) -> None:
        """Free the module's memory. Its kernels cannot be launched any more."""
        self._live()
        self.hip.call("hipModuleUnload", self.handle)
        self.handle = None


class HipKernel:
    """A kernel that can be launched."""

    def __init__(self, module: HipModule, kernel: Kernel) -> None:
        self.module = module
        self.kernel = kernel
        self.name = kernel.name

    def lift(self) -> LiftedRepresentation:
        """Lift the kernel to functions and basic blocks.

        Raises:
            LiftError: the code cannot be lifted.
        """
        return lift(self.module.object, self.name)

    def launch(
        self,
        *arguments: Any,
        grid: int | Sequence[int] = 1,
        block: int | Sequence[int] = 1,
        dynamic_lds: int = 0,
        cooperative: bool = False,
    ) -> None:
        """Run the kernel to its end.

        Args:
            arguments: NumPy arrays (copied in, and back after the launch), numbers, `HipBuffer`s; or one `bytes` object
                as the whole explicit kernarg segment. HIP fills hidden arguments in.
            grid: size in work-groups, one to three numbers.
            block: work-items of a work-group, one to three numbers.
            dynamic_lds: bytes of LDS beyond the kernel's own.
            cooperative: all work-groups run at once, so that they may wait for each other (ROCm 6 and later).

        Raises:
            DeviceError: the kernel does not take these arguments or sizes, or HIP fails.
        """
        hip = self.module.hip
        function = self.module.function(self.name)
        geometry = Geometry(as_triple(grid), as_triple(block), int(dynamic_lds))
        copies: list[tuple[NDArray[Any], HipBuffer]] = []
        try:
            if len(arguments) == 1 and isinstance(arguments[0], (bytes, bytearray)):
                raw = bytes(arguments[0])
            else:
                raw = pack_explicit(self.kernel, [self._value(argument, copies) for argument in arguments])
            self._start(function, geometry, raw[: explicit_size(self.kernel)], cooperative)
            groups, items = (prod(sizes) for sizes in (geometry.grid, geometry.block))
            self.module.waves[self.name] += groups * -(-items // self.kernel.wave_size)
            hip.call("hipDeviceSynchronize")
            for array, buffer in copies:
                array[...] = buffer.read(array.dtype).reshape(array.shape)
        finally:
            for _, buffer in copies:
                buffer.free()

    def _value(self, argument: Any, copies: list[tuple[NDArray[Any], HipBuffer]]) -> int | float | bytes:
        """Return the kernarg value of an argument; arrays get buffers."""
        if isinstance(argument, np.ndarray):
            if argument.dtype.hasobject or not argument.flags.writeable:
                raise DeviceError("a kernel argument cannot be an array of Python objects or a read-only array")
            copies.append((argument, HipBuffer(self.module.hip, argument.nbytes)))
            copies[-1][1].write(argument)
            return copies[-1][1].address
        if isinstance(argument, HipBuffer):
            return argument.address
        if isinstance(argument, np.generic):
            return argument.tobytes()
        value: int | float | bytes = argument
        return value

    def _start(self, function: Any, geometry: Geometry, raw: bytes, cooperative: bool) -> None:
        sizes = (*geometry.grid, *geometry.block, geometry.dynamic_lds, None)
        segment = ctypes.create_string_buffer(raw, max(len(raw), 1))
        if cooperative:  # HIP takes these arguments one by one
            explicit = [argument for argument in self.kernel.arguments if not argument.hidden]
            places = [ctypes.addressof(segment) + argument.offset for argument in explicit]
            pointers = (ctypes.c_void_p * max(len(places), 1))(*places)
            self.module.hip.call("hipModuleLaunchCooperativeKernel", function, *sizes, ctypes.addressof(pointers))
            return
        size = ctypes.c_size_t(len(raw))
        extra = (ctypes.c_void_p * 5)(_BUFFER, ctypes.addressof(segment), _SIZE, ctypes.addressof(size), _END)
        self.module.hip.call("hipModuleLaunchKernel", function, *sizes, None, ctypes.addressof(extra))


class HipDevice:
    """One GPU of the HIP runtime.

    Args:
        number: index of the device in HIP.

    Raises:
        DeviceError: HIP is missing, or has no such device.
    """

    def __init__(self, number: int) -> None:
        self._hip = Hip(number)
        self.target = self._hip.target()

    def __repr__(self) -> str:
        return f"<HipDevice {self._hip.number}, {self.target}>"

    @property
    def stats(self) -> Any:
        """Raise an error: only emulated devices have statistics.

        Raises:
            DeviceError: always.
        """
        raise DeviceError(f"hip:{self._hip.number} does not count executions; use an emulated device")

    def allocate(self, size: int) -> HipBuffer:
        """Allocate `size` bytes of zeroed memory."""
        return HipBuffer(self._hip, size)

    def load(self, source: Any) -> HipModule:
        """Load a code object: bytes, a path, or a `CodeObject`. A bundle must contain an image for this target.

        Raises:
            ObjectError: the object is malformed, or is for another target.
            DeviceError: HIP cannot load it.
        """
        code = source if isinstance(source, CodeObject) else load_object(source, target=str(self.target))
        if not self.target.accepts(code.target):
            raise ObjectError(f"code for {code.target} on a device that is {self.target}", object=code.name)
        return HipModule(self._hip, code)
