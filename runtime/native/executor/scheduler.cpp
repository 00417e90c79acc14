#include "scheduler.h"

#include "bytes.h"
#include "register_shadow.h"
#include "undefined_memory.h"
#include "unit_numbers.h"

namespace luthier {

using namespace layout;

namespace {

constexpr int kGoOn = -1; // the wave continues

constexpr uint64_t kSleeps = 64; // turns that waves sleep through, for one that counts for the limit of steps

constexpr uint64_t kUnit = 4; // bytes of a register of 32 bits

constexpr uint64_t offset_of(int unit) { return kUnit * static_cast<uint64_t>(unit); }

// Return the 32-bit field at an offset that the launch gives.
Field word_at(const char *launch, Field offset) { return {static_cast<uint32_t>(get(launch, offset)), 4}; }

template <typename... Fields> void clear(char *base, Fields... fields) { (put(base, fields, uint64_t{0}), ...); }

char *wave_of(const char *group, uint64_t index) {
  return pointer<char *>(group, group::waves) + index * get(group, group::wave_stride);
}

bool aborted(const char *launch) {
  return __atomic_load_n(reinterpret_cast<const uint32_t *>(launch + launch::abort.offset), __ATOMIC_RELAXED) != 0;
}

// Return a number below `count`, counted from the end in a backward launch.
uint64_t from_end(const char *launch, uint64_t number, uint64_t count) {
  return get(launch, launch::backward) == 1 ? count - 1 - number : number;
}

// Mark the registers of a wave that are undefined, and its scratch, if values that were never written are tracked.
void start_shadow(const char *launch, char *wave) {
  start_register_shadow(launch, wave);
  if (const uint64_t size = get(launch, launch::wave_size) * get(launch, launch::lane_scratch);
      size && get(launch, launch::undefined) & UNWRITTEN_VALUES)
    UndefinedMemory::get().leave(get(wave, wave::scratch), size);
}

void start_lds(const char *launch, const char *group) {
  char *lds = pointer<char *>(group, group::lds);
  const uint64_t size = get(group, group::lds_size);
  if (const char *image = pointer<const char *>(launch, launch::lds_image)) {
    std::memcpy(lds, image, size);
    return;
  }
  if (size) // with size 0, a C library may execute a masked store, which is slow on an unmapped page
    std::memset(lds, 0, size);
  const uint64_t sources = get(launch, launch::undefined);
  if (sources & UNWRITTEN_VALUES)
    UndefinedMemory::get().leave(reinterpret_cast<uint64_t>(lds), size);
  else if (sources)
    UndefinedMemory::get().define(reinterpret_cast<uint64_t>(lds), size);
}

void start_registers(const char *launch, char *wave, uint64_t index) {
  const char *image =
      pointer<const char *>(launch, launch::lane_images) + index * get(launch, launch::lane_image_stride);
  const char *sgprs = pointer<const char *>(launch, launch::sgpr_image);
  for (uint64_t at = 0; at < SCALARS; at += 64) // by lines: compilers make slow string instructions of one copy
    std::memcpy(wave + at, sgprs + at, 64);
  std::memset(wave + VECTORS, 0, get(launch, launch::vgpr_bytes));
  if (const uint64_t size = get(launch, launch::agpr_bytes))
    std::memset(wave + get(launch, launch::agprs), 0, size);
  std::memcpy(wave + EXEC, image, 8);
  if (const uint64_t size = get(launch, launch::lane_image_size))
    std::memcpy(wave + VECTORS, image + 64, size);
}

// Put the address of a wave's scratch into its registers, if the kernel expects it there.
void start_scratch(const char *launch, char *wave) {
  const uint64_t scratch = get(wave, wave::scratch), kind = get(launch, launch::architected_scratch);
  put(wave, word_at(launch, launch::scratch_offset), scratch - get(launch, launch::scratch_base));
  if (!kind)
    return;
  put(wave, wave::flat_scratch, scratch | (kind >> 1) << FLAT_SCRATCH_BIT);
  std::memcpy(wave + offset_of(units::FlatScratchSgpr), &scratch, 8);
}

// Put the state that is not in registers into a wave, and the record at which it begins.
void start_state(const char *launch, char *wave) {
  put(wave, wave::status, READY);
  clear(wave, wave::barrier, wave::pending, wave::bank_bits, wave::bank_key, wave::joined, wave::named_seen,
        wave::incomplete, wave::origins, wave::searches, wave::nans);
  const uint64_t shown = get(launch, launch::stepping), stepping = shown & ~kShowsFirst;
  const uint64_t mode = get(launch, launch::mode);
  put(wave, wave::unseen, uint64_t{shown != stepping});
  put(wave, wave::scc, get(launch, launch::scc));
  put(wave, wave::told, get(launch, launch::told));
  put(wave, wave::mode, mode);
  put(wave, wave::stepping, stepping);
  const uint64_t key = (mode & MODE_MASK) | (mode >> FP16_OVERFLOW_SHIFT & 1) << OVERFLOW_KEY_SHIFT | stepping;
  const char *table = pointer<const char *const *>(wave, wave::tables)[key];
  put(wave, wave::table, table);
  put(wave, wave::pc, table + get(launch, launch::entry));
}

struct GroupId {
  uint64_t x, y, z;
};

GroupId id_of(const char *launch, uint64_t number) {
  const uint64_t grid_x = get(launch, launch::grid_x), grid_y = get(launch, launch::grid_y);
  const uint64_t x = number % grid_x + get(launch, launch::first_x);
  const uint64_t y = number / grid_x % grid_y + get(launch, launch::first_y);
  const uint64_t z = number / grid_x / grid_y + get(launch, launch::first_z);
  const uint64_t given = get(launch, launch::packed_yz);
  return {x, given ? (y | z << 16) & given : y, z};
}

// Put a work-group into its initial state.
void start(const char *launch, char *group, uint64_t number) {
  const uint64_t count = get(group, group::wave_count), named = get(launch, launch::named);
  put(group, group::number, number);
  put(group, group::live, count);
  put(group, group::active, uint64_t{1});
  clear(group, group::waiting, group::steps, group::slept, group::slice_begin, group::signals, group::phase,
        group::watched);
  put(group, group::named, count > 1 ? named : 0);
  if (named)
    std::memset(group + group::named_members.offset, 0, 3 * kUnit * NAMED_BARRIERS);
  start_lds(launch, group);
  const GroupId id = id_of(launch, number);
  for (uint64_t index = 0; index < count; ++index) {
    char *wave = wave_of(group, index);
    start_registers(launch, wave, index);
    if (get(launch, launch::undefined))
      start_shadow(launch, wave);
    put(wave, word_at(launch, launch::group_id_x), id.x);
    put(wave, word_at(launch, launch::group_id_z), id.z);
    put(wave, word_at(launch, launch::group_id_y), id.y);
    put(wave, word_at(launch, launch::group_info), uint64_t{index == 0} << 31 | count);
    put(wave, word_at(launch, launch::wave_id), index << get(launch, launch::wave_id_shift));
    start_scratch(launch, wave);
    start_state(launch, wave);
  }
}

// Start the next work-group of the launch; return false if there is none.
bool start_next(char *launch, char *group) {
  auto *next = reinterpret_cast<uint64_t *>(launch + launch::next_group.offset);
  const uint64_t number = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED), count = get(launch, launch::group_count);
  if (number >= count)
    return false;
  start(launch, group, from_end(launch, number, count));
  return true;
}

// Open the barrier when every live wave waits: waves that have ended do not count.
void open_barrier(char *group) {
  const uint64_t waiting = get(group, group::waiting);
  if (!waiting || waiting != get(group, group::live))
    return;
  put(group, group::waiting, uint64_t{0});
  for (uint64_t index = 0, count = get(group, group::wave_count); index < count; ++index)
    if (char *wave = wave_of(group, index); (get(wave, wave::status) & ~kHalted) == WAITING)
      put(wave, wave::status, READY | (get(wave, wave::status) & kHalted));
}

// Add steps to those of a work-group: a loop of barriers uses no quantum, but must end, too. A wave that sleeps ends
// its turn early. It waits for work-groups that may run on a slower thread, so the limit counts the rest of such a turn
// less.
int spend(char *launch, char *group, uint64_t cost, uint64_t unused = 0) {
  const uint64_t steps = get(group, group::steps) + cost, slept = get(group, group::slept) + unused;
  put(group, group::steps, steps);
  put(group, group::slept, slept);
  if (aborted(launch))
    return STOP;
  return steps - slept + slept / kSleeps > get(launch, launch::step_limit) ? static_cast<int>(RUNAWAY) : kGoOn;
}

// Return the turns that a wave gets. A stepped wave, which returns after every instruction, keeps its turn until it is
// used up.
uint64_t turns_of(const char *context, const char *launch, const char *wave) {
  const uint64_t left = get(context, context::budget);
  const bool goes_on = get(wave, wave::stepping) == STEPPING && static_cast<int64_t>(left) >= 0;
  return goes_on ? left : get(launch, launch::quantum);
}

// Return the turns that a wave left: none if it used up its quantum.
uint64_t left_of(const char *context) {
  const auto left = static_cast<int64_t>(get(context, context::budget));
  return left > 0 ? static_cast<uint64_t>(left) : 0;
}

// Handle the reason for which a wave returned.
int take(uint64_t code, uint64_t given, const char *context, char *launch, char *group, char *wave) {
  switch (code) {
  case YIELD:
    return spend(launch, group, get(launch, launch::quantum), left_of(context));
  case RETRY:
    return spend(launch, group, 1);
  case BARRIER:
    put(wave, wave::status, WAITING);
    put(group, group::waiting, get(group, group::waiting) + 1);
    return spend(launch, group, given + 1 - get(context, context::budget));
  case END:
    put(wave, wave::status, ENDED);
    put(group, group::live, get(group, group::live) - 1);
    return kGoOn;
  default:
    return static_cast<int>(code);
  }
}

// Run a wave that is ready.
int run(char *context, char *launch, char *group, char *wave) {
  const uint64_t given = turns_of(context, launch, wave);
  put(context, context::budget, given);
  put(context, context::current, wave);
  if (get(wave, wave::unseen)) [[unlikely]] {
    put(wave, wave::unseen, uint64_t{0});
    return STEP;
  }
  char *record = pointer<char *>(wave, wave::pc);
  const int code = pointer<int (*)(char *, char *)>(record, record::function)(wave, record);
  if (code != RETRY || pointer<char *>(wave, wave::pc) != record)
    put(group, group::progress, uint64_t{1});
  const int reason = take(static_cast<uint64_t>(code), given, context, launch, group, wave);
  if (reason == kGoOn)
    open_barrier(group);
  return reason;
}

} // namespace

