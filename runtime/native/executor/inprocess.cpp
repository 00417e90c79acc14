// Launches of this process, for Python: a launch runs on threads of its own, or step by step in `luthier_next`. The
// thread that began it asks for its requests. Nothing here calls Python.
//
// Structures are layout.ENGINE, DISPATCH and EVENT. One thread at a time uses an executor.

#include <condition_variable>
#include <optional>
#include <thread>

#include "access_checks.h"
#include "access_costs.h"
#include "decision_checks.h"
#include "execution.h"
#include "exported.h"
#include "float_checks.h"
#include "footprint.h"
#include "lds_checks.h"
#include "undefined_memory.h"
#include "unwritten.h"

namespace luthier {

namespace {

class Executor final : public Host {
public:
  explicit Executor(const Engine &engine, unsigned threads)
      : engine_(engine), threads_(threads), pool_(engine_, threads ? threads - 1 : 0), own_(engine_), more_(engine_) {}
  ~Executor() override;

  void launch(const char *dispatches, uint64_t count);
  uint64_t next(char *event, uint64_t milliseconds);
  void answer(bool go_on);
  void abort() {
    if (execution_)
      execution_->abort();
  }
  const std::string &problem() const { return problem_; }
  Progress progress() { return execution_ ? execution_->progress() : Progress(); }
  void describe(const Worker &worker, char *event) const;
  const Worker &own() const { return own_; }
  // Forget the accesses of observed launches; with `keep`, keep which memory is unwritten.
  void forget(bool keep) {
    checks_.reset();
    footprint_.reset();
    costs_.reset();
    floats_.reset();
    lds_.reset();
    if (decisions_ && !keep)
      UndefinedMemory::get().define_all();
    decisions_.reset();
    sightings_.clear();
  }
  // Return the findings of the checks since the last call that cleared them.
  std::vector<wire::Sighting> &sightings() {
    const auto add = [&](const std::vector<wire::Sighting> &added) {
      sightings_.insert(sightings_.end(), added.begin(), added.end());
    };
    if (checks_)
      add(checks_->take());
    if (floats_)
      add(floats_->take());
    if (decisions_)
      add(decisions_->take());
    if (lds_)
      add(lds_->take());
    return sightings_;
  }
  const AccessCosts *costs() const { return costs_ ? &*costs_ : nullptr; }
  const Footprint *footprint() const { return footprint_ ? &*footprint_ : nullptr; }

  void bind(const char *plan, uint64_t key, uint64_t record) override;
  uint64_t find_outside(const char *, uint64_t, uint64_t) override { return kNowhere; }
  std::shared_ptr<const RangeTable> ranges() override { return ranges_; }
  Observer *observer() override;
  uint64_t scratch(uint64_t) override { return scratch_; }
  void interrupt() override {} // nothing here waits for interrupts
  void stopped(Worker &worker, uint64_t reason) override;
  void failed(const char *what) override;
  void finished(Worker &worker) override;

private:
  // Make a request for which a thread of the launch waits.
  struct Request {
    uint64_t reason;
    Worker *worker;
    uint64_t key, record;
    bool answered = false, go_on = false;
  };
  bool ask(Request request);
  void serve();
  void run();
  uint64_t step(char *event);

  const Engine engine_;
  const unsigned threads_;
  ThreadPool pool_;
  Worker own_;
  Workers more_;
  std::vector<Worker *> workers_; // of a launch that Python steps
  std::deque<Worker *> turns_;    // of these, those that have not ended, next first
  std::chrono::steady_clock::time_point moved_;

  std::unique_ptr<Execution> execution_;
  std::shared_ptr<const RangeTable> ranges_;
  bool stepped_ = false;
  uint64_t together_ = 0; // work-groups that run together
  void begin_stepped(Worker &worker);
  bool observes_accesses() const { return observed_ & ~(layout::OBSERVE_VALUES | layout::OBSERVE_LDS); }
  void observe(const char *plan, const char *cost_model);
  uint64_t observed_ = 0; // OBSERVE_RACES and the others
  std::optional<AccessChecks> checks_;
  std::optional<Footprint> footprint_;
  std::optional<AccessCosts> costs_;
  std::optional<FloatChecks> floats_;
  std::optional<DecisionChecks> decisions_;
  std::optional<LdsChecks> lds_;
  std::optional<Observers> observers_;
  std::vector<wire::Sighting> sightings_;
  unsigned helpers_ = 0;
  uint64_t scratch_ = 0, *counts_ = nullptr, *lanes_ = nullptr, records_ = 0;

