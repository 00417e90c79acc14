// Starts work-groups and runs their waves until something needs the host.
#pragma once

#include <cstdint>

namespace luthier {

// Bit of a wave's status: a debugger halts it.
constexpr uint64_t kHalted = 4;
// Bit of layout::launch's `stepping`: waves return before their first instruction, too.
constexpr uint64_t kShowsFirst = uint64_t{1} << 31;

// Runs work-groups one after another, the waves of each round robin: a wave runs until it ends, reaches a barrier, or
// has used its quantum of backward branches. Return one of layout's reasons; also when a work-group has used its slice,
// so that others get a turn.
int schedule(char *context, char *group);

} // namespace luthier
