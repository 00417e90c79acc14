#include "lane_flow.h"

#include <algorithm>
#include <numeric>

namespace luthier::LUTHIER_FLOW {
namespace {

SegmentLanes lanes_of(const LaneMasks &state) {
  return {state.count, state.on, state.own.certain, state.everything() & ~state.own.possible, {}};
}

} // namespace

LaneFlow::LaneFlow(const Program &program, const Segments &segments)
    : blocks(program.blocks.size()), program_(program), segments_(segments), before_(program.blocks.size()),
      keeps_exec_(program.functions.size(), 1), changes_(program.functions.size()), writes_(written_by_functions()),
      kept_(scalars_read_later()), callers_(program.functions.size()), version_(program.blocks.size()),
      versions_(program.blocks.size()) {
  for (const Call &call : program.calls)
    for (const int callee : call.callees)
      callers_[size_t(callee)].push_back(call.block);
  for (size_t function = 0; function < program.functions.size(); ++function)
    roots.push_back({program.functions[function].entry_block, {int(function)}});
  for (const int block : program.entries) {
    auto at = std::find_if(roots.begin(), roots.end(), [&](const Root &root) { return root.block == block; });
    if (at == roots.end())
      at = roots.insert(roots.end(), Root{block, {}});
    if (std::find(at->functions.begin(), at->functions.end(), 0) == at->functions.end())
      at->functions.push_back(0);
  }

  const LaneMasks start(program.table->wide, program.functions.size() > 1);
  std::vector<int> into;
  std::set<int> work;
  for (const Root &root : roots) {
    enter(root.block, start, 0, into);
    work.insert(root.block);
  }
  for (; !work.empty(); work = stale())
    run(std::move(work));
  for (Root &root : roots) {
    enter(root.block, start, 0, into);
    root.inactive = into[kGroupOutside];
    root.active = into[kGroupOwn];
  }
  decltype(before_)().swap(before_); // whose memory is wanted for what comes next
  decltype(kept_)().swap(kept_);
  decltype(versions_)().swap(versions_);
}

// Summaries

/// Vector units each function may write, with all it calls.
std::vector<Units> LaneFlow::written_by_functions() const {
  std::vector<Units> writes(program_.functions.size());
  for (size_t function = 0; function < writes.size(); ++function)
    for (const int block : program_.functions[function].blocks)
      for (const Segment &segment : segments_[size_t(block)])
        writes[function] |= segment.writes & kVectors;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t function = 0; function < writes.size(); ++function) {
      Units total = writes[function];
      for (const int number : program_.functions[function].calls) {
        const Call &call = program_.calls[size_t(number)];
        for (const int callee : call.callees)
          total |= writes[size_t(callee)];
        if (!call.known)
          total |= kVectors;
      }
      if (total != writes[function]) {
        writes[function] = total;
        changed = true;
      }
    }
  }
  return writes;
}

/// Plain liveness of scalars, with calls, returns and jumps to unknown targets reading everything; and all vectors.
std::vector<Units> LaneFlow::scalars_read_later() const {
  const size_t count = program_.blocks.size();
  std::vector<Units> gains(count), keeps(count, kScalars), live(count);
  std::set<int> work;
  for (size_t number = 0; number < count; ++number) {
    work.insert(int(number));
    for (size_t i = segments_[number].size(); i-- > 0;) {
      const Segment &segment = segments_[number][i];
      gains[number] = (gains[number] - segment.kills) | segment.reads;
      keeps[number] -= segment.kills;
    }
    gains[number] &= kScalars;
  }
  while (!work.empty()) {
    answer_signals();
    const size_t number = size_t(*work.rbegin());
    work.erase(int(number));
    const Block &block = program_.blocks[number];
    const bool leaves = block.exit == Exit::kCall || block.exit == Exit::kReturn || block.exit == Exit::kTail ||
                        block.exit == Exit::kUnknown;
    Units behind = leaves ? kScalars : Units{};
    for (const Edge &edge : block.successors)
      behind |= live[size_t(edge.to)];
    const Units now = (behind & keeps[number]) | gains[number];
    if (now != live[number]) {
      live[number] = now;
      work.insert(block.predecessors.begin(), block.predecessors.end());
    }
  }
  for (Units &units : live)
    units |= kVectors;
  return live;
}

// Forward

/// Join `state` to a block: return where its groups go, and whether the block's state changed.
bool LaneFlow::enter(int block, const LaneMasks &state, Groups vacant, std::vector<int> &into) {
  std::optional<LaneMasks> &known = before_[size_t(block)];
  const bool fresh = !known;
  if (fresh)
    known = LaneMasks::nowhere(state, kept_[size_t(block)]);
  const bool changed = known->join(state, vacant, into);
  if (changed || fresh)
    ++version_[size_t(block)];
  return changed || fresh;
}