  std::mutex mutex_;
  std::condition_variable posted_, changed_; // for the launch's threads; for the caller's
  std::thread runner_;
  enum class State { kIdle, kBegun, kEnded } state_ = State::kIdle;
  bool closing_ = false;
  std::deque<Request *> requests_;
  Request *served_ = nullptr;
  Worker *shown_ = nullptr; // the stepped worker that waits for an answer
  std::string problem_;
};

Executor::~Executor() {
  if (!runner_.joinable())
    return;
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  abort(); // a launch whose caller is gone
  posted_.notify_all();
  runner_.join();
}

namespace {

// Return the grid whose parts dispatches describe.
Grid grid_at(const char *dispatches, uint64_t count) {
  namespace in = layout::dispatch;
  Grid made{};
  for (const char *from = dispatches; count--; from += layout::dispatch::kSize) {
    const auto triple = [from](layout::Field x, layout::Field y, layout::Field z) {
      return Triple{static_cast<uint32_t>(get(from, x)), static_cast<uint32_t>(get(from, y)),
                    static_cast<uint32_t>(get(from, z))};
    };
    made.whole = triple(in::whole_x, in::whole_y, in::whole_z);
    made.parts.push_back({triple(in::first_x, in::first_y, in::first_z), triple(in::grid_x, in::grid_y, in::grid_z),
                          triple(in::block_x, in::block_y, in::block_z)});
  }
  return made;
}

} // namespace

void Executor::launch(const char *from, uint64_t parts) {
  namespace in = layout::dispatch;
  Dispatch made;
  made.plan = pointer<const char *>(from, in::plan);
  made.packet = get(from, in::packet);
  made.queue = get(from, in::queue);
  made.id = get(from, in::id);
  made.code = get(from, in::code);
  made.kernarg = get(from, in::kernarg);
  made.lds_size = get(from, in::lds_size);
  made.scratch_lane = get(from, in::scratch_lane);
  made.cooperative = get(from, in::cooperative);
  made.backward = get(from, in::backward);
  made.resident = get(from, in::resident);
  made.quantum = get(from, in::quantum);
  made.step_limit = get(from, in::step_limit);
  made.sgprs = pointer<const char *>(from, in::sgprs);
  made.images = pointer<const char *>(from, in::images);
  made.image_size = get(from, in::image_size);
  made.lds_image = pointer<const char *>(from, in::lds_image);
  made.scc = get(from, in::scc);
  made.watch = pointer<const char *>(from, in::watch);
  scratch_ = get(from, in::scratch);
  counts_ = pointer<uint64_t *>(from, in::counts);
  lanes_ = pointer<uint64_t *>(from, in::lanes);
  records_ = get(made.plan, layout::plan::record_count);
  stepped_ = get(from, in::stepped);
  const auto *rows = pointer<const layout::Range *>(from, in::ranges);
  auto table = std::make_shared<RangeTable>();
  table->rows.assign(rows, rows + get(from, in::range_count));
  ranges_ = std::move(table);
  problem_.clear();
  shown_ = nullptr;

  const Grid grid = grid_at(from, parts);
  uint64_t count = 0;
  for (const GridPart &part : grid.parts)
    count += part.groups.product();
  helpers_ = threads_ ? std::min<uint64_t>(threads_, count) - 1 : 0;
  observed_ = get(from, in::observe);
  together_ = made.cooperative ? count : observes_accesses() ? 1 + helpers_ : 0;
  if (observed_)
    observe(made.plan, pointer<const char *>(from, in::costs));
  execution_ = std::make_unique<Execution>(*this, made);
  execution_->set_up(grid, stepped_ ? 1 : 1 + helpers_, together_);
  if (stepped_) {
    workers_.clear();
    turns_.clear();
    begin_stepped(own_);
    for (uint64_t index = 1; index < together_; ++index)
      begin_stepped(more_.at(index - 1));
    moved_ = std::chrono::steady_clock::now();
    return;
  }
  {
    std::lock_guard lock(mutex_);
    state_ = State::kBegun;
    if (!runner_.joinable())
      runner_ = quiet_thread([this] { serve(); });
  }
  posted_.notify_all();
}

void Executor::begin_stepped(Worker &worker) {
  if (!execution_->prepare(worker))
    return;
  workers_.push_back(&worker);
  turns_.push_back(&worker);
}

// The function of the thread that launches run on.
void Executor::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    posted_.wait(lock, [this] { return state_ == State::kBegun || closing_; });
    if (closing_)
      return;
    lock.unlock();
    run();
    lock.lock();
    state_ = State::kEnded;
    changed_.notify_one();
  }
}

