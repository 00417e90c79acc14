#include "service.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bytes.h"
#include "program_memory.h"

namespace luthier {

using wire::Request;

namespace {

constexpr size_t kImportBytes = 65536, kDescriptorSize = 64;

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

void put_tally(Writer &message, const Tally &tally) {
  message.number(tally.size());
  for (const auto &[code, records] : tally) {
    message.numbers(wire::CodeCounts{code, records.size()});
    for (const auto &[record, executed] : records)
      message.numbers(wire::RecordCounts{record, executed.count, executed.lanes});
  }
}

} // namespace

Service::Service() {
  const char *path = std::getenv(wire::kSocketVariable);
  if (!path)
    throw Failure("the virtual device works under `luthier run` only");
  channel_ = std::make_unique<Channel>(path);
  int fd = -1;
  Reader reply = ask(Request::kHello, Writer().bytes(kDigest).text(), -1, &fd);
  const auto told = reply.numbers<wire::Setup>();
  map(fd, told);
  setup_.engine.shared_base = told.shared_base;
  setup_.engine.private_base = told.private_base;
  setup_.engine.constants = reply.bytes();
  setup_.capture_patience = told.capture_patience;
  setup_.checks = {told.races != 0, told.uninitialised != 0, told.barriers != 0};
  setup_.floats_flow = told.floats_flow != 0;
  setup_.undefined = told.undefined != 0;
  setup_.findings = told.findings != 0;
  setup_.counts_told = told.counts_wanted != 0;
  setup_.engine.counts_wanted = setup_.counts_told || setup_.capture_patience != 0;
  for (uint64_t left = told.gpus; left > 0; --left) {
    std::string target = reply.bytes();
    setup_.gpus.push_back({reply.numbers<wire::Gpu>(), std::move(target)});
  }
}

// Machine code first, then tables; after them this process's own import slots.
void Service::map(int fd, const wire::Setup &told) {
  if (fd < 0)
    throw Failure("the Luthier service sent no memory");
  const uint64_t tables = told.base + told.code_size, size = told.size - told.code_size;
  map_at(told.base, told.code_size, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
  const auto *head = static_cast<const wire::SpaceHead *>(
      map_at(tables, size, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(told.code_size)));
  close(fd);
  check_mapping(head->digest, "the virtual device (libluthier_kfd.so)", "the memory with kernels");
  slots_ = static_cast<uint64_t *>(
      map_at(told.imports, kImportBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

Reader Service::ask(wire::Request kind, const std::string &payload, int fd, int *received) {
  std::lock_guard lock(mutex_);
  int attached = -1;
  channel_->send(kind, payload, fd);
  Reader reply(channel_->receive(attached));
  if (received)
    *received = attached;
  else if (attached >= 0)
    close(attached);
  if (reply.number() != 0)
    throw Failure(reply.bytes());
  import(reply);
  return reply;
}

// Code that came since the last request may call further C functions. The first reply names none.
void Service::import(Reader &reply) {
  for (uint64_t left = reply.number(); left > 0; --left) {
    const std::string name = reply.bytes();
    void *function = dlsym(RTLD_DEFAULT, name.c_str());
    if (!function)
      if (void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL))
        function = dlsym(library, name.c_str());
    if (!function || (imported_ + 1) * sizeof(uint64_t) > kImportBytes)
      throw Failure("compiled code needs the C function " + name + ", which this process lacks");
    slots_[imported_++] = reinterpret_cast<uint64_t>(function);
  }
}

Service::Planned Service::plan(unsigned gpu, uint64_t kernel, const void *descriptor, uint64_t load_address,
                               bool is_file, std::string_view uri, std::string_view object) {
  Writer request;
  request.numbers(wire::Plan{gpu, kernel, load_address, is_file}).bytes(descriptor, kDescriptorSize).bytes(uri);
  request.bytes(object);
  Reader reply = ask(Request::kPlan, request.text());
  Planned made{reinterpret_cast<const char *>(reply.number()), {}};
  for (uint64_t left = reply.number(); left > 0; --left) {
    const auto bounds = reply.numbers<wire::Bounds>();
    made.variables.push_back({bounds.address, bounds.size, bounds.reserved});
  }
  return made;
}

uint64_t Service::find_outside(const wire::Outside &where, std::string_view uri, std::string_view object) {
  return ask(Request::kOutside, Writer().numbers(where).bytes(uri).bytes(object).text()).number();
}

void Service::bind(uint64_t kernel, uint64_t key, uint64_t record) {
  ask(Request::kBind, Writer().numbers(wire::Bind{kernel, key, record}).text());
}

std::string Service::explain(const Writer &state) { return ask(Request::kExplain, state.text()).bytes(); }

namespace {

// Adds a number of places in the program, and these.
void put_sites(Writer &message, const CallTrace &calls) {
  const std::vector<CallSite> sites = calls.sites();
  message.number(sites.size());
  for (const CallSite &site : sites)
    message.number(site.offset).bytes(site.symbol).bytes(site.file);
}

// Adds the places that asked for an allocation and gave it back; 0: there is none.
void put_calls_of(Writer &message, uint64_t base) {
  const Extent about = ProgramMemory::get().at(base).value_or(Extent{});
  put_sites(message, about.allocated_by);
  put_sites(message, about.freed_by);
}

} // namespace

void Service::found(const wire::Sighting &sighting, const CallTrace &calls) {
  Writer message;
  message.numbers(sighting);
  put_sites(message, calls);
  put_calls_of(message, sighting.in_lds ? 0 : sighting.base);
  ask(Request::kFound, message.text());
}

void Service::found(const wire::CallSighting &sighting, std::string_view function, std::string_view symbol,
                    std::string_view file) {
  Writer message;
  message.numbers(sighting).bytes(function).bytes(symbol).bytes(file);
  put_calls_of(message, sighting.base);
  ask(Request::kFoundCall, message.text());
}

void Service::found_copy(const wire::Sighting &race, std::string_view function, std::string_view symbol,
                         std::string_view file) {
  ask(Request::kFoundCopy, Writer().numbers(race).bytes(function).bytes(symbol).bytes(file).text());
}

uint64_t Service::follow(const wire::Follow &wanted, layout::Transition *made) {
  const std::string steps = ask(Request::kFollow, Writer().numbers(wanted).text()).bytes();
  const size_t count = steps.size() / sizeof *made;
  if (!count || count > layout::FOLLOW_MOST || steps.size() % sizeof *made)
    throw Failure("a malformed answer of the Luthier service");
  std::memcpy(made, steps.data(), steps.size());
  return count;
}

void Service::watched(const wire::Watched &launch, std::string_view found, std::string_view met) {
  ask(Request::kWatched, Writer().numbers(launch).bytes(found).bytes(met).text());
}

void Service::tell(const Tally &tally, bool is_all) {
  Writer message;
  message.number(is_all);
  put_tally(message, tally);
  ask(Request::kCounts, message.text());
}

void Service::tell_running(const wire::Running &launch, const std::map<uint64_t, uint64_t> &places,
                           const Tally &tally) {
  Writer message;
  message.numbers(launch);
  for (const auto &[record, groups] : places)
    message.numbers(wire::RunningPlace{record, groups});
  put_tally(message, tally);
  ask(Request::kRunning, message.text());
}

void Service::tell_hot(const Tally &tally) {
  Writer message;
  put_tally(message, tally);
  ask(Request::kHot, message.text());
}

bool Service::capture(const wire::Capture &launch, std::string_view packet, const RangeTable &memory) {
  Writer request;
  request.numbers(launch).bytes(packet);
  request.bytes(memory.rows.data(), memory.rows.size() * sizeof memory.rows[0]).bytes(memory.aliases);
  return ask(Request::kCapture, request.text()).number() != 0;
}

void Service::captured(bool failed, bool outside, uint64_t beside, const Tally &before, const Tally &after) {
  Writer message;
  message.number(failed).number(outside).number(beside);
  put_tally(message, before);
  put_tally(message, after);
  ask(Request::kCaptured, message.text());
}

uint64_t Service::share(int fd, uint64_t size) {
  return ask(Request::kShare, Writer().number(size).text(), fd).number();
}

void Service::unshare(uint64_t name) { ask(Request::kShare, Writer().number(0).number(name).text()); }

int Service::attach(uint64_t name, uint64_t &size) {
  int fd = -1;
  size = ask(Request::kAttach, Writer().number(name).text(), -1, &fd).number();
  return fd;
}

} // namespace luthier
