"""Run under `luthier run`: a kernel that Triton compiles and launches itself, with HIP instead of PyTorch."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl
from launches import call, ctypes, hip
from triton.backends.amd.driver import HIPDriver, HIPLauncher, HIPUtils
from triton.runtime import driver


class Driver(HIPDriver):
    """Triton's driver, which knows devices and streams without PyTorch."""

    def __init__(self) -> None:
        self.utils, self.launcher_cls = HIPUtils(), HIPLauncher
        self.get_current_stream, self.get_current_device = lambda device: 0, lambda: 0


class Floats:
    """Managed memory as Triton takes arrays."""

    dtype = "fp32"

    def __init__(self, count: int) -> None:
        self.place = ctypes.c_void_p()
        call("hipMallocManaged", ctypes.byref(self.place), ctypes.c_size_t(4 * count), 1)
        assert self.place.value
        self.values = np.ctypeslib.as_array(ctypes.cast(self.place, ctypes.POINTER(ctypes.c_float)), (count,))

    def data_ptr(self) -> int | None:
        return self.place.value


@triton.jit
def double(x, out, count, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < count), mask=at < count)


def layer(x: Floats, out: Floats) -> None:
    double[(4,)](x, out, 1000, SIZE=256)


driver.set_active(Driver())
x, out = Floats(1000), Floats(1000)
x.values[:] = np.arange(1000)
for _ in range(3):
    layer(x, out)
hip.hipDeviceSynchronize()
assert np.array_equal(out.values, 2 * x.values)
print("doubled")
