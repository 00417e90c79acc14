"""An OpenCL program: kernels compiled when it runs, a sum by work-groups in local memory, a histogram by atomics.

It calls the library by ctypes, since no headers of OpenCL need be there. Two words plant bugs: with "lds" there is too
little local memory, with "null" no buffer.
"""

import array
import ctypes
import sys

from opencl_device import buffer, compiled, launch, read

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

program = compiled(SOURCE)
numbers = array.array("I", (at * 2654435761 >> 7 & 0xFFFF for at in range(COUNT)))
x, y = array.array("f", range(COUNT)), array.array("f", [1.0]) * COUNT
on_device, sums, bins = buffer(numbers), array.array("I", [0]) * (COUNT // GROUP), array.array("I", [0]) * BINS
device_y, device_sums, device_bins = buffer(y), buffer(sums), buffer(bins)

launch(program, b"sum", COUNT, GROUP, on_device, device_sums, 4 * GROUP - (16 if "lds" in sys.argv else 0))
source = ctypes.c_void_p() if "null" in sys.argv else buffer(x)
launch(program, b"axpy", COUNT, GROUP, ctypes.c_float(2.0), source, device_y)
launch(program, b"histogram", COUNT, GROUP, on_device, device_bins)

good = all(value == 2.0 * at + 1.0 for at, value in enumerate(read(device_y, y)))
groups = [sum(numbers[at : at + GROUP]) for at in range(0, COUNT, GROUP)]
print("axpy", "right" if good else "wrong")
print("sum", "right" if list(read(device_sums, sums)) == groups else "wrong")
counted = [sum(value % BINS == bin for value in numbers) for bin in range(BINS)]
print("histogram", "right" if list(read(device_bins, bins)) == counted else "wrong")
