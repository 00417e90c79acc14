"""Bodies of hooks: what tool authors compute. Each runs in a hook on the device and as plain C++ on the host.

A body is the inside of a C++ function of `a` and `b` that returns a `uint64_t`. Both compilations get `PRELUDE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Result = Literal["bits", "float", "double"]


@dataclass(frozen=True)
class Body:
    """One hook body."""

    name: str
    text: str
    types: tuple[str, str] = ("uint64_t", "uint64_t")
    """Of the hook's parameters `a` and `b`, taken from registers."""
    result: Result = "bits"
    """What the returned bits are."""
    ulps: int = 0
    """By how many units in the last place host and device may differ."""


PRELUDE = """
typedef _Float16 half_t;
typedef float float2_t __attribute__((ext_vector_type(2)));
typedef uint32_t uint2_t __attribute__((ext_vector_type(2)));
typedef uint16_t ushort4_t __attribute__((ext_vector_type(4)));
typedef uint8_t uchar8_t __attribute__((ext_vector_type(8)));
typedef half_t half2_t __attribute__((ext_vector_type(2)));

DEVICE inline uint64_t bits(float value) { return __builtin_bit_cast(uint32_t, value); }
DEVICE inline uint64_t bits(double value) { return __builtin_bit_cast(uint64_t, value); }
DEVICE inline uint64_t bits(half_t value) { return __builtin_bit_cast(uint16_t, value); }
/// Moderate numbers of every sign.
DEVICE inline float real(uint64_t value) { return static_cast<int32_t>(value) / 65536.0f; }
DEVICE inline double real64(uint64_t value) { return static_cast<int64_t>(value) / 4294967296.0 / 1024.0; }
DEVICE inline half_t real16(uint64_t value) { return static_cast<half_t>(static_cast<int16_t>(value) / 512.0f); }

CONSTANT uint32_t primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
CONSTANT uint8_t squares[16] = {0, 1, 4, 9, 16, 25, 36, 49, 64, 81, 100, 121, 144, 169, 196, 225};
CONSTANT double thirds[4] = {0.0, 1.0 / 3, 2.0 / 3, 1.0};
GLOBAL uint32_t cells[16];
GLOBAL unsigned long long wide_cells[4];
GLOBAL float real_cell;
GLOBAL uint32_t ring[256];
GLOBAL uint8_t bytes[1024];

struct Point { int32_t x; float y; };
struct Complex { double re, im; DEVICE Complex times(Complex o) const { return {re * o.re - im * o.im, re * o.im + im * o.re}; } };
struct Fields { uint32_t low : 5, middle : 11, high : 16; };
union Either { uint64_t whole; uint16_t parts[4]; };

DEVICE inline uint32_t gcd(uint32_t x, uint32_t y) { while (y) { uint32_t r = x % y; x = y; y = r; } return x; }
DEVICE inline uint64_t mix(uint64_t x) { x ^= x >> 33; x *= 0xff51afd7ed558ccdull; x ^= x >> 33; return x; }
template <typename T> DEVICE inline T clamp_to(T x, T low, T high) { return x < low ? low : x > high ? high : x; }
DEVICE inline uint32_t fibonacci(uint32_t n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
DEVICE bool is_odd(uint64_t x);
DEVICE inline bool is_even(uint64_t x) { return x == 0 ? true : is_odd(x & (x - 1)); }
DEVICE inline bool is_odd(uint64_t x) { return x == 0 ? false : is_even(x & (x - 1)); }
DEVICE inline void quicksort(uint16_t *first, uint16_t *last) {
  if (last - first < 2) return;
  uint16_t pivot = *first, *low = first, *high = first + 1;
  for (uint16_t *at = first + 1; at < last; ++at)
    if (*at < pivot) { uint16_t seen = *at; *at = *high; *high++ = seen; }
  low = high - 1; *first = *low; *low = pivot;
  quicksort(first, low);
  quicksort(high, last);
}
DEVICE inline double partition(double x, int depth) { double half = x / 2 + depth; return depth <= 0 ? x : partition(half, depth - 1) + partition(x - half, depth - 2); }
DEVICE inline uint64_t twice(uint64_t x) { return x * 2 + 1; }
DEVICE inline uint64_t flipped(uint64_t x) { return ~x; }
DEVICE inline uint64_t mixed_up(uint64_t x) { uint32_t deep[4] = {1, 2, static_cast<uint32_t>(x), 4}; return mix(x) + deep[x & 3]; }
DEVICE __attribute__((noinline)) uint64_t apart(uint64_t x, uint32_t n) { return (x << (n & 63)) ^ (x >> (-n & 63)); }
"""

