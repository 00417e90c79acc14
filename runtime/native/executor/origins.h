// Where undefined values of memory come from: memory that was never written, and the stores that copied such values.
//
// Compiled code reports loads and stores of undefined values alone. For each wave this records which loads have met
// some, and for each dword that holds a copy which store made it. Which of a wave's loads a store or a decision uses is
// not recorded: luthier.emulator.inspection.value_sources finds that in the code.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "observer.h"
#include "wire.h"

namespace luthier {

class Origins {
public:
  // A load that met undefined values.
  struct Source {
    uint64_t kernel = 0; // number of its plan
    uint32_t record = 0;
    uint32_t store = 0; // that wrote them, by its number; 0: none, they were never written
    uint64_t space = wire::kOriginMemory;
    uint64_t address = 0;                          // of the first value of these
    uint64_t allocation = 0, base = 0, extent = 0; // of memory that was never written; 0: unknown
  };
  // A store of undefined values, and the loads of its wave before it.
  struct Store {
    uint64_t kernel = 0; // number of its plan
    uint32_t record = 0;
    uint64_t space = wire::kOriginMemory;
    uint64_t launch = 0; // the first one
    uint32_t sources = 0;
    unsigned depth = 0; // stores in the longest chain that ends with it
  };

  static Origins &get();
  // Note what a layout::decided of that kind describes.
  void loaded(const Observer::Instruction &instruction, const char *moved, uint64_t kernel);
  void stored(const Observer::Instruction &instruction, const char *moved, uint64_t kernel, uint64_t launch);
  // Memory counts as never written.
  void fresh(uint64_t address, uint64_t size);

  // Return the number of the store that wrote the undefined values at an address; 0: none.
  uint32_t store_at(uint64_t address);
  Store store(uint32_t number);
  // Return the loads of a set, which `layout::wave::origins` numbers; and whether these are all.
  std::pair<std::vector<Source>, bool> sources(uint32_t set);

private:
  using Key = std::tuple<uint64_t, uint32_t, uint32_t, uint64_t, uint64_t>; // as in `Source`, without addresses

  char *number_of(uint64_t address) const { return base_ + (address & layout::UNDEFINED_MASK & ~uint64_t{3}); }
  uint32_t number_at(uint64_t address) const;
  // Return a set with one more source.
  uint32_t with(uint32_t set, uint32_t source);
  // Return the number of a source; 0 if there is no room for another one.
  uint32_t intern(const Source &source);

  std::mutex mutex_;
  std::atomic<char *> base_{nullptr}; // numbers of stores, by address; null: no store was met
  bool failed_ = false;               // there are no addresses for them
  std::vector<Source> sources_{{}};   // the first one stands for those that have no room
  std::map<Key, uint32_t> source_numbers_;
  std::vector<std::vector<uint32_t>> sets_{{}, {0}}; // numbers of sources, ascending
  std::map<std::vector<uint32_t>, uint32_t> set_numbers_{{{}, 0}, {{0}, 1}};
  std::vector<Store> stores_{{}};
  std::map<std::tuple<uint64_t, uint32_t, uint32_t>, uint32_t> store_numbers_; // by kernel, record and sources
};

} // namespace luthier
