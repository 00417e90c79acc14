#include "footprint.h"

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

// What is not known to read or to write may do both.
void Footprint::add(uint64_t address, uint64_t size, unsigned use) {
  const bool known = use & (USE_READS | USE_WRITES);
  for (uint64_t at = address; at < address + size; ++at) {
    if (at / kPage != last_) {
      last_ = at / kPage;
      found_ = &pages_[last_ * kPage];
    }
    const uint64_t bit = uint64_t{1} << at % 64, word = at % kPage / 64;
    if (!known || use & USE_READS)
      found_->read[word] |= bit;
    if (!known || use & USE_WRITES)
      found_->written[word] |= bit;
  }
}

} // namespace luthier
