"""A program that launches kernels of code objects by HIP.

Each FILE.npz has an object, a launch and its arguments; FILE.npz.out.npz gets what arrays are afterwards.
"""

from __future__ import annotations

import ctypes
import sys

import numpy as np

hip = ctypes.CDLL("libamdhip64.so.6")


def call(name: str, *arguments: object) -> None:
    """Call a function of HIP's, which must succeed."""
    status = getattr(hip, name)(*arguments)
    if status:
        raise SystemExit(f"{name} returned {status}")


def launch(path: str) -> None:
    """Launch the kernel of a file and write its results."""
    given = np.load(path)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    call("hipModuleLoadData", ctypes.byref(module), given["object"].tobytes())
    call("hipModuleGetFunction", ctypes.byref(function), module, str(given["name"]).encode())
    arrays, places, values = {}, {}, []
    for number in range(int(given["count"])):
        value = given[f"argument{number}"]
        if value.ndim:
            place = ctypes.c_void_p()
            call("hipMalloc", ctypes.byref(place), ctypes.c_size_t(value.nbytes))
            call("hipMemcpy", place, value.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(value.nbytes), 1)
            arrays[f"argument{number}"], places[f"argument{number}"] = value.copy(), place
            values.append(place)
        else:
            values.append((ctypes.c_float if value.dtype.kind == "f" else ctypes.c_int)(value.item()))
    values += [ctypes.c_void_p() for _ in range(int(given["scratch"]))]
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    sizes = [ctypes.c_uint(int(size)) for size in (*given["grid"], *given["block"], given["dynamic_lds"])]
    call("hipModuleLaunchKernel", function, *sizes, None, pointers, None)
    call("hipDeviceSynchronize")
    for name, array in arrays.items():
        pointer = array.ctypes.data_as(ctypes.c_void_p)
        call("hipMemcpy", pointer, places[name], ctypes.c_size_t(array.nbytes), 2)
    np.savez(f"{path}.out.npz", **arrays)


for argument in sys.argv[1:]:
    launch(argument)
