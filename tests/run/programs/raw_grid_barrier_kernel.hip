// The kernel of raw_grid_barrier.cpp: all work-groups wait for each other, as many times as they are told to.
#include <hip/hip_runtime.h>

struct Shape {
  unsigned block[3], grid[3], rounds, beyond; // work-items; elements behind the last one that the last one stores to
};

extern "C" __global__ void wait_for_all(unsigned *values, unsigned *sums, unsigned *arrived, Shape shape) {
  const unsigned x = __builtin_amdgcn_workgroup_id_x() * shape.block[0] + __builtin_amdgcn_workitem_id_x();
  const unsigned y = __builtin_amdgcn_workgroup_id_y() * shape.block[1] + __builtin_amdgcn_workitem_id_y();
  const unsigned z = __builtin_amdgcn_workgroup_id_z() * shape.block[2] + __builtin_amdgcn_workitem_id_z();
  const bool is_first =
      (__builtin_amdgcn_workitem_id_x() | __builtin_amdgcn_workitem_id_y() | __builtin_amdgcn_workitem_id_z()) == 0;
  const unsigned i = (z * shape.grid[1] + y) * shape.grid[0] + x;
  const unsigned items = shape.grid[0] * shape.grid[1] * shape.grid[2];
  unsigned groups = 1;
  for (int axis = 0; axis < 3; ++axis)
    groups *= (shape.grid[axis] + shape.block[axis] - 1) / shape.block[axis];
  values[i] = i;
  for (unsigned round = 1; round <= shape.rounds; ++round) {
    __syncthreads();
    if (is_first) {
      __threadfence();
      atomicAdd(arrived, 1u);
      while (__hip_atomic_load(arrived, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) < round * groups)
        __builtin_amdgcn_s_sleep(2);
    }
    __syncthreads();
  }
  sums[i] = values[i] + values[items - 1 - i];
  if (i == items - 1 && shape.beyond)
    sums[i + shape.beyond] = 0;
}
