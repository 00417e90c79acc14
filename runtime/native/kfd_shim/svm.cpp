#include "svm.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <pthread.h>
#include <sys/mman.h>

namespace luthier {

namespace {

constexpr unsigned kMostNodes = 64;

std::atomic<SvmRanges *> the_ranges = nullptr;

// Return whether all of these pages are mapped.
bool has_pages(uint64_t start, uint64_t size) {
  constexpr uint64_t kStep = 1 << 16; // pages
  std::vector<unsigned char> present(std::min(size / kPageSize, kStep));
  for (uint64_t done = 0; done < size; done += kStep * kPageSize)
    if (mincore(reinterpret_cast<void *>(start + done), std::min(size - done, kStep * kPageSize), present.data()) != 0)
      return false;
  return true;
}

bool is_valid(const kfd::SvmAttribute &attribute) {
  switch (attribute.type) {
  case KFD_IOCTL_SVM_ATTR_ACCESS:
  case KFD_IOCTL_SVM_ATTR_ACCESS_IN_PLACE:
  case KFD_IOCTL_SVM_ATTR_NO_ACCESS:
    return attribute.value < kMostNodes;
  default:
    return attribute.type <= KFD_IOCTL_SVM_ATTR_GRANULARITY;
  }
}

} // namespace

SvmRanges *SvmRanges::current() { return the_ranges; }

int SvmRanges::set(uint64_t start, uint64_t size, std::span<const kfd::SvmAttribute> wanted) {
  if (!std::all_of(wanted.begin(), wanted.end(), is_valid))
    return -EINVAL;
  if (!has_pages(start, size))
    return -EFAULT;
  static const int registered = pthread_atfork(nullptr, nullptr, [] { the_ranges = nullptr; });
  (void)registered;
  the_ranges = this;
  std::lock_guard lock(mutex_);
  const uint64_t end = start + size;
  split(start);
  split(end);
  for (uint64_t at = start; at < end;) {
    auto entry = ranges_.lower_bound(at);
    const bool is_new = entry == ranges_.end() || entry->first > at;
    if (is_new) {
      Range made{std::min(end, entry == ranges_.end() ? end : entry->first)};
      if (const auto other = memory_.find(at); other && other->gpu_address == other->address && !other->mapped.empty())
        return -EADDRINUSE; // the driver's own memory
      entry = ranges_.emplace(at, made).first;
    }
    for (const kfd::SvmAttribute &attribute : wanted)
      apply(entry->second, attribute);
    make_known(entry->first, entry->second, is_new);
    at = entry->second.end;
  }
  return 0;
}

void SvmRanges::apply(Range &range, const kfd::SvmAttribute &attribute) {
  const uint64_t node = uint64_t{1} << attribute.value % kMostNodes;
  switch (attribute.type) {
  case KFD_IOCTL_SVM_ATTR_PREFERRED_LOC:
    range.preferred = attribute.value;
    break;
  case KFD_IOCTL_SVM_ATTR_PREFETCH_LOC:
    range.prefetched = attribute.value;
    break;
  case KFD_IOCTL_SVM_ATTR_ACCESS:
    range.accessible |= node;
    range.accessible_in_place &= ~node;
    break;
  case KFD_IOCTL_SVM_ATTR_ACCESS_IN_PLACE:
    range.accessible &= ~node;
    range.accessible_in_place |= node;
    break;
  case KFD_IOCTL_SVM_ATTR_NO_ACCESS:
    range.accessible &= ~node;
    range.accessible_in_place &= ~node;
    break;
  case KFD_IOCTL_SVM_ATTR_SET_FLAGS:
    range.flags |= attribute.value;
    break;
  case KFD_IOCTL_SVM_ATTR_CLR_FLAGS:
    range.flags &= ~attribute.value;
    break;
  case KFD_IOCTL_SVM_ATTR_GRANULARITY:
    range.granularity = std::min<uint32_t>(attribute.value, 0x3F);
    break;
  }
}

int SvmRanges::get(uint64_t start, uint64_t size, std::span<kfd::SvmAttribute> asked) const {
  if (!has_pages(start, size))
    return -EFAULT;
  std::lock_guard lock(mutex_);
  std::vector<Range> ranges;
  for (const auto &[address, range] : ranges_)
    if (address < start + size && range.end > start)
      ranges.push_back(range);
  if (ranges.empty())
    ranges.push_back(Range{});
  // A location counts only if it is the same in all ranges, an access only if all of them allow it.
  const auto common = [&](uint32_t Range::*location) {
    const uint32_t first = ranges.front().*location;
    const bool is_same =
        std::all_of(ranges.begin(), ranges.end(), [&](auto &range) { return range.*location == first; });
    return is_same ? first : uint32_t{KFD_IOCTL_SVM_LOCATION_UNDEFINED};
  };
  Range all = ranges.front();
  uint32_t any_flags = 0;
  for (const Range &range : ranges) {
    all.accessible &= range.accessible;
    all.accessible_in_place &= range.accessible_in_place;
    all.flags &= range.flags;
    any_flags |= range.flags;
    all.granularity = std::min(all.granularity, range.granularity);
  }
  for (kfd::SvmAttribute &attribute : asked) {
    const uint64_t node = uint64_t{1} << attribute.value % kMostNodes;
    switch (attribute.type) {
    case KFD_IOCTL_SVM_ATTR_PREFERRED_LOC:
      attribute.value = common(&Range::preferred);
      break;
    case KFD_IOCTL_SVM_ATTR_PREFETCH_LOC:
      attribute.value = common(&Range::prefetched);
      break;
    case KFD_IOCTL_SVM_ATTR_ACCESS:
      if (!is_valid(attribute))
        return -EINVAL;
      attribute.type = all.accessible & node            ? KFD_IOCTL_SVM_ATTR_ACCESS
                       : all.accessible_in_place & node ? KFD_IOCTL_SVM_ATTR_ACCESS_IN_PLACE
                                                        : KFD_IOCTL_SVM_ATTR_NO_ACCESS;
      break;
    case KFD_IOCTL_SVM_ATTR_SET_FLAGS:
      attribute.value = all.flags;
      break;
    case KFD_IOCTL_SVM_ATTR_CLR_FLAGS:
      attribute.value = ~any_flags;
      break;
    case KFD_IOCTL_SVM_ATTR_GRANULARITY:
      attribute.value = all.granularity;
      break;
    default:
      return -EINVAL;
    }
  }
  return 0;
}

void SvmRanges::forget(uint64_t start, uint64_t size) {
  std::lock_guard lock(mutex_);
  drop(start, size);
}

long SvmRanges::replace(uint64_t start, uint64_t size, const std::function<long()> &replace) {
  std::lock_guard lock(mutex_);
  const long result = replace();
  if (result != -1)
    drop(start, size);
  return result;
}

void SvmRanges::drop(uint64_t start, uint64_t size) {
  if (ranges_.empty())
    return;
  const uint64_t end = start + (size + kPageSize - 1) / kPageSize * kPageSize;
  split(start);
  split(end);
  for (auto at = ranges_.lower_bound(start); at != ranges_.end() && at->first < end;) {
    memory_.drop(at->first, at->first);
    at = ranges_.erase(at);
  }
}

// Split the range that contains an address, so that it ends there.
void SvmRanges::split(uint64_t address) {
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin())
    return;
  auto &[start, range] = *--after;
  if (start == address || range.end <= address)
    return;
  Range second = range;
  range.end = address;
  memory_.drop(start, start);
  make_known(start, range, true);
  ranges_.emplace(address, second);
  make_known(address, second, true);
}

void SvmRanges::make_known(uint64_t start, const Range &range, bool is_new) {
  std::vector<uint32_t> nodes;
  for (uint32_t node = 1; node < kMostNodes; ++node)
    if ((range.accessible | range.accessible_in_place) >> node & 1)
      nodes.push_back(node);
  if (is_new)
    memory_.adopt({start, range.end - start, start, std::move(nodes)});
  else
    memory_.set_mapped(start, start, std::move(nodes));
  memory_.set_fine(start, start, range.flags & KFD_IOCTL_SVM_FLAG_COHERENT ? wire::kFineShared : wire::kFineNone);
}

} // namespace luthier