int schedule(char *context, char *group) {
  char *launch = pointer<char *>(context, context::launch);
  for (;;) {
    if (!get(group, group::active)) {
      if (aborted(launch))
        return STOP;
      if (!start_next(launch, group))
        return DONE;
      put(context, context::resume, uint64_t{0});
    }
    put(group, group::progress, uint64_t{0});
    const uint64_t first = get(context, context::resume), count = get(group, group::wave_count);
    for (uint64_t index = first; index < count; ++index) {
      char *wave = wave_of(group, from_end(launch, index, count));
      if (get(wave, wave::status) != READY)
        continue;
      if (const int reason = run(context, launch, group, wave); reason != kGoOn) {
        put(context, context::resume, index);
        return reason;
      }
    }
    put(context, context::resume, uint64_t{0});
    if (!get(group, group::live)) {
      put(group, group::active, uint64_t{0});
      continue;
    }
    // A sweep that began in the middle (after the host's help) proves nothing about the waves before it.
    if (!get(group, group::progress) && !first && !get(launch, launch::cooperative))
      return DEADLOCK;
    const uint64_t steps = get(group, group::steps);
    const auto *slice = reinterpret_cast<const uint64_t *>(launch + launch::slice.offset); // it may become less
    if (steps - get(group, group::slice_begin) >= __atomic_load_n(slice, __ATOMIC_RELAXED)) {
      put(group, group::slice_begin, steps);
      return aborted(launch) ? STOP : SWITCH;
    }
  }
}

} // namespace luthier
