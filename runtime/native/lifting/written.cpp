#include "written.h"

#include <algorithm>

namespace luthier::LUTHIER_FLOW {

Written::Written(const Program &program, const Segments &segments, const LaneFlow &flow, const Units &touched)
    : program_(program), segments_(segments), flow_(flow), unknown_calls_(program.unknown),
      entered_inside_(program.functions.size(), 1), entered_full_(program.functions.size(), 1),
      of_functions_(program.functions.size()) {
  for (const Call &call : program.calls)
    unknown_calls_ |= !call.known;
  look_at_callers();
  for (size_t block = 0; block < program.blocks.size(); ++block)
    fills_.push_back(fill_of(int(block)));
  summarise();
  const Units first = pair_of_units(Vgpr, program.launched);
  before = solve(first);
  if (const Units seen = stored_unwritten() | (touched & kVectors))
    before = solve(first | seen);
}

bool Written::all(int block, const std::vector<uint8_t> &functions) const {
  const std::vector<int> &owners = program_.blocks[size_t(block)].owners;
  return std::all_of(owners.begin(), owners.end(), [&](int owner) { return functions[size_t(owner)]; });
}

Groups Written::never(int block, const SegmentLanes &lanes) const {
  return all(block, entered_full_) ? lanes.outside : 0;
}

/// Return whether only lanes that were launched are active.
bool Written::launched(int block, const SegmentLanes &lanes) const {
  return !(lanes.on & ~lanes.own) && all(block, entered_inside_);
}

std::vector<Filled> Written::inside(int number, const std::vector<Effects> &effects) const {
  const Block &block = program_.blocks[size_t(number)];
  std::vector<Filled> result{before[size_t(number)]};
  result.reserve(size_t(block.last - block.first) + 2);
  for (size_t i = 0; i < segments_[size_t(number)].size(); ++i) {
    const Segment &segment = segments_[size_t(number)][i];
    const bool in_launched = launched(number, flow_.blocks[size_t(number)].segments[i]);
    for (int index = segment.first; index <= segment.last; ++index) {
      const Units writes = effects[size_t(index - block.first)].writes & kVectors;
      Filled now = result.back();
      now.anywhere |= writes;
      now.unlaunched |= in_launched ? writes & segment.writes_anywhere : writes;
      result.push_back(now);
    }
  }
  if (const int call = program_.call_of[size_t(number)]; call >= 0)
    result.back() |= through_call(program_.calls[size_t(call)]);
  return result;
}

/// Return the units that a call or tail call defines before it returns.
Filled Written::through_call(const Call &call) const {
  Filled total;
  if (!call.known)
    total = {kVectors, kVectors};
  for (const int callee : call.callees)
    total |= of_functions_[size_t(callee)];
  return total;
}

void Written::look_at_callers() {
  if (unknown_calls_)
    for (size_t function = 1; function < program_.functions.size(); ++function)
      entered_inside_[function] = entered_full_[function] = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (const Call &call : program_.calls) {
      const SegmentLanes &lanes = flow_.blocks[size_t(call.block)].segments.back();
      const bool inside = launched(call.block, lanes);
      const Groups inactive = ((Groups(1) << lanes.groups) - 1) & ~lanes.on;
      const bool full = !(inactive & ~lanes.outside) && all(call.block, entered_full_);
      for (const int number : call.callees) {
        const size_t callee = size_t(number);
        if ((entered_inside_[callee] && !inside) || (entered_full_[callee] && !full)) {
          entered_inside_[callee] = entered_inside_[callee] && inside;
          entered_full_[callee] = entered_full_[callee] && full;
          changed = true;
        }
      }
    }
  }
}

Filled Written::fill_of(int block) const {
  Filled total;
  for (size_t i = 0; i < segments_[size_t(block)].size(); ++i) {
    const Segment &segment = segments_[size_t(block)][i];
    const Units writes = segment.writes & kVectors;
    total |= {writes, launched(block, flow_.blocks[size_t(block)].segments[i]) ? segment.writes_anywhere : writes};
  }
  return total;
}

void Written::summarise() {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t function = 0; function < of_functions_.size(); ++function) {
      Filled total = of_functions_[function];
      for (const int block : program_.functions[function].blocks)
        total |= fills_[size_t(block)];
      for (const int call : program_.functions[function].calls)
        total |= through_call(program_.calls[size_t(call)]);
      if (total != of_functions_[function]) {
        of_functions_[function] = total;
        changed = true;
      }
    }
  }
}

std::vector<Filled> Written::solve(const Units &at_launch) const {
  std::vector<Filled> result(program_.blocks.size());
  for (const Root &root : flow_.roots) {
    const bool kernel = std::find(root.functions.begin(), root.functions.end(), 0) != root.functions.end();
    if (kernel)
      result[size_t(root.block)] = {at_launch, {}};
    else if (unknown_calls_)
      result[size_t(root.block)] = {kVectors, kVectors};
  }
  std::set<int> work;
  for (size_t number = 0; number < result.size(); ++number)
    work.insert(int(number));
  while (!work.empty()) {
    answer_signals();
    const int number = *work.begin();
    work.erase(work.begin());
    const auto enter = [&](int to, const Filled &filled) {
      Filled merged = result[size_t(to)];
      merged |= filled;
      if (merged != result[size_t(to)]) {
        result[size_t(to)] = merged;
        work.insert(to);
      }
    };
    Filled after = result[size_t(number)];
    after |= fills_[size_t(number)];
    if (const int which = program_.call_of[size_t(number)]; which >= 0) {
      const Call &call = program_.calls[size_t(which)];
      for (const int callee : call.callees)
        enter(program_.functions[size_t(callee)].entry_block, after);
      after |= through_call(call);
    }
    for (const Edge &edge : program_.blocks[size_t(number)].successors)
      enter(edge.to, after);
  }
  return result;
}

/// Registers that are stored before anything has written them.
///
/// Their contents do not depend on the program, but can be observed, so they are preserved.
Units Written::stored_unwritten() const {
  Units seen;
  for (size_t block = 0; block < program_.blocks.size(); ++block) {
    Units filled = before[block].anywhere;
    for (const Segment &segment : segments_[block]) {
      seen |= segment.stores_unwritten - filled;
      filled |= segment.writes;
    }
  }
  return seen;
}

} // namespace luthier::LUTHIER_FLOW
