// Ctrl-C during long native work.
#pragma once

namespace luthier {

/// To be called in loops that may go on for long, with or without the interpreter lock: lets Python answer signals now
/// and then, and throws what their handlers raise. Asks for the lock at most once in a tenth of a second.
void answerSignals();

} // namespace luthier
