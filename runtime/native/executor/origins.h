// Where values in memory come from, of a kind that is followed: undefined values, or NaN. Undefined values come from
// memory that was never written, NaN from operations; stores copy both.
//
// Compiled code reports loads and stores of undefined values alone; and once there is NaN, all accesses. For each wave
// this records which loads have met such values, and for each dword that holds a copy which store made it. Which of a
// wave's loads a store or a decision uses is not recorded: luthier.emulator.inspection.value_sources finds that in the
// code.
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
  // A load that met such values, or an operation that made one.
  struct Source {
    uint64_t kernel = 0; // number of its plan
    uint32_t record = 0;
    uint32_t store = 0; // that wrote them, by its number; 0: none, they were never written
    uint64_t space = wire::kOriginMemory;
    uint64_t address = 0;                          // of the first value of these
    uint64_t allocation = 0, base = 0, extent = 0; // of memory that was never written; 0: unknown
  };
  // A store of such values, and the loads and operations of its wave before it.
  struct Store {
    uint64_t kernel = 0; // number of its plan
    uint32_t record = 0;
    uint64_t space = wire::kOriginMemory;
    uint64_t launch = 0; // the first one
    uint32_t sources = 0;
    unsigned depth = 0; // stores in the longest chain that ends with it
  };

  // Return the origins of undefined values, and of NaN.
  static Origins &undefined();
  static Origins &nans();
  // Note what a layout::decided of that kind describes.
  void loaded(const Observer::Instruction &instruction, const char *moved, uint64_t kernel);
  void stored(const Observer::Instruction &instruction, const char *moved, uint64_t kernel, uint64_t launch);
  // Note that an operation of a wave makes such a value.
  void made(const Observer::Instruction &instruction, uint64_t kernel);
  // Note an access of a wave that may have NaN: a layout::access, and the uses of its instruction (layout::USE_READS).
  void accessed(const Observer::Instruction &instruction, const char *access, unsigned uses, uint64_t kernel,
                uint64_t launch);
  // No store is known for this memory from now on, or for any.
  void fresh(uint64_t address, uint64_t size);
  void forget();
  // Return the address of a number that is not 0 after an operation has made a value.
  uint64_t following() const { return reinterpret_cast<uint64_t>(&following_); }

  // Return the number of the store that wrote the values at an address; 0: none.
  uint32_t store_at(uint64_t address);
  Store store(uint32_t number);
  // Return the loads and operations of a set, which a field of a wave numbers; and whether these are all.
  std::pair<std::vector<Source>, bool> sources(uint32_t set);

private:
  using Key = std::tuple<uint64_t, uint32_t, uint32_t, uint64_t, uint64_t>; // as in `Source`, without addresses

  Origins(layout::Field set, uint64_t base) : set_(set), wanted_base_(base) {}
  // Have memory for the numbers of stores; return false if there are no addresses.
  bool reserve();
  // Return the number of the store of a wave that has met or made such values.
  uint32_t store_number(const Observer::Instruction &instruction, uint64_t kernel, uint64_t launch, uint64_t address);
  void meet(char *wave, const Source &source);

  char *number_of(uint64_t address) const { return base_ + (address & layout::UNDEFINED_MASK & ~uint64_t{3}); }
  uint32_t number_at(uint64_t address) const;
  // Return a set with one more source.
  uint32_t with(uint32_t set, uint32_t source);
  // Return the number of a source; 0 if there is no room for another one.
  uint32_t intern(const Source &source);

  const layout::Field set_;
  const uint64_t wanted_base_;
  std::atomic<uint32_t> following_{0};
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
