// Finds the reachable code, from each entry along branches and calls, and the functions that are called.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace luthier {
struct Instructions;
}

namespace luthier::code {

/// How control leaves an instruction: luthier.lifting.instructions.semantics.Control, or that it is undecodable.
enum class Control : int8_t {
  kUndecodable = -1,
  kNext,
  kBranch,
  kConditional,
  kCall,
  kCallRegister,
  kJumpRegister,
  kEnd,
  kTrap,
  kRefused
};

/// A run of text decoded from its first byte.
struct Piece {
  int64_t start, end;
  std::shared_ptr<const Instructions> code;
  int count;             ///< of instructions, with these columns of `code`
  const int64_t *offset; ///< from `start`, ascending
  const int32_t *size;
  const int64_t *target; ///< address that a branch or call encodes
  std::vector<Control> control;
  std::vector<int> stops; ///< ascending: instructions after which control may not go on to the next
  uint8_t marks = 0;      ///< of all opcodes together: luthier.lifting.instructions.semantics.Mark

  int64_t address(int index) const { return start + offset[index]; }
  int64_t behind(int index) const { return address(index) + size[index]; }
  int index_of(int64_t address) const;     ///< -1 where no instruction begins
  int64_t first_register(int index) const; ///< LLVM's number of the first operand, 0 unless it is a register
};

struct Range {
  int64_t first, end;
};

/// The executable sections of an object.
struct TextMap {
  std::vector<Range> sections;
  std::vector<Range> functions; ///< ascending; `end` is `first` where it is not known
  std::vector<int64_t> starts;  ///< ascending: where pieces begin, the sections among them
  std::vector<int> first_unit;  ///< of registers, by LLVM's number; -1 where there is none

  const Range *section(int64_t address) const {
    const auto holds = [&](const Range &range) { return range.first <= address && address < range.end; };
    const auto at = std::find_if(sections.begin(), sections.end(), holds);
    return at == sections.end() ? nullptr : &*at;
  }
  /// The function of known size that holds an address; null where there is none.
  const Range *function(int64_t address) const;
  bool begins_function(int64_t address) const;
};

/// Why code cannot be followed; luthier.lifting.code.explore reports it.
struct Problem {
  std::string message; ///< empty: the instruction at `address` is refused
  int64_t address;
  std::optional<int64_t> function = {}; ///< whose name ends the message
  std::optional<int64_t> number = {};   ///< that ends it
};

class Explorer {
public:
  /// Decodes from an address to the next start of a piece, or up to an end.
  using Decode = std::function<std::shared_ptr<Piece>(int64_t start, std::optional<int64_t> end)>;
  /// A called function, or the kernel.
  struct Function {
    int64_t entry;
    std::set<int> links; ///< first units of the registers in which its callers leave the return address
  };
  struct Part {
    std::shared_ptr<Piece> piece;
    std::vector<uint8_t> reached; ///< by instruction; empty where none is
    int64_t end = 0;              ///< up to which it counts: a later one may begin inside
    int count = 0;                ///< instructions up to there
  };

  /// @param known an explorer of the same text, whose decoded pieces are used; may be null
  Explorer(std::shared_ptr<const TextMap> text, const Explorer *known);

  /// Explore a function, and note the register in which a caller leaves the return address.
  /// @throws Problem as `reach`, or its address is misaligned
  void add_function(int64_t entry, std::optional<int> link, int64_t caller, const Decode &decode);

  /// Explore all code that is reachable from an address, and note calls.
  /// @throws Problem control gets to bytes that are no code, or to operations that cannot be followed
  void reach(int64_t address, int64_t origin, const Decode &decode);

  /// Return whether control can return to after the call or trap at `address`.
  ///
  /// Compilers put nothing after a call that never returns: the function ends there, or data follows.
  bool comes_back(int64_t address, int64_t following, const Decode &decode);

  /// Return the function that begins at an address.
  const Function &function_at(int64_t entry) const { return functions[places_.at(entry)]; }
  /// Return whether a jump between two addresses leads to another function, rather than being a long branch.
  bool leaves_function(int64_t source, int64_t target) const;
  /// Return the first unit of a register, by LLVM's number.
  std::optional<int> link_of(int64_t number) const;

  /// Return the pieces with reached instructions, ascending.
  std::vector<const Part *> parts();

  std::set<int64_t> leaders;       ///< addresses at which a block begins
  std::vector<Function> functions; ///< in the order in which they are found
  size_t links = 0;                ///< of all of them

private:
  struct Place {
    Part *part;
    int index;
  };

  Place locate(int64_t address, const Decode &decode);
  Part &part_at(int64_t start, const Decode &decode);
  bool note_function(int64_t entry);
  void note_link(int64_t entry, std::optional<int> link);
  void go(int64_t address, int64_t origin);
  void run(int64_t address, const Decode &decode);
  void leave(const Piece &piece, int index, const Decode &decode);
  void check_fall(int64_t address, int64_t following) const;

  std::shared_ptr<const TextMap> text_;
  std::vector<int64_t> more_; ///< starts besides the text's, ascending: data lies before these
  std::map<int64_t, Part> parts_;
  std::shared_ptr<std::map<int64_t, std::shared_ptr<Piece>>> pieces_; ///< those of the text, by start
  std::unordered_map<int64_t, size_t> places_;                        ///< in `functions`, by entry
  std::vector<int64_t> work_;
};

} // namespace luthier::code
