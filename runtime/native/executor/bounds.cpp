#include "bounds.h"

#include "bytes.h"
#include "translate.h"

namespace luthier {

using namespace layout;

namespace {

thread_local BoundsCheck *current = nullptr;

int checked_translate(const char *wave, char *cache, uint64_t lanes, uint64_t size, uint64_t flat) {
  const char *context = pointer<const char *>(wave, wave::context);
  for (;;) {
    const int code = translate(wave, cache, lanes, size, flat);
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

void activate(BoundsCheck *check) { current = check; }

uint64_t translate_function(bool checked) {
  return reinterpret_cast<uint64_t>(checked ? &checked_translate : &translate);
}

} // namespace luthier
