// Effects of single instructions on `LaneMasks`.
#pragma once

#include "effects.h"
#include "lane_masks.h"

namespace luthier::LUTHIER_FLOW {

/// One instruction that changes masks, or several that only overwrite some.
struct MaskOperation {
  enum Action : uint8_t {
    kForget,
    kExecUnknown,
    kLogicOperation,
    kLogicExec,
    kSaveExec,
    kWriteExec,
    kCompareOperation,
    kCompareIntoExec,
    kCopy,
    kSelectOperation,
    kPutInLane,
    kGetFromLane,
  };
  Action action = kForget;
  bool sets_exec = false;
  uint8_t lanes = 0;
  uint8_t table = 0, width = 1;
  int8_t lane = -1; ///< for scalars in lanes; -1 if it is not constant
  int target = -1;  ///< first unit written, besides EXEC in operations that write both; -1 if none
  std::array<int, 2> sources{kZero, kZero}; ///< first units, or kZero, kOnes, kUnknown
  Units writes;                             ///< scalar units that change, and VGPRs in whose lanes scalars are kept

  /// Change the state; for writes of EXEC, set for each group before the groups its lanes are in afterwards.
  void run(LaneMasks &state, std::vector<Groups> &spread) const;
};

/// Makes the operations of one kernel.
struct MaskOperations {
  const EffectTable &table;
  Units interesting; ///< units whose writes change what is known of masks

  /// @param lanes_kept VGPRs in whose lanes scalars are put
  MaskOperations(const EffectTable &table, const Units &lanes_kept);

  /// Return the operation of an instruction whose effects alone are known.
  MaskOperation unknown(const Effects &effects) const;
  /// Return the operation of one instruction that writes something `interesting`.
  MaskOperation make(const OpcodeForm &form, const Effects &effects, const Operands &operands) const;
};

} // namespace luthier::LUTHIER_FLOW
