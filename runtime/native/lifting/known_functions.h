// What is known of the functions that a kernel calls, and of where their register jumps and calls lead.
#pragma once

#include "address_search.h"

#include <list>
#include <mutex>
#include <string_view>

namespace luthier::LUTHIER_FLOW {

/// Results of functions of one text, for the next kernel that calls them: the latest used ones.
class SearchCache {
public:
  using Result = std::shared_ptr<const AddressSearch::Result>;

  explicit SearchCache(size_t most) : most_(most) {}
  /// Return the result that was put there last, null if there is none any more.
  Result use(const std::string &key);
  void put(const std::string &key, Result result);
  size_t size() const {
    std::lock_guard lock(lock_);
    return latest_.size();
  }

private:
  using Latest = std::list<std::pair<std::string, Result>>;

  mutable std::mutex lock_;
  const size_t most_;
  Latest latest_; ///< the latest used one first
  std::unordered_map<std::string_view, Latest::iterator> by_key_;
};

class KnownFunctions {
public:
  /// Reason and further targets of an incompletely known jump or call, by instruction and reason.
  using Pointed = std::function<std::optional<std::pair<std::string, std::vector<uint64_t>>>(int, const std::string &)>;
  using Result = AddressSearch::Result;

  /// @param entries of the kernel, where it is entered by the hardware; its address first
  KnownFunctions(std::shared_ptr<SearchCache> cache, std::vector<int64_t> entries)
      : cache_(std::move(cache)), entries_(std::move(entries)) {}

  /// What an analysis asks, and where it explores.
  struct Around {
    code::Explorer &explorer;
    const code::Explorer::Decode &decode;
    const Pointed &pointed;
    const std::vector<int> *followed; ///< as in `AddressSearch::run`
    Units vectors;                    ///< that instructions with computed register numbers may access; none without
    int64_t left;                     ///< units of effort
  };
  struct Work {
    bool changed = false; ///< whether any result
    int64_t spent = 0;    ///< units of effort; more than were left if the rest was not done
    int64_t searches = 0; ///< functions that were not in the cache
  };
  /// Analyse functions, and explore the targets of their jumps and calls.
  ///
  /// @param functions their addresses
  /// @param alone whether the blocks are of these functions and those that they call directly
  /// @param work counts what is done, also if this throws
  /// @throws Problem as `Explorer::reach`
  void analyse(AddressSearch &search, const std::vector<int64_t> &functions, bool alone, const Around &around,
               Work &work);

  /// Return the scalar units that a function may change. One that has not been analysed yet counts as one that never
  /// returns: the result only ever grows.
  Units clobbers(std::optional<int64_t> function) const;

  std::unordered_map<int64_t, std::shared_ptr<const Result>> results; ///< by address of the function
  code::Resolutions resolutions;

private:
  std::shared_ptr<const Result> result_of(int64_t entry, AddressSearch &search, const Around &around, Work &work) const;
  void follow(int64_t address, const AddressSearch &search, const Around &around);

  const std::shared_ptr<SearchCache> cache_;
  const std::vector<int64_t> entries_;
  std::set<int64_t> alone_; ///< addresses of the jumps and calls that were resolved in a function analysed alone
};

} // namespace luthier::LUTHIER_FLOW