void Executor::run() {
  try {
    execution_->run(pool_, own_, more_, helpers_);
  } catch (const std::exception &problem) {
    failed(problem.what());
  }
}

uint64_t Executor::next(char *event, uint64_t milliseconds) {
  if (stepped_)
    return step(event);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(milliseconds),
                    [this] { return !requests_.empty() || state_ == State::kEnded; });
  if (!requests_.empty()) {
    served_ = requests_.front();
    requests_.pop_front();
    put(event, layout::event::reason, served_->reason);
    put(event, layout::event::key, served_->key);
    put(event, layout::event::record, served_->record);
    if (served_->worker)
      describe(*served_->worker, event);
    return layout::HELP;
  }
  return state_ == State::kEnded ? layout::ENDING : layout::RUNNING;
}

uint64_t Executor::step(char *event) {
  for (;;) {
    if (turns_.empty() || execution_->aborted()) {
      for (Worker *worker : workers_)
        finished(*worker);
      workers_.clear();
      return layout::ENDING;
    }
    Worker &worker = *turns_.front();
    const uint64_t code = execution_->advance_alone(worker);
    const auto now = std::chrono::steady_clock::now();
    if (code == layout::DONE || worker.group(layout::group::progress))
      moved_ = now;
    uint64_t reason = code;
    if (code == layout::STOP) {
      turns_.clear();
      continue;
    }
    if (code == layout::DONE) {
      turns_.pop_front();
      continue;
    }
    if (code == layout::SWITCH) {
      if (now - moved_ <= kPatience) {
        if (execution_->lets_begin(worker))
          begin_stepped(more_.at(workers_.size() - 1));
        turns_.pop_front();
        turns_.push_back(&worker);
        continue;
      }
      reason = layout::DEADLOCK;
    }
    shown_ = &worker;
    put(event, layout::event::reason, reason);
    describe(worker, event);
    if (reason == layout::UNBOUND || reason == layout::MODE) {
      put(event, layout::event::key, Worker::key_of(worker.current()));
      put(event, layout::event::record, Worker::record_of(worker.current()));
    } else {
      shown_ = nullptr;
    }
    return layout::HELP;
  }
}

void Executor::answer(bool go_on) {
  if (stepped_) {
    if (!go_on)
      turns_.clear();
    else if (shown_)
      execution_->resume(*shown_);
    shown_ = nullptr;
    return;
  }
  {
    std::lock_guard lock(mutex_);
    served_->go_on = go_on;
    served_->answered = true;
    served_ = nullptr;
  }
  posted_.notify_all();
}

void Executor::describe(const Worker &worker, char *event) const {
  put(event, layout::event::context, worker.context_address());
  put(event, layout::event::group, worker.group_address());
}

bool Executor::ask(Request request) {
  std::unique_lock lock(mutex_);
  requests_.push_back(&request);
  changed_.notify_one();
  posted_.wait(lock, [&] { return request.answered || closing_; });
  return request.go_on;
}

void Executor::bind(const char *, uint64_t key, uint64_t record) {
  if (stepped_ || !ask({layout::UNBOUND, nullptr, key, record}))
    throw Failure("an instruction cannot be bound");
}

