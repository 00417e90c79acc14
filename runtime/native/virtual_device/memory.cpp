#include "memory.h"

#include <algorithm>
#include <sys/mman.h>
#include <unistd.h>

namespace luthier {

namespace {

constexpr uint64_t kPage = 4096, kGuard = 4096;

// Reserves `size` bytes aligned as drivers do, with a page behind them that nobody may touch.
char *reserve(uint64_t size, uint64_t &mapping, uint64_t &mapping_size) {
  const uint64_t align = size >= (2u << 20) ? 2u << 20 : 65536;
  mapping_size = size + align + kGuard;
  void *made = mmap(nullptr, mapping_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED)
    throw Failure("no memory");
  mapping = reinterpret_cast<uint64_t>(made);
  return reinterpret_cast<char *>(round_up(mapping, align));
}

}  // namespace

void *Memory::allocate(unsigned node, uint64_t size, uint32_t flags, uint64_t wanted, bool is_local) {
  Allocation made;
  size = round_up(size, kPage);
  if (size == 0)
    throw Failure("no bytes asked for");
  made.taken = is_local ? size : 0;
  if (!take(node, made.taken))
    throw Failure("no memory left on the device");
  const int protection = PROT_READ | PROT_WRITE;
  char *place = reinterpret_cast<char *>(wanted);
  try {
    if (!wanted)
      place = reserve(size, made.mapping, made.mapping_size);
  } catch (const Failure &) {
    give_back(node, made.taken);
    throw;
  }
  const int fixed = wanted ? MAP_FIXED_NOREPLACE : MAP_FIXED;
  void *got = mmap(place, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
  if (got != place) {
    if (made.mapping)
      munmap(reinterpret_cast<void *>(made.mapping), made.mapping_size);
    give_back(node, made.taken);
    throw Failure("no memory there");
  }
  if (wanted)
    made.mapping = wanted, made.mapping_size = size;
  made.address = made.gpu_address = reinterpret_cast<uint64_t>(place);
  made.size = size;
  made.node = node;
  made.flags = flags;
  std::lock_guard lock(mutex_);
  allocations_.emplace(made.address, made);
  changed();
  return place;
}

void *Memory::attach(unsigned node, int fd, uint64_t size, uint64_t name) {
  Allocation made;
  char *place = reserve(size, made.mapping, made.mapping_size);
  if (mmap(place, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    munmap(reinterpret_cast<void *>(made.mapping), made.mapping_size);
    throw Failure("shared memory cannot be mapped");
  }
  made.address = made.gpu_address = reinterpret_cast<uint64_t>(place);
  made.size = size;
  made.kind = Kind::kShared;
  made.node = node;
  made.name = name;
  std::lock_guard lock(mutex_);
  allocations_.emplace(made.address, made);
  changed();
  return place;
}

bool Memory::free(uint64_t address) {
  std::lock_guard lock(mutex_);
  auto [from, to] = allocations_.equal_range(address);
  auto found = std::find_if(from, to, [](auto &entry) { return entry.second.kind != Kind::kRegistered; });
  if (found == to)
    return false;
  munmap(reinterpret_cast<void *>(found->second.mapping), found->second.mapping_size);
  erase(found);
  return true;
}

void Memory::add_registered(uint64_t address, uint64_t size, uint32_t flags) {
  Allocation made;
  made.address = address;
  made.size = size;
  made.kind = Kind::kRegistered;
  made.flags = flags;
  // Nothing is there: these are just addresses that nobody else has.
  made.gpu_address = reinterpret_cast<uint64_t>(reserve(size + kPage, made.mapping, made.mapping_size)) + address % kPage;
  std::lock_guard lock(mutex_);
  allocations_.emplace(address, made);
  changed();
}

bool Memory::remove_registered(uint64_t address) {
  std::lock_guard lock(mutex_);
  auto found = at(address);
  if (found == allocations_.end() || found->second.kind != Kind::kRegistered || found->first != address)
    return false;
  munmap(reinterpret_cast<void *>(found->second.mapping), found->second.mapping_size);
  erase(found);
  return true;
}

// The innermost allocation around an address of the host, the one that begins last; or that of a GPU's address.
Memory::Allocations::iterator Memory::at(uint64_t address) {
  for (auto found = allocations_.upper_bound(address); found != allocations_.begin();)
    if (--found; address - found->second.address < found->second.size)
      return found;
  return std::find_if(allocations_.begin(), allocations_.end(), [&](auto &entry) {
    return address - entry.second.gpu_address < entry.second.size;
  });
}

uint64_t Memory::map(uint64_t address, const std::vector<uint32_t> &nodes) {
  std::lock_guard lock(mutex_);
  auto found = at(address);
  if (found == allocations_.end())
    return 0;
  found->second.mapped = nodes;
  changed();
  return found->second.gpu_address + (address - found->first);
}

int Memory::make_file(uint64_t address, uint64_t size) {
  std::lock_guard lock(mutex_);
  auto found = at(address);
  if (found == allocations_.end() || found->second.kind == Kind::kRegistered)
    throw Failure("only allocated memory can be shared");
  Allocation &allocation = found->second;
  if (allocation.address != address || round_up(size, kPage) != allocation.size)
    throw Failure("memory is shared whole");
  const int fd = memfd_create("luthier-shared", MFD_CLOEXEC);
  char *place = reinterpret_cast<char *>(address);
  bool good = fd >= 0 && ftruncate(fd, allocation.size) == 0;
  for (uint64_t done = 0; good && done < allocation.size;) {
    const ssize_t count = pwrite(fd, place + done, allocation.size - done, done);
    good = count > 0;
    done += count;
  }
  if (!good || mmap(place, allocation.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != place) {
    close(fd);
    throw Failure("memory cannot be shared");
  }
  return fd;
}

void Memory::set_name(uint64_t address, uint64_t name) {
  std::lock_guard lock(mutex_);
  if (auto found = at(address); found != allocations_.end())
    found->second.name = name;
}

void Memory::adopt(const Allocation &made) {
  std::lock_guard lock(mutex_);
  allocations_.emplace(made.address, made);
  changed();
}

bool Memory::drop(uint64_t address, uint64_t gpu_address) {
  std::lock_guard lock(mutex_);
  auto found = exactly(address, gpu_address);
  if (found == allocations_.end())
    return false;
  erase(found);
  return true;
}

bool Memory::set_mapped(uint64_t address, uint64_t gpu_address, std::vector<uint32_t> nodes) {
  std::lock_guard lock(mutex_);
  auto found = exactly(address, gpu_address);
  if (found == allocations_.end())
    return false;
  found->second.mapped = std::move(nodes);
  changed();
  return true;
}

Memory::Allocations::iterator Memory::exactly(uint64_t address, uint64_t gpu_address) {
  auto [from, to] = allocations_.equal_range(address);
  auto found = std::find_if(from, to, [&](auto &entry) { return entry.second.gpu_address == gpu_address; });
  return found == to ? allocations_.end() : found;
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

void Memory::erase(Allocations::iterator gone) {
  free_.at(gone->second.node) += gone->second.taken;
  allocations_.erase(gone);
  changed();
}

std::optional<Allocation> Memory::find(uint64_t address) const {
  std::lock_guard lock(mutex_);
  auto found = const_cast<Memory *>(this)->at(address);
  return found == allocations_.end() ? std::nullopt : std::optional(found->second);
}

bool Memory::set_user_data(uint64_t address, void *data) {
  std::lock_guard lock(mutex_);
  auto found = at(address);
  if (found == allocations_.end())
    return false;
  found->second.user_data = data;
  return true;
}

void Memory::changed() {
  for (auto &table : tables_)
    table.reset();
}

std::shared_ptr<const RangeTable> Memory::table(unsigned node) const {
  std::lock_guard lock(mutex_);
  auto &kept = tables_.at(node);
  if (kept)
    return kept;
  auto made = std::make_shared<RangeTable>();
  for (const auto &[address, allocation] : allocations_) {
    if (std::find(allocation.mapped.begin(), allocation.mapped.end(), node) == allocation.mapped.end())
      continue;
    if (allocation.gpu_address == address) {
      made->rows.push_back({address, allocation.size});
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

}  // namespace luthier
