#include "register_shadow.h"

#include <algorithm>

#include "bytes.h"
#include "unit_numbers.h"

namespace luthier {

using namespace layout;

namespace {

constexpr uint64_t kUnit = 4; // bytes of a register of 32 bits

// A wave that keeps undefined bits searches for them this often, and then only at powers of two.
constexpr uint64_t kSearches = 16;

char *shadow_of(const char *launch, char *wave) { return wave + get(launch, launch::shadow); }

const char *launch_of(const char *wave) {
  return pointer<const char *>(pointer<const char *>(wave, wave::context), context::launch);
}

uint64_t size_at(const char *launch, uint64_t offset) {
  return offset < VECTORS ? kUnit : kUnit * get(launch, launch::wave_size);
}

// Set the undefined bits of all registers that a kernel has, except SCC.
void fill(const char *launch, char *shadow, int byte) {
  std::memset(shadow, byte, SCALARS);
  std::memset(shadow + VECTORS, byte, get(launch, launch::vgpr_bytes));
  if (const uint64_t size = get(launch, launch::agpr_bytes))
    std::memset(shadow + get(launch, launch::agprs), byte, size);
}

// Return whether no bit is set. The size is a multiple of `kUnit`.
bool is_clear(const char *bytes, uint64_t size) {
  constexpr uint64_t kAtOnce = 64; // compilers make vector code of it
  uint64_t at = 0;
  for (; at + kAtOnce <= size; at += kAtOnce) {
    uint64_t words[kAtOnce / 8], bits = 0;
    std::memcpy(words, bytes + at, kAtOnce);
    for (const uint64_t word : words)
      bits |= word;
    if (bits)
      return false;
  }
  return std::all_of(bytes + at, bytes + size, [](char byte) { return !byte; });
}

template <typename Each> void each_early(const char *launch, Each each) {
  const auto *early = pointer<const uint32_t *>(launch, launch::early);
  std::for_each_n(early, early ? get(launch, launch::early_count) : 0, each);
}

} // namespace

void start_register_shadow(const char *launch, char *wave) {
  char *shadow = shadow_of(launch, wave);
  if (get(launch, launch::stepping) & ALL_DEFINED)
    return;
  const bool all = !get(launch, launch::early);
  if (!(get(launch, launch::undefined) & UNWRITTEN_VALUES) || !all) {
    fill(launch, shadow, 0);
    put(shadow, wave::scc, uint64_t{0});
    if (!all)
      each_early(launch, [&](uint32_t offset) {
        if (offset == wave::scc.offset)
          put(shadow, wave::scc, uint64_t{1});
        else
          std::memset(shadow + offset, 0xFF, size_at(launch, offset));
      });
    return;
  }
  fill(launch, shadow, 0xFF);
  std::memset(shadow, 0, get(launch, launch::given_sgprs) * kUnit);
  std::memset(shadow + kUnit * units::FlatScratchSgpr, 0, 2 * kUnit);
  std::memset(shadow + kUnit * units::Ttmp, 0, units::Ttmps * kUnit);
  std::memset(shadow + EXEC, 0, 2 * kUnit);
  put(shadow, wave::scc, uint64_t{1});
  std::memset(shadow + VECTORS, 0, get(launch, launch::lane_image_size));
}

void track_registers(char *wave) {
  const uint64_t stepping = get(wave, wave::stepping);
  if (!(stepping & ALL_DEFINED))
    return; // another part of the same access did it
  const char *launch = launch_of(wave);
  char *shadow = shadow_of(launch, wave);
  fill(launch, shadow, 0);
  put(shadow, wave::scc, uint64_t{0});
  put(wave, wave::stepping, stepping & ~uint64_t{ALL_DEFINED});
  put(wave, wave::searches, uint64_t{0});
}

void search_registers(char *wave) {
  const uint64_t searches = get(wave, wave::searches) + 1;
  put(wave, wave::searches, searches);
  if (searches > kSearches && searches & (searches - 1))
    return;
  const char *launch = launch_of(wave), *shadow = shadow_of(launch, wave);
  bool clear = !get(shadow, wave::scc);
  each_early(launch, [&](uint32_t offset) { clear = clear && is_clear(shadow + offset, size_at(launch, offset)); });
  if (clear && is_clear(shadow, SCALARS) && is_clear(shadow + VECTORS, get(launch, launch::vgpr_bytes)) &&
      is_clear(shadow + get(launch, launch::agprs), get(launch, launch::agpr_bytes)))
    put(wave, wave::stepping, get(wave, wave::stepping) | ALL_DEFINED);
}

} // namespace luthier
