#include "worker.h"

namespace luthier {

using namespace layout;

namespace {

// As layout.wave_stride.
uint64_t wave_stride(unsigned wave_size) {
  return VECTORS + (2 * VECTOR_ROWS + (wave_size == 32 ? 2 : 1)) * 4 * wave_size;
}

}  // namespace

Worker::Worker(Service &service) : service_(service), fixed_(context::kSize + group::kSize) {
  context_ = fixed_.data();
  group_ = context_ + context::kSize;
  put(context_, context::translate, service.setup().translate);
  Census::get().enter(*this);
}

Worker::~Worker() { Census::get().leave(*this); }

void Worker::prepare(const Shape &shape, unsigned number) {
  const uint64_t stride = wave_stride(shape.wave_size);
  const Setup &setup = service_.setup();
  if (stride != stride_ || shape.waves > room_) {
    waves_ = Arena(shape.waves * stride + 256);
    first_wave_ = reinterpret_cast<char *>(round_up(reinterpret_cast<uint64_t>(waves_.data()), 256));
    stride_ = stride;
    room_ = shape.waves;
    for (unsigned index = 0; index < room_; ++index) {
      char *wave = first_wave_ + index * stride;
      std::memcpy(wave + CONSTANTS, setup.constants.data(), setup.constants.size());
      put(wave, wave::context, context_);
      put(wave, wave::group, group_);
      put(wave, wave::shared_base, setup.shared_base);
      put(wave, wave::shared_limit, setup.shared_base | 0xFFFF);
      put(wave, wave::private_base, setup.private_base);
      put(wave, wave::private_limit, setup.private_base | 0xFFFFFFFF);
      put(wave, wave::index, index);
    }
  }
  if (lds_.size() < shape.lds_size || !lds_.data())
    lds_ = Arena(shape.lds_limit);
  plan_ = shape.plan;
  {
    std::lock_guard lock(mutex_);
    tables_ = &codes_[get(plan_, plan::code)];
  }
  sync(get(plan_, plan::key), get(plan_, plan::entry) / record::kSize);
  put(group_, group::waves, first_wave_);
  put(group_, group::wave_stride, stride);
  put(group_, group::wave_count, shape.waves);
  put(group_, group::active, uint64_t{0});
  put(group_, group::lds, lds_.data());
  put(group_, group::lds_size, shape.lds_size);
  put(context_, context::resume, uint64_t{0});
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

uint64_t Worker::run() { return static_cast<uint64_t>(service_.setup().scheduler(context_, group_)); }

void Worker::sync(uint64_t key, uint64_t record) {
  const char *master = pointer<const char *>(plan_, plan::masters) + key * master::kSize;
  if (!pointer<void *>(master, master::records))
    service_.bind(get(plan_, plan::kernel), key, record);
  const uint64_t version = __atomic_load_n(
      reinterpret_cast<const uint64_t *>(master + master::version.offset), __ATOMIC_ACQUIRE);
  const uint64_t size = get(plan_, plan::record_count) * layout::record::kSize;
  std::lock_guard lock(mutex_);
  Copy &copy = tables_->copies[key];
  if (copy.version == version)
    return;
  const char *source = pointer<const char *>(master, master::records);
  if (!copy.records.data()) {
    copy.records = Arena(size);
    std::memcpy(copy.records.data(), source, size);
    reinterpret_cast<char **>(tables_->addresses.data())[key] = copy.records.data();
  } else {
    // Only where something was bound since: counts stay.
    constexpr Field slots = layout::record::slots;
    for (uint64_t at = 0; at < size; at += layout::record::kSize) {
      char *mine = copy.records.data() + at;
      const uint64_t function =
          __atomic_load_n(reinterpret_cast<const uint64_t *>(source + at + layout::record::function.offset), __ATOMIC_ACQUIRE);
      if (get(mine, layout::record::function) == function)
        continue;
      std::memcpy(mine + slots.offset, source + at + slots.offset, slots.size);
      put(mine, layout::record::function, function);
    }
  }
  copy.version = version;
}

uint64_t Worker::key_of(const char *wave) {
  const uint64_t mode = get(wave, wave::mode);
  const uint64_t m0 = get(wave, Field{static_cast<uint32_t>(M0), 4});
  const uint64_t relative = mode & GPR_INDEX_ENABLE ? m0 >> 12 & 15 : 0;
  return (mode & MODE_MASK) | relative << 10 | (mode >> FP16_OVERFLOW_SHIFT & 1) << OVERFLOW_KEY_SHIFT |
         (mode >> SKIP_SHIFT & 1 ? SKIPPING : 0);
}

uint64_t Worker::record_of(const char *wave) {
  return (get(wave, wave::pc) - get(wave, wave::table)) / record::kSize;
}

void Worker::switch_table(uint64_t key) {
  char *wave = current();
  const uint64_t record = record_of(wave);
  sync(key, record);
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
      sum += get(copy.records.data() + uint64_t{records[index]} * record::kSize, record::count);
  return sum;
}

void Worker::add_to(Tally &tally) const {
  std::lock_guard lock(mutex_);
  for (const auto &[code, tables] : codes_)
    for (const auto &[key, copy] : tables.copies)
      for (uint64_t at = 0; at + record::kSize <= copy.records.size(); at += record::kSize)
        if (const uint64_t count = get(copy.records.data() + at, record::count)) {
          Executed &executed = tally[code][at / record::kSize];
          executed.count += count;
          executed.lanes += get(copy.records.data() + at, record::lanes);
        }
}

std::string_view Worker::wave_bytes() const { return {first_wave_, waves_count_ * stride_}; }

const char *Worker::table(uint64_t key) const {
  auto found = tables_->copies.find(key);
  return found == tables_->copies.end() ? nullptr : found->second.records.data();
}

}  // namespace luthier
