// The effects of operations that compute addresses on what registers may hold.
#pragma once

#include "address_values.h"
#include "effects.h"

#include <map>
#include <set>
#include <vector>

namespace luthier::LUTHIER_FLOW {

/// The role of an operation in the search, from luthier.lifting.addresses.operations.OperationRole.
enum Role : uint16_t {
  kFollowed = 1,        ///< its results may be known
  kReadsCounter = 2,    ///< it reads the program counter
  kNeedsCounter = 4,    ///< it makes values only from ones made of a program counter
  kMoves = 8,           ///< its result is one of its sources
  kCopies = 16,         ///< it may pass on what a register held at the function's entry
  kByRegister = 32,     ///< it goes to an address in registers
  kMayReturn = 64,      ///< it may leave for the caller
  kLeaves = 128,        ///< control may leave the function there
  kUsesCarry = 256,     ///< its results depend on all that it reads
  kUsesExecAlone = 512, ///< its results depend on EXEC alone
  kUsesLanes = 1024,    ///< its results depend on what is known of EXEC
  kAnyLanes = 2048,     ///< its results do not depend on EXEC, which it reads
  kAdds = 4096          ///< its result is one of its sources, plus or minus the rest
};

/// What an operation does, from luthier.lifting.addresses.operations.AddressAction.
enum class Action : uint8_t {
  kNone,
  kGetCounter,
  kCopy,
  kMoveShort,
  kSelect,
  kCompare,
  kSignExtend,
  kAdd,
  kAddSigned,
  kAddCarry,
  kAddPair,
  kSubtract,
  kSubtractBorrow,
  kSaveExec,
  kCombineMasks,
  kLoadLanes,
  kReadFirstLane,
  kWriteLane,
  kReadLane,
  kLoad,
  kLoadIndexed,
  kLoadBoth
};

/// Borrowed columns of instructions.
struct AddressCode {
  Code code;
  const int64_t *address;
  const int32_t *size;
  const uint32_t *roles; ///< bits of `Role`, and above these 16 an `Action`

  uint16_t role(int index) const { return uint16_t(roles[index]); }
  Action action(int index) const { return Action(roles[index] >> 16); }
};

/// The addresses of an s_getpc_b64 and of its two additions, and the offset that they add.
using CounterReference = std::tuple<int64_t, int64_t, int64_t, uint64_t>;

/// Observations about the operations of one function. Instructions are given as addresses.
struct Notes {
  std::set<CounterReference> references;
  std::map<int64_t, int64_t> low_adds; ///< addition to the low half of a fresh program counter -> its s_getpc_b64
  std::set<int64_t> computed;          ///< s_getpc_b64 with additions other than of two literals
  std::set<int64_t> raw_uses;          ///< s_getpc_b64 with uses that are not followed, before an offset is added
  std::set<int64_t> other_uses;        ///< the same after an offset is added
  std::set<int64_t> values;            ///< those of `other_uses` with uses other than jumps

  /// Record that an instruction uses program counters in ways that are not followed.
  /// @param leaves whether control may leave the function there
  void use(const Taints &taints, bool leaves);
};

class AddressOperations {
public:
  /// @param filled addresses in the code that the loader writes, ascending: the bytes in the file are meaningless
  AddressOperations(const EffectTable &table, const AddressCode &code, std::vector<int64_t> filled)
      : table_(table), code_(code), filled_(std::move(filled)) {}

  /// Run one instruction. @param notes receives references and uses on the last pass, otherwise null
  void apply(int index, const Effects &effects, AddressState &state, Notes *notes) const;
  /// Return the first unit of a register operand, -1 if it has none.
  int unit(int index, int operand) const;

private:
  using Results = std::vector<std::pair<AddressKey, Values>>; ///< of units that it writes; a later one counts

  Results results(int index, const AddressState &state, Notes *notes) const;
  Taints taints(int index, const Effects &effects, const AddressState &state) const;
  int units(int index, int operand) const;
  int64_t value(int index, int operand) const;
  Values source(const AddressState &state, int index, int operand, int half = 0) const;
  bool is_immediate(int index, int operand) const;
  bool is_filled(int64_t address) const;
  int lane(int index, const AddressState &state) const;

  struct Sum {
    Values bases, addends; ///< the address first
    bool literal;          ///< whether the addend is an immediate
  };
  Sum sum_operands(int index, const AddressState &state, Value::Kind kind, bool subtract) const;
  Results copy(int index, const AddressState &state) const;
  Results select(int index, const AddressState &state) const;
  Results compare(int index, const AddressState &state) const;
  Results sign_extend(int index, const AddressState &state) const;
  Results sum(int index, const AddressState &state, Notes *notes, bool subtract) const;
  Results sum_carry(int index, const AddressState &state, Notes *notes, bool subtract) const;
  Results add_pair(int index, const AddressState &state, Notes *notes) const;
  bool wide_literal(int index, int operand, uint64_t &literal) const;
  Results load(int index, const AddressState &state, int64_t immediate, const Values &offset) const;
  Values offset_register(int index, const AddressState &state) const;
  Results load_lanes(int index, const AddressState &state) const;
  Results read_first_lane(int index, const AddressState &state) const;
  Results save_exec(int index, const AddressState &state) const;
  Results combine_masks(int index, const AddressState &state) const;
  Results write_lane(int index, const AddressState &state) const;

  const EffectTable &table_;
  const AddressCode code_;
  const std::vector<int64_t> filled_;
};

} // namespace luthier::LUTHIER_FLOW