// Set up the observers that are wanted for the launch.
void Executor::observe(const char *plan, const char *cost_model) {
  Observer *accesses = nullptr;
  if (observed_ & layout::OBSERVE_COSTS) {
    costs_.emplace(plan, cost_model);
    accesses = &*costs_;
  } else if (observed_ & layout::OBSERVE_FOOTPRINT) {
    if (!footprint_)
      footprint_.emplace();
    footprint_->begin(plan);
    accesses = &*footprint_;
  } else if (observes_accesses()) {
    if (!checks_)
      checks_.emplace(Checks{(observed_ & layout::OBSERVE_RACES) != 0, (observed_ & layout::OBSERVE_UNWRITTEN) != 0,
                             (observed_ & layout::OBSERVE_BARRIERS) != 0});
    checks_->begin(plan);
    accesses = &*checks_;
  }
  if (observed_ & layout::OBSERVE_FLOATS) {
    if (!floats_)
      floats_.emplace((observed_ & layout::OBSERVE_FLOW) != 0);
    floats_->begin(plan);
  }
  if (accesses)
    helpers_ = 0; // accesses are looked at in the order in which they happen
  if (observed_ & (layout::OBSERVE_UNDEFINED | layout::OBSERVE_LANES)) {
    if (!decisions_)
      decisions_.emplace();
    decisions_->begin(plan);
  }
  if (observed_ & layout::OBSERVE_LDS) {
    if (!lds_)
      lds_.emplace();
    lds_->begin(plan);
  }
  observers_.emplace(accesses, floats_ ? &*floats_ : nullptr, decisions_ ? &*decisions_ : nullptr,
                     lds_ ? &*lds_ : nullptr);
}

Observer *Executor::observer() { return observed_ && observers_ ? &*observers_ : nullptr; }

void Executor::stopped(Worker &worker, uint64_t reason) { ask({reason, &worker, 0, 0}); }

void Executor::failed(const char *what) {
  std::lock_guard lock(mutex_);
  if (problem_.empty())
    problem_ = what;
}

void Executor::finished(Worker &worker) {
  std::lock_guard lock(mutex_);
  worker.take_counts(counts_, lanes_, records_);
}

Executor *of(void *executor) { return static_cast<Executor *>(executor); }

} // namespace

} // namespace luthier

using namespace luthier;

// Return the digest of the layouts for which this was built.
LUTHIER_EXPORT const char *luthier_digest() { return kDigest; }

// Return null if there is no memory.
LUTHIER_EXPORT void *luthier_open(const char *from) {
  namespace in = layout::engine;
  try {
    Engine engine;
    engine.constants.assign(pointer<const char *>(from, in::constants), get(from, in::constants_size));
    engine.shared_base = get(from, in::shared_base);
    engine.private_base = get(from, in::private_base);
    return new Executor(engine, get(from, in::threads));
  } catch (const std::exception &) {
    return nullptr;
  }
}

LUTHIER_EXPORT void luthier_close(void *executor) { delete of(executor); }

// Begin a launch of `count` parts, each with its layout.DISPATCH; these differ only in the grid. Return false, with a
// `luthier_problem`, if that is impossible.
LUTHIER_EXPORT bool luthier_launch(void *executor, const char *dispatches, uint64_t count) {
  try {
    of(executor)->launch(dispatches, count);
    return true;
  } catch (const std::exception &problem) {
    of(executor)->failed(problem.what());
    return false;
  }
}

// Return the state of the launch: ENDING; HELP, with an event to be answered; RUNNING after that time.
LUTHIER_EXPORT uint64_t luthier_next(void *executor, char *event, uint64_t milliseconds) {
  try {
    return of(executor)->next(event, milliseconds);
  } catch (const std::exception &problem) {
    of(executor)->failed(problem.what());
    return layout::ENDING;
  }
}

LUTHIER_EXPORT bool luthier_answer(void *executor, bool go_on) {
  try {
    of(executor)->answer(go_on);
    return true;
  } catch (const std::exception &problem) {
    of(executor)->failed(problem.what());
    return false;
  }
}

// End the launch soon.
LUTHIER_EXPORT void luthier_abort(void *executor) { of(executor)->abort(); }

// Return the text of the internal error; empty if there was none.
LUTHIER_EXPORT const char *luthier_problem(void *executor) { return of(executor)->problem().c_str(); }

// Describe where the first worker's state is.
LUTHIER_EXPORT void luthier_own(void *executor, char *event) { of(executor)->describe(of(executor)->own(), event); }

