// Ctrl-C during long native work.
#pragma once

namespace luthier {

/// Let Python handle signals, and throw what their handlers raise. For loops that may run for long, with or without the
/// interpreter lock, which is taken at most once in a tenth of a second.
void answer_signals();

} // namespace luthier
