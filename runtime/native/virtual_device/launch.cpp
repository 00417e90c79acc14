#include "launch.h"

#include <algorithm>

#include "origins.h"

namespace luthier {

using namespace layout;

namespace {

Fault refusal(QueueError error, std::string text) {
  Fault fault;
  fault.error = error;
  fault.text = std::move(text);
  return fault;
}

} // namespace

Resources::~Resources() { memory.free(scratch_); }

uint64_t Resources::scratch(unsigned node, uint64_t size) {
  if (size > scratch_size_) {
    memory.free(scratch_);
    scratch_ = scratch_size_ = 0;
    scratch_ = memory.allocate(size, {node});
    scratch_size_ = size;
  }
  return scratch_;
}

namespace {

Triple triple(uint64_t x, uint64_t y, uint64_t z) {
  return {static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z)};
}

bool is_observed(const char *plan) { return get(plan, plan::stepping) & OBSERVED; }

std::unique_ptr<Watched> watched(Service &service, const char *plan) {
  return get(plan, plan::watch) ? std::make_unique<Watched>(service, plan) : nullptr;
}

Dispatch dispatch_of(const Packet &from, const Watched *watched) {
  const auto &packet = *from.packet;
  const uint64_t wanted = packet.private_segment_size + get(from.choice.plan, plan::scratch_extra);
  Dispatch made;
  made.plan = from.choice.plan;
  made.packet = reinterpret_cast<uint64_t>(&packet);
  made.queue = from.queue;
  made.id = from.id;
  made.code = packet.kernel_object + get(from.choice.plan, plan::code_delta);
  made.kernarg = packet.kernarg_address;
  made.lds_size = packet.group_segment_size;
  made.scratch_lane = round_up(std::min(wanted, get(from.choice.plan, plan::scratch_limit)), 16);
  made.cooperative = from.cooperative;
  made.resident = ~uint64_t{0};
  made.watch = watched ? watched->watch() : nullptr;
  return made;
}

} // namespace

Launch::Launch(Resources &resources, const Packet &packet)
    : resources_(resources), packet_(packet), plan_(packet.choice.plan),
      block_{packet.packet->workgroup_size_x, packet.packet->workgroup_size_y, packet.packet->workgroup_size_z},
      grid_{packet.packet->grid_size_x, packet.packet->grid_size_y, packet.packet->grid_size_z},
      checked_(resources.service.setup().findings), number_(packet.choice.number),
      sightings_(resources.memory, packet.node, packet.choice.plan),
      watched_(watched(resources.service, packet.choice.plan)), execution_(*this, dispatch_of(packet, watched_.get())) {
  if (is_observed(plan_))
    observed_ = std::make_shared<AccessChecks>(resources.service.setup().checks);
  if (get(plan_, plan::stepping) & WATCHED_VALUES)
    floats_.emplace(resources.service.setup().floats_flow, number_);
  if (get(plan_, plan::undefined))
    decisions_.emplace(number_);
  if (checked_)
    observers_.emplace(observed_ ? &*observed_ : nullptr, floats_ ? &*floats_ : nullptr,
                       decisions_ ? &*decisions_ : nullptr, &lds_, &fine_grained_);
  if (packet.how->model.empty())
    return;
  Dispatch dispatch = dispatch_of(packet, nullptr);
  dispatch.plan = packet.observed;
  for (const wire::SampledPart &part : packet.how->parts) {
    const GridPart made{triple(part.first_x, part.first_y, part.first_z),
                        triple(part.groups_x, part.groups_y, part.groups_z),
                        triple(part.items_x, part.items_y, part.items_z)};
    while (samples_.size() < part.sample)
      samples_.push_back(std::make_unique<LaunchSample>(static_cast<Host &>(*this), resources.memory, packet.node,
                                                        resources.sampling, resources.service.setup().engine, dispatch,
                                                        packet.how->model));
    if (part.sample)
      samples_[part.sample - 1]->add(made);
    else
      rest_.push_back(made);
  }
}

void Launch::abort() {
  execution_.abort();
  gate_.end();
  for (const auto &sample : samples_)
    sample->abort();
}

Progress Launch::progress() {
  Progress all = execution_.progress();
  for (const auto &sample : samples_) {
    const Progress its = sample->progress();
    all.groups += its.groups;
    all.begun += its.begun;
    all.running += its.running;
    all.resident += its.resident;
    for (const auto &[record, groups] : its.places)
      all.places[record] += groups;
  }
  return all;
}

void Launch::step(const DebuggedQueue &queue) {
  {
    std::lock_guard lock(mutex_);
    if (!debugged_) {
      const auto &packet = *packet_.packet;
      debugged_ = std::make_unique<DebuggedWaves>(queue, plan_, packet.kernel_object + get(plan_, plan::code_delta),
                                                  static_cast<uint32_t>(packet_.id & (queue.packets - 1)),
                                                  packet.group_segment_size);
    }
  }
  execution_.step();
}

