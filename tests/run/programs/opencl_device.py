"""OpenCL's first GPU, for programs of this folder, by ctypes: no headers of OpenCL need be there."""

import ctypes
import sys

GPU, READ_WRITE, ALLOC_HOST_POINTER, USE_HOST_POINTER, COPY_HOST_POINTER, BUILD_LOG = 4, 1, 16, 8, 32, 0x1183

cl = ctypes.CDLL("libOpenCL.so.1")
for name in (
    "clCreateContext",
    "clCreateCommandQueue",
    "clCreateProgramWithSource",
    "clCreateKernel",
    "clCreateBuffer",
    "clCreateSubBuffer",
    "clCreateImage",
    "clSVMAlloc",
    "clEnqueueMapBuffer",
):
    getattr(cl, name).restype = ctypes.c_void_p


def check(code):
    """Exit unless a call has succeeded."""
    if code:
        sys.exit(f"opencl: error {code}")


def made(name, *arguments):
    """Return the object that a call makes; the place for the error is its last argument."""
    error = ctypes.c_int()
    made = getattr(cl, name)(*arguments, ctypes.byref(error))
    check(error.value)
    return ctypes.c_void_p(made)


platform, device = ctypes.c_void_p(), ctypes.c_void_p()
check(cl.clGetPlatformIDs(1, ctypes.byref(platform), None))
check(cl.clGetDeviceIDs(platform, ctypes.c_uint64(GPU), 1, ctypes.byref(device), None))
context = made("clCreateContext", None, 1, ctypes.byref(device), None, None)
queue = made("clCreateCommandQueue", context, device, ctypes.c_uint64(0))


def compiled(source):
    """Return a program of a source."""
    text = ctypes.c_char_p(source)
    program = made("clCreateProgramWithSource", context, 1, ctypes.byref(text), None)
    if code := cl.clBuildProgram(program, 1, ctypes.byref(device), b"-cl-std=CL2.0", None, None):
        log = ctypes.create_string_buffer(1 << 16)
        cl.clGetProgramBuildInfo(program, device, BUILD_LOG, ctypes.c_size_t(len(log)), log, None)
        sys.exit(f"opencl: error {code}: {log.value.decode()}")
    return program


def buffer(values, flags=COPY_HOST_POINTER):
    """Return a buffer of the device as large as an array, which is copied or used as the flags say."""
    size = ctypes.c_size_t(values.itemsize * len(values))
    address = ctypes.c_void_p(values.buffer_info()[0] if flags & (COPY_HOST_POINTER | USE_HOST_POINTER) else None)
    return made("clCreateBuffer", context, ctypes.c_uint64(READ_WRITE | flags), size, address)


def launch(program, name, items, group, *arguments):
    """Run a kernel; an int among its arguments is a size of local memory."""
    kernel = made("clCreateKernel", program, name)
    for place, value in enumerate(arguments):
        local = isinstance(value, int)
        size = ctypes.c_size_t(value if local else ctypes.sizeof(value))
        check(cl.clSetKernelArg(kernel, place, size, None if local else ctypes.byref(value)))
    sizes = ctypes.c_size_t(items), ctypes.c_size_t(group)
    check(cl.clEnqueueNDRangeKernel(queue, kernel, 1, None, *map(ctypes.byref, sizes), 0, None, None))


def read(source, values):
    """Wait for what was launched, and fill an array from a buffer."""
    size = ctypes.c_size_t(values.itemsize * len(values))
    address = ctypes.c_void_p(values.buffer_info()[0])
    check(cl.clEnqueueReadBuffer(queue, source, 1, ctypes.c_size_t(0), size, address, 0, None, None))
    return values
