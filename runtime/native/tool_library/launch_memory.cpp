#include "launch_memory.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

namespace luthier {

namespace {

constexpr uint64_t kPage = 4096;

uint64_t page_of(uint64_t address) { return address / kPage * kPage; }

} // namespace

LaunchMemory::LaunchMemory(Runtime &runtime, hsa_agent_t device, uint64_t most)
    : runtime_(runtime), device_(device), most_(most) {
  fd_ = memfd_create("luthier-launch", MFD_CLOEXEC);
  // Only pages that are written take memory.
  void *memory = MAP_FAILED;
  if (fd_ >= 0 && ftruncate(fd_, static_cast<off_t>(most)) == 0)
    memory = mmap(nullptr, most, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
  if (memory == MAP_FAILED) {
    if (fd_ >= 0)
      close(fd_);
    throw Failure("there is no room for the memory of a launch");
  }
  contents_ = static_cast<char *>(memory);
}

LaunchMemory::~LaunchMemory() {
  munmap(contents_, most_);
  close(fd_);
}

void LaunchMemory::gather(const LaunchRoots &roots) {
  find_mappings();
  add_host(roots.queue, kQueueBytes);
  left_.clear(); // kernels do not use what a queue points to, and others write there
  add_host(roots.kernarg, roots.arguments);
  follow(roots.code);
  while (!left_.empty()) {
    const uint64_t begin = left_.back();
    left_.pop_back();
    if (const auto place = places_.find(begin); place != places_.end())
      scan(place->first, place->second);
  }
}

void LaunchMemory::read() {
  for (const auto &[address, place] : places_)
    copy(address, place);
}

wire::Rows<wire::MemoryRange> LaunchMemory::ranges() const {
  wire::Rows<wire::MemoryRange> all;
  for (const auto &[address, place] : places_)
    all.push_back({address, place.size, place.offset});
  return all;
}

// ROCr reserves addresses for all memory of devices in the process, too. Few numbers are such addresses by chance.
void LaunchMemory::find_mappings() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uint64_t begin = 0, end = 0;
    char dash = 0;
    if (std::istringstream(line) >> std::hex >> begin >> dash >> end)
      mappings_.emplace_back(begin, end);
  }
}

// Null if there is none.
const LaunchMemory::Mapping *LaunchMemory::mapping_of(uint64_t address) const {
  const auto after = std::upper_bound(mappings_.begin(), mappings_.end(), Mapping(address, ~uint64_t{0}));
  return after != mappings_.begin() && address < std::prev(after)->second ? &*std::prev(after) : nullptr;
}

// Add only this launch's part of the memory that the runtime has for all launches.
void LaunchMemory::add_host(uint64_t address, uint64_t size) {
  if (address && size)
    add(address, size, reinterpret_cast<const void *>(address));
}

// Add the memory that an address is in, if it is in any that the device may access.
void LaunchMemory::follow(uint64_t address) {
  const auto after = places_.upper_bound(address);
  if (after != places_.begin() && address - std::prev(after)->first < std::prev(after)->second.size)
    return;
  const Mapping *mapping = mapping_of(address);
  if (!mapping || elsewhere_.count(page_of(address)))
    return;
  if (!follow_allocation(address) && !follow_shared(address, *mapping))
    elsewhere_.insert(page_of(address));
}

bool LaunchMemory::follow_allocation(uint64_t address) {
  hsa_amd_pointer_info_t info{};
  info.size = sizeof info;
  const auto status =
      runtime_.amd.hsa_amd_pointer_info_fn(reinterpret_cast<void *>(address), &info, nullptr, nullptr, nullptr);
  const auto base = reinterpret_cast<uint64_t>(info.agentBaseAddress);
  if (status != HSA_STATUS_SUCCESS || info.type == HSA_EXT_POINTER_TYPE_UNKNOWN || address - base >= info.sizeInBytes)
    return false;
  hsa_device_type_t owner = HSA_DEVICE_TYPE_GPU;
  runtime_.core.hsa_agent_get_info_fn(info.agentOwner, HSA_AGENT_INFO_DEVICE, &owner);
  const bool is_hosts = owner == HSA_DEVICE_TYPE_CPU || info.type == HSA_EXT_POINTER_TYPE_LOCKED;
  add(base, info.sizeInBytes, is_hosts ? info.hostBaseAddress : nullptr);
  return true;
}

// Managed memory is the process's own; the driver knows which devices may access it.
bool LaunchMemory::follow_shared(uint64_t address, const Mapping &mapping) {
  uint64_t begin = page_of(address), end = begin + kPage;
  if (!is_shared(begin, kPage))
    return false;
  // Its neighbours in ever larger steps, then in ever smaller ones.
  uint64_t step = kPage;
  for (bool grows = true; step >= kPage; step = grows ? step * 2 : step / 2) {
    const bool before = begin - mapping.first >= step && is_shared(begin - step, step);
    begin -= before ? step : 0;
    const bool after = mapping.second - end >= step && is_shared(end, step);
    end += after ? step : 0;
    grows = grows && (before || after);
  }
  add(begin, end - begin, reinterpret_cast<const void *>(begin));
  return true;
}

bool LaunchMemory::is_shared(uint64_t address, uint64_t size) {
  hsa_amd_svm_attribute_pair_t access{HSA_AMD_SVM_ATTRIB_ACCESS_QUERY, device_.handle};
  const auto get = runtime_.amd.hsa_amd_svm_attributes_get_fn;
  if (!get || get(reinterpret_cast<void *>(address), size, &access, 1) != HSA_STATUS_SUCCESS)
    return false;
  return access.attribute == HSA_AMD_SVM_ATTRIB_AGENT_ACCESSIBLE ||
         access.attribute == HSA_AMD_SVM_ATTRIB_AGENT_ACCESSIBLE_IN_PLACE;
}

// Follow whatever looks like an address. What is found may take the place of the range itself.
void LaunchMemory::scan(uint64_t address, Place place) {
  for (uint64_t at = -address % sizeof(uint64_t); at + sizeof(uint64_t) <= place.size; at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, contents_ + place.offset + at, sizeof word);
    if (word >= mappings_.front().first && word < mappings_.back().second)
      follow(word);
  }
}

void LaunchMemory::add(uint64_t address, uint64_t size, const void *host) {
  const uint64_t before = address % kPage, pages = page_of(before + size + kPage - 1);
  if (pages > most_ - used_)
    throw Failure("more than " + std::to_string(most_) + " bytes of memory (--most)");
  const Place place{size, used_ + before, host};
  used_ += pages;
  // Parts of it that were known for themselves, as arguments, are in it now.
  places_.erase(places_.lower_bound(address), places_.lower_bound(address + size));
  places_.emplace(address, place);
  left_.push_back(address);
  copy(address, place);
}

void LaunchMemory::copy(uint64_t address, const Place &place) {
  char *to = contents_ + place.offset;
  if (!place.host) {
    runtime_.check(runtime_.core.hsa_memory_copy_fn(to, reinterpret_cast<const void *>(address), place.size),
                   "the memory of a launch cannot be read");
    return;
  }
  // The system moves less than 2 GiB at once. The program may have unmapped it.
  char *from = static_cast<char *>(const_cast<void *>(place.host));
  for (uint64_t done = 0; done < place.size;) {
    iovec local{to + done, place.size - done}, remote{from + done, place.size - done};
    const ssize_t moved = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (moved <= 0)
      throw Failure("the memory of a launch cannot be read: the program has given it back");
    done += static_cast<uint64_t>(moved);
  }
}

} // namespace luthier