bool Launch::is_debugged() {
  std::lock_guard lock(mutex_);
  return debugged_ != nullptr;
}

bool Launch::suspend(const DebuggedQueue &queue) {
  if (!gate_.close())
    return false;
  try {
    step(queue);
    debugged_->save(execution_);
  } catch (...) {
    gate_.open();
    throw;
  }
  return true;
}

void Launch::resume() {
  try {
    if (is_debugged())
      debugged_->load(*this);
  } catch (const std::exception &problem) { // some waves are not as the debugger wants them
    failed(problem.what());
  }
  gate_.open();
}

void Launch::stepped(Worker &worker) {
  worker.context(context::accesses, 0);
  debugged_->arrived(worker);
  gate_.pass();
}

// Return the fault for which a command processor refuses the launch.
std::optional<Fault> Launch::check() const {
  const uint64_t items = uint64_t{block_.x} * block_.y * block_.z;
  const auto triple = [](Triple t) {
    return std::to_string(t.x) + " x " + std::to_string(t.y) + " x " + std::to_string(t.z);
  };
  if (items == 0 || !grid_.x || !grid_.y || !grid_.z)
    return refusal(QueueError::kDimensions, "a grid of " + triple(grid_) + " in work-groups of " + triple(block_));
  if (items > 1024)
    return refusal(QueueError::kGroupSize, "a work-group of " + std::to_string(items) + " work-items; 1024 fit");
  const uint64_t lds = packet_.packet->group_segment_size, limit = get(plan_, plan::lds_limit);
  if (lds > limit)
    return refusal(QueueError::kGroupMemory, std::to_string(lds) + " bytes of LDS; there are " + std::to_string(limit));
  const uint64_t size = get(plan_, plan::wave_size), waves = (items + size - 1) / size;
  constexpr uint64_t kSimds = 4;
  const uint64_t fit = kSimds * get(plan_, plan::simd_waves);
  if (waves > fit)
    return refusal(QueueError::kRegisters, "a work-group of " + std::to_string(items) + " work-items has " +
                                               std::to_string(waves) + " waves; the device has vector registers for " +
                                               std::to_string(fit) + " waves of the kernel");
  if (packet_.packet->private_segment_size > get(plan_, plan::scratch_limit))
    return refusal(QueueError::kDimensions, std::to_string(packet_.packet->private_segment_size) +
                                                " bytes of scratch a work-item; there are " +
                                                std::to_string(get(plan_, plan::scratch_limit)));
  return std::nullopt;
}

std::optional<Fault> Launch::run() {
  if (auto refused = check())
    return refused;
  if (checked_ && number_ == 0 && !ProgramMemory::get().knows_allocations()) {
    wire::Sighting pages{};
    pages.kind = static_cast<uint64_t>(wire::FindingKind::kOnlyPages);
    pages.kernel = get(plan_, plan::kernel);
    resources_.service.found(pages);
  }
  execute();
  const auto tell = [&](std::vector<wire::Sighting> all) {
    for (wire::Sighting &sighting : all) {
      sighting.launch = number_;
      resources_.service.found(sighting);
    }
  };
  if (checked_) {
    tell(sightings_.take());
    tell(lds_.take());
    tell(fine_grained_.take());
  }
  if (observed_)
    tell(observed_->take());
  if (floats_)
    tell(floats_->take());
  else if (packet_.choice.of_program) // it may have stored NaN
    Origins::nans().forget();
  if (decisions_)
    tell(decisions_->take());
  if (watched_)
    watched_->tell(number_);
  if (observed_)
    resources_.order.end(packet_.member, observed_, number_);
  else // only kernels of the runtime copy what a call of HIP names
    resources_.order.end_unknown(packet_.member, packet_.choice.of_program ? std::vector<uint64_t>{} : arguments());
  return fault_;
}

// Return the first words of the kernel's arguments, and what follows them: their size is not known here.
std::vector<uint64_t> Launch::arguments() const {
  constexpr uint64_t kMost = 16;
  const uint64_t address = packet_.packet->kernarg_address;
  const RangeTable::Piece piece = address ? resources_.memory.table(packet_.node)->piece(address) : RangeTable::Piece{};
  std::vector<uint64_t> words(std::min<uint64_t>(piece.size / sizeof(uint64_t), kMost));
  if (!words.empty())
    std::memcpy(words.data(), piece.host, words.size() * sizeof words[0]);
  return words;
}

