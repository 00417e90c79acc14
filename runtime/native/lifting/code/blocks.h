// Blocks of the reachable code.
#pragma once

#include "explorer.h"

#include <tuple>

namespace luthier::code {

/// How control leaves a block: luthier.lifting.model.BlockExit.
enum class Exit : uint8_t { kFallthrough, kBranch, kConditional, kCall, kTail, kReturn, kEnd, kTrap, kUnknown };

/// luthier.lifting.model.EdgeKind
enum class EdgeKind : uint8_t { kFallthrough, kTaken, kIndirect };

/// Targets of an indirect jump or call: luthier.lifting.code.graph.Resolution has the members.
struct Resolution {
  bool is_return = false;
  std::set<uint64_t> targets;
  std::string reason;
  std::set<int64_t> references;
  std::set<uint64_t> slots;
  bool direct = false;

  bool operator==(const Resolution &other) const {
    const auto all = [](const Resolution &each) {
      return std::tie(each.is_return, each.targets, each.reason, each.references, each.slots, each.direct);
    };
    return all(*this) == all(other);
  }
};
/// By address of the jump or call.
using Resolutions = std::unordered_map<int64_t, std::shared_ptr<const Resolution>>;

struct Block {
  struct Edge {
    EdgeKind kind;
    int to;
  };
  int first, last; ///< instructions, inclusive
  Exit exit;
  std::vector<Edge> successors;  ///< a call's to where it returns
  int64_t address, last_address; ///< of those instructions
};

/// All blocks of a kernel, in address order.
class Blocks {
public:
  /// A block that ends with a call or register jump.
  struct Jump {
    int block;
    Control control;
    std::vector<int64_t> targets; ///< functions of a call or tail call; of a jump by a pointer, some of its targets
    std::shared_ptr<const Resolution> resolution; ///< null for a call that has its target, and until it is analysed

    /// Whether it may lead to further targets.
    bool is_incomplete() const { return resolution && !resolution->reason.empty(); }
  };
  struct Function {
    int64_t entry;
    std::vector<int> members; ///< its blocks, ascending
  };

  /// Cut the reached code to blocks.
  /// @throws Problem reached instructions overlap
  Blocks(Explorer &explorer, const Explorer::Decode &decode);

  /// Connect the blocks that register jumps and calls end with known targets; those without a block are ignored.
  void connect(const Explorer &explorer, const Resolutions &known);
  /// Find the blocks of all functions.
  /// @param roots where the first one is entered, if it is not at its beginning alone
  /// @param left units of luthier.lifting.code.effort that this may take
  /// @returns units that it took; more than were left if the rest is missing
  int64_t find_functions(const Explorer &explorer, const std::vector<int64_t> &roots, int64_t left);
  /// Return the block that begins at an address, -1 where none does.
  int at(int64_t address) const;
  /// Return the call or register jump that ends a block, null if it ends otherwise.
  const Jump *jump_of(int block) const;
  /// Return the block that ends with the call or register jump at an address.
  int block_of_jump(int64_t address) const;
  /// Return the function that begins at an address.
  const Function &function_at(int64_t entry) const { return functions[places_.at(entry)]; }

  /// The blocks of some functions in the order of functions, then of addresses.
  struct Arrangement {
    std::vector<int> order;                     ///< blocks; one in several functions is where the first has it
    std::vector<int> numbers;                   ///< by block, its place in `order`, -1 where it has none
    std::vector<int> owners;                    ///< by place, the first function
    std::vector<std::vector<int>> predecessors; ///< by place, ascending places
    std::vector<std::vector<int>> functions;    ///< the places of each one's blocks
  };
  /// Arrange the blocks of `functions`.
  Arrangement arrange() const;

  std::vector<Block> all;
  std::vector<Jump> jumps; ///< ascending
  std::vector<Function> functions;

private:
  class Cursor;

  void leave(const Cursor &place, Explorer &explorer, const Explorer::Decode &decode);
  void lead(Jump &jump, const Explorer &explorer);
  std::vector<int> reach(const std::vector<int64_t> &roots, std::vector<size_t> &seen, size_t now) const;

  std::vector<int64_t> begins_;                ///< of blocks, ascending
  std::unordered_map<int64_t, size_t> places_; ///< in `functions`, by entry
};

/// The blocks of a lifted kernel in the order of luthier.lifting.model.
struct ArrangedBlocks {
  std::shared_ptr<const Blocks> blocks;
  Blocks::Arrangement arrangement;

  size_t count() const { return arrangement.order.size(); }
  const Block &at(size_t place) const { return blocks->all[size_t(arrangement.order[place])]; }
  /// Return the place to which an edge of one of these blocks leads.
  int to(const Block::Edge &edge) const { return arrangement.numbers[size_t(edge.to)]; }
};

} // namespace luthier::code
