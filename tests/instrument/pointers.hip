// Calls by pointers: virtual functions, tables that change, pointers from the host.
#include <hip/hip_runtime.h>
#include <stdint.h>
#define OUT extern "C" __global__ void
struct Shape {
  uint32_t size;
  __device__ Shape(uint32_t size) : size(size) {}
  __device__ virtual uint32_t area(uint32_t x) const = 0;
  __device__ virtual uint32_t twice(uint32_t x) const { return 2 * area(x); }
};
struct Square : Shape {
  using Shape::Shape;
  __device__ uint32_t area(uint32_t x) const override { return size * size + x; }
};
struct Ring : Shape {
  using Shape::Shape;
  __device__ uint32_t area(uint32_t x) const override {
    uint32_t sum = 0;
    for (uint32_t k = 0; k < (x & 3); k++)
      sum += size * k;
    return sum;
  }
  __device__ uint32_t twice(uint32_t x) const override { return x & 1 ? 7 : Shape::twice(x); }
};
OUT objects(uint32_t *out, const uint32_t *in) {
  uint32_t i = threadIdx.x;
  Square square(in[i] & 7);
  Ring ring(in[i] & 15);
  Shape *volatile shape = in[i] & 1 ? (Shape *)&square : (Shape *)&ring;
  out[i] = shape->twice(in[i]) + shape->area(i);
}

typedef uint32_t (*Function)(uint32_t);
__device__ __attribute__((noinline)) uint32_t f0(uint32_t x) { return x * 3 + 1; }
__device__ __attribute__((noinline)) uint32_t f1(uint32_t x) { return x & 1 ? x ^ 0x55 : x * x; }
__device__ __attribute__((noinline)) uint32_t f2(uint32_t x) {
  for (uint32_t k = 0; k < (x & 3); k++)
    x += x >> 3;
  return x;
}
__device__ Function writable[4] = {f0, f1, f2, f0};
OUT table(uint32_t *out, const uint32_t *in) {
  uint32_t i = threadIdx.x;
  out[i] = writable[in[i] & 3](in[i]);
}
OUT exchanged(uint32_t *out, const uint32_t *in) { // which changes the table, and so the pointers in it
  uint32_t i = threadIdx.x;
  Function was = writable[i & 3];
  uint32_t result = was(in[i]) + f1(i);
  __syncthreads();
  if (i == 0)
    writable[0] = f1, writable[1] = f2;
  __syncthreads();
  out[i] = result + (writable[0] == f1 ? 1000 : 0) + writable[i & 3](i);
}
OUT given(uint32_t *out, const uint32_t *in, Function function) {
  uint32_t i = threadIdx.x;
  out[i] = in[i] & 4 ? function(in[i]) : i;
}
OUT told(uint64_t *out) {
  out[0] = (uint64_t)f0, out[1] = (uint64_t)writable[2], out[2] = f1(threadIdx.x);
}
