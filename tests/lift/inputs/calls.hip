// Control flow as clang makes it: loops, divergence, calls, function pointers, switches, recursion.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define NOINLINE __attribute__((noinline))
#define ITEM __builtin_amdgcn_workitem_id_x()

__device__ NOINLINE float leaf(float x, int n) {
  float sum = 0;
  for (int i = 0; i < n; i++)
    sum += x * sum + i;
  return sum;
}
__device__ NOINLINE float middle(float x, int n) {
  float a = leaf(x, n);
  float b = leaf(a, n + 1);
  return a * b + leaf(b, 2);
}
__device__ NOINLINE float other(float x, int n) { return x * n; }
__device__ NOINLINE float tail(float x, int n) { return leaf(x + 1, n + 3); }
__device__ NOINLINE int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
extern "C" __device__ __attribute__((visibility("default"), noinline)) float exported(float x, int n) { return x - n; }

typedef float (*Function)(float, int);
__device__ Function variable_table[2] = {leaf, other};
__device__ const Function constant_table[2] = {leaf, other};
__device__ float constants[4] = {1, 2, 3, 5};

extern "C" {
__global__ void straight(float *p) { p[ITEM] *= 2; }
__global__ void loop(float *p, int n) {
  float x = 0;
  for (int i = 0; i < n; i++)
    x += p[i];
  p[ITEM] = x;
}
__global__ void divergent(float *p, int n) {
  int i = ITEM;
  float x = p[i];
  if (i < n) {
    while (x < 100)
      x = x * x + i;
  } else if (i > 3 * n) {
    x = p[i + n];
  }
  p[i] = x;
}
__global__ void calls(float *p, int n) {
  int i = ITEM;
  float x = p[i];
  if (i < n)
    x = middle(x, n);
  p[i] = x + constants[i & 3];
}
__global__ void calls_tail(float *p, int n) { p[ITEM] = tail(p[ITEM], n); }
__global__ void calls_exported(float *p, int n) { p[ITEM] = exported(p[ITEM], n); }
__global__ void recursive(int *p) { p[ITEM] = fibonacci(p[ITEM]); }
__global__ void selected(float *p, int n, int which) { p[ITEM] = (which ? leaf : other)(p[ITEM], n); }
__global__ void selected_by_lane(float *p, int n) { p[ITEM] = (p[ITEM] > 0 ? leaf : other)(p[ITEM], n); }
__global__ void from_variable(float *p, int n, int which) { p[ITEM] = variable_table[which](p[ITEM], n); }
__global__ void from_constant(float *p, int n, int which) { p[ITEM] = constant_table[which](p[ITEM], n); }
__global__ void from_argument(float *p, int n, Function f) { p[ITEM] = f(p[ITEM], n); }
__global__ void switched(float *p, int n) {
  int i = ITEM;
  switch (n) {
  case 0: p[i] = 1; break;
  case 1: p[i] *= 3; break;
  case 2: p[i] += 3; break;
  case 3: p[i] -= p[i + 1]; break;
  case 4: p[i] /= 7; break;
  case 5: p[i] = p[i + 8]; break;
  case 6: p[i * 2] = 3; break;
  }
}
__global__ void trapped(int *p) {
  if (p[0] == 7)
    __builtin_trap();
  p[ITEM] = 1;
}
}
