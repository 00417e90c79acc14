// Launches that are measured for projections: the first of each kernel and size in the process. Sampled work-groups run
// as code that reports its accesses, all others beside them as usual.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>

#include "access_costs.h"
#include "execution.h"
#include "hsa_layouts.h"
#include "memory.h"
#include "service.h"

namespace luthier {

class SampledLaunches {
public:
  explicit SampledLaunches(Service &service) : service_(service) {}

  struct Choice {
    const char *plan;          // with which its work-groups run that are not sampled
    uint64_t number = 0;       // of the launches that are alike; 0: nothing is counted
    wire::SampledLaunch how{}; // without a model: it is not measured
  };
  // Choose how the next launch of a kernel runs, by its plan.
  Choice choose(const char *plan, const hsa::DispatchPacket &packet, unsigned gpu, bool cooperative);
  // Count a launch that has ended.
  void ended(const Choice &choice);
  // Report launches that were counted; at the end of the process, too.
  void report(bool is_all);

private:
  using Sizes =
      std::tuple<const char *, unsigned, std::array<uint32_t, 3>, std::array<uint16_t, 3>, uint32_t, uint32_t, bool>;
  Service &service_;
  std::mutex mutex_;
  std::map<Sizes, uint64_t> numbers_;
  std::map<uint64_t, uint64_t> ended_; // since the last report, by number
  std::chrono::steady_clock::time_point reported_{};
};

// Workers of samples, which keep their copies of records from one launch to the next.
class SampleWorkers {
public:
  explicit SampleWorkers(const Engine &engine) : engine_(engine) {}
  std::unique_ptr<Worker> take();
  void give(std::unique_ptr<Worker> worker);

private:
  const Engine &engine_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Worker>> idle_;
};

// A sample of a launch, which runs on a thread of its own.
class LaunchSample final : Host {
public:
  // `dispatch` is of the observed plan, `launch` the host of the launch.
  LaunchSample(Host &launch, Memory &memory, unsigned node, SampleWorkers &workers, const Engine &engine,
               const Dispatch &dispatch, const std::string &model);
  ~LaunchSample() override;
  void add(const GridPart &part) { grid_.parts.push_back(part); }
  // Start the threads; `pool` has none for it.
  void start(Triple whole, ThreadPool &pool);
  // Wait for its end for a time.
  void wait(std::chrono::milliseconds time);
  // Wait for its end, and return its counts.
  wire::SampleCost finish();
  void abort() { execution_.abort(); }
  Progress progress() { return execution_.progress(); }

private:
  void bind(const char *plan, uint64_t key, uint64_t record) override { launch_.bind(plan, key, record); }
  uint64_t find_outside(const char *plan, uint64_t code, uint64_t address) override {
    return launch_.find_outside(plan, code, address);
  }
  std::shared_ptr<const RangeTable> ranges() override { return launch_.ranges(); }
  Observer *observer() override { return &costs_; }
  uint64_t scratch(uint64_t size) override;
  void interrupt() override { launch_.interrupt(); }
  void stopped(Worker &worker, uint64_t reason) override { launch_.stopped(worker, reason); }
  void failed(const char *what) override { launch_.failed(what); }
  void finished(Worker &worker) override;

  Host &launch_;
  Memory &memory_;
  const unsigned node_;
  const uint64_t wave_size_;
  const bool cooperative_, keeps_; // the latter: executions count among all of the process
  SampleWorkers &workers_;
  Workers more_;
  AccessCosts costs_;
  Grid grid_;
  Execution execution_;
  uint64_t scratch_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  Tally tally_; // counts of its workers
  std::thread thread_;
};

} // namespace luthier
