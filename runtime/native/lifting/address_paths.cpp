#include "address_paths.h"

#include "../mc/interrupts.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

namespace luthier::LUTHIER_FLOW {
namespace {

constexpr int kStepsOfVisit = 16;
constexpr size_t kWaysOfMeeting = 4; // ways for each block that ends ways; beyond, ways also end where paths meet

Units exec_units() { return pair_of_units(ExecLo, 2); }

/// Return the units that a followed operation reads and on which its results depend.
Units value_reads(uint16_t role, const Units &reads) {
  if (role & kUsesCarry)
    return reads;
  if (role & kUsesExecAlone)
    return reads & exec_units();
  const Units rest = reads - pair_of_units(Scc, 1);
  if (role & kUsesLanes)
    return rest | exec_units();
  return role & kAnyLanes ? rest - exec_units() : rest;
}

} // namespace

AddressPaths::AddressPaths(const EffectTable &table, const AddressCode &code, const Units &vectors,
                           const Units &everything, const code::Blocks &blocks, const std::vector<int> &roots)
    : table_(table), code_(code), vectors_(vectors), everything_(everything) {
  find_blocks(blocks, roots);
  for (Block &block : blocks_)
    add_steps(block, blocks.all[size_t(block.number)]);
}

void AddressPaths::find_blocks(const code::Blocks &blocks, const std::vector<int> &roots) {
  std::vector<int> order;
  std::unordered_map<int, int> places;
  Work work;
  const auto find = [&](int number) {
    if (places.emplace(number, 0).second) {
      order.push_back(number);
      work.insert(number);
    }
  };
  for (const int root : roots)
    find(root);
  while (!work.empty()) {
    const int number = *work.begin();
    work.erase(work.begin());
    for (const code::Block::Edge &edge : blocks.all[size_t(number)].successors)
      find(edge.to);
  }
  std::vector<int> ascending = order;
  std::sort(ascending.begin(), ascending.end());
  for (size_t place = 0; place < ascending.size(); ++place)
    places[ascending[place]] = int(place);
  blocks_.reserve(ascending.size());
  for (const int number : ascending) {
    Block &block = blocks_.emplace_back();
    block.number = number;
    for (const code::Block::Edge &edge : blocks.all[size_t(number)].successors)
      block.successors.push_back(places[edge.to]);
  }
  for (const int root : roots)
    roots_.push_back(places[root]);
  for (const int number : order)
    found_.push_back(places[number]);
}

void AddressPaths::add_steps(Block &block, const code::Block &extent) const {
  Effects effects;
  bool open = false; // whether the last step goes on
  for (int index = extent.first; index <= extent.last; ++index) {
    answer_signals();
    effects_of(table_, *table_.form(code_.code.opcode[index]), operands_of(code_.code, index), vectors_, everything_,
               effects);
    const uint16_t role = code_.role(index);
    const bool alone = role || effects.writes & exec_units();
    if (alone || !open)
      block.steps.push_back({index, index, role, {}, {}, {}});
    open = !alone;
    Step &step = block.steps.back();
    step.last = index;
    step.reads |= effects.reads;
    step.writes |= effects.writes;
    step.kills |= effects.kills;
  }
  for (const Step &step : block.steps) {
    block.reads |= step.reads;
    block.writes |= step.writes;
    block.kills |= step.kills;
  }
}

int AddressPaths::place_of(int number) const {
  const auto at = std::lower_bound(blocks_.begin(), blocks_.end(), number,
                                   [](const Block &block, int wanted) { return block.number < wanted; });
  if (at == blocks_.end() || at->number != number)
    throw std::invalid_argument("no such block");
  return int(at - blocks_.begin());
}

/// Count a visit; return true if there are too many.
bool AddressPaths::is_spent(const Block &block) {
  answer_signals();
  visits += 1 + int64_t(block.steps.size()) / kStepsOfVisit;
  return visits > most;
}

// Which instructions can matter

std::vector<int> AddressPaths::relevant(bool called, bool finished) {
  bool any = false;
  for (const Block &block : blocks_)
    for (const Step &step : block.steps)
      any |= step.has(kFollowed);
  if (!any)
    return {};
  forward();
  for (Block &block : blocks_)
    for (Step &step : block.steps)
      if (step.has(kNeedsCounter) && !step.derived)
        step.role &= uint16_t(~kFollowed);
  backward(finished, called ? restorable() : Units());
  std::vector<int> result;
  for (const Block &block : blocks_)
    for (const Step &step : block.steps)
      if (step.relevant)
        result.push_back(step.first);
  std::sort(result.begin(), result.end());
  return result;
}

/// Find the steps that read a program counter.
void AddressPaths::forward() {
  struct Counters {
    Units fresh, derived;
    bool known = false;
  };
  std::vector<Counters> before(blocks_.size());
  Work work;
  for (const Block &block : blocks_)
    for (const Step &step : block.steps)
      if (step.has(kReadsCounter))
        work.insert(roots_.begin(), roots_.end());
  while (!work.empty()) {
    const size_t place = size_t(*work.begin());
    work.erase(work.begin());
    Block &block = blocks_[place];
    if (is_spent(block))
      return;
    Units fresh = before[place].fresh, derived = before[place].derived;
    for (Step &step : block.steps) {
      const bool reads_fresh(step.reads & fresh), reads(step.reads & derived);
      const Units lost = step.kills & kScalars; // the value in a lane is never assumed to be lost
      fresh -= lost;
      derived -= lost;
      if (step.has(kReadsCounter)) {
        step.fresh = step.derived = true;
        fresh |= step.writes;
        derived |= step.writes;
      } else if (reads && step.has(kFollowed)) {
        step.derived = true;
        step.fresh |= reads_fresh;
        derived |= step.writes;
        if (reads_fresh && step.has(kMoves))
          fresh |= step.writes;
      }
    }
    for (const int successor : block.successors) {
      Counters &known = before[size_t(successor)];
      if (known.known && !(fresh - known.fresh) && !(derived - known.derived))
        continue;
      known = {known.fresh | fresh, known.derived | derived, true};
      work.insert(successor);
    }
  }
}

/// Return the scalar units that may get back their values at the entry, which move through copies.
///
/// EXEC is left out: its changes in a function do not matter (`AddressSearch::return_from_call`).
Units AddressPaths::restorable() const {
  struct Copy {
    Units reads, writes;
  };
  std::vector<Copy> copies;
  for (const Block &block : blocks_)
    for (const Step &step : block.steps)
      if (step.has(kFollowed) && step.has(kCopies))
        if (const Units reads = value_reads(step.role, step.reads))
          copies.push_back({reads, step.writes - (reads & exec_units())});
  for (Units around, before; !copies.empty(); before = around) {
    Units read, written;
    for (const Copy &copy : copies) {
      read |= copy.reads;
      written |= copy.writes;
    }
    around = read & written;
    if (around == before)
      return (around & kScalars) - exec_units();
    copies.erase(std::remove_if(copies.begin(), copies.end(),
                                [&](const Copy &copy) { return !(copy.reads & around) || !(copy.writes & around); }),
                 copies.end());
  }
  return {};
}

/// Find the steps that can matter, from what is needed at each point: units whose known values can matter later.
void AddressPaths::backward(bool finished, const Units &restored) {
  const auto is_seed = [&](const Step &step) { return step.has(kFollowed) && (finished ? step.derived : step.fresh); };
  std::vector<std::vector<int>> predecessors(blocks_.size());
  std::vector<uint8_t> plain(blocks_.size(), 1);
  Work work;
  for (size_t place = 0; place < blocks_.size(); ++place) {
    for (const int successor : blocks_[place].successors)
      predecessors[size_t(successor)].push_back(int(place));
    for (Step &step : blocks_[place].steps) {
      step.relevant = is_seed(step);
      plain[place] &= !step.has(kFollowed | kByRegister);
    }
    work.insert(work.end(), int(place));
  }
  std::vector<Units> before(blocks_.size());
  while (!work.empty()) {
    const int place = *work.rbegin(); // what comes later first
    work.erase(place);
    Block &block = blocks_[size_t(place)];
    if (is_spent(block))
      return;
    Units needed;
    for (const int successor : block.successors)
      needed |= before[size_t(successor)];
    if (plain[size_t(place)] && !(needed & block.writes & exec_units()))
      needed -= block.writes;
    else
      for (size_t i = block.steps.size(); i-- > 0;) {
        Step &step = block.steps[i];
        // A load to lanes reveals which are active.
        const Units tells = step.writes & kVectors ? step.writes | exec_units() : step.writes;
        // What is known of EXEC outlives most of its writes, and an operation on lanes may leave the others alone.
        if (step.has(kByRegister)) {
          needed = (needed - step.writes) | step.reads;
          if (step.has(kMayReturn))
            needed |= restored;
        } else if (step.has(kFollowed) && (step.relevant || tells & needed)) {
          step.relevant = true;
          needed = (needed - ((step.writes & kScalars) - exec_units())) | value_reads(step.role, step.reads);
        } else if (!step.has(kFollowed) && step.writes & needed & exec_units()) {
          step.relevant = true;
          needed -= step.writes - exec_units();
        } else {
          needed -= step.writes;
        }
      }
    if (needed != before[size_t(place)]) {
      before[size_t(place)] = needed;
      work.insert(predecessors[size_t(place)].begin(), predecessors[size_t(place)].end());
    }
  }
}

// From one of them to the next

void AddressPaths::cut(const std::vector<int> &relevant) {
  for (Block &block : blocks_) {
    block.parts.clear();
    block.special = false;
    for (const Step &step : block.steps) {
      const bool followed = std::binary_search(relevant.begin(), relevant.end(), step.first);
      const bool alone = followed || step.has(kLeaves);
      block.special |= alone;
      if (alone || block.parts.empty() || block.parts.back().alone)
        block.parts.push_back({step.first, step.last, alone, followed, {}, {}, {}});
      Part &part = block.parts.back();
      part.last = step.last;
      part.reads |= step.reads;
      part.writes |= step.writes;
      part.kills |= step.kills;
    }
  }
  add_meetings();
}

/// If many blocks have parts and each can reach each other one, there are as many ways as pairs of them. Then ways also
/// end where paths meet, so that a search passes there once for all.
void AddressPaths::add_meetings() {
  std::vector<int> predecessors(blocks_.size());
  size_t looked = 0;
  for (const Block &block : blocks_) {
    looked += block.special;
    for (const int successor : block.successors)
      ++predecessors[size_t(successor)];
  }
  const auto meets = [&](size_t place) { return predecessors[place] > 1 && !blocks_[place].special; };
  size_t meetings = 0;
  for (size_t place = 0; place < blocks_.size(); ++place)
    meetings += meets(place);
  if (looked * looked <= kWaysOfMeeting * (looked + meetings))
    return;
  for (size_t place = 0; place < blocks_.size(); ++place)
    blocks_[place].special |= meets(place);
}

std::vector<int> AddressPaths::special() const {
  std::vector<int> result;
  for (const int place : found_)
    if (blocks_[size_t(place)].special)
      result.push_back(blocks_[size_t(place)].number);
  return result;
}

template <typename Each> bool AddressPaths::settle(Work &work, Each each) {
  while (!work.empty()) {
    const int place = *work.begin();
    work.erase(work.begin());
    const Block &block = blocks_[size_t(place)];
    if (block.special)
      continue;
    if (is_spent(block))
      return false;
    each(place, block);
  }
  return true;
}

std::vector<AddressPaths::Way> AddressPaths::ways(const std::vector<int> &from) {
  if (from.size() == 1 && blocks_[size_t(place_of(from.front()))].special) // as after nearly every call
    return {{from.front(), {}, {}}};
  std::unordered_map<int, Way> before;
  Work work;
  const auto arrive = [&](int place, const Units &writes, const Units &kills) {
    const auto [at, is_new] = before.try_emplace(place, Way{place, writes, kills});
    Way &way = at->second;
    if (is_new || writes - way.writes || way.kills - kills) {
      way.writes |= writes;
      way.kills &= kills;
      work.insert(place);
    }
  };
  for (const int number : from)
    arrive(place_of(number), {}, {});
  const bool settled = settle(work, [&](int place, const Block &block) {
    const Way way = before.at(place);
    for (const int successor : block.successors)
      arrive(successor, way.writes | block.writes, way.kills | block.kills);
  });
  if (!settled)
    return {};
  std::vector<Way> result;
  for (const auto &[place, way] : before)
    if (blocks_[size_t(place)].special)
      result.push_back({blocks_[size_t(place)].number, way.writes, way.kills});
  std::sort(result.begin(), result.end(), [](const Way &left, const Way &right) { return left.to < right.to; });
  return result;
}

std::vector<AddressPaths::Use> AddressPaths::uses(const std::vector<int> &from, const Units &held) {
  if (from.size() == 1 && blocks_[size_t(place_of(from.front()))].special)
    return {};
  std::unordered_map<int, Units> before;
  Work work;
  const auto arrive = [&](int place, const Units &units) {
    Units &known = before[place];
    if (units - known) {
      known |= units;
      work.insert(place);
    }
  };
  for (const int number : from)
    arrive(place_of(number), held);
  const bool settled = settle(work, [&](int place, const Block &block) {
    for (const int successor : block.successors)
      arrive(successor, before.at(place) - (block.kills & kScalars));
  });
  if (!settled)
    return {};
  std::vector<Use> result;
  for (const auto &[place, units] : before)
    if (const Block &block = blocks_[size_t(place)]; !block.special && block.reads & units)
      for (const Use &use : uses_between(block.steps.front().first, block.steps.back().last, units))
        result.push_back(use);
  return result;
}

std::vector<AddressPaths::Use> AddressPaths::uses_between(int first, int last, Units held) const {
  std::vector<Use> result;
  Effects effects;
  for (int index = first; index <= last && held; ++index) {
    answer_signals();
    effects_of(table_, *table_.form(code_.code.opcode[index]), operands_of(code_.code, index), vectors_, everything_,
               effects);
    if (const Units units = effects.reads & held)
      result.push_back({index, units});
    held -= effects.kills & kScalars;
  }
  return result;
}

} // namespace luthier::LUTHIER_FLOW
