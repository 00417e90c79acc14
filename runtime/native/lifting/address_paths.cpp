#include "address_paths.h"

#include "../mc/interrupts.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

namespace luthier::LUTHIER_FLOW {
namespace {

constexpr int StepsOfVisit = 16;
constexpr size_t WaysOfMeeting = 4; // of a block to others, where paths do not meet in between, for that to pay

Units execUnits() { return pairOfUnits(ExecLo, 2); }

/// Units that a followed operation reads on which its results depend.
Units valueReads(uint16_t role, const Units &reads) {
  if (role & UsesCarry)
    return reads;
  if (role & UsesExecAlone)
    return reads & execUnits();
  const Units others = reads - pairOfUnits(Scc, 1);
  if (role & UsesLanes)
    return others | execUnits();
  return role & AnyLanes ? others - execUnits() : others;
}

} // namespace

AddressPaths::AddressPaths(const EffectTable &table, const Code &code, const Units &vectors, const Units &everything,
                           const code::Blocks &blocks, const std::vector<int> &roots, const uint16_t *roles)
    : table_(table), code_(code), vectors_(vectors), everything_(everything) {
  findBlocks(blocks, roots);
  for (Block &block : blocks_)
    addSteps(block, blocks.all[size_t(block.number)], roles);
}

void AddressPaths::findBlocks(const code::Blocks &blocks, const std::vector<int> &roots) {
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

void AddressPaths::addSteps(Block &block, const code::Block &extent, const uint16_t *roles) const {
  Effects effects;
  bool open = false; // whether the last step goes on
  for (int index = extent.first; index <= extent.last; ++index) {
    answerSignals();
    effectsOf(table_, *table_.form(code_.opcode[index]), operandsOf(code_, index), vectors_, everything_, effects);
    const bool alone = roles[index] || effects.writes & execUnits();
    if (alone || !open)
      block.steps.push_back({index, index, roles[index], {}, {}, {}});
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

int AddressPaths::placeOf(int number) const {
  const auto at = std::lower_bound(blocks_.begin(), blocks_.end(), number,
                                   [](const Block &block, int wanted) { return block.number < wanted; });
  if (at == blocks_.end() || at->number != number)
    throw std::invalid_argument("no such block");
  return int(at - blocks_.begin());
}

/// Count a visit; true if there are too many.
bool AddressPaths::isSpent(const Block &block) {
  answerSignals();
  visits += 1 + int64_t(block.steps.size()) / StepsOfVisit;
  return visits > most;
}

// Which instructions can matter

std::vector<int> AddressPaths::relevant(bool called, bool finished) {
  bool any = false;
  for (const Block &block : blocks_)
    for (const Step &step : block.steps)
      any |= step.has(Followed);
  if (!any)
    return {};
  forward();
  for (Block &block : blocks_)
    for (Step &step : block.steps)
      if (step.has(NeedsCounter) && !step.derived)
        step.role &= uint16_t(~Followed);
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
      if (step.has(ReadsCounter))
        work.insert(roots_.begin(), roots_.end());
  while (!work.empty()) {
    const size_t place = size_t(*work.begin());
    work.erase(work.begin());
    Block &block = blocks_[place];
    if (isSpent(block))
      return;
    Units fresh = before[place].fresh, derived = before[place].derived;
    for (Step &step : block.steps) {
      const bool readsFresh(step.reads & fresh), reads(step.reads & derived);
      const Units lost = step.kills & Scalars; // the value in a lane is never assumed to be lost
      fresh -= lost;
      derived -= lost;
      if (step.has(ReadsCounter)) {
        step.fresh = step.derived = true;
        fresh |= step.writes;
        derived |= step.writes;
      } else if (reads && step.has(Followed)) {
        step.derived = true;
        step.fresh |= readsFresh;
        derived |= step.writes;
        if (readsFresh && step.has(Moves))
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

/// Return the scalar units that may get back what they held at the entry: such a value moves through copies.
///
/// EXEC is left out: what a function does to it does not matter (`AddressAnalysis._return_from_call`).
Units AddressPaths::restorable() const {
  struct Copy {
    Units reads, writes;
  };
  std::vector<Copy> copies;
  for (const Block &block : blocks_)
    for (const Step &step : block.steps)
      if (step.has(Followed) && step.has(Copies))
        if (const Units reads = valueReads(step.role, step.reads))
          copies.push_back({reads, step.writes - (reads & execUnits())});
  for (Units around, before; !copies.empty(); before = around) {
    Units read, written;
    for (const Copy &copy : copies) {
      read |= copy.reads;
      written |= copy.writes;
    }
    around = read & written;
    if (around == before)
      return (around & Scalars) - execUnits();
    copies.erase(std::remove_if(copies.begin(), copies.end(),
                                [&](const Copy &copy) { return !(copy.reads & around) || !(copy.writes & around); }),
                 copies.end());
  }
  return {};
}

/// Find the steps that can matter, from what is needed at each point: units whose known values can matter later.
void AddressPaths::backward(bool finished, const Units &restored) {
  const auto isSeed = [&](const Step &step) { return step.has(Followed) && (finished ? step.derived : step.fresh); };
  std::vector<std::vector<int>> predecessors(blocks_.size());
  std::vector<uint8_t> plain(blocks_.size(), 1);
  Work work;
  for (size_t place = 0; place < blocks_.size(); ++place) {
    for (const int successor : blocks_[place].successors)
      predecessors[size_t(successor)].push_back(int(place));
    for (Step &step : blocks_[place].steps) {
      step.relevant = isSeed(step);
      plain[place] &= !step.has(Followed | ByRegister);
    }
    work.insert(work.end(), int(place));
  }
  std::vector<Units> before(blocks_.size());
  while (!work.empty()) {
    const int place = *work.rbegin(); // what comes later first
    work.erase(place);
    Block &block = blocks_[size_t(place)];
    if (isSpent(block))
      return;
    Units needed;
    for (const int successor : block.successors)
      needed |= before[size_t(successor)];
    if (plain[size_t(place)] && !(needed & block.writes & execUnits()))
      needed -= block.writes;
    else
      for (size_t i = block.steps.size(); i-- > 0;) {
        Step &step = block.steps[i];
        // A load to lanes reveals which are active.
        const Units tells = step.writes & Vectors ? step.writes | execUnits() : step.writes;
        // What is known of EXEC outlives most of its writes, and an operation on lanes may leave the others alone.
        if (step.has(ByRegister)) {
          needed = (needed - step.writes) | step.reads;
          if (step.has(MayReturn))
            needed |= restored;
        } else if (step.has(Followed) && (step.relevant || tells & needed)) {
          step.relevant = true;
          needed = (needed - ((step.writes & Scalars) - execUnits())) | valueReads(step.role, step.reads);
        } else if (!step.has(Followed) && step.writes & needed & execUnits()) {
          step.relevant = true;
          needed -= step.writes - execUnits();
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
      const bool alone = followed || step.has(Leaves);
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
  addMeetings();
}

/// Where many blocks have parts and each may come to each other one, there are as many ways as pairs of them. Then ways
/// end where paths meet, too: a search goes through there once for all.
void AddressPaths::addMeetings() {
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
  if (looked * looked <= WaysOfMeeting * (looked + meetings))
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
    if (isSpent(block))
      return false;
    each(place, block);
  }
  return true;
}

std::vector<AddressPaths::Way> AddressPaths::ways(const std::vector<int> &from) {
  std::unordered_map<int, Way> before;
  Work work;
  const auto arrive = [&](int place, const Units &writes, const Units &kills) {
    const auto [at, isNew] = before.try_emplace(place, Way{place, writes, kills});
    Way &way = at->second;
    if (isNew || writes - way.writes || way.kills - kills) {
      way.writes |= writes;
      way.kills &= kills;
      work.insert(place);
    }
  };
  for (const int number : from)
    arrive(placeOf(number), {}, {});
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
  std::sort(result.begin(), result.end(), [](const Way &one, const Way &other) { return one.to < other.to; });
  return result;
}

std::vector<AddressPaths::Use> AddressPaths::uses(const std::vector<int> &from, const Units &held) {
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
    arrive(placeOf(number), held);
  const bool settled = settle(work, [&](int place, const Block &block) {
    for (const int successor : block.successors)
      arrive(successor, before.at(place) - (block.kills & Scalars));
  });
  if (!settled)
    return {};
  std::vector<Use> result;
  for (const auto &[place, units] : before)
    if (const Block &block = blocks_[size_t(place)]; !block.special && block.reads & units)
      for (const Use &use : usesBetween(block.steps.front().first, block.steps.back().last, units))
        result.push_back(use);
  return result;
}

std::vector<AddressPaths::Use> AddressPaths::usesBetween(int first, int last, Units held) const {
  std::vector<Use> result;
  Effects effects;
  for (int index = first; index <= last && held; ++index) {
    answerSignals();
    effectsOf(table_, *table_.form(code_.opcode[index]), operandsOf(code_, index), vectors_, everything_, effects);
    if (const Units units = effects.reads & held)
      result.push_back({index, units});
    held -= effects.kills & Scalars;
  }
  return result;
}

} // namespace luthier::LUTHIER_FLOW
