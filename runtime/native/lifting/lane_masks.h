// Knowledge about lane masks at a point: groups of lanes, and the groups in each mask.
//
// The lanes of a wave are divided into a few groups. Each is either active or inactive as a whole, and of each mask in
// scalar registers it is known whether it holds all lanes of a group, none of them, or perhaps some. When EXEC is given
// a mask that may hold some, that group is split in two, and with it what is known of the masks it was computed from:
// behind `s_and_saveexec_b64 s[2:3], vcc` there is a group that is active, in VCC and in s[2:3], and one that is
// inactive, not in VCC, and in s[2:3]. So `s_or_b64 exec, exec, s[2:3]` is seen to bring back the lanes that were
// active before and no others, and the same goes for loops (`s_or` gathers the lanes that have left, `s_andn2` takes
// them out of EXEC) and for the other arm of a branch.
//
// A group is a name for lanes on the path of a wave through the code; it does not exist in the machine. Where paths
// join, any group of one path may be identified with any group of the other that is equally active. The choice affects
// how much knowledge is kept, not correctness.
#pragma once

#include "units.h"

#include <optional>
#include <vector>

namespace luthier::LUTHIER_FLOW {

/// A bit set of groups.
using Groups = uint32_t;

/// The groups a mask certainly holds whole, and those it may hold lanes of.
struct Mask {
  Groups certain = 0, possible = 0;
  bool operator==(const Mask &other) const { return certain == other.certain && possible == other.possible; }
};

/// A scalar register unit, or a lane of a VGPR that a scalar was put into.
using Key = int32_t;
constexpr Key lane_key(int unit, int lane) { return kSetUnits + unit * 64 + lane; }
constexpr bool is_lane(Key key) { return key >= kSetUnits; }
constexpr int unit_of(Key key) { return is_lane(key) ? (key - kSetUnits) / 64 : key; }

/// Contents of a 32-bit register: half 0 or 1 of a mask, or `kEitherHalf` for constants.
struct Held {
  uint8_t half;
  Mask mask;
  bool operator==(const Held &other) const { return half == other.half && mask == other.mask; }
};
constexpr uint8_t kEitherHalf = 2;

/// Sources of mask operations besides register units.
constexpr int kExecSource = ExecLo, kZero = -1, kOnes = -2, kUnknown = -3;

constexpr int kMostGroups = 10; ///< above this, the groups that differ least are taken together
constexpr int kMostJoined = 6;  ///< groups up to which a join makes a new one rather than forget something
constexpr int kGroupOutside = 0,
              kGroupOwn = 1; ///< where a function is entered: lanes that are not active, and that are

/// Relation of an operation's result to an operand: groups that may have lanes where the result is set and the operand
/// clear, both are set, the result is clear and the operand clear, the result clear and the operand set.
using Relation = std::array<Groups, 4>;

struct Learnt {
  int unit;
  Relation relation;
};

/// Unit whose value at the function's entry a register has.
class Origins {
public:
  static constexpr int16_t kNone = -1, kOwn = -2;
  Origins() : scalars_(Vgpr, kOwn) {}
  bool operator==(const Origins &other) const { return scalars_ == other.scalars_ && lanes_ == other.lanes_; }
  /// The unit, -1 where it is that of none.
  int of(Key key) const;
  void set(Key key, int origin);
  void forget(const Units &writes);
  /// Keep what both agree on; return whether that changed anything.
  bool join(const Origins &other);
  /// Scalar units that may not hold their own.
  Units changed() const;

private:
  std::vector<int16_t> scalars_;               ///< by unit; on the heap, because most kernels do not need it
  std::vector<std::pair<Key, int16_t>> lanes_; ///< ascending; those that are missing have none
};

class LaneMasks {
public:
  bool operator==(const LaneMasks &other) const { return includes(other) && held_.size() == other.held_.size(); }

  /// @param wide masks have 64 bits, in two registers
  /// @param moved follow `origins`
  LaneMasks(bool wide, bool moved);

  /// A state without groups, to `join` others to: `like` first, which makes the groups. Something is to be known of the
  /// units in `keep` only.
  static LaneMasks nowhere(const LaneMasks &like, const Units &keep);

  int count = 2;                            ///< groups, numbered from 0
  Groups on = 1 << kGroupOwn;               ///< those that are active
  Mask own{1 << kGroupOwn, 1 << kGroupOwn}; ///< what EXEC was when the function was entered
  std::optional<Origins> origins;

  Groups everything() const { return (Groups(1) << count) - 1; }
  /// Return what is known of a whole mask: in a unit, or a pair of units beginning there.
  Mask mask(int source) const;
  /// Return what is known of one 32-bit register or constant.
  std::optional<Held> half(int source) const;
  std::optional<Held> held(Key key) const;
  int origin(Key key) const { return origins ? origins->of(key) : is_lane(key) ? -1 : key; }

  /// Note that a unit, or a pair, now has a mask.
  void put(int unit, const Mask &mask);
  /// Note that these units have unknown contents.
  void forget(const Units &writes);
  /// Note the contents of one register; `origin` is that of the same value before.
  void set(Key key, const std::optional<Held> &held, int origin);

  /// Give EXEC a new value: for each group before, the groups its lanes are in afterwards.
  std::vector<Groups> change_exec(const Mask &mask, const std::vector<Learnt> &learnt = {});
  /// Merge groups that nothing distinguishes, then those with the least difference until there are `kMostGroups`;
  /// `spread` then refers to the new ones.
  void compact(std::vector<Groups> &spread);
  /// Make this state hold also where control comes with `other`, where groups in `vacant` have no lanes.
  ///
  /// @param into the group here of each group of `other`, -1 for vacant ones
  /// @return whether anything changed
  bool join(const LaneMasks &other, Groups vacant, std::vector<int> &into);

private:
  struct Entry {
    Key key;
    Held held;
  };
  class Signatures;

  bool includes(const LaneMasks &other) const;
  bool join_halves(const LaneMasks &other);
  void store(Key key, const Held &held);
  void renumber(const std::vector<int> &to, int groups);
  template <typename Change> void rewrite(Change change);

  bool wide_;
  std::vector<Entry> held_; ///< ascending; registers that are missing may hold anything
};

/// A bitwise operation on masks. Bit `2 * a + b` of the truth table is the result for operand bits a and b.
///
/// @param about what the result tells of each operand
Mask evaluate(int table, const Mask &left, const Mask &right, Groups everything, std::array<Relation, 2> &about);

/// Calls `visit` with each member.
template <typename Visit> void each_group(Groups groups, Visit visit) {
  for (; groups; groups &= groups - 1)
    visit(__builtin_ctz(groups));
}

} // namespace luthier::LUTHIER_FLOW
