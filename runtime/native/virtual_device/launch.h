// One kernel dispatch of a queue: reasons to refuse it, its execution, and the fault that stopped it.
#pragma once

#include <atomic>
#include <optional>
#include <unordered_map>

#include "access_checks.h"
#include "checked_launches.h"
#include "debugged_waves.h"
#include "decision_checks.h"
#include "execution.h"
#include "fine_grained_checks.h"
#include "float_checks.h"
#include "gate.h"
#include "hsa_layouts.h"
#include "lds_checks.h"
#include "plans.h"
#include "queue_order.h"
#include "sampled_launches.h"
#include "sightings.h"
#include "watched.h"

namespace luthier {

// Reasons why a dispatch ended early, as the command processor reports them: bits of
// hsa::Queue::queue_inactive_signal.
enum class QueueError : uint64_t {
  kDimensions = 2,
  kGroupMemory = 4,
  kCode = 8,
  kPacket = 32,
  kGroupSize = 64,
  kRegisters = 128,
  kAperture = 0x20000000,
  kInstruction = 0x40000000,
  kTrap = 0x80000000,
};

struct Fault {
  std::string text;
  QueueError error = QueueError::kTrap;
  bool is_memory = false; // then it is a memory access fault at `address`, which the driver reports
  uint64_t address = 0;
  std::string kernel = {}; // its name, if that is known
};

// A dispatch in a queue.
struct Packet {
  const hsa::DispatchPacket *packet;
  CheckedLaunches::Choice choice; // its plan, and its number
  const char *observed;           // its plan of sampled work-groups
  const wire::SampledLaunch *how; // which those are
  uint64_t queue;                 // hsa::Queue
  uint64_t id;                    // of the packet
  bool cooperative;               // all work-groups run at once
  unsigned node, gpu;
  QueueOrder::Member *member; // the queue among all others
};

// Further resources of a launch, which its queue keeps.
class Resources {
public:
  Resources(Service &service, Memory &memory, Plans &plans, ThreadPool &pool, QueueOrder &order,
            const Debugging &debugging)
      : service(service), memory(memory), plans(plans), pool(pool), order(order), debugging(debugging),
        own(service.setup().engine), more(service.setup().engine), sampling(service.setup().engine) {}
  ~Resources();
  // Return scratch of that size that the node may access.
  uint64_t scratch(unsigned node, uint64_t size);

  Service &service;
  Memory &memory;
  Plans &plans;
  ThreadPool &pool;
  QueueOrder &order;
  const Debugging &debugging;
  Worker own;
  Workers more;
  SampleWorkers sampling;
  std::function<void()> interrupt; // a kernel has sent one

private:
  uint64_t scratch_ = 0, scratch_size_ = 0;
};

class Launch final : Host {
public:
  Launch(Resources &resources, const Packet &packet);
  // Run it to its end; return its fault, if any.
  std::optional<Fault> run();
  // End it soon, without a fault. For other threads.
  void abort();
  // Return its progress. For other threads.
  Progress progress();
  // For other threads, when a debugger is attached: stop its waves and write them where the debugger finds them; then
  // let them continue, as the debugger has changed them. The queue lives as long as the launch. Return false if it
  // ends. If that throws, the waves continue. A launch that cannot resume fails.
  bool suspend(const DebuggedQueue &queue);
  void resume();
  // Before it runs: a debugger is attached.
  void step(const DebuggedQueue &queue);
  // Return whether it has executed code of another object.
  bool went_outside() const { return !outside_.empty(); }

private:
  bool is_debugged();
  std::optional<Fault> check() const;
  std::vector<uint64_t> arguments() const;
  void execute();
  void execute_sampled(Triple whole);
  void execute_rest(Triple whole);
  void fail(Fault fault);

  void bind(const char *plan, uint64_t key, uint64_t record) override;
  uint64_t find_outside(const char *plan, uint64_t code, uint64_t address) override;
  std::shared_ptr<const RangeTable> ranges() override { return resources_.memory.exact_table(packet_.node); }
  BoundsCheck *bounds() override { return checked_ ? &sightings_ : nullptr; }
  Observer *observer() override { return observers_ ? &*observers_ : nullptr; }
  uint64_t scratch(uint64_t size) override { return resources_.scratch(packet_.node, size); }
  void interrupt() override { resources_.interrupt(); }
  Gate *gate() override { return resources_.debugging.is_enabled() ? &gate_ : nullptr; }
  void stepped(Worker &worker) override;
  void stopped(Worker &worker, uint64_t reason) override;
  void failed(const char *what) override;
  void finished(Worker &worker) override;

  Resources &resources_;
  Packet packet_;
  const char *plan_;
  Triple block_, grid_;   // work-items
  const bool checked_;    // findings are wanted
  const uint64_t number_; // among the launches of its kernel, where it is checked
  Sightings sightings_;
  LdsChecks lds_;
  FineGrainedChecks fine_grained_;
  std::shared_ptr<AccessChecks> observed_; // others are compared with it after its end
  std::optional<FloatChecks> floats_;
  std::optional<DecisionChecks> decisions_;
  std::optional<Observers> observers_;
  std::unique_ptr<Watched> watched_;
  Gate gate_;
  std::unique_ptr<DebuggedWaves> debugged_; // made with `mutex_`, and kept to the end
  Execution execution_;
  std::vector<std::unique_ptr<LaunchSample>> samples_; // that are measured
  std::vector<GridPart> rest_;                         // work-groups in no sample
  std::mutex mutex_;
  std::optional<Fault> fault_;
  std::unordered_map<uint64_t, uint64_t> outside_; // records by addresses in other objects
};

} // namespace luthier
