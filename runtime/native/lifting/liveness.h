// Register liveness that is correct for divergent code; luthier/lifting/liveness.py explains it.
#pragma once

#include "written.h"

namespace luthier::LUTHIER_FLOW {

/// Units live for lanes that are active at a point, and for those that are inactive.
struct Live {
  Units active, inactive;
  bool operator!=(const Live &other) const { return active != other.active || inactive != other.inactive; }
};

/// Transfer from liveness after a call to liveness before it: `active = active_active & behind.active | active_inactive
/// & behind.inactive | gain_active`, the other likewise.
struct Transfer {
  Units active_active, active_inactive, inactive_active, inactive_inactive;
  Units gain_active, gain_inactive;

  Transfer &operator|=(const Transfer &other); ///< either of two ways
};

class Liveness {
public:
  /// @param touched units that inserted code reads or writes
  Liveness(const Program &program, const Segments &segments, const LaneFlow &flow, const Units &touched);

  /// Return the liveness before each instruction of the block and after the last.
  std::vector<Live> points(int block) const;
  /// Return the first of these points.
  Live at_start(int block) const;

private:
  /// Live units of each group; in three sets where functions are summarised: the constant part, then bits that are set
  /// if they are live after the return, in active and in inactive lanes.
  template <int Sets> using ByGroup = std::vector<Bits<Sets>>;
  template <int Sets> using ByBlock = std::vector<ByGroup<Sets>>;

  template <int Sets> ByBlock<Sets> nothing_live() const;
  template <int Sets> void behind(int block, const ByBlock<Sets> &in, ByGroup<Sets> &live) const;
  template <int Sets> void before_call(int block, ByGroup<Sets> &live) const;
  template <int Sets> void start(int block, ByGroup<Sets> &live) const;
  void summarise();
  void solve();
  Live merged(int block, const ByGroup<1> &behind) const;
  Live public_at(const SegmentLanes &lanes, const ByGroup<1> &live, const Filled &filled, Groups never) const;

  const Program &program_;
  const Segments &segments_;
  const LaneFlow &flow_;
  const Written written_;
  Transfer unknown_;
  std::vector<Transfer> summary_; ///< by function
  std::vector<Live> return_;      ///< what is live where each function returns to
  ByBlock<1> in_;                 ///< at the start of each block
};

} // namespace luthier::LUTHIER_FLOW
