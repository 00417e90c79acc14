// Search of one function for the targets of register jumps and calls, and for PC-relative addresses: forward, with the
// values that registers may hold.
#pragma once

#include "address_paths.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

namespace luthier::LUTHIER_FLOW {

/// The rest of the object.
struct AddressWorld {
  /// Scalar units that a function may change, by its address; none: an unknown one.
  std::function<Units(std::optional<int64_t>)> clobbers;
  /// The code address that a 64-bit word in memory certainly holds at run time, by the word's address.
  std::function<std::optional<int64_t>(uint64_t)> slot_value;
  /// Address and size of the constant table of code addresses that contains an address.
  std::function<std::optional<std::pair<uint64_t, uint64_t>>(uint64_t)> table;
  std::shared_ptr<const code::TextMap> text;
};

class AddressSearch {
public:
  using Resolution = code::Resolution;
  /// What is found in one function. Instructions are given as addresses.
  struct Result {
    /// By address of the jump or call, in the order in which blocks are found.
    std::vector<std::pair<int64_t, std::shared_ptr<const Resolution>>> resolutions;
    std::set<CounterReference> references;
    std::set<int64_t> computed; ///< s_getpc_b64 whose value is changed in ways other than adding two literals
    std::set<int64_t> escapes;  ///< s_getpc_b64 whose incomplete address has uses that are not followed
    std::set<int64_t> values;   ///< s_getpc_b64 whose complete address has uses other than jumps, such as stores
    Units clobbers;             ///< scalar units that may not hold their entry value when the function returns
    std::set<std::optional<int64_t>> asked; ///< functions whose `AddressWorld::clobbers` the result depends on
    int64_t spent = 0; ///< units of luthier.lifting.code.effort; more than were left if the rest is not complete
  };

  AddressSearch(const EffectTable &table, const AddressCode &code, const Units &vectors, const Units &everything,
                const code::Blocks &blocks, std::vector<int64_t> filled, AddressWorld world)
      : table_(table), code_(code), vectors_(vectors), everything_(everything), blocks_(blocks),
        operations_(table, code, std::move(filled)), world_(std::move(world)) {}

  const EffectTable &table() const { return table_; }
  const AddressCode &code() const { return code_; }
  const code::Blocks &blocks() const { return blocks_; }

  /// Analyse the function that is entered at the blocks `roots`, with its return address in the pairs `links`.
  ///
  /// @param left units of effort that it may spend
  /// @param followed instructions to follow in place of those that can matter
  Result run(const std::vector<int> &roots, const std::vector<int> &links, int64_t left,
             const std::vector<int> *followed);

private:
  using States = std::unordered_map<int, AddressState>;
  using Work = std::set<int>;

  void analyse(const std::vector<int> &roots, const std::vector<int> &links, const std::vector<int> *followed,
               bool finished);
  std::vector<int> successors(int block) const;
  std::vector<AddressPaths::Way> ways(const std::vector<int> &from);
  void go_on(const std::vector<AddressPaths::Way> &ways, const AddressState &after, Work &work);
  AddressState &before(int block);
  void apply(int index, AddressState &state, Notes *notes) const;
  void return_from_call(int block, AddressState &state);
  const Units &clobbers(std::optional<int64_t> function);
  void collect(const std::vector<int> &links);
  void leave(int block, int index, const AddressState &state, const std::vector<int> &links, Notes &notes);
  Resolution resolve(int index, const AddressState &state, const std::vector<int> &links, bool may_return) const;
  std::vector<std::optional<uint64_t>> candidates(const Value &low, const std::vector<Value> &high,
                                                  Resolution &resolution, std::set<int64_t> &kept,
                                                  std::map<int64_t, std::set<uint64_t>> &slots) const;
  std::vector<uint64_t> words(const Value &value) const;
  void note(const std::vector<AddressPaths::Use> &uses, const AddressState &state, Notes &notes) const;
  void spend(int64_t units);
  void spend_visits();

  const EffectTable &table_;
  const AddressCode code_;
  const Units vectors_, everything_;
  const code::Blocks &blocks_;
  const AddressOperations operations_;
  const AddressWorld world_;
  // Of the function that `run` analyses:
  std::map<std::optional<int64_t>, Units> clobbers_;
  std::unique_ptr<AddressPaths> paths_;
  std::vector<int> special_;
  std::unordered_map<int, std::vector<AddressPaths::Way>> ways_;
  States states_;
  Result result_;
  int64_t left_ = 0;
};

} // namespace luthier::LUTHIER_FLOW
