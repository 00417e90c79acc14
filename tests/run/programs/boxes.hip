// Copies, fills and pitched memory in three dimensions, in both directions and on the device, with a kernel between; occupancy.
#include "check.h"

constexpr int kWidth = 19, kHeight = 7, kDepth = 5, kCount = kWidth * kHeight * kDepth;

__global__ void add(hipPitchedPtr box, int amount) {
  const int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
  char *row = static_cast<char *>(box.ptr) + (z * box.ysize + y) * box.pitch;
  reinterpret_cast<int *>(row)[x] += amount + x + 100 * y + 10000 * z;
}

__global__ void __launch_bounds__(256) busy(float *out) {
  __shared__ float room[2048];
  for (int i = threadIdx.x; i < 2048; i += blockDim.x)
    room[i] = i;
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = room[2047 - threadIdx.x];
}

hipPitchedPtr on_host_side(std::vector<int> &values) {
  return make_hipPitchedPtr(values.data(), kWidth * sizeof(int), kWidth, kHeight);
}

void copy(hipPitchedPtr to, hipPitchedPtr from, hipMemcpyKind kind, hipPos at, hipExtent extent) {
  hipMemcpy3DParms parameters{};
  parameters.srcPtr = from;
  parameters.dstPtr = to;
  parameters.srcPos = parameters.dstPos = at;
  parameters.extent = extent;
  parameters.kind = kind;
  HIP(hipMemcpy3D(&parameters));
}

int main() {
  const hipExtent whole = make_hipExtent(kWidth * sizeof(int), kHeight, kDepth);
  hipPitchedPtr box, other;
  HIP(hipMalloc3D(&box, whole));
  HIP(hipMalloc3D(&other, whole));
  EXPECT(box.pitch >= kWidth * sizeof(int));
  box.ysize = other.ysize = kHeight;
  std::vector<int> values(kCount), found(kCount, -1);
  for (int i = 0; i < kCount; ++i)
    values[i] = 3 * i;
  copy(box, on_host_side(values), hipMemcpyHostToDevice, make_hipPos(0, 0, 0), whole);
  add<<<dim3(kHeight, kDepth), kWidth>>>(box, 7);
  HIP(hipMemset3D(other, 0, whole));
  // The inner part goes to the other box; around it there stay zeros.
  const hipPos inner = make_hipPos(2 * sizeof(int), 1, 1);
  copy(other, box, hipMemcpyDeviceToDevice, inner, make_hipExtent(9 * sizeof(int), 4, 3));
  copy(on_host_side(found), other, hipMemcpyDeviceToHost, make_hipPos(0, 0, 0), whole);
  for (int z = 0; z < kDepth; ++z)
    for (int y = 0; y < kHeight; ++y)
      for (int x = 0; x < kWidth; ++x) {
        const int i = (z * kHeight + y) * kWidth + x;
        const bool inside = x >= 2 && x < 11 && y >= 1 && y < 5 && z >= 1 && z < 4;
        EXPECT(found[i] == (inside ? 3 * i + 7 + x + 100 * y + 10000 * z : 0));
      }
  HIP(hipFree(box.ptr));
  HIP(hipFree(other.ptr));

  // What the runtime says of occupancy is used for a launch.
  int groups = 0, grid = 0, items = 0;
  HIP(hipOccupancyMaxActiveBlocksPerMultiprocessor(&groups, busy, 256, 0));
  EXPECT(groups >= 1);
  EXPECT(groups <= 8);  // by LDS
  HIP(hipOccupancyMaxPotentialBlockSize(&grid, &items, busy, 0, 256));
  EXPECT(grid >= 1);
  EXPECT(items >= 32);
  EXPECT(items <= 256);
  float *out = on_device(std::vector<float>(size_t(grid) * items));
  busy<<<grid, items>>>(out);
  const std::vector<float> last = on_host(out + size_t(grid - 1) * items, items);
  for (int i = 0; i < items; ++i)
    EXPECT(last[i] == 2047 - i);
  std::puts("boxes");
}