/// Continue to a block that has no other predecessor: all knowledge is kept.
bool LaneFlow::go_on(int block, const LaneMasks &state, std::vector<int> &into) {
  std::optional<LaneMasks> &known = before_[size_t(block)];
  into.resize(size_t(state.count));
  std::iota(into.begin(), into.end(), 0);
  if (known && *known == state)
    return false;
  known = state;
  ++version_[size_t(block)];
  return true;
}

/// Analyse these blocks, and all that change because of that.
void LaneFlow::run(std::set<int> work) {
  while (!work.empty()) {
    answer_signals();
    const int number = *work.begin();
    work.erase(work.begin());
    visit(number, work);
  }
}

/// Go through a block; `again` gets those that must be visited because of what was found.
void LaneFlow::visit(int number, std::set<int> &again) {
  const Block &block = program_.blocks[size_t(number)];
  // NOLINTNEXTLINE(bugprone-unchecked-optional-access): a block is visited because something reaches it
  LaneMasks state = *before_[size_t(number)];
  BlockLanes &lanes = blocks[size_t(number)];
  lanes.segments.clear();
  for (const Segment &segment : segments_[size_t(number)]) {
    lanes.segments.push_back(lanes_of(state));
    for (const MaskOperation &operation : segment.operations)
      operation.run(state, lanes.segments.back().spread); // empty but for the last
  }
  leave(number, state, again);
  lanes.call = call(number, state);
  lanes.behind = lanes_of(state);
  lanes.edges.resize(block.successors.size());
  versions_[size_t(number)].clear();
  const OpcodeForm &last = *program_.table->form(program_.code.opcode[block.last]);
  for (size_t i = 0; i < block.successors.size(); ++i) {
    const Edge &edge = block.successors[i];
    // No lane is active where EXEC is zero.
    const bool empty = (last.empty_way == 1 && edge.taken) || (last.empty_way == 0 && edge.fallthrough);
    const Groups vacant = empty && state.on != state.everything() ? state.on : 0;
    if (edge.inside ? go_on(edge.to, state, lanes.edges[i]) : enter(edge.to, state, vacant, lanes.edges[i]))
      again.insert(edge.to);
    versions_[size_t(number)].push_back(version_[size_t(edge.to)]);
  }
}

/// Change the state to that after a call; return the spread of its groups.
std::vector<Groups> LaneFlow::call(int number, LaneMasks &state) const {
  const int which = program_.call_of[size_t(number)];
  if (which < 0 || program_.calls[size_t(which)].tail)
    return {};
  const Call &call = program_.calls[size_t(which)];
  Units lost = call.known ? Units{} : kAllUnits;
  bool keeps = call.known;
  for (const int callee : call.callees) {
    lost |= changes_[size_t(callee)] | writes_[size_t(callee)];
    keeps = keeps && keeps_exec_[size_t(callee)];
  }
  state.forget(lost);
  if (keeps)
    return {};
  std::vector<Groups> spread = state.change_exec({0, state.everything()});
  state.compact(spread);
  return spread;
}

/// Note what functions that end here have changed; `again` gets blocks with calls that must be visited again.
void LaneFlow::leave(int number, const LaneMasks &state, std::set<int> &again) {
  const Block &block = program_.blocks[size_t(number)];
  if (block.exit != Exit::kReturn && block.exit != Exit::kTail && block.exit != Exit::kUnknown)
    return;
  bool keeps = state.own == Mask{state.on, state.on};
  Units changes = state.origins ? state.origins->changed() : Units{};
  const auto anything = [&] {
    keeps = false;
    changes = kScalars;
  };
  if (block.exit == Exit::kUnknown)
    anything();
  if (block.exit == Exit::kTail) {
    const Call &call = program_.calls[size_t(program_.call_of[size_t(number)])];
    if (!call.known)
      anything();
    for (const int callee : call.callees) {
      keeps = keeps && keeps_exec_[size_t(callee)];
      changes |= changes_[size_t(callee)];
    }
  }
  for (const int owner : block.owners) {
    const size_t function = size_t(owner);
    if ((keeps || !keeps_exec_[function]) && !(changes - changes_[function]))
      continue;
    keeps_exec_[function] = keeps_exec_[function] && keeps;
    changes_[function] |= changes;
    for (const int caller : callers_[function])
      if (before_[size_t(caller)])
        again.insert(caller);
  }
}

/// Blocks with a successor whose groups changed since.
std::set<int> LaneFlow::stale() const {
  std::set<int> numbers;
  for (size_t number = 0; number < blocks.size(); ++number) {
    const std::vector<Edge> &edges = program_.blocks[number].successors;
    bool same = versions_[number].size() == edges.size();
    for (size_t i = 0; same && i < edges.size(); ++i)
      same = versions_[number][i] == version_[size_t(edges[i].to)];
    if (!same)
      numbers.insert(int(number));
  }
  return numbers;
}

} // namespace luthier::LUTHIER_FLOW
