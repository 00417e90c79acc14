#include "bounds.h"

#include "bytes.h"

namespace luthier {

using namespace layout;

namespace {

using Translate = uint32_t (*)(char *wave, char *cache, uint64_t lanes, uint64_t size, uint64_t flat);

thread_local BoundsCheck *current = nullptr;
thread_local Translate look_up = nullptr;

uint32_t translate(char *wave, char *cache, uint64_t lanes, uint64_t size, uint64_t flat) {
  char *context = pointer<char *>(wave, wave::context);
  for (;;) {
    const uint32_t code = look_up(wave, cache, lanes, size, flat);
    if (code == 0 || get(context, context::fault_kind) != FAULT_MEMORY)
      return code;
    // Lanes before this one have their addresses; this one's is the same on the host.
    const unsigned lane = get(context, context::fault_lane);
    const uint64_t record = (reinterpret_cast<uint64_t>(cache) - get(wave, wave::table)) / record::kSize;
    if (!current->passes(wave, record, get(context, context::fault_address), size, lane))
      return code;
    lanes = lane == 63 ? 0 : lanes & ~uint64_t{0} << (lane + 1);
    if (!lanes)
      return 0;
  }
}

} // namespace

void activate(BoundsCheck *check, void *translate) {
  current = check;
  look_up = reinterpret_cast<Translate>(translate);
}

uint64_t checked_translate() { return reinterpret_cast<uint64_t>(translate); }

} // namespace luthier
