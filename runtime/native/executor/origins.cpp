#include "origins.h"

#include <algorithm>
#include <sys/mman.h>

#include "program_memory.h"

namespace luthier {

using namespace layout;

namespace {

constexpr size_t kMostSources = 8, kMostSets = 1 << 16;
constexpr unsigned kDeepest = 6; // stores in a chain; the values of later ones have the origin of an earlier one

uint64_t space_of(const char *wave, uint64_t address) {
  constexpr uint64_t kMostLanes = 64;
  if (address - luthier::get(wave, wave::lds) < luthier::get(wave, wave::lds_size))
    return wire::kOriginLds;
  if (address - luthier::get(wave, wave::scratch) < luthier::get(wave, wave::scratch_size) * kMostLanes)
    return wire::kOriginScratch;
  return wire::kOriginMemory;
}

// Call a function with the address of each element that has undefined bits.
template <typename Function> void each_moved(const char *moved, Function function) {
  const char *context = moved - context::decided.offset, *shadow = context + context::moved_bits.offset;
  const auto *places = reinterpret_cast<const uint64_t *>(context + context::moved_places.offset);
  const uint64_t count = luthier::get(moved, decided::elements), bytes = luthier::get(moved, decided::bytes);
  const bool is_row = luthier::get(moved, decided::is_row);
  for (uint64_t at = 0; at < count; ++at, shadow += bytes)
    if (std::any_of(shadow, shadow + bytes, [](char bits) { return bits != 0; }))
      function(is_row ? places[0] + at * bytes : places[at], bytes);
}

// Call a function with the address of each dword of an access.
template <typename Function> void each_dword(const char *access, Function function) {
  const uint64_t size = luthier::get(access, access::size), kind = luthier::get(access, access::kind);
  const auto *places = reinterpret_cast<const uint64_t *>(access + access::addresses.offset);
  for (uint64_t left = luthier::get(access, access::mask); left; left &= left - 1) {
    const unsigned lane = __builtin_ctzll(left);
    const uint64_t address = kind == ACCESS_ROW ? places[0] + lane * size : places[lane];
    for (uint64_t dword = address & ~uint64_t{3}; dword < address + size; dword += 4)
      function(dword);
  }
}

// Return whether a dword in memory may be NaN: of 32 bits, or the upper half of one of 64 bits.
bool is_nan(uint64_t dword) {
  uint32_t bits;
  std::memcpy(&bits, reinterpret_cast<const void *>(dword), sizeof bits);
  return (bits & 0x7FFFFFFF) > 0x7F800000;
}

} // namespace

// Below the shadow of memory (undefined_memory.cpp), for the same reason. Neither is destroyed: queues run until the
// process ends.
Origins &Origins::undefined() {
  static Origins *const origins = new Origins(wave::origins, 0x2000'0000'0000);
  return *origins;
}

Origins &Origins::nans() {
  static Origins *const origins = new Origins(wave::nans, 0x1000'0000'0000);
  return *origins;
}

void Origins::loaded(const Observer::Instruction &instruction, const char *moved, uint64_t kernel) {
  std::lock_guard lock(mutex_);
  char *wave = const_cast<char *>(instruction.wave);
  Source last;
  bool is_first = true;
  each_moved(moved, [&](uint64_t address, uint64_t) {
    Source source{kernel, instruction.record, number_at(address), space_of(wave, address), address};
    if (!source.store && source.space == wire::kOriginMemory) {
      if (!is_first && !last.store && address - last.base < last.extent)
        return;
      const auto near = ProgramMemory::get().nearest(address);
      if (!near || !near->has(address)) // the host's stack, on which an instruction exchanges lanes
        return;
      source.allocation = near->number, source.base = near->address, source.extent = near->size;
    }
    const auto same = [](const Source &one) { return std::tuple(one.store, one.space, one.allocation); };
    if (is_first || same(last) != same(source))
      meet(wave, source);
    last = source;
    is_first = false;
  });
}

bool Origins::reserve() {
  if (base_ || failed_)
    return !failed_;
  void *made = mmap(reinterpret_cast<void *>(wanted_base_), UNDEFINED_COPY, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  failed_ = made == MAP_FAILED;
  if (!failed_) {
    madvise(made, UNDEFINED_COPY, MADV_DONTDUMP);
    base_ = static_cast<char *>(made);
  }
  return !failed_;
}

uint32_t Origins::store_number(const Observer::Instruction &instruction, uint64_t kernel, uint64_t launch,
                               uint64_t address) {
  const auto set = static_cast<uint32_t>(luthier::get(instruction.wave, set_));
  uint32_t &number = store_numbers_[{kernel, instruction.record, set}];
  if (number)
    return number;
  Store made{kernel, instruction.record, space_of(instruction.wave, address), launch, set, 1};
  uint32_t deepest = 0;
  for (const uint32_t source : sets_[set])
    if (const uint32_t from = sources_[source].store; stores_[from].depth >= made.depth) {
      made.depth = stores_[from].depth + 1;
      deepest = from;
    }
  if (made.depth > kDeepest)
    return number = deepest;
  number = static_cast<uint32_t>(stores_.size());
  stores_.push_back(made);
  return number;
}

void Origins::stored(const Observer::Instruction &instruction, const char *moved, uint64_t kernel, uint64_t launch) {
  std::lock_guard lock(mutex_);
  if (!reserve())
    return;
  uint32_t number = 0;
  each_moved(moved, [&](uint64_t address, uint64_t bytes) {
    if (!number)
      number = store_number(instruction, kernel, launch, address);
    for (uint64_t dword = address & ~uint64_t{3}; dword < address + bytes; dword += 4)
      std::memcpy(number_of(dword), &number, sizeof number);
  });
}

void Origins::meet(char *wave, const Source &source) {
  put(wave, set_, with(static_cast<uint32_t>(luthier::get(wave, set_)), intern(source)));
}

void Origins::made(const Observer::Instruction &instruction, uint64_t kernel) {
  std::lock_guard lock(mutex_);
  Source source{kernel, instruction.record};
  source.space = wire::kOriginMade;
  meet(const_cast<char *>(instruction.wave), source);
  following_ = 1;
}

void Origins::accessed(const Observer::Instruction &instruction, const char *access, unsigned uses, uint64_t kernel,
                       uint64_t launch) {
  std::lock_guard lock(mutex_);
  char *wave = const_cast<char *>(instruction.wave);
  const uint64_t lds = luthier::get(wave, wave::lds), lds_size = luthier::get(wave, wave::lds_size);
  const auto each = [&](unsigned use, auto function) {
    each_dword(access, [&](uint64_t dword) {
      if ((dword - lds < lds_size ? uses >> USE_LDS_SHIFT : uses) & use)
        function(dword);
    });
  };
  if (base_ && (uses | uses >> USE_LDS_SHIFT) & USE_READS) {
    uint32_t last = 0;
    each(USE_READS, [&](uint64_t dword) {
      const uint32_t number = number_at(dword);
      if (!number || number == last || !is_nan(dword))
        return;
      meet(wave, {kernel, instruction.record, number, space_of(wave, dword), dword});
      last = number;
    });
  }
  const bool has_some = luthier::get(wave, set_) != 0;
  if (!((uses | uses >> USE_LDS_SHIFT) & USE_WRITES) || !(base_ || has_some) || !reserve())
    return;
  uint32_t number = 0;
  each(USE_WRITES, [&](uint64_t dword) {
    if (has_some && !number)
      number = store_number(instruction, kernel, launch, dword);
    if (number_at(dword) != number)
      std::memcpy(number_of(dword), &number, sizeof number);
  });
}

void Origins::forget() {
  if (!base_)
    return;
  std::lock_guard lock(mutex_);
  madvise(base_, UNDEFINED_COPY, MADV_DONTNEED);
}

void Origins::fresh(uint64_t address, uint64_t size) {
  constexpr uint64_t kPage = 4096;
  if (!base_)
    return;
  std::lock_guard lock(mutex_);
  char *first = number_of(address), *last = first + round_up(size + (address & 3), 4); // of whole dwords
  char *const pages = reinterpret_cast<char *>(round_up(reinterpret_cast<uint64_t>(first), kPage));
  char *const end = reinterpret_cast<char *>(reinterpret_cast<uint64_t>(last) & ~(kPage - 1));
  if (pages >= end) {
    std::memset(first, 0, static_cast<size_t>(last - first));
    return;
  }
  std::memset(first, 0, static_cast<size_t>(pages - first));
  std::memset(end, 0, static_cast<size_t>(last - end));
  madvise(pages, static_cast<size_t>(end - pages), MADV_DONTNEED);
}

uint32_t Origins::number_at(uint64_t address) const {
  uint32_t number = 0;
  if (base_)
    std::memcpy(&number, number_of(address), sizeof number);
  return number;
}

uint32_t Origins::intern(const Source &source) {
  const Key key{source.kernel, source.record, source.store, source.space, source.allocation};
  if (const auto known = source_numbers_.find(key); known != source_numbers_.end())
    return known->second;
  if (sources_.size() >= kMostSets)
    return 0; // no room
  const auto number = static_cast<uint32_t>(sources_.size());
  source_numbers_.emplace(key, number);
  sources_.push_back(source);
  return number;
}

uint32_t Origins::with(uint32_t set, uint32_t source) {
  const std::vector<uint32_t> &old = sets_[set];
  if (old.size() >= kMostSources)
    source = 0;
  const auto place = std::lower_bound(old.begin(), old.end(), source);
  if (place != old.end() && *place == source)
    return set;
  std::vector<uint32_t> wider(old.begin(), place);
  wider.push_back(source);
  wider.insert(wider.end(), place, old.end());
  const auto [entry, is_new] = set_numbers_.try_emplace(wider, sets_.size());
  if (is_new)
    sets_.push_back(std::move(wider));
  return entry->second;
}

uint32_t Origins::store_at(uint64_t address) {
  std::lock_guard lock(mutex_);
  return number_at(address);
}

Origins::Store Origins::store(uint32_t number) {
  std::lock_guard lock(mutex_);
  return stores_[number];
}

std::pair<std::vector<Origins::Source>, bool> Origins::sources(uint32_t set) {
  std::lock_guard lock(mutex_);
  std::vector<Source> all;
  bool is_whole = true;
  for (const uint32_t source : sets_[set])
    if (source)
      all.push_back(sources_[source]);
    else
      is_whole = false;
  return {all, is_whole};
}

} // namespace luthier
