// Vector registers with defined contents: those that the launch sets, and those that code on the path may have written.
//
// Other registers have remains of earlier waves. They are preserved only if a change can be observed: if they are
// stored, or if inserted code reads them. The same applies to lanes that were not launched, for all registers except
// those that the program writes in such lanes, which takes an EXEC with more lanes than at launch, `v_writelane`, or a
// matrix operation.
#pragma once

#include "lane_flow.h"

namespace luthier::LUTHIER_FLOW {

/// Vector units that may have defined contents.
struct Filled {
  Units anywhere;   ///< in some lane
  Units unlaunched; ///< in a lane that was not launched

  bool operator!=(const Filled &other) const { return anywhere != other.anywhere || unlaunched != other.unlaunched; }
  Filled &operator|=(const Filled &other) {
    anywhere |= other.anywhere;
    unlaunched |= other.unlaunched;
    return *this;
  }
};

class Written {
public:
  /// @param touched units that inserted code reads or writes
  Written(const Program &program, const Segments &segments, const LaneFlow &flow, const Units &touched);

  std::vector<Filled> before; ///< by block: units that may be defined at its start

  /// Return the groups whose lanes were certainly not launched.
  Groups never(int block, const SegmentLanes &lanes) const;
  /// Return the units that may be defined before each instruction of a block and after the last.
  ///
  /// @param effects of these instructions
  std::vector<Filled> inside(int block, const std::vector<Effects> &effects) const;

private:
  bool launched(int block, const SegmentLanes &lanes) const;
  bool all(int block, const std::vector<uint8_t> &functions) const;
  Filled through_call(const Call &call) const;
  void look_at_callers();
  Filled fill_of(int block) const;
  void summarise();
  std::vector<Filled> solve(const Units &at_launch) const;
  Units stored_unwritten() const;

  const Program &program_;
  const Segments &segments_;
  const LaneFlow &flow_;
  bool unknown_calls_;
  std::vector<uint8_t> entered_inside_; ///< whether a function is only called with lanes that were launched
  std::vector<uint8_t> entered_full_;   ///< whether a function is only called with all lanes that were launched
  std::vector<Filled> fills_;           ///< by block, without what it calls
  std::vector<Filled> of_functions_;    ///< with all they call
};

} // namespace luthier::LUTHIER_FLOW
