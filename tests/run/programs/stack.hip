// Private memory, recursion, functions called through pointers.
#include "check.h"

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int square(int x) { return x * x; }

__global__ void run(int *out, int turns) {
  int box[64];
  for (int i = 0; i < 64; ++i)
    box[i] = i;
  for (int turn = 0; turn < turns; ++turn)
    box[(turn * 7 + threadIdx.x) % 64] += box[(turn * 13) % 64];
  int sum = 0;
  for (int i = 0; i < 64; ++i)
    sum += box[i] * i;
  int (*const operation)(int) = threadIdx.x % 2 ? twice : square;
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum + operation(threadIdx.x) + fibonacci(threadIdx.x % 8);
}

static int expected(int item, int turns) {
  int box[64], sum = 0, fib[8] = {0, 1, 1, 2, 3, 5, 8, 13};
  for (int i = 0; i < 64; ++i)
    box[i] = i;
  for (int turn = 0; turn < turns; ++turn)
    box[(turn * 7 + item) % 64] += box[(turn * 13) % 64];
  for (int i = 0; i < 64; ++i)
    sum += box[i] * i;
  return sum + (item % 2 ? 2 * item : item * item) + fib[item % 8];
}

int main() {
  const int items = 96, groups = 5, turns = 40;
  int *out = on_device(std::vector<int>(items * groups));
  run<<<groups, items>>>(out, turns);
  const auto values = on_host(out, items * groups);
  for (int i = 0; i < items * groups; ++i)
    EXPECT(values[i] == expected(i % items, turns));
  std::puts("stack");
}
