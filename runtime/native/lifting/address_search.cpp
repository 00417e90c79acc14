#include "address_search.h"

namespace luthier::LUTHIER_FLOW {
namespace {

constexpr int64_t kCounterSize = 4; // of s_getpc_b64: luthier.lifting.addresses.analysis.GETPC_SIZE
/// Cost of a part in addition to the size of its state, and cost of a unit of effort, both as sizes of states.
constexpr int64_t kPart = 16, kUnit = 64;
/// Visits of a block by `AddressPaths` per unit of effort, in addition to one unit for each call.
constexpr int64_t kVisits = 128;

struct Exhausted {}; ///< thrown where the effort is spent

uint64_t counter_at(int64_t getpc) { return uint64_t(getpc + kCounterSize); }

bool is_entry_of(const Values &values, int unit) {
  const Value *value = only(values);
  return value && value->kind == Value::Kind::kEntry && value->offset == uint64_t(unit);
}

} // namespace

AddressSearch::Result AddressSearch::run(const std::vector<int> &roots, const std::vector<int> &links, int64_t left,
                                         const std::vector<int> *followed) {
  result_ = {};
  clobbers_.clear();
  left_ = left;
  try {
    analyse(roots, links, followed, false);
    if (!result_.computed.empty()) // uses of a computed program counter decide whether the code can be moved
      analyse(roots, links, followed, true);
  } catch (const Exhausted &) {
    left_ = 0; // which the caller sees
  }
  for (const auto &[function, units] : clobbers_)
    result_.asked.insert(function);
  return std::move(result_);
}

void AddressSearch::analyse(const std::vector<int> &roots, const std::vector<int> &links,
                            const std::vector<int> *followed, bool finished) {
  paths_ = std::make_unique<AddressPaths>(table_, code_, vectors_, everything_, blocks_, roots);
  paths_->most = (left_ - result_.spent) * kVisits;
  if (followed) {
    paths_->cut(*followed);
  } else {
    // Callers of a function depend on the registers that it restores. A kernel has no callers.
    const std::vector<int> relevant = paths_->relevant(!links.empty(), finished);
    spend_visits();
    paths_->cut(relevant);
  }
  special_ = paths_->special();
  ways_.clear();
  states_.clear();
  for (const int block : special_)
    ways_[block] = ways(successors(block));
  Work work;
  go_on(ways(roots), {}, work);
  while (!work.empty()) { // in address order, so that most predecessors of a block are visited before it
    const int block = *work.begin();
    work.erase(work.begin());
    AddressState state = before(block);
    for (const AddressPaths::Part &part : paths_->parts(block))
      if (part.followed)
        apply(part.first, state, nullptr);
      else
        state.overwrite(part.writes, part.kills);
    return_from_call(block, state);
    go_on(ways_.at(block), state, work);
  }
  collect(links);
}

void AddressSearch::spend(int64_t units) {
  result_.spent += units;
  if (result_.spent > left_)
    throw Exhausted();
}

/// Count the work of `AddressPaths`.
void AddressSearch::spend_visits() {
  spend(1 + paths_->visits / kVisits);
  paths_->visits %= kVisits;
  paths_->most = (left_ - result_.spent) * kVisits;
}

std::vector<int> AddressSearch::successors(int block) const {
  std::vector<int> result;
  for (const code::Block::Edge &edge : blocks_.all[size_t(block)].successors)
    result.push_back(edge.to);
  return result;
}

std::vector<AddressPaths::Way> AddressSearch::ways(const std::vector<int> &from) {
  std::vector<AddressPaths::Way> result = paths_->ways(from);
  spend_visits();
  return result;
}

/// Merge a state into the blocks that follow, and queue those whose state changes.
void AddressSearch::go_on(const std::vector<AddressPaths::Way> &ways, const AddressState &after, Work &work) {
  for (const AddressPaths::Way &way : ways) {
    AddressState state = after;
    state.overwrite(way.writes, way.kills);
    const auto at = states_.find(way.to);
    if (at == states_.end())
      states_.emplace(way.to, std::move(state));
    else if (!at->second.join(state))
      continue;
    work.insert(way.to);
  }
}

/// Return the state before a block, and count the work.
AddressState &AddressSearch::before(int block) {
  answer_signals();
  AddressState &state = states_.at(block);
  const int64_t parts = int64_t(paths_->parts(block).size() + ways_.at(block).size());
  spend(1 + (1 + parts) * (kPart + int64_t(state.size())) / kUnit);
  return state;
}

void AddressSearch::apply(int index, AddressState &state, Notes *notes) const {
  answer_signals();
  Effects effects;
  effects_of(table_, *table_.form(code_.code.opcode[index]), operands_of(code_.code, index), vectors_, everything_,
             effects);
  operations_.apply(index, effects, state, notes);
}

const Units &AddressSearch::clobbers(std::optional<int64_t> function) {
  const auto at = clobbers_.find(function);
  return at != clobbers_.end() ? at->second : clobbers_.emplace(function, world_.clobbers(function)).first->second;
}

/// Forget, after a call, the registers that the callee may change.
///
/// Scalars in lanes, and call targets in vector registers, are assumed to survive: a caller that reads its return
/// address from a lane that the callee overwrote would not return. EXEC also survives, since functions must restore it
/// (AMDGPUUsage, "Non-Kernel Functions").
void AddressSearch::return_from_call(int block, AddressState &state) {
  if (blocks_.all[size_t(block)].exit != code::Exit::kCall)
    return;
  Units lost;
  const code::Blocks::Jump *call = blocks_.jump_of(block);
  for (const int64_t function : call->targets)
    lost |= clobbers(function);
  if (call->is_incomplete())
    lost |= clobbers(std::nullopt);
  state.forget((lost & kScalars) - pair_of_units(ExecLo, 2));
}

void AddressSearch::collect(const std::vector<int> &links) {
  result_.resolutions.clear();
  result_.clobbers = {};
  Notes notes;
  for (const int block : special_) {
    AddressState state = std::move(before(block)); // which nothing else reads any more
    for (const AddressPaths::Part &part : paths_->parts(block)) {
      if (!part.alone) {
        spend((part.last - part.first) / kUnit);
        if (part.reads & state.tainted_units())
          note(paths_->uses_between(part.first, part.last, state.tainted_units()), state, notes);
        state.overwrite(part.writes, part.kills);
        continue;
      }
      if (code_.role(part.first) & kLeaves)
        leave(block, part.first, state, links, notes);
      apply(part.first, state, &notes);
    }
    if (state.tainted_units()) {
      note(paths_->uses(successors(block), state.tainted_units()), state, notes);
      spend_visits();
    }
    return_from_call(block, state);
  }
  std::set<int64_t> finished;
  for (const auto &[getpc, low, high, offset] : notes.references)
    finished.insert(low);
  // A low half without an addition of a high half is correct only if nothing retargets it.
  for (const auto &[low, getpc] : notes.low_adds)
    if (!finished.count(low))
      notes.computed.insert(getpc);
  result_.escapes = notes.raw_uses;
  for (const int64_t getpc : notes.other_uses)
    if (notes.computed.count(getpc))
      result_.escapes.insert(getpc);
  result_.references = std::move(notes.references);
  result_.values = std::move(notes.values);
  result_.computed = std::move(notes.computed);
}

/// Record instructions that read program counters from units.
void AddressSearch::note(const std::vector<AddressPaths::Use> &uses, const AddressState &state, Notes &notes) const {
  for (const AddressPaths::Use &use : uses)
    notes.use(state.tainted(use.units), code_.role(use.index) & kLeaves);
}

/// Record an instruction at which control may leave the function: a call, return or tail call.
void AddressSearch::leave(int block, int index, const AddressState &state, const std::vector<int> &links,
                          Notes &notes) {
  Units elsewhere = pair_of_units(0, VccLo + 2); // SGPRs and VCC
  const uint16_t role = code_.role(index);
  if (role & kByRegister) {
    Effects effects;
    effects_of(table_, *table_.form(code_.code.opcode[index]), operands_of(code_.code, index), vectors_, everything_,
               effects);
    const auto known = std::make_shared<const Resolution>(resolve(index, state, links, role & kMayReturn));
    const Resolution &resolution = *known;
    result_.resolutions.emplace_back(code_.address[index], known);
    if (resolution.reason.empty())
      elsewhere -= effects.reads;
    if (role & kMayReturn) {
      if (!resolution.reason.empty()) {
        result_.clobbers |= kScalars;
      } else if (resolution.is_return) {
        result_.clobbers |= state.changed();
      } else if (blocks_.all[size_t(block)].exit == code::Exit::kTail) {
        result_.clobbers |= state.changed();
        for (const uint64_t target : resolution.targets)
          result_.clobbers |= clobbers(int64_t(target));
      } else {
        return; // a jump inside the function, where the analysis continues
      }
    }
  }
  // The code that runs next might use an incomplete address that is still in a register.
  notes.use(state.tainted(elsewhere), true);
}

/// Return the targets of a register jump or call. A jump may return through the pairs `links`.
AddressSearch::Resolution AddressSearch::resolve(int index, const AddressState &state, const std::vector<int> &links,
                                                 bool may_return) const {
  Resolution resolution;
  const int unit = operations_.unit(index, may_return ? 0 : 1);
  if (unit < 0) {
    resolution.reason = "its address is not in registers that can be followed";
    return resolution;
  }
  const Values low = state[{unit}], high = state[{unit + 1}];
  for (const int link : links)
    if (may_return && is_entry_of(low, link) && is_entry_of(high, link + 1)) {
      resolution.is_return = true;
      return resolution;
    }
  if (!low || !high) {
    resolution.reason = "its address comes from memory or arithmetic that cannot be followed";
    return resolution;
  }
  std::map<int64_t, std::set<uint64_t>> slots;
  std::set<int64_t> kept; // s_getpc_b64 of tables that are accessed by unknown indices: words must keep their addresses
  for (const Value &value : *low) {
    const std::vector<std::optional<uint64_t>> targets = candidates(value, *high, resolution, kept, slots);
    if (targets.empty() && resolution.reason.empty())
      resolution.reason = "the two halves of its address do not belong together";
    for (const std::optional<uint64_t> target : targets)
      if (target && int64_t(*target) >= 0 && world_.text->section(int64_t(*target)))
        resolution.targets.insert(*target);
      else if (resolution.reason.empty())
        resolution.reason = "its address is not in executable code";
  }
  for (const auto &[getpc, words] : slots)
    if (!kept.count(getpc))
      resolution.slots.insert(words.begin(), words.end());
  return resolution;
}

/// Return the addresses that a low half makes with the high halves.
std::vector<std::optional<uint64_t>> AddressSearch::candidates(const Value &low, const std::vector<Value> &high,
                                                               Resolution &resolution, std::set<int64_t> &kept,
                                                               std::map<int64_t, std::set<uint64_t>> &slots) const {
  std::vector<std::optional<uint64_t>> result;
  switch (low.kind) {
  case Value::Kind::kLow: {
    const Value *matching = nullptr;
    for (const Value &value : high)
      if (value.kind == Value::Kind::kHigh && value.getpc == low.getpc && uint32_t(value.offset) == low.offset) {
        if (matching)
          return {};
        matching = &value;
      }
    if (!matching)
      return {};
    resolution.references.insert(low.getpc);
    resolution.direct |= matching->offset == 0;
    return {counter_at(low.getpc) + matching->offset};
  }
  case Value::Kind::kSlot:
  case Value::Kind::kElement: {
    Value upper = low;
    upper.half = 1;
    resolution.references.insert(low.getpc);
    std::set<uint64_t> &of_counter = slots[low.getpc];
    bool is_constant = true;
    if (low.half == 0 && std::binary_search(high.begin(), high.end(), upper))
      for (const uint64_t word : words(low)) {
        of_counter.insert(word);
        result.emplace_back(world_.slot_value(word));
        is_constant &= result.back().has_value();
      }
    if (!is_constant || result.empty()) {
      resolution.reason = "its address is loaded from memory that may change at run time";
      kept.insert(low.getpc);
    }
    return result;
  }
  case Value::Kind::kEntry:
    resolution.reason = "its address is an argument of the function or kernel";
    return {};
  default:
    return {};
  }
}

/// Return the addresses of the memory words from which a value may be loaded.
std::vector<uint64_t> AddressSearch::words(const Value &value) const {
  const uint64_t address = counter_at(value.getpc) + value.offset;
  if (value.kind == Value::Kind::kSlot)
    return {address};
  std::vector<uint64_t> result;
  if (const auto table = world_.table(address))
    for (uint64_t word = table->first; word < table->first + table->second; word += 8)
      result.push_back(word);
  return result;
}

} // namespace luthier::LUTHIER_FLOW