// Forget the accesses of observed launches: another one follows. With `keep`, memory that is unwritten
// (`luthier_leave_unwritten`) stays so.
LUTHIER_EXPORT void luthier_begin_anew(void *executor, bool keep) { of(executor)->forget(keep); }

// Mark memory of a device as unwritten; with `undefined` also for `OBSERVE_UNDEFINED`.
LUTHIER_EXPORT void luthier_leave_unwritten(uint64_t address, uint64_t size, bool undefined) {
  leave_unwritten(address, size);
  if (undefined)
    UndefinedMemory::get().leave(address, size);
}

// Return the number in the launch of the work-group that a worker runs.
LUTHIER_EXPORT uint64_t luthier_group_number(const char *group) { return group_number(group); }

// Copy the findings in observed launches since the last call, and return their number. If there is not enough room for
// all, copy nothing and keep them.
LUTHIER_EXPORT uint64_t luthier_sightings(void *executor, char *rows, uint64_t most) {
  static_assert(sizeof(wire::Sighting) % sizeof(uint64_t) == 0);
  std::vector<wire::Sighting> &sightings = of(executor)->sightings();
  const uint64_t count = sightings.size();
  if (count > most || !count)
    return count;
  std::memcpy(rows, sightings.data(), count * sizeof(wire::Sighting));
  sightings.clear();
  return count;
}

// Copy the numbers and executions of the records of a code that were executed at least `least` times in the launch that
// is under way, and return how many there are. If there is not enough room for all, copy the first ones.
LUTHIER_EXPORT uint64_t luthier_frequent(uint64_t code, uint64_t least, uint64_t *rows, uint64_t most) {
  const Tally tally = ExecutionCounters::get().take_frequent(least);
  const auto entry = tally.find(code);
  if (entry == tally.end())
    return 0;
  for (const auto &[record, executed] : entry->second) {
    if (!most--)
      break;
    *rows++ = record;
    *rows++ = executed.count;
  }
  return entry->second.size();
}

// Write the progress of the launch that is under way, as numbers in the order of `Progress`, with at most `most`
// places. Return how many places there are.
LUTHIER_EXPORT uint64_t luthier_progress(void *executor, uint64_t *row, uint64_t most) {
  const Progress now = of(executor)->progress();
  for (const uint64_t value :
       {now.groups, now.begun, now.running, now.resident, uint64_t{now.is_full}, uint64_t{now.repeats}})
    *row++ = value;
  for (const auto &[record, groups] : now.places)
    if (most) {
      --most;
      *row++ = record;
      *row++ = groups;
    }
  return now.places.size();
}

// Return how many work-groups of `waves` waves the device of a plan holds at once.
LUTHIER_EXPORT uint64_t luthier_resident(const char *plan, uint64_t waves, uint64_t lds, uint64_t scratch_lane) {
  return resident_groups(plan, waves, lds, scratch_lane);
}

// Make launches that are under way use the functions of runs of instructions that exist now.
LUTHIER_EXPORT void luthier_take_runs() { ExecutionCounters::get().take_runs(); }

// Copy address, bits of bytes read and bits of bytes written of the pages of an observed launch, and return how many
// there are. If there is not enough room for all, copy nothing.
LUTHIER_EXPORT uint64_t luthier_footprint(void *executor, char *rows, uint64_t most) {
  const Footprint *footprint = of(executor)->footprint();
  const uint64_t count = footprint ? footprint->pages().size() : 0;
  if (count > most || !count)
    return count;
  for (const auto &[address, page] : footprint->pages()) {
    std::memcpy(rows, &address, sizeof address);
    std::memcpy(rows + sizeof address, &page, sizeof page);
    rows += sizeof address + sizeof page;
  }
  return count;
}

// Copy what the accesses of records cost in an observed launch, and return how many records have any. If there is not
// enough room for all, copy nothing.
LUTHIER_EXPORT uint64_t luthier_costs(void *executor, char *rows, uint64_t most) {
  const AccessCosts *costs = of(executor)->costs();
  const uint64_t count = costs ? costs->rows().size() : 0;
  if (count <= most && count)
    std::memcpy(rows, costs->rows().data(), count * sizeof(AccessCosts::Row));
  return count;
}
