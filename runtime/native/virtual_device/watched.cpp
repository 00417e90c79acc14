#include "watched.h"

#include <algorithm>
#include <cstdio>

#include "bytes.h"

namespace luthier {

using namespace layout;

namespace {

constexpr uint64_t kMost = 4096; // findings of a launch

std::string_view rows(const std::vector<char> &all, uint64_t count, uint64_t size) {
  return {all.data(), std::min(count, kMost) * size};
}

} // namespace

Watched::Watched(Service &service, const char *plan) : service_(service), plan_(plan) {
  std::memcpy(watch_, pointer<const char *>(plan, plan::watch), sizeof watch_);
  if (get(watch_, watch::facts)) {
    found_.resize(kMost * found::kSize);
    put(watch_, watch::found, found_.data());
    put(watch_, watch::capacity, kMost);
  }
  if (get(watch_, watch::automaton)) {
    met_.resize(kMost * met::kSize);
    put(watch_, watch::met, met_.data());
    put(watch_, watch::met_capacity, kMost);
    put(watch_, watch::follow, reinterpret_cast<const void *>(&Watched::follow));
  }
}

// Compiled code calls this, which no exception may cross.
uint64_t Watched::follow(const char *watch, uint32_t state, uint32_t record, Transition *made) {
  auto &self = *reinterpret_cast<Watched *>(const_cast<char *>(watch));
  try {
    return self.service_.follow({get(self.plan_, plan::kernel), state, record}, made);
  } catch (const std::exception &problem) {
    if (!self.lost_.exchange(true))
      std::fprintf(stderr, "luthier: hazards are checked only in a part of a launch: %s\n", problem.what());
  }
  made[0] = {uint64_t{state} << FOLLOW_SHIFT | record, FOLLOW_ENDS};
  return 1;
}

void Watched::warn_of(const char *what, uint64_t count, uint64_t capacity) const {
  if (count > capacity)
    std::fprintf(stderr, "luthier: %llu more findings of a launch, of missing %s, are lost\n",
                 static_cast<unsigned long long>(count - capacity), what);
}

void Watched::tell(uint64_t launch) {
  const uint64_t count = get(watch_, watch::count), met = get(watch_, watch::met_count);
  if (!count && !met)
    return;
  warn_of("waits", count, kMost);
  warn_of("wait states", met, kMost);
  service_.ask(
      wire::Watched{get(plan_, plan::kernel), launch, rows(found_, count, found::kSize), rows(met_, met, met::kSize)});
}

} // namespace luthier
