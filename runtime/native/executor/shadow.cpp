#include "shadow.h"

#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

namespace luthier {

namespace {

uint64_t digest(const History &history) {
  uint64_t sum = history.readers;
  for (const Touch &touch : history.by)
    sum = (sum ^ touch.bits()) * 0x9E37'79B9'7F4A'7C15;
  return sum;
}

} // namespace

History &Histories::draft() {
  if (!draft_ && free_.empty()) {
    draft_ = static_cast<uint32_t>(all_.size());
    all_.emplace_back();
  } else if (!draft_) {
    draft_ = free_.back();
    free_.pop_back();
  }
  return all_[draft_].history;
}

uint32_t Histories::find() {
  Entry &entry = all_[draft_];
  const uint64_t wanted = digest(entry.history);
  for (unsigned index = 0; index < kRecent; ++index)
    if (const Entry &recent = all_[recent_[index]];
        digests_[index] == wanted && !recent.free && recent.history == entry.history)
      return recent_[index];
  entry.cells = 0;
  entry.free = false;
  const unsigned place = next_++ % kRecent;
  digests_[place] = wanted;
  return recent_[place] = std::exchange(draft_, 0);
}

void Histories::free_left() {
  for (const uint32_t number : left_)
    if (Entry &entry = all_[number]; entry.cells == 0 && !entry.free) {
      entry.free = true;
      free_.push_back(number);
    }
  left_.clear();
}

namespace {

// Chunks of former arenas, up to a limit of bytes.
struct KeptChunks {
  std::mutex mutex;
  std::vector<std::unique_ptr<uint32_t[]>> all;
  static KeptChunks &get() {
    static auto *const kept = new KeptChunks; // threads may end after static objects
    return *kept;
  }
};
constexpr size_t kMostKept = 64 << 20;

} // namespace

CellArena::~CellArena() {
  KeptChunks &kept = KeptChunks::get();
  std::lock_guard lock(kept.mutex);
  for (auto &chunk : chunks_)
    if ((kept.all.size() + 1) * kChunk * sizeof(uint32_t) <= kMostKept)
      kept.all.push_back(std::move(chunk));
}

void CellArena::grow() {
  KeptChunks &kept = KeptChunks::get();
  std::unique_ptr<uint32_t[]> chunk;
  {
    std::lock_guard lock(kept.mutex);
    if (!kept.all.empty()) {
      chunk = std::move(kept.all.back());
      kept.all.pop_back();
    }
  }
  if (!chunk)
    chunk.reset(new uint32_t[kChunk]);
  next_ = chunk.get();
  left_ = kChunk;
  chunks_.push_back(std::move(chunk));
}

std::vector<uint64_t> Shadow::pages() const {
  std::vector<uint64_t> all;
  all.reserve(page_count_);
  for (const Known &each : pages_)
    if (each.page)
      all.push_back(each.number);
  std::sort(all.begin(), all.end());
  return all;
}

Shadow::Page &Shadow::page(uint64_t number) {
  size_t place = place_of(number);
  if (Page *const known = pages_[place].page)
    return *known;
  if (2 * ++page_count_ > pages_.size()) {
    grow_pages();
    place = place_of(number);
  }
  static_assert(std::is_trivially_destructible_v<Page> && sizeof(Page) % (2 * sizeof(uint32_t)) == 0);
  pages_[place] = {number, new (arena_.take(sizeof(Page) / sizeof(uint32_t))) Page};
  return *pages_[place].page;
}

void Shadow::grow_pages() {
  const std::vector<Known> former = std::exchange(pages_, std::vector<Known>(2 * pages_.size()));
  for (const Known &each : former)
    if (each.page)
      pages_[place_of(each.number)] = each;
}

void Shadow::fill(Line &line) {
  line.cells = arena_.take(size_t{2} * kDwords);
  std::fill_n(line.cells, kDwords, line.whole.history);
  for (unsigned dword = 0; dword < kDwords; ++dword) {
    uint32_t lanes = 0;
    for (unsigned role = 0; role < kRoles; ++role)
      lanes |= line.whole.lane(dword, role) << role * kLaneBits;
    line.cells[kDwords + dword] = lanes;
  }
}

void Shadow::split(Line &line) {
  uint32_t *const bytes = arena_.take(2 * kLine);
  for (unsigned at = 0; at < kLine; ++at) {
    bytes[at] = line.cells[at / 4];
    bytes[kLine + at] = line.cells[kDwords + at / 4];
  }
  for (unsigned dword = 0; dword < kDwords; ++dword)
    histories_.move(0, line.cells[dword], 3);
  line.cells = bytes;
  line.in_bytes = true;
}

} // namespace luthier
