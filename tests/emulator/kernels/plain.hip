// Kernels without communication between work-items; the same source runs on the host.
#include "both.h"

#if !defined(__HIP__)
extern "C" {
thread_local unsigned current_item;
void set_item(unsigned item) { current_item = item; }
}
#endif

KERNEL vector_add(const float *a, const float *b, float *c, int n) {
  int i = ITEM;
  if (i < n)
    c[i] = a[i] + b[i];
}

KERNEL collatz(const u32 *start, u32 *steps, int n) {
  int i = ITEM;
  if (i >= n)
    return;
  u32 value = start[i] + 1, count = 0;
  while (value != 1 && count < 1000) {
    if (value % 2)
      value = 3 * value + 1;
    else
      value /= 2;
    ++count;
  }
  steps[i] = count;
}

DEVICE __attribute__((noinline)) int gcd(int a, int b) {
  while (b != 0) {
    int rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

KERNEL call_function(const int *a, const int *b, int *c, int n) {
  int i = ITEM;
  if (i < n)
    c[i] = gcd(a[i], b[i]) + gcd(b[i], 12);
}

// Recursion and an array indexed at run time: a stack in scratch.
DEVICE __attribute__((noinline)) u32 ackermann(u32 m, u32 n) {
  if (m == 0)
    return n + 1;
  if (n == 0)
    return ackermann(m - 1, 1);
  return ackermann(m - 1, ackermann(m, n - 1));
}

KERNEL stack(const u32 *in, u32 *out, int n) {
  int i = ITEM;
  if (i >= n)
    return;
  u32 table[16];
  for (int k = 0; k < 16; ++k)
    table[k] = in[i] * (k + 1);
  u32 sum = 0;
  for (int k = 0; k < 16; ++k)
    sum += table[(in[i] + k * 7) & 15] * k;
  out[i] = sum + ackermann(2, in[i] & 3);
}

KERNEL integers(const int *a, const int *b, u32 *out, int n) {
  int i = ITEM;
  if (i >= n)
    return;
  int x = a[i], y = b[i];
  u32 ux = x, uy = y;
  u32 *o = out + 24 * i;
  int k = 0;
  o[k++] = ux * uy;
  o[k++] = (u32)((u64)ux * uy >> 32);
  o[k++] = (u32)((long long)x * y >> 32);
  o[k++] = uy ? ux / uy : 1;
  o[k++] = uy ? ux % uy : 2;
  o[k++] = y && !(x == (int)0x80000000 && y == -1) ? x / y : 3;
  o[k++] = y && !(x == (int)0x80000000 && y == -1) ? x % y : 4;
  o[k++] = __builtin_popcount(ux) + (ux ? __builtin_clz(ux) : 32) + (uy ? __builtin_ctz(uy) : 32);
  o[k++] = x >> (y & 31);
  o[k++] = ux >> (uy & 31);
  o[k++] = ux << (uy & 31);
  o[k++] = x < y ? x : y;
  o[k++] = ux < uy ? uy : ux;
  o[k++] = (u32)(((u64)ux << 32 | uy) >> (ux & 63));
  o[k++] = (u32)((long long)((u64)uy << 32 | ux) >> (uy & 63));
  o[k++] = (u32)((((u64)ux << 20) + uy) / 1000003u);
  o[k++] = __builtin_bitreverse32(ux) ^ __builtin_bswap32(uy);
  o[k++] = (u16)(ux + uy) * (u16)(uy >> 3);
  o[k++] = (u8)x + (signed char)y;
  o[k++] = (ux & uy) | (~ux & 0x0f0f0f0f);
  o[k++] = (u32)(((u64)ux * 0x123456789abcdefULL) >> 17);
  o[k++] = (ux >> 5 & 0x7f) | (uy & 0xffff) << 16;
  o[k++] = (u32)((short)x * (short)y);
  o[k++] = (u32)(ux * 3ull + ((u64)uy << 31) >> 5);
}

KERNEL floats(const float *a, const float *b, float *out, int n) {
  int i = ITEM;
  if (i >= n)
    return;
  float x = a[i], y = b[i];
  float *o = out + 20 * i;
  int k = 0;
  o[k++] = x + y;
  o[k++] = x - y;
  o[k++] = x * y;
  o[k++] = x / y;
  o[k++] = __builtin_fmaf(x, y, 1.5f);
  o[k++] = __builtin_sqrtf(__builtin_fabsf(x));
  o[k++] = __builtin_floorf(x) + __builtin_ceilf(y) + __builtin_truncf(x) + __builtin_rintf(y);
  o[k++] = x < y ? x : y;
  o[k++] = x >= y ? -x : __builtin_fabsf(y);
  o[k++] = (float)(int)(x * 0.25f);
  o[k++] = (float)(u32)(__builtin_fabsf(y));
  o[k++] = (float)(long long)x;
  o[k++] = (float)((double)x * (double)y);
  o[k++] = (float)(_Float16)x;
  o[k++] = (float)(_Float16)((_Float16)x * (_Float16)y);
  o[k++] = (float)(_Float16)((_Float16)x + (_Float16)y);
  o[k++] = __builtin_copysignf(x, y);
  o[k++] = x - __builtin_floorf(x);
  o[k++] = (float)(unsigned char)(int)__builtin_fabsf(x);
  o[k++] = (float)((short)(int)x);
}

KERNEL doubles(const double *a, const double *b, double *out, int n) {
  int i = ITEM;
  if (i >= n)
    return;
  double x = a[i], y = b[i];
  double *o = out + 12 * i;
  int k = 0;
  o[k++] = x + y;
  o[k++] = x - y;
  o[k++] = x * y;
  o[k++] = x / y;
  o[k++] = __builtin_fma(x, y, 1.5);
  o[k++] = __builtin_sqrt(__builtin_fabs(x));
  o[k++] = __builtin_floor(x) + __builtin_ceil(y) + __builtin_trunc(x) + __builtin_rint(y);
  o[k++] = x < y ? x : y;
  o[k++] = (double)(int)(x * 0.25);
  o[k++] = (double)(float)y;
  o[k++] = (double)(long long)x;
  o[k++] = (double)(u32)(int)y;
}
