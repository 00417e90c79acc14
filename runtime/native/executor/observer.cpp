#include "observer.h"

#include "bytes.h"
#include "register_shadow.h"

namespace luthier {

namespace {

thread_local Observer *current = nullptr;

// Compiled code leaves the upper halves of vector registers dirty, which would slow down the code of this library.
void clear_upper_halves() {
#ifdef __x86_64__
  static const bool has_them = __builtin_cpu_supports("avx");
  if (has_them)
    asm volatile("vzeroupper" ::: "memory");
#endif
}

void observe(char *wave, const char *record, const char *access, uint32_t event) {
  clear_upper_halves();
  if (event == layout::EVENT_TAINTS)
    return track_registers(wave);
  if (event == layout::EVENT_SEARCH)
    return search_registers(wave);
  const uint64_t offset = reinterpret_cast<uint64_t>(record) - get(wave, layout::wave::table);
  const auto number = static_cast<uint32_t>(offset / layout::record::kSize);
  if (current) // code of every variant reports some events, also without an observer
    current->observe({wave, number, get(record, layout::record::count)}, access, event);
}

} // namespace

void activate(Observer *observer) { current = observer; }

uint64_t observe_function() { return reinterpret_cast<uint64_t>(observe); }

} // namespace luthier
