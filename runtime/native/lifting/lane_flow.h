// `LaneMasks` at every point of a kernel and its functions.
//
// Functions are analysed once for all their callers, from a state that knows only which lanes are active. After a call,
// a caller still knows what the callee is seen to preserve: EXEC, and scalar registers.
#pragma once

#include "segments.h"

#include <set>

namespace luthier::LUTHIER_FLOW {

/// Groups while one segment runs.
struct SegmentLanes {
  int groups = 0;
  Groups on = 0;
  Groups own = 0;             ///< certainly active when the function was entered
  Groups outside = 0;         ///< certainly not
  std::vector<Groups> spread; ///< for each group, those its lanes are in behind the segment; empty: the same
};

/// Groups in one block.
struct BlockLanes {
  std::vector<SegmentLanes> segments;
  std::vector<Groups> call;            ///< for each group at a call, those its lanes are in behind it; empty: the same
  SegmentLanes behind;                 ///< where the block is left; behind a call, when it has returned
  std::vector<std::vector<int>> edges; ///< for each successor, the group there of each group here; -1: has no lanes
};

/// A block at which functions are entered.
struct Root {
  int block;
  std::vector<int> functions;
  int inactive = 0, active = 0; ///< the groups of lanes that are inactive, and active, on entry
};

class LaneFlow {
public:
  LaneFlow(const Program &program, const Segments &segments);

  std::vector<BlockLanes> blocks;
  std::vector<Root> roots;

private:
  std::vector<Units> written_by_functions() const;
  std::vector<Units> scalars_read_later() const;
  bool enter(int block, const LaneMasks &state, Groups vacant, std::vector<int> &into);
  bool go_on(int block, const LaneMasks &state, std::vector<int> &into);
  void run(std::set<int> work);
  void visit(int number, std::set<int> &again);
  void leave(int number, const LaneMasks &state, std::set<int> &again);
  std::vector<Groups> call(int number, LaneMasks &state) const;
  std::set<int> stale() const;

  const Program &program_; // both only while the analysis runs
  const Segments &segments_;
  std::vector<std::optional<LaneMasks>> before_; ///< by block; only while the analysis runs
  std::vector<uint8_t> keeps_exec_;
  std::vector<Units> changes_;             ///< scalar units that may not hold their entry value when a function returns
  std::vector<Units> writes_;              ///< vector units a function may write
  std::vector<Units> kept_;                ///< units whose knowledge is useful at the start of a block
  std::vector<std::vector<int>> callers_;  ///< blocks
  std::vector<int> version_;               ///< how often what is known at the start of a block has changed
  std::vector<std::vector<int>> versions_; ///< by block, the version of each successor that its edges were made for
};

} // namespace luthier::LUTHIER_FLOW
