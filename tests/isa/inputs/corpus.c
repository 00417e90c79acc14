// Instructions of as many kinds as a compiler makes: integer and float arithmetic of all widths, branches, calls, LDS, atomics,
// scratch, packed and dot operations.
typedef float f32;
typedef _Float16 f16;
typedef f16 f16x2 __attribute__((ext_vector_type(2)));
typedef unsigned u32;
typedef unsigned long u64;
#define KERNEL __attribute__((amdgpu_kernel, visibility("protected")))

extern __attribute__((address_space(3))) u32 shared[1024];

__attribute__((noinline)) static f32 callee(f32 x, u32 n) {
  for (u32 i = 0; i < n; ++i)
    x = x * 1.5f + (f32)i;
  return x;
}

#define MIX(NAME, SALT)                                                                                                                \
  KERNEL void NAME(f32 *x, double *d, u32 *z, u64 *q, f16 *h, int m) {                                                                 \
    const u32 t = __builtin_amdgcn_workitem_id_x(), i = t + __builtin_amdgcn_workgroup_id_x() * (256 + SALT);                          \
    f32 a = x[i];                                                                                                                      \
    u32 c = z[i];                                                                                                                      \
    double e = d[i];                                                                                                                   \
    u64 w = q[i];                                                                                                                      \
    f16 g = h[i];                                                                                                                      \
    f16x2 p = {g, (f16)SALT};                                                                                                          \
    u32 local[64];                                                                                                                     \
    for (int k = 0; k < m + SALT; ++k) {                                                                                               \
      a = __builtin_sqrtf(a) + x[k * 7 + SALT] / (a + 1.0f);                                                                           \
      c = (c * 1664525u + SALT) ^ (c >> 13);                                                                                           \
      w = w * 0x5851f42d4c957f2dul + (w >> 7) + c;                                                                                     \
      e = e * 1.25 + a;                                                                                                                \
      p = p * p + p;                                                                                                                   \
      local[c & 63] = c + (u32)k;                                                                                                      \
      shared[(t + c) & 1023] += local[(c >> 6) & 63];                                                                                  \
      __builtin_amdgcn_s_barrier();                                                                                                    \
      switch (c & 7) {                                                                                                                 \
      case 0: a = callee(a, c & 15); break;                                                                                            \
      case 1: __atomic_fetch_add(&z[c & 31], 1u, __ATOMIC_RELAXED); break;                                                             \
      case 2: __atomic_fetch_or(&shared[c & 15], c, __ATOMIC_SEQ_CST); break;                                                          \
      case 3: q[c & 63] = __builtin_readcyclecounter(); break;                                                                         \
      case 4: c = __builtin_amdgcn_readfirstlane(c); break;                                                                            \
      case 5: e = -e; break;                                                                                                           \
      default: g += (f16)a;                                                                                                            \
      }                                                                                                                                \
    }                                                                                                                                  \
    x[i] = a;                                                                                                                          \
    d[i] = e;                                                                                                                          \
    z[i] = c;                                                                                                                          \
    q[i] = w;                                                                                                                          \
    h[i] = g + p[0] + p[1];                                                                                                            \
  }

MIX(mix0, 0)
MIX(mix1, 1)
MIX(mix2, 1000)
MIX(mix3, 123456)
