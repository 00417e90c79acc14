#include "execution.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "gate.h"
#include "origins.h"
#include "scheduler.h"
#include "undefined_memory.h"

namespace luthier {

using namespace layout;

namespace {

// The buffer descriptor of scratch that kernels use on targets without architected flat scratch.
//
// Here a lane's scratch is contiguous: the stride is a lane's bytes and ADD_TID_ENABLE adds the lane's row. Real
// hardware swizzles by dword instead, so buffer operations divide a scalar offset into it, which counts all lanes, by
// the wave size. GFX9: with ADD_TID_ENABLE the data format holds stride bits 14 to 17.
void put_scratch_descriptor(char *place, uint64_t base, uint64_t lane_bytes) {
  const uint64_t low = (base & 0xFFFFFFFFFFFF) | (lane_bytes & 0x3FFF) << 48;
  const uint32_t high[2] = {0xFFFFFFFF, static_cast<uint32_t>(1u << 23 | (lane_bytes >> 14 & 0xF) << 15)};
  std::memcpy(place, &low, sizeof low);
  std::memcpy(place + sizeof low, high, sizeof high);
}

void see(Worker &worker, const RangeTable &table) {
  worker.context(context::ranges, reinterpret_cast<uint64_t>(table.rows.data()));
  worker.context(context::range_count, table.rows.size());
  worker.context(context::aliases, reinterpret_cast<uint64_t>(table.aliases.data()));
  worker.context(context::alias_count, table.alias_count());
}

// Turns of waves after which a work-group is checked for waiting for others.
constexpr uint64_t kSlice = 64;
// Turns that a work-group which does not repeat itself may take while others have not begun.
constexpr uint64_t kLong = 4096;
// One slice in this many is checked if the check only serves `progress`.
constexpr uint64_t kSeldom = 8;
// How long a thread sleeps if a debugger has halted all waves.
constexpr std::chrono::milliseconds kNap{1};
// Bytes of scratch of all work-groups that run at once.
constexpr uint64_t kMostScratch = 1 << 30;

// The number of threads that ask for progress: threads that take turns hold the locks nearly all of the time.
std::atomic<int> asking{0};

template <typename T> void put_atomically(char *launch, Field field, T value) {
  __atomic_store_n(reinterpret_cast<T *>(launch + field.offset), value, __ATOMIC_RELAXED);
}

// Return how many work-groups of a part have begun.
uint64_t begun(const PartMemory &part) {
  const char *next = part.launch + launch::next_group.offset;
  return std::min(__atomic_load_n(reinterpret_cast<const uint64_t *>(next), __ATOMIC_RELAXED),
                  get(part.launch, launch::group_count));
}

} // namespace

Execution::Execution(Host &host, const Dispatch &dispatch) : host_(host), dispatch_(dispatch), plan_(dispatch.plan) {
  shape_.plan = plan_;
  shape_.wave_size = get(plan_, plan::wave_size);
  shape_.lds_size = dispatch.lds_size;
  shape_.lds_limit = get(plan_, plan::lds_limit);
  shape_.scratch_lane = dispatch.scratch_lane;
  shape_.watch = dispatch.watch;
  shape_.undefined = get(plan_, plan::undefined);
}

Execution::~Execution() {
  if (shape_.undefined && scratch_size_)
    UndefinedMemory::get().define(shape_.scratch, scratch_size_);
}

uint64_t resident_groups(const char *plan, uint64_t waves, uint64_t lds, uint64_t scratch_lane) {
  uint64_t groups = 4 * get(plan, plan::simd_waves) / waves;
  if (lds)
    groups = std::min(groups, get(plan, plan::processor_lds) / lds);
  groups *= get(plan, plan::processors);
  if (const uint64_t scratch = waves * get(plan, plan::wave_size) * scratch_lane)
    groups = std::min(groups, kMostScratch / scratch);
  return groups;
}

void Execution::set_up(const Grid &grid, unsigned threads, uint64_t together) {
  const auto waves = [&](const GridPart &part) {
    return round_up(part.items.product(), shape_.wave_size) / shape_.wave_size;
  };
  uint64_t count = 0;
  shape_.whole = true;
  for (const GridPart &part : grid.parts) {
    count += part.groups.product();
    shape_.whole &= part.items.product() % shape_.wave_size == 0;
    shape_.waves = std::max<unsigned>(shape_.waves, waves(part));
  }
  const uint64_t held =
      std::min(dispatch_.resident, resident_groups(plan_, shape_.waves, shape_.lds_size, shape_.scratch_lane));
  resident_ = std::min(count, std::max({held, uint64_t{threads}, together}));
  together_ = together;
  // Untouched pages take no memory.
  scratch_size_ = resident_ * shape_.waves * shape_.wave_size * shape_.scratch_lane;
  shape_.scratch = scratch_size_ ? host_.scratch(scratch_size_) : 0;
  ranges_ = host_.ranges();
  bounds_ = host_.bounds();
  observer_ = host_.observer();
  patience_ = kLong * dispatch_.quantum;
  moved_ = std::chrono::steady_clock::now();
  set_sgprs();
  std::lock_guard lock(setting_up_);
  grid_.resize(grid.parts.size());
  for (size_t index = 0; index < grid_.size(); ++index) {
    grid_[index].whole = grid.whole;
    grid_[index].waves = waves(grid.parts[index]);
    set_part(grid_[index].launch, grid.parts[index]);
  }
}

void Execution::set_part(char *launch, const GridPart &part) {
  fill(launch);
  const char *images = dispatch_.images;
  uint64_t stride = dispatch_.image_size;
  if (!images) {
    const std::string &made = lanes_of(part.items);
    images = made.data();
    stride = made.size() / shape_.waves;
  }
  put(launch, launch::lane_images, images);
  put(launch, launch::lane_image_stride, stride);
  put(launch, launch::lane_image_size, stride - 64);
  put(launch, launch::group_count, part.groups.product());
  put(launch, launch::first_x, part.first.x);
  put(launch, launch::first_y, part.first.y);
  put(launch, launch::first_z, part.first.z);
  put(launch, launch::grid_x, part.groups.x);
  put(launch, launch::grid_y, part.groups.y);
  put(launch, launch::grid_z, part.groups.z);
  put(launch, launch::abort, uint64_t{aborted()});
}

// Return EXEC and the work-item ids of each wave: 64 bytes with EXEC first, then rows.
const std::string &Execution::lanes_of(Triple items) {
  for (const auto &[known, images] : lane_images_)
    if (known == items)
      return images;
  const uint32_t total = items.product(), size = shape_.wave_size;
  const bool packed = get(plan_, plan::packed_ids);
  const unsigned ids = get(plan_, plan::work_item_ids), rows = packed ? 1 : ids;
  const size_t stride = 64 + size_t{rows} * size * 4;
  std::string lanes(shape_.waves * stride, '\0');
  uint32_t id[3] = {};
  for (uint32_t flat = 0; flat < total; ++flat) {
    char *image = lanes.data() + flat / size * stride;
    const uint32_t lane = flat % size;
    uint64_t exec;
    std::memcpy(&exec, image, sizeof exec);
    exec |= uint64_t{1} << lane;
    std::memcpy(image, &exec, sizeof exec);
    uint32_t value = id[0];
    for (unsigned axis = 1; packed && axis < ids; ++axis)
      value |= id[axis] << 10 * axis;
    for (unsigned row = 0; row < rows; ++row)
      std::memcpy(image + 64 + (size_t{row} * size + lane) * 4, packed ? &value : &id[row], 4);
    if (++id[0] == items.x) {
      id[0] = 0;
      if (++id[1] == items.y) {
        id[1] = 0;
        ++id[2];
      }
    }
  }
  return lane_images_.emplace_back(items, std::move(lanes)).second;
}

void Execution::set_sgprs() {
  const auto set = [this](Field where, const void *value, size_t size) {
    const uint64_t place = get(plan_, where);
    if (place != ABSENT)
      std::memcpy(sgprs_ + place, value, size);
  };
  if (dispatch_.sgprs)
    std::memcpy(sgprs_, dispatch_.sgprs, sizeof sgprs_);
  const uint32_t lane = shape_.scratch_lane;
  char descriptor[16];
  put_scratch_descriptor(descriptor, shape_.scratch, shape_.scratch_lane);
  set(plan::private_segment_buffer, descriptor, sizeof descriptor);
  set(plan::dispatch_ptr, &dispatch_.packet, 8);
  set(plan::queue_ptr, &dispatch_.queue, 8);
  set(plan::kernarg_segment_ptr, &dispatch_.kernarg, 8);
  set(plan::dispatch_id, &dispatch_.id, 8);
  set(plan::flat_scratch_init, &shape_.scratch, 8);
  set(plan::private_segment_size, &lane, 4);
  if (get(plan_, plan::kernarg_preload) != ABSENT) {
    const uint64_t from = dispatch_.kernarg + get(plan_, plan::kernarg_preload_offset);
    const uint64_t size = get(plan_, plan::kernarg_preload_size);
    if (const char *arguments = ranges_->host(from, size))
      set(plan::kernarg_preload, arguments, size);
  }
}

void Execution::fill(char *launch) {
  for (auto [to, from] : {std::pair{launch::vgpr_bytes, plan::vgpr_bytes},
                          {launch::agpr_bytes, plan::agpr_bytes},
                          {launch::group_id_x, plan::group_id_x},
                          {launch::group_id_y, plan::group_id_y},
                          {launch::group_id_z, plan::group_id_z},
                          {launch::group_info, plan::group_info},
                          {launch::scratch_offset, plan::scratch_offset},
                          {launch::wave_id, plan::wave_id},
                          {launch::wave_id_shift, plan::wave_id_shift},
                          {launch::packed_yz, plan::packed_yz},
                          {launch::named, plan::named},
                          {launch::mode, plan::mode},
                          {launch::stepping, plan::stepping},
                          {launch::architected_scratch, plan::architected_scratch},
                          {launch::given_sgprs, plan::given_sgprs},
                          {launch::early, plan::early},
                          {launch::early_count, plan::early_count},
                          {launch::entry, plan::entry}})
    put(launch, to, get(plan_, from));
  if (!shape_.whole) { // code may read lanes that were not launched, whose registers the plan leaves out
    put(launch, launch::early, uint64_t{0});
    put(launch, launch::stepping, get(launch, launch::stepping) & ~ALL_DEFINED);
  }
  put(launch, launch::quantum, dispatch_.quantum);
  put(launch, launch::slice, together_ ? 0 : kSlice * dispatch_.quantum);
  put(launch, launch::step_limit, dispatch_.step_limit);
  put(launch, launch::sgpr_image, sgprs_);
  put(launch, launch::agprs, VECTORS + VECTOR_ROWS * 4 * shape_.wave_size);
  put(launch, launch::scratch_base, shape_.scratch);
  put(launch, launch::cooperative, dispatch_.cooperative);
  put(launch, launch::backward, dispatch_.backward);
  put(launch, launch::scc, dispatch_.scc);
  put(launch, launch::lds_image, dispatch_.lds_image);
  put(launch, launch::told, observer_ && observer_->wants_accesses());
  put(launch, launch::undefined, get(plan_, plan::undefined));
  put(launch, launch::shadow, wave_stride(shape_.wave_size));
  put(launch, launch::lane_scratch, shape_.scratch_lane);
  put(launch, launch::wave_size, shape_.wave_size);
  if (shape_.stepped)
    mark_stepped(launch);
}

// A work-group whose waves are all halted is not in a deadlock, and leaves its turn to others.
void Execution::mark_stepped(char *launch) const {
  put(launch, launch::stepping, STEPPING | kShowsFirst);
  put(launch, launch::cooperative, uint64_t{1});
  put_atomically<uint64_t>(launch, launch::slice, 0);
}

void Execution::step() {
  {
    std::lock_guard lock(setting_up_);
    if (shape_.stepped)
      return;
    shape_.stepped = true;
    for (PartMemory &part : grid_)
      mark_stepped(part.launch);
  }
  std::vector<Worker *> all;
  {
    std::lock_guard lock(mutex_);
    all = workers_;
  }
  for (Worker *worker : all)
    worker->step(host_);
}

std::vector<Worker *> Execution::groups() {
  std::vector<Worker *> running;
  {
    std::lock_guard lock(mutex_);
    for (Worker *worker : workers_)
      if (worker->group(group::active))
        running.push_back(worker);
  }
  std::sort(running.begin(), running.end(), [](const Worker *left, const Worker *right) {
    return group_number(left->group_address()) < group_number(right->group_address());
  });
  return running;
}

bool Execution::prepare(Worker &worker) {
  unsigned number = 0;
  {
    std::lock_guard lock(mutex_);
    if (prepared_ == resident_)
      return false;
    number = prepared_++;
  }
  worker.prepare(shape_, number, host_);
  const PartMemory *part = part_to_begin();
  worker.enter(part ? *part : grid_.back());
  see(worker, *ranges_);
  worker.context(context::translate, translate_function(bounds_ != nullptr));
  worker.context(context::observe, observe_function());
  worker.context(context::following, Origins::nans().following());
  worker.context(context::undefined, shape_.undefined ? UndefinedMemory::get().address() : 0);
  worker.context(context::code_base, dispatch_.code);
  worker.context(context::code_size, get(plan_, plan::code_size));
  worker.context(context::code_index, get(plan_, plan::code_index));
  return true;
}

void Execution::run(ThreadPool &pool, Worker &own, Workers &more, unsigned helpers) {
  pool.spread(own, helpers, [&](Worker &worker, unsigned) { work(worker, more); });
  parts_.clear();
  std::lock_guard lock(mutex_);
  workers_.clear();
}

// Run work on one of the threads: with its own worker, if one more may run, and with others that are ready.
void Execution::work(Worker &own, Workers &more) {
  std::optional<Worker::Part> part;
  bool shares = false; // whether its own worker may be in the hands of other threads
  Worker *worker = begin(own, part);
  std::unique_lock lock(mutex_);
  if (!worker)
    worker = take(lock, shares);
  while (worker) {
    lock.unlock();
    bool waits = false;
    Worker *next = run_slice(*worker, more, waits);
    lock.lock();
    shares |= waits && worker == &own;
    worker = next ? next : take(lock, shares);
  }
  workers_.erase(std::remove(workers_.begin(), workers_.end(), &own), workers_.end());
}

// Prepare a worker and add it; return null if no more may run, or if that failed.
Worker *Execution::begin(Worker &worker, std::optional<Worker::Part> &part) {
  const Passage passage(host_.gate()); // a debugger must know all workers
  try {
    if (!prepare(worker))
      return nullptr;
    part.emplace(worker);
  } catch (const std::exception &problem) {
    host_.failed(problem.what());
    abort();
    return nullptr;
  }
  std::lock_guard lock(mutex_);
  workers_.push_back(&worker);
  ++unfinished_;
  return &worker;
}

// Run a worker until it has ended, or its slice is over. Return the worker with which the thread continues, unless that
// is one of the ready ones. `waits`: whether the worker became ready.
Worker *Execution::run_slice(Worker &worker, Workers &more, bool &waits) {
  uint64_t code = STOP;
  try {
    const Passage passage(host_.gate());
    code = advance(worker);
  } catch (const std::exception &problem) {
    host_.failed(problem.what());
    abort();
  }
  const bool begins = code == SWITCH && lets_begin(worker);
  if (asking.load(std::memory_order_relaxed))
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  std::unique_lock lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (code == DONE || worker.group(group::progress))
    moved_ = now;
  if (code == SWITCH && shape_.stepped) {
    idle_ = worker.group(group::progress) ? 0 : idle_ + 1;
    if (idle_ > unfinished_) { // all waves are halted, or wait for those that are
      lock.unlock();
      std::this_thread::sleep_for(kNap);
      lock.lock();
    }
  } else if (code == SWITCH && dispatch_.cooperative && now - moved_ > kPatience) {
    lock.unlock();
    host_.stopped(worker, DEADLOCK);
    abort();
    lock.lock();
    code = STOP;
  }
  if (code != SWITCH) {
    end(worker, lock);
    return nullptr;
  }
  if (!begins && ready_.empty())
    return &worker;
  waits = true;
  ready_.push_back(&worker);
  changed_.notify_one();
  if (!begins)
    return nullptr;
  Worker &other = more.at(parts_.size());
  auto &part = parts_.emplace_back();
  lock.unlock();
  return begin(other, part);
}

// Return the next worker that is ready; null if there is nothing more to do for a thread.
Worker *Execution::take(std::unique_lock<std::mutex> &lock, bool shares) {
  for (;;) {
    while (shares && ready_.empty() && unfinished_)
      changed_.wait(lock);
    if (ready_.empty())
      return nullptr;
    Worker *ready = ready_.front();
    ready_.pop_front();
    if (!aborted())
      return ready;
    end(*ready, lock);
  }
}

void Execution::end(Worker &worker, std::unique_lock<std::mutex> &lock) {
  lock.unlock();
  host_.finished(worker);
  lock.lock();
  if (--unfinished_ == 0)
    changed_.notify_all();
}

// Return the first part whose work-groups have not all begun; null if there is none.
const PartMemory *Execution::part_to_begin() {
  for (size_t index = begins_.load(std::memory_order_relaxed); index < grid_.size(); ++index)
    if (const PartMemory &part = grid_[index]; begun(part) < get(part.launch, launch::group_count)) {
      begins_.store(index, std::memory_order_relaxed);
      return &part;
    }
  return nullptr;
}

void Execution::abort() {
  aborted_.store(true, std::memory_order_relaxed);
  std::lock_guard lock(setting_up_);
  for (PartMemory &part : grid_)
    put_atomically<uint32_t>(part.launch, launch::abort, 1);
}

// A work-group that waits for others in a loop repeats its state. One that counts its iterations does not: after a time
// it also counts as waiting.
bool Execution::lets_begin(Worker &worker) {
  if (!part_to_begin())
    return false;
  bool is_full = false;
  {
    std::lock_guard lock(mutex_);
    if (prepared_ < together_)
      return true;
    is_full = prepared_ == resident_;
  }
  // Work-groups that take turns between barriers are not asked each time: that compares all their registers.
  if (!worker.has_spent(dispatch_.quantum) || (is_full && !worker.is_due(kSeldom))) // full: it is for `progress` alone
    return false;
  const bool repeats = worker.repeats();
  if (is_full)
    return false;
  std::lock_guard lock(mutex_);
  if (!repeats && worker.group(group::steps) < patience_)
    return false;
  if (!repeats)
    patience_ /= 2;
  for (PartMemory &part : grid_)
    put_atomically<uint64_t>(part.launch, launch::slice, 0); // from now on, work-groups take turns
  return true;
}

Progress Execution::progress() {
  ++asking;
  std::scoped_lock lock(mutex_, setting_up_);
  --asking;
  Progress all;
  for (const PartMemory &part : grid_) {
    all.groups += get(part.launch, launch::group_count);
    all.begun += begun(part);
  }
  all.resident = resident_;
  all.repeats = all.is_full = prepared_ == resident_ && all.begun < all.groups;
  for (const Worker *worker : workers_) {
    std::set<uint64_t> places;
    if (!worker->add_places(places))
      continue;
    ++all.running;
    all.repeats &= worker->repeated();
    for (const uint64_t place : places)
      ++all.places[place];
  }
  return all;
}

uint64_t Execution::advance_alone(Worker &worker) {
  if (bounds_)
    activate(bounds_);
  activate(observer_);
  for (;;) {
    const uint64_t code = worker.run();
    if (const PartMemory *part = code == DONE ? part_to_begin() : nullptr)
      worker.enter(*part);
    else if (code == MODE && worker.table(Worker::key_of(worker.current())))
      resume(worker);
    else if (code == MESSAGE)
      host_.interrupt();
    else if (code != FAULT || !sees_more(worker))
      return code;
  }
}

// Continue after the host has bound the target of an instruction.
void Execution::resume(Worker &worker) {
  const char *wave = worker.current();
  worker.switch_table(Worker::key_of(wave), host_);
}

uint64_t Execution::advance(Worker &worker) {
  for (;;) {
    const uint64_t code = advance_alone(worker);
    if (code == DONE || code == STOP || code == SWITCH)
      return code;
    if (code == STEP && shape_.stepped) {
      host_.stepped(worker);
      continue;
    }
    if (code == JUMP && goes_outside(worker))
      continue;
    if (code != UNBOUND && code != MODE) {
      host_.stopped(worker, code);
      abort();
      return STOP;
    }
    if (code == UNBOUND) {
      const char *wave = worker.current();
      host_.bind(plan_, Worker::key_of(wave), Worker::record_of(wave));
    }
    resume(worker);
  }
}

// Continue in another object, after a call by a pointer or within that object.
bool Execution::goes_outside(Worker &worker) {
  const uint64_t record = host_.find_outside(plan_, dispatch_.code, worker.context(context::fault_address));
  if (record == Host::kNowhere)
    return false;
  worker.go_to(record, host_);
  return true;
}

// Memory may have been added since the launch began: then repeat the access.
bool Execution::sees_more(Worker &worker) {
  auto now = host_.ranges();
  const uint64_t address = worker.context(context::fault_address), size = worker.context(context::fault_size);
  if (worker.context(context::fault_kind) != FAULT_MEMORY || !now->holds(address, size) ||
      worker.context(context::ranges) == reinterpret_cast<uint64_t>(now->rows.data()))
    return false;
  worker.uncount();
  see(worker, *now);
  std::lock_guard lock(mutex_);
  kept_.push_back(std::move(now));
  return true;
}

} // namespace luthier
