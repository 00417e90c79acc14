#include "segments.h"

namespace luthier::LUTHIER_FLOW {

Segments cut_blocks(const Program &program) {
  Effects effects;
  Units kept; // VGPRs in whose lanes scalars are put
  for (const Block &block : program.blocks)
    for (int index = block.first; index <= block.last; ++index)
      if (program.table->form(program.code.opcode[index])->mask == MaskKind::kPutLane) {
        program.effects(index, effects);
        kept |= effects.writes & kVectors;
      }
  const MaskOperations maker(*program.table, kept);

  Segments all(program.blocks.size());
  for (size_t number = 0; number < all.size(); ++number) {
    answer_signals();
    const Block &block = program.blocks[number];
    Segment segment{};
    segment.first = block.first;
    Units forgotten;
    const auto forget = [&] {
      if (!forgotten)
        return;
      MaskOperation operation;
      operation.writes = forgotten - pair_of_units(ExecLo, 2);
      segment.operations.push_back(operation);
      forgotten = {};
    };
    for (int index = block.first; index <= block.last; ++index) {
      const OpcodeForm &form = *program.table->form(program.code.opcode[index]);
      const Override *given = program.override_of(index);
      program.effects(index, effects);
      segment.reads |= effects.reads - segment.kills;
      if (form.stores)
        segment.stores_unwritten |= (effects.reads & kVectors) - segment.writes;
      segment.kills |= effects.kills;
      segment.cross_reads |= effects.cross_reads - segment.hard_kills;
      segment.hard_kills |= effects.hard_kills;
      segment.writes |= effects.writes;
      if (form.writes_anywhere || (given && given->sets_lanes))
        segment.writes_anywhere |= effects.writes & kVectors;
      bool ends = index == block.last;
      if (effects.writes & maker.interesting) {
        const bool opaque = given && given->opaque;
        if ((form.mask == MaskKind::kOther || opaque) && !(effects.writes & program.table->exec)) {
          forgotten |= effects.writes & maker.interesting;
        } else {
          forget();
          segment.operations.push_back(opaque ? maker.unknown(effects)
                                              : maker.make(form, effects, operands_of(program.code, index)));
          ends |= segment.operations.back().sets_exec;
        }
      }
      if (ends) {
        forget();
        segment.last = index;
        all[number].push_back(std::move(segment));
        segment = Segment{};
        segment.first = index + 1;
        if (index == block.last && given && given->sets_lanes) {
          // A call has the lanes of the last segment: those after the inserted code.
          segment.last = index;
          all[number].push_back(segment);
        }
      }
    }
  }
  return all;
}

} // namespace luthier::LUTHIER_FLOW
