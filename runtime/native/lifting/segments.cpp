#include "segments.h"

namespace luthier::LUTHIER_FLOW {

Segments cutBlocks(const Program &program) {
  Effects effects;
  Units kept; // VGPRs in whose lanes scalars are put
  for (const Block &block : program.blocks)
    for (int index = block.first; index <= block.last; ++index)
      if (program.table->form(program.code.opcode[index])->mask == MaskKind::PutLane) {
        program.effects(index, effects);
        kept |= effects.writes & Vectors;
      }
  const MaskOperations maker(*program.table, kept);

  Segments all(program.blocks.size());
  for (size_t number = 0; number < all.size(); ++number) {
    answerSignals();
    const Block &block = program.blocks[number];
    Segment segment{};
    segment.first = block.first;
    Units forgotten;
    const auto forget = [&] {
      if (!forgotten)
        return;
      MaskOperation operation;
      operation.writes = forgotten - pairOfUnits(ExecLo, 2);
      segment.operations.push_back(operation);
      forgotten = {};
    };
    for (int index = block.first; index <= block.last; ++index) {
      const OpcodeForm &form = *program.table->form(program.code.opcode[index]);
      const Override *given = program.overrideOf(index);
      program.effects(index, effects);
      segment.reads |= effects.reads - segment.kills;
      if (form.stores)
        segment.storesUnwritten |= (effects.reads & Vectors) - segment.writes;
      segment.kills |= effects.kills;
      segment.crossReads |= effects.crossReads - segment.hardKills;
      segment.hardKills |= effects.hardKills;
      segment.writes |= effects.writes;
      if (form.writesAnywhere || (given && given->setsLanes))
        segment.writesAnywhere |= effects.writes & Vectors;
      bool ends = index == block.last;
      if (effects.writes & maker.interesting) {
        const bool opaque = given && given->opaque;
        if ((form.mask == MaskKind::Other || opaque) && !(effects.writes & program.table->exec)) {
          forgotten |= effects.writes & maker.interesting;
        } else {
          forget();
          segment.operations.push_back(opaque ? maker.unknown(effects)
                                              : maker.make(form, effects, operandsOf(program.code, index)));
          ends |= segment.operations.back().setsExec;
        }
      }
      if (ends) {
        forget();
        segment.last = index;
        all[number].push_back(std::move(segment));
        segment = Segment{};
        segment.first = index + 1;
        if (index == block.last && given && given->setsLanes) {
          // A call has its lanes from the last segment: those behind what is inserted.
          segment.last = index;
          all[number].push_back(segment);
        }
      }
    }
  }
  return all;
}

} // namespace luthier::LUTHIER_FLOW
