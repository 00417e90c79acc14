#include "translate.h"

#include <algorithm>

#include "bytes.h"

namespace luthier {

using namespace layout;

namespace {

class Translation {
public:
  Translation(const char *wave, char *cache, uint64_t size)
      : wave_(wave), context_(pointer<char *>(wave, wave::context)), cache_(cache), size_(size) {}

  // Translate the address of a lane; return false, with the fault in the context, if nothing is there.
  bool lane(unsigned number, bool flat) {
    lane_ = number;
    char *place = context_ + context::addresses.offset + size_t{8} * number;
    std::memcpy(&address_, place, 8);
    if (!(flat && (shared() || own() || scratch())))
      memory();
    std::memcpy(place, &address_, 8);
    return !fault_;
  }

private:
  // Each of these: true if the address is of its kind; it is a host address then, or there is a fault.

  // The upper half names the aperture, the lower one is the offset.
  bool shared() {
    return (address_ & ~kLow) == get(wave_, wave::shared_base) &&
           inside(address_ & kLow, get(wave_, wave::lds_size), get(wave_, wave::lds), FAULT_LDS);
  }
  bool own() {
    return (address_ & ~kLow) == get(wave_, wave::private_base) &&
           inside(address_ & kLow, get(wave_, wave::scratch_size), row(lane_), FAULT_SCRATCH);
  }

  // Global addresses of scratch: the wave's base, a lane's number, an offset. A lane may use another one's; that of
  // another wave is a fault.
  bool scratch() {
    const uint64_t base = get(wave_, wave::flat_scratch);
    if (address_ >> (FLAT_SCRATCH_BIT - 1) != 2 || base >> (FLAT_SCRATCH_BIT - 1) != 2)
      return false;
    const uint64_t low = (uint64_t{1} << FLAT_LANE_SHIFT) - 1;
    const uint64_t owner = address_ >> FLAT_LANE_SHIFT & ((1u << (FLAT_SCRATCH_BIT - 1 - FLAT_LANE_SHIFT)) - 1);
    return inside((address_ & low) - (base & low), get(wave_, wave::scratch_size), row(owner), FAULT_SCRATCH);
  }

  void memory() {
    const auto *first = pointer<const Range *>(context_, context::ranges);
    const auto *last = first + get(context_, context::range_count);
    const auto *after = std::upper_bound(first, last, address_,
                                         [](uint64_t address, const Range &range) { return address < range.address; });
    if (after == first || address_ - after[-1].address + size_ > after[-1].size)
      return aliased();
    const auto index = static_cast<uint32_t>(after - first - 1);
    std::memcpy(cache_, &index, sizeof index);
  }

  // Memory that lies elsewhere on the host. The cache stays: the fast check does not translate.
  void aliased() {
    const char *entry = pointer<const char *>(context_, context::aliases);
    for (uint64_t left = get(context_, context::alias_count); left; --left, entry += alias::kSize) {
      const uint64_t offset = address_ - get(entry, alias::address), length = get(entry, alias::size);
      if (offset < length && offset + size_ <= length) {
        address_ = get(entry, alias::host) + offset;
        return;
      }
    }
    fault(address_, FAULT_MEMORY);
  }

  bool inside(uint64_t offset, uint64_t length, uint64_t host, uint64_t kind) {
    if (size_ > length || offset > length - size_)
      fault(offset, kind);
    else
      address_ = host + offset;
    return true;
  }

  void fault(uint64_t address, uint64_t kind) {
    put(context_, context::fault_address, address);
    put(context_, context::fault_size, size_);
    put(context_, context::fault_lane, lane_);
    put(context_, context::fault_kind, kind);
    fault_ = true;
  }

  uint64_t row(uint64_t lane) const { return get(wave_, wave::scratch) + lane * get(wave_, wave::scratch_size); }

  static constexpr uint64_t kLow = 0xFFFFFFFF;
  const char *wave_;
  char *context_, *cache_;
  const uint64_t size_;
  uint64_t address_ = 0;
  unsigned lane_ = 0;
  bool fault_ = false;
};

} // namespace

int translate(const char *wave, char *cache, uint64_t lanes, uint64_t size, uint64_t flat) {
  Translation translation(wave, cache, size);
  for (uint64_t left = lanes; left; left &= left - 1)
    if (!translation.lane(static_cast<unsigned>(__builtin_ctzll(left)), flat == 1))
      return 1;
  return 0;
}

} // namespace luthier
