// Starts work-groups and runs their waves until something needs the host.
#pragma once

namespace luthier {

// Runs work-groups one after another, the waves of each round robin: a wave runs until it ends, reaches a barrier, or
// has used its quantum of backward branches. Return one of layout's reasons; also when a work-group has used its slice,
// so that others get a turn.
int schedule(char *context, char *group);

} // namespace luthier
