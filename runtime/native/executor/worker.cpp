#include "worker.h"

#include <algorithm>

#include "scheduler.h"
#include "undefined_memory.h"

namespace luthier {

using namespace layout;

uint64_t wave_stride(unsigned wave_size) {
  return VECTORS + (wave_size == 32 ? 4 * VECTOR_ROWS + 2 : 2 * VECTOR_ROWS + 1) * 4 * wave_size;
}

namespace {

// Bytes of copied tables that a worker keeps. It keeps all tables of code that it runs.
constexpr uint64_t kKept = 64 << 20;

} // namespace

Worker::Worker(const Engine &engine) : engine_(engine), fixed_(context::kSize + group::kSize) {
  context_ = fixed_.data();
  group_ = context_ + context::kSize;
  ExecutionCounters::get().enter(*this);
}

Worker::~Worker() {
  leave_lds();
  ExecutionCounters::get().leave(*this, engine_.counts_wanted);
}

// Called before LDS is freed: its addresses will be reused.
void Worker::leave_lds() {
  if (undefined_)
    UndefinedMemory::get().define(reinterpret_cast<uint64_t>(lds_.data()), lds_.size());
  undefined_ = false;
}

void Worker::make_waves(uint64_t stride, unsigned count) {
  waves_ = Arena(count * stride + 256);
  first_wave_ = reinterpret_cast<char *>(round_up(reinterpret_cast<uint64_t>(waves_.data()), 256));
  stride_ = stride;
  room_ = count;
  for (unsigned index = 0; index < count; ++index) {
    char *wave = first_wave_ + index * stride;
    std::memcpy(wave + CONSTANTS, engine_.constants.data(), engine_.constants.size());
    put(wave, wave::context, context_);
    put(wave, wave::group, group_);
    put(wave, wave::shared_base, engine_.shared_base);
    put(wave, wave::shared_limit, engine_.shared_base | 0xFFFF);
    put(wave, wave::private_base, engine_.private_base);
    put(wave, wave::private_limit, engine_.private_base | 0xFFFFFFFF);
    put(wave, wave::index, index);
  }
}

void Worker::prepare(const Shape &shape, unsigned number, Host &host) {
  const uint64_t stride = wave_stride(shape.wave_size) * (shape.undefined ? 2 : 1);
  if (stride != stride_ || shape.waves > room_)
    make_waves(stride, shape.waves);
  waves_count_ = 0; // none of this launch is anywhere yet
  if (lds_.size() < shape.lds_size || !lds_.data()) {
    leave_lds();
    lds_ = Arena(shape.lds_limit);
  }
  undefined_ |= shape.undefined;
  plan_ = shape.plan;
  const uint64_t code = get(plan_, plan::code);
  watched_ = shape.watch != nullptr;
  {
    std::lock_guard lock(mutex_);
    auto &codes = shape.watch ? watched_codes_ : codes_;
    if (copied_ > kKept && !engine_.counts_wanted && !codes.count(code)) {
      codes_.clear();
      watched_codes_.clear();
      copied_ = 0;
    }
    tables_ = &codes[code];
  }
  if (watched_) {
    watch_.begin(shape.watch, shape.wave_size, shape.waves, group_);
    for (const auto &[key, copy] : tables_->copies)
      watch_.add(copy.records.data(), copy.functions.data());
  }
  const uint64_t key = (get(plan_, plan::key) & ~(shape.whole ? 0 : ALL_DEFINED)) | (shape.stepped ? STEPPING : 0);
  const uint64_t entry = get(plan_, plan::entry);
  sync(key, entry / record::kSize, host);
  if (get(plan_, plan::stepping) == STEPPING) { // where stepped waves begin: it leads elsewhere for each kernel
    const char *master = pointer<const char *>(plan_, plan::masters) + key * master::kSize;
    std::memcpy(tables_->copies[key].records.data() + entry, pointer<const char *>(master, master::records) + entry,
                record::kSize);
  }
  beyond_count_ = get(plan_, plan::beyond_count);
  beyond_ = pointer<const uint32_t *>(plan_, plan::beyond);
  beyond_before_ = executions(beyond_, beyond_count_);
  put(group_, group::waves, first_wave_);
  put(group_, group::wave_stride, stride);
  put(group_, group::wave_count, shape.waves);
  put(group_, group::active, uint64_t{0});
  seen_ = {};
  repeated_.store(false, std::memory_order_relaxed);
  put(group_, group::lds, lds_.data());
  put(group_, group::lds_size, shape.lds_size);
  put(context_, context::resume, uint64_t{0});
  put(context_, context::accesses, uint64_t{0});
  waves_count_ = shape.waves;
  const uint64_t wave_scratch = shape.wave_size * shape.scratch_lane;
  for (unsigned index = 0; index < shape.waves; ++index) {
    char *wave = first_wave_ + index * stride;
    put(wave, wave::tables, tables_->addresses.data());
    put(wave, wave::lds, lds_.data());
    put(wave, wave::lds_size, shape.lds_size);
    put(wave, wave::scratch, shape.scratch + (uint64_t{number} * shape.waves + index) * wave_scratch);
    put(wave, wave::scratch_size, shape.scratch_lane);
  }
}

void Worker::enter(const PartMemory &part) {
  std::lock_guard lock(mutex_);
  put(context_, context::launch, part.launch);
  put(group_, group::wave_count, part.waves);
  waves_count_ = part.waves;
  seen_ = {};
}

uint64_t Worker::digest() const {
  uint64_t sum = 0;
  const auto add = [&sum](const char *from, uint64_t size) {
    for (uint64_t at = 0; at + 8 <= size; at += 8) {
      uint64_t word;
      std::memcpy(&word, from + at, sizeof word);
      sum = (sum ^ word) * 0x9E3779B97F4A7C15;
      sum ^= sum >> 32;
    }
  };
  const uint64_t vgprs = get(plan_, plan::vgpr_bytes), agprs = get(plan_, plan::agpr_bytes);
  const uint64_t first_agpr = VECTORS + VECTOR_ROWS * 4 * get(plan_, plan::wave_size);
  for (unsigned index = 0; index < waves_count_; ++index) {
    const char *wave = first_wave_ + index * stride_;
    const uint64_t rest[] = {get(wave, wave::scc), get(wave, wave::mode), get(wave, wave::status), record_of(wave)};
    add(reinterpret_cast<const char *>(rest), sizeof rest);
    add(wave, SCALARS);
    add(wave + VECTORS, vgprs);
    add(wave + first_agpr, agprs);
  }
  return sum;
}

bool Worker::has_spent(uint64_t steps) {
  const uint64_t number = group(group::number), now = group(group::steps);
  if (now - (spent_.group == number ? spent_.steps : 0) < steps)
    return false;
  spent_ = {number, now};
  return true;
}

bool Worker::repeats() {
  const uint64_t state = digest(), number = group(group::number);
  const bool repeats = seen_.group == number && seen_.state == state;
  if (seen_.group != number)
    seen_ = {number, state, 1, 1};
  else if (!repeats && --seen_.left == 0)
    seen_ = {number, state, 2 * seen_.most, 2 * seen_.most};
  repeated_.store(repeats, std::memory_order_relaxed);
  return repeats;
}

bool Worker::add_places(std::set<uint64_t> &places) const {
  std::lock_guard lock(mutex_); // tables stay where they are
  if (!get(group_, group::active))
    return false;
  const uint64_t records = records_size() / record::kSize;
  for (unsigned index = 0; index < waves_count_; ++index) {
    const char *wave = first_wave_ + index * stride_;
    if (const uint64_t record = record_of(wave); get(wave, wave::status) == READY && record < records)
      places.insert(record);
  }
  return true;
}

uint64_t Worker::run() {
  if (watched_)
    watch_.activate();
  return static_cast<uint64_t>(schedule(context_, group_));
}

Worker::Part::Part(Worker &worker) : worker_(worker) {
  std::lock_guard lock(worker_.mutex_);
  worker_.takes_part_ = true;
}

Worker::Part::~Part() {
  std::lock_guard lock(worker_.mutex_);
  worker_.takes_part_ = false;
}

// Records may be added meanwhile: their number is published after the records and the functions of their runs.
uint64_t Worker::records_size() const {
  const char *count = plan_ + plan::record_count.offset;
  return __atomic_load_n(reinterpret_cast<const uint64_t *>(count), __ATOMIC_ACQUIRE) * record::kSize;
}

// A function is one word, which compiled code reads each time: old and new functions execute the same.
void Worker::take_runs() {
  std::lock_guard lock(mutex_);
  if (!takes_part_ || watched_)
    return;
  const uint64_t size = records_size();
  for (auto &[key, copy] : tables_->copies) {
    const char *master = pointer<const char *>(plan_, plan::masters) + key * master::kSize;
    const uint64_t version =
        __atomic_load_n(reinterpret_cast<const uint64_t *>(master + master::version.offset), __ATOMIC_ACQUIRE);
    const auto *runs = pointer<const uint64_t *>(master, master::runs);
    if (!runs || copy.runs_version == version)
      continue;
    // The function of a run reads literals of all its records from this copy, so it is taken when all are copied.
    const char *source = pointer<const char *>(master, master::records);
    uint64_t copied = RUN_MOST; // records from `at` on whose slots are here
    for (uint64_t at = std::min<uint64_t>(size, copy.records.size()); at > 0;) {
      at -= record::kSize;
      char *row = copy.records.data() + at;
      const bool is_equal =
          !std::memcmp(row + record::slots.offset, source + at + record::slots.offset, record::slots.size);
      copied = is_equal ? copied + 1 : 0;
      const uint64_t run = __atomic_load_n(runs + at / record::kSize, __ATOMIC_ACQUIRE);
      if (run && copied >= RUN_MOST)
        __atomic_store_n(reinterpret_cast<uint64_t *>(row + record::function.offset), run, __ATOMIC_RELAXED);
    }
    copy.runs_version = version;
  }
}

void Worker::sync(uint64_t key, uint64_t record, Host &host) {
  const char *master = pointer<const char *>(plan_, plan::masters) + key * master::kSize;
  const auto version_of = [master] {
    return __atomic_load_n(reinterpret_cast<const uint64_t *>(master + master::version.offset), __ATOMIC_ACQUIRE);
  };
  if (!version_of())
    host.bind(plan_, key, record);
  const uint64_t version = version_of();
  const uint64_t size = records_size();
  std::lock_guard lock(mutex_);
  Copy &copy = tables_->copies[key];
  if (copy.version == version)
    return;
  if (copy.records.size() < size) {
    copied_ += size - copy.records.size();
    grow(copy.records, size);
    reinterpret_cast<char **>(tables_->addresses.data())[key] = copy.records.data();
  }
  if (watched_ && copy.functions.size() < size / record::kSize) { // a copy may have had room for more records
    copy.functions.resize(size / record::kSize);
    watch_.add(copy.records.data(), copy.functions.data());
  }
  // Copy only records that were bound or rewritten since, to keep counts. Others may be bound at the same time: the
  // function of a record is written last and read first.
  const char *source = pointer<const char *>(master, master::records);
  // Watched instructions are executed one at a time, without functions of runs.
  const auto *runs = watched_ ? nullptr : pointer<const uint64_t *>(master, master::runs);
  constexpr Field kSlots = layout::record::slots;
  for (uint64_t at = 0; at < size; at += layout::record::kSize) {
    char *row = copy.records.data() + at;
    const uint64_t run = runs ? __atomic_load_n(runs + at / layout::record::kSize, __ATOMIC_ACQUIRE) : 0;
    const uint64_t function =
        run ? run
            : __atomic_load_n(reinterpret_cast<const uint64_t *>(source + at + layout::record::function.offset),
                              __ATOMIC_ACQUIRE);
    uint64_t *own = watched_ ? &copy.functions[at / layout::record::kSize] : nullptr;
    if ((own ? *own : get(row, layout::record::function)) == function &&
        !std::memcmp(row + kSlots.offset, source + at + kSlots.offset, kSlots.size))
      continue;
    std::memcpy(row + kSlots.offset, source + at + kSlots.offset, kSlots.size);
    if (own)
      *own = function;
    put(row, layout::record::function, own ? Watch::entry() : function);
  }
  copy.version = version;
}

void Worker::grow(Arena &records, uint64_t size) {
  Arena larger(size);
  if (const char *old = records.data()) {
    std::memcpy(larger.data(), old, records.size());
    for (unsigned index = 0; index < waves_count_; ++index) {
      char *wave = first_wave_ + index * stride_;
      if (pointer<const char *>(wave, wave::table) != old)
        continue;
      put(wave, wave::pc, larger.data() + (get(wave, wave::pc) - get(wave, wave::table)));
      put(wave, wave::table, larger.data());
    }
  }
  records = std::move(larger);
}

uint64_t Worker::key_of(const char *wave) {
  const uint64_t mode = get(wave, wave::mode);
  const uint64_t m0 = get(wave, Field{static_cast<uint32_t>(M0), 4});
  const uint64_t relative = mode & GPR_INDEX_ENABLE ? m0 >> 12 & 15 : 0;
  return (mode & MODE_MASK) | relative << 10 | (mode >> FP16_OVERFLOW_SHIFT & 1) << OVERFLOW_KEY_SHIFT |
         (mode >> SKIP_SHIFT & 1 ? SKIPPING : 0) | get(wave, wave::stepping) | get(wave, wave::bank_key);
}

uint64_t Worker::record_of(const char *wave) { return (get(wave, wave::pc) - get(wave, wave::table)) / record::kSize; }

void Worker::switch_table(uint64_t key, Host &host) { go_to(current(), record_of(current()), key, host); }

void Worker::go_to(uint64_t record, Host &host) { go_to(current(), record, host); }

void Worker::step(Host &host) {
  sync(get(plan_, plan::key) | STEPPING, get(plan_, plan::entry) / record::kSize, host);
  for (char *wave : live_waves()) {
    if (get(wave, wave::stepping) == STEPPING)
      continue;
    put(wave, wave::stepping, STEPPING);
    put(wave, wave::unseen, uint64_t{1});
    go_to(wave, record_of(wave), host);
  }
}

std::vector<char *> Worker::live_waves() const {
  std::vector<char *> waves;
  if (!get(group_, group::active))
    return waves;
  for (uint64_t index = 0; index < get(group_, group::wave_count); ++index)
    if (char *wave = first_wave_ + index * stride_; get(wave, wave::status) != ENDED)
      waves.push_back(wave);
  return waves;
}

void Worker::go_to(char *wave, uint64_t record, uint64_t key, Host &host) {
  sync(key, record, host);
  const char *table = this->table(key);
  put(wave, wave::table, table);
  put(wave, wave::pc, table + record * layout::record::kSize);
}

void Worker::uncount() {
  const char *wave = current();
  char *place = pointer<char *>(wave, wave::pc);
  uint64_t exec = get(wave, Field{static_cast<uint32_t>(EXEC), 8});
  put(place, record::count, get(place, record::count) - 1);
  put(place, record::lanes, get(place, record::lanes) - __builtin_popcountll(exec));
}

uint64_t Worker::executions(const uint32_t *records, uint64_t count) const {
  uint64_t sum = 0;
  for (const auto &[key, copy] : tables_->copies)
    for (uint64_t index = 0; index < count; ++index)
      if ((uint64_t{records[index]} + 1) * record::kSize <= copy.records.size())
        sum += get(copy.records.data() + uint64_t{records[index]} * record::kSize, record::count);
  return sum;
}

void Worker::take_counts(uint64_t *counts, uint64_t *lanes, uint64_t records) {
  for (auto &[key, copy] : tables_->copies)
    // A copy that was not used since records were added has no room for the new ones.
    for (uint64_t index = 0; index < std::min<uint64_t>(records, copy.records.size() / record::kSize); ++index) {
      char *place = copy.records.data() + index * record::kSize;
      const uint64_t count = get(place, record::count);
      if (!count)
        continue;
      counts[index] += count;
      lanes[index] += get(place, record::lanes);
      put(place, record::count, uint64_t{0});
      put(place, record::lanes, uint64_t{0});
    }
}

void Worker::add_to(Tally &tally, uint64_t least) const {
  std::lock_guard lock(mutex_);
  for (const auto &[code, tables] : codes_)
    for (const auto &[key, copy] : tables.copies)
      for (uint64_t at = 0; at + record::kSize <= copy.records.size(); at += record::kSize)
        if (const uint64_t count = get(copy.records.data() + at, record::count); count >= least) {
          Executed &executed = tally[code][at / record::kSize];
          executed.count += count;
          executed.lanes += get(copy.records.data() + at, record::lanes);
        }
}

void Worker::move_counts(Tally &tally, Tally *kept) {
  std::lock_guard lock(mutex_);
  const uint64_t code = get(plan_, plan::code);
  for (auto &[key, copy] : tables_->copies)
    for (uint64_t at = 0; at + record::kSize <= copy.records.size(); at += record::kSize) {
      char *place = copy.records.data() + at;
      const uint64_t count = get(place, record::count), lanes = get(place, record::lanes);
      if (!count)
        continue;
      for (Tally *sums : {&tally, kept})
        if (sums) {
          Executed &sum = (*sums)[code][at / record::kSize];
          sum.count += count;
          sum.lanes += lanes;
        }
      put(place, record::count, uint64_t{0});
      put(place, record::lanes, uint64_t{0});
    }
}

std::string_view Worker::wave_bytes() const { return {first_wave_, waves_count_ * stride_}; }

const char *Worker::table(uint64_t key) const {
  auto entry = tables_->copies.find(key);
  return entry == tables_->copies.end() ? nullptr : entry->second.records.data();
}

} // namespace luthier
