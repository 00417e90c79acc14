#include "service.h"

#include "call_site.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

#include "failure.h"
#include "origins.h"
#include "program_memory.h"

namespace luthier {

namespace {

constexpr size_t kImportBytes = 65536;

void *map_at(uint64_t address, size_t size, int protection, int flags, int fd, off_t offset) {
  void *wanted = reinterpret_cast<void *>(address);
  void *got = mmap(wanted, size, protection, flags | MAP_NORESERVE | MAP_FIXED_NOREPLACE, fd, offset);
  if (got == MAP_FAILED && errno != EEXIST)
    throw Failure("the addresses that the virtual device needs cannot be mapped in this process: " +
                  std::string(std::strerror(errno)) +
                  (errno == ENOMEM ? "; its limit of addresses (ulimit -v) may be too low" : ""));
  if (got != wanted)
    throw Failure("the addresses that the virtual device needs are taken in this process");
  return got;
}

const char *socket_path() {
  const char *path = std::getenv(wire::kSocketVariable);
  if (!path)
    throw Failure("the virtual device works only under `luthier run`");
  return path;
}

} // namespace

std::vector<wire::CodeCounts> counts_of(const Tally &tally) {
  std::vector<wire::CodeCounts> counts;
  for (const auto &[code, records] : tally) {
    wire::CodeCounts &counted = counts.emplace_back(wire::CodeCounts{code, {}});
    for (const auto &[record, executed] : records)
      counted.records.push_back({record, executed.count, executed.lanes});
  }
  return counts;
}

Service::Service() : channel_(socket_path(), [this](const auto &functions) { import(functions); }) {
  static_cast<wire::Setup &>(setup_) = ask(wire::Hello{kDigest});
  map(setup_.space.fd);
  Engine &engine = setup_.engine;
  engine.shared_base = setup_.shared_base;
  engine.private_base = setup_.private_base;
  engine.constants = setup_.constants;
  engine.counts_wanted = setup_.counts_wanted || setup_.capture_patience != 0;
  setup_.checks = {setup_.races, setup_.uninitialised, setup_.barriers};
}

// Machine code first, then tables; after them this process's own import slots.
void Service::map(int fd) {
  const uint64_t tables = setup_.base + setup_.code_size, size = setup_.size - setup_.code_size;
  map_at(setup_.base, setup_.code_size, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
  const auto *head = static_cast<const wire::SpaceHead *>(
      map_at(tables, size, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(setup_.code_size)));
  close(fd);
  check_mapping(head->digest, "the virtual device (libluthier_kfd.so)", "the memory with kernels");
  slots_ = static_cast<uint64_t *>(
      map_at(setup_.imports, kImportBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

// Code that was compiled since the last request may call further C functions.
void Service::import(const std::vector<std::string> &functions) {
  for (const std::string &name : functions) {
    void *function = dlsym(RTLD_DEFAULT, name.c_str());
    if (!function)
      if (void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL))
        function = dlsym(library, name.c_str());
    if (!function || (imported_ + 1) * sizeof(uint64_t) > kImportBytes)
      throw Failure("compiled code needs the C function " + name + ", which this process lacks");
    slots_[imported_++] = reinterpret_cast<uint64_t>(function);
  }
}

namespace {

using Sites = std::vector<wire::HostCall>;

Sites sites_of(CallTrace calls) {
  Sites sites;
  if (!calls)
    return sites;
  for (const auto &[code, python] : calls->frames)
    if (python)
      sites.push_back({python->line, python->name, python->file, true});
    else if (!code->file.empty() && !is_runtime(code->file))
      sites.push_back({code->offset, "", code->file, false});
  return sites;
}

// Return what is known of the allocation, or the part of one, with these bounds; 0: there is none.
wire::AllocationHistory history_of(uint64_t base, uint64_t size) {
  const Extent about = ProgramMemory::get().at(base, size).value_or(Extent{});
  return {about.name ? std::string_view(*about.name) : "", sites_of(about.allocated_by), sites_of(about.freed_by)};
}

// The stores that a value comes from, the first of which uses it.
class OriginList {
public:
  explicit OriginList(Origins &origins) : origins_(origins) {}
  void add(uint64_t kernel, uint32_t record, uint64_t launch, uint64_t space, uint32_t set) {
    const auto [sources, is_whole] = origins_.sources(set);
    add({kernel, record, launch, space, is_whole, {}}, sources);
  }
  void add(const wire::OriginStore &store, const std::vector<Origins::Source> &sources) {
    const size_t at = all_.size();
    all_.push_back(store);
    for (const Origins::Source &source : sources) {
      if (all_.size() >= kMost) {
        all_[at].is_whole = false;
        return;
      }
      const auto [entry, is_new] = numbers_.try_emplace(source.store, source.store ? all_.size() : 0);
      all_[at].sources.push_back({source.record, entry->second, source.space, source.address, source.base,
                                  source.extent, source.allocation, history_of(source.base, source.extent)});
      if (!is_new || !source.store)
        continue;
      const Origins::Store from = origins_.store(source.store);
      add(from.kernel, from.record, from.launch, from.space, from.sources);
    }
  }
  const std::vector<wire::OriginStore> &all() const { return all_; }

private:
  static constexpr size_t kMost = 64;
  Origins &origins_;
  std::vector<wire::OriginStore> all_;
  std::map<uint32_t, uint64_t> numbers_; // in the list, by those of `Origins`
};

} // namespace

void Service::found(const wire::Sighting &sighting, CallTrace calls) {
  const bool is_nan = sighting.kind == static_cast<uint64_t>(wire::FindingKind::kNanFlow);
  OriginList origins(is_nan ? Origins::nans() : Origins::undefined());
  if (sighting.origins)
    origins.add(sighting.kernel, sighting.record, sighting.launch, wire::kOriginMemory, sighting.origins - 1);
  ask(wire::Found{sighting, sites_of(calls), history_of(sighting.in_lds ? 0 : sighting.base, sighting.extent),
                  origins.all()});
}

void Service::found(const wire::CallSighting &sighting, std::string_view function, std::string_view symbol,
                    std::string_view file) {
  OriginList origins(Origins::undefined());
  if (sighting.kind == static_cast<uint64_t>(wire::FindingKind::kUndefinedCopy)) {
    Origins::Source copied;
    copied.store = Origins::undefined().store_at(sighting.address);
    if (copied.store)
      origins.add({0, 0, 0, wire::kOriginMemory, true, {}}, {copied});
  }
  ask(wire::FoundCall{sighting, function, symbol, file, history_of(sighting.base, sighting.extent), origins.all()});
}

void Service::found(const wire::InFlightSighting &sighting, std::string_view function, std::string_view operation,
                    CallTrace calls, CallTrace enqueued) {
  ask(wire::FoundInFlight{sighting, sites_of(calls), function, operation, sites_of(enqueued),
                          history_of(sighting.base, sighting.extent)});
}

uint64_t Service::follow(const wire::Follow &wanted, layout::Transition *made) {
  const std::string steps = ask(wanted);
  const size_t count = steps.size() / sizeof *made;
  if (!count || count > layout::FOLLOW_MOST || steps.size() % sizeof *made)
    throw Failure("the Luthier service sent a malformed answer");
  std::memcpy(made, steps.data(), steps.size());
  return count;
}

} // namespace luthier
