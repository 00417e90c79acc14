"""A HIP program that does not use Luthier.

``python program.py LIBRARY OBJECT KERNEL OUT COUNT GROUPS ITEMS TURNS`` loads a code object, launches its kernel on
``COUNT`` numbers that are 0, and writes the result to a file.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path


def main() -> None:
    """Run the program; exit on an error of HIP."""
    library, code_object, kernel, out = sys.argv[1:5]
    count, groups, items, turns = map(int, sys.argv[5:])
    hip = ctypes.CDLL(library)

    def call(name: str, *arguments: object) -> None:
        error = getattr(hip, name)(*arguments)
        if error:
            raise SystemExit(f"{name} returned HIP error {error}")

    image = Path(code_object).read_bytes()
    module, function, place = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    size = ctypes.c_size_t(4 * count)
    numbers = (ctypes.c_uint32 * count)()
    call("hipModuleLoadData", ctypes.byref(module), image)
    call("hipModuleGetFunction", ctypes.byref(function), module, kernel.encode())
    call("hipMalloc", ctypes.byref(place), size)
    call("hipMemcpy", place, numbers, size, 1)  # to the device
    turn = ctypes.c_uint32(turns)
    arguments = (ctypes.c_void_p * 2)(ctypes.addressof(place), ctypes.addressof(turn))
    call("hipModuleLaunchKernel", function, groups, 1, 1, items, 1, 1, 0, None, arguments, None)
    call("hipMemcpy", numbers, place, size, 2)  # from the device, when the kernel has ended
    call("hipFree", place)
    call("hipModuleUnload", module)
    Path(out).write_bytes(bytes(numbers))


if __name__ == "__main__":
    main()
