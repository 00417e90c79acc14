// Divergent control flow as clang makes it, mostly under a guard, which most real kernels have.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define NOINLINE __attribute__((noinline))
#define ITEM (__builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x())

__device__ NOINLINE float slow(float x, int n) {
  for (int i = 0; i < n; i++)
    x = x > 1 ? x * 0.5f : x + i;
  return x;
}
__device__ NOINLINE float slower(float x, int n) {
  float y = slow(x, n);
  if (y > 2)
    y += slow(y, n + 1);
  return x + y;
}

extern "C" {
// A guard around loops of lane-dependent length with branches inside.
__global__ void nested(const float *in, float *out, int n) {
  int i = ITEM;
  if (i >= n)
    return;
  float x = in[i], y = in[i + n], z = in[i + 2 * n], sum = 0;
  for (int j = 0; j < i % 17; j++) {
    float t = x * y + z;
    if (t > 3) {
      sum += t * in[j + 5];
      x += sum;
    } else if (t < -3) {
      for (int k = j; k < i; k++) {
        y = y * t + in[k];
        if (y > 100)
          break;
      }
    } else {
      z -= t;
      continue;
    }
    sum += x;
  }
  out[i] = sum + x + y + z;
}
// Many branches one after the other in a uniform loop.
__global__ void branches(const unsigned *in, unsigned *out, unsigned n, unsigned rounds) {
  unsigned i = ITEM, x = i, y = 1;
  for (unsigned round = 0; round < rounds; ++round) {
#pragma clang loop unroll(full)
    for (unsigned s = 0; s < 24; s++) {
      x = x * (2 * s + 3) + (x >> (s % 29 + 1));
      if (x & (1u << s % 20))
        y ^= x + s;
      else
        y += in[(i + s * 977) % n];
    }
  }
  out[i] = x ^ y;
}
// Both arms assign.
__global__ void arms(const float *in, float *out, int n) {
  int i = ITEM;
  float a, b, c;
  if (in[i] > 0) {
    a = in[i + 1] * 3;
    b = in[i + 2] / a;
    c = a - b;
  } else {
    a = in[n - i];
    b = a * a;
    c = in[n - i - 1] * b;
  }
  out[i] = a * b + c;
  out[i + n] = c;
}
// A table of pointers indexed by lane: a loop over the different values.
__global__ void waterfall(float *out, int n) {
  int i = ITEM;
  float x = out[i];
  if (i < n)
    x = (x > 0 ? slow : slower)(x, n);
  out[i] = x;
}
__global__ void calls_in_branches(float *out, int n) {
  int i = ITEM;
  if (i >= n)
    return;
  float x = out[i], y = out[i + n];
  if (x > y)
    x = slower(x, n) + y;
  for (int k = 0; k < i % 5; k++)
    y += slow(x, k);
  out[i] = x * y;
}
// One atomic of the wave instead of one a lane: reductions in whole-wave mode.
__global__ void atomics(int *total, const int *in, int n) {
  int i = ITEM;
  if (i < n && in[i] > 0)
    __atomic_fetch_add(total, in[i], __ATOMIC_RELAXED);
  if (in[i + n] < 0)
    total[1 + i] = __atomic_fetch_add(total, in[i + n], __ATOMIC_RELAXED);
}
// A search that leaves its loop in several places, with barriers.
__global__ void search(const int *in, int *out, int n, int wanted) {
  __shared__ int found[256];
  int lane = __builtin_amdgcn_workitem_id_x(), i = ITEM;
  found[lane] = -1;
  __builtin_amdgcn_s_barrier();
  for (int k = i; k < n; k += 4096) {
    int x = in[k];
    if (x == wanted) {
      found[lane] = k;
      break;
    }
    if (x < 0) {
      if (in[-x] == wanted)
        break;
      found[lane] = -2;
    }
  }
  __builtin_amdgcn_s_barrier();
  for (int step = 128; step; step >>= 1) {
    if (lane < step && found[lane + step] > found[lane])
      found[lane] = found[lane + step];
    __builtin_amdgcn_s_barrier();
  }
  if (lane == 0)
    out[__builtin_amdgcn_workgroup_id_x()] = found[0];
}
}
