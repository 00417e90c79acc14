// Sources: the "CDNA3" and "RDNA3" instruction set architecture documents, "SOP1", "SOP2", "VOPC" (a compare clears the
// bits of inactive lanes).
#include "mask_operations.h"

namespace luthier::LUTHIER_FLOW {
namespace {

constexpr int kMoveTable = 0b1100, kNotTable = 0b0011;

/// The unit of a target that can be followed, else -1.
int followed(int unit) { return unit >= 0 && unit < M0 ? unit : -1; }

std::vector<Groups> new_exec(const MaskOperation &operation, LaneMasks &state) {
  const auto [left, right] = operation.sources;
  std::array<Relation, 2> about;
  const Mask mask = evaluate(operation.table, state.mask(left), state.mask(right), state.everything(), about);
  std::vector<Learnt> learnt;
  for (size_t i = 0; i < 2; ++i)
    if (operation.sources[i] >= 0 && operation.sources[i] != kExecSource)
      learnt.push_back({operation.sources[i], about[i]});
  return state.change_exec(mask, learnt);
}

int origin_of(const LaneMasks &state, int source) { return source >= 0 ? state.origin(source) : -1; }

std::optional<Held> either(const std::optional<Held> &left, const std::optional<Held> &right) {
  if (!left || !right || left->half + right->half == 1) // the two halves of a mask
    return std::nullopt;
  return Held{std::min(left->half, right->half),
              {left->mask.certain & right->mask.certain, left->mask.possible | right->mask.possible}};
}

} // namespace

void MaskOperation::run(LaneMasks &state, std::vector<Groups> &spread) const {
  const auto half_of = [](int source, int half) { return source < 0 ? source : source + half; };
  spread.clear();
  switch (action) {
  case kForget:
    state.forget(writes);
    break;
  case kExecUnknown: {
    const Groups on = state.on, off = state.everything() & ~on;
    spread = state.change_exec({(lanes & kBecomesInactive ? 0 : on) | (lanes & kStaysInactive ? 0 : off),
                                (lanes & kStaysActive ? on : 0) | (lanes & kBecomesActive ? off : 0)});
    state.forget(writes);
    break;
  }
  case kLogicOperation: {
    std::array<Relation, 2> about;
    const Mask mask = evaluate(table, state.mask(sources[0]), state.mask(sources[1]), state.everything(), about);
    state.forget(writes);
    state.put(target, mask);
    break;
  }
  case kLogicExec:
    spread = new_exec(*this, state);
    state.forget(writes);
    break;
  case kSaveExec: {
    const Groups before = state.on;
    spread = new_exec(*this, state);
    state.forget(writes);
    Groups old = 0;
    each_group(before, [&](int group) { old |= spread[size_t(group)]; });
    if (target >= 0)
      state.put(target, {old, old});
    break;
  }
  case kWriteExec:
  case kCompareIntoExec:
    spread = action == kWriteExec ? new_exec(*this, state) : state.change_exec({0, state.on});
    state.forget(writes);
    if (target >= 0)
      state.put(target, {state.on, state.on});
    break;
  case kCompareOperation:
    state.forget(writes);
    state.put(target, {0, state.on});
    break;
  case kCopy:
  case kSelectOperation: {
    std::array<std::optional<Held>, 2> halves;
    std::array<int, 2> origins{-1, -1};
    for (int half = 0; half < width; ++half) {
      const int first = half_of(sources[0], half);
      if (action == kCopy) {
        halves[size_t(half)] = state.half(first);
        origins[size_t(half)] = origin_of(state, first);
      } else {
        halves[size_t(half)] = either(state.half(first), state.half(half_of(sources[1], half)));
      }
    }
    state.forget(writes);
    for (int half = 0; half < width; ++half)
      state.set(target + half, halves[size_t(half)], origins[size_t(half)]);
    break;
  }
  case kPutInLane:
    if (lane < 0)
      state.forget(writes);
    else
      state.set(lane_key(target, lane), state.half(sources[0]), origin_of(state, sources[0]));
    break;
  case kGetFromLane: {
    const Key key = lane_key(sources[0], lane);
    const std::optional<Held> held = state.held(key);
    const int origin = state.origin(key);
    state.forget(writes);
    state.set(target, held, origin);
    break;
  }
  }
  if (!spread.empty())
    state.compact(spread);
}

MaskOperations::MaskOperations(const EffectTable &table, const Units &lanes_kept)
    : table(table), interesting(kScalars) {
  Units flags;
  flags.add(Scc);
  flags.add(Mode);
  interesting = (kScalars - flags) | lanes_kept;
}

MaskOperation MaskOperations::unknown(const Effects &effects) const {
  MaskOperation made;
  made.writes = effects.writes & interesting;
  made.sets_exec = bool(made.writes & table.exec);
  made.writes -= pair_of_units(ExecLo, 2);
  made.lanes = effects.lanes;
  made.action = made.sets_exec ? MaskOperation::kExecUnknown : MaskOperation::kForget;
  return made;
}

MaskOperation MaskOperations::make(const OpcodeForm &form, const Effects &effects, const Operands &operands) const {
  const auto unit = [&](int position) {
    const int64_t reg = operands.reg(position);
    return reg ? table.first_unit[size_t(reg)] : -1;
  };
  const auto source = [&](int position) {
    if (position >= operands.count)
      return kZero;
    if (operands.reg(position))
      return unit(position) >= 0 ? unit(position) : kUnknown;
    return operands.value[position] == 0 ? kZero : operands.value[position] == -1 ? kOnes : kUnknown;
  };
  MaskOperation made = unknown(effects);
  made.table = form.table;
  made.width = form.width;
  const bool whole = !table.wide || form.width == 2;
  const int last_lane = table.wide ? 63 : 31;

  switch (form.mask) {
  case MaskKind::kCompare:
  case MaskKind::kCompareExec:
    made.target = made.writes.lowest();
    if (form.mask == MaskKind::kCompareExec)
      made.action = MaskOperation::kCompareIntoExec;
    else if (!made.sets_exec)
      made.action = MaskOperation::kCompareOperation;
    break;
  case MaskKind::kSave:
  case MaskKind::kWrite:
    if (!whole)
      break;
    made.action = form.mask == MaskKind::kSave ? MaskOperation::kSaveExec : MaskOperation::kWriteExec;
    made.target = followed(unit(0));
    made.sources = {source(1), kExecSource};
    break;
  case MaskKind::kLogic: {
    const bool is_unary = form.table == kMoveTable || form.table == kNotTable;
    made.sources = {source(1), is_unary ? kZero : source(2)};
    if (made.sets_exec) {
      if (whole)
        made.action = MaskOperation::kLogicExec;
      break;
    }
    made.target = followed(unit(0));
    if (made.target >= 0 && form.table == kMoveTable)
      made.action = MaskOperation::kCopy;
    else if (made.target >= 0 && whole)
      made.action = MaskOperation::kLogicOperation;
    break;
  }
  case MaskKind::kSelect:
  case MaskKind::kKeep:
    if (made.sets_exec || followed(unit(0)) < 0)
      break;
    made.action = MaskOperation::kSelectOperation;
    made.target = unit(0);
    made.sources = {source(1), form.mask == MaskKind::kSelect ? source(2) : unit(0)};
    break;
  case MaskKind::kPutLane:
    if (made.sets_exec || unit(0) < Vgpr)
      break;
    made.action = MaskOperation::kPutInLane;
    made.target = unit(0);
    made.sources[0] = source(1);
    if (!operands.reg(2))
      made.lane = int8_t(operands.value[2] & last_lane);
    break;
  case MaskKind::kGetLane:
    if (made.sets_exec || operands.reg(2) || followed(unit(0)) < 0 || unit(1) < 0)
      break;
    made.action = MaskOperation::kGetFromLane;
    made.target = unit(0);
    made.sources[0] = unit(1);
    made.lane = int8_t(operands.value[2] & last_lane);
    break;
  case MaskKind::kOther:
    break;
  }
  return made;
}

} // namespace luthier::LUTHIER_FLOW
