#include "known_functions.h"

namespace luthier::LUTHIER_FLOW {
namespace {

constexpr int64_t kMembersOfUnit = 4; // blocks of a function that is analysed, per unit of effort

/// Return the blocks, by number, with an instruction that reads the program counter or jumps by register.
std::vector<uint8_t> with_addresses(const AddressSearch &search) {
  std::vector<uint8_t> result;
  for (const code::Block &block : search.blocks().all) {
    uint16_t roles = 0;
    for (int index = block.first; index <= block.last; ++index)
      roles |= search.code().role(index);
    result.push_back(roles & (kReadsCounter | kByRegister) ? 1 : 0);
  }
  return result;
}

/// What the analysis of a function depends on.
class Words {
public:
  template <typename Numbers> void add(const Numbers &numbers) {
    words_.push_back(int64_t(numbers.size()));
    words_.insert(words_.end(), numbers.begin(), numbers.end());
  }
  void add(const code::Blocks &blocks, const std::vector<int> &members) {
    words_.push_back(int64_t(members.size()));
    for (const int member : members) {
      const code::Block &block = blocks.all[size_t(member)];
      const code::Blocks::Jump *jump = blocks.jump_of(member);
      words_.insert(words_.end(), {block.address, block.last_address, int64_t(block.successors.size())});
      for (const code::Block::Edge &edge : block.successors)
        words_.push_back(blocks.all[size_t(edge.to)].address);
      words_.push_back(jump != nullptr);
      if (jump) {
        const bool leaves = block.exit == code::Exit::kCall || block.exit == code::Exit::kTail;
        words_.push_back(leaves ? int64_t(block.exit) : -1);
        add(jump->targets);
        words_.push_back(block.exit == code::Exit::kCall && jump->is_incomplete());
      }
    }
  }
  std::string bytes() const { return {reinterpret_cast<const char *>(words_.data()), words_.size() * sizeof(int64_t)}; }

private:
  std::vector<int64_t> words_;
};

/// Return what is known of a jump or call, with the functions that pointers lead to if they are followed from there.
std::shared_ptr<const code::Resolution> with_pointed(const std::shared_ptr<const code::Resolution> &known, int index,
                                                     const KnownFunctions::Pointed &pointed) {
  const auto more = known->reason.empty() ? std::nullopt : pointed(index, known->reason);
  if (!more)
    return known;
  auto result = std::make_shared<code::Resolution>(*known);
  result->reason = more->first;
  result->targets.insert(more->second.begin(), more->second.end());
  return result;
}

} // namespace

SearchCache::Result SearchCache::use(const std::string &key) {
  const std::lock_guard guard(lock_);
  const auto at = by_key_.find(key);
  if (at == by_key_.end())
    return nullptr;
  latest_.splice(latest_.begin(), latest_, at->second);
  return at->second->second;
}

void SearchCache::put(const std::string &key, Result result) {
  const std::lock_guard guard(lock_);
  if (by_key_.count(key)) // another thread has put an equal one
    return;
  latest_.emplace_front(key, std::move(result));
  by_key_.emplace(latest_.front().first, latest_.begin());
  if (latest_.size() > most_) {
    by_key_.erase(latest_.back().first);
    latest_.pop_back();
  }
}

Units KnownFunctions::clobbers(std::optional<int64_t> function) const {
  if (!function)
    return kScalars;
  const auto at = results.find(*function);
  return at == results.end() ? Units() : at->second->clobbers;
}

void KnownFunctions::analyse(AddressSearch &search, const std::vector<int64_t> &functions, bool alone,
                             const Around &around, Work &work) {
  // A new function returns, so nearly all of them have such instructions.
  const std::vector<uint8_t> matter = alone ? std::vector<uint8_t>() : with_addresses(search);
  for (const int64_t entry : functions) {
    const std::vector<int> &members = search.blocks().function_at(entry).members;
    const auto matters = [&](int member) { return matter[size_t(member)]; };
    if (!alone && std::none_of(members.begin(), members.end(), matters))
      continue;
    work.spent += 1 + int64_t(members.size()) / kMembersOfUnit;
    if (work.spent > around.left)
      return;
    const Units before = clobbers(entry);
    const std::shared_ptr<const Result> result = result_of(entry, search, around, work);
    if (work.spent > around.left)
      return;
    results[entry] = result;
    work.changed |= result->clobbers != before;
    for (const auto &[address, known] : result->resolutions) {
      const int index = search.blocks().all[size_t(search.blocks().block_of_jump(address))].last;
      const auto resolution = with_pointed(known, index, around.pointed);
      std::shared_ptr<const code::Resolution> &current = resolutions[address];
      const bool differs = !current || (current != resolution && !(*current == *resolution));
      if (differs)
        current = resolution;
      work.changed |= differs;
      if (differs || alone_.count(address)) // other functions may contain it, too
        follow(address, search, around);
      if (alone)
        alone_.insert(address);
      else
        alone_.erase(address);
    }
  }
}

/// Return the analysis of one function; that of an earlier round or kernel is used again if the blocks are equal.
std::shared_ptr<const KnownFunctions::Result> KnownFunctions::result_of(int64_t entry, AddressSearch &search,
                                                                        const Around &around, Work &work) const {
  const code::Blocks &blocks = search.blocks();
  const std::vector<int> &members = blocks.function_at(entry).members;
  const std::vector<int64_t> starts = entry == entries_.front() ? entries_ : std::vector{entry};
  const std::set<int> &all_links = around.explorer.function_at(entry).links;
  const std::vector<int> links(all_links.begin(), all_links.end());
  std::set<int64_t> callees;
  for (const int member : members)
    if (const code::Blocks::Jump *jump = blocks.jump_of(member))
      callees.insert(jump->targets.begin(), jump->targets.end());
  Words words;
  words.add(starts);
  words.add(links);
  words.add(around.vectors.word);
  words.add(callees);
  for (const int64_t callee : callees)
    words.add(clobbers(callee).word);
  words.add(blocks, members);
  const std::string key = words.bytes();
  if (std::shared_ptr<const Result> known = cache_->use(key))
    return known;
  std::vector<int> roots;
  roots.reserve(starts.size());
  for (const int64_t start : starts)
    roots.push_back(blocks.at(start));
  auto result = std::make_shared<const Result>(search.run(roots, links, around.left - work.spent, around.followed));
  work.spent += result->spent;
  ++work.searches;
  const auto is_callee = [&](std::optional<int64_t> function) { return !function || callees.count(*function); };
  // Otherwise it depends on more than the key.
  if (work.spent <= around.left && std::all_of(result->asked.begin(), result->asked.end(), is_callee))
    cache_->put(key, result);
  return result;
}

/// Explore the targets of an indirect jump or call.
void KnownFunctions::follow(int64_t address, const AddressSearch &search, const Around &around) {
  code::Explorer &explorer = around.explorer;
  const code::Explorer::Decode &decode = around.decode;
  const code::Blocks &blocks = search.blocks();
  const int number = blocks.block_of_jump(address);
  const code::Block &block = blocks.all[size_t(number)];
  const std::shared_ptr<const code::Resolution> resolution = resolutions.at(address);
  for (const uint64_t to : resolution->targets) {
    const auto target = int64_t(to);
    if (block.exit == code::Exit::kCall) {
      const Operands operands = operands_of(search.code().code, block.last);
      explorer.add_function(target, explorer.link_of(operands.count ? operands.reg(0) : 0), address, decode);
    } else if (explorer.leaves_function(address, target)) {
      // A tail call: the callee returns with the caller's own return address.
      for (const auto &[entry, members] : blocks.functions)
        if (std::binary_search(members.begin(), members.end(), number)) {
          const std::set<int> links = explorer.function_at(entry).links;
          explorer.add_function(target, std::nullopt, address, decode);
          for (const int link : links)
            explorer.add_function(target, link, address, decode);
        }
    } else {
      explorer.reach(target, address, decode);
    }
  }
}

} // namespace luthier::LUTHIER_FLOW
