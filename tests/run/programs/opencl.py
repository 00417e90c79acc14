"""An OpenCL program: kernels compiled when it runs, a sum by work-groups in local memory, a histogram by atomics.

It calls the library by ctypes, since no headers of OpenCL need be there. Two words plant bugs: with "lds" there is too
little local memory, with "null" no buffer.
"""

import array
import ctypes
import sys

SOURCE = rb"""
kernel void axpy(float a, global const float *x, global float *y) {
    size_t at = get_global_id(0);
    y[at] += a * x[at];
}

kernel void sum(global const uint *values, global uint *sums, local uint *part) {
    uint lane = get_local_id(0);
    part[lane] = values[get_global_id(0)];
    for (uint step = get_local_size(0) / 2; step; step /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < step)
            part[lane] += part[lane + step];
    }
    if (lane == 0)
        sums[get_group_id(0)] = part[0];
}

kernel void histogram(global const uint *values, global uint *bins) {
    atomic_inc(&bins[values[get_global_id(0)] % 16]);
}
"""
COUNT, GROUP, BINS = 1 << 12, 256, 16
GPU, READ_WRITE, COPY_HOST_POINTER, BUILD_LOG = 4, 1, 32, 0x1183

cl = ctypes.CDLL("libOpenCL.so.1")
for name in (
    "clCreateContext",
    "clCreateCommandQueue",
    "clCreateProgramWithSource",
    "clCreateKernel",
    "clCreateBuffer",
):
    getattr(cl, name).restype = ctypes.c_void_p


def check(code):
    """End the program unless a call did what it is for."""
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
text = ctypes.c_char_p(SOURCE)
program = made("clCreateProgramWithSource", context, 1, ctypes.byref(text), None)
if code := cl.clBuildProgram(program, 1, ctypes.byref(device), b"-cl-std=CL2.0", None, None):
    log = ctypes.create_string_buffer(1 << 16)
    cl.clGetProgramBuildInfo(program, device, BUILD_LOG, ctypes.c_size_t(len(log)), log, None)
    sys.exit(f"opencl: error {code}: {log.value.decode()}")


def buffer(values):
    """Return a buffer of the device with a copy of an array."""
    size = ctypes.c_size_t(values.itemsize * len(values))
    address = ctypes.c_void_p(values.buffer_info()[0])
    return made("clCreateBuffer", context, ctypes.c_uint64(READ_WRITE | COPY_HOST_POINTER), size, address)


def launch(name, *arguments):
    """Run a kernel; an int among its arguments is a size of local memory."""
    kernel = made("clCreateKernel", program, name)
    for place, value in enumerate(arguments):
        local = isinstance(value, int)
        size = ctypes.c_size_t(value if local else ctypes.sizeof(value))
        check(cl.clSetKernelArg(kernel, place, size, None if local else ctypes.byref(value)))
    sizes = ctypes.c_size_t(COUNT), ctypes.c_size_t(GROUP)
    check(cl.clEnqueueNDRangeKernel(queue, kernel, 1, None, *map(ctypes.byref, sizes), 0, None, None))


def read(source, values):
    """Wait for what was launched, and fill an array from a buffer."""
    size = ctypes.c_size_t(values.itemsize * len(values))
    address = ctypes.c_void_p(values.buffer_info()[0])
    check(cl.clEnqueueReadBuffer(queue, source, 1, ctypes.c_size_t(0), size, address, 0, None, None))
    return values


numbers = array.array("I", (at * 2654435761 >> 7 & 0xFFFF for at in range(COUNT)))
x, y = array.array("f", range(COUNT)), array.array("f", [1.0]) * COUNT
on_device, sums, bins = buffer(numbers), array.array("I", [0]) * (COUNT // GROUP), array.array("I", [0]) * BINS
device_y, device_sums, device_bins = buffer(y), buffer(sums), buffer(bins)

launch(b"sum", on_device, device_sums, 4 * GROUP - (16 if "lds" in sys.argv else 0))
launch(b"axpy", ctypes.c_float(2.0), ctypes.c_void_p() if "null" in sys.argv else buffer(x), device_y)
launch(b"histogram", on_device, device_bins)

good = all(value == 2.0 * at + 1.0 for at, value in enumerate(read(device_y, y)))
groups = [sum(numbers[at : at + GROUP]) for at in range(0, COUNT, GROUP)]
print("axpy", "right" if good else "wrong")
print("sum", "right" if list(read(device_sums, sums)) == groups else "wrong")
counted = [sum(value % BINS == bin for value in numbers) for bin in range(BINS)]
print("histogram", "right" if list(read(device_bins, bins)) == counted else "wrong")
