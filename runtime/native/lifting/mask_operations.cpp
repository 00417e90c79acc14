// Sources: the "CDNA3" and "RDNA3" instruction set architecture documents, "SOP1", "SOP2", "VOPC" (a compare clears the
// bits of inactive lanes).
#include "mask_operations.h"

namespace luthier::LUTHIER_FLOW {
namespace {

constexpr int MoveTable = 0b1100, NotTable = 0b0011;

/// The unit of a target that can be followed, else -1.
int followed(int unit) { return unit >= 0 && unit < M0 ? unit : -1; }

std::vector<Groups> newExec(const MaskOperation &operation, LaneMasks &state) {
  const auto [one, other] = operation.sources;
  std::array<Told, 2> about;
  const Mask mask = evaluate(operation.table, state.mask(one), state.mask(other), state.everything(), about);
  std::vector<Learnt> learnt;
  for (size_t i = 0; i < 2; ++i)
    if (operation.sources[i] >= 0 && operation.sources[i] != ExecSource)
      learnt.push_back({operation.sources[i], about[i]});
  return state.changeExec(mask, learnt);
}

int originOf(const LaneMasks &state, int source) { return source >= 0 ? state.origin(source) : -1; }

std::optional<Held> either(const std::optional<Held> &one, const std::optional<Held> &other) {
  if (!one || !other || one->half + other->half == 1) // the two halves of a mask
    return std::nullopt;
  return Held{std::min(one->half, other->half),
              {one->mask.certain & other->mask.certain, one->mask.possible | other->mask.possible}};
}

} // namespace

void MaskOperation::run(LaneMasks &state, std::vector<Groups> &spread) const {
  const auto halfOf = [](int source, int half) { return source < 0 ? source : source + half; };
  spread.clear();
  switch (action) {
  case Forget:
    state.forget(writes);
    break;
  case ExecUnknown: {
    const Groups on = state.on, off = state.everything() & ~on;
    spread = state.changeExec({(lanes & BecomesInactive ? 0 : on) | (lanes & StaysInactive ? 0 : off),
                               (lanes & StaysActive ? on : 0) | (lanes & BecomesActive ? off : 0)});
    state.forget(writes);
    break;
  }
  case LogicOperation: {
    std::array<Told, 2> about;
    const Mask mask = evaluate(table, state.mask(sources[0]), state.mask(sources[1]), state.everything(), about);
    state.forget(writes);
    state.put(target, mask);
    break;
  }
  case LogicExec:
    spread = newExec(*this, state);
    state.forget(writes);
    break;
  case SaveExec: {
    const Groups before = state.on;
    spread = newExec(*this, state);
    state.forget(writes);
    Groups old = 0;
    eachGroup(before, [&](int group) { old |= spread[size_t(group)]; });
    if (target >= 0)
      state.put(target, {old, old});
    break;
  }
  case WriteExec:
  case CompareIntoExec:
    spread = action == WriteExec ? newExec(*this, state) : state.changeExec({0, state.on});
    state.forget(writes);
    if (target >= 0)
      state.put(target, {state.on, state.on});
    break;
  case CompareOperation:
    state.forget(writes);
    state.put(target, {0, state.on});
    break;
  case Copy:
  case SelectOperation: {
    std::array<std::optional<Held>, 2> found;
    std::array<int, 2> origins{-1, -1};
    for (int half = 0; half < width; ++half) {
      const int one = halfOf(sources[0], half);
      if (action == Copy) {
        found[size_t(half)] = state.half(one);
        origins[size_t(half)] = originOf(state, one);
      } else {
        found[size_t(half)] = either(state.half(one), state.half(halfOf(sources[1], half)));
      }
    }
    state.forget(writes);
    for (int half = 0; half < width; ++half)
      state.set(target + half, found[size_t(half)], origins[size_t(half)]);
    break;
  }
  case PutInLane:
    if (lane < 0)
      state.forget(writes);
    else
      state.set(laneKey(target, lane), state.half(sources[0]), originOf(state, sources[0]));
    break;
  case GetFromLane: {
    const Key key = laneKey(sources[0], lane);
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

MaskOperations::MaskOperations(const EffectTable &table, const Units &lanesKept) : table(table), interesting(Scalars) {
  Units flags;
  flags.add(Scc);
  flags.add(Mode);
  interesting = (Scalars - flags) | lanesKept;
}

MaskOperation MaskOperations::unknown(const Effects &effects) const {
  MaskOperation made;
  made.writes = effects.writes & interesting;
  made.setsExec = bool(made.writes & table.exec);
  made.writes -= pairOfUnits(ExecLo, 2);
  made.lanes = effects.lanes;
  made.action = made.setsExec ? MaskOperation::ExecUnknown : MaskOperation::Forget;
  return made;
}

MaskOperation MaskOperations::make(const OpcodeForm &form, const Effects &effects, const Operands &operands) const {
  const auto unit = [&](int position) {
    const int64_t reg = operands.reg(position);
    return reg ? table.firstUnit[size_t(reg)] : -1;
  };
  const auto source = [&](int position) {
    if (position >= operands.count)
      return Zero;
    if (operands.reg(position))
      return unit(position) >= 0 ? unit(position) : Unknown;
    return operands.value[position] == 0 ? Zero : operands.value[position] == -1 ? Ones : Unknown;
  };
  MaskOperation made = unknown(effects);
  made.table = form.table;
  made.width = form.width;
  const bool whole = !table.wide || form.width == 2;
  const int lastLane = table.wide ? 63 : 31;

  switch (form.mask) {
  case MaskKind::Compare:
  case MaskKind::CompareExec:
    made.target = made.writes.lowest();
    if (form.mask == MaskKind::CompareExec)
      made.action = MaskOperation::CompareIntoExec;
    else if (!made.setsExec)
      made.action = MaskOperation::CompareOperation;
    break;
  case MaskKind::Save:
  case MaskKind::Write:
    if (!whole)
      break;
    made.action = form.mask == MaskKind::Save ? MaskOperation::SaveExec : MaskOperation::WriteExec;
    made.target = followed(unit(0));
    made.sources = {source(1), ExecSource};
    break;
  case MaskKind::Logic: {
    const bool one = form.table == MoveTable || form.table == NotTable;
    made.sources = {source(1), one ? Zero : source(2)};
    if (made.setsExec) {
      if (whole)
        made.action = MaskOperation::LogicExec;
      break;
    }
    made.target = followed(unit(0));
    if (made.target >= 0 && form.table == MoveTable)
      made.action = MaskOperation::Copy;
    else if (made.target >= 0 && whole)
      made.action = MaskOperation::LogicOperation;
    break;
  }
  case MaskKind::Select:
  case MaskKind::Keep:
    if (made.setsExec || followed(unit(0)) < 0)
      break;
    made.action = MaskOperation::SelectOperation;
    made.target = unit(0);
    made.sources = {source(1), form.mask == MaskKind::Select ? source(2) : unit(0)};
    break;
  case MaskKind::PutLane:
    if (made.setsExec || unit(0) < Vgpr)
      break;
    made.action = MaskOperation::PutInLane;
    made.target = unit(0);
    made.sources[0] = source(1);
    if (!operands.reg(2))
      made.lane = int8_t(operands.value[2] & lastLane);
    break;
  case MaskKind::GetLane:
    if (made.setsExec || operands.reg(2) || followed(unit(0)) < 0 || unit(1) < 0)
      break;
    made.action = MaskOperation::GetFromLane;
    made.target = unit(0);
    made.sources[0] = unit(1);
    made.lane = int8_t(operands.value[2] & lastLane);
    break;
  case MaskKind::Other:
    break;
  }
  return made;
}

} // namespace luthier::LUTHIER_FLOW
