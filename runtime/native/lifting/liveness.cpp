#include "liveness.h"

#include <algorithm>

namespace luthier::LUTHIER_FLOW {
namespace {

/// Return the same set in each of the parts.
template <int Sets> Bits<Sets> repeat(const Units &units) {
  Bits<Sets> result;
  for (int i = 0; i < Bits<Sets>::kWords; ++i)
    result.word[size_t(i)] = units.word[size_t(i % kUnitWords)];
  return result;
}

/// A set in the first part only, the constant one.
template <int Sets> Bits<Sets> constant(const Units &units) {
  Bits<Sets> result;
  std::copy(units.word.begin(), units.word.end(), result.word.begin());
  return result;
}

/// Every unit of one part.
template <int Sets> Bits<Sets> unknowns(int part) {
  Bits<Sets> result;
  for (int i = 0; i < kUnitWords; ++i)
    result.word[size_t(part) * kUnitWords + size_t(i)] = ~uint64_t(0);
  return result;
}

Units part(const TripleUnits &units, int which) {
  Units result;
  std::copy_n(units.word.begin() + ptrdiff_t(which) * kUnitWords, kUnitWords, result.word.begin());
  return result;
}

/// Over a write of EXEC: each group has what is live in any of those its lanes may be in afterwards.
template <typename Set> void gather(std::vector<Set> &live, const std::vector<Groups> &spread) {
  if (spread.empty())
    return;
  std::vector<Set> before(spread.size());
  for (size_t group = 0; group < spread.size(); ++group)
    each_group(spread[group], [&](int behind) { before[group] |= live[size_t(behind)]; });
  live = std::move(before);
}

/// Over instructions.
template <typename Set>
void over(std::vector<Set> &live, Groups on, const Set &reads, const Set &kills, const Set &cross, const Set &hard) {
  for (size_t group = 0; group < live.size(); ++group) {
    const bool active = on >> group & 1;
    live[group] -= active ? kills : hard;
    live[group] |= active ? reads : cross;
  }
}

} // namespace

Transfer &Transfer::operator|=(const Transfer &other) {
  active_active |= other.active_active;
  active_inactive |= other.active_inactive;
  inactive_active |= other.inactive_active;
  inactive_inactive |= other.inactive_inactive;
  gain_active |= other.gain_active;
  gain_inactive |= other.gain_inactive;
  return *this;
}

Liveness::Liveness(const Program &program, const Segments &segments, const LaneFlow &flow, const Units &touched)
    : program_(program), segments_(segments), flow_(flow), written_(program, segments, flow, touched),
      summary_(program.functions.size()), return_(program.functions.size()) {
  unknown_.gain_active = unknown_.gain_inactive = program.everything;
  if (program.functions.size() > 1)
    summarise();
  solve();
}

std::vector<Live> Liveness::points(int number) const {
  const Block &block = program_.blocks[size_t(number)];
  const BlockLanes &lanes = flow_.blocks[size_t(number)];
  std::vector<Effects> effects(size_t(block.last - block.first) + 1);
  for (int index = block.first; index <= block.last; ++index)
    program_.effects(index, effects[size_t(index - block.first)]);
  const std::vector<Filled> filled = written_.inside(number, effects);
  std::vector<Live> result(filled.size());
  ByGroup<1> live;
  behind<1>(number, in_, live);
  result.back() = public_at(lanes.behind, live, filled.back(), written_.never(number, lanes.behind));
  if (program_.call_of[size_t(number)] >= 0)
    before_call<1>(number, live);
  for (size_t i = lanes.segments.size(); i-- > 0;) {
    const Segment &segment = segments_[size_t(number)][i];
    const SegmentLanes &segment_lanes = lanes.segments[i];
    gather(live, segment_lanes.spread);
    const Groups never = written_.never(number, segment_lanes);
    for (int index = segment.last; index >= segment.first; --index) {
      const size_t point = size_t(index - block.first);
      const Effects &own = effects[point];
      over(live, segment_lanes.on, own.reads, own.kills, own.cross_reads, own.hard_kills);
      result[point] = public_at(segment_lanes, live, filled[point], never);
    }
  }
  return result;
}

Live Liveness::at_start(int number) const {
  const SegmentLanes &lanes = flow_.blocks[size_t(number)].segments.front();
  ByGroup<1> live; // `in_` leaves more out, of lanes that were never launched
  behind<1>(number, in_, live);
  if (program_.call_of[size_t(number)] >= 0)
    before_call<1>(number, live);
  start<1>(number, live);
  return public_at(lanes, live, written_.before[size_t(number)], written_.never(number, lanes));
}

/// Return the liveness at a point. A scalar has one value per wave: it is live for all lanes or none.
Live Liveness::public_at(const SegmentLanes &lanes, const ByGroup<1> &live, const Filled &filled, Groups never) const {
  Live result;
  for (size_t group = 0; group < live.size(); ++group) {
    if (lanes.on >> group & 1)
      result.active |= live[group] & filled.anywhere;
    else
      result.inactive |= live[group] & (never >> group & 1 ? filled.unlaunched : filled.anywhere);
  }
  const Units scalars = live[0] & kScalars;
  result.active = (result.active & kVectors) | scalars;
  result.inactive = (result.inactive & kVectors) | scalars;
  return result;
}

// Blocks

/// Compute what is live after a block's last instruction; after a call, when it has returned.
template <int Sets> void Liveness::behind(int number, const ByBlock<Sets> &in, ByGroup<Sets> &live) const {
  const Block &block = program_.blocks[size_t(number)];
  const BlockLanes &lanes = flow_.blocks[size_t(number)];
  Bits<Sets> active, inactive;
  if (block.exit == Exit::kReturn || block.exit == Exit::kTail) {
    if constexpr (Sets == 3) {
      active = unknowns<3>(1);
      inactive = unknowns<3>(2);
    } else {
      for (const int function : block.owners) {
        active |= return_[size_t(function)].active;
        inactive |= return_[size_t(function)].inactive;
      }
    }
  } else if (block.exit == Exit::kUnknown) {
    active = inactive = constant<Sets>(unknown_.gain_active);
  }
  live.assign(size_t(lanes.behind.groups), inactive);
  each_group(lanes.behind.on, [&](int group) { live[size_t(group)] = active; });
  const Bits<Sets> scalars = repeat<Sets>(kScalars);
  for (size_t i = 0; i < block.successors.size(); ++i) {
    const ByGroup<Sets> &successor = in[size_t(block.successors[i].to)];
    const std::vector<int> &into = lanes.edges[i];
    for (size_t group = 0; group < into.size(); ++group)
      live[group] |= into[group] >= 0 ? successor[size_t(into[group])] : successor[0] & scalars;
  }
}

/// Go from after a call or tail call to before it.
template <int Sets> void Liveness::before_call(int number, ByGroup<Sets> &live) const {
  const BlockLanes &lanes = flow_.blocks[size_t(number)];
  const Call &call = program_.calls[size_t(program_.call_of[size_t(number)])];
  Transfer through;
  if (!call.known)
    through = unknown_;
  for (const int callee : call.callees)
    through |= summary_[size_t(callee)];
  const SegmentLanes &segment_lanes = lanes.segments.back(), &after = lanes.behind;
  // A scalar is the wave's, not its lanes': it counts on both sides even where one has no lanes.
  const Bits<Sets> scalars = live[0] & repeat<Sets>(kScalars);
  ByGroup<Sets> result(static_cast<size_t>(segment_lanes.groups));
  for (size_t group = 0; group < result.size(); ++group) {
    Bits<Sets> active = scalars, inactive = scalars;
    each_group(lanes.call.empty() ? Groups(1) << group : lanes.call[group],
               [&](int place) { (after.on >> place & 1 ? active : inactive) |= live[size_t(place)]; });
    if (segment_lanes.on >> group & 1)
      result[group] = (active & repeat<Sets>(through.active_active)) |
                      (inactive & repeat<Sets>(through.active_inactive)) | constant<Sets>(through.gain_active);
    else
      result[group] = (active & repeat<Sets>(through.inactive_active)) |
                      (inactive & repeat<Sets>(through.inactive_inactive)) | constant<Sets>(through.gain_inactive);
  }
  live = std::move(result);
}

/// Go from after a block's own instructions to its start.
template <int Sets> void Liveness::start(int number, ByGroup<Sets> &live) const {
  const BlockLanes &lanes = flow_.blocks[size_t(number)];
  for (size_t i = lanes.segments.size(); i-- > 0;) {
    const Segment &segment = segments_[size_t(number)][i];
    gather(live, lanes.segments[i].spread);
    over(live, lanes.segments[i].on, constant<Sets>(segment.reads), repeat<Sets>(segment.kills),
         constant<Sets>(segment.cross_reads), repeat<Sets>(segment.hard_kills));
  }
}

// Whole functions

template <int Sets> Liveness::ByBlock<Sets> Liveness::nothing_live() const {
  ByBlock<Sets> result;
  for (const BlockLanes &lanes : flow_.blocks)
    result.emplace_back(size_t(lanes.segments.front().groups));
  return result;
}

/// Find the summaries of all functions, callees and callers together until nothing changes.
void Liveness::summarise() {
  ByBlock<3> in = nothing_live<3>();
  std::vector<std::vector<int>> callers(program_.functions.size());
  for (const Call &call : program_.calls)
    for (const int callee : call.callees)
      callers[size_t(callee)].push_back(call.block);
  std::set<int> work;
  for (size_t number = 0; number < in.size(); ++number)
    work.insert(int(number));
  ByGroup<3> live;
  while (!work.empty()) {
    answer_signals();
    const int number = *work.rbegin(); // what comes later first
    work.erase(number);
    behind<3>(number, in, live);
    if (program_.call_of[size_t(number)] >= 0)
      before_call<3>(number, live);
    start<3>(number, live);
    if (live == in[size_t(number)])
      continue;
    in[size_t(number)] = live;
    const Block &block = program_.blocks[size_t(number)];
    work.insert(block.predecessors.begin(), block.predecessors.end());
    for (const Root &root : flow_.roots) {
      if (root.block != number)
        continue;
      const TripleUnits &active = live[size_t(root.active)], &inactive = live[size_t(root.inactive)];
      for (const int function : root.functions) {
        summary_[size_t(function)] = {part(active, 1),   part(active, 2), part(inactive, 1),
                                      part(inactive, 2), part(active, 0), part(inactive, 0)};
        work.insert(callers[size_t(function)].begin(), callers[size_t(function)].end());
      }
    }
  }
}

void Liveness::solve() {
  const size_t count = program_.blocks.size();
  in_ = nothing_live<1>();
  // A callee depends on what is live where it returns to; with an unknown target, any function may be the callee.
  std::vector<int> anyone;
  std::vector<std::vector<int>> returns(program_.functions.size());
  for (size_t function = 0; function < returns.size(); ++function) {
    if (function)
      anyone.push_back(int(function));
    for (const int block : program_.functions[function].blocks)
      if (const Exit exit = program_.blocks[size_t(block)].exit; exit == Exit::kReturn || exit == Exit::kTail)
        returns[function].push_back(block);
  }
  std::set<int> work;
  for (size_t number = 0; number < count; ++number)
    work.insert(int(number));
  ByGroup<1> live;
  while (!work.empty()) {
    answer_signals();
    const int number = *work.rbegin();
    work.erase(number);
    const Block &block = program_.blocks[size_t(number)];
    behind<1>(number, in_, live);
    const int which = program_.call_of[size_t(number)];
    const std::vector<int> *informed = nullptr;
    if (block.exit == Exit::kUnknown)
      informed = &anyone;
    else if (which >= 0)
      informed = program_.calls[size_t(which)].known ? &program_.calls[size_t(which)].callees : &anyone;
    if (informed) {
      const Live live_behind = merged(number, live);
      for (const int callee : *informed) {
        Live &known = return_[size_t(callee)];
        const Live all{known.active | live_behind.active, known.inactive | live_behind.inactive};
        if (all != known) {
          known = all;
          work.insert(returns[size_t(callee)].begin(), returns[size_t(callee)].end());
        }
      }
    }
    if (which >= 0)
      before_call<1>(number, live);
    start<1>(number, live);
    const SegmentLanes &first = flow_.blocks[size_t(number)].segments.front();
    const Groups never = written_.never(number, first);
    const Filled &filled = written_.before[size_t(number)];
    for (size_t group = 0; group < live.size(); ++group) // undefined contents cannot matter
      live[group] &= kScalars | (never >> group & 1 ? filled.unlaunched : filled.anywhere);
    if (live != in_[size_t(number)]) {
      in_[size_t(number)] = live;
      work.insert(block.predecessors.begin(), block.predecessors.end());
    }
  }
}

/// Return what is live where a call returns to, for its callee.
Live Liveness::merged(int number, const ByGroup<1> &behind) const {
  const SegmentLanes &lanes = flow_.blocks[size_t(number)].behind;
  Live result;
  for (size_t group = 0; group < behind.size(); ++group)
    (lanes.on >> group & 1 ? result.active : result.inactive) |= behind[group];
  const Units scalars = behind[0] & kScalars;
  result.active |= scalars;
  result.inactive |= scalars;
  return result;
}

} // namespace luthier::LUTHIER_FLOW
