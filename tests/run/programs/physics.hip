// Bodies that attract each other, and a stencil: single and double precision, special functions.
#include "check.h"

#include <cmath>

__global__ void accelerate(const float4 *bodies, float3 *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  float3 sum = make_float3(0, 0, 0);
  for (int j = 0; j < n; ++j) {
    const float x = bodies[j].x - bodies[i].x, y = bodies[j].y - bodies[i].y, z = bodies[j].z - bodies[i].z;
    const float inverse = rsqrtf(x * x + y * y + z * z + 0.01f), pull = bodies[j].w * inverse * inverse * inverse;
    sum.x += x * pull, sum.y += y * pull, sum.z += z * pull;
  }
  out[/*index*/ i] = sum;
}

__global__ void relax(const double *in, double *out, int n) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x > 0 && y > 0 && x < n - 1 && y < n - 1)
    out[y * n + x] = 0.25 * (in[y * n + x - 1] + in[y * n + x + 1] + in[y * n - n + x] + in[y * n + n + x]);
}

int main() {
  const int n = 150;
  std::vector<float4> bodies(n);
  for (int i = 0; i < n; ++i)
    bodies[i] = make_float4(std::sin(i), std::cos(2 * i), std::sin(3 * i), 1 + i % 3);
  float3 *out = on_device(std::vector<float3>(n));
  accelerate<<<3, 64>>>(on_device(bodies), out, n);
  const auto pulls = on_host(out, n);
  for (int i = 0; i < n; ++i) {
    double sum = 0;
    for (int j = 0; j < n; ++j) {
      const double x = bodies[j].x - bodies[i].x, y = bodies[j].y - bodies[i].y, z = bodies[j].z - bodies[i].z;
      sum += x * bodies[j].w / std::pow(x * x + y * y + z * z + 0.01, 1.5);
    }
    EXPECT(std::fabs(pulls[i].x - sum) < 1e-3 * (1 + std::fabs(sum)));
  }
  const int side = 40, rounds = 10;
  std::vector<double> here(side * side), next;
  for (int i = 0; i < side; ++i)
    here[i] = 100;
  double *a = on_device(here), *b = on_device(here);
  for (int round = 0; round < rounds; ++round) {
    relax<<<dim3(3, 3), dim3(16, 16)>>>(a, b, side);
    std::swap(a, b);
    next = here;
    for (int y = 1; y < side - 1; ++y)
      for (int x = 1; x < side - 1; ++x)
        next[y * side + x] = 0.25 * (here[y * side + x - 1] + here[y * side + x + 1] + here[y * side - side + x] +
                                     here[y * side + side + x]);
    here = next;
  }
  const auto found = on_host(a, side * side);
  for (int i = 0; i < side * side; ++i)
    EXPECT(std::fabs(found[i] - here[i]) < 1e-9);
  std::puts("physics");
}
