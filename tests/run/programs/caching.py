"""Run under `luthier sanitize`: a caching allocator in Python, a kernel of which writes beyond its part."""

import ctypes
import sys
from pathlib import Path
from typing import Any

from hip import hip

COUNT, GRANULE = 400, 2048


def check(result: tuple[Any, ...]) -> Any:
    """Return a call's results besides its error, which must be success."""
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else None


class Cache:
    """Gives out parts of one allocation."""

    def __init__(self) -> None:
        self.slab = check(hip.hipMalloc(16 * GRANULE))
        self.used = 0

    def get(self, size: int, name: str) -> ctypes.c_void_p:
        """Return the address of a part."""
        address = int(self.slab) + self.used
        self.used += (size + GRANULE - 1) // GRANULE * GRANULE
        announce = getattr(ctypes.CDLL(None), "luthier_annotate_alloc_named", None)
        if announce is not None:
            announce(ctypes.c_void_p(address), ctypes.c_size_t(size), name.encode())  # announced
        return ctypes.c_void_p(address)


image = Path(sys.argv[1]).read_bytes()
kernel = check(hip.hipModuleGetFunction(check(hip.hipModuleLoadData(image)), b"scale"))
cache = Cache()
out, source = cache.get(COUNT * 4, "bias"), cache.get(COUNT * 4 + 4, "weights")
check(hip.hipMemset(source, 0, COUNT * 4 + 4))
extra = (source, out, ctypes.c_int(3), ctypes.c_int(COUNT + 1))
more = {"sharedMemBytes": 0, "stream": None, "kernelParams": None}
check(hip.hipModuleLaunchKernel(kernel, 4, 1, 1, 256, 1, 1, **more, extra=extra))
check(hip.hipDeviceSynchronize())
