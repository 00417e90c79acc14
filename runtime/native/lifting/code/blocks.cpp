#include "blocks.h"

#include "../../mc/interrupts.h"

#include <algorithm>

namespace luthier::code {
namespace {

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
    jumps.push_back({int(all.size()) - 1, control, target});
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

void Blocks::lead(int block, Exit exit, EdgeKind kind, const std::vector<int64_t> &targets) {
  Block &changed = all.at(size_t(block));
  changed.exit = exit;
  for (const int64_t target : targets)
    if (const int to = at(target); to >= 0)
      changed.successors.push_back({kind, to});
}

int Blocks::at(int64_t address) const {
  const auto begin = std::lower_bound(begins_.begin(), begins_.end(), address);
  return begin != begins_.end() && *begin == address ? int(begin - begins_.begin()) : -1;
}

Blocks::Arrangement Blocks::arrange(std::vector<std::vector<int>> functions) const {
  Arrangement result;
  result.numbers.assign(all.size(), -1);
  for (size_t function = 0; function < functions.size(); ++function)
    for (const int block : functions[function])
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
  for (std::vector<int> &blocks : functions)
    for (int &block : blocks)
      block = result.numbers[size_t(block)];
  result.functions = std::move(functions);
  return result;
}

std::vector<int> Blocks::reach(const std::vector<int> &roots) const {
  std::vector<uint8_t> seen(all.size());
  std::vector<int> reached, work;
  const auto find = [&](int block) {
    if (!seen.at(size_t(block))) {
      seen[size_t(block)] = 1;
      reached.push_back(block);
      work.push_back(block);
    }
  };
  for (const int root : roots)
    find(root);
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