void Launch::execute() {
  const Grid grid = grid_of(grid_, block_);
  const uint64_t count = grid.whole.product();
  if (packet_.cooperative && count > kResidentGroups)
    return fail(refusal(QueueError::kDimensions, "a cooperative grid of " + std::to_string(count) +
                                                     " work-groups; the device holds " +
                                                     std::to_string(kResidentGroups) + " at once"));
  if (observed_)
    observed_->begin(plan_);
  lds_.begin(plan_);
  fine_grained_.begin(plan_, resources_.memory.fine_grained());
  if (floats_)
    floats_->begin(plan_);
  if (decisions_)
    decisions_->begin(plan_);
  if (!samples_.empty())
    return execute_sampled(grid.whole);
  // Accesses are checked in the order in which they happen: by one thread, which takes turns among as many work-groups
  // as would run at once.
  const bool in_order = observed_ && observed_->wants_order();
  const unsigned helpers = std::min<uint64_t>(count - 1, resources_.pool.size());
  uint64_t together = packet_.cooperative ? count : in_order ? 1 + helpers : 0;
  if (is_debugged()) { // all that the device holds are there to be seen
    const uint64_t size = get(plan_, plan::wave_size), waves = round_up(block_.product(), size) / size;
    const auto &packet = *packet_.packet;
    together = std::max(together, std::min(count, resident_groups(plan_, waves, packet.group_segment_size,
                                                                  packet.private_segment_size)));
  }
  execution_.set_up(grid, in_order ? 1 : 1 + helpers, together);
  execution_.run(resources_.pool, resources_.own, resources_.more, in_order ? 0 : helpers);
}

// Samples run beside the rest, one after another; one that takes long may wait for the others.
void Launch::execute_sampled(Triple whole) {
  constexpr std::chrono::milliseconds kPatience{100};
  std::thread starter = quiet_thread([&] {
    try {
      for (const auto &sample : samples_) {
        sample->start(whole, resources_.pool);
        sample->wait(kPatience);
      }
    } catch (const std::exception &problem) {
      failed(problem.what());
    }
  });
  execute_rest(whole);
  starter.join();
  wire::Sampled report{packet_.how->number, "", {}};
  for (const auto &sample : samples_)
    report.samples.push_back(sample->finish());
  std::lock_guard lock(mutex_);
  if (fault_ || execution_.aborted())
    report = {packet_.how->number, "the launch did not end", {}};
  else if (!outside_.empty())
    report = {packet_.how->number, "the kernel calls code of another object", {}};
  resources_.service.ask(report);
}

// Run the work-groups that are in no sample.
void Launch::execute_rest(Triple whole) try {
  if (!rest_.empty()) {
    uint64_t count = 0;
    for (const GridPart &part : rest_)
      count += part.groups.product();
    const unsigned helpers = std::min<uint64_t>(count - 1, resources_.pool.size());
    execution_.set_up({rest_, whole}, 1 + helpers, packet_.cooperative ? count : 0);
    execution_.run(resources_.pool, resources_.own, resources_.more, helpers);
  }
} catch (const std::exception &problem) { // the samples have to end first
  failed(problem.what());
}

void Launch::bind(const char *plan, uint64_t key, uint64_t record) {
  resources_.service.ask(wire::Bind{get(plan, plan::kernel), key, record});
}

// Objects are not loaded or unloaded while a running kernel calls into them.
uint64_t Launch::find_outside(const char *plan, uint64_t code, uint64_t address) {
  std::lock_guard lock(mutex_);
  auto entry = outside_.find(address);
  if (entry == outside_.end())
    entry = outside_.emplace(address, resources_.plans.find_outside(packet_.gpu, plan, code, address)).first;
  return entry->second;
}

void Launch::finished(Worker &worker) {
  if (worker.went_beyond())
    fail(refusal(QueueError::kInstruction, "the kernel uses registers that its descriptor does not allocate"));
}

void Launch::stopped(Worker &worker, uint64_t reason) {
  Fault fault;
  fault.address = worker.context(context::fault_address);
  const uint64_t kind = worker.context(context::fault_kind);
  if (reason == UNIMPLEMENTED)
    fault.error = QueueError::kInstruction;
  else if (reason == JUMP)
    fault.is_memory = true;
  else if (reason == FAULT) {
    fault.is_memory = kind == FAULT_MEMORY || kind == FAULT_BUFFER;
    fault.error = kind == FAULT_LDS || kind == FAULT_SCRATCH || kind == FAULT_ALIGNMENT ? QueueError::kAperture
                                                                                        : QueueError::kInstruction;
  }
  std::string group(worker.group_bytes());
  put(group.data(), group::number, group_number(worker.group_address()));
  try {
    fault.text = resources_.service.ask(wire::Explain{get(plan_, plan::kernel), reason, number_, worker.context_bytes(),
                                                      group, worker.wave_bytes(), bytes_of(ranges()->rows)});
  } catch (const std::exception &problem) {
    fault.text = std::string("a kernel failed, and the reason cannot be determined: ") + problem.what();
  }
  fail(std::move(fault));
}

void Launch::failed(const char *what) { fail(refusal(QueueError::kTrap, what)); }

void Launch::fail(Fault fault) {
  {
    std::lock_guard lock(mutex_);
    if (!fault_)
      fault_ = std::move(fault);
  }
  abort();
}

} // namespace luthier