_INTEGERS = [
    Body(f"{kind}{bits}_arithmetic", f"{sign}int{bits}_t x = a, y = b; {sign}int{bits}_t z = x * 5 + y; z ^= x - y; "
         f"z = z * z + (x > y ? x : y); return static_cast<uint{bits}_t>(z);")
    for bits in (8, 16, 32, 64) for kind, sign in (("i", ""), ("u", "u"))
]  # fmt: skip
_DIVISIONS = [
    Body(f"{kind}{bits}_division", f"{sign}int{bits}_t x = a, y = b | 1; if (y == -1) y = 7; "
         f"return static_cast<uint{bits}_t>(x / y * 31 + x % y);".replace("if (y == -1)", "if (y + 1 == 0)"))
    for bits in (8, 16, 32, 64) for kind, sign in (("i", ""), ("u", "u"))
]  # fmt: skip
_SHIFTS = [
    Body(f"{kind}{bits}_shifts", f"{sign}int{bits}_t x = a; uint32_t n = b & {bits - 1}; "
         f"return static_cast<uint{bits}_t>((x >> n) ^ (static_cast<uint{bits}_t>(x) << (n / 2)));")
    for bits in (8, 16, 32, 64) for kind, sign in (("i", ""), ("u", "u"))
]  # fmt: skip
_FLOATS = [
    Body("float_arithmetic", "float x = real(a), y = real(b); return bits(x * y + x / (y + 0.5f) - 3 * y);", result="float"),
    Body("double_arithmetic", "double x = real64(a), y = real64(b); return bits(x * y + x / (y + 0.5) - 3 * y);", result="double"),
    Body("half_arithmetic", "half_t x = real16(a), y = real16(b); half_t z = x * y; z = z + x; z = z - y; return bits(z);"),
    Body("half_minimum", "half_t x = real16(a), y = real16(b); return bits(x < y ? x : y) | bits(x > y ? x : y) << 16;"),
    Body("half_pair", "half2_t x = {real16(a), real16(a >> 16)}, y = {real16(b), real16(b >> 16)}; x = x * y + y.yx; "
         "return __builtin_bit_cast(uint32_t, x);"),
    Body("half_convert", "return bits(static_cast<half_t>(real(a))) | static_cast<uint64_t>(static_cast<int32_t>(real16(b))) << 32;"),
    Body("half_parameter", "half_t z = a + a; return bits(z) | static_cast<uint64_t>(b) << 16;", ("half_t", "uint16_t")),
    Body("float_parameter", "return bits(a < b ? a : 1.5f) ^ bits(b);", ("float", "float"), result="float"),
    Body("double_parameter", "return a < b ? 1 : a > b ? 2 : a == b ? 3 : 4;", ("double", "double")),
    Body("float_compare", "float x = real(a), y = real(b); return (x < y) | (x <= y) << 1 | (x == y) << 2 | (x != y) << 3;"),
    Body("float_round", "float x = real(a); return static_cast<uint32_t>(static_cast<int32_t>(floorf(x) + ceilf(x) * 3 + truncf(x) * 7 + rintf(x)));"),
    Body("float_to_integer", "return static_cast<uint64_t>(static_cast<int64_t>(real64(a))) ^ static_cast<uint32_t>(static_cast<int32_t>(real(b)));"),
    Body("integer_to_float", "return bits(static_cast<float>(a)) ^ bits(static_cast<float>(static_cast<int64_t>(b)));", result="float"),
    Body("integer_to_double", "return bits(static_cast<double>(a) + static_cast<double>(static_cast<int64_t>(b)));", result="double"),
    Body("float_fma", "return bits(fmaf(real(a), real(b), 0.125f));", result="float"),
    Body("double_fma", "return bits(fma(real64(a), real64(b), 0.125));", result="double"),
]  # fmt: skip
_MATHEMATICS = [
    Body(f"math_{name}", f"float x = real(a) / 64, y = real(b) / 64; return bits({name}f({arguments}));", result="float", ulps=ulps)
    for name, arguments, ulps in (
        ("sin", "x", 4), ("cos", "x", 4), ("tan", "x", 8), ("exp", "x / 16", 4), ("exp2", "x / 16", 4), ("log", "x * x + 0.01f", 4),
        ("log2", "x * x + 0.01f", 4), ("log10", "x * x + 0.01f", 4), ("sqrt", "x * x + 0.01f", 1), ("cbrt", "x", 4),
        ("pow", "x * x + 0.01f, y / 128", 16), ("fmod", "x, y + 0.001f", 0), ("hypot", "x, y", 4), ("atan2", "x, y", 6),
        ("asin", "x / 600", 6), ("tanh", "x / 100", 6), ("erf", "x / 100", 8), ("copysign", "x, y", 0), ("fmin", "x, y", 0),
        ("fmax", "x, y", 0), ("fabs", "x", 0), ("ldexp", "x, static_cast<int>(b & 15)", 0), ("remainder", "x, y + 0.001f", 0),
    )
] + [
    Body(f"math_{name}_double", f"double x = real64(a) / 2048, y = real64(b) / 2048; return bits({name}({arguments}));",
         result="double", ulps=ulps)
    for name, arguments, ulps in (("sin", "x", 4), ("exp", "x / 64", 4), ("log", "x * x + 0.01", 4), ("sqrt", "x * x", 1),
                                  ("pow", "x * x + 0.01, y / 512", 16), ("fmod", "x, y + 0.001", 0), ("floor", "x", 0))
]  # fmt: skip
_CONTROL = [
    Body("loop_hash", "uint32_t h = 2166136261u; for (uint32_t i = 0; i < (b & 31); ++i) h = (h ^ (a >> i)) * 16777619u; return h;"),
    Body("loop_gcd", "return gcd(a, b | 1);"),
    Body("loop_collatz", "uint32_t n = (a & 1023) + 1, steps = 0; while (n != 1 && steps < 200) { n = n & 1 ? 3 * n + 1 : n / 2; ++steps; } return steps;"),
    Body("loop_nested", "uint32_t s = 0; for (uint32_t i = 0; i < (a & 7); ++i) for (uint32_t j = i; j < (b & 7); ++j) "
         "{ if ((i ^ j) == 3) continue; if (j == 6) break; s = s * 3 + i * j + 1; } return s;"),
    Body("loop_do", "uint64_t x = a | 1, n = 0; do { x = x * 3 + (b & 255); } while ((x & 15) > 3 && ++n < 20); return x;"),
    Body("switch_dense", "switch (a & 7) { case 0: return b; case 1: return ~b; case 2: return b * 3; case 3: b += 5; case 4: return b >> 3; "
         "case 5: return mix(b); case 6: return gcd(b, 30); default: return 99; }"),
    Body("switch_sparse", "switch (static_cast<uint32_t>(a) % 1000) { case 3: return 1; case 100 ... 400: return b + 2; case 999: return 3; default: break; } return b ^ a;"),
    Body("if_divergent", "uint64_t r = 1; if (a & 1) { r = mix(a); if (b & 2) r += mix(b); else r -= b; } else if (a & 2) r = b / 7; return r;"),
    Body("if_early_return", "if (a & 1) return 5; if (b & 1) return a + 1; for (int i = 0; i < 40; ++i) if (((a >> i) & 3) == 3) return i; return b;"),
    Body("if_short_circuit", "return ((a & 4) && (b / (a & 4) & 1)) || (b % 3 == 0 && a % 5 != 0) ? a : b;"),
    Body("goto_out", "uint32_t n = 0; for (int i = 0; i < 8; ++i) for (int j = 0; j < 8; ++j) { ++n; if ((a >> (i + j) & 7) == 5) goto done; } "
         "n += 1000; done: return n;"),
    Body("calls_noinline", "uint64_t r = apart(a, static_cast<uint32_t>(b)); if (a & 1) r += apart(b, 7); return r;"),
    Body("calls_template", "return static_cast<uint32_t>(clamp_to<int32_t>(a, -1000, 1000)) + clamp_to<uint64_t>(b, 3, 1ull << 40);"),
]  # fmt: skip
_FRAMES = [
    Body("stack_array", "uint32_t t[16]; for (uint32_t i = 0; i < 16; ++i) t[i] = a * i + b; t[b & 15] = a; uint32_t s = 0; "
         "for (uint32_t i = 0; i < 16; ++i) s = s * 31 + t[(i * a) & 15]; return s;"),
    Body("stack_bytes", "uint8_t t[24] = {}; for (uint32_t i = 0; i < 40; ++i) t[(a >> (i & 31)) % 24] += i; return t[b % 24] | t[a % 23] << 8;"),
    Body("stack_doubles", "double t[5]; for (int i = 0; i < 5; ++i) t[i] = real64(a) * i; t[a % 5] += 1; return bits(t[b % 5]);", result="double"),
    Body("stack_volatile", "volatile uint64_t t[3] = {a, b, a ^ b}; t[a % 3] = t[b % 3] + 1; return t[0] ^ t[1] * 3 ^ t[2] * 5;"),
    Body("stack_structure", "struct { uint16_t h; uint64_t w; uint8_t b[5]; } t[3] = {}; t[a % 3].w = b; t[b % 3].b[a % 5] = 9; t[a & 1].h = 7; "
         "return t[0].w + t[1].w * 3 + t[2].w * 5 + t[b % 3].b[b % 5] + t[1].h;"),
    Body("stack_pointers", "uint64_t x = a, y = b; uint64_t *t[2] = {&x, &y}; *t[a & 1] += 3; *t[b & 1] *= 5; return x ^ (y << 1);"),
    Body("recursion", "return fibonacci(a % 9);"),
    Body("recursion_divergent", "return (a & 1 ? fibonacci(b % 7) : 100) + (b & 2 ? fibonacci(a % 5) : 1000);"),
    Body("recursion_mutual", "return is_even(a & 0xffff) | is_odd(b & 0xfff) << 1;"),
    Body("recursion_sorts", "uint16_t t[12]; for (uint32_t i = 0; i < 12; ++i) t[i] = (a >> (i * 3)) ^ (b >> i); quicksort(t, t + 12); "
         "uint64_t s = 0; for (uint32_t i = 0; i < 12; ++i) s = s * 7 + t[i]; return s;"),
    Body("recursion_doubles", "return bits(partition(real64(a), b % 6));", result="double", ulps=4),
    Body("function_pointer", "uint64_t (*f)(uint64_t) = a & 1 ? twice : b & 1 ? flipped : mixed_up; return f(a) + f(b);"),
    Body("function_pointers", "uint64_t (*f)(uint64_t) = twice; uint64_t x = a; for (uint32_t i = 0; i < (b & 3); ++i) "
         "{ x = f(x); f = (x >> i) & 1 ? mixed_up : f == twice ? flipped : twice; } return x;"),
]  # fmt: skip
_MEMORY = [
    Body("constant_table", "return primes[a & 7] * 1000 + squares[b & 15];"),
    Body("constant_doubles", "return bits(thirds[a & 3] * 3);", result="double"),
    Body("atomic_add_ring", "uint32_t i = atomicAdd(&cells[0], 1u); ring[i & 255] = static_cast<uint32_t>(a); return b;"),
    Body("atomic_add_divergent", "uint32_t i = atomicAdd(&cells[1], static_cast<uint32_t>(a & 3) + 1); return i < 100000;"),
    Body("atomic_add_unused", "atomicAdd(&cells[2], static_cast<uint32_t>(a)); return 0;"),
    Body("atomic_add_sometimes", "if (a & 1) atomicAdd(&cells[3], 1u); else if (b & 1) atomicAdd(&cells[4], 2u); return a & b;"),
    Body("atomic_wide", "atomicAdd(&wide_cells[a & 3], static_cast<unsigned long long>(b)); return 1;"),
    Body("atomic_limits", "atomicMax(&cells[5], static_cast<uint32_t>(a)); atomicMin(&cells[6], static_cast<uint32_t>(b)); return 2;"),
    Body("atomic_bits", "atomicOr(&cells[7], 1u << (a & 31)); atomicXor(&cells[8], static_cast<uint32_t>(b)); atomicAnd(&cells[9], 7u); return 3;"),
    Body("atomic_float", "atomicAdd(&real_cell, static_cast<float>(a & 15)); return 4;"),
    Body("atomic_cas", "uint32_t old = cells[10], seen; do { seen = old; old = atomicCAS(&cells[10], seen, seen + 3); } while (old != seen); return 5;"),
    Body("byte_memory", "bytes[a & 1023] = 7; uint8_t *at = &bytes[(a & 1016)]; at[b & 7] |= 7; return *at & 0;"),
    Body("vector_floats", "float2_t x = {real(a), real(b)}, y = x.yx * 2.0f + x; return bits(y.x) | bits(y.y) << 32;", result="bits"),
    Body("vector_shorts", "ushort4_t x = __builtin_bit_cast(ushort4_t, a), y = __builtin_bit_cast(ushort4_t, b); x = x * y + x.wzyx; "
         "return __builtin_bit_cast(uint64_t, x);"),
    Body("vector_bytes", "uchar8_t x = __builtin_bit_cast(uchar8_t, a), y = __builtin_bit_cast(uchar8_t, b); x = (x + y) ^ x.s76543210; "
         "return __builtin_bit_cast(uint64_t, x);"),
    Body("vector_parameter", "return static_cast<uint64_t>(a.x * b.y) << 32 | (a.y - b.x);", ("uint2_t", "uint2_t")),
    Body("byte_parameter", "uint8_t z = a * b; return z;", ("uint8_t", "int8_t")),
    Body("short_parameter", "return static_cast<uint16_t>(a * 3 - b);", ("int16_t", "uint16_t")),
    Body("struct_fields", "Point p = {static_cast<int32_t>(a), real(b)}; if (p.x & 1) p.y = p.y * 2; p.x += 3; return static_cast<uint32_t>(p.x) + bits(p.y);"),
    Body("struct_method", "Complex c = {real64(a), 1.0}; c = c.times({2.0, real64(b)}); return bits(c.re - c.im);", result="double"),
    Body("struct_bit_fields", "Fields f = __builtin_bit_cast(Fields, static_cast<uint32_t>(a)); f.middle += b; return f.low + f.middle * 3 + f.high * 7;"),
    Body("union_parts", "Either e = {a}; e.parts[2] += e.parts[0]; e.parts[1] ^= static_cast<uint16_t>(b); return e.whole;"),
    Body("bit_counts", "return __builtin_popcountll(a) + __builtin_clzll(a | 1) * 100 + __builtin_ctzll(b | 1ull << 63) * 10000;"),
    Body("byte_swaps", "return __builtin_bswap64(a) ^ __builtin_bitreverse32(static_cast<uint32_t>(b));"),
    Body("multiply_high", "return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);"),
    Body("checked_add", "uint32_t s; bool o = __builtin_add_overflow(static_cast<uint32_t>(a), static_cast<uint32_t>(b), &s); return s + (o ? 1ull << 40 : 0);"),
]  # fmt: skip

