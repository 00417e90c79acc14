// Virtual functions that call each other and use LDS: return addresses are kept in lanes around calls.
#include <hip/hip_runtime.h>

__shared__ float tile[256];

struct Shape {
  __device__ virtual float area(float x) const { return x; }
  __device__ virtual float sum(float x, int n) const { return n > 0 ? area(x) + sum(x, n - 1) : x; }
};

struct Square : Shape {
  float side;
  __device__ float area(float x) const override { return side * x + tile[int(x) & 255]; }
  __device__ float sum(float x, int n) const override {
    float all = 0;
    for (int i = 0; i < n; ++i)
      all += area(x + i) * tile[i & 255];
    return all;
  }
};

struct Circle : Shape {
  float radius;
  __device__ float area(float x) const override { return tile[int(x) & 255] = radius, radius * x * 3; }
  __device__ float sum(float x, int n) const override {
    float all = 0;
    for (int i = 0; i < n; ++i)
      all += all > 100 ? Shape::sum(all, i) : area(x - i);
    return all;
  }
};

extern "C" __global__ void areas(float *out, const float *in, Shape *const *shapes, int n) {
  float all = 0;
  for (int i = 0; i < n; ++i) {
    tile[threadIdx.x] = in[threadIdx.x] + all;
    __syncthreads();
    all += shapes[i]->area(tile[threadIdx.x ^ 1]) + shapes[i]->sum(all, i);
    __syncthreads();
  }
  out[threadIdx.x] = all;
}

extern "C" __global__ void make(Square *square, Circle *circle, Shape **out) {
  out[0] = new (square) Square;
  out[1] = new (circle) Circle;
}
