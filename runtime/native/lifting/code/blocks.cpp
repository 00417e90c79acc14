#include "blocks.h"

#include "../../mc/interrupts.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace luthier::code {
namespace {

/// Blocks assigned to a function per unit of luthier.lifting.code.effort.
constexpr int64_t kMembersOfUnit = 256;

Exit exit_of(Control control) {
  switch (control) {
  case Control::kBranch:
    return Exit::kBranch;
  case Control::kConditional:
    return Exit::kConditional;
  case Control::kCall:
  case Control::kCallRegister:
    return Exit::kCall;
  case Control::kJumpRegister:
    return Exit::kUnknown;
  case Control::kEnd:
    return Exit::kEnd;
  case Control::kTrap:
    return Exit::kTrap;
  default:
    return Exit::kFallthrough;
  }
}

using Parts = std::vector<const Explorer::Part *>;

/// Check that reached instructions do not overlap, and return those that a part has beyond its end, as addresses.
std::vector<int64_t> reached_beyond(const Parts &parts) {
  struct Reached {
    int64_t address, end;
  };
  std::vector<Reached> reached;
  std::vector<int64_t> beyond;
  for (const Explorer::Part *part : parts)
    for (int index = 0; index < part->piece->count; ++index)
      if (part->reached[size_t(index)]) {
        reached.push_back({part->piece->address(index), part->piece->behind(index)});
        if (index >= part->count)
          beyond.push_back(reached.back().address);
      }
  std::stable_sort(reached.begin(), reached.end(),
                   [](const Reached &left, const Reached &right) { return left.address < right.address; });
  reached.erase(std::unique(reached.begin(), reached.end(),
                            [](const Reached &left, const Reached &right) { return left.address == right.address; }),
                reached.end());
  for (size_t i = 0; i + 1 < reached.size(); ++i)
    if (reached[i].end > reached[i + 1].address)
      throw Problem{"control enters the middle of the instruction at", reached[i + 1].address, {}, reached[i].address};
  return beyond;
}

} // namespace

/// An instruction of the parts put together.
class Blocks::Cursor {
public:
  explicit Cursor(const Parts &parts) : parts_(parts) {
    const bool cut = std::any_of(parts.begin(), parts.end(),
                                 [](const Explorer::Part *part) { return part->end < part->piece->end; });
    if (cut)
      beyond_ = reached_beyond(parts);
    std::sort(beyond_.begin(), beyond_.end());
    for (const int64_t address : beyond_)
      if (const Explorer::Part *part = part_of(address); !part || part->piece->index_of(address) < 0)
        throw Problem{"two readings of the same bytes as code", address};
  }

  const Piece &piece() const { return *parts_[part_]->piece; }
  int index() const { return index_; }
  int number() const { return before_ + index_; }
  int64_t address() const { return piece().address(index_); }
  Control control() const { return piece().control[index_]; }
  /// Whether control gets here and may not go on to the next.
  bool stops() const {
    return control() != Control::kNext &&
           (parts_[part_]->reached[size_t(index_)] || std::binary_search(beyond_.begin(), beyond_.end(), address()));
  }
  /// Go to the next instruction; false, and nothing done, where there is none before `limit`.
  bool next(int64_t limit) {
    const bool last = index_ + 1 == parts_[part_]->count;
    if (last && part_ + 1 == parts_.size())
      return false;
    if ((last ? parts_[part_ + 1]->piece->start : piece().address(index_ + 1)) >= limit)
      return false;
    if (last) {
      before_ += parts_[part_++]->count;
      index_ = 0;
    } else {
      ++index_;
    }
    return true;
  }

private:
  /// The part that an address counts in.
  const Explorer::Part *part_of(int64_t address) const {
    const auto behind =
        std::upper_bound(parts_.begin(), parts_.end(), address,
                         [](int64_t wanted, const Explorer::Part *part) { return wanted < part->piece->start; });
    return behind == parts_.begin() || address >= behind[-1]->end ? nullptr : behind[-1];
  }

  const Parts &parts_;
  std::vector<int64_t> beyond_; ///< addresses reached in an earlier part, ascending
  size_t part_ = 0;
  int index_ = 0, before_ = 0; ///< in the part; instructions of earlier ones
};

Blocks::Blocks(Explorer &explorer, const Explorer::Decode &decode)
    : begins_(explorer.leaders.begin(), explorer.leaders.end()) {
  const Parts parts = explorer.parts();
  if (parts.empty())
    return;
  Cursor place(parts);
  for (const int64_t begin : begins_) {
    answer_signals();
    while (place.address() < begin && place.next(INT64_MAX)) {
    }
    if (place.address() != begin)
      throw Problem{"two readings of the same bytes as code", begin};
    const int first = place.number();
    const auto following = std::upper_bound(begins_.begin(), begins_.end(), begin);
    while (!place.stops() && place.next(following == begins_.end() ? INT64_MAX : *following)) {
    }
    all.push_back({first, place.number(), exit_of(place.control()), {}, begin, place.address()});
    leave(place, explorer, decode);
  }
}