BODIES = [*_INTEGERS, *_DIVISIONS, *_SHIFTS, *_FLOATS, *_MATHEMATICS, *_CONTROL, *_FRAMES, *_MEMORY]

_DEVICE = """
#define DEVICE __device__
#define CONSTANT __constant__ const
#define GLOBAL __device__
"""

_HOST = """
#include <math.h>
#include <stdint.h>
#include <string.h>
#define DEVICE
#define CONSTANT static const
#define GLOBAL
template <typename T> T change(T *at, T value) { T old = *at; *at = value; return old; }
template <typename T> T atomicAdd(T *at, T by) { return change(at, static_cast<T>(*at + by)); }
template <typename T> T atomicMax(T *at, T by) { return change(at, *at > by ? *at : by); }
template <typename T> T atomicMin(T *at, T by) { return change(at, *at < by ? *at : by); }
template <typename T> T atomicOr(T *at, T by) { return change(at, *at | by); }
template <typename T> T atomicXor(T *at, T by) { return change(at, *at ^ by); }
template <typename T> T atomicAnd(T *at, T by) { return change(at, *at & by); }
template <typename T> T atomicCAS(T *at, T seen, T to) { return change(at, *at == seen ? to : *at); }
"""


def _function(body: Body) -> str:
    a, b = body.types
    return f"DEVICE uint64_t {body.name}_body({a} a, {b} b) {{ {body.text} }}\n"


def device_source(bodies: list[Body]) -> str:
    """Hooks `NAME(offset, a, b)`, each leaving what its body returns in `results[offset / 16]`."""
    hooks = "".join(
        _function(body) + f"LUTHIER_HOOK_ANNOTATE {body.name}(uint32_t offset, {body.types[0]} a, {body.types[1]} b) "
        f"{{ results[offset / 16] = {body.name}_body(a, b); }}\n"
        for body in bodies
    )
    return f"{_DEVICE}{PRELUDE}__device__ uint64_t results[256];\n{hooks}"


def host_source(bodies: list[Body]) -> str:
    """Functions `NAME(count, a, b, results)` over arrays of 64-bit values."""
    functions = "".join(
        _function(body) + f'extern "C" void {body.name}(uint64_t count, const uint64_t *as, const uint64_t *bs, '
        f"uint64_t *results) {{ for (uint64_t i = 0; i < count; ++i) {{ {body.types[0]} a; {body.types[1]} b; "
        "memcpy(&a, &as[i], sizeof a); memcpy(&b, &bs[i], sizeof b); "
        f"results[i] = {body.name}_body(a, b); }} }}\n"
        for body in bodies
    )
    return f"{_HOST}{PRELUDE}{functions}"
