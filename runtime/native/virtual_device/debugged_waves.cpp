#include "debugged_waves.h"

#include <cstdio>
#include <cstring>
#include <utility>

#include "scheduler.h"
#include "unit_numbers.h"
#include "user_memory.h"

namespace luthier {

using namespace layout;

namespace {

constexpr uint64_t kUnit = 4; // bytes of a register of 32 bits
constexpr uint64_t kLongestInstruction = 4 * kUnit;
constexpr uint32_t kNoOffset = ~uint32_t{0}, kNoRecord = ~uint32_t{0};

// Bits of registers, from the "ISA" documents of CDNA 2 and 3.
constexpr uint32_t kScc = 1, kTrapsOn = 1u << 6, kExecZero = 1u << 9, kVccZero = 1u << 10, kInGroup = 1u << 11;
constexpr uint32_t kInBarrier = 1u << 12, kHalt = 1u << 13, kValid = 1u << 16, kSkipExport = 1u << 18;
constexpr uint32_t kDebugMode = 1u << 11;
constexpr uint32_t kIllegalInstruction = 1u << 11; // of TRAPSTS

// Bits of trap temporaries, by which the trap handler and the debugger communicate.
constexpr unsigned kPacketTtmp = 6, kPcTtmp = 7, kGroupTtmp = 8, kWaveTtmp = 11;
constexpr uint32_t kStopped = 1u << 30, kSavedHalt = 1u << 29, kTrapShift = 25, kTrapMask = 15u << kTrapShift;
constexpr uint32_t kPcHighShift = 7, kPcHighMask = 0xFFFFu << kPcHighShift, kPacketShift = 6, kSetUp = 1u << 31;

Field unit(unsigned number, uint32_t size = kUnit) { return {static_cast<uint32_t>(number * kUnit), size}; }
Field ttmp(unsigned number) { return unit(units::Ttmp + number); }

uint32_t word(const char *from, unsigned number) {
  uint32_t value;
  std::memcpy(&value, from + number * kUnit, sizeof value);
  return value;
}

void put_word(char *to, unsigned number, uint64_t value) { std::memcpy(to + number * kUnit, &value, kUnit); }

} // namespace

DebuggedWaves::DebuggedWaves(const DebuggedQueue &queue, const char *plan, uint64_t code, uint32_t packet, uint32_t lds)
    : queue_(queue), plan_(plan), code_(code), packet_(packet), lds_(lds) {
  const uint64_t words = get(plan, plan::code_size) / kUnit;
  const auto *index = pointer<const uint32_t *>(plan, plan::code_index);
  for (uint64_t at = 0; at < words; ++at)
    if (const uint32_t record = ~index[at]; record != kNoRecord) {
      if (record >= offsets_.size())
        offsets_.resize(record + 1, kNoOffset);
      offsets_[record] = at * kUnit;
    }
}

DebuggedWaves::State &DebuggedWaves::state_of(const char *wave, const Worker &worker) {
  const uint64_t group = group_number(worker.group_address());
  std::lock_guard lock(mutex_);
  State &state = states_[wave];
  if (state.group != group) {
    state = {};
    state.group = group;
  }
  return state;
}

// Return the address of the instruction at which a wave continues; 0 if it is not in the kernel's own code.
uint64_t DebuggedWaves::pc_of(const char *wave) const {
  const uint64_t record = Worker::record_of(wave);
  return record < offsets_.size() && offsets_[record] != kNoOffset ? code_ + offsets_[record] : 0;
}

uint64_t DebuggedWaves::record_at(uint64_t address) const {
  const uint64_t at = (address - code_) / kUnit;
  if (address < code_ || address % kUnit || at >= get(plan_, plan::code_size) / kUnit)
    return kNoRecord;
  return ~pointer<const uint32_t *>(plan_, plan::code_index)[at];
}

// Debuggers write to memory of the device at any time.
uint32_t DebuggedWaves::word_at(uint64_t address) const {
  return __atomic_load_n(reinterpret_cast<const uint32_t *>(address), __ATOMIC_RELAXED);
}

bool DebuggedWaves::stop_at_trap(char *wave, State &state, uint64_t pc) {
  const uint32_t trap = trap_of(word_at(pc));
  if (!trap || !queue_.debugging->is_attached())
    return false;
  stop(wave, state, pc + kUnit, trap, exceptions::kTrap); // the trap handler returns behind the instruction
  return true;
}

void DebuggedWaves::stop(char *wave, State &state, uint64_t pc, uint32_t trap, uint64_t exceptions) {
  uint64_t stopped = get(wave, ttmp(kPacketTtmp)) & ~uint64_t{kSavedHalt | kTrapMask};
  stopped |= kStopped | (trap << kTrapShift & kTrapMask) | (state.status & kHalt ? kSavedHalt : 0);
  put(wave, ttmp(kPacketTtmp), stopped);
  if (queue_.format->parks) {
    put(wave, ttmp(kPcTtmp), pc & 0xFFFFFFFF);
    const uint64_t rest = get(wave, ttmp(kWaveTtmp)) & ~uint64_t{kPcHighMask};
    put(wave, ttmp(kWaveTtmp), rest | (pc >> 32 << kPcHighShift & kPcHighMask));
  }
  state.status |= kHalt | kSkipExport;
  state.pc = pc;
  state.displaced = 0;
  put(wave, wave::status, get(wave, wave::status) | kHalted);
  queue_.debugging->raise(queue_.id, exceptions);
}

// Give a new wave what the hardware gives it, in registers for traps.
void DebuggedWaves::set_up(char *wave, State &state, const Worker &worker) const {
  state.status = kTrapsOn | kValid | (worker.group(group::wave_count) > 1 ? kInGroup : 0);
  const bool moved = queue_.format->packet_in_ttmp11;
  put(wave, ttmp(kPacketTtmp), moved ? 0 : uint64_t{packet_});
  put(wave, ttmp(kWaveTtmp), get(wave, wave::index) | (moved ? packet_ << kPacketShift | kSetUp : 0));
  const auto *part = pointer<const PartMemory *>(worker.context_address(), context::launch);
  const uint64_t number = group_number(worker.group_address()), x = part->whole.x, y = part->whole.y;
  put(wave, ttmp(kGroupTtmp), number % x);
  put(wave, ttmp(kGroupTtmp + 1), number / x % y);
  put(wave, ttmp(kGroupTtmp + 2), number / x / y);
}

void DebuggedWaves::arrived(Worker &worker) {
  char *wave = worker.current();
  State &state = state_of(wave, worker);
  const bool is_new = state.status == 0, is_known = pc_of(wave) != 0;
  if (is_new)
    set_up(wave, state, worker);
  if (is_new && is_known && queue_.debugging->halts_new_waves()) {
    state.status |= kHalt;
    state.pc = pc_of(wave);
    put(wave, wave::status, get(wave, wave::status) | kHalted);
    return;
  }
  if (!is_known)
    return;
  const uint64_t pc = pc_of(wave);
  if (state.steps) {
    state.steps = false;
    state.trap_status |= queue_.format->after_step;
    stop(wave, state, pc + state.displaced, 0, exceptions::kTrap);
  } else {
    stop_at_trap(wave, state, pc);
  }
}

void DebuggedWaves::save(Execution &execution) {
  std::vector<Saved> all;
  std::vector<uint32_t> groups;
  for (Worker *worker : execution.groups()) {
    const std::vector<char *> waves = worker->live_waves();
    if (!waves.empty())
      groups.push_back(waves.size());
    for (char *wave : waves)
      all.push_back({wave, worker, {}});
  }
  const uint64_t row = kUnit * get(plan_, plan::wave_size);
  const SaveArea::Registers used{static_cast<uint32_t>(get(plan_, plan::vgpr_bytes) / row),
                                 static_cast<uint32_t>(get(plan_, plan::agpr_bytes) / row), lds_};
  const std::vector<SavedPlaces> places =
      SaveArea(queue_.area, queue_.area_size, queue_.stack_size).place(used, groups);
  for (size_t index = 0; index < all.size(); ++index) {
    Saved &saved = all[index];
    saved.places = places[index];
    State &state = state_of(saved.wave, *saved.worker);
    if (!state.status)
      set_up(saved.wave, state, *saved.worker);
    const uint64_t pc = state.status & kHalt ? state.pc : pc_of(saved.wave) + state.displaced;
    if (!pc)
      throw Failure("a wave executes code of another code object, whose addresses are not known");
    write(saved, state, pc);
  }
  saved_ = std::move(all);
}

void DebuggedWaves::write(const Saved &saved, const State &state, uint64_t pc) const {
  char *wave = saved.wave;
  const SavedPlaces &to = saved.places;
  const char *group = saved.worker->group_address();
  if (to.lds)
    std::memcpy(to.lds, pointer<const char *>(group, group::lds), lds_);
  std::memcpy(to.ttmps, wave + units::Ttmp * kUnit, units::Ttmps * kUnit);
  const uint64_t exec = get(wave, unit(units::ExecLo, 8)), vcc = get(wave, unit(units::VccLo, 8));
  uint32_t status = state.status & ~(kScc | kExecZero | kVccZero | kInBarrier);
  status |= (get(wave, wave::scc) ? kScc : 0) | (exec ? 0 : kExecZero) | (vcc ? 0 : kVccZero);
  status |= (get(wave, wave::status) & ~kHalted) == WAITING ? kInBarrier : 0;
  put_word(to.hardware, kM0, get(wave, unit(units::M0)));
  std::memcpy(to.hardware + kPcLow * kUnit, &pc, sizeof pc);
  std::memcpy(to.hardware + kExecLow * kUnit, &exec, sizeof exec);
  put_word(to.hardware, kStatus, status);
  put_word(to.hardware, kTrapStatus, state.trap_status);
  put_word(to.hardware, kMode, (get(wave, wave::mode) & ~uint64_t{kDebugMode}) | (state.steps ? kDebugMode : 0));
  std::memcpy(to.sgprs, wave, units::Ttmp * kUnit);
  std::memcpy(to.vgprs, wave + VECTORS, get(plan_, plan::vgpr_bytes));
  std::memcpy(to.agprs, wave + VECTORS + VECTOR_ROWS * kUnit * get(plan_, plan::wave_size),
              get(plan_, plan::agpr_bytes));
}

void DebuggedWaves::load(Host &host) {
  for (const Saved &saved : std::exchange(saved_, {}))
    read(saved, host);
}

void DebuggedWaves::read(const Saved &saved, Host &host) {
  char *wave = saved.wave;
  const SavedPlaces &from = saved.places;
  State &state = state_of(wave, *saved.worker);
  if (from.lds)
    std::memcpy(pointer<char *>(saved.worker->group_address(), group::lds), from.lds, lds_);
  std::memcpy(wave + units::Ttmp * kUnit, from.ttmps, units::Ttmps * kUnit);
  std::memcpy(wave, from.sgprs, units::Ttmp * kUnit);
  std::memcpy(wave + VECTORS, from.vgprs, get(plan_, plan::vgpr_bytes));
  std::memcpy(wave + VECTORS + VECTOR_ROWS * kUnit * get(plan_, plan::wave_size), from.agprs,
              get(plan_, plan::agpr_bytes));
  std::memcpy(wave + units::M0 * kUnit, from.hardware + kM0 * kUnit, kUnit);
  std::memcpy(wave + units::ExecLo * kUnit, from.hardware + kExecLow * kUnit, 2 * kUnit);
  const uint32_t mode = word(from.hardware, kMode), status = word(from.hardware, kStatus);
  put(wave, wave::mode, mode & ~kDebugMode);
  put(wave, wave::scc, status & kScc);
  state.status = status;
  state.trap_status = word(from.hardware, kTrapStatus);
  state.steps = mode & kDebugMode;
  uint64_t pc;
  std::memcpy(&pc, from.hardware + kPcLow * kUnit, sizeof pc);
  if (status & kHalt) {
    state.pc = pc;
    put(wave, wave::status, get(wave, wave::status) | kHalted);
  } else {
    const uint64_t unhalted = get(wave, wave::status) & ~kHalted;
    put(wave, wave::status, unhalted);
    if (unhalted == READY) // `go_on` looks at its next instruction
      put(wave, wave::unseen, uint64_t{0});
    go_on(saved, state, pc, host);
  }
}

// Return the address of an instruction like that at an address outside the kernel's code; 0 if there is none. Debuggers
// step a copy of an instruction so that a breakpoint can stay where it is, if its address makes no difference.
uint64_t DebuggedWaves::original_of(uint64_t pc) const {
  char there[kLongestInstruction];
  uint64_t readable = 0; // the debugger names any address
  while (readable < sizeof there && copy_from_user(there + readable, pc + readable, kUnit))
    readable += kUnit;
  const char *copy = pointer<const char *>(plan_, plan::code_copy);
  const uint64_t code_size = get(plan_, plan::code_size);
  for (uint64_t at = 0, end; at < code_size; at = end) {
    for (end = at + kUnit; end < code_size && record_at(code_ + end) == kNoRecord; end += kUnit) {
    }
    const uint64_t size = end - at;
    if (size <= readable && record_at(code_ + at) != kNoRecord && std::memcmp(copy + at, there, size) == 0)
      return code_ + at;
  }
  return 0;
}

void DebuggedWaves::go_on(const Saved &saved, State &state, uint64_t pc, Host &host) {
  state.displaced = 0;
  uint64_t record = record_at(pc);
  if (record != kNoRecord && stop_at_trap(saved.wave, state, pc))
    return;
  if (const uint64_t original = record == kNoRecord ? original_of(pc) : 0) {
    record = record_at(original);
    state.displaced = pc - original;
  }
  if (record != kNoRecord)
    return saved.worker->go_to(saved.wave, record, host);
  std::fprintf(stderr, "luthier: a debugger continues a wave at 0x%llx, where there is no instruction of the kernel\n",
               static_cast<unsigned long long>(pc));
  state.trap_status |= kIllegalInstruction;
  stop(saved.wave, state, pc, 0, exceptions::kIllegalInstruction);
}

} // namespace luthier
