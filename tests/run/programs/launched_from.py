"""Run under `luthier run`: launches and an allocation from known lines, through hip-python."""

import ctypes
import sys
import threading
from pathlib import Path
from typing import Any

from hip import hip


def check(result: tuple[Any, ...]) -> Any:
    """Return a call's result besides its error, which must be success."""
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else None


image = Path(sys.argv[1]).read_bytes()
module = check(hip.hipModuleLoadData(image))
kernel = check(hip.hipModuleGetFunction(module, b"scale"))
source, out = check(hip.hipMalloc(4000)), check(hip.hipMalloc(4000))
check(hip.hipMemset(source, 0, 4000))


def launch() -> None:
    """Launch once."""
    more = {"sharedMemBytes": 0, "stream": None, "kernelParams": None}
    extra = (source, out, ctypes.c_int(3), ctypes.c_int(1000))
    check(hip.hipModuleLaunchKernel(kernel, 4, 1, 1, 256, 1, 1, **more, extra=extra))  # launch


class Model:
    """Has a method."""

    def forward(self) -> None:
        """Launch once."""
        launch()  # forward


def train(steps: int) -> None:
    """Launch several times."""
    for _ in range(steps):
        Model().forward()  # step


def keep() -> Any:
    """Allocate what is never freed."""
    return check(hip.hipMalloc(60))


train(3)  # train
launch()  # once
thread = threading.Thread(target=train, args=(2,))
thread.start()
thread.join()
check(hip.hipDeviceSynchronize())
kept = keep()
check(hip.hipFree(source))
check(hip.hipFree(out))
