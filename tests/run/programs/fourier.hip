// A fast Fourier transform in LDS, against the definition; what occupancy the runtime computes.
#include "check.h"

#include <cmath>

__global__ void transform(float2 *data, int bits) {
  __shared__ float2 part[256];
  const int n = 1 << bits;
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    part[__brev(i) >> (32 - bits)] = data[blockIdx.x * n + i]; // around filled
  /*barrier filled*/ __syncthreads();
  for (int half = 1; half < n; half *= 2) {
    for (int i = threadIdx.x; i < n / 2; i += blockDim.x) {
      const int low = i / half * 2 * half + i % half, high = low + half;
      float sine, cosine;
      sincosf(-3.14159265f * (i % half) / half, &sine, &cosine);
      const float2 a = part[low], b = part[high]; // around filled, turned
      const float2 turned = make_float2(b.x * cosine - b.y * sine, b.x * sine + b.y * cosine);
      part[low] = make_float2(a.x + turned.x, a.y + turned.y); // around filled, turned
      part[high] = make_float2(a.x - turned.x, a.y - turned.y); // around filled, turned
    }
    /*barrier turned*/ __syncthreads();
  }
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    data[blockIdx.x * n + i] = part[i]; // around turned
}

int main() {
  const int n = 256, count = 3;
  std::vector<float2> in(n * count);
  for (int i = 0; i < n * count; ++i)
    in[i] = make_float2(std::sin(0.3 * i) + i % 3, std::cos(0.1 * i));
  float2 *device = on_device(in);
  transform<<<count, 96>>>(device, 8);
  const auto out = on_host(device, in.size());
  for (int group = 0; group < count; ++group)
    for (int k = 0; k < n; k += 17) {
      double real = 0, imaginary = 0;
      for (int i = 0; i < n; ++i) {
        const double angle = -2 * M_PI * k * i / n, c = std::cos(angle), s = std::sin(angle);
        const float2 value = in[group * n + i];
        real += value.x * c - value.y * s, imaginary += value.x * s + value.y * c;
      }
      EXPECT(std::fabs(out[group * n + k].x - real) < 0.01 && std::fabs(out[group * n + k].y - imaginary) < 0.01);
    }
  int groups = 0, least = 0, block = 0;
  HIP(hipOccupancyMaxActiveBlocksPerMultiprocessor(&groups, transform, 96, 0));
  HIP(hipOccupancyMaxPotentialBlockSize(&least, &block, transform, 0, 0));
  EXPECT(groups > 0 && least > 0 && block >= 64);
  std::puts("fourier");
}
