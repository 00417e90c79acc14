// The kernel of raw_stack.cpp: recursion with an array in each call.
#include <hip/hip_runtime.h>

__device__ __attribute__((noinline)) int sum(const int *values, int count) {
  volatile int own[4] = {count, count * 3, values[0], values[count & 3]};
  return count == 0 ? own[2] : own[count & 3] + sum(values, count - 1) * 5;
}

extern "C" __global__ void recursive(int *out) {
  int i = __builtin_amdgcn_workitem_id_x(), values[4] = {i, i * i, 7, i ^ 5};
  out[i] = sum(values, i & 7);
}
