// Blocks of the reachable code.
#pragma once

#include "explorer.h"

namespace luthier::code {

/// How control leaves a block: luthier.lifting.model.BlockExit.
enum class Exit : uint8_t { kFallthrough, kBranch, kConditional, kCall, kTail, kReturn, kEnd, kTrap, kUnknown };

/// luthier.lifting.model.EdgeKind
enum class EdgeKind : uint8_t { kFallthrough, kTaken, kIndirect };

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
    int64_t target; ///< of a call that has one
  };

  /// Cut the reached code to blocks. `lead` adds the targets of register jumps.
  /// @throws Problem reached instructions overlap
  Blocks(Explorer &explorer, const Explorer::Decode &decode);

  /// Set how control leaves the block that a register jump ends, and its successors, by address; addresses without a
  /// block are ignored.
  void lead(int block, Exit exit, EdgeKind kind, const std::vector<int64_t> &targets);
  /// Return the block that begins at an address, -1 where none does.
  int at(int64_t address) const;
  /// Return the blocks that control reaches from these, ascending.
  std::vector<int> reach(const std::vector<int> &roots) const;

  /// The blocks of some functions in the order of functions, then of addresses.
  struct Arrangement {
    std::vector<int> order;                     ///< blocks; one in several functions is where the first has it
    std::vector<int> numbers;                   ///< by block, its place in `order`, -1 where it has none
    std::vector<int> owners;                    ///< by place, the first function
    std::vector<std::vector<int>> predecessors; ///< by place, ascending places
    std::vector<std::vector<int>> functions;    ///< the places of each one's blocks
  };
  /// @param functions the blocks of each
  Arrangement arrange(std::vector<std::vector<int>> functions) const;

  std::vector<Block> all;
  std::vector<Jump> jumps;

private:
  class Cursor;

  void leave(const Cursor &place, Explorer &explorer, const Explorer::Decode &decode);

  std::vector<int64_t> begins_; ///< of blocks, ascending
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
