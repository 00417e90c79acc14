#include "address_operations.h"

namespace luthier::LUTHIER_FLOW {
namespace {

using Kind = Value::Kind;

constexpr uint64_t kMask32 = 0xffffffff;
constexpr uint8_t kExpression = 3; // luthier.isa.OperandKind
constexpr int kLanes = 64;

Value value_of(Kind kind, int64_t getpc, uint64_t offset, int half = 0) {
  Value value;
  value.kind = kind;
  value.getpc = getpc;
  value.offset = offset;
  value.half = uint8_t(half);
  return value;
}

Value constant(uint64_t number) { return value_of(Kind::kConst, 0, number & kMask32); }

Value mask_within(std::vector<int64_t> loads) {
  Value value = value_of(Kind::kWithin, 0, 0);
  value.loads = std::move(loads);
  return value;
}

bool has_load(const Value &value, int64_t load) {
  return value.kind == Kind::kWithin && std::binary_search(value.loads.begin(), value.loads.end(), load);
}

/// Return whether there are values, all of one kind.
bool all_of(const Values &values, Kind kind) {
  return values && std::all_of(values->begin(), values->end(), [&](const Value &value) { return value.kind == kind; });
}

const Value *only(const Values &values, Kind kind) {
  const Value *value = only(values);
  return value && value->kind == kind ? value : nullptr;
}

/// Return the high half of a register pair that holds exactly one complete address; null if it does not.
/// @param low, high kinds of its halves
const Value *pair_of(const Values &lower, const Values &upper, Kind low, Kind high) {
  const Value *first = only(lower, low), *second = only(upper, high);
  return first && second && first->getpc == second->getpc && first->offset == (second->offset & kMask32) ? second
                                                                                                         : nullptr;
}

const Value *pair_of(const Values &lower, const Values &upper) {
  return pair_of(lower, upper, Kind::kLow, Kind::kHigh);
}

/// Return the address of the data object that a register pair points into, as the high half of its address.
const Value *near_of(const Values &lower, const Values &upper) {
  return pair_of(lower, upper, Kind::kHalf, Kind::kHalf);
}

/// Return the sum of a complete address and an unknown offset: an address in the same data object. Null if unknown.
Values indexed(const Values &values, int half) {
  std::vector<Value> result;
  for (const Value &value : *values)
    if (value.kind == Kind::kHalf && value.half == half)
      result.push_back(value);
    else if (value.kind == (half == 0 ? Kind::kLow : Kind::kHigh) && value.offset)
      result.push_back(value_of(Kind::kHalf, value.getpc, half == 0 ? value.offset & kMask32 : value.offset, half));
    else
      return nullptr;
  return values_of(std::move(result));
}

bool are_too_many(const Values &left, const Values &right) { return left->size() * right->size() > kMostPairs; }

} // namespace

void Notes::use(const Taints &taints, bool leaves) {
  for (const auto &[getpc, has_offset] : taints) {
    (has_offset ? other_uses : raw_uses).insert(getpc);
    if (has_offset && !leaves)
      values.insert(getpc);
  }
}

void AddressOperations::apply(int index, const Effects &effects, AddressState &state, Notes *notes) const {
  const Action action = code_.action(index);
  const uint16_t role = code_.role(index);
  Results made = results(index, state, notes);
  if (effects.writes & pair_of_units(ExecLo, 2) && state.has({ExecLo}) && !(effects.lanes & kBecomesActive))
    for (const int half : {ExecLo, ExecHi})
      if (std::none_of(made.begin(), made.end(), [&](const auto &result) { return result.first == AddressKey{half}; }))
        made.emplace_back(AddressKey{half}, state[{half}]);
  const Taints read = taints(index, effects, state);
  Taints fresh;
  if (action == Action::kGetCounter)
    fresh = {{code_.address[index], false}};
  else if (!read.empty() && role & kMoves)
    fresh = read;
  else if (!read.empty() && role & kAdds && !made.empty())
    for (const auto &[getpc, has_offset] : read)
      unite(fresh, {{getpc, true}});
  else if (notes && !(role & kByRegister)) // jumps and calls are AddressSearch's
    notes->use(read, role & kLeaves);
  state.overwrite(effects.writes, effects.kills);
  for (auto &[key, values] : made)
    state.set(key, std::move(values));
  if (action == Action::kWriteLane) {
    if (const int into = lane(index, state); into >= 0) // the previous value of that lane is lost
      state.taint({unit(index, 0), into}, std::move(fresh));
    else if (notes)
      notes->use(fresh, role & kLeaves);
  } else if (!fresh.empty()) {
    for (int each = 0; each < VccLo + 2; ++each) // SGPRs and VCC
      if (effects.writes.has(each))
        state.taint({each}, fresh);
  }
}

/// Return the program counters that an instruction may read; from a known lane, only those in that lane.
Taints AddressOperations::taints(int index, const Effects &effects, const AddressState &state) const {
  const Action action = code_.action(index);
  const bool is_lane_move = action == Action::kWriteLane || action == Action::kReadLane;
  const int known = is_lane_move ? lane(index, state) : -1;
  if (known < 0)
    return state.tainted(effects.reads);
  Taints result = state.tainted(effects.reads & kScalars);
  if (action == Action::kReadLane)
    if (const Taints *in_lane = state.taints({unit(index, 1), known}))
      unite(result, *in_lane);
  return result;
}

AddressOperations::Results AddressOperations::results(int index, const AddressState &state, Notes *notes) const {
  const int first = unit(index, 0);
  switch (code_.action(index)) {
  case Action::kNone:
    return {};
  case Action::kGetCounter: {
    if (first < 0)
      return {};
    const int64_t place = code_.address[index];
    return {{{first}, values_of({value_of(Kind::kLow, place, 0)})},
            {{first + 1}, values_of({value_of(Kind::kHigh, place, 0)})}};
  }
  case Action::kCopy:
    return copy(index, state);
  case Action::kMoveShort:
    return {{{first}, values_of({constant(uint64_t(int64_t(int16_t(value(index, 1)))))})}};
  case Action::kSelect:
    return select(index, state);
  case Action::kCompare:
    return compare(index, state);
  case Action::kSignExtend:
    return sign_extend(index, state);
  case Action::kAdd:
    return sum(index, state, notes, false);
  case Action::kAddSigned: {
    Results made = sum(index, state, notes, false);
    const auto is_carry = [](const auto &result) { return result.first == AddressKey{Scc}; };
    made.erase(std::remove_if(made.begin(), made.end(), is_carry), made.end()); // SCC is the signed overflow
    return made;
  }
  case Action::kAddCarry:
    return sum_carry(index, state, notes, false);
  case Action::kAddPair:
    return add_pair(index, state, notes);
  case Action::kSubtract:
    return sum(index, state, notes, true);
  case Action::kSubtractBorrow:
    return sum_carry(index, state, notes, true);
  case Action::kSaveExec:
    return save_exec(index, state);
  case Action::kCombineMasks:
    return combine_masks(index, state);
  case Action::kLoadLanes:
    return load_lanes(index, state);
  case Action::kReadFirstLane:
    return read_first_lane(index, state);
  case Action::kWriteLane:
    return write_lane(index, state);
  case Action::kReadLane:
    if (const int known = lane(index, state); known >= 0)
      return {{{first}, state[{unit(index, 1), known}]}};
    return {};
  case Action::kLoad:
    return load(index, state, value(index, 2), values_of({constant(0)}));
  case Action::kLoadIndexed:
    return load(index, state, 0, offset_register(index, state));
  case Action::kLoadBoth:
    return load(index, state, value(index, 3), offset_register(index, state));
  }
  return {};
}

// Operands

int AddressOperations::unit(int index, int operand) const {
  const Operands operands = operands_of(code_.code, index);
  return operand < operands.count ? table_.first_unit[size_t(operands.reg(operand))] : -1;
}

/// Return the number of units of a register operand; none of SGPR_NULL.
int AddressOperations::units(int index, int operand) const {
  const Operands operands = operands_of(code_.code, index);
  return unit(index, operand) < 0 ? 0 : table_.unit_count[size_t(operands.reg(operand))];
}

int64_t AddressOperations::value(int index, int operand) const {
  const Operands operands = operands_of(code_.code, index);
  return operand < operands.count ? operands.value[operand] : 0;
}

bool AddressOperations::is_filled(int64_t address) const {
  return std::binary_search(filled_.begin(), filled_.end(), address);
}

/// Return the values of a 32-bit operand, or of one half of a 64-bit one.
Values AddressOperations::source(const AddressState &state, int index, int operand, int half) const {
  const Operands operands = operands_of(code_.code, index);
  if (operand >= operands.count)
    return nullptr;
  if (operands.reg(operand)) {
    const int first = unit(index, operand);
    return first < 0 || first >= Vgpr || half >= units(index, operand) ? nullptr : state[{first + half}];
  }
  const int64_t literal = code_.address[index] + code_.size[index] - 4;
  if (operands.kind[operand] == kExpression || is_filled(literal))
    return nullptr;
  return values_of({constant(uint64_t(operands.value[operand] >> (32 * half)))});
}

bool AddressOperations::is_immediate(int index, int operand) const {
  const Operands operands = operands_of(code_.code, index);
  return operand < operands.count && !operands.reg(operand);
}

/// Return the lane that an instruction reads or writes, -1 if it is not known.
int AddressOperations::lane(int index, const AddressState &state) const {
  const Values values = source(state, index, 2);
  const Value *known = only(values, Kind::kConst);
  return known ? int(known->offset % kLanes) : -1;
}

// Each returns new values of registers that the instruction writes; its other results become unknown.

AddressOperations::Results AddressOperations::copy(int index, const AddressState &state) const {
  const int first = unit(index, 0), count = units(index, 0);
  Results made;
  if (count == 1 || !is_immediate(index, 1))
    for (int half = 0; half < count; ++half)
      made.emplace_back(AddressKey{first + half}, source(state, index, 1, half));
  return made;
}

AddressOperations::Results AddressOperations::select(int index, const AddressState &state) const {
  const int first = unit(index, 0), count = units(index, 0);
  const Values carries = state[{Scc}], left = source(state, index, 1), right = source(state, index, 2);
  const Value *yes = only(left), *no = only(right);
  if (yes && no && *yes == constant(1) && *no == constant(0) && all_of(carries, Kind::kCarry))
    return {{{first}, carries}}; // SCC is saved, as payloads do
  Results made;
  for (int half = 0; half < count; ++half) {
    const Values one_way = source(state, index, 1, half), other_way = source(state, index, 2, half);
    Values either;
    if (one_way && other_way) {
      std::vector<Value> both = *one_way;
      both.insert(both.end(), other_way->begin(), other_way->end());
      either = values_of(std::move(both));
    }
    made.emplace_back(AddressKey{first + half}, std::move(either));
  }
  return made;
}

/// Return SCC after a comparison that restores the value saved by `select`.
AddressOperations::Results AddressOperations::compare(int index, const AddressState &state) const {
  const Values saved = source(state, index, 0), zero = source(state, index, 1);
  if (all_of(saved, Kind::kCarry) && only(zero) && *only(zero) == constant(0))
    return {{{Scc}, saved}};
  return {};
}

/// GFX12: the program counter is zero-extended from 48 bits.
AddressOperations::Results AddressOperations::sign_extend(int index, const AddressState &state) const {
  const Values values = source(state, index, 1);
  const auto is_fresh = [](const Value &value) { return value.kind == Kind::kHigh && value.offset == 0; };
  if (values && std::all_of(values->begin(), values->end(), is_fresh))
    return {{{unit(index, 0)}, values}};
  return {};
}

AddressOperations::Sum AddressOperations::sum_operands(int index, const AddressState &state, Kind kind,
                                                       bool subtract) const {
  Values left = source(state, index, 1), right = source(state, index, 2);
  const auto is_kind = [&](const Value &value) { return value.kind == kind; };
  if (!subtract && right && std::any_of(right->begin(), right->end(), is_kind))
    return {std::move(right), std::move(left), is_immediate(index, 1)};
  return {std::move(left), std::move(right), is_immediate(index, 2)};
}

AddressOperations::Results AddressOperations::sum(int index, const AddressState &state, Notes *notes,
                                                  bool subtract) const {
  const AddressKey result{unit(index, 0)};
  const auto [bases, addends, literal] = sum_operands(index, state, Kind::kLow, subtract);
  if (!bases)
    return {};
  const auto into_object = [&, &first = bases]() -> Results {
    Values address = indexed(first, 0);
    return address ? Results{{result, std::move(address)}} : Results{};
  };
  const Value *amount = only(addends, Kind::kConst);
  if (!amount)
    return into_object();
  const uint64_t added = subtract ? -amount->offset : amount->offset;
  const int64_t place = code_.address[index];
  const bool exact = literal && bases->size() == 1 && !subtract;
  std::vector<Value> sums, carries;
  for (const Value &value : *bases) {
    if (value.kind == Kind::kConst) {
      sums.push_back(constant(value.offset + added));
    } else if (value.kind == Kind::kLow) {
      sums.push_back(value_of(Kind::kLow, value.getpc, (value.offset + added) & kMask32));
      Value carry = value_of(Kind::kCarry, value.getpc, value.offset);
      carry.amount = amount->offset;
      carry.place = place;
      carry.literal = exact;
      carry.subtract = subtract;
      carries.push_back(std::move(carry));
      if (notes && value.offset == 0) {
        notes->low_adds[place] = value.getpc;
        if (!exact)
          notes->computed.insert(value.getpc);
      }
    } else {
      return into_object();
    }
  }
  return {{result, values_of(std::move(sums))}, {{Scc}, carries.empty() ? nullptr : values_of(carries)}};
}

AddressOperations::Results AddressOperations::sum_carry(int index, const AddressState &state, Notes *notes,
                                                        bool subtract) const {
  const AddressKey result{unit(index, 0)};
  const auto [bases, addends, literal] = sum_operands(index, state, Kind::kHigh, subtract);
  const Values carries = state[{Scc}];
  if (!bases)
    return {};
  const Value *amount = only(addends, Kind::kConst);
  if (!carries || !amount) {
    Values address = indexed(bases, 1);
    return address ? Results{{result, std::move(address)}} : Results{};
  }
  if (are_too_many(bases, carries))
    return {};
  std::vector<Value> sums;
  for (const Value &value : *bases) {
    if (value.kind != Kind::kHigh)
      return {};
    const Value *carry = nullptr;
    for (const Value &each : *carries)
      if (each.kind == Kind::kCarry && each.getpc == value.getpc && each.offset == (value.offset & kMask32) &&
          each.subtract == subtract) {
        if (carry)
          return {};
        carry = &each;
      }
    if (!carry)
      return {};
    const uint64_t added = amount->offset << 32 | carry->amount;
    const uint64_t offset = value.offset + (subtract ? -added : added);
    sums.push_back(value_of(Kind::kHigh, value.getpc, offset));
    if (notes && value.offset == 0) {
      if (carry->literal && literal && bases->size() == 1 && carries->size() == 1)
        notes->references.emplace(value.getpc, carry->place, code_.address[index], offset);
      else
        notes->computed.insert(value.getpc);
    }
  }
  return {{result, values_of(std::move(sums))}};
}

/// GFX12's 64-bit addition; a complete address plus an offset points into the same data object.
AddressOperations::Results AddressOperations::add_pair(int index, const AddressState &state, Notes *notes) const {
  const int first = unit(index, 0);
  if (first < 0)
    return {};
  for (const int operand : {1, 2}) {
    const Values low = source(state, index, operand, 0), high = source(state, index, operand, 1);
    if (unit(index, operand) < 0 || !low || !high)
      continue;
    const Value *pair = pair_of(low, high);
    uint64_t amount = 0;
    if (pair && !pair->offset && wide_literal(index, 3 - operand, amount)) {
      const int64_t place = code_.address[index];
      if (notes)
        notes->references.emplace(pair->getpc, place, place, amount);
      return {{{first}, values_of({value_of(Kind::kLow, pair->getpc, amount & kMask32)})},
              {{first + 1}, values_of({value_of(Kind::kHigh, pair->getpc, amount)})}};
    }
    Values lower = indexed(low, 0), upper = indexed(high, 1);
    if (lower && upper)
      return {{{first}, lower}, {{first + 1}, upper}};
  }
  return {};
}

/// Return whether an operand is a 64-bit literal, and its value in `literal`.
bool AddressOperations::wide_literal(int index, int operand, uint64_t &literal) const {
  const Operands operands = operands_of(code_.code, index);
  const int64_t place = code_.address[index] + 4;
  if (code_.size[index] != 4 + 8 || operand >= operands.count || operands.reg(operand) ||
      operands.kind[operand] == kExpression || is_filled(place) || is_filled(place + 4))
    return false;
  literal = uint64_t(operands.value[operand]);
  return true;
}

/// Return the offset of a load in a register; no register is SGPR_NULL.
Values AddressOperations::offset_register(int index, const AddressState &state) const {
  const int offset = unit(index, 2);
  return offset >= 0 ? state[{offset}] : values_of({constant(0)});
}

/// Return the results of a scalar load from a base pair plus an immediate and a register.
AddressOperations::Results AddressOperations::load(int index, const AddressState &state, int64_t immediate,
                                                   const Values &offset) const {
  const int first = unit(index, 0), base = unit(index, 1), count = units(index, 0);
  if (first < 0 || base < 0)
    return {};
  const Values low = state[{base}], high = state[{base + 1}];
  const Value *pair = pair_of(low, high), *near = near_of(low, high);
  std::vector<Value> objects; // as elements with the first half
  Results made;
  if (near) {
    objects = {value_of(Kind::kElement, near->getpc, near->offset)};
  } else if (pair) {
    const uint64_t further = pair->offset + uint64_t(immediate);
    if (const Value *amount = only(offset, Kind::kConst)) {
      for (int word = 0; word < count; ++word)
        made.emplace_back(AddressKey{first + word},
                          values_of({value_of(Kind::kSlot, pair->getpc,
                                              further + amount->offset + uint64_t(word / 2) * 8, word % 2)}));
      return made;
    }
    if (pair->offset) // an element of the data object; the immediate may also lead into another one
      objects = {value_of(Kind::kElement, pair->getpc, pair->offset), value_of(Kind::kElement, pair->getpc, further)};
  }
  if (objects.empty())
    return {};
  for (int word = 0; word < count; ++word) {
    for (Value &object : objects)
      object.half = uint8_t(word % 2);
    made.emplace_back(AddressKey{first + word}, values_of(objects));
  }
  return made;
}

/// Return the results of a load from a base pair, an immediate and a VGPR, for each lane.
AddressOperations::Results AddressOperations::load_lanes(int index, const AddressState &state) const {
  const int first = unit(index, 0), base = unit(index, 1), count = units(index, 0);
  if (first < 0 || base < 0)
    return {};
  const Values low = state[{base}], high = state[{base + 1}];
  const Value *pair = pair_of(low, high);
  if (!pair || !pair->offset)
    return {};
  const int64_t place = code_.address[index];
  Results made;
  for (int word = 0; word < count; ++word) {
    std::vector<Value> elements;
    for (const uint64_t start : {pair->offset, pair->offset + uint64_t(value(index, 3))}) {
      elements.push_back(value_of(Kind::kLaneElement, pair->getpc, start, word % 2));
      elements.back().place = place;
    }
    made.emplace_back(AddressKey{first + word}, values_of(std::move(elements)));
  }
  const auto rest = [&](Value value, bool add) {
    value.loads.erase(std::remove(value.loads.begin(), value.loads.end(), place), value.loads.end());
    if (add && value.loads.size() < kMostValues) // less may be known
      value.loads.insert(std::upper_bound(value.loads.begin(), value.loads.end(), place), place);
    return value;
  };
  for (const auto &[key, values] : state.values()) { // facts from an earlier execution of this load are outdated
    const auto is_outdated = [&](const Value &value) { return has_load(value, place); };
    if (std::none_of(values->begin(), values->end(), is_outdated))
      continue;
    std::vector<Value> left;
    for (const Value &value : *values)
      left.push_back(value.kind == Kind::kWithin ? rest(value, false) : value);
    made.emplace_back(key, values_of(std::move(left)));
  }
  for (const int half : {ExecLo, ExecHi}) {
    const Values active = state[{half}];
    std::vector<Value> now;
    for (const Value &value : active ? *active : std::vector<Value>{mask_within({})})
      now.push_back(rest(value.kind == Kind::kWithin ? value : mask_within({}), true));
    made.emplace_back(AddressKey{half}, values_of(std::move(now)));
  }
  return made;
}

AddressOperations::Results AddressOperations::read_first_lane(int index, const AddressState &state) const {
  const int from = unit(index, 1);
  const Values values = from >= Vgpr ? state[{from}] : nullptr;
  if (!values)
    return {};
  std::vector<Value> elements;
  for (const Value &value : *values) {
    if (value.kind != Kind::kLaneElement)
      return {};
    for (const int half : {ExecLo, ExecHi}) {
      const Values active = state[{half}];
      const auto was_active = [&](const Value &mask) { return has_load(mask, value.place); };
      if (!active || !std::all_of(active->begin(), active->end(), was_active))
        return {};
    }
    elements.push_back(value_of(Kind::kElement, value.getpc, value.offset, value.half));
  }
  return {{{unit(index, 0)}, values_of(std::move(elements))}};
}

AddressOperations::Results AddressOperations::save_exec(int index, const AddressState &state) const {
  Results made;
  for (int half = 0; half < units(index, 0); ++half)
    if (state.has({ExecLo + half}))
      made.emplace_back(AddressKey{unit(index, 0) + half}, state[{ExecLo + half}]);
  return made;
}

/// Return the results of an operation on two masks that sets only lanes of these masks.
///
/// The result was active for the loads for which both masks were.
AddressOperations::Results AddressOperations::combine_masks(int index, const AddressState &state) const {
  Results made;
  for (int half = 0; half < units(index, 0); ++half) {
    const Values left = source(state, index, 1, half), right = source(state, index, 2, half);
    if (!all_of(left, Kind::kWithin) || !all_of(right, Kind::kWithin) || are_too_many(left, right))
      continue;
    std::vector<Value> masks;
    for (const Value &one_mask : *left)
      for (const Value &other_mask : *right) {
        std::vector<int64_t> both;
        std::set_intersection(one_mask.loads.begin(), one_mask.loads.end(), other_mask.loads.begin(),
                              other_mask.loads.end(), std::back_inserter(both));
        masks.push_back(mask_within(std::move(both)));
      }
    made.emplace_back(AddressKey{unit(index, 0) + half}, values_of(std::move(masks)));
  }
  return made;
}

AddressOperations::Results AddressOperations::write_lane(int index, const AddressState &state) const {
  const int into = unit(index, 0);
  const int known = lane(index, state);
  if (known < 0)
    return {};
  Results made;
  for (auto at = state.values().lower_bound({into, 0}); at != state.values().end() && at->first.unit == into; ++at)
    made.emplace_back(at->first, at->second); // the other lanes keep theirs
  made.emplace_back(AddressKey{into, known}, source(state, index, 1));
  return made;
}

} // namespace luthier::LUTHIER_FLOW
