#include "written.h"

#include <algorithm>

namespace luthier::LUTHIER_FLOW {

Written::Written(const Program &program, const Segments &segments, const LaneFlow &flow, const Units &touched)
    : program_(program), segments_(segments), flow_(flow), unknownCalls_(program.unknown),
      enteredInside_(program.functions.size(), 1), enteredFull_(program.functions.size(), 1),
      ofFunctions_(program.functions.size()) {
  for (const Call &call : program.calls)
    unknownCalls_ |= !call.known;
  lookAtCallers();
  for (size_t block = 0; block < program.blocks.size(); ++block)
    fills_.push_back(fillOf(int(block)));
  summarise();
  const Units first = pairOfUnits(Vgpr, program.launched);
  before = solve(first);
  if (const Units seen = storedUnwritten() | (touched & Vectors))
    before = solve(first | seen);
}

bool Written::all(int block, const std::vector<uint8_t> &functions) const {
  const std::vector<int> &owners = program_.blocks[size_t(block)].owners;
  return std::all_of(owners.begin(), owners.end(), [&](int owner) { return functions[size_t(owner)]; });
}

Groups Written::never(int block, const SegmentLanes &lanes) const {
  return all(block, enteredFull_) ? lanes.outside : 0;
}

/// Return whether only lanes that were launched are active.
bool Written::launched(int block, const SegmentLanes &lanes) const {
  return !(lanes.on & ~lanes.own) && all(block, enteredInside_);
}

std::vector<Filled> Written::inside(int number, const std::vector<Effects> &effects) const {
  const Block &block = program_.blocks[size_t(number)];
  std::vector<Filled> result{before[size_t(number)]};
  result.reserve(size_t(block.last - block.first) + 2);
  for (size_t i = 0; i < segments_[size_t(number)].size(); ++i) {
    const Segment &segment = segments_[size_t(number)][i];
    const bool inLaunched = launched(number, flow_.blocks[size_t(number)].segments[i]);
    for (int index = segment.first; index <= segment.last; ++index) {
      const Units writes = effects[size_t(index - block.first)].writes & Vectors;
      Filled now = result.back();
      now.anywhere |= writes;
      now.unlaunched |= inLaunched ? writes & segment.writesAnywhere : writes;
      result.push_back(now);
    }
  }
  if (const int call = program_.callOf[size_t(number)]; call >= 0)
    result.back() |= throughCall(program_.calls[size_t(call)]);
  return result;
}

/// Return what a call or tail call fills before it returns.
Filled Written::throughCall(const Call &call) const {
  Filled total;
  if (!call.known)
    total = {Vectors, Vectors};
  for (const int callee : call.callees)
    total |= ofFunctions_[size_t(callee)];
  return total;
}

void Written::lookAtCallers() {
  if (unknownCalls_)
    for (size_t function = 1; function < program_.functions.size(); ++function)
      enteredInside_[function] = enteredFull_[function] = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (const Call &call : program_.calls) {
      const SegmentLanes &lanes = flow_.blocks[size_t(call.block)].segments.back();
      const bool inside = launched(call.block, lanes);
      const Groups inactive = ((Groups(1) << lanes.groups) - 1) & ~lanes.on;
      const bool full = !(inactive & ~lanes.outside) && all(call.block, enteredFull_);
      for (const int one : call.callees) {
        const size_t callee = size_t(one);
        if ((enteredInside_[callee] && !inside) || (enteredFull_[callee] && !full)) {
          enteredInside_[callee] = enteredInside_[callee] && inside;
          enteredFull_[callee] = enteredFull_[callee] && full;
          changed = true;
        }
      }
    }
  }
}

Filled Written::fillOf(int block) const {
  Filled total;
  for (size_t i = 0; i < segments_[size_t(block)].size(); ++i) {
    const Segment &segment = segments_[size_t(block)][i];
    const Units writes = segment.writes & Vectors;
    total |= {writes, launched(block, flow_.blocks[size_t(block)].segments[i]) ? segment.writesAnywhere : writes};
  }
  return total;
}

void Written::summarise() {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t function = 0; function < ofFunctions_.size(); ++function) {
      Filled total = ofFunctions_[function];
      for (const int block : program_.functions[function].blocks)
        total |= fills_[size_t(block)];
      for (const int call : program_.functions[function].calls)
        total |= throughCall(program_.calls[size_t(call)]);
      if (total != ofFunctions_[function]) {
        ofFunctions_[function] = total;
        changed = true;
      }
    }
  }
}

std::vector<Filled> Written::solve(const Units &atLaunch) const {
  std::vector<Filled> result(program_.blocks.size());
  for (const Root &root : flow_.roots) {
    const bool kernel = std::find(root.functions.begin(), root.functions.end(), 0) != root.functions.end();
    if (kernel)
      result[size_t(root.block)] = {atLaunch, {}};
    else if (unknownCalls_)
      result[size_t(root.block)] = {Vectors, Vectors};
  }
  std::set<int> work;
  for (size_t number = 0; number < result.size(); ++number)
    work.insert(int(number));
  while (!work.empty()) {
    answerSignals();
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
    if (const int which = program_.callOf[size_t(number)]; which >= 0) {
      const Call &call = program_.calls[size_t(which)];
      for (const int callee : call.callees)
        enter(program_.functions[size_t(callee)].entryBlock, after);
      after |= throughCall(call);
    }
    for (const Edge &edge : program_.blocks[size_t(number)].successors)
      enter(edge.to, after);
  }
  return result;
}

/// Registers that are stored before anything has written them.
///
/// Their contents depend on nothing the program does, but can be observed, so they are left unchanged.
Units Written::storedUnwritten() const {
  Units seen;
  for (size_t block = 0; block < program_.blocks.size(); ++block) {
    Units filled = before[block].anywhere;
    for (const Segment &segment : segments_[block]) {
      seen |= segment.storesUnwritten - filled;
      filled |= segment.writes;
    }
  }
  return seen;
}

} // namespace luthier::LUTHIER_FLOW
