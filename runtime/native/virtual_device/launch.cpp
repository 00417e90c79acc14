#include "launch.h"

#include <algorithm>

namespace luthier {

using namespace layout;

namespace {

constexpr uint64_t kQuantum = 4096;  // backward branches of a wave's turn
constexpr uint64_t kNoLimit = uint64_t{1} << 62;
constexpr uint32_t kResidentGroups = 1024;
constexpr auto kPatience = std::chrono::seconds(5);  // of a cooperative launch in which nothing moves

// The buffer descriptor of scratch; as luthier.emulator.running.start.scratch_descriptor says.
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

Fault refusal(QueueError error, std::string text) {
  Fault fault;
  fault.error = error;
  fault.text = std::move(text);
  return fault;
}

}  // namespace

Resources::~Resources() {
  if (scratch_)
    memory.free(scratch_);
}

uint64_t Resources::scratch(unsigned node, uint64_t size) {
  if (size > scratch_size_) {
    if (scratch_)
      memory.free(scratch_);
    scratch_ = scratch_size_ = 0;
    scratch_ = reinterpret_cast<uint64_t>(memory.allocate(node, size, 0));
    scratch_size_ = size;
    memory.map(scratch_, {node});
  }
  return scratch_;
}

Launch::Launch(Resources &resources, const Dispatch &dispatch)
    : resources_(resources), dispatch_(dispatch), plan_(dispatch.plan) {
  const auto &packet = *dispatch.packet;
  block_ = {packet.workgroup_size_x, packet.workgroup_size_y, packet.workgroup_size_z};
  grid_ = {packet.grid_size_x, packet.grid_size_y, packet.grid_size_z};
  shape_.plan = plan_;
  shape_.wave_size = get(plan_, plan::wave_size);
  shape_.lds_size = packet.group_segment_size;
  shape_.lds_limit = get(plan_, plan::lds_limit);
  const uint64_t wanted = packet.private_segment_size + get(plan_, plan::scratch_extra);
  shape_.scratch_lane = round_up(std::min(wanted, get(plan_, plan::scratch_limit)), 16);
}

// What a command processor refuses.
std::optional<Fault> Launch::check() const {
  const uint64_t items = uint64_t{block_.x} * block_.y * block_.z;
  const auto triple = [](Triple t) {
    return std::to_string(t.x) + " x " + std::to_string(t.y) + " x " + std::to_string(t.z);
  };
  if (items == 0 || !grid_.x || !grid_.y || !grid_.z)
    return refusal(QueueError::kDimensions, "a grid of " + triple(grid_) + " in work-groups of " + triple(block_));
  if (items > 1024)
    return refusal(QueueError::kGroupSize, "a work-group of " + std::to_string(items) + " work-items; 1024 fit");
  if (shape_.lds_size > shape_.lds_limit)
    return refusal(QueueError::kGroupMemory, std::to_string(shape_.lds_size) + " bytes of LDS; there are " +
                                                 std::to_string(shape_.lds_limit));
  const uint64_t waves = (items + shape_.wave_size - 1) / shape_.wave_size;
  if ((waves + 3) / 4 > get(plan_, plan::simd_waves))
    return refusal(QueueError::kRegisters, "a work-group of " + std::to_string(items) +
                                               " work-items needs more vector registers than there are");
  if (dispatch_.packet->private_segment_size > get(plan_, plan::scratch_limit))
    return refusal(QueueError::kDimensions, std::to_string(dispatch_.packet->private_segment_size) +
                                                " bytes of scratch a work-item; there are " +
                                                std::to_string(get(plan_, plan::scratch_limit)));
  return std::nullopt;
}

std::optional<Fault> Launch::run() {
  if (auto refused = check())
    return refused;
  // Work-groups at the ends of a grid that is no multiple of the work-group are smaller: parts of their own.
  struct Part {
    uint32_t first, groups, items;
  };
  const auto parts = [](uint32_t grid, uint32_t block) {
    std::vector<Part> found;
    if (grid / block)
      found.push_back({0, grid / block, block});
    if (grid % block)
      found.push_back({grid / block, 1, grid % block});
    return found;
  };
  for (Part z : parts(grid_.z, block_.z))
    for (Part y : parts(grid_.y, block_.y))
      for (Part x : parts(grid_.x, block_.x))
        if (!fault_ && !get(launch_, launch::abort))
          run_part({x.first, y.first, z.first}, {x.groups, y.groups, z.groups}, {x.items, y.items, z.items});
  return fault_;
}

void Launch::run_part(Triple first, Triple groups, Triple items) {
  const uint64_t count = uint64_t{groups.x} * groups.y * groups.z;
  set_items(items);
  const unsigned helpers = std::min<uint64_t>(count - 1, resources_.crew.size());
  uint64_t workers = 1 + helpers;
  if (dispatch_.cooperative) {
    if (count > kResidentGroups)
      return fail(refusal(QueueError::kDimensions, "a cooperative launch of " + std::to_string(count) +
                                                       " work-groups; " + std::to_string(kResidentGroups) + " fit"));
    workers = count;
    while (resources_.resident.size() + 1 < count)
      resources_.resident.push_back(std::make_unique<Worker>(resources_.service));
  }
  const uint64_t scratch = workers * shape_.waves * shape_.wave_size * shape_.scratch_lane;
  shape_.scratch = scratch ? resources_.scratch(dispatch_.node, scratch) : 0;
  ranges_ = resources_.memory.table(dispatch_.node);
  fill();
  put(launch_, launch::next_group, uint64_t{0});
  put(launch_, launch::group_count, count);
  put(launch_, launch::first_x, first.x);
  put(launch_, launch::first_y, first.y);
  put(launch_, launch::first_z, first.z);
  put(launch_, launch::grid_x, groups.x);
  put(launch_, launch::grid_y, groups.y);
  put(launch_, launch::grid_z, groups.z);
  if (!dispatch_.cooperative) {
    resources_.crew.spread(resources_.own, helpers, [this](Worker &worker, unsigned number) {
      try {
        prepare(worker, number);
        work(worker);
      } catch (const std::exception &problem) {
        fail(refusal(QueueError::kTrap, problem.what()));
      }
    });
    return;
  }
  ready_.assign(1, &resources_.own);
  for (uint64_t index = 0; index + 1 < count; ++index)
    ready_.push_back(resources_.resident[index].get());
  unsigned number = 0;
  for (Worker *worker : ready_)
    prepare(*worker, number++);
  unfinished_ = count;
  moved_ = std::chrono::steady_clock::now();
  resources_.crew.spread(resources_.own, helpers, [this](Worker &, unsigned) {
    try {
      work_together();
    } catch (const std::exception &problem) {
      fail(refusal(QueueError::kTrap, problem.what()));
    }
  });
}

// EXEC and the work-item ids of each wave: 64 bytes with EXEC first, then rows.
void Launch::set_items(Triple items) {
  const uint32_t total = items.x * items.y * items.z, size = shape_.wave_size;
  const bool packed = get(plan_, plan::packed_ids);
  const unsigned ids = get(plan_, plan::work_item_ids), rows = packed ? 1 : ids;
  shape_.waves = (total + size - 1) / size;
  const size_t stride = 64 + size_t{rows} * size * 4;
  lanes_.assign(shape_.waves * stride, '\0');
  for (uint32_t flat = 0; flat < total; ++flat) {
    char *image = lanes_.data() + flat / size * stride;
    const uint32_t lane = flat % size;
    uint64_t exec;
    std::memcpy(&exec, image, sizeof exec);
    exec |= uint64_t{1} << lane;
    std::memcpy(image, &exec, sizeof exec);
    const uint32_t id[3] = {flat % items.x, flat / items.x % items.y, flat / (items.x * items.y)};
    uint32_t value = id[0];
    for (unsigned axis = 1; packed && axis < ids; ++axis)
      value |= id[axis] << 10 * axis;
    for (unsigned row = 0; row < rows; ++row)
      std::memcpy(image + 64 + (size_t{row} * size + lane) * 4, packed ? &value : &id[row], 4);
  }
  put(launch_, launch::lane_images, lanes_.data());
  put(launch_, launch::lane_image_stride, stride);
  put(launch_, launch::lane_image_size, stride - 64);
}

void Launch::fill() {
  const auto &packet = *dispatch_.packet;
  const auto set = [this](Field where, const void *value, size_t size) {
    const uint64_t place = get(plan_, where);
    if (place != ABSENT)
      std::memcpy(sgprs_ + place, value, size);
  };
  const uint64_t dispatch = reinterpret_cast<uint64_t>(&packet), id = dispatch_.id;
  const uint64_t kernarg = reinterpret_cast<uint64_t>(packet.kernarg_address);
  const uint32_t lane = shape_.scratch_lane;
  char descriptor[16];
  put_scratch_descriptor(descriptor, shape_.scratch, shape_.scratch_lane);
  set(plan::private_segment_buffer, descriptor, sizeof descriptor);
  set(plan::dispatch_ptr, &dispatch, 8);
  set(plan::queue_ptr, &dispatch_.queue, 8);
  set(plan::kernarg_segment_ptr, &kernarg, 8);
  set(plan::dispatch_id, &id, 8);
  set(plan::flat_scratch_init, &shape_.scratch, 8);
  set(plan::private_segment_size, &lane, 4);
  if (get(plan_, plan::kernarg_preload) != ABSENT) {
    const uint64_t from = kernarg + get(plan_, plan::kernarg_preload_offset);
    const uint64_t size = get(plan_, plan::kernarg_preload_size);
    if (const char *there = resources_.memory.host(dispatch_.node, from, size))
      set(plan::kernarg_preload, there, size);
  }
  for (auto [to, from] : {std::pair{launch::vgpr_bytes, plan::vgpr_bytes}, {launch::agpr_bytes, plan::agpr_bytes},
                          {launch::group_id_x, plan::group_id_x}, {launch::group_id_y, plan::group_id_y},
                          {launch::group_id_z, plan::group_id_z}, {launch::group_info, plan::group_info},
                          {launch::scratch_offset, plan::scratch_offset}, {launch::wave_id, plan::wave_id},
                          {launch::wave_id_shift, plan::wave_id_shift}, {launch::packed_yz, plan::packed_yz},
                          {launch::mode, plan::mode}, {launch::architected_scratch, plan::architected_scratch},
                          {launch::entry, plan::entry}})
    put(launch_, to, get(plan_, from));
  put(launch_, launch::quantum, kQuantum);
  put(launch_, launch::step_limit, kNoLimit);
  put(launch_, launch::sgpr_image, sgprs_);
  put(launch_, launch::agprs, VECTORS + VECTOR_ROWS * 4 * shape_.wave_size);
  put(launch_, launch::scratch_base, shape_.scratch);
  put(launch_, launch::cooperative, dispatch_.cooperative);
}

void Launch::prepare(Worker &worker, unsigned number) {
  worker.prepare(shape_, number);
  const uint64_t base = dispatch_.packet->kernel_object + get(plan_, plan::code_delta);
  worker.context(context::launch, reinterpret_cast<uint64_t>(launch_));
  see(worker, *ranges_);
  worker.context(context::code_base, base);
  worker.context(context::code_size, get(plan_, plan::code_size));
  worker.context(context::code_index, get(plan_, plan::code_index));
}

void Launch::work(Worker &worker) {
  const auto *beyond = pointer<const uint32_t *>(plan_, plan::beyond);
  const uint64_t count = get(plan_, plan::beyond_count);
  const uint64_t before = worker.executions(beyond, count);
  if (advance(worker) == DONE && worker.executions(beyond, count) != before)
    fail(refusal(QueueError::kInstruction, "the kernel uses registers that its descriptor does not allocate"));
}

// Takes turns among the work-groups of a cooperative launch, together with other threads.
void Launch::work_together() {
  for (;;) {
    Worker *worker = nullptr;
    {
      std::lock_guard lock(mutex_);
      if (unfinished_ == 0 || fault_)
        return;
      if (!ready_.empty()) {
        worker = ready_.front();
        ready_.pop_front();
      }
    }
    if (!worker) {  // the others have all that is left
      std::this_thread::yield();
      continue;
    }
    const uint64_t code = advance(*worker);
    const auto now = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    if (code == STOP) {
      unfinished_ = 0;
      return;
    }
    if (code == DONE || worker->group(group::progress))
      moved_ = now;
    if (code == DONE)
      --unfinished_;
    else
      ready_.push_back(worker);
    const bool stuck = now - moved_ > kPatience;
    lock.unlock();
    if (stuck)
      fail(*worker, DEADLOCK);
  }
}

// Runs until the worker is done, stopped, or it is another's turn; helps where compiled code cannot go on.
uint64_t Launch::advance(Worker &worker) {
  for (;;) {
    const uint64_t code = worker.run();
    if (code == DONE || code == STOP || code == SWITCH)
      return code;
    const char *wave = worker.current();
    const uint64_t key = Worker::key_of(wave);
    if (code == UNBOUND) {
      resources_.service.bind(get(plan_, plan::kernel), key, Worker::record_of(wave));
      worker.sync(key, Worker::record_of(wave));
    } else if (code == MODE) {
      worker.switch_table(key);
    } else if (code == MESSAGE) {
      resources_.interrupt();
    } else if (code != FAULT || !sees_more(worker)) {
      fail(worker, code);
      return STOP;
    }
  }
}

// Memory may have come since the launch began: the same access again, if it was that.
bool Launch::sees_more(Worker &worker) {
  auto now = resources_.memory.table(dispatch_.node);
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

void Launch::fail(Worker &worker, uint64_t reason) {
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
  Writer state;
  state.number(get(plan_, plan::kernel)).number(reason);
  state.bytes(worker.context_bytes()).bytes(worker.group_bytes()).bytes(worker.wave_bytes());
  const auto &rows = ranges_->rows;
  state.bytes(rows.data(), rows.size() * sizeof rows[0]);
  try {
    fault.text = resources_.service.explain(state);
  } catch (const std::exception &problem) {
    fault.text = std::string("a kernel failed, and why cannot be told: ") + problem.what();
  }
  fail(std::move(fault));
}

void Launch::fail(Fault fault) {
  {
    std::lock_guard lock(mutex_);
    if (!fault_)
      fault_ = std::move(fault);
  }
  abort();
}

}  // namespace luthier
