#include "sampled_launches.h"

namespace luthier {

using namespace layout;

namespace {

constexpr auto kPeriod = std::chrono::milliseconds(100);

} // namespace

SampledLaunches::Choice SampledLaunches::choose(const char *plan, const hsa::DispatchPacket &packet, unsigned gpu,
                                                bool cooperative) {
  Choice choice{plan};
  const auto *plain = pointer<const char *>(plan, plan::plain);
  if (!service_.setup().projected)
    return choice;
  if (plain)
    choice.plan = plain;
  const Sizes sizes{plan,
                    gpu,
                    {packet.grid_size_x, packet.grid_size_y, packet.grid_size_z},
                    {packet.workgroup_size_x, packet.workgroup_size_y, packet.workgroup_size_z},
                    packet.group_segment_size,
                    packet.private_segment_size,
                    cooperative};
  {
    std::lock_guard lock(mutex_);
    if (const auto known = numbers_.find(sizes); known != numbers_.end()) {
      choice.number = known->second;
      return choice;
    }
  }
  choice.how = service_.ask(wire::SampleLaunch{gpu, get(plan, plan::kernel), packet.grid_size_x, packet.grid_size_y,
                                               packet.grid_size_z, packet.workgroup_size_x, packet.workgroup_size_y,
                                               packet.workgroup_size_z, packet.group_segment_size,
                                               packet.private_segment_size, cooperative});
  choice.number = choice.how.number;
  if (!plain)
    choice.how.model.clear();
  std::lock_guard lock(mutex_);
  numbers_.emplace(sizes, choice.number);
  return choice;
}

void SampledLaunches::ended(const Choice &choice) {
  if (!choice.number)
    return;
  {
    std::lock_guard lock(mutex_);
    ++ended_[choice.number];
    if (std::chrono::steady_clock::now() - reported_ < kPeriod)
      return;
  }
  report(false);
}

void SampledLaunches::report(bool is_all) {
  wire::LaunchesEnded report{is_all, {}};
  {
    std::lock_guard lock(mutex_);
    for (const auto &[number, launches] : ended_)
      report.alike.push_back({number, launches});
    ended_.clear();
    reported_ = std::chrono::steady_clock::now();
  }
  service_.ask(report);
}

std::unique_ptr<Worker> SampleWorkers::take() {
  std::lock_guard lock(mutex_);
  if (idle_.empty())
    return std::make_unique<Worker>(engine_);
  std::unique_ptr<Worker> worker = std::move(idle_.back());
  idle_.pop_back();
  return worker;
}

void SampleWorkers::give(std::unique_ptr<Worker> worker) {
  std::lock_guard lock(mutex_);
  idle_.push_back(std::move(worker));
}

LaunchSample::LaunchSample(Host &launch, Memory &memory, unsigned node, SampleWorkers &workers, const Engine &engine,
                           const Dispatch &dispatch, const std::string &model)
    : launch_(launch), memory_(memory), node_(node), wave_size_(get(dispatch.plan, plan::wave_size)),
      cooperative_(dispatch.cooperative), keeps_(engine.counts_wanted), workers_(workers), more_(engine),
      costs_(dispatch.plan, model.data()), execution_(*this, dispatch) {}

LaunchSample::~LaunchSample() {
  if (thread_.joinable()) {
    abort();
    thread_.join();
  }
  memory_.free(scratch_);
}

uint64_t LaunchSample::scratch(uint64_t size) { return scratch_ = memory_.allocate(size, {node_}); }

void LaunchSample::start(Triple whole, ThreadPool &pool) {
  grid_.whole = whole;
  uint64_t count = 0;
  for (const GridPart &part : grid_.parts)
    count += part.groups.product();
  execution_.set_up(grid_, 1, cooperative_ ? count : 0);
  thread_ = quiet_thread([this, &pool] {
    std::unique_ptr<Worker> own = workers_.take();
    try {
      execution_.run(pool, *own, more_, 0);
    } catch (const std::exception &problem) {
      failed(problem.what());
    }
    workers_.give(std::move(own));
    std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  });
}

void LaunchSample::wait(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [this] { return ended_; });
}

void LaunchSample::finished(Worker &worker) {
  launch_.finished(worker);
  std::lock_guard lock(mutex_);
  ExecutionCounters::get().move(worker, keeps_, tally_);
}

wire::SampleCost LaunchSample::finish() {
  if (!thread_.joinable())
    return {};
  thread_.join();
  wire::SampleCost cost{0, 0, counts_of(tally_), {}};
  for (const GridPart &part : grid_.parts) {
    const uint64_t waves = round_up(part.items.product(), wave_size_) / wave_size_;
    cost.groups += part.groups.product();
    cost.waves += part.groups.product() * waves;
  }
  cost.costs = bytes_of(costs_.rows()); // kept as long as this
  return cost;
}

} // namespace luthier
