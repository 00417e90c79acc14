// The control flow of a lifted kernel, and its blocks cut after each write of EXEC: between two cuts every instruction
// runs with the same active lanes.
#pragma once

#include "code/blocks.h"
#include "mask_operations.h"

#include "../mc/interrupts.h"

#include <unordered_map>

namespace luthier::LUTHIER_FLOW {

using code::Exit;

struct Edge {
  int to;
  bool taken; ///< else to the next instruction, or indirect
  bool fallthrough;
  bool inside = false; ///< from one part of a long block to the next
};

struct Block {
  int first, last; ///< instructions, inclusive
  Exit exit;
  std::vector<Edge> successors;
  std::vector<int> predecessors;
  std::vector<int> owners; ///< functions it is part of
};

struct Call {
  int block; ///< it ends
  bool tail;
  bool known;
  std::vector<int> callees;
};

struct Function {
  int entry_block;
  std::vector<int> blocks;
  std::vector<int> calls; ///< indices in `Program::calls`
};

/// Effects of an instruction that differ from those of its encoding: it runs in a mode that changes them, or includes
/// code that is inserted before it.
struct Override {
  Effects effects;
  bool opaque = false;     ///< its effect on masks is not that of its opcode
  bool sets_lanes = false; ///< what is inserted writes EXEC: the instruction itself runs behind that
};

/// A lifted kernel, as luthier.lifting.model describes it.
struct Program {
  const EffectTable *table;
  Code code;
  std::vector<Block> blocks;
  std::vector<Function> functions; ///< the kernel first
  std::vector<Call> calls;
  std::vector<int> call_of;  ///< by block, -1 where none ends it
  std::vector<int> entries;  ///< blocks at which hardware starts the kernel
  Units vectors, everything; ///< units the kernel may touch
  int launched;              ///< VGPRs the launch sets
  bool unknown;              ///< some jump or call may go to an unknown target

  std::unordered_map<int, Override> overrides; ///< by instruction

  const Override *override_of(int index) const {
    if (overrides.empty())
      return nullptr;
    const auto at = overrides.find(index);
    return at == overrides.end() ? nullptr : &at->second;
  }
  void effects(int index, Effects &out) const {
    if (const Override *given = override_of(index))
      out = given->effects;
    else
      effects_of(*table, *table->form(code.opcode[index]), operands_of(code, index), vectors, everything, out);
  }
};

/// Instructions of a block up to a write of EXEC, or to the block's end, with their combined effects.
struct Segment {
  int first, last;               ///< inclusive
  Units reads, kills;            ///< read in active lanes before anything here replaces them; and scalars
  Units cross_reads, hard_kills; ///< read in any lane before anything here replaces them in every lane; and scalars
  Units writes;
  Units writes_anywhere;                 ///< written in lanes that may not be active
  Units stores_unwritten;                ///< put where others can see them, and not written here before
  std::vector<MaskOperation> operations; ///< on masks; the last one is the write of EXEC if there is one
};

using Segments = std::vector<std::vector<Segment>>; ///< by block

Segments cut_blocks(const Program &program);

} // namespace luthier::LUTHIER_FLOW
