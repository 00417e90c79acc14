"""Run under `luthier run`: a kernel through hip-python's module API."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
from hip import hip


def check(result: tuple[Any, ...]) -> Any:
    """Return a call's results besides its error, which must be success."""
    error, *rest = result
    assert int(error) == 0, error
    return rest[0] if len(rest) == 1 else rest


image = Path(sys.argv[1]).read_bytes()  # the runtime does not copy it
module = check(hip.hipModuleLoadData(image))
kernel = check(hip.hipModuleGetFunction(module, b"scale"))
count = 1000
numbers, out = np.arange(count, dtype=np.int32), np.zeros(count, np.int32)
source, result = (check(hip.hipMalloc(numbers.nbytes)) for _ in range(2))
stream = check(hip.hipStreamCreate())
check(hip.hipMemcpyAsync(source, numbers, numbers.nbytes, hip.hipMemcpyKind.hipMemcpyHostToDevice, stream))
check(
    hip.hipModuleLaunchKernel(
        kernel,
        *(4, 1, 1),
        *(256, 1, 1),
        sharedMemBytes=0,
        stream=stream,
        kernelParams=None,
        extra=(source, result, ctypes.c_int(3), ctypes.c_int(count)),
    )
)
check(hip.hipMemcpyAsync(out, result, out.nbytes, hip.hipMemcpyKind.hipMemcpyDeviceToHost, stream))
check(hip.hipStreamSynchronize(stream))
assert np.array_equal(out, numbers * 3 + np.resize([1, 2, 3, 4], count)), out
for place in (source, result):
    check(hip.hipFree(place))
check(hip.hipModuleUnload(module))
print("scaled")
