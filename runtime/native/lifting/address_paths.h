// The blocks of one function for the search for the targets of register jumps (address_search.h):
// the instructions that can matter, and the effects of the many other blocks on the way from one of them to the next.
#pragma once

#include "address_operations.h"
#include "code/blocks.h"

#include <set>

namespace luthier::LUTHIER_FLOW {

class AddressPaths {
public:
  /// One instruction that can matter or at which control may leave, or several consecutive others.
  struct Part {
    int first, last; ///< inclusive
    bool alone;      ///< it is looked at by itself
    bool followed;   ///< it makes values
    Units reads, writes, kills;
  };
  /// From one place to the next block of `special`.
  struct Way {
    int to;
    Units writes; ///< on any path
    Units kills;  ///< on every path
  };
  /// An instruction that reads units.
  struct Use {
    int index;
    Units units;
  };

  /// @param code instructions whose opcodes all have a form
  /// @param roots blocks at which the function is entered
  AddressPaths(const EffectTable &table, const AddressCode &code, const Units &vectors, const Units &everything,
               const code::Blocks &blocks, const std::vector<int> &roots);

  /// Return the instructions whose results, or whose effect on what is known of EXEC, can matter, ascending.
  ///
  /// Two passes over sets of units, both over-approximations: forward, what a program counter may be in; backward, what
  /// holds something that matters.
  /// @param called whether it matters which registers the function restores
  /// @param finished whether it matters where all addresses made from a program counter go, not only how they are made
  std::vector<int> relevant(bool called, bool finished);

  /// Cut the blocks at these instructions, and at those at which control may leave; set where ways end.
  void cut(const std::vector<int> &relevant);

  /// Return the blocks that such instructions are in, and others where ways end, as a search that goes on with the
  /// lowest block finds them.
  std::vector<int> special() const;
  const std::vector<Part> &parts(int block) const { return blocks_[size_t(place_of(block))].parts; }

  /// Return the ways from these blocks' beginnings to blocks of `special`.
  std::vector<Way> ways(const std::vector<int> &from);
  /// Return the reads of what these units held at those beginnings, on the ways.
  std::vector<Use> uses(const std::vector<int> &from, const Units &held);
  /// Return the same of instructions `first` to `last`.
  std::vector<Use> uses_between(int first, int last, Units held) const;

  int64_t visits = 0;       ///< of blocks, so far
  int64_t most = INT64_MAX; ///< number at which passes stop, with partial results

private:
  /// Instructions of a block: one that has a role or writes EXEC, or several in a row that do neither.
  struct Step {
    int first, last;
    uint16_t role;
    Units reads, writes, kills;
    bool fresh = false, derived = false; ///< it reads a program counter, or what may be derived from one
    bool relevant = false;
    bool has(int roles) const { return role & roles; }
  };
  struct Block {
    int number;
    std::vector<int> successors; ///< places in `blocks_`
    std::vector<Step> steps;
    std::vector<Part> parts;
    Units reads, writes, kills;
    bool special = false;
  };
  /// Blocks to visit again, the lowest first.
  using Work = std::set<int>;

  void find_blocks(const code::Blocks &blocks, const std::vector<int> &roots);
  void add_steps(Block &block, const code::Block &extent) const;
  void forward();
  Units restorable() const;
  void backward(bool finished, const Units &restored);
  void add_meetings();
  int place_of(int number) const;
  bool is_spent(const Block &block);
  /// Call `each(place, block)` for blocks with work until there is none; special blocks end it. Return false if the
  /// limit of visits is reached.
  template <typename Each> bool settle(Work &work, Each each);

  const EffectTable &table_;
  const AddressCode code_;
  const Units vectors_, everything_;
  std::vector<Block> blocks_; ///< reachable ones, ascending
  std::vector<int> roots_;    ///< places in `blocks_`, as all that follows
  std::vector<int> found_;    ///< in the order of `special`
};

} // namespace luthier::LUTHIER_FLOW
