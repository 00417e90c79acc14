#include "lds_checks.h"

namespace luthier {

void LdsChecks::observe(const Instruction &instruction, const char *access, uint32_t) {
  const uint64_t lanes = get(access, layout::access::mask);
  uint64_t address;
  std::memcpy(&address, access + layout::access::addresses.offset + __builtin_ctzll(lanes) * sizeof address,
              sizeof address);
  const unsigned below = address >> 31 & 1; // of 32 bits
  note(
      instruction, wire::FindingKind::kOutside, lanes,
      [&](wire::Sighting &sighting) {
        sighting.address = address;
        sighting.in_lds = true;
        sighting.size = get(access, layout::access::size);
        sighting.extent = get(pointer<const char *>(instruction.wave, layout::wave::group), layout::group::lds_size);
      },
      below);
}

} // namespace luthier
