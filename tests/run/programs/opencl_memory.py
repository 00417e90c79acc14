"""Bugs in the use of OpenCL's memory, one a run. Arguments: which memory, and what to do wrong with it."""

import array
import ctypes
import sys

from opencl_device import (
    ALLOC_HOST_POINTER,
    COPY_HOST_POINTER,
    READ_WRITE,
    USE_HOST_POINTER,
    buffer,
    check,
    cl,
    compiled,
    context,
    launch,
    made,
    queue,
    read,
)

SOURCE = b"""
kernel void mark(global int *data, long at) { data[at + get_global_id(0)] = 7; }
constant int table[100] = {1};
global int counts[33];
kernel void read_table(global int *data, long at) { data[0] = table[at]; }
kernel void write_counts(global int *data, long at) { counts[at] = 7; data[0] = counts[0]; }
"""
COUNT, LANES, REGION = 1024, 64, 0x1220
FLAGS = {
    "device": 0,
    "copied": COPY_HOST_POINTER,
    "host": ALLOC_HOST_POINTER,
    "used": USE_HOST_POINTER,
    "part": 0,
    "image": 0,
}

VARIABLES = {"table": (b"read_table", 100), "counts": (b"write_counts", 33)}

container, bug = sys.argv[1:]
program, values = compiled(SOURCE), array.array("i", [0]) * COUNT
place = ctypes.c_long({"above": COUNT - LANES + 1, "below": -1}.get(bug, COUNT - LANES))
if container == "svm":
    size = ctypes.c_size_t(4 * COUNT)
    memory = ctypes.c_void_p(cl.clSVMAlloc(context, ctypes.c_uint64(READ_WRITE), size, 0))
    kernel = made("clCreateKernel", program, b"mark")
    if bug == "freed":
        cl.clSVMFree(context, memory)
    check(cl.clSetKernelArgSVMPointer(kernel, 0, memory))
    check(cl.clSetKernelArg(kernel, 1, ctypes.c_size_t(8), ctypes.byref(place)))
    lanes = ctypes.c_size_t(LANES)
    check(cl.clEnqueueNDRangeKernel(queue, kernel, 1, None, ctypes.byref(lanes), None, 0, None, None))
    check(cl.clFinish(queue))
    if bug not in ("freed", "leak"):
        cl.clSVMFree(context, memory)
else:
    memory = buffer(values, FLAGS.get(container, 0))
    if container == "image":
        # Of one channel, CL_R and CL_SIGNED_INT32, and CL_MEM_OBJECT_IMAGE2D of 8 by 8.
        form, wanted = (ctypes.c_uint32 * 2)(0x10B0, 0x10DC), (ctypes.c_uint64 * 9)(0x10F1, 8, 8)
        image = made("clCreateImage", context, ctypes.c_uint64(READ_WRITE), form, wanted, None)
        check(cl.clReleaseMemObject(image))
    if container == "part":
        region = (ctypes.c_size_t * 2)(2 * COUNT, 2 * COUNT)
        place.value -= COUNT // 2
        part = made("clCreateSubBuffer", memory, ctypes.c_uint64(READ_WRITE), REGION, ctypes.byref(region))
    if container in VARIABLES:
        kernel, count = VARIABLES[container]
        launch(program, kernel, 1, 1, memory, ctypes.c_long(count - 1 + (bug == "above")))
        place.value = COUNT - LANES
    launch(program, b"mark", LANES, LANES, part if container == "part" else memory, place)
    read(memory, values)
    if bug == "none":
        mapped = made("clEnqueueMapBuffer", queue, memory, 1, 3, *map(ctypes.c_size_t, (0, 4 * COUNT)), 0, None, None)
        check(cl.clEnqueueUnmapMemObject(queue, memory, mapped, 0, None, None))
    check(cl.clFinish(queue))
    if container == "part":
        check(cl.clReleaseMemObject(part))
    if bug != "leak":
        check(cl.clReleaseMemObject(memory))
    if bug == "none":
        assert list(values) == [0] * (COUNT - LANES) + [7] * LANES
print("done")
