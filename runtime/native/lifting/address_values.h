// What registers may hold in the search for addresses: the parts from which addresses are computed.
//
// Offsets are kept apart from the program counter to which they are added, since the carry from the low to the high
// half depends on the load address. Instructions are identified by their addresses, so that results hold for every
// kernel of the object.
#pragma once

#include "units.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

namespace luthier::LUTHIER_FLOW {

/// One value that a 32-bit register may have. A member that its kind does not name is zero.
struct Value {
  enum class Kind : uint8_t {
    kEntry,       ///< what unit `offset` held at the function's entry
    kConst,       ///< the constant `offset`
    kLow,         ///< low half of the counter that the s_getpc_b64 at `getpc` reads, plus `offset` of 32 bits
    kHigh,        ///< high half of that counter plus `offset` of 64 bits
    kSlot,        ///< `half` of the 64-bit word in memory at that counter plus `offset`
    kHalf,        ///< `half` of an address in the data object at that counter plus `offset`
    kElement,     ///< `half` of a 64-bit word of that data object
    kCarry,       ///< SCC after `place` added `amount` to a kLow with `offset`, or subtracted it
    kLaneElement, ///< a kElement in each lane that was active when the load at `place` last ran
    kWithin       ///< a mask of lanes that were all active when each of `loads` last ran
  };
  Kind kind = Kind::kConst;
  uint8_t half = 0;
  bool literal = false, subtract = false; ///< of kCarry: `amount` is an immediate that alone decides the sum
  int64_t getpc = 0;
  uint64_t offset = 0, amount = 0;
  int64_t place = 0;
  std::vector<int64_t> loads = {}; ///< ascending

  auto members() const { return std::tie(kind, half, literal, subtract, getpc, offset, amount, place, loads); }
  bool operator==(const Value &other) const { return members() == other.members(); }
  bool operator<(const Value &other) const { return members() < other.members(); }
};

/// Ascending values, at least one; null if they are unknown. Never changed, so states share them.
using Values = std::shared_ptr<const std::vector<Value>>;

constexpr size_t kMostValues = 256; ///< of one register, and loads of one value
constexpr size_t kMostPairs = 4096; ///< of values of two registers that an operation looks at

/// Return these values, null if there are more than `kMostValues`.
Values values_of(std::vector<Value> values);
bool same(const Values &left, const Values &right);
/// Return the value where there is exactly one, otherwise null.
inline const Value *only(const Values &values) { return values && values->size() == 1 ? values->data() : nullptr; }

/// A register unit, or a lane of a VGPR that holds a scalar.
struct AddressKey {
  int unit;
  int lane = -1;
  bool operator==(const AddressKey &other) const { return unit == other.unit && lane == other.lane; }
  bool operator<(const AddressKey &other) const { return std::tie(unit, lane) < std::tie(other.unit, other.lane); }
  bool is_scalar() const { return lane < 0 && unit < Vgpr; }
};

/// An s_getpc_b64 whose counter may be in a register, and whether an offset was added to it.
using Taint = std::pair<int64_t, bool>;
using Taints = std::vector<Taint>; ///< ascending
void unite(Taints &into, const Taints &more);

/// Few entries by ascending key, which are copied much more often than they are searched.
template <typename Content> class SmallMap {
public:
  using Entries = std::vector<std::pair<AddressKey, Content>>;

  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  /// Return the first entry whose key is not below this one.
  auto lower_bound(const AddressKey &key) const {
    return std::lower_bound(entries_.begin(), entries_.end(), key,
                            [](const auto &entry, const AddressKey &wanted) { return entry.first < wanted; });
  }
  /// Return the content of a key, null if there is none.
  const Content *find(const AddressKey &key) const {
    const auto at = lower_bound(key);
    return at != entries_.end() && at->first == key ? &at->second : nullptr;
  }
  void set(const AddressKey &key, Content content) {
    const auto at = entries_.begin() + (lower_bound(key) - entries_.begin());
    if (at != entries_.end() && at->first == key)
      at->second = std::move(content);
    else
      entries_.emplace(at, key, std::move(content));
  }
  /// Remove the entries whose key passes a test.
  template <typename Test> void remove(Test test) {
    entries_.erase(
        std::remove_if(entries_.begin(), entries_.end(), [&](const auto &entry) { return test(entry.first); }),
        entries_.end());
  }

private:
  Entries entries_;
};

/// What is known at one point.
class AddressState {
public:
  /// A scalar unit that was not changed holds its entry value; a lane or vector unit is unknown until it is set.
  Values operator[](AddressKey key) const;
  /// Set what a unit holds, null if it is unknown. A negative unit, such as that of SGPR_NULL, holds nothing.
  void set(AddressKey key, Values values);
  bool has(AddressKey key) const { return values_.find(key); }
  void taint(AddressKey key, Taints taints);
  /// Merge `other`, and return whether this changed.
  bool join(const AddressState &other);
  /// Make units, and the lanes of vector units, unknown.
  void forget(const Units &units);
  /// Forget units, and the counters in scalar units that are completely replaced.
  void overwrite(const Units &units, Units replaced);
  /// Return the counters that may be in these units.
  Taints tainted(const Units &units) const;
  /// Return the counters that may be in one lane.
  const Taints *taints(AddressKey key) const;
  /// Return the scalar units that may not hold their entry value.
  Units changed() const;
  /// Return the number of values, their loads, and counters.
  size_t size() const;
  const SmallMap<Values> &values() const { return values_; }
  const Units &tainted_units() const { return tainted_units_; }

private:
  SmallMap<Values> values_;
  Units unknown_;              ///< scalar
  SmallMap<Taints> taints_;    ///< counters are never dropped where paths join, even if the value is unknown
  Units held_, tainted_units_; ///< units that have or had a key in `values_`, and in `taints_`
};

} // namespace luthier::LUTHIER_FLOW
