// Every arithmetic the compiler has an instruction for, on whatever bits come in; host and device must agree to the
// bit.
#include "both.h"

#define NOINLINE DEVICE __attribute__((noinline))

typedef _Float16 h;
typedef short s16;
typedef signed char i8;
typedef long long i64;
typedef h h2 __attribute__((ext_vector_type(2)));
typedef s16 s2 __attribute__((ext_vector_type(2)));

KERNEL ints(const int *a, const int *b, int *o) {
  int i = ITEM;
  int x = a[i], y = b[i];
  u32 u = x, v = y;
  int *p = o + i * 64;
  if (y == 0)
    y = 1, v = 1;
  if (x == (int)0x80000000 && y == -1)
    y = 2;
  p[0] = x / y;
  p[1] = x % y;
  p[2] = u / v;
  p[3] = u % v;
  p[4] = (u64)u * v >> 32;
  p[5] = (i64)x * y >> 32;
  p[6] = __builtin_popcount(u);
  p[7] = u ? __builtin_clz(u) : 32;
  p[8] = u ? __builtin_ctz(u) : 32;
  p[9] = __builtin_bitreverse32(u);
  p[10] = x < y ? x : y;
  p[11] = x > y ? x : y;
  p[12] = u < v ? u : v;
  p[13] = u > v ? u : v;
  p[14] = x << (y & 31);
  p[15] = x >> (y & 31);
  p[16] = u >> (v & 31);
  p[17] = (u & v) | (~u & 0x1234567);
  p[18] = u ^ v ^ 77;
  p[19] = (u >> 5) & 0x7f;
  p[20] = (int)(u << 7) >> 20;
  p[21] = (u << 13) | (u >> 19);
  p[22] = __builtin_bswap32(u);
  p[23] = ((x << 8) >> 8) * ((y << 8) >> 8);
  p[24] = (u & 0xffffff) * (v & 0xffffff) + 7;
  p[25] = (s16)x * (s16)y + x;
  p[26] = (u16)u * (u16)v;
  p[27] = x < 0 ? -(u32)x : x;
  p[28] = __builtin_elementwise_add_sat(x, y);
  p[29] = __builtin_elementwise_sub_sat(x, y);
  p[30] = __builtin_elementwise_add_sat(u, v);
  p[31] = __builtin_elementwise_sub_sat(u, v);
  p[32] = x + y + 3;
  p[33] = (x << 3) + y;
  p[34] = (x + y) << 5;
  p[35] = (x | y) | 9;
  p[36] = (x & y) | 9;
  p[37] = x * y;
  p[38] = (i8)x;
  p[39] = (u8)(u >> 8);
  p[40] = x == y;
  p[41] = (x < y) + (u < v) * 2 + (x >= 100) * 4;
  p[42] = (x > y && y > 3) ? x : y - 1;
  p[43] = (u * 0x9E3779B9u) >> 16;
  p[44] = __builtin_rotateleft32(u, v & 31);
  p[45] = u % 10;
  p[46] = x / 7;
  p[47] = u / 1000003;
  p[48] = (int)(u > v ? u - v : v - u);
  int m = x > y ? x : y;
  p[49] = m < 100 ? m : 100;
  p[50] = m < -5 ? -5 : m > 5 ? 5 : m;
  p[51] = (u & 0xff) + ((u >> 8) & 0xff) + ((u >> 16) & 0xff) + (u >> 24);
}
KERNEL longs(const i64 *a, const i64 *b, i64 *o) {
  int i = ITEM;
  i64 x = a[i], y = b[i];
  if (y == 0)
    y = 1;
  if (x == (i64)(1ull << 63) && y == -1)
    y = 2;
  u64 u = x, v = y;
  i64 *p = o + i * 32;
  p[0] = x / y;
  p[1] = x % y;
  p[2] = u / v;
  p[3] = u % v;
  p[4] = x * y;
  p[5] = x << (y & 63);
  p[6] = x >> (y & 63);
  p[7] = u >> (v & 63);
  p[8] = x < y ? x : y;
  p[9] = u < v ? u : v;
  p[10] = (unsigned __int128)u * v >> 64;
  p[11] = (__int128)x * y >> 64;
  p[12] = __builtin_popcountll(u);
  p[13] = u ? __builtin_clzll(u) : 64;
  p[14] = u ? __builtin_ctzll(u) : 64;
  p[15] = __builtin_bitreverse64(u);
  p[16] = x - y + (int)u;
  p[17] = (x == y) | (u > v) * 2;
  p[18] = (i64)(int)x * (int)y + x;
  p[19] = (u64)(u32)u * (u32)v + u;
  p[20] = __builtin_rotateleft64(u, v & 63);
  p[21] = (u << 3) + v;
  p[22] = x < 0 ? -u : u;
  p[23] = ~(x & y) ^ (x | y);
  p[24] = u % 1000000007ull;
  p[25] = x / 10;
}
KERNEL shorts(const s16 *a, const s16 *b, s16 *o) {
  int i = ITEM;
  s16 x = a[i], y = b[i];
  u16 u = x, v = y;
  s16 *p = o + i * 32;
  p[0] = x + y;
  p[1] = x - y;
  p[2] = x * y;
  p[3] = y ? x / y : 1;
  p[4] = x << (y & 15);
  p[5] = x >> (y & 15);
  p[6] = u >> (v & 15);
  p[7] = x < y ? x : y;
  p[8] = u > v ? u : v;
  p[9] = x * y + x;
  p[10] = (x < y) | (u < v) * 2;
  p[11] = __builtin_elementwise_add_sat(x, y);
  p[12] = __builtin_elementwise_sub_sat(u, v);
  p[13] = ~x;
  p[14] = (i8)x;
  p[15] = __builtin_popcount(u);
  s16 m = x > y ? x : y;
  p[16] = m < 100 ? m : 100;
  p[17] = m < -7 ? -7 : m > 9 ? 9 : m;
  p[18] = (u8)x * (u8)y;
  p[19] = __builtin_elementwise_abs(x);
}
KERNEL packs(const s2 *a, const s2 *b, s2 *o) {
  int i = ITEM;
  s2 x = a[i], y = b[i];
  s2 *p = o + i * 16;
  p[0] = x + y;
  p[1] = x - y;
  p[2] = x * y;
  p[3] = x * y + a[i ^ 1];
  p[4] = __builtin_elementwise_min(x, y);
  p[5] = __builtin_elementwise_max(x, y);
  p[6] = x << (y & 15);
  p[7] = x >> (y & 15);
  p[8] = __builtin_elementwise_add_sat(x, y);
  p[9] = x & y;
  p[10] = s2{x.y, y.x};
  p[11] = __builtin_elementwise_sub_sat(x, y);
  p[12] = x * s2{3, 3} - y;
}
KERNEL floats(const float *a, const float *b, float *o) {
  int i = ITEM;
  float x = a[i], y = b[i];
  float *p = o + i * 48;
  p[0] = x + y;
  p[1] = x - y;
  p[2] = x * y;
  p[3] = x / y;
  p[4] = __builtin_sqrtf(x);
  p[5] = __builtin_fmaf(x, y, x);
  p[6] = __builtin_floorf(x);
  p[7] = __builtin_ceilf(x);
  p[8] = __builtin_truncf(x);
  p[9] = __builtin_rintf(x);
  p[10] = __builtin_roundf(x);
  p[11] = x < y ? x : y;
  p[12] = x > y ? x : y;
  p[13] = __builtin_fabsf(x) - y;
  p[14] = __builtin_copysignf(x, y);
  p[15] = (x < y) + (x == y) * 2 + (x != x) * 4 + (x >= y) * 8 + !(x > y) * 16;
  p[16] = (x > -2e9f && x < 2e9f) ? (float)(int)x : 1;
  p[17] = (x >= 0 && x < 4e9f) ? (float)(u32)x : 1;
  p[18] = (float)__builtin_bit_cast(int, y);
  p[19] = (float)__builtin_bit_cast(u32, y);
  p[20] = (float)(u8) __builtin_bit_cast(u32, x);
  p[21] = (float)(h)x;
  p[22] = (float)(double)x;
  p[23] = 1.0f / x;
  p[24] = x * 0.5f + 2.0f;
  p[25] = -x * y;
  p[26] = __builtin_fmaf(-x, y, 3.0f);
  p[27] = x * 2;
  p[28] = (x > -9e18f && x < 9e18f) ? (float)(i64)x : 1;
  p[29] = (float)(i64)((i64) __builtin_bit_cast(int, x) * __builtin_bit_cast(int, y));
  p[30] = (float)((u64) __builtin_bit_cast(u32, x) * __builtin_bit_cast(u32, y));
  p[31] = x > 0 ? (x < 1 ? x : 1) : 0;
  p[32] = __builtin_isinf(x) ? 1 : __builtin_isnan(y) ? 2 : __builtin_isnormal(x) ? 3 : 4;
  p[33] = (float)(x * y > 1.0f && y < x);
}
KERNEL doubles(const double *a, const double *b, double *o) {
  int i = ITEM;
  double x = a[i], y = b[i];
  double *p = o + i * 32;
  p[0] = x + y;
  p[1] = x - y;
  p[2] = x * y;
  p[3] = x / y;
  p[4] = __builtin_sqrt(x);
  p[5] = __builtin_fma(x, y, x);
  p[6] = __builtin_floor(x);
  p[7] = __builtin_ceil(x);
  p[8] = __builtin_trunc(x);
  p[9] = __builtin_rint(x);
  p[10] = __builtin_round(x);
  p[11] = x < y ? x : y;
  p[12] = x > y ? x : y;
  p[13] = __builtin_fabs(x) - y;
  p[14] = __builtin_copysign(x, y);
  p[15] = (x < y) + (x == y) * 2 + (x != x) * 4;
  p[16] = (x > -2e9 && x < 2e9) ? (double)(int)x : 1;
  p[17] = (x >= 0 && x < 4e9) ? (double)(u32)x : 1;
  p[18] = (double)(float)x;
  p[19] = (x > -9e18 && x < 9e18) ? (double)(i64)x : 1;
  p[20] = (double)__builtin_bit_cast(i64, x);
  p[21] = (double)__builtin_bit_cast(u64, y);
  p[22] = 1.0 / x;
  p[23] = -x * y + 1;
  p[24] = (x >= 0 && x < 1.8e19) ? (double)(u64)x : 1;
  p[25] = (double)(h)x;
}
KERNEL halfs(const h *a, const h *b, h *o) {
  int i = ITEM;
  h x = a[i], y = b[i];
  h *p = o + i * 32;
  p[0] = x + y;
  p[1] = x - y;
  p[2] = x * y;
  p[3] = x / y;
  p[4] = (h)__builtin_sqrtf((float)x);
  p[5] = __builtin_elementwise_fma(x, y, x);
  p[6] = __builtin_elementwise_floor(x);
  p[7] = __builtin_elementwise_ceil(x);
  p[8] = __builtin_elementwise_trunc(x);
  p[9] = __builtin_elementwise_rint(x);
  p[10] = x < y ? x : y;
  p[11] = x > y ? x : y;
  p[12] = (x < y) + (x == y) * 2 + (x != x) * 4;
  p[13] = (x > -30000 && x < 30000) ? (h)(s16)x : 1;
  p[14] = (h)(float)y;
  p[15] = (h) __builtin_bit_cast(s16, x);
  p[16] = (h) __builtin_bit_cast(u16, y);
  p[17] = -x * y;
  p[18] = x * (h)0.5;
  p[19] = x > 0 ? (x < 1 ? x : (h)1) : (h)0;
  h2 u = {x, y}, v = {y, (h)3};
  h2 w = u + v * u;
  p[20] = w.x;
  p[21] = w.y;
  w = u * v;
  p[22] = w.x;
  p[23] = w.y;
  w = __builtin_elementwise_fma(u, v, u);
  p[24] = w.x;
  p[25] = w.y;
  p[26] = (h)((float)x * (float)y + 1.5f);
}
KERNEL flow(const int *a, const int *b, int *o) {
  int i = ITEM;
  int x = a[i];
  int c = 0;
  while (x != 1 && c < 300) {
    if (x & 1)
      x = (int)(3u * x + 1);
    else
      x /= 2;
    c++;
    if (x % 7 == 3)
      continue;
    if (x > 1000000 || x < -1000000)
      break;
  }
  int s = 0;
  for (int k = 0; k < (b[i] & 15); k++) {
    s += k * x;
    if (s & 64)
      s ^= k;
  }
  switch (b[i] & 7) {
  case 0:
    s += 5;
    break;
  case 1:
    s *= 7;
    break;
  case 2:
    s -= c;
  case 3:
    s ^= 0x55;
    break;
  case 5:
    s = -s;
    break;
  default:
    s--;
  }
  int t[16];
  for (int k = 0; k < 16; k++)
    t[k] = b[(i + k) & 63];
  for (int k = 0; k < (c & 31); k++) {
    t[(k * 7 + s) & 15] += k;
    s += t[(s + k) & 15];
  }
  o[i * 2] = c;
  o[i * 2 + 1] = s;
}
NOINLINE int f(int x, int y) { return x * y + (y ? x % y : 3); }
NOINLINE int g(int n, int x) { return n <= 0 ? x : g(n - 1, x * 3 + 1) + n; }
KERNEL calls(const int *a, const int *b, int *o) {
  int i = ITEM;
  o[i * 2] = f(a[i], (b[i] & 1023) + 1) + f(i, 3);
  o[i * 2 + 1] = g(b[i] & 7, a[i]);
}