/// Find where control goes from the last block, which ends at `place`.
void Blocks::leave(const Cursor &place, Explorer &explorer, const Explorer::Decode &decode) {
  const Control control = place.control();
  const int64_t behind = place.piece().behind(place.index()), target = place.piece().target[place.index()];
  const int after = at(behind);
  std::vector<Block::Edge> &successors = all.back().successors;
  if (control == Control::kCall || control == Control::kCallRegister || control == Control::kJumpRegister)
    jumps.push_back({int(all.size()) - 1, control, {}, nullptr});
  if (control == Control::kCall)
    jumps.back().targets = {target};
  if (control == Control::kBranch || control == Control::kConditional) {
    if (at(target) < 0)
      throw Problem{"two readings of the same bytes as code", place.address()};
    successors.push_back({EdgeKind::kTaken, at(target)});
  }
  const bool returns = control == Control::kCall || control == Control::kCallRegister || control == Control::kTrap;
  if (after >= 0 && (control == Control::kNext || control == Control::kConditional ||
                     (returns && explorer.comes_back(place.address(), behind, decode))))
    successors.push_back({EdgeKind::kFallthrough, after});
}

void Blocks::connect(const Explorer &explorer, const Resolutions &known) {
  for (Jump &jump : jumps) {
    const auto at = known.find(all[size_t(jump.block)].last_address);
    if (jump.control == Control::kCall || at == known.end())
      continue;
    jump.resolution = at->second;
    jump.targets.assign(jump.resolution->targets.begin(), jump.resolution->targets.end());
    if (jump.control == Control::kJumpRegister && jump.resolution->reason.empty())
      lead(jump, explorer);
  }
}

/// Set how control leaves a block that ends with a register jump of which all targets are known.
void Blocks::lead(Jump &jump, const Explorer &explorer) {
  Block &block = all[size_t(jump.block)];
  const std::vector<int64_t> targets = std::exchange(jump.targets, {});
  const auto leaves = [&](int64_t target) { return explorer.leaves_function(block.address, target); };
  const auto leaving = size_t(std::count_if(targets.begin(), targets.end(), leaves));
  if (jump.resolution->is_return) {
    block.exit = Exit::kReturn;
  } else if (leaving == 0) {
    block.exit = Exit::kBranch;
    for (const int64_t target : targets)
      if (const int to = at(target); to >= 0)
        block.successors.push_back({targets.size() == 1 ? EdgeKind::kTaken : EdgeKind::kIndirect, to});
  } else if (leaving == targets.size()) {
    block.exit = Exit::kTail;
    jump.targets = targets;
  }
}

int64_t Blocks::find_functions(const Explorer &explorer, const std::vector<int64_t> &roots, int64_t left) {
  int64_t spent = 0;
  auto alone = int64_t(all.size());
  std::vector<size_t> seen(all.size());
  for (const Explorer::Function &function : explorer.functions) {
    const bool is_first = functions.empty();
    places_.emplace(function.entry, functions.size());
    functions.push_back({function.entry, {}});
    functions.back().members =
        reach(is_first && !roots.empty() ? roots : std::vector{function.entry}, seen, functions.size());
    // Shared blocks are stored once for each function, which may take much memory.
    const auto count = int64_t(functions.back().members.size());
    spent += 1 + count / kMembersOfUnit + std::max<int64_t>(0, count - alone);
    if (spent > left)
      break;
    alone = std::max<int64_t>(0, alone - count);
  }
  return spent;
}

const Blocks::Jump *Blocks::jump_of(int block) const {
  const auto jump = std::lower_bound(jumps.begin(), jumps.end(), block,
                                     [](const Jump &each, int wanted) { return each.block < wanted; });
  return jump != jumps.end() && jump->block == block ? &*jump : nullptr;
}

int Blocks::block_of_jump(int64_t address) const {
  const auto jump = std::lower_bound(jumps.begin(), jumps.end(), address, [&](const Jump &each, int64_t wanted) {
    return all[size_t(each.block)].last_address < wanted;
  });
  if (jump == jumps.end() || all[size_t(jump->block)].last_address != address)
    throw std::invalid_argument("no block ends with this jump");
  return jump->block;
}

int Blocks::at(int64_t address) const {
  const auto begin = std::lower_bound(begins_.begin(), begins_.end(), address);
  return begin != begins_.end() && *begin == address ? int(begin - begins_.begin()) : -1;
}

Blocks::Arrangement Blocks::arrange() const {
  Arrangement result;
  result.numbers.assign(all.size(), -1);
  for (size_t function = 0; function < functions.size(); ++function)
    for (const int block : functions[function].members)
      if (int &number = result.numbers.at(size_t(block)); number < 0) {
        number = int(result.order.size());
        result.order.push_back(block);
        result.owners.push_back(int(function));
      }
  result.predecessors.resize(result.order.size());
  for (size_t place = 0; place < result.order.size(); ++place)
    for (const Block::Edge &edge : all[size_t(result.order[place])].successors) {
      std::vector<int> &known = result.predecessors.at(size_t(result.numbers[size_t(edge.to)]));
      if (known.empty() || known.back() != int(place))
        known.push_back(int(place));
    }
  for (const Function &function : functions) {
    std::vector<int> &places = result.functions.emplace_back();
    for (const int block : function.members)
      places.push_back(result.numbers[size_t(block)]);
  }
  return result;
}

/// Return the blocks that control reaches from addresses, ascending.
/// @param seen by block, the number `now` of the last search that reached it
std::vector<int> Blocks::reach(const std::vector<int64_t> &roots, std::vector<size_t> &seen, size_t now) const {
  std::vector<int> reached, work;
  const auto find = [&](int block) {
    if (std::exchange(seen.at(size_t(block)), now) != now) {
      reached.push_back(block);
      work.push_back(block);
    }
  };
  for (const int64_t root : roots)
    find(at(root));
  while (!work.empty()) {
    answer_signals();
    const int block = work.back();
    work.pop_back();
    for (const Block::Edge &edge : all[size_t(block)].successors)
      find(edge.to);
  }
  std::sort(reached.begin(), reached.end());
  return reached;
}

} // namespace luthier::code
