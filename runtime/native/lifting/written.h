// Vector registers that hold anything: those the launch sets, and those that code on the path here may have written.
//
// Other registers that a kernel reads hold remains of earlier waves. Even so they are left unchanged where that can be
// observed from outside: if they are stored, or if inserted code reads them. Even so they are left alone where that can
// be seen from outside: if they are stored, or if inserted code reads them. The same goes for lanes that were not
// launched, of all registers but those the program writes in such lanes, which takes an EXEC with more lanes than the
// wave began with, `v_writelane`, or a matrix operation.
#pragma once

#include "lane_flow.h"

namespace luthier::LUTHIER_FLOW {

/// Vector units that may hold something.
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

  std::vector<Filled> before; ///< by block: what may hold something at its start

  /// Groups whose lanes were certainly not launched.
  Groups never(int block, const SegmentLanes &lanes) const;
  /// Return what may hold something before each instruction of a block and after the last.
  ///
  /// @param effects of these instructions
  std::vector<Filled> inside(int block, const std::vector<Effects> &effects) const;

private:
  bool launched(int block, const SegmentLanes &lanes) const;
  bool all(int block, const std::vector<uint8_t> &functions) const;
  Filled throughCall(const Call &call) const;
  void lookAtCallers();
  Filled fillOf(int block) const;
  void summarise();
  std::vector<Filled> solve(const Units &atLaunch) const;
  Units storedUnwritten() const;

  const Program &program_;
  const Segments &segments_;
  const LaneFlow &flow_;
  bool unknownCalls_;
  std::vector<uint8_t> enteredInside_; ///< whether a function is only called with lanes that were launched
  std::vector<uint8_t> enteredFull_;   ///< whether a function is only called with all lanes that were launched
  std::vector<Filled> fills_;          ///< by block, without what it calls
  std::vector<Filled> ofFunctions_;    ///< with all they call
};

} // namespace luthier::LUTHIER_FLOW
