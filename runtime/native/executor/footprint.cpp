#include "footprint.h"

#include <algorithm>

#include "bytes.h"

namespace luthier {

using namespace layout;

void Footprint::observe(const Instruction &instruction, const char *access, uint32_t event) {
  if (event != EVENT_ACCESS)
    return;
  const char *wave = instruction.wave;
  const unsigned use = pointer<const uint16_t *>(plan_, plan::uses)[instruction.record];
  const auto *addresses = reinterpret_cast<const uint64_t *>(access + access::addresses.offset);
  const uint64_t lds = get(wave, wave::lds), lds_size = get(wave, wave::lds_size), scratch = get(wave, wave::scratch);
  const uint64_t scratch_size = get(wave, wave::scratch_size) * get(plan_, plan::wave_size);
  const uint64_t size = get(access, access::size);
  const bool in_a_row = get(access, access::kind) == ACCESS_ROW;
  for (uint64_t rest = get(access, access::mask); rest; rest &= rest - 1) {
    const unsigned lane = __builtin_ctzll(rest);
    const uint64_t address = in_a_row ? addresses[0] + lane * size : addresses[lane];
    if (address - lds >= lds_size && address - scratch >= scratch_size)
      add(address, size, use);
  }
}

// An access that is not known to only read or only write may do both.
void Footprint::add(uint64_t address, uint64_t size, unsigned use) {
  const bool known = use & (USE_READS | USE_WRITES);
  const uint64_t end = address + size;
  for (uint64_t at = address, next; at < end; at = next) {
    next = std::min(end, (at / 64 + 1) * 64);
    const uint64_t bits = ~uint64_t{0} >> (64 - (next - at)) << at % 64, word = at % kPage / 64;
    Page &page = page_of(at / kPage);
    if (!known || use & USE_READS)
      page.read[word] |= bits;
    if (!known || use & USE_WRITES)
      page.written[word] |= bits;
  }
}

Footprint::Page &Footprint::page_of(uint64_t number) {
  Recent &recent = recent_[number % kRecent];
  if (recent.number != number)
    recent = {number, &pages_[number * kPage]};
  return *recent.page;
}

} // namespace luthier
