// Vectors of four floats and of two doubles: accesses of sixteen bytes.
#include "check.h"

__global__ void make(float4 *to, double2 *weights, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    to[/*index*/ i] = make_float4(i, i + 1, i + 2, i + 3); // uses quads
    weights[/*index*/ i] = make_double2(i, -i); // uses weights
  }
}

__global__ void scale(const float4 *quads, const double2 *weights, float4 *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    const float4 quad = quads[/*index*/ i]; // reads quads
    const double2 weight = weights[/*index*/ i]; // reads weights
    const float by = weight.x + weight.y;
    out[/*index*/ i] = make_float4(quad.x * by, quad.y * by, quad.z * by, quad.w * by); // uses out
  }
}

int main() {
  const int n = 200;
  float4 *quads = nullptr, *out = nullptr;
  double2 *weights = nullptr;
  HIP(hipMalloc(&quads, /*size quads*/ n * sizeof(float4)));
  HIP(hipMalloc(&out, /*size out*/ n * sizeof(float4)));
  HIP(hipMalloc(&weights, /*size weights*/ n * sizeof(double2)));
  make<<<1, 128>>>(quads, weights, n);
  HIP(hipDeviceSynchronize());
  /*early quads*/
  /*early out*/
  /*early weights*/
  scale<<<2, 128>>>(quads, weights, out, n);
  HIP(hipDeviceSynchronize());
  /*freed quads*/ HIP(hipFree(quads));
  /*freed out*/ HIP(hipFree(out));
  /*freed weights*/ HIP(hipFree(weights));
}
