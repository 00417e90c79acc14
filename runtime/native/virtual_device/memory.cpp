#include "memory.h"

#include <algorithm>
#include <sys/mman.h>

#include "program_memory.h"

namespace luthier {

uint64_t Memory::allocate(uint64_t size, std::vector<uint32_t> nodes) {
  size = round_up(size, kPageSize);
  void *made = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED)
    throw Failure("no memory");
  const auto address = reinterpret_cast<uint64_t>(made);
  adopt({address, size, address, std::move(nodes)});
  return address;
}

void Memory::free(uint64_t address) {
  std::lock_guard lock(mutex_);
  const auto allocation = exactly(address, address);
  if (allocation == allocations_.end())
    return;
  munmap(reinterpret_cast<void *>(address), allocation->second.size);
  allocations_.erase(allocation);
  changed();
}

void Memory::adopt(const Allocation &made) {
  std::lock_guard lock(mutex_);
  allocations_.emplace(made.address, made);
  changed();
}

bool Memory::drop(uint64_t address, uint64_t gpu_address) {
  std::lock_guard lock(mutex_);
  const auto allocation = exactly(address, gpu_address);
  if (allocation == allocations_.end())
    return false;
  ProgramMemory::get().unloaded(address, allocation->second.size);
  allocations_.erase(allocation);
  changed();
  return true;
}

bool Memory::set_mapped(uint64_t address, uint64_t gpu_address, std::vector<uint32_t> nodes) {
  std::lock_guard lock(mutex_);
  const auto allocation = exactly(address, gpu_address);
  if (allocation == allocations_.end())
    return false;
  allocation->second.mapped = std::move(nodes);
  changed();
  return true;
}

void Memory::set_fine(uint64_t address, uint64_t gpu_address, uint64_t kind) {
  std::lock_guard lock(mutex_);
  if (const auto allocation = exactly(address, gpu_address); allocation != allocations_.end())
    allocation->second.fine = kind;
  fine_.reset();
}

std::shared_ptr<const FineRanges> Memory::fine_grained() const {
  const uint64_t version = ProgramMemory::get().version();
  std::lock_guard lock(mutex_);
  if (fine_ && fine_version_ == version)
    return fine_;
  FineRanges ranges = ProgramMemory::get().fine_grained();
  for (const auto &[address, allocation] : allocations_)
    if (allocation.fine)
      ranges.push_back({address, allocation.size, allocation.fine});
  std::sort(ranges.begin(), ranges.end(),
            [](const FineRange &left, const FineRange &right) { return left.address < right.address; });
  FineRanges apart; // registered memory may overlap other memory: the range that begins first counts
  for (FineRange range : ranges) {
    const uint64_t end = range.address + range.size;
    if (!apart.empty())
      range.address = std::max(range.address, apart.back().address + apart.back().size);
    if (range.address < end)
      apart.push_back({range.address, end - range.address, range.kind});
  }
  fine_version_ = version;
  return fine_ = std::make_shared<const FineRanges>(std::move(apart));
}

void Memory::share(uint64_t address, uint64_t gpu_address) {
  std::lock_guard lock(mutex_);
  if (const auto allocation = exactly(address, gpu_address); allocation != allocations_.end())
    allocation->second.is_private = false;
}

bool Memory::is_private(uint64_t address) const {
  const auto allocation = find(address);
  return allocation && allocation->is_private;
}

Memory::Allocations::iterator Memory::exactly(uint64_t address, uint64_t gpu_address) {
  auto [from, to] = allocations_.equal_range(address);
  auto allocation = std::find_if(from, to, [&](auto &entry) { return entry.second.gpu_address == gpu_address; });
  return allocation == to ? allocations_.end() : allocation;
}

bool Memory::take(unsigned node, uint64_t size) {
  std::lock_guard lock(mutex_);
  if (size > free_.at(node))
    return false;
  free_[node] -= size;
  return true;
}

void Memory::give_back(unsigned node, uint64_t size) {
  std::lock_guard lock(mutex_);
  free_.at(node) += size;
}

uint64_t Memory::available(unsigned node) const {
  std::lock_guard lock(mutex_);
  return free_.at(node);
}

// Return the innermost allocation around an address of the host, which begins last; or that of a device's address.
std::optional<Allocation> Memory::find(uint64_t address) const {
  std::lock_guard lock(mutex_);
  for (auto allocation = allocations_.upper_bound(address); allocation != allocations_.begin();)
    if (--allocation; address - allocation->second.address < allocation->second.size)
      return allocation->second;
  const auto allocation = std::find_if(allocations_.begin(), allocations_.end(), [&](auto &entry) {
    return address - entry.second.gpu_address < entry.second.size;
  });
  return allocation == allocations_.end() ? std::nullopt : std::optional(allocation->second);
}

void Memory::changed() {
  for (auto &table : tables_)
    table.reset();
  fine_.reset();
}

std::shared_ptr<const RangeTable> Memory::table(unsigned node) const {
  std::lock_guard lock(mutex_);
  auto &kept = tables_.at(node);
  if (kept && kept->rows.size() >= longest_)
    return kept;
  auto made = std::make_shared<RangeTable>();
  for (const auto &[address, allocation] : allocations_) {
    if (std::find(allocation.mapped.begin(), allocation.mapped.end(), node) == allocation.mapped.end())
      continue;
    if (allocation.gpu_address ==
        address) { // with one before that it continues, an access may reach from one to the other
      auto &rows = made->rows;
      if (!rows.empty() && rows.back().address + rows.back().size == address)
        rows.back().size += allocation.size;
      else
        rows.push_back({address, allocation.size});
      continue;
    }
    char row[layout::alias::kSize] = {};
    put(row, layout::alias::address, allocation.gpu_address);
    put(row, layout::alias::size, allocation.size);
    put(row, layout::alias::host, address);
    made->aliases.append(row, sizeof row);
  }
  longest_ = std::max(longest_, made->rows.size() + 1);
  made->rows.resize(longest_, {~0ull, 0});
  return kept = made;
}

std::shared_ptr<const RangeTable> Memory::exact_table(unsigned node) const {
  const uint64_t version = ProgramMemory::get().version();
  auto whole = table(node);
  if (!version)
    return whole;
  std::lock_guard lock(mutex_);
  Exact &kept = exact_.at(node);
  if (kept.of == whole && kept.version == version && kept.table->rows.size() >= longest_)
    return kept.table;
  auto made = std::make_shared<RangeTable>(ProgramMemory::get().without_holes(*whole, longest_));
  longest_ = made->rows.size();
  kept = {std::move(whole), made, version};
  return made;
}

} // namespace luthier
