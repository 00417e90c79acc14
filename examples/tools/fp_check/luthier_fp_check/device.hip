// Device side of the check for exceptional numbers: a look at each result, and at operands only where that has found
// one.
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

/// By site, in lanes: NaN that is new, infinity that is new, NaN of an operand, infinity of an operand.
__device__ uint64_t found[16384][4];

namespace {

enum Class : int { NaN = 0x3, Infinity = 0x204 }; // as v_cmp_class has them

__device__ inline bool is(float value, int classes) { return __builtin_amdgcn_classf(value, classes); }
__device__ inline bool is(double value, int classes) { return __builtin_amdgcn_class(value, classes); }
__device__ inline bool is(_Float16 value, int classes) { return __builtin_amdgcn_classh(value, classes); }

/// The number that bits of a register are; a half is in the lower ones.
template <typename Number, typename Bits> __device__ inline Number as(Bits bits) {
  if constexpr (sizeof(Number) < sizeof(Bits))
    return __builtin_bit_cast(Number, static_cast<uint16_t>(bits));
  else
    return __builtin_bit_cast(Number, bits);
}

/// What an instruction has made in a lane: by column of `found` whether one of its numbers is that.
struct Seen {
  bool any = false, columns[4] = {};
};

template <typename Result, typename... Operands>
__device__ inline void look(Seen &seen, Result result, Operands... operands) {
  const bool exceptional = is(result, NaN | Infinity), nan = is(result, NaN);
  const bool flow = (is(operands, nan ? NaN : NaN | Infinity) || ...);
  seen.any |= exceptional;
  for (uint32_t column = 0; column < 4; ++column)
    seen.columns[column] |= exceptional && column == 2u * flow + !nan;
}

/// Adds up lanes; nearly always there are none.
__device__ inline void add(uint32_t site, const Seen &seen) {
  if (__ballot(seen.any) == 0)
    return;
  for (uint32_t column = 0; column < 4; ++column)
    if (const uint64_t lanes = __ballot(seen.columns[column]))
      luthier::sAtomicAdd<uint64_t>(&found[site][column], __builtin_popcountll(lanes));
}

template <typename Result, typename... Operands>
__device__ inline void one(uint32_t site, Result result, Operands... operands) {
  Seen seen;
  look(seen, result, operands...);
  add(site, seen);
}

} // namespace

// Registers are given as bits, and as zero what an operation does not read.
LUTHIER_HOOK_ANNOTATE f16(uint32_t result, uint32_t a, uint32_t b, uint32_t c, uint32_t site) {
  one(site, as<_Float16>(result), as<_Float16>(a), as<_Float16>(b), as<_Float16>(c));
}
LUTHIER_HOOK_ANNOTATE f32(uint32_t result, uint32_t a, uint32_t b, uint32_t c, uint32_t site) {
  one(site, as<float>(result), as<float>(a), as<float>(b), as<float>(c));
}
LUTHIER_HOOK_ANNOTATE f64(uint64_t result, uint64_t a, uint64_t b, uint64_t c, uint32_t site) {
  one(site, as<double>(result), as<double>(a), as<double>(b), as<double>(c));
}
LUTHIER_HOOK_ANNOTATE pk_f16(uint32_t result, uint32_t a, uint32_t b, uint32_t c, uint32_t site) {
  Seen seen;
  for (int shift = 0; shift < 32; shift += 16)
    look(seen, as<_Float16>(result >> shift), as<_Float16>(a >> shift), as<_Float16>(b >> shift),
         as<_Float16>(c >> shift));
  add(site, seen);
}
LUTHIER_HOOK_ANNOTATE pk_f32(uint64_t result, uint64_t a, uint64_t b, uint64_t c, uint32_t site) {
  Seen seen;
  for (int shift = 0; shift < 64; shift += 32)
    look(seen, as<float>(static_cast<uint32_t>(result >> shift)), as<float>(static_cast<uint32_t>(a >> shift)),
         as<float>(static_cast<uint32_t>(b >> shift)), as<float>(static_cast<uint32_t>(c >> shift)));
  add(site, seen);
}

// Conversions: the result's type first.
LUTHIER_HOOK_ANNOTATE f16_f32(uint32_t result, uint32_t a, uint32_t site) {
  one(site, as<_Float16>(result), as<float>(a));
}
LUTHIER_HOOK_ANNOTATE f32_f16(uint32_t result, uint32_t a, uint32_t site) {
  one(site, as<float>(result), as<_Float16>(a));
}
LUTHIER_HOOK_ANNOTATE f32_f64(uint32_t result, uint64_t a, uint32_t site) {
  one(site, as<float>(result), as<double>(a));
}
LUTHIER_HOOK_ANNOTATE f64_f32(uint64_t result, uint32_t a, uint32_t site) {
  one(site, as<double>(result), as<float>(a));
}
LUTHIER_HOOK_ANNOTATE pkrtz_f16_f32(uint32_t result, uint32_t a, uint32_t b, uint32_t site) {
  Seen seen;
  look(seen, as<_Float16>(result), as<float>(a));
  look(seen, as<_Float16>(result >> 16), as<float>(b));
  add(site, seen);
}
